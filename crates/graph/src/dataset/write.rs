//! Writing a dataset directory, atomically.

mod features;

use std::ffi::OsString;
use std::path::Path;

use super::manifest::{MANIFEST, Manifest, Metric, Task, is_manifest};
use super::{EDGE_WEIGHT, IDS, INDICES, INDPTR, LABEL, SPLIT, SPLITS, is_part};
use crate::csr::Csr;
use crate::error::Result;
use crate::io::npy::{self, Array, FileRecord};
use crate::progress::{Progress, Unit};
use crate::staging::{self, FolderKind, Staging, array, text};
pub(super) use features::FeaturePlan;

/// Feature rows that are read in order, once or twice.
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
    /// Returns the whole matrix if it is in memory already, as 32-bit floats in row order: a dataset in memory shares it.
    fn in_memory(&self) -> Option<Array> {
        None
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

/// How features are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FeatureLayout {
    /// Sparse if at most [`SPARSE_DENSITY`] of the elements are not 0 and there are at least [`SPARSE_COLUMNS`] columns;
    /// else dense.
    #[default]
    Auto,
    /// Every element.
    Dense,
    /// Rows without their zeros.
    Sparse,
}

/// Largest share of elements that are not 0 of features that [`FeatureLayout::Auto`] stores sparse.
pub const SPARSE_DENSITY: f64 = 0.1;
/// Fewest columns of such features.
pub const SPARSE_COLUMNS: usize = 64;

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
    pub features: &'a (dyn FeatureSource + 'a),
    /// Type to store them in.
    pub feature_type: FeatureType,
    /// How to store them.
    pub feature_layout: FeatureLayout,
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

/// As [`Contents`], owned: a dataset in memory keeps it.
pub(crate) struct OwnedContents<'a> {
    pub name: String,
    pub csr: Csr,
    pub directed: bool,
    pub features: Box<dyn FeatureSource + 'a>,
    pub feature_type: FeatureType,
    pub feature_layout: FeatureLayout,
    pub labels: Labels,
    pub classes: usize,
    pub class_names: Vec<String>,
    pub splits: Vec<Vec<u8>>,
    pub ids: Option<Vec<String>>,
    pub metric: Metric,
    pub source: String,
}

impl OwnedContents<'_> {
    /// Borrows everything.
    pub fn borrowed(&self) -> Contents<'_> {
        Contents {
            name: self.name.clone(),
            csr: &self.csr,
            directed: self.directed,
            features: &*self.features,
            feature_type: self.feature_type,
            feature_layout: self.feature_layout,
            labels: &self.labels,
            classes: self.classes,
            class_names: self.class_names.clone(),
            splits: &self.splits,
            ids: self.ids.as_deref(),
            metric: self.metric,
            source: self.source.clone(),
        }
    }
}

/// Writes `contents` to the directory `target`. An existing dataset there is replaced only if `overwrite`.
pub fn write(
    target: &Path,
    overwrite: bool,
    contents: &Contents,
    progress: &dyn Progress,
) -> Result<Manifest> {
    let staging = Staging::begin(&KIND, target, overwrite)?;
    let features = FeaturePlan::of(contents, progress)?;
    staging.need_space(contents.bytes(&features))?;
    let mut manifest = contents.manifest(&features);
    let files = &mut manifest.files;
    files.insert(
        INDPTR.into(),
        array(&staging.path(INDPTR), &[contents.csr.indptr.len()], &contents.csr.indptr)?,
    );
    files.insert(INDICES.into(), indices(&staging, contents.csr, progress)?);
    if let Some(weights) = &contents.csr.weights {
        files.insert(EDGE_WEIGHT.into(), array(&staging.path(EDGE_WEIGHT), &[weights.len()], weights)?);
    }
    files.extend(features.write(&staging, contents, progress)?);
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
    /// Returns the manifest, without files and fingerprint.
    pub(super) fn manifest(&self, features: &FeaturePlan) -> Manifest {
        let mut manifest = Manifest::new(self.name.clone(), self.labels.task(), self.metric);
        manifest.nodes = self.csr.nodes() as u64;
        manifest.edges = self.csr.edges();
        manifest.features = self.features.cols() as u64;
        manifest.feature_values = features.stored_values();
        manifest.classes = self.classes as u64;
        manifest.directed = self.directed;
        manifest.source = self.source.clone();
        manifest.class_names = self.class_names.clone();
        manifest.feature_names = self.features.names();
        manifest.splits = self.splits.len() as u64;
        manifest
    }

    /// Returns the size of the arrays in bytes.
    fn bytes(&self, features: &FeaturePlan) -> u64 {
        let n = self.csr.nodes() as u64;
        let label = match self.labels {
            Labels::Single(_) => 8,
            Labels::Multi { classes, .. } => *classes as u64,
        };
        let splits = 1 + if self.splits.len() > 1 { self.splits.len() as u64 } else { 0 };
        let edge = if self.csr.weights.is_some() { 8 } else { 4 };
        n.saturating_mul(8 + label + splits)
            .saturating_add(edge * self.csr.edges())
            .saturating_add(features.bytes(self))
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
