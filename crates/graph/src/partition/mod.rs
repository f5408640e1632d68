//! Graphs in parts: which rank owns which vertex, and all that a rank needs.
//!
//! - [`assign`]: an [`Assignment`] of vertices to parts: METIS, streaming, random, or somebody else's;
//! - [`cache`]: assignments kept beside the dataset they were made for;
//! - [`layout`]: what is computed once for all parts;
//! - [`shard`]: one part: owned rows, halo rows, edges; cut from a dataset in memory, or a folder of its own;
//! - [`folder`]: all parts of a dataset on disk;
//! - [`report`]: what a partition costs.
//!
//! **Numbering.** Vertices are lined up by owner and, inside an owner, in the dataset's locality order: the *place* of a
//! vertex. A part owns a run of places. Its local rows are that run, then its halo (in-neighbours owned elsewhere) by
//! place, so by owner and then by row at the owner. Both sides of an exchange thus have the same order without a word.

pub mod assign;
pub mod cache;
pub mod folder;
pub mod layout;
pub mod report;
pub mod shard;
#[cfg(test)]
mod testing;

pub use assign::{Assignment, Balance, MAX_PARTS, Method, Objective, Origin, PartitionSpec};
pub use cache::assignment_for;
pub use folder::write;
pub use layout::{Layout, PartitionInfo, Subgraph};
pub use report::PartitionReport;
pub use shard::{Label, Shard};
