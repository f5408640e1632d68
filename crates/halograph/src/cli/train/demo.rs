//! The built-in graph, for a first run without data. It lives inside the run, which stays whole that way: `eval`,
//! `predict` and `--resume` find it again.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::generate::{self, presets};
use halograph_graph::progress::Progress;
use tempfile::TempDir;

/// What the built-in graph is called.
pub const PRESET: &str = "demo";

/// The graph, made in a hidden folder beside a run that is not there yet.
pub struct Demo {
    folder: TempDir,
}

impl Demo {
    /// Makes the graph in the folder that will hold the run, so that it can move in without a copy.
    pub fn make(beside: &Path, progress: &dyn Progress) -> Result<Self> {
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        fs::create_dir_all(beside).at(beside, "create")?;
        let folder = tempfile::Builder::new().prefix(".demo-").tempdir_in(beside).at(beside, "write into")?;
        let demo = Demo { folder };
        let preset = presets::find(PRESET).ok_or_else(|| Error::input(PRESET, "no such preset"))?;
        generate::make(&preset.spec, PRESET, &demo.path(), false, progress)?;
        Ok(demo)
    }

    /// Where it is before it moves.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join(PRESET)
    }

    /// Moves into the run, in place of the one of a run that was overwritten.
    pub fn settle(self, home: &Path) -> Result<()> {
        if home.exists() {
            fs::remove_dir_all(home).at(home, "remove")?;
        }
        fs::rename(self.path(), home).at(home, "create")
    }
}
