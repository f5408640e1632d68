//! Weights of vertices, one for each balanced quantity.

use super::Balance;
use crate::dataset::{Dataset, Subset};

/// Weights of all vertices, `each` per vertex.
pub(super) struct Weights {
    /// Number of balanced quantities.
    pub each: usize,
    /// `of[v * each..][..each]` are the weights of `v`.
    pub of: Vec<u32>,
}

impl Weights {
    /// Returns the number of balanced quantities; vertices are always one.
    pub fn count(balance: Balance) -> usize {
        1 + usize::from(balance.edges) + usize::from(balance.train)
    }

    /// Returns the weights of a dataset's vertices.
    pub fn new(dataset: &Dataset, balance: Balance) -> Self {
        let (graph, split) = (dataset.graph(), dataset.split());
        let each = Weights::count(balance);
        let mut of = Vec::with_capacity(each * graph.nodes());
        for (v, &subset) in split.iter().enumerate() {
            of.push(1);
            if balance.edges {
                of.push(graph.degree(v) as u32);
            }
            if balance.train {
                of.push(u32::from(subset == Subset::Train as u8));
            }
        }
        Weights { each, of }
    }

    /// Returns the weights of vertex `v`.
    pub fn row(&self, v: usize) -> &[u32] {
        &self.of[v * self.each..][..self.each]
    }

    /// Returns the total of each weight.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.each];
        for row in self.of.chunks_exact(self.each) {
            totals.iter_mut().zip(row).for_each(|(total, &weight)| *total += u64::from(weight));
        }
        totals
    }
}
