//! Writing a dataset directory: whole or not at all.
//!
//! Files are written into a hidden folder beside the target, synced, and the folder is renamed into place last.
//! Whatever goes wrong before that, the hidden folder is removed and the target is as it was.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use half::f16;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::manifest::{MANIFEST, Manifest, Metric, Task, is_manifest};
use super::{FEAT, FILES, IDS, INDICES, INDPTR, LABEL, SPLIT, order};
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

/// How features are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FeatureType {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats: half the space, 3 decimal digits, up to 65504.
    F16,
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
    /// How to store them.
    pub feature_type: FeatureType,
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
        let feature = match self.feature_type {
            FeatureType::F32 => 4,
            FeatureType::F16 => 2,
        };
        let row = (self.features.cols() as u64).saturating_mul(feature).saturating_add(8 + label + 1);
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
    let shape = [contents.csr.nodes(), contents.features.cols()];
    progress.begin("writing features", Some(shape[0] as u64), Unit::Items);
    match contents.feature_type {
        FeatureType::F32 => {
            let mut writer = npy::Writer::<f32>::create(&staging.path(FEAT), &shape)?;
            stream(contents, progress, &mut |_, rows| writer.write(rows))?;
            writer.finish()
        }
        FeatureType::F16 => {
            let mut writer = npy::Writer::<f16>::create(&staging.path(FEAT), &shape)?;
            let mut halves = Vec::new();
            stream(contents, progress, &mut |row, rows| {
                halves.clear();
                halves.extend(rows.iter().map(|&x| f16::from_f32(x)));
                match halves.iter().position(|x| x.is_infinite()) {
                    None => writer.write(&halves),
                    Some(at) => Err(too_large(contents.features, row, at, rows[at])),
                }
            })?;
            writer.finish()
        }
    }
}

/// Hands all rows of features to `sink`, finite and as many as there are nodes, with the number of the first.
fn stream(
    contents: &Contents,
    progress: &dyn Progress,
    sink: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    let (nodes, cols) = (contents.csr.nodes(), contents.features.cols());
    let mut row = 0;
    contents.features.stream(&mut |rows| {
        if let Some(at) = rows.iter().position(|x| !x.is_finite()) {
            return Err(bad_feature(contents.features, row, at, format!("{}", rows[at])).help(
                "features must be finite and fit 32-bit floats; replace or drop such values before importing",
            ));
        }
        let n = rows.len().checked_div(cols).unwrap_or(0);
        if row + n > nodes {
            let place = contents.features.place(nodes, 0);
            return Err(Error::input(
                place,
                format!("more feature rows than the {nodes} nodes of the graph"),
            ));
        }
        sink(row, rows)?;
        row += n;
        progress.tick(n as u64)
    })?;
    if row != nodes && cols > 0 {
        let place = contents.features.place(row, 0);
        return Err(Error::input(place, format!("{row} feature rows for {nodes} nodes")));
    }
    Ok(())
}

/// Element `at`, counted from row `row`, is not what it should be.
fn bad_feature(features: &dyn FeatureSource, row: usize, at: usize, what: String) -> Error {
    let (row, column) = (row + at / features.cols(), at % features.cols());
    Error::input(features.place(row, column), format!("feature {column} of node {row} is {what}"))
}

fn too_large(features: &dyn FeatureSource, row: usize, at: usize, value: f32) -> Error {
    bad_feature(features, row, at, format!("{value}, beyond {}, the largest 16-bit float", f16::MAX))
        .help("import with --features f32, or scale the features down")
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
    overwrite: bool,
    folder: tempfile::TempDir,
    /// Where the target will be listed.
    parent: PathBuf,
    /// Folders on the way to the target that were made for it, deepest first.
    made: Vec<PathBuf>,
}

