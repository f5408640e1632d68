//! In-neighbours by ascending dataset id.

use std::borrow::Cow;

use rayon::prelude::*;

use super::DrawnEdges;
use crate::block::{Block, InWeight, ROWS, rows_mut};

/// The in-neighbours of every row of a block, listed by ascending dataset id: the order in which samplers see them does not
/// depend on the order in which rows are stored.
pub struct Neighbors<'g> {
    block: &'g Block<'g>,
    indptr: &'g [u64],
    indices: Cow<'g, [u32]>,
    weights: Option<Cow<'g, [f32]>>,
}

impl<'g> Neighbors<'g> {
    /// Lists the neighbours of the destinations of `block`, which are its first rows: all rows, or those that a rank owns.
    /// Copies the edges unless they are in the right order already, which they are if rows are stored by ascending dataset
    /// id.
    ///
    /// # Panics
    /// If the block has a separate halo.
    pub fn of(block: &'g Block<'g>) -> Self {
        assert!(block.halo().is_none(), "neighbours in a halo have no rows to sample from");
        assert_eq!(block.destinations().start, 0, "the first rows have their edges");
        let (indptr, edges) = block.rows();
        let id = |row: &u32| block.id(*row as usize);
        let is_sorted = (0..block.destinations().end)
            .into_par_iter()
            .all(|r| edges[indptr[r] as usize..indptr[r + 1] as usize].is_sorted_by_key(id));
        let (mut indices, mut weights) = (Cow::Borrowed(edges), block.edge_weights().map(Cow::Borrowed));
        if !is_sorted {
            if let Some(weights) = &mut weights {
                sort_weights(indptr, edges, weights.to_mut(), id);
            }
            let sorted = indices.to_mut();
            let tasks = indptr[..indptr.len() - 1].par_chunks(ROWS).zip(rows_mut(indptr, sorted));
            tasks.enumerate().for_each(|(task, (starts, mut rest))| {
                let first = task * ROWS;
                for r in first..first + starts.len() {
                    let (row, after) = rest.split_at_mut((indptr[r + 1] - indptr[r]) as usize);
                    row.sort_unstable_by_key(id);
                    rest = after;
                }
            });
        }
        Neighbors { block, indptr, indices, weights }
    }

    /// Returns the number of rows.
    pub fn nodes(&self) -> usize {
        self.block.sources()
    }

    /// Returns the number of in-neighbours of a row other than itself.
    #[inline]
    pub fn degree(&self, row: u32) -> usize {
        self.block.degrees()[row as usize] as usize
    }

    /// Returns the dataset id of a row.
    #[inline]
    pub(super) fn id(&self, row: u32) -> u32 {
        self.block.id(row as usize)
    }

    /// Returns the in-neighbours of a row, itself included if it has a self-loop.
    #[inline]
    pub(super) fn list(&self, row: u32) -> &[u32] {
        let row = row as usize;
        &self.indices[self.indptr[row] as usize..self.indptr[row + 1] as usize]
    }

    /// Returns the weights of the edges of [`Neighbors::list`]; `None`: the graph has none.
    #[inline]
    pub(super) fn weights(&self, row: u32) -> Option<&[f32]> {
        let row = row as usize;
        self.weights
            .as_ref()
            .map(|weights| &weights[self.indptr[row] as usize..self.indptr[row + 1] as usize])
    }

    /// Returns whether edges have weights.
    pub fn has_weights(&self) -> bool {
        self.weights.is_some()
    }

    /// Returns the sum of in-weights of a row; `None`: the graph has no weights.
    #[inline]
    pub fn in_weight(&self, row: u32) -> Option<InWeight> {
        self.block.in_weights().map(|sums| sums[row as usize])
    }

    /// Appends the self-loop of a row to `out`; returns whether it has one.
    #[inline]
    pub(super) fn append_loop(&self, row: u32, out: &mut DrawnEdges) -> bool {
        let has_loop = self.has_loop(row);
        if has_loop {
            out.sources.push(row);
            // Weights are `f32`, so that nothing is lost.
            out.weights.extend(self.in_weight(row).and_then(InWeight::own).map(|weight| weight as f32));
        }
        has_loop
    }

    /// Returns whether a row has a self-loop.
    #[inline]
    pub(super) fn has_loop(&self, row: u32) -> bool {
        !self.block.loops().is_empty() && self.block.loops().binary_search(&row).is_ok()
    }

    /// Returns the position of a row among its own in-neighbours, if it has a self-loop.
    pub(super) fn loop_position(&self, row: u32) -> Option<usize> {
        let id = self.id(row);
        let position = || self.list(row).binary_search_by_key(&id, |&u| self.id(u)).ok();
        self.has_loop(row).then(position).flatten()
    }

    /// Requests the first neighbours of a row from memory.
    #[inline]
    pub(super) fn prefetch(&self, row: u32) {
        let at = self.indptr[row as usize] as usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching has no effect on memory, whatever the address; this one is inside or one past the array.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.indices.as_ptr().add(at).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

/// Sorts the weights of each row by the ids of its neighbours `edges`.
fn sort_weights(indptr: &[u64], edges: &[u32], weights: &mut [f32], id: impl Fn(&u32) -> u32 + Sync) {
    rows_mut(indptr, weights).into_par_iter().enumerate().for_each(|(task, mut rest)| {
        let mut row = Vec::new();
        for ends in indptr[task * ROWS..].windows(2).take(ROWS) {
            let (own, after) = rest.split_at_mut((ends[1] - ends[0]) as usize);
            row.clear();
            row.extend(edges[ends[0] as usize..ends[1] as usize].iter().map(&id).zip(own.iter().copied()));
            row.sort_unstable_by_key(|&(id, _)| id);
            own.iter_mut().zip(&row).for_each(|(to, &(_, weight))| *to = weight);
            rest = after;
        }
    });
}
