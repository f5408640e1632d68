//! A dense layer: `out[v] = W x[v] + b`. No edges, so nothing travels.
//!
//! Input rows x `inputs` → rows x `outputs`. Parameters: `weight` (outputs x inputs), `bias` (outputs), as PyTorch's.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::{Real, rows};

use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};

/// A dense layer.
#[derive(Debug, Clone)]
pub struct Linear<T> {
    weight: Param<T>,
    bias: Param<T>,
    dropout: f64,
}

/// What the backward of a [`Linear`] needs.
#[derive(Debug, Default)]
pub struct LinearCache<T> {
    /// Owned rows of the dropped-out input.
    input: Arc<Matrix<T>>,
    /// Gradient of the input, in these owned rows.
    grad: (Range<usize>, Matrix<T>),
}

impl<T: Real> Linear<T> {
    /// A layer drawn from `scope` that drops its input with probability `dropout`.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize, dropout: f64) -> Self {
        Linear {
            weight: scope.kaiming("weight", &[outputs, inputs], inputs),
            bias: scope.kaiming("bias", &[outputs], inputs),
            dropout,
        }
    }
}

impl<T: Real> Layer<T> for Linear<T> {
    type Cache = LinearCache<T>;

    fn message_width(&self) -> usize {
        0
    }

    fn trains_messages(&self) -> bool {
        false
    }

    fn prepare(
        &self,
        mut input: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut LinearCache<T>,
    ) -> Arc<Matrix<T>> {
        pass.drop_input(&mut input, self.dropout);
        cache.input = input;
        Arc::new(Matrix::zeros(cache.input.rows(), 0))
    }

    fn aggregate(&self, block: &Block, _: Arc<Matrix<T>>, _: &Pass<T>, _: &mut LinearCache<T>) -> Matrix<T> {
        Matrix::zeros(block.destinations().len(), 0)
    }

    fn finish(&self, block: &Block, _: Matrix<T>, _: &Pass<T>, cache: &mut LinearCache<T>) -> Matrix<T> {
        let mut out = self.weight.project(cache.input.mat_of(block.destinations()));
        rows::add_row(out.data_mut(), &self.bias.value);
        out
    }

    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut LinearCache<T>,
    ) -> FinishGrad<T> {
        rows::add_column_sums(grad.data(), &mut self.bias.grad);
        self.weight.add_grad(cache.input.mat_of(block.destinations()), &grad);
        if pass.input_gradient {
            cache.grad = (block.destinations(), self.weight.project_back(&grad));
        }
        FinishGrad { aggregated: Matrix::zeros(grad.rows(), 0), initial: None }
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        _: Matrix<T>,
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
        let mut grad = Matrix::zeros(cache.input.rows(), cache.input.cols());
        grad.add_at(cache.grad.0.start, &cache.grad.1);
        pass.drop_gradient(&mut grad, self.dropout);
        Some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.weight, &self.bias]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.weight, &mut self.bias]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>() -> Linear<T> {
        Linear::new(&Scope::new(1), 3, 2, 0.4)
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
    fn a_first_layer_needs_less() {
        check_as_first(layer());
    }
}
