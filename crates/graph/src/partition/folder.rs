//! A folder with all shards of a dataset.
//!
//! | file | meaning |
//! |---|---|
//! | `partition.json` | [`PartitionManifest`]: provenance, dataset, sizes and costs |
//! | `assignment.npy` | u32 N: the part of each vertex |
//! | `part-0000/` … | one part each; see [`shard`](super::shard) |
//!
//! The folder is written atomically. A rank needs only the folder of its own part.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::assign::{MAX_PARTS, Origin};
use super::layout::Layout;
use super::report::PartitionReport;
use super::shard::manifest::{Head, MANIFEST as SHARD, folder_name, is_array};
use crate::dataset::{Manifest, Task};
use crate::error::Result;
use crate::progress::{Progress, Unit};
use crate::staging::{FolderKind, Staging, array, names, text};

/// File name of the manifest.
pub const MANIFEST: &str = "partition.json";
/// The part of each vertex.
pub const ASSIGNMENT: &str = "assignment.npy";
const FORMAT: &str = "halograph-partition";
const VERSION: u32 = 1;

/// The contents of `partition.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionManifest {
    /// Always `halograph-partition`.
    pub format: String,
    /// Layout version of the folder.
    pub version: u32,
    /// Number of parts.
    pub parts: u32,
    /// Provenance of the assignment.
    #[serde(flatten)]
    pub origin: Origin,
    /// Digest of owner and row of every vertex; every `shard.json` holds it too.
    pub layout: String,
    /// Manifest of the partitioned dataset.
    pub dataset: Manifest,
    /// Number of labelled training vertices.
    pub training: u64,
    /// Sizes and costs.
    pub report: PartitionReport,
}

/// A folder of shards.
static KIND: FolderKind = FolderKind { noun: "partition", manifest: MANIFEST, is_manifest, foreign };

fn is_manifest(path: &Path) -> bool {
    let head = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Head>(&text).ok());
    head.is_some_and(|head| head.format == FORMAT)
}

/// Returns something in `folder`, or in the folder of a part, that does not belong to a partition.
fn foreign(folder: &Path) -> io::Result<Option<OsString>> {
    for name in names(folder)? {
        let text = name.to_string_lossy();
        if text == MANIFEST || text == ASSIGNMENT {
            continue;
        }
        if !is_part(&text) || !folder.join(&name).is_dir() {
            return Ok(Some(name));
        }
        let ours = |file: &OsString| file == SHARD || file.to_str().is_some_and(is_array);
        if let Some(file) = names(&folder.join(&name))?.into_iter().find(|file| !ours(file)) {
            return Ok(Some(Path::new(&name).join(file).into_os_string()));
        }
    }
    Ok(None)
}

/// Returns whether this is the name of the folder of a part.
fn is_part(name: &str) -> bool {
    let number = name.strip_prefix("part-").and_then(|digits| digits.parse().ok());
    number.is_some_and(|part: u32| part < MAX_PARTS && folder_name(part) == name)
}

/// Refuses a `target` that exists, unless it is empty, or `overwrite` is set and it is a folder of shards without foreign
/// files.
pub fn may_write(target: &Path, overwrite: bool) -> Result<()> {
    KIND.may_write(target, overwrite)
}

/// Writes all shards to the folder `target`, one after the other: memory holds one shard and `layout`.
pub fn write(
    target: &Path,
    overwrite: bool,
    layout: &Layout,
    origin: &Origin,
    progress: &dyn Progress,
) -> Result<PartitionManifest> {
    let staging = Staging::begin(&KIND, target, overwrite)?;
    let report = PartitionReport::of(layout);
    staging.need_space(bytes(layout, &report))?;
    let of = layout.assignment.of();
    array(&staging.path(ASSIGNMENT), &[of.len()], of)?;
    progress.begin("writing parts", Some(layout.partition.parts.into()), Unit::Items);
    for part in 0..layout.partition.parts {
        layout.cut(part)?.write(&staging.path(""), progress)?;
        progress.tick(1)?;
    }
    staging.sync_all()?;
    let partition = PartitionManifest {
        format: FORMAT.into(),
        version: VERSION,
        parts: layout.partition.parts,
        origin: origin.clone(),
        layout: layout.partition.layout.clone(),
        dataset: layout.partition.dataset.clone(),
        training: layout.partition.training,
        report,
    };
    let json = serde_json::to_string_pretty(&partition).expect("a manifest always serialises") + "\n";
    text(&staging.path(MANIFEST), &json)?;
    staging.commit()?;
    Ok(partition)
}

/// Returns the size of the arrays in bytes.
fn bytes(layout: &Layout, report: &PartitionReport) -> u64 {
    let data = &layout.partition.dataset;
    let features = layout.dataset.features().bytes() as u64;
    let label = if data.task == Task::SingleLabel { 8 } else { data.classes };
    // Assignment and row start; then id, split, degrees and distance, also of halo rows, which have a home as well.
    let owned = (4 + 8 + 18u64).saturating_add(label);
    // With weights: those of edges, and three sums for each row.
    let (edge, sums) = if data.has_edge_weights() { (8, 48) } else { (4, 0) };
    let edges = data.edges.saturating_mul(edge);
    data.nodes
        .saturating_mul(owned.saturating_add(sums))
        .saturating_add(features)
        .saturating_add(edges)
        .saturating_add((22 + sums) * report.halo)
}
