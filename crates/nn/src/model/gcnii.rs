//! GCNII: graph convolution with initial residual and identity mapping.
//!
//! Chen, Wei, Huang, Ding, Li, *Simple and Deep Graph Convolutional Networks* (2020); PyG's `GCN2Conv`, shared weights.
//!
//! ```text
//! s[v] = (1 - α) Σ_{u in N(v) ∪ {v}} x[u] / √(d̂(u) d̂(v)) + α x₀[v]
//! out  = (1 - θ) s + θ s W                                  θ = ln(λ / l + 1) in layer l, counted from 1
//! ```
//!
//! Rows x `width` → rows x `width`. Parameter: `weight1` (width x width), not transposed. x₀ comes in
//! [`Pass::initial`]; the activation belongs to the stage.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::gemm::{Mat, Start, add_outer, multiply};
use halograph_kernels::rows::add_scaled;

use super::build::Builder;
use super::stage::{Norm, Stage};
use crate::convolution::Convolution;
use crate::input::Input;
use crate::layer::{FinishGrad, Pass};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};
use crate::propagation::Propagation;

/// Returns the stages of a GCNII model: `lins.0` and activation, `convs.i` and activation, `lins.1`.
pub(super) fn stages<T: Real>(builder: &Builder) -> Vec<Stage<T>> {
    let spec = builder.spec;
    let scope = |list: &str, index: usize| builder.root.child(list).child(index);
    let first = builder.dense(&scope("lins", 0), builder.inputs, spec.hidden);
    let last = builder.dense(&scope("lins", 1), spec.hidden, builder.outputs);
    let middle = (0..spec.layers).map(|l| {
        let layer = Gcnii::new(&scope("convs", l), spec.hidden, spec.alpha, spec.theta, l + 1);
        let norm = Norm::new(spec.norm, &scope("norms", l), spec.hidden);
        Stage::new(layer).with_dropout(spec.dropout).with_norm(norm).with_activation(spec.activation.into())
    });
    let first = first.with_dropout(spec.input_dropout).with_activation(spec.activation.into()).into_initial();
    std::iter::once(first).chain(middle).chain([last.with_dropout(spec.dropout)]).collect()
}

/// A GCNII layer.
#[derive(Debug, Clone)]
pub struct Gcnii<T> {
    weight: Param<T>,
    alpha: f64,
    theta: f64,
}

impl<T: Real> Gcnii<T> {
    /// Creates layer number `layer`, counted from 1, with strengths `alpha` of the initial residual and `lambda` of the
    /// weight.
    pub fn new(scope: &Scope, width: usize, alpha: f64, lambda: f64, layer: usize) -> Self {
        assert!(layer > 0, "layers count from 1");
        let theta = (lambda / layer as f64 + 1.0).ln();
        Gcnii { weight: scope.glorot("weight1", &[width, width]), alpha, theta }
    }

    /// Returns `(1 - θ) I + θ W`, so that one product replaces a product and a sum.
    fn blended_weight(&self) -> Vec<T> {
        let theta = T::of(self.theta);
        let mut blend: Vec<T> = self.weight.value.iter().map(|&w| theta * w).collect();
        let width = self.weight.shape[0];
        blend.iter_mut().step_by(width + 1).for_each(|w| *w += T::one() - theta);
        blend
    }
}

impl<T: Real> Convolution for Gcnii<T> {
    type Scalar = T;
    /// `s`, destination rows.
    type Saved = Matrix<T>;

    fn message_width(&self) -> usize {
        self.weight.shape[0]
    }

    fn output_width(&self) -> usize {
        self.weight.shape[0]
    }

    fn aggregates_input(&self) -> bool {
        true
    }

    fn propagation(&self, block: &Block) -> Propagation<T> {
        Propagation::symmetric(block, T::of(1.0 - self.alpha))
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, _: &mut Matrix<T>) -> Input<T> {
        input
    }

    fn finish(
        &self,
        sums: Arc<Matrix<T>>,
        own: Range<usize>,
        pass: &Pass<T>,
        mixed: &mut Matrix<T>,
    ) -> Matrix<T> {
        let initial = pass.initial.expect("a pass through GCNII carries the initial representation");
        *mixed = Arc::unwrap_or_clone(sums);
        add_scaled(T::of(self.alpha), initial.run(own), mixed.data_mut());
        let (blend, width) = (self.blended_weight(), mixed.cols());
        let mut out = Matrix::unspecified(mixed.rows(), width);
        let blend = Mat::new(&blend, width, width);
        multiply(T::one(), mixed.tall(), blend, Start::Zero, out.data_mut(), width);
        out
    }

    fn weight_backward(&mut self, _: &Matrix<T>, _: Range<usize>, _: &mut Matrix<T>) {
        // `finish_backward` adds to the gradient of the weight, because it then overwrites `s`.
    }

    fn finish_backward(
        &mut self,
        grad: &Arc<Matrix<T>>,
        _: Range<usize>,
        _: &Pass<T>,
        mixed: &mut Matrix<T>,
    ) -> FinishGrad<T> {
        add_outer(T::of(self.theta), mixed.tall(), grad.tall(), &mut self.weight.grad);
        let (blend, width) = (self.blended_weight(), grad.cols());
        let mut mixed_grad = std::mem::take(mixed);
        let blend = Mat::new(&blend, width, width).t();
        multiply(T::one(), grad.tall(), blend, Start::Zero, mixed_grad.data_mut(), width);
        FinishGrad { aggregated: Some(Arc::new(mixed_grad)), initial: Some(T::of(self.alpha)) }
    }

    fn prepare_backward(&mut self, grad: Matrix<T>, pass: &Pass<T>, _: &mut Matrix<T>) -> Option<Matrix<T>> {
        pass.input_gradient.then_some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.weight]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.weight]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>() -> Gcnii<T> {
        Gcnii::new(&Scope::new(1), 3, 0.1, 0.5, 2)
    }

    #[test]
    fn layer_is_sound() {
        check_layer(layer(), layer());
    }

    #[test]
    fn without_a_weight_it_blends_a_gcn_with_the_initial_rows() {
        // θ = 0 leaves s; the vertex without edges sees only itself.
        let layer = Gcnii::<f64>::new(&Scope::new(1), 3, 0.25, 0.0, 1);
        let (x, initial) = (input(0), input::<f64>(1));
        let alone = 5;
        let want: Vec<f64> = (0..3)
            .map(|c| 0.75 * x.run(alone..alone + 1)[c] + 0.25 * initial.run(alone..alone + 1)[c])
            .collect();
        assert_close(evaluate(&layer, &x).run(alone..alone + 1), &want, 1e-15);
    }

    #[test]
    fn theta_falls_with_depth() {
        assert_eq!(layer::<f64>().theta, 1.25f64.ln());
    }
}
