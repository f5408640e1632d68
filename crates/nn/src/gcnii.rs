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
//! [`Pass::initial`]; the non-linearity is the model's.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::gemm::{Mat, gemm};
use halograph_kernels::rows::add_scaled;

use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};
use crate::propagate::Propagation;

/// A GCNII layer.
#[derive(Debug, Clone)]
pub struct Gcnii<T> {
    weight: Param<T>,
    alpha: f64,
    theta: f64,
    dropout: f64,
}

/// What the backward of a [`Gcnii`] needs.
#[derive(Debug, Default)]
pub struct GcniiCache<T> {
    propagation: Propagation<T>,
    /// `s`, destination rows.
    mixed: Matrix<T>,
}

impl<T: Real> Gcnii<T> {
    /// Layer number `layer`, counted from 1, with strengths `alpha` of the initial residual and `lambda` of the weight.
    pub fn new(scope: &Scope, width: usize, alpha: f64, lambda: f64, layer: usize, dropout: f64) -> Self {
        assert!(layer > 0, "layers count from 1");
        let theta = (lambda / layer as f64 + 1.0).ln();
        Gcnii { weight: scope.glorot("weight1", &[width, width]), alpha, theta, dropout }
    }

    /// `(1 - θ) x + θ x W`, or with the transpose of W.
    fn mix(&self, x: Matrix<T>, weight: Mat<T>) -> Matrix<T> {
        let mut out = x.clone();
        gemm(T::of(self.theta), x.mat(), weight, T::of(1.0 - self.theta), out.data_mut());
        out
    }

    fn weight(&self) -> Mat<'_, T> {
        Mat::new(&self.weight.value, self.weight.shape[0], self.weight.shape[1])
    }
}

impl<T: Real> Layer<T> for Gcnii<T> {
    type Cache = GcniiCache<T>;

    fn message_width(&self) -> usize {
        self.weight.shape[0]
    }

    fn trains_messages(&self) -> bool {
        false
    }

    fn prepare(&self, mut input: Arc<Matrix<T>>, pass: &Pass<T>, _: &mut GcniiCache<T>) -> Arc<Matrix<T>> {
        pass.drop_input(&mut input, self.dropout);
        input
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Matrix<T> {
        cache.propagation = Propagation::symmetric(block);
        cache.propagation.forward(block, &messages)
    }

    fn finish(
        &self,
        block: &Block,
        aggregated: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Matrix<T> {
        let initial = pass.initial.expect("a pass through GCNII carries the initial representation");
        let mut mixed = aggregated.scaled(T::of(1.0 - self.alpha));
        let share = vec![T::of(self.alpha); mixed.rows()];
        add_scaled(initial.run(block.destinations()), initial.cols(), Some(&share), mixed.data_mut());
        cache.mixed = mixed.clone();
        self.mix(mixed, self.weight())
    }

    fn finish_backward(
        &mut self,
        _: &Block,
        grad: Matrix<T>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> FinishGrad<T> {
        gemm(T::of(self.theta), cache.mixed.mat().t(), grad.mat(), T::one(), &mut self.weight.grad);
        let mixed = self.mix(grad, self.weight().t());
        let initial = Some(mixed.clone().scaled(T::of(self.alpha)));
        FinishGrad { aggregated: mixed.scaled(T::of(1.0 - self.alpha)), initial }
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Matrix<T> {
        cache.propagation.backward(block, &grad)
    }

    fn prepare_backward(
        &mut self,
        mut grad: Matrix<T>,
        pass: &Pass<T>,
        _: &mut GcniiCache<T>,
    ) -> Option<Matrix<T>> {
        pass.drop_gradient(&mut grad, self.dropout);
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
        Gcnii::new(&Scope::new(1), 3, 0.1, 0.5, 2, 0.4)
    }

    #[test]
    fn gradients_agree_with_differences() {
        check_gradients(layer());
    }

    #[test]
    fn owners_and_precisions_agree() {
        check_owners(layer());
        assert_same(&outcome(layer::<f32>()), &outcome(layer::<f64>()), 1e-5);
    }

    #[test]
    fn without_a_weight_it_blends_a_gcn_with_the_initial_rows() {
        // θ = 0 leaves s; the vertex without edges sees only itself.
        let layer = Gcnii::<f64>::new(&Scope::new(1), 3, 0.25, 0.0, 1, 0.0);
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

    #[test]
    fn a_first_layer_needs_less() {
        check_as_first(layer());
    }
}
