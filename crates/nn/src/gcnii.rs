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
use halograph_kernels::gemm::{Mat, Start, add_outer, multiply};
use halograph_kernels::rows::add_scaled;

use crate::input::Input;
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
}

/// What the backward of a [`Gcnii`] needs.
#[derive(Debug, Default)]
pub struct GcniiCache<T: Real> {
    propagation: Propagation<T>,
    /// `s`, destination rows.
    mixed: Matrix<T>,
}

impl<T: Real> Gcnii<T> {
    /// Layer number `layer`, counted from 1, with strengths `alpha` of the initial residual and `lambda` of the weight.
    pub fn new(scope: &Scope, width: usize, alpha: f64, lambda: f64, layer: usize) -> Self {
        assert!(layer > 0, "layers count from 1");
        let theta = (lambda / layer as f64 + 1.0).ln();
        Gcnii { weight: scope.glorot("weight1", &[width, width]), alpha, theta }
    }

    /// `(1 - θ) I + θ W`: one product instead of a product and a sum.
    fn blended_weight(&self) -> Vec<T> {
        let theta = T::of(self.theta);
        let mut blend: Vec<T> = self.weight.value.iter().map(|&w| theta * w).collect();
        let width = self.weight.shape[0];
        blend.iter_mut().step_by(width + 1).for_each(|w| *w += T::one() - theta);
        blend
    }
}

impl<T: Real> Layer<T> for Gcnii<T> {
    type Cache = GcniiCache<T>;

    fn message_width(&self) -> usize {
        self.weight.shape[0]
    }

    fn aggregates_input(&self) -> bool {
        false
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, _: &mut GcniiCache<T>) -> Input<T> {
        input
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Arc<Matrix<T>> {
        cache.propagation = Propagation::symmetric(block, T::of(1.0 - self.alpha));
        Arc::new(cache.propagation.forward(block, &messages))
    }

    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Arc<Matrix<T>> {
        cache.propagation.add_halo(block, &halo, sums)
    }

    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Matrix<T> {
        let initial = pass.initial.expect("a pass through GCNII carries the initial representation");
        cache.mixed = Arc::unwrap_or_clone(aggregated);
        let width = cache.mixed.cols();
        add_scaled(T::of(self.alpha), initial.run(block.destinations()), cache.mixed.data_mut());
        let mut out = Matrix::unspecified(cache.mixed.rows(), width);
        let blend = self.blended_weight();
        multiply(
            T::one(),
            cache.mixed.tall(),
            Mat::new(&blend, width, width),
            Start::Zero,
            out.data_mut(),
            width,
        );
        out
    }

    fn finish_backward(
        &mut self,
        _: &Block,
        grad: Matrix<T>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> FinishGrad<T> {
        add_outer(T::of(self.theta), cache.mixed.tall(), grad.tall(), &mut self.weight.grad);
        let (blend, width) = (self.blended_weight(), grad.cols());
        // The mixed rows are no longer needed: their gradient takes their place.
        let mut mixed = std::mem::take(&mut cache.mixed);
        let blend = Mat::new(&blend, width, width).t();
        multiply(T::one(), grad.tall(), blend, Start::Zero, mixed.data_mut(), width);
        FinishGrad { aggregated: Some(Arc::new(mixed)), initial: Some(T::of(self.alpha)) }
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Matrix<T> {
        cache.propagation.halo_backward(block, grad)
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut GcniiCache<T>,
    ) -> Matrix<T> {
        cache.propagation.backward(block, &grad)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        _: &mut GcniiCache<T>,
    ) -> Option<Matrix<T>> {
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

    #[test]
    fn a_first_layer_needs_less() {
        check_as_first(layer());
    }
}
