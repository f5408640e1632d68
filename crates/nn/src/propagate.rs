//! The linear aggregations: fixed weights on edges that are a product of a source and a destination factor.
//!
//! `out[v] = d[v] * Σ_{u -> v} s[u] * x[u] + own[v] * x[v]`, for destinations v.

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::aggregate::{Own, Weights, aggregate, aggregate_half};
use halograph_kernels::buffer::Buffer;
use rayon::prelude::*;

use crate::input::Input;
use crate::matrix::Matrix;

/// The factors of a linear aggregation over one block.
#[derive(Debug, Default)]
pub(crate) struct Propagation<T: Real> {
    source: Option<Buffer<T>>,
    destination: Buffer<T>,
    /// Weight of a self-loop that is not stored; absent if there are none.
    own: Option<Buffer<T>>,
}

impl<T: Real> Propagation<T> {
    /// Symmetric normalisation with self-loops: `Σ_{u in N(v) ∪ {v}} x[u] / √(d̂(u) d̂(v))`, `d̂ = degree + 1`.
    /// All of it times `share`.
    pub(crate) fn symmetric(block: &Block, share: T) -> Self {
        let source = filled(block.sources(), |r| T::of(1.0 / (block.degrees()[r] as f64 + 1.0).sqrt()));
        let (first, count) = (block.destinations().start, block.destinations().len());
        let own = without_stored_loops(
            block,
            filled(count, |r| {
                let s = source[first + r];
                share * s * s
            }),
        );
        let destination = filled(count, |r| share * source[first + r]);
        Propagation { source: Some(source), destination, own: Some(own) }
    }

    /// The mean over a row's edges; 0 without edges.
    pub(crate) fn mean(block: &Block) -> Self {
        let pattern = block.pattern();
        let inverse = |r: usize| T::of(1.0 / pattern.row(r).len().max(1) as f64);
        Propagation { source: None, destination: filled(pattern.rows(), inverse), own: None }
    }

    /// The mean over a row's edges and a self-loop, which is not doubled where it is stored.
    pub(crate) fn mean_with_self(block: &Block) -> Self {
        let pattern = block.pattern();
        let inverse = |more: usize, r: usize| T::of(1.0 / (pattern.row(r).len() + more).max(1) as f64);
        let mut destination = filled(pattern.rows(), |r| inverse(1, r));
        block.loops().iter().for_each(|&r| destination[r as usize] = inverse(0, r as usize));
        let own = without_stored_loops(block, destination.clone());
        Propagation { source: None, destination, own: Some(own) }
    }

    fn weights(&self, block: &Block) -> Weights<'_, T> {
        let x_first = block.destinations().start;
        let own = self.own.as_ref().map(|own| Own { weight: own, out_first: 0, x_first });
        Weights { source: self.source.as_deref(), destination: Some(&self.destination[..]), own }
    }

    /// Source rows to destination rows.
    pub(crate) fn forward(&self, block: &Block, x: &Input<T>) -> Matrix<T> {
        assert_eq!(x.rows(), block.sources(), "a message from every source row");
        let (pattern, weights) = (block.pattern(), self.weights(block));
        let mut out = Matrix::unspecified(block.destinations().len(), x.cols());
        match x {
            Input::Full(x) => aggregate(pattern, weights, x.data(), x.cols(), out.data_mut()),
            Input::Half(x) => aggregate_half(pattern, weights, x.data(), x.cols(), out.data_mut()),
        }
        out
    }

    /// Gradients of destination rows to gradients of source rows.
    pub(crate) fn backward(&self, block: &Block, grad: &Matrix<T>) -> Matrix<T> {
        let mut out = Matrix::unspecified(block.sources(), grad.cols());
        let weights = self.weights(block).transposed();
        aggregate(block.transpose(), weights, grad.data(), grad.cols(), out.data_mut());
        out
    }
}

fn filled<T: Real>(len: usize, value: impl Fn(usize) -> T + Sync) -> Buffer<T> {
    let mut buffer = Buffer::unspecified(len);
    buffer.par_iter_mut().enumerate().with_min_len(4096).for_each(|(i, x)| *x = value(i));
    buffer
}

fn without_stored_loops<T: Real>(block: &Block, mut own: Buffer<T>) -> Buffer<T> {
    block.loops().iter().for_each(|&r| own[r as usize] = T::zero());
    own
}
