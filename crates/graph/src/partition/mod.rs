//! Partitions: which rank owns which vertex, and the shard of each rank.
//!
//! - [`assign`]: an [`Assignment`] of vertices to parts: by METIS, streaming, random, or imported;
//! - [`presample`]: neighbour sampling before training, which weighs the graph that is partitioned;
//! - [`cost`]: expected communication and work of split-parallel training;
//! - [`cache`]: assignments stored beside their dataset;
//! - [`layout`]: everything that is computed once for all parts;
//! - [`shard`]: one part with owned rows, halo rows and edges; cut from a dataset, or opened from its own folder;
//! - [`folder`]: all shards of a dataset on disk;
//! - [`report`]: edge cut, halo rows and balance of a partition.
//!
//! **Numbering.** Vertices are sorted by owner and then by the dataset's locality order; the position of a vertex in this
//! order is its *place*. A part owns a run of places. The rows of its shard are that run, then its halo (in-neighbours
//! owned by other parts) by place, i.e. by owner and then by row at the owner. Sender and receiver of an exchange derive
//! the same order independently.

pub mod assign;
pub mod cache;
pub mod cost;
pub mod folder;
pub mod layout;
pub mod presample;
pub mod report;
pub mod shard;
#[cfg(test)]
mod testing;

pub use assign::{Assignment, Balance, MAX_PARTS, Method, Objective, Origin, PartitionSpec};
pub use cache::assignment_for;
pub use cost::{SplitCost, split_costs};
pub use folder::write;
pub use layout::{Layout, PartitionInfo, Subgraph};
pub use presample::Presample;
pub use report::PartitionReport;
pub use shard::{Label, Shard};
