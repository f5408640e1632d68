//! Weights of the edges of a [`Block`].
//!
//! As with degrees, what a layer divides by is known from the whole graph: an [`InWeight`] for every source row. A block of
//! some edges, with a halo or sampled, is aggregated as the whole graph is.

use std::borrow::Cow;
use std::sync::OnceLock;

use bytemuck::{Pod, Zeroable};
use halograph_kernels::sparse::{Pattern, Transpose};
use rayon::prelude::*;

use super::{Block, Halo, ROWS, rows_mut};
use crate::csr::CsrView;

/// Sum of the weights of the edges into a vertex, in the whole graph.
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct InWeight {
    neighbors: f64,
    /// Weight of the self-loop; [`NO_LOOP`]: none is stored.
    own: f64,
}

/// Weights are not negative.
const NO_LOOP: f64 = -1.0;

impl InWeight {
    /// Returns the sum of the weights of the edges into `vertex`, added in their order.
    pub fn of(vertex: u32, edges: impl Iterator<Item = (u32, f32)>) -> Self {
        let mut sum = InWeight { neighbors: 0.0, own: NO_LOOP };
        for (source, weight) in edges {
            if source == vertex {
                sum.own = weight.into();
            } else {
                sum.neighbors += f64::from(weight);
            }
        }
        sum
    }

    /// Returns the sum over in-neighbours other than the vertex itself.
    pub fn neighbors(self) -> f64 {
        self.neighbors
    }

    /// Returns the weight of the self-loop, if one is stored.
    pub fn own(self) -> Option<f64> {
        (self.own >= 0.0).then_some(self.own)
    }
}

/// Weights of the edges of a block, and sums of them for its source rows.
pub(super) struct BlockWeights<'g> {
    pub edges: Cow<'g, [f32]>,
    pub sums: Cow<'g, [InWeight]>,
    transposed: OnceLock<Vec<f32>>,
}

impl<'g> BlockWeights<'g> {
    fn new(edges: Cow<'g, [f32]>, sums: Cow<'g, [InWeight]>) -> Self {
        BlockWeights { edges, sums, transposed: OnceLock::new() }
    }

    /// Returns the weights of the first `edges` edges and `sources` source rows. Borrows.
    pub fn prefix(&self, edges: usize, sources: usize) -> BlockWeights<'_> {
        BlockWeights::new(Cow::Borrowed(&self.edges[..edges]), Cow::Borrowed(&self.sums[..sources]))
    }

    /// Returns the weights in the order of the transpose of `pattern`. Computed at the first call.
    pub fn transposed(&self, pattern: Pattern, sources: usize) -> &[f32] {
        self.transposed.get_or_init(|| Transpose::values(pattern, sources, &self.edges))
    }
}

/// Weights of the edges from a halo, and sums of them for its rows.
#[derive(Debug)]
pub(super) struct HaloWeights {
    pub edges: Vec<f32>,
    pub sums: Vec<InWeight>,
    pub transposed: OnceLock<Vec<f32>>,
}

impl HaloWeights {
    /// Returns the bytes of memory, without transposes.
    pub fn bytes(&self) -> usize {
        size_of::<f32>() * self.edges.capacity() + size_of::<InWeight>() * self.sums.capacity()
    }
}

impl Halo {
    /// Returns the halo with weights of its edges; `sums` are those of the halo rows.
    ///
    /// # Panics
    /// If lengths do not match.
    #[must_use]
    pub fn with_weights(self, edges: Vec<f32>, sums: Vec<InWeight>) -> Self {
        assert_eq!(edges.len(), self.edges(), "a weight of every edge");
        assert_eq!(sums.len(), self.sources(), "a sum for every halo row");
        Halo { weights: Some(HaloWeights { edges, sums, transposed: OnceLock::new() }), ..self }
    }

    /// Returns the weights of the edges of [`Halo::pattern`]; `None`: the graph has none.
    pub fn edge_weights(&self) -> Option<&[f32]> {
        self.weights.as_ref().map(|weights| &weights.edges[..])
    }

