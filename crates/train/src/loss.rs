//! The loss of a set of rows: cross-entropy for one class a node, binary cross-entropy for several.

use halograph_kernels::Real;
use halograph_kernels::loss::{bce_with_logits, cross_entropy};
use halograph_nn::Matrix;
use halograph_nn::metrics::Targets;

use crate::data::Rows;

/// Returns the share of `rows` in the mean loss over `count` rows, and its gradient with respect to all logits. `count` is
/// the number of rows of all ranks.
pub fn loss<T: Real>(logits: &Matrix<T>, rows: &Rows, count: u64) -> (f64, Matrix<T>) {
    let (z, width) = (logits.data(), logits.cols());
    let mut grad = Matrix::unspecified(logits.rows(), width);
    let loss = match rows.targets() {
        Targets::Single(classes) => cross_entropy(z, width, &rows.rows, classes, count, grad.data_mut()),
        Targets::Multi(flags) => {
            bce_with_logits(z, width, &rows.rows, flags, count * width as u64, grad.data_mut())
        }
    };
    (loss, grad)
}
