//! Partitioning a dataset into shards.

use std::path::PathBuf;

use halograph_graph::error::Result;
use halograph_graph::partition::folder::{self, PartitionManifest};
use halograph_graph::partition::{Assignment, Layout, Origin, PartitionSpec, cache};
use halograph_graph::{Dataset, Progress};

use super::prepare::assignment;

/// How the part of each node is chosen.
#[derive(Debug, Clone)]
pub enum AssignmentOption {
    /// By a partitioner. The assignment is cached beside the dataset.
    Computed(PartitionSpec),
    /// Read from a file: an `.npy` array of integers, or a METIS file with one part per line.
    File {
        /// The file.
        path: PathBuf,
        /// Number of parts.
        parts: u32,
    },
}

/// What [`write_shards`] is asked to do.
#[derive(Debug, Clone)]
pub struct ShardOptions {
    /// The part of each node.
    pub assignment: AssignmentOption,
    /// Folder of shards to write.
    pub out: PathBuf,
    /// Whether an existing folder of shards may be replaced.
    pub overwrite: bool,
    /// Whether to partition although that needs more memory than is free.
    pub force: bool,
}

impl ShardOptions {
    /// Refuses an output folder that cannot be written. [`write_shards`] does it too.
    pub fn check(&self) -> Result<()> {
        folder::may_write(&self.out, self.overwrite)
    }
}

/// Partitions `dataset` and writes one shard per part. Blocks.
pub fn write_shards(
    dataset: &Dataset,
    options: &ShardOptions,
    progress: &dyn Progress,
) -> Result<PartitionManifest> {
    options.check()?;
    let (assignment, origin, new) = match &options.assignment {
        AssignmentOption::File { path, parts } => {
            let nodes = dataset.manifest.nodes as usize;
            (Assignment::read(path, nodes, *parts)?, Origin::imported(), None)
        }
        AssignmentOption::Computed(spec) => {
            let (assignment, is_new) = assignment(dataset, spec, options.force, progress)?;
            (assignment, Origin::from(spec), is_new.then_some(spec))
        }
    };
    let layout = Layout::of(dataset, &assignment)?;
    let written = folder::write(&options.out, options.overwrite, &layout, &origin, progress)?;
    // Stored last, so that an interrupted call leaves no files.
    if let Some(spec) = new {
        cache::store(dataset, spec, &assignment);
    }
    Ok(written)
}