    /// Returns the weights of the edges of [`Halo::transpose`]. Computed at the first call.
    pub fn transposed_weights(&self) -> Option<&[f32]> {
        let HaloWeights { edges, transposed, .. } = self.weights.as_ref()?;
        Some(transposed.get_or_init(|| Transpose::values(self.pattern(), self.sources(), edges)))
    }

    /// Returns the sum of in-weights of each halo row, in the whole graph.
    pub fn in_weights(&self) -> Option<&[InWeight]> {
        self.weights.as_ref().map(|weights| &weights.sums[..])
    }
}

impl<'g> Block<'g> {
    /// Returns the block with weights of its edges; `sums` are those of the source rows, in the whole graph.
    ///
    /// # Panics
    /// If lengths do not match.
    #[must_use]
    pub fn with_weights(
        self,
        edges: impl Into<Cow<'g, [f32]>>,
        sums: impl Into<Cow<'g, [InWeight]>>,
    ) -> Self {
        let (edges, sums) = (edges.into(), sums.into());
        assert_eq!(edges.len(), self.edges(), "a weight of every edge");
        assert_eq!(sums.len(), self.sources(), "a sum for every source row");
        let (transpose, symmetric) = (OnceLock::new(), OnceLock::new());
        Block { weights: Some(BlockWeights::new(edges, sums)), transpose, symmetric, ..self }
    }

    /// Returns the block of a whole graph with weights of its edges.
    ///
    /// # Panics
    /// If there are more or fewer weights than edges, or not every source is a destination.
    #[must_use]
    pub fn weighted(self, edges: impl Into<Cow<'g, [f32]>>) -> Self {
        assert_eq!(self.destinations(), 0..self.sources(), "the block holds all edges");
        let edges = edges.into();
        assert_eq!(edges.len(), self.edges(), "a weight of every edge");
        let graph = CsrView { indptr: &self.indptr, indices: &self.indices };
        let sums = in_weights(graph, &edges, |_| true);
        self.with_weights(edges, sums)
    }

    /// Returns the weights of the edges of [`Block::pattern`]; `None`: the graph has none.
    pub fn edge_weights(&self) -> Option<&[f32]> {
        self.weights.as_ref().map(|weights| &weights.edges[..])
    }

    /// Returns the weights of the edges of [`Block::transpose`]. Computed at the first call.
    pub fn transposed_weights(&self) -> Option<&[f32]> {
        let weights = self.weights.as_ref()?;
        Some(match self.parent {
            Some(parent) => parent.transposed_weights().expect("a prefix has weights if its parent has"),
            None if self.is_symmetric() => &weights.edges,
            None => weights.transposed(self.pattern(), self.sources()),
        })
    }

    /// Returns the sum of in-weights of each source row, in the whole graph.
    pub fn in_weights(&self) -> Option<&[InWeight]> {
        self.weights.as_ref().map(|weights| &weights.sums[..])
    }
}

/// Returns the sum of in-weights of each vertex of `graph` in the subgraph of the vertices that it `holds`.
pub fn in_weights(graph: CsrView, weights: &[f32], holds: impl Fn(u32) -> bool + Sync) -> Vec<InWeight> {
    let of = |v: usize| {
        let run = graph.indptr[v] as usize..graph.indptr[v + 1] as usize;
        let edges = graph.indices[run.clone()].iter().copied().zip(weights[run].iter().copied());
        InWeight::of(v as u32, edges.filter(|&(u, _)| holds(u) && holds(v as u32)))
    };
    (0..graph.nodes()).into_par_iter().with_min_len(256).map(of).collect()
}

