//! Writing a dataset directory: whole or not at all.
//!
//! Files are written into a hidden folder beside the target, synced, and the folder is renamed into place last.
//! Whatever goes wrong before that, the hidden folder is removed and the target is as it was.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::manifest::{MANIFEST, Manifest, Metric, Task};
use super::{FEAT, IDS, INDICES, INDPTR, LABEL, SPLIT};
use crate::csr::Csr;
use crate::error::{Error, IoContext, Result};
use crate::io::npy::{self, FileRecord};
use crate::progress::{Progress, Unit};

/// Feature rows, front to back.
pub trait FeatureSource {
    /// Number of columns.
    fn cols(&self) -> usize;
    /// Hands all rows to `sink` in order, whole rows at a time.
    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()>;
    /// Where an element stands: file, and line or element.
    fn place(&self, row: usize, column: usize) -> String;
}

/// Labels of all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    /// One class a node, −1 for none.
    Single(Vec<i64>),
    /// `nodes × classes` flags.
    Multi {
        /// Columns.
        classes: usize,
        /// 0 or 1 each.
        flags: Vec<u8>,
    },
}

impl Labels {
    /// What these labels ask for.
    pub fn task(&self) -> Task {
        match self {
            Labels::Single(_) => Task::SingleLabel,
            Labels::Multi { .. } => Task::MultiLabel,
        }
    }
}

/// Everything a dataset holds, ready to be written.
pub struct Contents<'a> {
    /// What to call it.
    pub name: String,
    /// The graph.
    pub csr: &'a Csr,
    /// Whether its edges have a direction.
    pub directed: bool,
    /// Input features.
    pub features: &'a dyn FeatureSource,
    /// Labels.
    pub labels: &'a Labels,
    /// Number of classes.
    pub classes: usize,
    /// Names of the classes, or nothing.
    pub class_names: Vec<String>,
    /// 0 none, 1 train, 2 validation, 3 test.
    pub split: &'a [u8],
    /// The user's own ids, one a node, if they are not 0, 1, 2….
    pub ids: Option<&'a [String]>,
    /// How to score it.
    pub metric: Metric,
    /// Where it came from.
    pub source: String,
}

/// Writes `contents` to the directory `target`. An existing dataset there is replaced only if `overwrite`.
pub fn write(
    target: &Path,
    overwrite: bool,
    contents: &Contents,
    progress: &dyn Progress,
) -> Result<Manifest> {
    let staging = Staging::begin(target, overwrite)?;
    staging.need_space(contents.bytes())?;
    let mut manifest = Manifest::new(contents.name.clone(), contents.labels.task(), contents.metric);
    manifest.nodes = contents.csr.nodes() as u64;
    manifest.edges = contents.csr.edges();
    manifest.features = contents.features.cols() as u64;
    manifest.classes = contents.classes as u64;
    manifest.directed = contents.directed;
    manifest.source = contents.source.clone();
    manifest.class_names = contents.class_names.clone();
    let files = &mut manifest.files;
    files.insert(
        INDPTR.into(),
        whole(&staging.path(INDPTR), &[contents.csr.indptr.len()], &contents.csr.indptr)?,
    );
    files.insert(INDICES.into(), indices(&staging, contents.csr, progress)?);
    files.insert(FEAT.into(), features(&staging, contents, progress)?);
    files.insert(LABEL.into(), labels(&staging, contents)?);
    files.insert(SPLIT.into(), whole(&staging.path(SPLIT), &[contents.split.len()], contents.split)?);
    if let Some(ids) = contents.ids {
        files.insert(IDS.into(), text(&staging.path(IDS), &lines(ids))?);
    }
    manifest.fingerprint = manifest.compute_fingerprint();
    let json = serde_json::to_string_pretty(&manifest).expect("a manifest always serialises") + "\n";
    text(&staging.path(MANIFEST), &json)?;
    staging.commit()?;
    Ok(manifest)
}

impl Contents<'_> {
    /// Bytes the arrays will take.
    fn bytes(&self) -> u64 {
        let n = self.csr.nodes() as u64;
        let label = match self.labels {
            Labels::Single(_) => 8,
            Labels::Multi { classes, .. } => *classes as u64,
        };
        let row = (self.features.cols() as u64).saturating_mul(4).saturating_add(8 + label + 1);
        n.saturating_mul(row).saturating_add(4 * self.csr.edges())
    }
}

fn whole<T: npy::Element>(path: &Path, shape: &[usize], elements: &[T]) -> Result<FileRecord> {
    let mut writer = npy::Writer::create(path, shape)?;
    writer.write(elements)?;
    writer.finish()
}

fn indices(staging: &Staging, csr: &Csr, progress: &dyn Progress) -> Result<FileRecord> {
    let ids = csr.indices.as_slice();
    progress.begin("writing edges", Some(ids.len() as u64), Unit::Items);
    let mut writer = npy::Writer::create(&staging.path(INDICES), &[ids.len()])?;
    for chunk in ids.chunks(1 << 20) {
        writer.write(chunk)?;
        progress.tick(chunk.len() as u64)?;
    }
    writer.finish()
}

