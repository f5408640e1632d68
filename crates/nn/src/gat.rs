//! Graph attention.
//!
//! Veličković et al., *Graph Attention Networks* (2018); PyG's `GATConv`.
//!
//! ```text
//! z[u] = W x[u], per head h:   l(u, v) = leaky_relu(a_src · z[u] + a_dst · z[v])      α(·, v) = softmax over N(v) ∪ {v}
//! out[v] = Σ_{u in N(v) ∪ {v}} dropout(α(u, v)) z[u], heads side by side or averaged, + b
//! ```
//!
//! Input rows x `inputs` → rows x `heads * width`, or `width` if averaged. Parameters: `att_src`, `att_dst` (1 x heads x
//! width), `bias` (as wide as the output), `lin.weight` (heads * width x inputs). Stored self-loops are not doubled.
//! A message is `z` and the source score of each head, so that a receiver needs no parameter to use it. The attention
//! mask of an edge is a function of the ids of its two ends and the head.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::attention::{
    Scores, attend, attend_backward, edge_softmax, edge_softmax_backward, sum_entries,
};
use halograph_kernels::dropout::factor;
use halograph_kernels::{Real, rows};

use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};

/// Slope of the leaky ReLU below 0.
const SLOPE: f64 = 0.2;

/// What becomes of the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heads {
    /// Side by side: hidden layers.
    Concat,
    /// Averaged: the last layer.
    Mean,
}

/// Probabilities of dropping inputs and attention.
#[derive(Debug, Clone, Copy, Default)]
pub struct GatDropout {
    /// Of an element of the input.
    pub input: f64,
    /// Of an edge, in one head.
    pub attention: f64,
}

/// A graph attention layer.
#[derive(Debug, Clone)]
pub struct Gat<T> {
    source: Param<T>,
    destination: Param<T>,
    bias: Param<T>,
    weight: Param<T>,
    combine: Heads,
    dropout: GatDropout,
}

/// What the backward of a [`Gat`] needs.
#[derive(Debug, Default)]
pub struct GatCache<T> {
    /// Owned rows: the dropped-out input, `z`, and the destination scores.
    input: Arc<Matrix<T>>,
    projected: Matrix<T>,
    destination: Matrix<T>,
    /// Source rows: `z` and the source scores.
    received: (Matrix<T>, Matrix<T>),
    /// `α`, edges with self-loops x heads, nothing dropped.
    alpha: Vec<T>,
    /// Gradient of the destination scores, in these owned rows.
    destination_grad: (Range<usize>, Matrix<T>),
}

impl<T: Real> Gat<T> {
    /// A layer drawn from `scope`; `width` is that of one head.
    pub fn new(
        scope: &Scope,
        inputs: usize,
        heads: usize,
        width: usize,
        combine: Heads,
        dropout: GatDropout,
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

    /// `z` of all heads.
    fn projected_width(&self) -> usize {
        self.weight.shape[0]
    }

    /// Multiplies attention by its mask; the backward is the same. `values`: edges with self-loops x heads.
    fn drop_attention(&self, block: &Block, pass: &Pass<T>, values: &mut [T]) {
        let p = self.dropout.attention;
        let Some(key) = pass.attention_key(p) else { return };
        let (pattern, first) = (block.pattern(), block.destinations().start);
        for r in 0..pattern.rows() {
            let row = key.with(block.id(first + r) as u64);
            for e in pattern.row(r) {
                let edge = row.with(block.id(pattern.columns[e] as usize) as u64);
                let values = &mut values[e * self.heads()..(e + 1) * self.heads()];
                values.iter_mut().enumerate().for_each(|(h, v)| *v *= factor(edge, h as u64, p));
            }
        }
    }

    fn dropped_alpha(&self, block: &Block, pass: &Pass<T>, alpha: &[T]) -> Vec<T> {
        let mut weights = alpha.to_vec();
        self.drop_attention(block, pass, &mut weights);
        weights
    }
}

fn scores<'a, T: Real>(block: &Block, cache: &'a GatCache<T>) -> Scores<'a, T> {
    let destination = cache.destination.run(block.destinations());
    let source = &cache.received.1;
    Scores { source: source.data(), destination, heads: source.cols(), slope: SLOPE }
}

/// `out[v, h] = a[h] · z[v, h]`: rows x heads.
fn score<T: Real>(z: &Matrix<T>, a: &Param<T>) -> Matrix<T> {
    let (heads, width) = (a.shape[1], a.shape[2]);
    let dots = z.data().chunks_exact(width).zip(a.value.chunks_exact(width).cycle());
    let data = dots.map(|(z, a)| z.iter().zip(a).map(|(&z, &a)| z * a).sum()).collect();
    Matrix::new(z.rows(), heads, data)
}

/// The backward of [`score`] for the rows `z` of the projection: adds to the gradients of `a` and `z`.
fn score_backward<T: Real>(z: &[T], a: &mut Param<T>, grad: &[T], z_grad: &mut [T]) {
    let (heads, width) = (a.shape[1], a.shape[2]);
    for (i, &g) in grad.iter().enumerate() {
        let (at, head) = (i * width, i % heads * width);
        for c in 0..width {
            a.grad[head + c] += g * z[at + c];
            z_grad[at + c] += g * a.value[head + c];
        }
    }
}

