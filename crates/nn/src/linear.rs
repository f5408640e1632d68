//! A dense layer: `out[v] = W x[v] + b`. It reads no edges, so nothing is exchanged.
//!
//! Input rows x `inputs` → rows x `outputs`. Parameters: `weight` (outputs x inputs), `bias` (outputs), as PyTorch's.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::{Block, Halo};
use halograph_kernels::Real;
use halograph_kernels::gemm::Start;

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};

/// A dense layer.
#[derive(Debug, Clone)]
pub struct Linear<T> {
    weight: Param<T>,
    bias: Param<T>,
}

/// Values that the backward of a [`Linear`] needs from the forward.
#[derive(Debug, Default)]
pub struct LinearCache<T: Real> {
    /// Owned rows of the input.
    input: Input<T>,
    /// Gradient of the output, in these owned rows.
    grad: (Range<usize>, Matrix<T>),
}

impl<T: Real> Linear<T> {
    /// Creates a layer with parameters drawn from `scope`.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize) -> Self {
        Linear {
            weight: scope.kaiming("weight", &[outputs, inputs], inputs),
            bias: scope.kaiming("bias", &[outputs], inputs),
        }
    }
}

impl<T: Real> Layer<T> for Linear<T> {
    type Cache = LinearCache<T>;

    fn message_width(&self) -> usize {
        0
    }

    fn output_width(&self) -> usize {
        self.weight.shape[0]
    }

    fn aggregates_input(&self) -> bool {
        false
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, cache: &mut LinearCache<T>) -> Input<T> {
        cache.input = input;
        Matrix::zeros(cache.input.rows(), 0).into()
    }

    fn aggregate(&self, block: &Block, _: Input<T>, _: &Pass<T>, _: &mut LinearCache<T>) -> Arc<Matrix<T>> {
        Arc::new(Matrix::zeros(block.destinations().len(), 0))
    }

    fn add_halo(
        &self,
        _: &Block,
        _: Input<T>,
        sums: Arc<Matrix<T>>,
        _: &Pass<T>,
        _: &mut LinearCache<T>,
    ) -> Arc<Matrix<T>> {
        sums
    }

    fn finish(&self, block: &Block, _: Arc<Matrix<T>>, _: &Pass<T>, cache: &mut LinearCache<T>) -> Matrix<T> {
        self.weight.project(cache.input.tall_of(block.destinations()), Start::Row(&self.bias.value))
    }

    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut LinearCache<T>,
    ) -> FinishGrad<T> {
        self.bias.add_bias_grad(&grad);
        self.weight.add_grad(cache.input.tall_of(block.destinations()), grad.tall());
        let aggregated = pass.input_gradient.then(|| Arc::new(Matrix::zeros(grad.rows(), 0)));
        cache.grad = (block.destinations(), grad);
        FinishGrad::new(aggregated)
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        _: &Matrix<T>,
        _: &Pass<T>,
        _: &mut LinearCache<T>,
    ) -> Matrix<T> {
        Matrix::zeros(block.halo().map_or(0, Halo::sources), 0)
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        _: Arc<Matrix<T>>,
        _: &Pass<T>,
        _: &mut LinearCache<T>,
    ) -> Matrix<T> {
        Matrix::zeros(block.sources(), 0)
    }

    fn prepare_backward(
        &mut self,
        _: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut LinearCache<T>,
    ) -> Option<Matrix<T>> {
        if !pass.input_gradient {
            return None;
        }
        let (own, grad) = std::mem::take(&mut cache.grad);
        if own.len() == cache.input.rows() {
            return Some(self.weight.project_back(grad.tall()));
        }
        let mut below = Matrix::zeros(cache.input.rows(), cache.input.cols());
        self.weight.add_back(grad.tall(), own, &mut below);
        Some(below)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.weight, &self.bias]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.weight, &mut self.bias]
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        Some(&mut self.bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>() -> Linear<T> {
        Linear::new(&Scope::new(1), 3, 2)
    }

    #[test]
    fn layer_is_sound() {
        check_layer(layer(), layer());
    }
}
