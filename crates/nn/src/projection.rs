//! The weight and bias of a layer whose aggregation is linear. The weight may act before or after the aggregation: where
//! rows are narrower.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_kernels::gemm::{Start, Tall, multiply_two};
use halograph_kernels::rows::add_row;

use crate::input::Input;
use crate::layer::Project;
use crate::matrix::Matrix;
use crate::param::Param;

/// A weight of outputs x inputs on one side of the aggregation, and a bias that is added after it.
///
/// The methods are the steps of a layer. Each does nothing with the weight on the side where the weight does not act.
/// `factor`, which the layer keeps for the backward, is what was multiplied by the weight: the input or the sums.
#[derive(Debug, Clone)]
pub(crate) struct Projection<T> {
    pub(crate) weight: Param<T>,
    pub(crate) bias: Param<T>,
    is_first: bool,
}

impl<T: Real> Projection<T> {
    pub(crate) fn new(weight: Param<T>, bias: Param<T>, project: Project) -> Self {
        let is_first = project.is_first(weight.shape[1], weight.shape[0]);
        Projection { weight, bias, is_first }
    }

    /// Returns whether input rows are aggregated as they are.
    pub(crate) fn aggregates_input(&self) -> bool {
        !self.is_first
    }

    /// Returns the width of the rows that are aggregated.
    pub(crate) fn message_width(&self) -> usize {
        self.weight.shape[if self.is_first { 0 } else { 1 }]
    }

    /// Returns the width of output rows.
    pub(crate) fn output_width(&self) -> usize {
        self.weight.shape[0]
    }

    /// Returns the rows that are aggregated.
    pub(crate) fn prepare(&self, input: Input<T>, factor: &mut Input<T>) -> Input<T> {
        if !self.is_first {
            return input;
        }
        *factor = input;
        self.weight.project(factor.tall(), Start::Zero).into()
    }

    /// Returns the output rows of the first `rows` sums.
    pub(crate) fn finish(&self, sums: Arc<Matrix<T>>, rows: usize, factor: &mut Input<T>) -> Matrix<T> {
        if self.is_first {
            let mut out = Arc::unwrap_or_clone(sums);
            add_row(out.data_mut(), &self.bias.value);
            return out;
        }
        *factor = sums.into();
        self.weight.project(factor.tall_of(0..rows), Start::Row(&self.bias.value))
    }

    /// As [`Projection::finish`], and adds the projection of `own`, one row per output row, by another weight.
    pub(crate) fn finish_with_own(
        &self,
        sums: Arc<Matrix<T>>,
        (own, weight): (Tall<T>, &Param<T>),
        factor: &mut Input<T>,
    ) -> Matrix<T> {
        if self.is_first {
            let mut out = self.finish(sums, own.rows(), factor);
            weight.project_into(own, Start::Kept, &mut out);
            return out;
        }
        *factor = sums.into();
        let mut out = Matrix::unspecified(own.rows(), self.weight.shape[0]);
        let factors = [(factor.tall_of(0..own.rows()), self.weight.mat().t()), (own, weight.mat().t())];
        let pitch = out.cols();
        multiply_two(factors, Start::Row(&self.bias.value), out.data_mut(), pitch);
        out
    }

    /// Adds to the gradients of the bias and of a weight that acts after the aggregation, given the gradient of the
    /// output. Frees `factor` in the latter case.
    pub(crate) fn weight_backward(&mut self, grad: &Matrix<T>, factor: &mut Input<T>) {
        self.bias.add_bias_grad(grad);
        if !self.is_first {
            let factor = std::mem::take(factor);
            self.weight.add_grad(factor.tall_of(0..grad.rows()), grad.tall());
        }
    }

    /// Returns the gradient of the sums, given the gradient of the output, if anything below the aggregation needs one:
    /// the weight, or the input.
    pub(crate) fn finish_backward(
        &self,
        grad: &Arc<Matrix<T>>,
        input_gradient: bool,
    ) -> Option<Arc<Matrix<T>>> {
        if self.is_first {
            return Some(grad.clone());
        }
        input_gradient.then(|| Arc::new(self.weight.project_back(grad.tall())))
    }

    /// Returns the gradient of the input, if needed, given the gradient of the rows that were aggregated. Adds to the
    /// gradient of a weight that acts before the aggregation.
    pub(crate) fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        factor: &Input<T>,
        input_gradient: bool,
    ) -> Option<Matrix<T>> {
        if self.is_first {
            self.weight.add_grad(factor.tall(), grad.tall());
        }
        input_gradient.then(|| if self.is_first { self.weight.project_back(grad.tall()) } else { grad })
    }
}
