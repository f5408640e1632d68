//! The weight of a layer whose aggregation is linear: it may stand on either side of it, where rows are narrower.

use std::sync::Arc;

use halograph_kernels::Real;

use crate::layer::Project;
use crate::matrix::Matrix;
use crate::param::Param;

/// A weight of outputs x inputs, and its side of the aggregation.
///
/// The four steps are those of a layer; each does nothing on the side where the weight is not. `factor`, in the layer's
/// cache, keeps what was multiplied by the weight: the input or the aggregate.
#[derive(Debug, Clone)]
pub(crate) struct Projection<T> {
    pub(crate) weight: Param<T>,
    is_first: bool,
}

impl<T: Real> Projection<T> {
    pub(crate) fn new(weight: Param<T>, project: Project) -> Self {
        let is_first = project.is_first(weight.shape[1], weight.shape[0]);
        Projection { weight, is_first }
    }

    /// Whether the weight acts before the aggregation.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Width of the rows that are aggregated.
    pub(crate) fn message_width(&self) -> usize {
        self.weight.shape[if self.is_first { 0 } else { 1 }]
    }

    /// Input rows to the rows that are aggregated.
    pub(crate) fn prepare(&self, input: Arc<Matrix<T>>, factor: &mut Arc<Matrix<T>>) -> Arc<Matrix<T>> {
        if !self.is_first {
            return input;
        }
        *factor = input;
        Arc::new(self.weight.project(factor.mat()))
    }

    /// Aggregated rows to output rows.
    pub(crate) fn finish(&self, aggregated: Matrix<T>, factor: &mut Arc<Matrix<T>>) -> Matrix<T> {
        if self.is_first {
            return aggregated;
        }
        *factor = Arc::new(aggregated);
        self.weight.project(factor.mat())
    }

    /// The backward of [`Projection::finish`].
    pub(crate) fn finish_backward(&mut self, grad: Matrix<T>, factor: &Matrix<T>) -> Matrix<T> {
        if self.is_first {
            return grad;
        }
        self.weight.add_grad(factor.mat(), &grad);
        self.weight.project_back(&grad)
    }

    /// The backward of [`Projection::prepare`]; the gradient of the input only if it is wanted.
    pub(crate) fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        factor: &Matrix<T>,
        input_gradient: bool,
    ) -> Option<Matrix<T>> {
        if self.is_first {
            self.weight.add_grad(factor.mat(), &grad);
        }
        input_gradient.then(|| if self.is_first { self.weight.project_back(&grad) } else { grad })
    }
}
