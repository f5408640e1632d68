//! The stage runner: forward, backward and evaluation of model stages on blocks, written once for all strategies.
//!
//! ```text
//! forward    prepare ─ start exchange ─ aggregate own rows ─ add halo rows ─ finish ─ norm, activation, next dropout
//! backward   norm, activation ─ finish ─ gradients of halo rows ─ start their return ─ gradients of own rows
//!            ─ add returned gradients ─ prepare
//! ```
//!
//! The runner knows a stage by its index in the whole model: that index names dropout masks and tags, and only the first
//! stage needs no gradient of its input. It does not know how many ranks there are. A strategy chooses the blocks, which
//! version of halo rows is read ([`HaloSource`](crate::boundary::HaloSource)), and what happens between steps.

mod layer;
mod model;
mod runner;
mod tape;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_nn::{Input, Matrix};

use crate::boundary::Exchange;

pub use model::Outputs;
pub use runner::{Activations, Gradients, StageRunner};
pub use tape::Tape;

/// The block that a stage computes on, and the rows exchanged with other ranks for it.
#[derive(Clone)]
pub struct StageBlock<'b> {
    /// Edges into the rows that the stage computes.
    pub block: Arc<Block<'b>>,
    /// `None`: no row of another rank is read.
    pub exchange: Option<Arc<Exchange>>,
}

impl<'b> StageBlock<'b> {
    /// Creates a block whose rows are all owned by this rank.
    pub fn local(block: Arc<Block<'b>>) -> Self {
        StageBlock { block, exchange: None }
    }

    /// Returns the block for a forward that exchanges no rows: its halo source has them.
    pub fn without_exchange(&self) -> Self {
        let exchange = self.exchange.as_ref().map(|exchange| Arc::new(exchange.of_no_rows()));
        StageBlock { block: self.block.clone(), exchange }
    }

    /// Creates the block of the first `destinations` of `sources` rows, for a stage that reads no edges.
    pub fn without_edges(destinations: usize, sources: usize) -> Self {
        let block = Block::new(vec![0; destinations + 1], vec![], 0..destinations, vec![0; sources], None);
        StageBlock::local(Arc::new(block))
    }
}

/// Input rows of a model.
#[derive(Clone)]
pub struct ModelInput<T: Real> {
    /// Features, one row per input row.
    pub features: Input<T>,
    /// The first stage's aggregate of the features, if that is the same in every step.
    pub aggregate: Option<Arc<Matrix<T>>>,
}

impl<T: Real> ModelInput<T> {
    /// Creates the input of a model whose first stage reads no features besides their aggregate.
    pub fn of_aggregate(aggregate: Arc<Matrix<T>>) -> Self {
        // In place of features: of the same size, and not read.
        ModelInput { features: aggregate.clone().into(), aggregate: Some(aggregate) }
    }
}