impl Staging {
    fn begin(target: &Path, overwrite: bool) -> Result<Staging> {
        may_write(target, overwrite)?;
        let name = target.file_name().ok_or_else(|| {
            Error::input(target.display(), "not a name for a new directory")
                .help("give -o a path that ends in a name")
        })?;
        let prefix = format!(".{}.", name.to_string_lossy());
        // A link to a dataset stays a link: what it points to is replaced.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let parent = match target.parent() {
            Some(p) if p != Path::new("") => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let made = parent.ancestors().take_while(|p| *p != Path::new("") && !p.exists());
        let made = made.map(Path::to_path_buf).collect();
        fs::create_dir_all(&parent).at(&parent, "create")?;
        // The usual rights of a new folder; a temporary one would be the owner's alone.
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            .permissions(fs::Permissions::from_mode(0o777))
            .tempdir_in(&parent)
            .at(&parent, "write into")?;
        Ok(Staging { target, overwrite, folder, parent, made })
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Fails early, and by name, when the file system is too small for `bytes`.
    fn need_space(&self, bytes: u64) -> Result<()> {
        let Ok(stat) = rustix::fs::statvfs(self.folder.path()) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if bytes <= free {
            return Ok(());
        }
        let problem = format!("the dataset needs {bytes} bytes and {free} are free");
        let source = std::io::Error::new(ErrorKind::StorageFull, problem);
        Err(Error::Io { path: self.target.clone(), action: "write", source })
    }

    /// Moves the finished folder into place. An older dataset there changes places with it in one step, and is
    /// then removed under the hidden name.
    fn commit(mut self) -> Result<()> {
        sync_folder(self.folder.path())?;
        // Others may have been here since we began.
        may_write(&self.target, self.overwrite)?;
        if self.target.join(MANIFEST).exists() {
            self.exchange()?
        } else {
            self.place()?
        }
        self.made.clear();
        sync_folder(&self.parent)
    }

    fn exchange(&self) -> Result<()> {
        let (new, target) = (self.folder.path(), &self.target);
        if renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        // A file system that cannot exchange: two steps, and back again if the second fails.
        let old = new.with_extension("old");
        fs::rename(target, &old).at(target, "replace")?;
        if let Err(source) = fs::rename(new, target) {
            fs::rename(&old, target).at(target, "restore")?;
            return Err(Error::Io { path: target.to_path_buf(), action: "create", source });
        }
        fs::remove_dir_all(&old).at(&old, "remove")
    }

    /// Takes a free name, and only a free one.
    fn place(&self) -> Result<()> {
        let (new, target) = (self.folder.path(), &self.target);
        // An empty folder is as good as none; one that is not empty stays, and stops us below.
        let _ = fs::remove_dir(target);
        match renameat_with(CWD, new, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                may_write(target, false)?;
                Err(Error::Io { path: target.to_path_buf(), action: "create", source: Errno::EXIST.into() })
            }
            Err(_) => fs::rename(new, target).at(target, "create"),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Folders that were made for nothing go; one that somebody else uses by now is not empty and stays.
        let _ = fs::remove_dir_all(self.folder.path());
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

fn sync_folder(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|f| f.sync_all()).at(path, "sync")
}

/// Whether `target` may become a dataset: it is not there, is empty, or is nothing but a dataset and `overwrite`
/// is set.
pub fn may_write(target: &Path, overwrite: bool) -> Result<()> {
    let refuse = |problem: String, help: &str| Err(Error::input(target.display(), problem).help(help));
    let entries = match fs::read_dir(target) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            return refuse("is a file, not a directory".into(), "choose another output path");
        }
        entries => entries.and_then(Iterator::collect::<std::io::Result<Vec<_>>>).at(target, "open")?,
    };
    if entries.is_empty() {
        return Ok(());
    }
    if !is_manifest(&target.join(MANIFEST)) {
        return refuse("exists and is not a dataset".into(), "choose another output path");
    }
    if !overwrite {
        return refuse("exists already".into(), "choose another output path, or add --overwrite");
    }
    let ours = |name: &OsString| {
        FILES.iter().any(|file| name == file) || order::is_leftover(&name.to_string_lossy())
    };
    match entries.iter().map(|entry| entry.file_name()).find(|name| !ours(name)) {
        None => Ok(()),
        Some(name) => refuse(
            format!("holds {name:?}, which is no part of a dataset and would be lost"),
            "move it away, or choose another output path",
        ),
    }
}
