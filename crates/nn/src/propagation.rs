//! The linear aggregations: fixed weights on edges that are a product of a source and a destination factor.
//!
//! `out[v] = d[v] * Σ_{u -> v} s[u] * x[u] + own[v] * x[v]`, for destinations v. Terms of halo rows are added by themselves.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::aggregate::{
    SelfLoops, Weights, add_aggregate, add_aggregate_half, aggregate, aggregate_half,
};
use halograph_kernels::buffer::Buffer;
use rayon::prelude::*;

use crate::input::Input;
use crate::matrix::Matrix;

/// The factors of a linear aggregation over one block.
#[derive(Debug, Default)]
pub struct Propagation<T: Real> {
    source: Option<Buffer<T>>,
    /// Of halo rows.
    halo: Option<Buffer<T>>,
    destination: Option<Buffer<T>>,
    /// Weight of a self-loop that is not stored; absent if there are none.
    own: Option<Buffer<T>>,
}

impl<T: Real> Propagation<T> {
    /// Symmetric normalisation with self-loops: `Σ_{u in N(v) ∪ {v}} x[u] / √(d̂(u) d̂(v))`, `d̂ = degree + 1`.
    /// All of it times `share`.
    pub(crate) fn symmetric(block: &Block, share: T) -> Self {
        let factors =
            |degrees: &[u32]| filled(degrees.len(), |r| T::of(1.0 / (degrees[r] as f64 + 1.0).sqrt()));
        let source = factors(block.degrees());
        let halo = block.halo().map(|halo| factors(halo.degrees()));
        let (first, count) = (block.destinations().start, block.destinations().len());
        let own = without_stored_loops(
            block,
            filled(count, |r| {
                let s = source[first + r];
                share * s * s
            }),
        );
        let destination = filled(count, |r| share * source[first + r]);
        Propagation { source: Some(source), halo, destination: Some(destination), own: Some(own) }
    }

    /// The plain sum over a row's edges.
    pub(crate) fn sum() -> Self {
        Propagation::default()
    }

    /// The mean over a row's edges; 0 without edges.
    pub(crate) fn mean(block: &Block) -> Self {
        let inverse = |r: usize| T::of(1.0 / block.in_edges(r).max(1) as f64);
        let destination = filled(block.destinations().len(), inverse);
        Propagation { destination: Some(destination), ..Propagation::sum() }
    }

    /// The mean over a row's edges and a self-loop, which is not doubled where it is stored.
    pub(crate) fn mean_with_self(block: &Block) -> Self {
        let inverse = |more: usize, r: usize| T::of(1.0 / (block.in_edges(r) + more).max(1) as f64);
        let mut destination = filled(block.destinations().len(), |r| inverse(1, r));
        block.loops().iter().for_each(|&r| destination[r as usize] = inverse(0, r as usize));
        let own = without_stored_loops(block, destination.clone());
        Propagation { destination: Some(destination), own: Some(own), ..Propagation::sum() }
    }

    fn weights(&self, block: &Block) -> Weights<'_, T> {
        let x_first = block.destinations().start;
        let own = self.own.as_ref().map(|own| SelfLoops { weight: own, out_first: 0, x_first });
        Weights { source: self.source.as_deref(), destination: self.destination.as_deref(), self_loops: own }
    }

    fn halo_weights(&self) -> Weights<'_, T> {
        Weights { source: self.halo.as_deref(), destination: self.destination.as_deref(), self_loops: None }
    }

    /// Adds the terms of halo rows to destination rows.
    pub(crate) fn add_halo(&self, block: &Block, x: &Input<T>, sums: Arc<Matrix<T>>) -> Arc<Matrix<T>> {
        let halo = block.halo().expect("messages of a halo come to a block that has one");
        assert_eq!(x.rows(), halo.sources(), "a message from every halo row");
        let (pattern, weights) = (halo.pattern(), self.halo_weights());
        let mut sums = Arc::unwrap_or_clone(sums);
        match x {
            Input::Full(x) => add_aggregate(pattern, weights, x.data(), x.cols(), sums.data_mut()),
            Input::Half(x) => add_aggregate_half(pattern, weights, x.data(), x.cols(), sums.data_mut()),
        }
        Arc::new(sums)
    }

    /// Gradients of destination rows to gradients of halo rows.
    pub(crate) fn halo_backward(&self, block: &Block, grad: &Matrix<T>) -> Matrix<T> {
        let halo = block.halo().expect("only a block with a halo owes gradients to others");
        let mut out = Matrix::unspecified(halo.sources(), grad.cols());
        let weights = self.halo_weights().transposed();
        aggregate(halo.transpose(), weights, grad.data(), grad.cols(), out.data_mut());
        out
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
