//! What the forward and the backward of a chunk have in common.

use std::ops::Range;
use std::sync::Arc;

use halograph_kernels::Real;

use super::halo::ChunkHalo;
use super::handover::Handover;
use super::{Chunked, Step, StepOrder};
use crate::boundary::Peers;
use crate::data::{Rows, StageChunks, View};

/// What the forward and the backward of a chunk work with.
pub(super) struct ChunkPass<'c, T: Real> {
    pub handover: Handover<'c>,
    pub peers: Peers<'c>,
    pub view: &'c View<'c, T>,
    /// Training rows of the chunk.
    pub rows: Range<usize>,
    /// Dataset ids of these rows.
    pub ids: Option<&'c [u32]>,
    pub labelled: &'c Rows,
    /// The stages of this rank.
    pub stages: &'c [Arc<StageChunks>],
    pub halo: ChunkHalo<'c, T>,
}

impl<T: Real> Chunked<'_, T> {
    /// Prepares a forward or backward of `chunk` through the stages from index `first`. Does not communicate.
    pub(super) fn pass<'c>(
        &'c mut self,
        first: usize,
        step: &Step,
        order: &'c StepOrder,
        chunk: usize,
    ) -> ChunkPass<'c, T> {
        let grid = self.links.grid;
        let (view, _) = self.data.train();
        let rows = self.starts[chunk]..self.starts[chunk + 1];
        let weights = self.config.gradient_weights;
        ChunkPass {
            handover: Handover { grid, layout: self.layout },
            peers: Peers::training(&grid.link, step.epoch, step.step).of_chunk(chunk),
            view,
            ids: view.block.ids().map(|ids| &ids[rows.clone()]),
            rows,
            labelled: &self.rows[chunk].own,
            stages: &self.stages,
            halo: ChunkHalo { stores: &mut self.stores, first, chunk, order, weights, is_repeated: false },
        }
    }
}
