//! `shard.json`: the manifest of one shard.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::dataset::{
    EDGE_WEIGHT, FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, INDICES, INDPTR, LABEL, Manifest, SPLIT, Task,
};
use crate::error::{Error, Result};
use crate::io::npy::{DType, FileRecord};
use crate::partition::assign::MAX_PARTS;
use crate::partition::layout::PartitionInfo;

/// File name of the manifest.
pub const MANIFEST: &str = "shard.json";
/// The version this build writes and reads.
pub const VERSION: u32 = 1;
pub(crate) const FORMAT: &str = "halograph-shard";

/// Dataset ids of owned and halo rows.
pub const IDS: &str = "ids.npy";
/// In-degrees in each subgraph.
pub const DEGREE: &str = "degree.npy";
/// Distances from training vertices.
pub const DISTANCE: &str = "distance.npy";
/// First halo row of each owner.
pub const HALO: &str = "halo.npy";
/// Row of each halo vertex at its owner.
pub const HOME: &str = "home.npy";

/// Sums of in-weights in each subgraph.
pub const IN_WEIGHT: &str = "in_weight.npy";

/// The arrays of a shard but for features and weights. `indptr.npy`, `indices.npy`, `label.npy` and `split.npy` are as in a
/// dataset.
pub(super) const ARRAYS: [&str; 9] = [INDPTR, INDICES, IDS, SPLIT, DEGREE, DISTANCE, HALO, HOME, LABEL];
/// Features, as in a dataset.
pub(super) const SPARSE: [&str; 3] = [FEAT_INDPTR, FEAT_INDICES, FEAT_VALUES];
/// The arrays of weights, if the edges of the dataset have any. `edge_weight.npy` is as in a dataset.
pub(super) const WEIGHTS: [&str; 2] = [EDGE_WEIGHT, IN_WEIGHT];

/// Returns whether a file of this name belongs to a shard.
pub(crate) fn is_array(name: &str) -> bool {
    ARRAYS.contains(&name) || name == FEAT || SPARSE.contains(&name) || WEIGHTS.contains(&name)
}

/// Returns the name of the folder of part `part`.
pub fn folder_name(part: u32) -> String {
    format!("part-{part:04}")
}

/// The contents of `shard.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardManifest {
    /// Always `halograph-shard`.
    pub format: String,
    /// Layout version of the folder.
    pub version: u32,
    /// Number of the part.
    pub part: u32,
    /// Owned vertices.
    pub owned: u64,
    /// Halo vertices.
    pub halo: u64,
    /// In-edges of owned vertices.
    pub edges: u64,
    /// Stored values of sparse features of owned vertices; `None`: features are dense.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature_values: Option<u64>,
    /// What every rank knows about the partition.
    #[serde(rename = "whole")]
    pub partition: PartitionInfo,
    /// Length and digest of each file.
    pub files: BTreeMap<String, FileRecord>,
    /// Digest of all of the above.
    pub digest: String,
}

/// The fields of every version of the manifest.
#[derive(Deserialize)]
pub(crate) struct Head {
    pub format: String,
    pub version: u32,
}

impl ShardManifest {
    /// Returns the digest of all other fields.
    pub(super) fn compute_digest(&self) -> String {
        let bare = ShardManifest { digest: String::new(), ..self.clone() };
        let text = serde_json::to_vec(&bare).expect("a manifest always serialises");
        blake3::hash(&text).to_hex().to_string()
    }

    /// Parses and checks `text`, the contents of `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<ShardManifest> {
        let refuse = |problem: String| Error::input(path.display(), problem).help(AGAIN);
        let head: Head =
            serde_json::from_str(text).map_err(|e| refuse(format!("not a shard manifest: {e}")))?;
        if head.format != FORMAT {
            return Err(refuse(format!("format {:?} where {FORMAT:?} is needed", head.format)));
        }
        if head.version != VERSION {
            let problem = format!("shard version {}; this build reads version {VERSION}", head.version);
            return Err(Error::input(path.display(), problem).help(
                "partition the dataset again with this build, or use the build that wrote the shards",
            ));
        }
        let manifest: ShardManifest =
            serde_json::from_str(text).map_err(|e| refuse(format!("bad manifest: {e}")))?;
        manifest.check().map_err(refuse)?;
        Ok(manifest)
    }

    /// Refuses changed contents and impossible counts.
    fn check(&self) -> Result<(), String> {
        if self.digest != self.compute_digest() {
            return Err("the digest does not match the contents: the file was changed".into());
        }
        self.partition.dataset.check()?;
        let nodes = self.partition.dataset.nodes;
        if self.partition.parts > MAX_PARTS || self.part >= self.partition.parts {
            return Err(format!("part {} of {}", self.part, self.partition.parts));
        }
        if self.owned.saturating_add(self.halo) > nodes || self.partition.distances.len() != 256 {
            return Err(format!("{} owned and {} halo vertices of {nodes}", self.owned, self.halo));
        }
        if self.feature_values.is_some() != self.partition.dataset.is_sparse() {
            return Err("the features are not stored as those of the partitioned dataset".into());
        }
        if !self.files.keys().map(String::as_str).eq(sorted_files(&self.partition.dataset)) {
            return Err("the list of files is not that of a shard".into());
        }
        Ok(())
    }

    /// Returns the shape and the possible types of the array in `file`.
    pub(super) fn shape(&self, file: &str) -> (Vec<usize>, &'static [DType]) {
        let (owned, halo) = (self.owned as usize, self.halo as usize);
        let (rows, values) = (owned + halo, self.feature_values.unwrap_or(0) as usize);
        let data = &self.partition.dataset;
        match (file, data.task) {
            (INDPTR, _) => (vec![owned + 1], &[DType::U64]),
            (INDICES, _) => (vec![self.edges as usize], &[DType::U32]),
            (IDS, _) => (vec![rows], &[DType::U32]),
            (EDGE_WEIGHT, _) => (vec![self.edges as usize], &[DType::F32]),
            (IN_WEIGHT, _) => (vec![3, rows, 2], &[DType::F64]),
            (DEGREE, _) => (vec![3, rows], &[DType::U32]),
            (HALO, _) => (vec![self.partition.parts as usize + 1], &[DType::U64]),
            (HOME, _) => (vec![halo], &[DType::U32]),
            (FEAT, _) => (vec![owned, data.features as usize], &[DType::F32, DType::F16]),
            (FEAT_INDPTR, _) => (vec![owned + 1], &[DType::U64]),
            (FEAT_INDICES, _) => (vec![values], &[DType::U32]),
            (FEAT_VALUES, _) => (vec![values], &[DType::F32, DType::F16]),
            (LABEL, Task::SingleLabel) => (vec![owned], &[DType::I64]),
            (LABEL, Task::MultiLabel) => (vec![owned, data.classes as usize], &[DType::U8]),
            _ => (vec![rows], &[DType::U8]),
        }
    }
}

/// Remedy for a damaged shard.
pub(super) const AGAIN: &str =
    "copy the folder of this part again, or partition the dataset again with `halograph partition`";

fn sorted_files(dataset: &Manifest) -> Vec<&'static str> {
    let features: &[&str] = if dataset.is_sparse() { &SPARSE } else { &[FEAT] };
    let weights: &[&str] = if dataset.has_edge_weights() { &WEIGHTS } else { &[] };
    let mut files = [&ARRAYS, features, weights].concat();
    files.sort_unstable();
    files
}
