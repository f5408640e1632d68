//! `dataset.json`: the manifest of a dataset directory.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{EDGE_WEIGHT, FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, FILES, ORDER, SPLITS};
use crate::build::MAX_NODES;
use crate::error::{Error, Result};
use crate::io::npy::FileRecord;

/// File name of the manifest.
pub const MANIFEST: &str = "dataset.json";
/// The version this build writes and reads.
pub const VERSION: u32 = 1;
const FORMAT: &str = "halograph-dataset";

/// Maximum number of splits of one dataset. Published ones have up to 20; more are a mistake in the shape of a mask.
pub const MAX_SPLITS: usize = 1000;

/// Returns the largest number of classes for `nodes` nodes. Class numbers may have gaps, but a huge one is a mistake.
pub fn class_limit(nodes: u64) -> u64 {
    nodes.max(1 << 16)
}

/// Returns whether the file `path` is the manifest of a dataset, of any version.
pub(super) fn is_manifest(path: &Path) -> bool {
    let head = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Head>(&text).ok());
    head.is_some_and(|head| head.format == FORMAT)
}

/// The fields of every version of the manifest.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

/// Prediction task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One class per node.
    SingleLabel,
    /// Any set of classes per node.
    MultiLabel,
}

/// Metric of predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Fraction of nodes with the right class.
    Accuracy,
    /// Recall, averaged over classes that have nodes.
    BalancedAccuracy,
    /// F1, averaged over classes.
    MacroF1,
    /// F1 over all (node, class) pairs.
    MicroF1,
    /// Area under the ROC curve.
    Auc,
}

impl Metric {
    /// Returns the metric of a dataset: `wanted` if it is defined for the task, by default accuracy, or micro-F1 for
    /// multi-label data. The error says why `wanted` is not defined.
    pub fn choose(wanted: Option<Metric>, task: Task, classes: usize) -> Result<Metric, String> {
        match (wanted, task) {
            (None, Task::SingleLabel) => Ok(Metric::Accuracy),
            (None, Task::MultiLabel) => Ok(Metric::MicroF1),
            (Some(Metric::Auc), Task::SingleLabel) if classes != 2 => {
                Err(format!("auc needs two classes or multi-label data; there are {classes} classes"))
            }
            (Some(metric @ (Metric::Accuracy | Metric::BalancedAccuracy)), Task::MultiLabel) => {
                Err(format!("{metric} is not defined for multi-label data"))
            }
            (Some(metric), _) => Ok(metric),
        }
    }
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Task::SingleLabel => "single-label",
            Task::MultiLabel => "multi-label",
        })
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Metric::Accuracy => "accuracy",
            Metric::BalancedAccuracy => "balanced-accuracy",
            Metric::MacroF1 => "macro-f1",
            Metric::MicroF1 => "micro-f1",
            Metric::Auc => "auc",
        })
    }
}

/// The contents of `dataset.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always `halograph-dataset`.
    pub format: String,
    /// Layout version of the directory.
    pub version: u32,
    /// Name of the dataset.
    pub name: String,
    /// Vertices.
    pub nodes: u64,
    /// Stored directed edges.
    pub edges: u64,
    /// Feature columns.
    pub features: u64,
    /// Stored values of sparse features; `None`: features are dense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_values: Option<u64>,
    /// Classes.
    pub classes: u64,
    /// Task.
    pub task: Task,
    /// Metric.
    pub metric: Metric,
    /// Whether edges are directed; otherwise every edge is stored both ways.
    pub directed: bool,
    /// The command that wrote the dataset, without paths.
    pub source: String,
    /// Names of the classes, if they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// Names of the feature columns, if they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feature_names: Vec<String>,
    /// Number of splits; if more than 1, they are in `splits.npy`.
    #[serde(default = "one_split", skip_serializing_if = "is_one_split")]
    pub splits: u64,
    /// Digest of counts, task, metric, direction and all files. It does not depend on the names of dataset, classes and
    /// features.
    pub fingerprint: String,
    /// Length and digest of each file.
    pub files: BTreeMap<String, FileRecord>,
}