/// Returns the weights of the edges of `pattern`, all of which are edges of `graph`, whose weights are `weights`. `row`: the
/// row of `graph` of a destination; `column`: the column of a source.
pub fn weights_of(
    pattern: Pattern,
    graph: CsrView,
    weights: &[f32],
    row: impl Fn(usize) -> u32 + Sync,
    column: impl Fn(u32) -> u32 + Sync,
) -> Vec<f32> {
    let mut out = vec![0.0; pattern.columns.len()];
    let bounds: Vec<u64> = pattern.starts.first().into_iter().chain(pattern.ends).copied().collect();
    if pattern.rows() == 0 {
        return out;
    }
    rows_mut(&bounds, &mut out).into_par_iter().enumerate().for_each(|(task, mut rest)| {
        for r in task * ROWS..pattern.rows().min((task + 1) * ROWS) {
            let v = row(r) as usize;
            let (edges, first) = (graph.row(v), graph.indptr[v] as usize);
            let (own, after) = rest.split_at_mut(pattern.row(r).len());
            for (weight, &source) in own.iter_mut().zip(&pattern.columns[pattern.row(r)]) {
                let source = column(source);
                // Rows of a dataset ascend, unless it was changed by hand.
                let at = edges.binary_search(&source).ok();
                let at = at.or_else(|| edges.iter().position(|&u| u == source));
                *weight = weights[first + at.expect("edges of a block are edges of its graph")];
            }
            rest = after;
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path 0 - 1 - 2, a self-loop at 2, and 3 alone; the edge 1 -> 0 and its reverse have other weights.
    const INDPTR: [u64; 5] = [0, 1, 3, 5, 5];
    const INDICES: [u32; 5] = [1, 0, 2, 1, 2];
    const WEIGHTS: [f32; 5] = [0.5, 0.25, 2.0, 2.0, 8.0];

    fn graph() -> CsrView<'static> {
        CsrView { indptr: &INDPTR, indices: &INDICES }
    }

    fn sum(neighbors: f64, own: Option<f64>) -> InWeight {
        InWeight { neighbors, own: own.unwrap_or(NO_LOOP) }
    }

    #[test]
    fn in_weights_leave_the_self_loop_aside() {
        let block = Block::whole(graph()).weighted(&WEIGHTS[..]);
        let sums = [sum(0.5, None), sum(2.25, None), sum(2.0, Some(8.0)), sum(0.0, None)];
        assert_eq!(block.in_weights(), Some(&sums[..]));
        assert_eq!((sums[2].neighbors(), sums[2].own(), sums[0].own()), (2.0, Some(8.0), None));
        let without_zero = in_weights(graph(), &WEIGHTS, |v| v > 0);
        assert_eq!(without_zero[..2], [sum(0.0, None), sum(2.0, None)]);
    }

    #[test]
    fn weights_follow_their_edges_into_every_block() {
        let order = [2, 3, 0, 1];
        let block = Block::ordered(graph(), &order);
        let id = |row: u32| block.id(row as usize);
        let found = weights_of(block.pattern(), graph(), &WEIGHTS, |r| order[r], id);
        // Rows: 2 reads 2 and 1; 3 none; 0 reads 1; 1 reads 2 and 0.
        assert_eq!(found, [8.0, 2.0, 0.5, 2.0, 0.25]);
        let block = block.weighted(found);
        // Row 0 (vertex 2) is read by itself and 1, row 2 (0) by 1, row 3 (1) by 2 and 0.
        assert_eq!(block.transposed_weights(), Some(&[8.0, 2.0, 0.25, 2.0, 0.5][..]));
        let prefix = block.prefix(1, 4);
        assert_eq!(prefix.edge_weights(), Some(&[8.0, 2.0][..]));
        let transpose = (prefix.transpose(), prefix.transposed_weights().unwrap());
        let read = |row: usize| &transpose.1[transpose.0.row(row)];
        assert_eq!((read(0), read(1), read(2), read(3)), (&[8.0][..], &[][..], &[][..], &[2.0][..]));
    }

    #[test]
    fn a_block_is_its_own_transpose_only_if_its_weights_are_symmetric() {
        let is_own = |weights: [f32; 5]| {
            let block = Block::whole(graph()).weighted(weights.to_vec());
            let is_own = std::ptr::eq(block.transpose().columns, block.pattern().columns);
            assert_eq!(
                is_own,
                block.transposed_weights().unwrap().as_ptr() == block.edge_weights().unwrap().as_ptr()
            );
            is_own
        };
        assert!(is_own([0.5, 0.5, 2.0, 2.0, 8.0]));
        assert!(!is_own(WEIGHTS));
    }
}
