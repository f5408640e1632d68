//! The built-in graph, for a first run without data. It is stored inside the run directory, where `eval`, `predict` and
//! `--resume` find it again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halograph_graph::Dataset;
use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::generate::{self, presets};
use halograph_graph::progress::{Progress, Silent};
use tempfile::TempDir;

/// Name of the built-in graph.
pub const PRESET: &str = "demo";

/// The built-in graph, in a hidden temporary folder.
pub struct DemoGraph {
    folder: TempDir,
}

impl DemoGraph {
    /// Generates the graph in a hidden folder inside `beside`. Writes files; dropping the result removes them.
    pub fn generate(beside: &Path, progress: &dyn Progress) -> Result<Self> {
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        fs::create_dir_all(beside).at(beside, "create")?;
        let folder = tempfile::Builder::new().prefix(".demo-").tempdir_in(beside).at(beside, "write into")?;
        let demo = DemoGraph { folder };
        let preset = presets::find(PRESET).ok_or_else(|| Error::input(PRESET, "no such preset"))?;
        generate::make(&preset.spec, PRESET, &demo.path(), false, progress)?;
        Ok(demo)
    }

    /// Returns the temporary dataset directory.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(PRESET)
    }

    /// Moves the dataset to `home`, which it replaces.
    pub fn move_to(self, home: &Path) -> Result<()> {
        if home.exists() {
            fs::remove_dir_all(home).at(home, "remove")?;
        }
        fs::rename(self.path(), home).at(home, "create")
    }
}

/// Opens the dataset in `path` or, without one, the built-in graph, whose files are temporary: they are removed, but stay
/// mapped.
pub fn open_dataset(path: Option<&Path>) -> Result<Arc<Dataset>> {
    let dataset = match path {
        Some(path) => Dataset::open(path)?,
        None => Dataset::open(&DemoGraph::generate(&std::env::temp_dir(), &Silent)?.path())?,
    };
    Ok(Arc::new(dataset))
}
