//! Shards: the part of a dataset that one rank needs.
//!
//! Rows are the owned vertices, then the halo: in-neighbours of owned vertices that other parts own, by owner and then by
//! row at the owner. Each row of edges ascends, so that edges from owned rows come first.

mod column;
mod cut;
pub mod manifest;
mod open;
mod write;

use std::ops::Range;

use column::Column;

use super::layout::{PartitionInfo, Subgraph};
use crate::block::InWeight;
use crate::csr::CsrView;
use crate::dataset::{LabelView, StoredFeatures, Task, view};
use crate::io::npy::Array;

/// One part of a dataset. [`Layout::cut`](super::Layout::cut) creates it in memory and leaves features and labels in the
/// dataset; [`Shard::open`] maps the folder of a part.
pub struct Shard {
    part: u32,
    partition: PartitionInfo,
    /// Dataset ids of owned and halo rows.
    ids: Column<u32>,
    /// Edges of owned rows: row starts and source rows.
    indptr: Column<u64>,
    indices: Column<u32>,
    /// Subset of the split, degrees in each subgraph (one after the other) and distance of owned and halo rows.
    split: Column<u8>,
    degrees: Column<u32>,
    distance: Column<u8>,
    /// Weights of the edges, if they have any.
    weights: Option<ShardWeights>,
    /// First halo row of each owner, counted from the first halo row, and the end.
    halo: Column<u64>,
    /// Row of each halo vertex at its owner.
    homes: Column<u32>,
    features: StoredFeatures,
    labels: Array,
    /// Row of each owned vertex in `features` and `labels`; `None`: the same.
    stored: Option<Vec<u32>>,
}

/// Weights of the edges of a shard.
struct ShardWeights {
    /// In the order of the edges.
    edges: Column<f32>,
    /// Sums of in-weights of owned and halo rows in each subgraph (one after the other): of neighbours, and of the self-loop.
    sums: Column<f64>,
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
    /// Returns whether the vertex has a label.
    pub fn is_known(self) -> bool {
        !matches!(self, Label::Class(..=-1))
    }
}

impl Shard {
    /// Returns the number of the part.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// Returns what every rank knows about the partition.
    pub fn partition(&self) -> &PartitionInfo {
        &self.partition
    }

    /// Returns the number of owned vertices.
    pub fn owned(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the number of rows: owned vertices and halo.
    pub fn rows(&self) -> usize {
        self.ids.len()
    }

    /// Returns the dataset id of each row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the [`Subset`](crate::dataset::Subset) of each row, as a number.
    pub fn split(&self) -> &[u8] {
        &self.split
    }

    /// Returns the in-degree of each row in `graph` without self-loops; 0 for vertices outside it.
    pub fn degrees(&self, graph: Subgraph) -> &[u32] {
        let start = graph as usize * self.rows();
        &self.degrees[start..start + self.rows()]
    }

    /// Returns the distance of each row from the nearest labelled training vertex, against the direction of edges: the
    /// in-neighbours of a vertex at distance d are at most at d + 1. 255 means 255 or more, or unreachable.
    pub fn distance(&self) -> &[u8] {
        &self.distance
    }

    /// Returns the edges of owned rows; columns are rows of this shard, ascending.
    pub fn edges(&self) -> CsrView<'_> {
        CsrView { indptr: &self.indptr, indices: &self.indices }
    }

    /// Returns the weights of the edges of owned rows; `None`: the dataset has none.
    pub fn edge_weights(&self) -> Option<&[f32]> {
        self.weights.as_ref().map(|weights| &*weights.edges)
    }

    /// Returns the sum of in-weights of each row in `graph`; `None`: the dataset has no weights.
    pub fn in_weights(&self, graph: Subgraph) -> Option<&[InWeight]> {
        let sums: &[InWeight] = bytemuck::cast_slice(&self.weights.as_ref()?.sums);
        let start = graph as usize * self.rows();
        Some(&sums[start..start + self.rows()])
    }

    /// Returns the number of edges of owned row `row` that come from owned rows; they come first.
    pub fn local_edges(&self, row: usize) -> usize {
        let owned = self.owned() as u32;
        self.edges().row(row).partition_point(|&column| column < owned)
    }

    /// Returns the rows of vertices that `owner` owns: the owned rows of this part, or a run of the halo.
    pub fn rows_of(&self, owner: u32) -> Range<usize> {
        if owner == self.part {
            return 0..self.owned();
        }
        let at = |part: u32| self.owned() + self.halo[part as usize] as usize;
        at(owner)..at(owner + 1)
    }

    /// Returns, for each row of [`Shard::rows_of`] `owner`, its row at `owner`; ascending.
    pub fn homes(&self, owner: u32) -> &[u32] {
        &self.homes[self.halo[owner as usize] as usize..self.halo[owner as usize + 1] as usize]
    }

    /// Returns the label of an owned row.
    pub fn label(&self, row: usize) -> Label<'_> {
        let row = self.stored_row(row);
        match self.labels() {
            LabelView::Single(classes) => Label::Class(classes[row]),
            LabelView::Multi { classes, flags } => Label::Flags(&flags[row * classes..][..classes]),
        }
    }

    /// Returns the stored labels; see [`Shard::stored_rows`] for their rows.
    pub fn labels(&self) -> LabelView<'_> {
        match self.partition.dataset.task {
            Task::SingleLabel => LabelView::Single(view(&self.labels)),
            Task::MultiLabel => LabelView::Multi {
                classes: self.partition.dataset.classes as usize,
                flags: view(&self.labels),
            },
        }
    }

    /// Returns the stored features; see [`Shard::stored_rows`] for their rows.
    pub fn features(&self) -> &StoredFeatures {
        &self.features
    }

    /// Returns the row of each owned vertex in the stored features and labels; `None`: the same row.
    pub fn stored_rows(&self) -> Option<&[u32]> {
        self.stored.as_deref()
    }

    fn stored_row(&self, row: usize) -> usize {
        self.stored.as_ref().map_or(row, |stored| stored[row] as usize)
    }
}

#[cfg(test)]
mod tests;
