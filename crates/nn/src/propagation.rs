//! The linear aggregations: fixed weights on edges that are a product of a source and a destination factor, and of the edge
//! weight if the graph has weights.
//!
//! `out[v] = d[v] * Σ_{u -> v} a[uv] * s[u] * x[u] + own[v] * x[v]`, for destinations v. Terms of halo rows are added
//! separately. With all edge weights 1 the factors are those of a graph without weights.
//!
//! A sampled block estimates the sums of its destinations without bias: the terms of drawn edges are multiplied by the number
//! of edges that each stands for, and factors are from sums over the whole graph ([`Block::in_weights`]).

use std::sync::Arc;

use halograph_graph::block::{Block, Halo, InWeight};
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
    /// Returns symmetric normalisation with self-loops: `Σ_{u in N(v) ∪ {v}} a[uv] x[u] / √(d̂(u) d̂(v))`, where `d̂` is the
    /// sum of in-weights, multiplied by `share`. Edges without weights, and self-loops that are not stored, have weight 1.
    pub(crate) fn symmetric(block: &Block, share: T) -> Self {
        let source = inverse_roots(block.degrees(), block.in_weights());
        let halo = block.halo().map(|halo| inverse_roots(halo.degrees(), halo.in_weights()));
        let (first, count) = (block.destinations().start, block.destinations().len());
        let destination = filled(count, |r| share * source[first + r] * T::of(block.edge_scale(r)));
        let loops = Loops::of(block);
        let mut own = filled(count, |r| {
            let s = source[first + r];
            // Of tiny weights, the square of s may be too large.
            share * s * loops.weight::<T>(r) * s
        });
        less_stored_loops(block, &mut own, |r| destination[r] * loops.weight::<T>(r) * source[first + r]);
        Propagation { source: Some(source), halo, destination: Some(destination), own: Some(own) }
    }

    /// Returns the weighted sum over a row's edges.
    pub(crate) fn sum(block: &Block) -> Self {
        if !block.is_sampled() {
            return Propagation::default();
        }
        Propagation::estimate(block, |_| T::one())
    }

    /// Returns the weighted mean over a row's edges, `Σ a x / Σ a`; 0 without edges, or if all their weights are 0.
    pub(crate) fn mean(block: &Block) -> Self {
        if let Some(sums) = block.in_weights() {
            let first = block.destinations().start;
            let total = |r: usize| sums[first + r].neighbors() + sums[first + r].own().unwrap_or(0.0);
            return Propagation::estimate(block, |r| inverse(total(r)));
        }
        if block.is_sampled() && !block.loops().is_empty() {
            let first = block.destinations().start;
            let has_loop = |r: usize| block.loops().binary_search(&(r as u32)).is_ok();
            let edges = |r: usize| block.degrees()[first + r] as usize + has_loop(r) as usize;
            return Propagation::estimate(block, |r| T::of(1.0 / edges(r).max(1) as f64));
        }
        let inverse = |r: usize| T::of(1.0 / block.in_edges(r).max(1) as f64);
        let destination = filled(block.destinations().len(), inverse);
        Propagation { destination: Some(destination), ..Propagation::default() }
    }

    /// Returns the weighted mean over a row's edges and a self-loop, of weight 1 unless it is stored. A stored self-loop counts
    /// once.
    pub(crate) fn mean_with_self(block: &Block) -> Self {
        let first = block.destinations().start;
        let edges = |r: usize| match block.is_sampled() {
            true => block.degrees()[first + r] as usize,
            false => block.in_edges(r) - block.loops().binary_search(&(r as u32)).is_ok() as usize,
        };
        let loops = Loops::of(block);
        let weight = filled(block.destinations().len(), |r| match block.in_weights() {
            Some(sums) => inverse(sums[first + r].neighbors() + sums[first + r].own().unwrap_or(1.0)),
            None => T::of(1.0 / (edges(r) + 1) as f64),
        });
        let destination = scaled(block, &weight);
        let mut own = filled(weight.len(), |r| weight[r] * loops.weight::<T>(r));
        less_stored_loops(block, &mut own, |r| destination[r] * loops.weight::<T>(r));
        Propagation { destination: Some(destination), own: Some(own), ..Propagation::default() }
    }

    /// Returns a sum over a row's edges, each with the row's weight besides its own: an estimate if the block is sampled. A
    /// stored self-loop is never left out and counts once.
    fn estimate(block: &Block, weight: impl Fn(usize) -> T + Sync) -> Self {
        let weight = filled(block.destinations().len(), weight);
        let destination = scaled(block, &weight);
        let own = (block.is_sampled() && !block.loops().is_empty()).then(|| {
            let (mut own, loops) = (Buffer::zeros(weight.len()), Loops::of(block));
            let rows = block.loops().iter().map(|&r| r as usize);
            rows.for_each(|r| own[r] = (weight[r] - destination[r]) * loops.weight::<T>(r));
            own
        });
        Propagation { destination: Some(destination), own, ..Propagation::default() }
    }

    fn weights<'a>(&'a self, block: &'a Block) -> Weights<'a, T> {
        let x_first = block.destinations().start;
        let own = self.own.as_ref().map(|own| SelfLoops { weight: own, out_first: 0, x_first });
        Weights {
            entries: block.edge_weights(),
            source: self.source.as_deref(),
            destination: self.destination.as_deref(),
            self_loops: own,
        }
    }

    fn halo_weights<'a>(&'a self, halo: &'a Halo) -> Weights<'a, T> {
        Weights {
            entries: halo.edge_weights(),
            source: self.halo.as_deref(),
            destination: self.destination.as_deref(),
            self_loops: None,
        }
    }

    /// Adds the terms of halo rows to destination rows.
    pub(crate) fn add_halo(&self, block: &Block, x: &Input<T>, sums: Arc<Matrix<T>>) -> Arc<Matrix<T>> {
        let halo = block.halo().expect("the block has a halo");
        assert_eq!(x.rows(), halo.sources(), "a message from every halo row");
        let (pattern, weights) = (halo.pattern(), self.halo_weights(halo));
        let mut sums = Arc::unwrap_or_clone(sums);
        match x {
            Input::Full(x) => add_aggregate(pattern, weights, x.data(), x.cols(), sums.data_mut()),
            Input::Half(x) => add_aggregate_half(pattern, weights, x.data(), x.cols(), sums.data_mut()),
            Input::Sparse(x) => {
                let x = x.dense(0..x.rows());
                add_aggregate(pattern, weights, x.data(), x.cols(), sums.data_mut());
            }
        }
        Arc::new(sums)
    }

    /// Returns the gradient of halo rows, given that of destination rows.
    pub(crate) fn halo_backward(&self, block: &Block, grad: &Matrix<T>) -> Matrix<T> {
        let halo = block.halo().expect("only a block with a halo owes gradients to others");
        let mut out = Matrix::unspecified(halo.sources(), grad.cols());
        let weights = self.halo_weights(halo).transposed(halo.transposed_weights());
        aggregate(halo.transpose(), weights, grad.data(), grad.cols(), out.data_mut());
        out
    }

    /// Returns the aggregate of source rows, for destination rows.
    pub(crate) fn forward(&self, block: &Block, x: &Input<T>) -> Matrix<T> {
        assert_eq!(x.rows(), block.sources(), "a message from every source row");
        let (pattern, weights) = (block.pattern(), self.weights(block));
        let mut out = Matrix::unspecified(block.destinations().len(), x.cols());
        match x {
            Input::Full(x) => aggregate(pattern, weights, x.data(), x.cols(), out.data_mut()),
            Input::Half(x) => aggregate_half(pattern, weights, x.data(), x.cols(), out.data_mut()),
            // An aggregate of sparse rows is far less sparse.
            Input::Sparse(x) => {
                let x = x.dense(0..x.rows());
                aggregate(pattern, weights, x.data(), x.cols(), out.data_mut());
            }
        }
        out
    }

    /// Returns the gradient of source rows, given that of destination rows.
    pub(crate) fn backward(&self, block: &Block, grad: &Matrix<T>) -> Matrix<T> {
        let mut out = Matrix::unspecified(block.sources(), grad.cols());
        let weights = self.weights(block).transposed(block.transposed_weights());
        aggregate(block.transpose(), weights, grad.data(), grad.cols(), out.data_mut());
        out
    }
}

