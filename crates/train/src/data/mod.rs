//! Training data: blocks, features in the working precision, and labelled rows.
//!
//! Transductive training knows one [`View`], the whole graph. Inductive training knows three, each a graph of its own:
//! the training nodes; these and the validation nodes; all nodes.

mod chunks;
mod columns;
mod features;
mod rows;
mod shard;
mod view;
mod whole;

use halograph_graph::dataset::Subset;

pub use chunks::{ChunkReads, RowChunks, StageChunks, StageRows};
pub use columns::Preprocessing;
pub(crate) use columns::column_order;
pub use features::Scaling;
pub use rows::Rows;
pub use shard::{Loading, Scored, ShardData, fit_scaling};
pub(crate) use shard::{sampled_graph, training_rows};
pub use view::{InputSource, View};
pub use whole::{Data, check};

/// The parts of a split, in the order of [`Scores`](crate::event::Scores).
pub const PARTS: [Subset; 3] = [Subset::Train, Subset::Val, Subset::Test];