fn features(staging: &Staging, contents: &Contents, progress: &dyn Progress) -> Result<FileRecord> {
    let (nodes, cols) = (contents.csr.nodes(), contents.features.cols());
    progress.begin("writing features", Some(nodes as u64), Unit::Items);
    let mut writer = npy::Writer::<f32>::create(&staging.path(FEAT), &[nodes, cols])?;
    let mut row = 0;
    contents.features.stream(&mut |rows| {
        if let Some(at) = rows.iter().position(|x| !x.is_finite()) {
            let place = contents.features.place(row + at / cols, at % cols);
            return Err(Error::input(
                place,
                format!("feature {} of node {} is {}", at % cols, row + at / cols, rows[at]),
            )
            .help("features must be finite numbers; replace or drop such values before importing"));
        }
        let n = rows.len().checked_div(cols).unwrap_or(0);
        row += n;
        if row > nodes {
            let place = contents.features.place(nodes, 0);
            return Err(Error::input(
                place,
                format!("more feature rows than the {nodes} nodes of the graph"),
            ));
        }
        writer.write(rows)?;
        progress.tick(n as u64)
    })?;
    if row != nodes && cols > 0 {
        let place = contents.features.place(row, 0);
        return Err(Error::input(place, format!("{row} feature rows for {nodes} nodes")));
    }
    writer.finish()
}

fn labels(staging: &Staging, contents: &Contents) -> Result<FileRecord> {
    let path = staging.path(LABEL);
    match contents.labels {
        Labels::Single(labels) => whole(&path, &[labels.len()], labels),
        Labels::Multi { classes, flags } => whole(&path, &[contents.csr.nodes(), *classes], flags),
    }
}

fn lines(ids: &[String]) -> String {
    let mut out = ids.join("\n");
    out.push('\n');
    out
}

/// Writes and syncs a small text file.
fn text(path: &Path, contents: &str) -> Result<FileRecord> {
    fs::write(path, contents).at(path, "write")?;
    fs::File::open(path).and_then(|f| f.sync_all()).at(path, "write")?;
    let blake3 = blake3::hash(contents.as_bytes()).to_hex().to_string();
    Ok(FileRecord { bytes: contents.len() as u64, blake3 })
}

/// The hidden folder in which a dataset grows; removed unless committed.
struct Staging {
    target: PathBuf,
    folder: PathBuf,
}

impl Staging {
    fn begin(target: &Path, overwrite: bool) -> Result<Staging> {
        may_write(target, overwrite)?;
        let name = target.file_name().ok_or_else(|| {
            Error::input(target.display(), "not a name for a new directory")
                .help("give -o a path that ends in a name")
        })?;
        let parent = match target.parent() {
            Some(p) if p != Path::new("") => p,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).at(parent, "create")?;
        let folder = parent.join(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
        fs::create_dir(&folder).at(&folder, "create")?;
        Ok(Staging { target: target.to_path_buf(), folder })
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// Fails early, and by name, when the file system is too small for `bytes`.
    fn need_space(&self, bytes: u64) -> Result<()> {
        let Ok(stat) = rustix::fs::statvfs(&self.folder) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if bytes <= free {
            return Ok(());
        }
        let problem = format!("the dataset needs {bytes} bytes and {free} are free");
        Err(Error::Io {
            path: self.target.clone(),
            action: "write",
            source: std::io::Error::new(std::io::ErrorKind::StorageFull, problem),
        })
    }

    /// Moves the finished folder into place. An older dataset there changes places with it in one step, and is
    /// removed with the hidden name it then has.
    fn commit(self) -> Result<()> {
        sync_folder(&self.folder)?;
        let exchanged = self.target.join(MANIFEST).exists()
            && renameat_with(CWD, &self.folder, CWD, &self.target, RenameFlags::EXCHANGE).is_ok();
        if !exchanged {
            self.replace()?;
        }
        match self.target.parent() {
            Some(parent) if parent != Path::new("") => sync_folder(parent),
            _ => sync_folder(Path::new(".")),
        }
    }

    /// The same in two steps, for a target that is new or a file system that cannot exchange.
    fn replace(&self) -> Result<()> {
        let old = self.folder.with_extension("old");
        let replaced = self.target.join(MANIFEST).exists();
        if replaced {
            fs::rename(&self.target, &old).at(&self.target, "replace")?;
        }
        if let Err(source) = fs::rename(&self.folder, &self.target) {
            if replaced {
                fs::rename(&old, &self.target).at(&self.target, "restore")?;
            }
            return Err(Error::Io { path: self.target.clone(), action: "create", source });
        }
        if replaced { fs::remove_dir_all(&old).at(&old, "remove") } else { Ok(()) }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After a commit this name is gone, or stands for the dataset that was replaced. A failure here has
        // nobody to tell.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|f| f.sync_all()).at(path, "sync")
}

/// Whether `target` may become a dataset: it is not there, is empty, or is a dataset and `overwrite` is set.
pub fn may_write(target: &Path, overwrite: bool) -> Result<()> {
    let place = target.display();
    match fs::read_dir(target).map(Iterator::count) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Error::input(place, "is a file, not a directory").help("choose another output path"))
        }
        Err(source) => Err(Error::Io { path: target.to_path_buf(), action: "open", source }),
        Ok(0) => Ok(()),
        Ok(_) if !target.join(MANIFEST).exists() => {
            Err(Error::input(place, "exists and is not a dataset").help("choose another output path"))
        }
        Ok(_) if overwrite => Ok(()),
        Ok(_) => {
            Err(Error::input(place, "exists already").help("choose another output path, or add --overwrite"))
        }
    }
}
