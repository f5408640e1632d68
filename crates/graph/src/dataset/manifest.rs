//! `dataset.json`: what a dataset directory says of itself.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::io::npy::FileRecord;

/// File name of the manifest.
pub const MANIFEST: &str = "dataset.json";
/// The version this build writes and reads.
pub const VERSION: u32 = 1;
const FORMAT: &str = "halograph-dataset";

/// What is predicted for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One class a node.
    SingleLabel,
    /// Any set of classes a node.
    MultiLabel,
}

/// How predictions are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Share of nodes whose class is right.
    Accuracy,
    /// F1 over all (node, class) pairs.
    MicroF1,
    /// Area under the ROC curve.
    Auc,
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
    /// What to call it.
    pub name: String,
    /// Vertices.
    pub nodes: u64,
    /// Stored directed edges.
    pub edges: u64,
    /// Feature columns.
    pub features: u64,
    /// Classes.
    pub classes: u64,
    /// What is predicted.
    pub task: Task,
    /// How it is scored.
    pub metric: Metric,
    /// Whether edges keep a direction (otherwise every edge is stored both ways).
    pub directed: bool,
    /// Where it came from: importer or preset, and the options that shaped it.
    pub source: String,
    /// Names of the classes, where they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// Digest of everything above and of all files: two datasets are the same if this is.
    pub fingerprint: String,
    /// Length and digest of each file.
    pub files: BTreeMap<String, FileRecord>,
}

impl Manifest {
    /// The fixed part of a new manifest; fingerprint and files are filled in when it is written.
    pub fn new(name: String, task: Task, metric: Metric) -> Self {
        Manifest {
            format: FORMAT.into(),
            version: VERSION,
            name,
            nodes: 0,
            edges: 0,
            features: 0,
            classes: 0,
            task,
            metric,
            directed: false,
            source: String::new(),
            class_names: Vec::new(),
            fingerprint: String::new(),
            files: BTreeMap::new(),
        }
    }

    /// Parses and checks `text`, the contents of `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let place = &path.display();
        // The head first: another version may well have other fields.
        let head: Head = serde_json::from_str(text).map_err(|e| {
            Error::input(place, format!("not a dataset manifest: {e}"))
                .help("make the dataset again with `halograph data import` or `halograph data make`")
        })?;
        if head.format != FORMAT {
            return Err(Error::input(place, format!("format {:?} where {FORMAT:?} is needed", head.format)));
        }
        if head.version != VERSION {
            return Err(Error::input(
                place,
                format!("dataset version {}; this build reads version {VERSION}", head.version),
            )
            .help("import the data again with this build, or use the build that made it"));
        }
        serde_json::from_str(text).map_err(|e| Error::input(place, format!("bad manifest: {e}")))
    }

    /// Digest of the description and the digests of all files.
    pub fn compute_fingerprint(&self) -> String {
        let mut hash = blake3::Hasher::new();
        let head =
            (self.nodes, self.edges, self.features, self.classes, self.task, self.metric, self.directed);
        hash.update(format!("{}/{} {head:?}\n", self.format, self.version).as_bytes());
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
        let manifest = Manifest::new("x".into(), Task::MultiLabel, Metric::MicroF1);
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
    fn the_fingerprint_follows_contents_not_names() {
        let a = Manifest::new("a".into(), Task::SingleLabel, Metric::Accuracy);
        let mut b = Manifest { name: "b".into(), ..a.clone() };
        assert_eq!(a.compute_fingerprint(), b.compute_fingerprint());
        b.files.insert("feat.npy".into(), FileRecord { bytes: 1, blake3: "0".into() });
        assert_ne!(a.compute_fingerprint(), b.compute_fingerprint());
    }
}
