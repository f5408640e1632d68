//! All parts of a dataset on disk.
//!
//! | file | meaning |
//! |---|---|
//! | `partition.json` | [`PartitionManifest`]: how it was made, of what, sizes and costs |
//! | `assignment.npy` | u32 N: the part of each vertex |
//! | `part-0000/` … | one part each; see [`shard`](super::shard) |
//!
//! The folder appears whole or not at all. A part's folder stands alone: a rank needs no other.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::assign::{MAX_PARTS, Origin};
use super::layout::Layout;
use super::report::PartitionReport;
use super::shard::manifest::{FILES, Head, MANIFEST as SHARD, folder_name};
use crate::dataset::{Manifest, Task};
use crate::error::Result;
use crate::io::npy::DType;
use crate::progress::{Progress, Unit};
use crate::staging::{Kind, Staging, array, names, text};

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
    /// How the parts were found.
    #[serde(flatten)]
    pub origin: Origin,
    /// Digest of which part owns which vertex at which row; every `shard.json` has it.
    pub layout: String,
    /// The dataset that was cut.
    pub dataset: Manifest,
    /// Labelled training vertices.
    pub training: u64,
    /// Sizes and costs.
    pub report: PartitionReport,
}

/// A folder of shards, as something to be replaced.
static KIND: Kind = Kind { noun: "partition", manifest: MANIFEST, is_manifest, foreign };

fn is_manifest(path: &Path) -> bool {
    let head = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Head>(&text).ok());
    head.is_some_and(|head| head.format == FORMAT)
}

/// Something in `folder`, or in the folder of a part, that is no part of a partition.
fn foreign(folder: &Path) -> io::Result<Option<OsString>> {
    for name in names(folder)? {
        let text = name.to_string_lossy();
        if text == MANIFEST || text == ASSIGNMENT {
            continue;
        }
        if !is_part(&text) || !folder.join(&name).is_dir() {
            return Ok(Some(name));
        }
        let ours = |file: &OsString| file == SHARD || FILES.iter().any(|known| file == known);
        if let Some(file) = names(&folder.join(&name))?.into_iter().find(|file| !ours(file)) {
            return Ok(Some(Path::new(&name).join(file).into_os_string()));
        }
    }
    Ok(None)
}

/// Whether this is the name of a part's folder.
fn is_part(name: &str) -> bool {
    let number = name.strip_prefix("part-").and_then(|digits| digits.parse().ok());
    number.is_some_and(|part: u32| part < MAX_PARTS && folder_name(part) == name)
}

/// Whether `target` may become a folder of shards: it is not there, is empty, or is nothing but one and `overwrite` is
/// set.
pub fn may_write(target: &Path, overwrite: bool) -> Result<()> {
    KIND.may_write(target, overwrite)
}

/// Writes all parts to the folder `target`, one after the other: the memory of one part and of `layout` is enough.
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

/// Bytes the arrays will take.
fn bytes(layout: &Layout, report: &PartitionReport) -> u64 {
    let data = &layout.partition.dataset;
    let feature = if layout.dataset.features().header.dtype == DType::F16 { 2 } else { 4 };
    let label = if data.task == Task::SingleLabel { 8 } else { data.classes };
    // Assignment and row start; then id, split, degrees and distance, of the halo too, which has its home as well.
    let owned = (4 + 8 + 18u64).saturating_add(label).saturating_add(data.features.saturating_mul(feature));
    let edges = data.edges.saturating_mul(4);
    data.nodes.saturating_mul(owned).saturating_add(edges).saturating_add(22 * report.halo)
}
