//! Graph attention.
//!
//! Veličković et al., *Graph Attention Networks* (2018); PyG's `GATConv`.
//!
//! ```text
//! z[u] = W x[u], per head h:   l(u, v) = leaky_relu(a_src · z[u] + a_dst · z[v])      α(·, v) = softmax over N(v) ∪ {v}
//! out[v] = Σ_{u in N(v) ∪ {v}} dropout(α(u, v)) z[u], heads concatenated or averaged, + b
//! ```
//!
//! Input rows x `inputs` → rows x `heads * width`, or `width` if averaged. Parameters: `att_src`, `att_dst` (1 x heads x
//! width), `bias` (as wide as the output), `lin.weight` (heads * width x inputs). Stored self-loops are not doubled.
//! A message is `z` and the source score of each head, so that a receiver needs no parameter to use it. The attention
//! mask of an edge is a function of the ids of its two ends and the head.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::{Block, Halo};
use halograph_kernels::attention::{
    Attention, Mask, RowStats, Saved, mean_of_heads, merge, score, score_backward,
};
use halograph_kernels::gemm::{Start, Tall};
use halograph_kernels::{Real, rows};

use super::build::Builder;
use super::stage::Stage;
use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};

/// Slope of the leaky ReLU below 0.
const SLOPE: f64 = 0.2;

/// Returns the stages of a GAT: heads are concatenated, in the last layer averaged.
pub(super) fn stages<T: Real>(builder: &Builder) -> Vec<Stage<T>> {
    let spec = builder.spec;
    builder.stack(|at| {
        let (heads, width, combine) = match at.is_last {
            true => (spec.last_heads(), at.outputs, Heads::Mean),
            false => (spec.heads, at.outputs / spec.heads, Heads::Concat),
        };
        vec![Stage::new(Gat::new(&at.scope, at.inputs, heads, width, combine, spec.attention_dropout))]
    })
}

/// How the outputs of heads are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heads {
    /// Concatenated: hidden layers.
    Concat,
    /// Averaged: the last layer.
    Mean,
}

/// A graph attention layer.
#[derive(Debug, Clone)]
pub struct Gat<T> {
    source: Param<T>,
    destination: Param<T>,
    bias: Param<T>,
    weight: Param<T>,
    combine: Heads,
    /// Dropout probability of an attention coefficient: an edge in one head.
    dropout: f64,
}

/// Values that the backward of a [`Gat`] needs from the forward.
#[derive(Debug, Default)]
pub struct GatCache<T: Real> {
    /// Owned rows: the input, their messages, and the destination scores.
    input: Input<T>,
    prepared: Arc<Matrix<T>>,
    destination: Matrix<T>,
    /// Messages of owned rows, as they were aggregated.
    received: Arc<Matrix<T>>,
    /// Destination rows before heads are combined, and statistics that the backward of attention needs.
    aggregated: Arc<Matrix<T>>,
    saved: Saved<T>,
    /// Messages of halo rows, and the scores of destinations that read them.
    halo: Arc<Matrix<T>>,
    halo_destination: Matrix<T>,
    /// Statistics of destination rows for the gradients of messages, once computed.
    row_stats: Option<RowStats<T>>,
    /// Gradient of the destination scores, in these owned rows.
    destination_grad: (Range<usize>, Matrix<T>),
}

impl<T: Real> Gat<T> {
    /// Creates a layer with parameters drawn from `scope`. `width` is that of one head; `dropout` is the probability of
    /// dropping an attention coefficient.
    pub fn new(
        scope: &Scope,
        inputs: usize,
        heads: usize,
        width: usize,
        combine: Heads,
        dropout: f64,
    ) -> Self {
        assert!(heads > 0 && width > 0, "at least one head of one column");
        let outputs = if combine == Heads::Concat { heads * width } else { width };
        Gat {
            source: scope.glorot("att_src", &[1, heads, width]),
            destination: scope.glorot("att_dst", &[1, heads, width]),
            bias: scope.constant("bias", &[outputs], 0.0),
            weight: scope.glorot("lin.weight", &[heads * width, inputs]),
            combine,
            dropout,
        }
    }

    fn heads(&self) -> usize {
        self.source.shape[1]
    }

    /// Returns the width of `z`, all heads together.
    fn projected_width(&self) -> usize {
        self.weight.shape[0]
    }

    /// Returns the width of one head.
    fn head_width(&self) -> usize {
        self.source.shape[2]
    }