// Serde takes defaults and conditions from functions only.
fn one_split() -> u64 {
    1
}

fn is_one_split(splits: &u64) -> bool {
    *splits == 1
}

impl Manifest {
    /// Creates a manifest without counts, files and fingerprint.
    pub fn new(name: String, task: Task, metric: Metric) -> Self {
        Manifest {
            format: FORMAT.into(),
            version: VERSION,
            name,
            nodes: 0,
            edges: 0,
            features: 0,
            feature_values: None,
            classes: 0,
            task,
            metric,
            directed: false,
            source: String::new(),
            class_names: Vec::new(),
            feature_names: Vec::new(),
            splits: 1,
            fingerprint: String::new(),
            files: BTreeMap::new(),
        }
    }

    /// Parses and checks `text`, the contents of `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Manifest> {
        let place = &path.display();
        // Format and version first: another version may have other fields.
        let head: Head = serde_json::from_str(text).map_err(|e| {
            Error::input(place, format!("not a dataset manifest: {e}"))
                .help("create the dataset again with `halograph data import` or `halograph data make`")
        })?;
        if head.format != FORMAT {
            return Err(Error::input(place, format!("format {:?} where {FORMAT:?} is needed", head.format)));
        }
        if head.version != VERSION {
            return Err(Error::input(
                place,
                format!("dataset version {}; this build reads version {VERSION}", head.version),
            )
            .help("import the data again with this build, or use the build that wrote the dataset"));
        }
        let manifest: Manifest =
            serde_json::from_str(text).map_err(|e| Error::input(place, format!("bad manifest: {e}")))?;
        manifest.check().map_err(|problem| Error::input(place, problem))?;
        Ok(manifest)
    }

    /// Refuses impossible counts and unknown files.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.nodes > MAX_NODES as u64 {
            return Err(format!("{} nodes, more than the {MAX_NODES} that ids can number", self.nodes));
        }
        if self.classes > class_limit(self.nodes) || self.class_names.len() as u64 > self.classes {
            let names = self.class_names.len();
            return Err(format!("{} classes and {names} class names for {} nodes", self.classes, self.nodes));
        }
        if self.task == Task::MultiLabel && self.classes == 0 {
            return Err("multi-label data without a class".into());
        }
        if !self.feature_names.is_empty() && self.feature_names.len() as u64 != self.features {
            return Err(format!("{} feature names for {} features", self.feature_names.len(), self.features));
        }
        if !(1..=MAX_SPLITS as u64).contains(&self.splits) {
            return Err(format!("{} splits where 1 to {MAX_SPLITS} are possible", self.splits));
        }
        if (self.splits > 1) != self.files.contains_key(SPLITS) {
            return Err(format!("{} splits, but {SPLITS} is listed if there are several", self.splits));
        }
        let (nodes, features) = (self.nodes, self.features);
        if let Some(values) = self.feature_values.filter(|&n| n > nodes.saturating_mul(features)) {
            return Err(format!("{values} stored feature values in {nodes} rows of {features} columns"));
        }
        let is_dense_file = |file: &str| file == FEAT;
        let is_sparse_file = |file: &str| [FEAT_INDPTR, FEAT_INDICES, FEAT_VALUES].contains(&file);
        let contradicts = |file: &&String| match self.is_sparse() {
            true => is_dense_file(file),
            false => is_sparse_file(file),
        };
        if let Some(file) = self.files.keys().find(contradicts) {
            let stored = if self.is_sparse() { "sparse" } else { "dense" };
            return Err(format!("lists {file}, but by its counts the features are {stored}"));
        }
        let recorded = |file: &str| FILES.contains(&file) && file != ORDER;
        match self.files.keys().find(|file| !recorded(file)) {
            Some(file) => Err(format!("lists the file {file:?}, which does not belong to a dataset")),
            None => Ok(()),
        }
    }

    /// Returns whether edges have weights.
    pub fn has_edge_weights(&self) -> bool {
        self.files.contains_key(EDGE_WEIGHT)
    }

    /// Returns whether features are stored without their zeros.
    pub fn is_sparse(&self) -> bool {
        self.feature_values.is_some()
    }

    /// Returns the number of stored values of sparse features.
    pub(super) fn stored_values(&self) -> usize {
        self.feature_values.unwrap_or(0) as usize
    }

    /// Returns the share of stored values among all elements of the features: 1 if they are dense.
    pub fn density(&self) -> f64 {
        let all = (self.nodes as f64 * self.features as f64).max(1.0);
        self.feature_values.map_or(1.0, |values| values as f64 / all)
    }

    /// Returns the total size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.values().fold(0, |sum, record| record.bytes.saturating_add(sum))
    }

    /// Returns the digest of counts, task, metric, direction and the digests of all files.
    pub fn compute_fingerprint(&self) -> String {
        let mut hash = blake3::Hasher::new();
        let counts = [self.nodes, self.edges, self.features, self.classes];
        let (task, metric) = (self.task, self.metric);
        let head = format!("{}/{} {counts:?} {task} {metric} {}\n", self.format, self.version, self.directed);
        hash.update(head.as_bytes());
        for (file, record) in &self.files {
            hash.update(format!("{file} {} {}\n", record.bytes, record.blake3).as_bytes());
        }
        hash.finalize().to_hex()[..32].to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> String {
        Manifest::parse(Path::new("d/dataset.json"), text).unwrap_err().to_string()
    }

    #[test]
    fn round_trips() {
        let mut manifest = Manifest::new("x".into(), Task::MultiLabel, Metric::MicroF1);
        manifest.classes = 2;
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(Manifest::parse(Path::new("m"), &text).unwrap(), manifest);
    }

    #[test]
    fn other_versions_and_formats_are_named() {
        assert!(
            parse(r#"{"format": "halograph-dataset", "version": 9}"#)
                .contains("dataset version 9; this build reads version 1")
        );
        assert!(parse(r#"{"format": "zarr", "version": 1}"#).contains("\"zarr\""));
        assert!(parse("{").contains("not a dataset manifest"));
        assert!(parse(r#"{"format": "halograph-dataset", "version": 1}"#).contains("missing field"));
    }

    #[test]
    fn counts_that_no_dataset_can_have_are_refused() {
        let manifest = Manifest::new("x".into(), Task::MultiLabel, Metric::MicroF1);
        assert!(
            parse(&serde_json::to_string(&manifest).unwrap()).contains("multi-label data without a class")
        );
        let manifest = Manifest { nodes: u64::MAX, task: Task::SingleLabel, ..manifest };
        assert!(parse(&serde_json::to_string(&manifest).unwrap()).contains("more than the"));
        let manifest = Manifest { nodes: 1, features: 2, feature_names: vec!["x".into()], ..manifest };
        assert!(parse(&serde_json::to_string(&manifest).unwrap()).contains("1 feature names for 2 features"));
        for splits in [0, 2, u64::MAX] {
            let manifest = Manifest { feature_names: Vec::new(), splits, ..manifest.clone() };
            assert!(parse(&serde_json::to_string(&manifest).unwrap()).contains("splits"), "{splits}");
        }
    }

    #[test]
    fn the_fingerprint_follows_contents_not_names() {
        let a = Manifest::new("a".into(), Task::SingleLabel, Metric::Accuracy);
        let mut b = Manifest { name: "b".into(), ..a.clone() };
        assert_eq!(a.compute_fingerprint(), b.compute_fingerprint());
        b.files.insert("feat.npy".into(), FileRecord { bytes: 1, blake3: "0".into() });
        assert_ne!(a.compute_fingerprint(), b.compute_fingerprint());
    }
}