/// Returns the inverse square roots of sums of in-weights with self-loops; 0 of 0.
fn inverse_roots<T: Real>(degrees: &[u32], sums: Option<&[InWeight]>) -> Buffer<T> {
    filled(degrees.len(), |r| {
        let sum = match sums {
            Some(sums) => sums[r].neighbors() + sums[r].own().unwrap_or(1.0),
            None => degrees[r] as f64 + 1.0,
        };
        T::of(if sum > 0.0 { 1.0 / sum.sqrt() } else { 0.0 })
    })
}

/// Returns the inverse of a sum of weights; 0 of 0, and of a sum so small that `T` does not hold its inverse.
fn inverse<T: Real>(sum: f64) -> T {
    let inverse = T::of(if sum > 0.0 { 1.0 / sum } else { 0.0 });
    if inverse.is_finite() { inverse } else { T::zero() }
}

/// Weights of the self-loops of destinations.
struct Loops<'b> {
    sums: Option<&'b [InWeight]>,
}

impl<'b> Loops<'b> {
    fn of(block: &'b Block) -> Self {
        Loops { sums: block.in_weights().map(|sums| &sums[block.destinations()]) }
    }

    /// Returns the weight of the self-loop of the `r`th destination: 1 if none is stored, or without weights.
    fn weight<T: Real>(&self, r: usize) -> T {
        T::of(self.sums.and_then(|sums| sums[r].own()).unwrap_or(1.0))
    }
}

