//! What a vertex weighs, for each thing that parts shall have equally much of.

use super::Balance;
use crate::dataset::{Dataset, Subset};

/// Weights of all vertices: `each` numbers a vertex.
pub(super) struct Weights {
    /// How many things are balanced.
    pub each: usize,
    /// `of[v * each..][..each]` are the weights of `v`.
    pub of: Vec<u32>,
}

impl Weights {
    /// How many things `balance` asks for; vertices are always one.
    pub fn count(balance: Balance) -> usize {
        1 + usize::from(balance.edges) + usize::from(balance.train)
    }

    /// The weights of a dataset's vertices.
    pub fn new(dataset: &Dataset, balance: Balance) -> Self {
        let (graph, split) = (dataset.graph(), dataset.split());
        let each = Weights::count(balance);
        let mut of = Vec::with_capacity(each * graph.nodes());
        for (v, &part) in split.iter().enumerate() {
            of.push(1);
            if balance.edges {
                of.push(graph.degree(v) as u32);
            }
            if balance.train {
                of.push(u32::from(part == Subset::Train as u8));
            }
        }
        Weights { each, of }
    }

    /// The weights of vertex `v`.
    pub fn row(&self, v: usize) -> &[u32] {
        &self.of[v * self.each..][..self.each]
    }

    /// The sum over all vertices, of each.
    pub fn totals(&self) -> Vec<u64> {
        let mut totals = vec![0; self.each];
        for row in self.of.chunks_exact(self.each) {
            totals.iter_mut().zip(row).for_each(|(total, &weight)| *total += u64::from(weight));
        }
        totals
    }
}