    /// Returns the attention of the destinations of `block`, which must have no self-loops, over its source rows.
    fn attention<'a>(
        &self,
        block: &'a Block,
        pass: &Pass<T>,
        messages: &'a Matrix<T>,
        destination: &'a Matrix<T>,
    ) -> Attention<'a, T> {
        let p = self.dropout;
        Attention {
            pattern: block.pattern(),
            messages: messages.data(),
            destination: destination.run(block.destinations()),
            first: Some(block.destinations().start),
            heads: self.heads(),
            width: self.head_width(),
            slope: SLOPE,
            mask: pass.attention_key(p).map(|key| Mask { key, p, rows: None, columns: block.ids() }),
        }
    }

    /// Returns the attention over halo rows only, of the destinations that read halo rows; `ids` are those of the
    /// destinations.
    fn halo_attention<'a>(
        &self,
        halo: &'a Halo,
        pass: &Pass<T>,
        ids: &'a [u32],
        messages: &'a Matrix<T>,
        destination: &'a Matrix<T>,
    ) -> Attention<'a, T> {
        let p = self.dropout;
        let mask = |key| Mask { key, p, rows: Some(ids), columns: Some(halo.ids()) };
        Attention {
            pattern: halo.reached_pattern(),
            messages: messages.data(),
            destination: destination.data(),
            first: None,
            heads: self.heads(),
            width: self.head_width(),
            slope: SLOPE,
            mask: pass.attention_key(p).map(mask),
        }
    }

    /// Computes the gradient of destination scores, and returns statistics of every destination for the gradients of
    /// messages.
    fn row_stats(
        &self,
        block: &Block,
        grad: &Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> RowStats<T> {
        let mut destination_grad = Matrix::unspecified(block.destinations().len(), self.heads());
        let attention = self.attention(block.without_loops(), pass, &cache.received, &cache.destination);
        let forward = (&cache.saved, cache.aggregated.data());
        let stats = attention.destination_backward(forward, grad.data(), destination_grad.data_mut());
        // Frees their memory early.
        (cache.saved, cache.aggregated) = Default::default();
        cache.destination_grad = (block.destinations(), destination_grad);
        stats
    }
}

/// Returns the dataset ids of the destinations that read halo rows.
fn reached_ids(block: &Block, halo: &Halo) -> Vec<u32> {
    let first = block.destinations().start;
    halo.reached().iter().map(|&r| block.id(first + r as usize)).collect()
}

impl<T: Real> Layer<T> for Gat<T> {
    type Cache = GatCache<T>;

    fn message_width(&self) -> usize {
        self.projected_width() + self.heads()
    }

    fn output_width(&self) -> usize {
        self.bias.shape[0]
    }