fn filled<T: Real>(len: usize, value: impl Fn(usize) -> T + Sync) -> Buffer<T> {
    let mut buffer = Buffer::unspecified(len);
    buffer.par_iter_mut().enumerate().with_min_len(4096).for_each(|(i, x)| *x = value(i));
    buffer
}

/// Weights of destinations times the number of edges that each sampled edge stands for.
fn scaled<T: Real>(block: &Block, weight: &[T]) -> Buffer<T> {
    filled(weight.len(), |r| weight[r] * T::of(block.edge_scale(r)))
}

/// Takes the weight that stored self-loops already have among the edges of their rows from the weights of self terms.
fn less_stored_loops<T: Real>(block: &Block, own: &mut [T], stored: impl Fn(usize) -> T) {
    for r in block.loops().iter().map(|&r| r as usize) {
        own[r] = if block.is_sampled() { own[r] - stored(r) } else { T::zero() };
    }
}

#[cfg(test)]
mod tests {
    use halograph_graph::csr::CsrView;
    use halograph_graph::sample::{Fanout, Neighbors, Sample, SampleSpec, Sampler, SamplerKind};
    use halograph_kernels::activation::Activation;
    use halograph_kernels::keyed::Key;

    use super::*;
    use crate::convolution::Convolution;
    use crate::layer::Project;
    use crate::model::gcn::Gcn;
    use crate::model::gcnii::Gcnii;
    use crate::model::gin::Gin;
    use crate::model::resgcn::Residual;
    use crate::model::sage::Sage;
    use crate::param::Scope;

    const NODES: u32 = 24;
    const WIDTH: usize = 2;
    const DRAWS: u64 = 2000;

    /// In-neighbours: a hub, rows with few edges, an isolated row and, if asked for, self-loops, one of them alone.
    fn graph(self_loops: bool) -> (Vec<u64>, Vec<u32>) {
        let key = Key::new(1, "graph");
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for v in 0..NODES {
            let mut row: Vec<u32> = match v {
                0 => (1..NODES - 2).collect(),
                v if v >= NODES - 2 => Vec::new(),
                v => (0..key.below(v as u64, 9))
                    .map(|i| key.with(v as u64).below(i, NODES as u64) as u32)
                    .collect(),
            };
            row.retain(|&u| u != v);
            if self_loops && (v % 3 == 0 || v == NODES - 1) {
                row.push(v);
            }
            row.sort_unstable();
            row.dedup();
            indices.extend(row);
            indptr.push(indices.len() as u64);
        }
        (indptr, indices)
    }

    type Weights = Box<dyn Fn(&Block) -> Propagation<f64>>;

    fn of(layer: impl Convolution<Scalar = f64> + 'static) -> Weights {
        Box::new(move |block| layer.propagation(block))
    }

    /// The propagation of every layer with fixed edge weights.
    fn layers() -> Vec<(&'static str, Weights)> {
        let scope = &Scope::new(1);
        let sage = |scope: &Scope| Sage::new(scope, WIDTH, WIDTH, Project::Last);
        vec![
            ("sage", of(sage(scope))),
            ("sage with self_in_mean", of(sage(scope).with_self_in_mean(true))),
            ("gcn", of(Gcn::new(scope, WIDTH, WIDTH, Project::Last))),
            ("gin", of(Gin::new(scope, WIDTH, WIDTH, Project::Last))),
            ("gcnii", of(Gcnii::new(scope, WIDTH, 0.2, 0.5, 1))),
            ("resgcn", of(Residual::new(scope, WIDTH, Activation::Relu, 0.0, sage))),
        ]
    }

    fn features() -> Matrix<f64> {
        let key = Key::new(2, "features");
        let numbers = (0..u64::from(NODES) * WIDTH as u64).map(|i| key.unit(i) + 0.5);
        Matrix::new(NODES as usize, WIDTH, numbers.collect())
    }

