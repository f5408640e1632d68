//! The loss of a set of rows: cross-entropy for one class a node, binary cross-entropy for several; with PyTorch's class
//! weights.

use halograph_kernels::Real;
use halograph_kernels::loss::{bce_with_logits, cross_entropy};
use halograph_nn::Matrix;
use halograph_nn::metrics::Targets;

use crate::data::Rows;

/// Returns the share of `rows` in the mean loss, and its gradient with respect to all logits. `divisor` is the sum of
/// [`Rows::divisor`] over all ranks: that of all rows of the step. `weights`: the weight of each class, if there are any.
pub fn loss<T: Real>(
    logits: &Matrix<T>,
    rows: &Rows,
    weights: Option<&[f64]>,
    divisor: f64,
) -> (f64, Matrix<T>) {
    let (z, width) = (logits.data(), logits.cols());
    let mut grad = Matrix::unspecified(logits.rows(), width);
    let weights = (weights, divisor);
    let loss = match rows.targets() {
        Targets::Single(classes) => cross_entropy(z, width, &rows.rows, classes, weights, grad.data_mut()),
        Targets::Multi(flags) => bce_with_logits(z, width, &rows.rows, flags, weights, grad.data_mut()),
    };
    (loss, grad)
}
