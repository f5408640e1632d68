//! Writing a dataset directory, atomically.

use std::ffi::OsString;
use std::path::Path;

use half::f16;

use super::manifest::{MANIFEST, Manifest, Metric, Task, is_manifest};
use super::{FEAT, IDS, INDICES, INDPTR, LABEL, SPLIT, SPLITS, is_part};
use crate::csr::Csr;
use crate::error::{Error, Result};
use crate::io::npy::{self, FileRecord};
use crate::progress::{Progress, Unit};
use crate::staging::{self, FolderKind, Staging, array, text};

/// Feature rows that are read once, in order.
pub trait FeatureSource {
    /// Returns the number of columns.
    fn cols(&self) -> usize;
    /// Passes all rows to `sink` in order, several whole rows at a time.
    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()>;
    /// Returns the position of an element, for messages: file, and line or element.
    fn place(&self, row: usize, column: usize) -> String;
    /// Returns the names of the columns; empty if they have none.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Type of stored features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FeatureType {
    /// 32-bit floats.
    #[default]
    F32,
    /// 16-bit floats: half the size, 3 decimal digits, up to 65504.
    F16,
}

/// Labels of all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    /// One class per node, −1 for none.
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
    /// Returns the task that these labels are for.
    pub fn task(&self) -> Task {
        match self {
            Labels::Single(_) => Task::SingleLabel,
            Labels::Multi { .. } => Task::MultiLabel,
        }
    }
}

/// The contents of a dataset to be written.
pub struct Contents<'a> {
    /// Name of the dataset.
    pub name: String,
    /// The graph.
    pub csr: &'a Csr,
    /// Whether edges are directed.
    pub directed: bool,
    /// Input features.
    pub features: &'a dyn FeatureSource,
    /// Type to store them in.
    pub feature_type: FeatureType,
    /// Labels.
    pub labels: &'a Labels,
    /// Number of classes.
    pub classes: usize,
    /// Names of the classes; may be empty.
    pub class_names: Vec<String>,
    /// The splits, at least one; in each, for every node 0 none, 1 train, 2 validation or 3 test.
    pub splits: &'a [Vec<u8>],
    /// The user's own node ids, if they are not 0, 1, 2….
    pub ids: Option<&'a [String]>,
    /// Metric.
    pub metric: Metric,
    /// Provenance, for `dataset.json`.
    pub source: String,
}

/// Writes `contents` to the directory `target`. An existing dataset there is replaced only if `overwrite`.
pub fn write(
    target: &Path,
    overwrite: bool,
    contents: &Contents,
    progress: &dyn Progress,
) -> Result<Manifest> {
    let staging = Staging::begin(&KIND, target, overwrite)?;
    staging.need_space(contents.bytes())?;
    let mut manifest = Manifest::new(contents.name.clone(), contents.labels.task(), contents.metric);
    manifest.nodes = contents.csr.nodes() as u64;
    manifest.edges = contents.csr.edges();
    manifest.features = contents.features.cols() as u64;
    manifest.classes = contents.classes as u64;
    manifest.directed = contents.directed;
    manifest.source = contents.source.clone();
    manifest.class_names = contents.class_names.clone();
    manifest.feature_names = contents.features.names();
    manifest.splits = contents.splits.len() as u64;
    let files = &mut manifest.files;
    files.insert(
        INDPTR.into(),
        array(&staging.path(INDPTR), &[contents.csr.indptr.len()], &contents.csr.indptr)?,
    );
    files.insert(INDICES.into(), indices(&staging, contents.csr, progress)?);
    files.insert(FEAT.into(), features(&staging, contents, progress)?);
    files.insert(LABEL.into(), labels(&staging, contents)?);
    let first = contents.splits.first().map_or(&[][..], Vec::as_slice);
    files.insert(SPLIT.into(), array(&staging.path(SPLIT), &[first.len()], first)?);
    if contents.splits.len() > 1 {
        files.insert(SPLITS.into(), splits(&staging, contents.splits)?);
    }
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
    /// Returns the size of the arrays in bytes.
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
        let splits = 1 + if self.splits.len() > 1 { self.splits.len() as u64 } else { 0 };
        let row = (self.features.cols() as u64).saturating_mul(feature).saturating_add(8 + label + splits);
        n.saturating_mul(row).saturating_add(4 * self.csr.edges())
    }
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

/// Passes all feature rows to `sink`, with the number of the first one. Refuses values that are not finite and a wrong
/// number of rows.
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

/// Creates the error for element `at`, counted from row `row`.
fn bad_feature(features: &dyn FeatureSource, row: usize, at: usize, what: String) -> Error {
    let (row, column) = (row + at / features.cols(), at % features.cols());
    Error::input(features.place(row, column), format!("feature {column} of node {row} is {what}"))
}

fn too_large(features: &dyn FeatureSource, row: usize, at: usize, value: f32) -> Error {
    bad_feature(features, row, at, format!("{value}, more than {}, the largest 16-bit float", f16::MAX))
        .help("import with --features f32, or scale the features down")
}

fn labels(staging: &Staging, contents: &Contents) -> Result<FileRecord> {
    let path = staging.path(LABEL);
    match contents.labels {
        Labels::Single(labels) => array(&path, &[labels.len()], labels),
        Labels::Multi { classes, flags } => array(&path, &[contents.csr.nodes(), *classes], flags),
    }
}

fn splits(staging: &Staging, splits: &[Vec<u8>]) -> Result<FileRecord> {
    let mut writer = npy::Writer::create(&staging.path(SPLITS), &[splits.len(), splits[0].len()])?;
    splits.iter().try_for_each(|split| writer.write(split))?;
    writer.finish()
}

/// Returns the contents of `ids.txt`.
pub(super) fn lines(ids: &[String]) -> String {
    let mut out = ids.join("\n");
    out.push('\n');
    out
}

/// A dataset directory.
static KIND: FolderKind = FolderKind { noun: "dataset", manifest: MANIFEST, is_manifest, foreign };

/// Returns a file in `folder` that does not belong to a dataset.
fn foreign(folder: &Path) -> std::io::Result<Option<OsString>> {
    Ok(staging::names(folder)?.into_iter().find(|name| !is_part(&name.to_string_lossy())))
}

/// Refuses a `target` that exists, unless it is empty, or `overwrite` is set and it is a dataset without foreign files.
pub fn may_write(target: &Path, overwrite: bool) -> Result<()> {
    KIND.may_write(target, overwrite)
}