    fn aggregates_input(&self) -> bool {
        false
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, cache: &mut GatCache<T>) -> Input<T> {
        cache.input = input;
        let mut messages = Matrix::unspecified(cache.input.rows(), self.message_width());
        self.weight.project_into(cache.input.tall(), Start::Zero, &mut messages);
        cache.destination = Matrix::unspecified(messages.rows(), self.heads());
        let scores = [&self.source.value[..], &self.destination.value];
        score(self.heads(), scores, messages.data_mut(), cache.destination.data_mut());
        cache.prepared = Arc::new(messages);
        cache.prepared.clone().into()
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Arc<Matrix<T>> {
        let messages = messages.full();
        let attention = self.attention(block.without_loops(), pass, &messages, &cache.destination);
        let mut out = Matrix::unspecified(block.destinations().len(), self.projected_width());
        // Only training has a key, and a backward.
        if pass.key.is_none() {
            cache.saved = Saved::for_evaluation();
        }
        let is_saved = pass.key.is_some() || block.halo().is_some();
        attention.forward(is_saved.then_some(&mut cache.saved), out.data_mut());
        cache.received = messages;
        Arc::new(out)
    }

    fn add_halo(
        &self,
        block: &Block,
        messages: Input<T>,
        sums: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Arc<Matrix<T>> {
        let halo = block.halo().expect("the block has a halo");
        cache.halo = messages.full();
        let (heads, first) = (self.heads(), block.destinations().start);
        cache.halo_destination = Matrix::unspecified(halo.reached().len(), heads);
        let scores = &cache.destination.data()[first * heads..];
        rows::gather(scores, heads, halo.reached(), cache.halo_destination.data_mut());
        let ids = reached_ids(block, halo);
        let attention = self.halo_attention(halo, pass, &ids, &cache.halo, &cache.halo_destination);
        let mut out = Matrix::unspecified(halo.reached().len(), self.projected_width());
        let mut saved = if pass.key.is_some() { Saved::default() } else { Saved::for_evaluation() };
        attention.forward(Some(&mut saved), out.data_mut());
        let mut sums = Arc::unwrap_or_clone(sums);
        let into = (&mut cache.saved, sums.data_mut());
        merge(into, (&saved, out.data()), Some(halo.reached()), heads, self.head_width());
        Arc::new(sums)
    }

    fn finish(
        &self,
        _: &Block,
        aggregated: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Matrix<T> {
        cache.aggregated = aggregated.clone();
        if pass.key.is_none() {
            cache.aggregated = Arc::default();
        }
        let mut out = match self.combine {
            Heads::Concat => Arc::unwrap_or_clone(aggregated),
            Heads::Mean => {
                let mut out = Matrix::unspecified(aggregated.rows(), self.head_width());
                mean_of_heads(aggregated.data(), self.heads(), out.cols(), out.data_mut());
                out
            }
        };
        rows::add_row(out.data_mut(), &self.bias.value);
        out
    }

    fn finish_backward(
        &mut self,
        _: &Block,
        mut grad: Matrix<T>,
        _: &Pass<T>,
        _: &mut GatCache<T>,
    ) -> FinishGrad<T> {
        self.bias.add_bias_grad(&grad);
        if self.combine == Heads::Mean {
            // The gradient is the same for all heads.
            rows::scale(T::of(1.0 / self.heads() as f64), grad.data_mut());
        }
        FinishGrad::new(Some(Arc::new(grad)))
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Matrix<T> {
        let halo = block.halo().expect("the block has a halo");
        let stats = self.row_stats(block, grad, pass, cache);
        let ids = reached_ids(block, halo);
        let attention = self.halo_attention(halo, pass, &ids, &cache.halo, &cache.halo_destination);
        let mut messages_grad = Matrix::unspecified(cache.halo.rows(), cache.halo.cols());
        let reached = (&stats, Some(halo.reached()));
        attention.messages_backward(halo.reached_transpose(), reached, grad.data(), messages_grad.data_mut());
        cache.row_stats = Some(stats);
        (cache.halo, cache.halo_destination) = Default::default();
        messages_grad
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Matrix<T> {
        let stats = match cache.row_stats.take() {
            Some(stats) => stats,
            None => self.row_stats(block, &grad, pass, cache),
        };
        let block = block.without_loops();
        let attention = self.attention(block, pass, &cache.received, &cache.destination);
        let mut messages_grad = Matrix::unspecified(cache.received.rows(), cache.received.cols());
        attention.messages_backward(block.transpose(), (&stats, None), grad.data(), messages_grad.data_mut());
        messages_grad
    }

    fn prepare_backward(
        &mut self,
        mut grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Option<Matrix<T>> {
        let (own, destination_grad) = &cache.destination_grad;
        score_backward(
            cache.prepared.data(),
            self.heads(),
            [&self.source.value, &self.destination.value],
            grad.data_mut(),
            (own.clone(), destination_grad.data()),
            [&mut self.source.grad, &mut self.destination.grad],
        );
        (cache.prepared, cache.received) = Default::default();
        let z_grad = Tall::pitched(grad.data(), grad.rows(), self.projected_width(), grad.cols());
        self.weight.add_grad(cache.input.tall(), z_grad);
        pass.input_gradient.then(|| self.weight.project_back(z_grad))
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.source, &self.destination, &self.bias, &self.weight]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.source, &mut self.destination, &mut self.bias, &mut self.weight]
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        Some(&mut self.bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>(combine: Heads) -> Gat<T> {
        Gat::new(&Scope::new(1), 3, 2, 2, combine, 0.3)
    }

    #[test]
    fn layer_is_sound_for_both_ways_of_combining_heads() {
        for combine in [Heads::Concat, Heads::Mean] {
            check_layer(layer(combine), layer(combine));
        }
    }

    #[test]
    fn values_are_the_formulas() {
        let mut layer = layer::<f64>(Heads::Concat);
        scramble(&mut layer);
        let (graph, x) = (test_graph(), input(0));
        let z = |u: usize, o: usize| -> f64 {
            (0..3).map(|i| layer.weight.value[o * 3 + i] * x.run(u..u + 1)[i]).sum()
        };
        let dot = |a: &Param<f64>, u: usize, h: usize| -> f64 {
            (0..2).map(|c| a.value[h * 2 + c] * z(u, h * 2 + c)).sum()
        };
        let mut want = Matrix::zeros(graph.len(), 4);
        for (v, row) in graph.iter().enumerate() {
            let mut row: Vec<usize> = row.iter().map(|&u| u as usize).filter(|&u| u != v).collect();
            row.push(v);
            for (o, out) in want.run_mut(v..v + 1).iter_mut().enumerate() {
                let exp = |u: usize| {
                    let l = dot(&layer.source, u, o / 2) + dot(&layer.destination, v, o / 2);
                    (if l > 0.0 { l } else { 0.2 * l }).exp()
                };
                let sum: f64 = row.iter().map(|&u| exp(u)).sum();
                *out = row.iter().map(|&u| exp(u) / sum * z(u, o)).sum::<f64>() + layer.bias.value[o];
            }
        }
        assert_close(evaluate(&layer, &x).data(), want.data(), 1e-12);
    }
}
