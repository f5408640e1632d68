//! One part of a dataset: what a rank needs to do its share, and nothing else.
//!
//! Rows are numbered owned vertices first, then the halo: in-neighbours of owned vertices that others own, by owner and,
//! inside an owner, by their row there. Each row of edges ascends, so that edges from owned rows come first.

mod column;
mod cut;
pub mod manifest;
mod open;
mod write;

use std::ops::Range;

use column::Column;

use super::layout::{PartitionInfo, Subgraph};
use crate::block::Block;
use crate::csr::CsrView;
use crate::dataset::{LabelView, Subset, Task, view};
use crate::error::Result;
use crate::io::npy::Array;

/// One part of a dataset. [`Shard::cut`] makes it in memory, features and labels staying in the mapped dataset;
/// [`Shard::open`] maps a folder that stands alone. Both look alike.
pub struct Shard {
    part: u32,
    partition: PartitionInfo,
    /// Dataset ids of owned and halo rows.
    ids: Column<u32>,
    /// Row starts of the edges of owned rows, and the rows they come from.
    indptr: Column<u64>,
    indices: Column<u32>,
    /// Part of the split, degrees by stage (all of one, then all of the next), distance: of owned and halo rows.
    split: Column<u8>,
    degrees: Column<u32>,
    distance: Column<u8>,
    /// Where the halo rows of each owner begin, counted from the first halo row, and the end.
    halo: Column<u64>,
    /// The row of each halo vertex at its owner.
    homes: Column<u32>,
    features: Array,
    labels: Array,
    /// The row of each owned vertex in `features` and `labels`; `None`: the same.
    stored: Option<Vec<u32>>,
}

/// The label of one vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label<'a> {
    /// One class, −1 for none.
    Class(i64),
    /// A flag, 0 or 1, for each class.
    Flags(&'a [u8]),
}

impl Label<'_> {
    /// Whether there is one.
    pub fn is_known(self) -> bool {
        !matches!(self, Label::Class(..=-1))
    }
}

impl Shard {
    /// Which part it is.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// What every rank knows.
    pub fn partition(&self) -> &PartitionInfo {
        &self.partition
    }

    /// Number of owned vertices.
    pub fn owned(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of rows: owned vertices and halo.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Dataset id of each row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Part of the split of each row, as numbers of [`Subset`].
    pub fn split(&self) -> &[u8] {
        &self.split
    }

    /// In-degree of each row in the graph of `stage`, self-loops not counted; 0 for a vertex that does not belong to it.
    pub fn degrees(&self, stage: Subgraph) -> &[u32] {
        let start = stage as usize * self.rows();
        &self.degrees[start..start + self.rows()]
    }

    /// How many edges each row is from the nearest labelled training vertex; see
    /// [`Layout::distance`](super::Layout::distance).
    pub fn distance(&self) -> &[u8] {
        &self.distance
    }

    /// Edges of owned rows; columns are rows of this shard, ascending.
    pub fn edges(&self) -> CsrView<'_> {
        CsrView { indptr: &self.indptr, indices: &self.indices }
    }

    /// How many edges of owned row `row` come from owned rows: the first ones.
    pub fn local_edges(&self, row: usize) -> usize {
        let owned = self.owned() as u32;
        self.edges().row(row).partition_point(|&column| column < owned)
    }

    /// The rows whose vertices `owner` owns: the part's own rows, or a run of the halo.
    pub fn rows_of(&self, owner: u32) -> Range<usize> {
        if owner == self.part {
            return 0..self.owned();
        }
        let at = |part: u32| self.owned() + self.halo[part as usize] as usize;
        at(owner)..at(owner + 1)
    }

    /// The rows at `owner` of [`Shard::rows_of`] it, ascending: what `owner` has to send, in the order it is kept here.
    pub fn homes(&self, owner: u32) -> &[u32] {
        &self.homes[self.halo[owner as usize] as usize..self.halo[owner as usize + 1] as usize]
    }

    /// Owned rows of `part` of the split whose labels are known, ascending.
    pub fn labelled(&self, part: Subset) -> Vec<u32> {
        let rows = (0..self.owned()).filter(|&row| self.split[row] == part as u8);
        rows.filter(|&row| self.label(row).is_known()).map(|row| row as u32).collect()
    }

    /// The label of an owned row.
    pub fn label(&self, row: usize) -> Label<'_> {
        let row = self.stored_row(row);
        match self.labels() {
            LabelView::Single(classes) => Label::Class(classes[row]),
            LabelView::Multi { classes, flags } => Label::Flags(&flags[row * classes..][..classes]),
        }
    }

    /// Labels as they are stored; [`Shard::stored_rows`] says where.
    pub fn labels(&self) -> LabelView<'_> {
        match self.partition.dataset.task {
            Task::SingleLabel => LabelView::Single(view(&self.labels)),
            Task::MultiLabel => LabelView::Multi {
                classes: self.partition.dataset.classes as usize,
                flags: view(&self.labels),
            },
        }
    }

    /// Features as they are stored, `f32` or `f16`; [`Shard::stored_rows`] says where.
    pub fn features(&self) -> &Array {
        &self.features
    }

    /// The row of each owned vertex in the arrays of features and labels; `None`: the same row.
    pub fn stored_rows(&self) -> Option<&[u32]> {
        self.stored.as_deref()
    }

    fn stored_row(&self, row: usize) -> usize {
        self.stored.as_ref().map_or(row, |stored| stored[row] as usize)
    }

    /// Reads the features of an owned row.
    pub fn read_features(&self, row: usize, out: &mut [f32]) -> Result<()> {
        self.features.read_f32(self.stored_row(row) * self.features.cols(), out)
    }

    /// Owned rows and the edges that lead to them, as a layer computes on them. Edges are borrowed.
    pub fn block(&self) -> Block<'_> {
        let degrees = self.degrees(Subgraph::All).to_vec();
        Block::new(&*self.indptr, &*self.indices, 0..self.owned(), degrees, Some(self.ids.to_vec()))
    }
}

#[cfg(test)]
mod tests;