/// The mean of `heads` heads standing side by side.
fn mean_of_heads<T: Real>(x: &Matrix<T>, heads: usize) -> Matrix<T> {
    let width = x.cols() / heads;
    let mut out = Matrix::zeros(x.rows(), width);
    for r in 0..x.rows() {
        rows::add_column_sums(x.run(r..r + 1), out.run_mut(r..r + 1));
    }
    out.scaled(T::of(1.0 / heads as f64))
}

/// The backward of [`mean_of_heads`].
fn spread_to_heads<T: Real>(grad: Matrix<T>, heads: usize) -> Matrix<T> {
    let grad = grad.scaled(T::of(1.0 / heads as f64));
    let data = (0..grad.rows()).flat_map(|r| grad.run(r..r + 1).repeat(heads)).collect();
    Matrix::new(grad.rows(), grad.cols() * heads, data)
}

impl<T: Real> Layer<T> for Gat<T> {
    type Cache = GatCache<T>;

    fn message_width(&self) -> usize {
        self.projected_width() + self.heads()
    }

    fn trains_messages(&self) -> bool {
        true
    }

    fn prepare(&self, mut input: Arc<Matrix<T>>, pass: &Pass<T>, cache: &mut GatCache<T>) -> Arc<Matrix<T>> {
        pass.drop_input(&mut input, self.dropout.input);
        cache.input = input;
        cache.projected = self.weight.project(cache.input.mat());
        cache.destination = score(&cache.projected, &self.destination);
        Arc::new(cache.projected.beside(&score(&cache.projected, &self.source)))
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Matrix<T> {
        let block = block.with_self_loops();
        cache.received = messages.split_columns(self.projected_width());
        let mut alpha = vec![T::zero(); block.edges() * self.heads()];
        edge_softmax(block.pattern(), scores(block, cache), &mut alpha);
        let weights = self.dropped_alpha(block, pass, &alpha);
        cache.alpha = alpha;
        let mut out = Matrix::zeros(block.destinations().len(), self.projected_width());
        attend(block.pattern(), self.heads(), &weights, cache.received.0.data(), out.data_mut());
        out
    }

    fn finish(&self, _: &Block, aggregated: Matrix<T>, _: &Pass<T>, _: &mut GatCache<T>) -> Matrix<T> {
        let mut out = match self.combine {
            Heads::Concat => aggregated,
            Heads::Mean => mean_of_heads(&aggregated, self.heads()),
        };
        rows::add_row(out.data_mut(), &self.bias.value);
        out
    }

    fn finish_backward(
        &mut self,
        _: &Block,
        grad: Matrix<T>,
        _: &Pass<T>,
        _: &mut GatCache<T>,
    ) -> FinishGrad<T> {
        rows::add_column_sums(grad.data(), &mut self.bias.grad);
        let aggregated = match self.combine {
            Heads::Concat => grad,
            Heads::Mean => spread_to_heads(grad, self.heads()),
        };
        FinishGrad { aggregated, initial: None }
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Matrix<T> {
        let block = block.with_self_loops();
        let heads = self.heads();
        let (forward, back) = (block.pattern(), block.transpose_with_slots());
        let weights = self.dropped_alpha(block, pass, &cache.alpha);
        let mut z_grad = Matrix::zeros(block.sources(), self.projected_width());
        attend(back, heads, &weights, grad.data(), z_grad.data_mut());

        let mut edge_grad = vec![T::zero(); weights.len()];
        attend_backward(forward, heads, cache.received.0.data(), grad.data(), &mut edge_grad);
        self.drop_attention(block, pass, &mut edge_grad);
        edge_softmax_backward(forward, scores(block, cache), &cache.alpha, &mut edge_grad);

        let mut source = Matrix::zeros(block.sources(), heads);
        sum_entries(back, heads, &edge_grad, source.data_mut());
        let mut destination = Matrix::zeros(block.destinations().len(), heads);
        sum_entries(forward, heads, &edge_grad, destination.data_mut());
        cache.destination_grad = (block.destinations(), destination);
        z_grad.beside(&source)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GatCache<T>,
    ) -> Option<Matrix<T>> {
        let (mut z_grad, source) = grad.split_columns(self.projected_width());
        score_backward(cache.projected.data(), &mut self.source, source.data(), z_grad.data_mut());
        let (own, destination) = &cache.destination_grad;
        let z = cache.projected.run(own.clone());
        score_backward(z, &mut self.destination, destination.data(), z_grad.run_mut(own.clone()));
        self.weight.add_grad(cache.input.mat(), &z_grad);
        if !pass.input_gradient {
            return None;
        }
        let mut grad = self.weight.project_back(&z_grad);
        pass.drop_gradient(&mut grad, self.dropout.input);
        Some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.source, &self.destination, &self.bias, &self.weight]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.source, &mut self.destination, &mut self.bias, &mut self.weight]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>(combine: Heads) -> Gat<T> {
        Gat::new(&Scope::new(1), 3, 2, 2, combine, GatDropout { input: 0.4, attention: 0.3 })
    }

    #[test]
    fn gradients_agree_with_differences_for_both_ways_of_combining_heads() {
        check_gradients(layer(Heads::Concat));
        check_gradients(layer(Heads::Mean));
    }

    #[test]
    fn owners_and_precisions_agree() {
        check_owners(layer(Heads::Concat));
        check_owners(layer(Heads::Mean));
        assert_same(&outcome(layer::<f32>(Heads::Mean)), &outcome(layer::<f64>(Heads::Mean)), 1e-5);
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

    #[test]
    fn a_first_layer_needs_less() {
        check_as_first(layer(Heads::Concat));
        check_as_first(layer(Heads::Mean));
    }
}