    fn gathered(x: &Matrix<f64>, rows: &[u32]) -> Input<f64> {
        let data = rows.iter().flat_map(|&v| x.run(v as usize..v as usize + 1)).copied().collect();
        Matrix::new(rows.len(), x.cols(), data).into()
    }

    /// Mean of a series of numbers and the squares around it.
    #[derive(Clone, Copy, Default)]
    struct Series {
        count: f64,
        mean: f64,
        squares: f64,
    }

    impl Series {
        fn push(&mut self, x: f64) {
            self.count += 1.0;
            let before = x - self.mean;
            self.mean += before / self.count;
            self.squares += before * (x - self.mean);
        }

        fn standard_error(self) -> f64 {
            (self.squares / (self.count - 1.0) / self.count).sqrt()
        }
    }

    #[test]
    fn tiny_weights_give_no_infinities() {
        // Similarities such as exp(-100) are below the normal numbers of single precision.
        let (indptr, indices) = graph(true);
        let block = Block::whole(CsrView { indptr: &indptr, indices: &indices });
        let block = block.weighted(vec![1e-44f32; indices.len()]);
        let x = Matrix::new(NODES as usize, WIDTH, vec![1f32; NODES as usize * WIDTH]);
        let x = Input::from(x);
        for propagation in [
            Propagation::symmetric(&block, 1.0),
            Propagation::sum(&block),
            Propagation::mean(&block),
            Propagation::mean_with_self(&block),
        ] {
            let sums = propagation.forward(&block, &x);
            assert!(sums.data().iter().all(|sum| sum.is_finite()), "{sums:?}");
        }
        // Double precision holds them.
        let mean = Propagation::<f64>::mean(&block).forward(&block, &features().into());
        let plain = Block::whole(CsrView { indptr: &indptr, indices: &indices });
        let want = Propagation::<f64>::mean(&plain).forward(&plain, &features().into());
        assert!(mean.data().iter().zip(want.data()).all(|(a, b)| (a - b).abs() < 1e-12));
    }

    #[test]
    fn sampled_aggregates_are_unbiased() {
        let (x, seeds) = (features(), (0..NODES).collect::<Vec<u32>>());
        for (self_loops, is_weighted) in [(false, false), (true, false), (false, true), (true, true)] {
            let (indptr, indices) = graph(self_loops);
            let mut block = Block::whole(CsrView { indptr: &indptr, indices: &indices });
            if is_weighted {
                let key = Key::new(4, "weights");
                // Some are 0.
                let weight = |e: u64| (4.0 * key.unit(e) as f32 - 0.5).max(0.0);
                block = block.weighted((0..indices.len() as u64).map(weight).collect::<Vec<f32>>());
            }
            assert_eq!(block.loops().is_empty(), !self_loops);
            let neighbors = Neighbors::of(&block);
            for kind in [SamplerKind::Neighbor, SamplerKind::Labor] {
                let spec = SampleSpec { kind, fanouts: vec![Fanout::AtMost(3)] };
                let (mut sampler, mut sample) = (Sampler::new(&neighbors, &spec), Sample::default());
                let layers = layers();
                let mut series = vec![vec![Series::default(); x.data().len()]; layers.len()];
                for draw in 0..DRAWS {
                    sampler.sample(Key::new(3, "draws").with(draw), &seeds, &mut sample);
                    let (sampled, input) = (sample.block(0), gathered(&x, sample.rows()));
                    for ((_, weights), series) in layers.iter().zip(&mut series) {
                        let out = weights(&sampled).forward(&sampled, &input);
                        series.iter_mut().zip(out.data()).for_each(|(series, &x)| series.push(x));
                    }
                }
                for ((name, weights), series) in layers.iter().zip(&series) {
                    let full = weights(&block).forward(&block, &x.clone().into());
                    let varies = series.iter().filter(|s| s.standard_error() > 1e-6).count();
                    assert!(varies > NODES as usize / 2, "{name}: {varies} numbers vary");
                    for (i, (s, want)) in series.iter().zip(full.data()).enumerate() {
                        let apart = (s.mean - want).abs();
                        assert!(
                            apart <= 5.0 * s.standard_error() + 1e-12,
                            "{name}, {kind:?}, self-loops: {self_loops}, weights: {is_weighted}, row {}: {} ± {}, where {want} \
                             is the whole",
                            i / WIDTH,
                            s.mean,
                            s.standard_error(),
                        );
                    }
                }
            }
        }
    }
}
