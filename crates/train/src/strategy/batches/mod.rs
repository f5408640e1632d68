//! What strategies on sampled mini-batches share: the seeds of a batch, the blocks of its stages, and batches of ranks that
//! own parts of the graph ([`ranks`]).

pub mod ranks;
mod seeds;

use std::sync::Arc;

use halograph_comm::Position;
use halograph_graph::sample::Sample;
use halograph_kernels::Real;
use halograph_nn::Model;

pub(super) use self::seeds::{Seeds, Shuffled};
use crate::boundary::Exchange;
use crate::stage::StageBlock;

/// Returns the position of a span of a step.
pub(super) fn position(phase: &'static str, epoch: u64, step: u64) -> Position {
    Position::new(phase).epoch(epoch as u32).step(step as u32)
}

/// Returns the block of every stage: the last stage that reads edges has those of hop 1. `exchange`: of the rows that ranks
/// read of each other in a hop.
pub(super) fn stage_blocks<'b, T: Real>(
    model: &Model<T>,
    sample: &'b Sample,
    (seeds, caches_aggregate): (usize, bool),
    exchange: impl Fn(usize) -> Option<Arc<Exchange>>,
) -> Vec<StageBlock<'b>> {
    // Without a sampled hop, the seeds are all rows.
    let (mut hop, mut rows) = (0, seeds);
    let mut blocks: Vec<StageBlock> = Vec::with_capacity(model.stages.len());
    for (index, stage) in model.stages.iter().enumerate().rev() {
        let is_cached = index == 0 && caches_aggregate;
        if stage.reads_edges() && !is_cached {
            let block = sample.block(hop);
            rows = block.sources();
            blocks.push(StageBlock { block: Arc::new(block), exchange: exchange(hop) });
            hop += 1;
        } else {
            blocks.push(StageBlock::without_edges(rows, rows));
        }
    }
    blocks.reverse();
    blocks
}
