//! The weight of a layer whose aggregation is linear: it may stand on either side of it, where rows are narrower.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_kernels::gemm::Start;
use halograph_kernels::rows::add_row;

use crate::input::Input;
use crate::layer::Project;
use crate::matrix::Matrix;
use crate::param::Param;

/// A weight of outputs x inputs, and its side of the aggregation.
///
/// The steps are those of a layer; each does nothing on the side where the weight is not. `factor`, in the layer's
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
    pub(crate) fn prepare(&self, input: Input<T>, factor: &mut Input<T>) -> Input<T> {
        if !self.is_first {
            return input;
        }
        *factor = input;
        self.weight.project(factor.tall(), Start::Zero).into()
    }

    /// The first `rows` aggregated rows to output rows, `bias` included.
    pub(crate) fn finish(
        &self,
        aggregated: Arc<Matrix<T>>,
        rows: usize,
        bias: &[T],
        factor: &mut Input<T>,
    ) -> Matrix<T> {
        if self.is_first {
            let mut out = Arc::unwrap_or_clone(aggregated);
            add_row(out.data_mut(), bias);
            return out;
        }
        *factor = aggregated.into();
        self.weight.project(factor.tall_of(0..rows), Start::Row(bias))
    }

    /// The gradient of the aggregate from that of the output, if somebody below it wants one: the weight, or the input.
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

    /// The gradient of a weight that acts after the aggregation, from that of the output. Gives back the memory of
    /// `factor`.
    pub(crate) fn weight_backward(&mut self, grad: &Matrix<T>, factor: &mut Input<T>) {
        if !self.is_first {
            let factor = std::mem::take(factor);
            self.weight.add_grad(factor.tall_of(0..grad.rows()), grad.tall());
        }
    }

    /// The backward of [`Projection::prepare`]; the gradient of the input only if it is wanted.
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
