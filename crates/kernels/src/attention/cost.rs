//! Costs of attention.

use super::{Attention, Saved};
use crate::Real;
use crate::sparse::Pattern;
use crate::work::Cost;

impl<T: Real> Attention<'_, T> {
    /// Returns the number of self-loops.
    fn self_loops(&self) -> usize {
        self.first.map_or(0, |_| self.rows())
    }

    /// Returns the cost of a forward, which reads one message per entry.
    pub(super) fn cost(&self, saved: Option<&Saved<T>>, out: &[T]) -> Cost {
        let row_bytes = self.pitch() * size_of::<T>();
        let scores = size_of_val(self.destination);
        let saved = match saved {
            None => 0,
            // Maximum logit and inverse sum.
            Some(Saved { slopes: None, .. }) => 2 * scores,
            // Mean slope and derivative as well.
            Some(_) => 3 * scores + size_of_val(out),
        };
        let other = self.self_loops() * row_bytes + scores + size_of_val(out) + saved;
        Cost::gather(self.pattern, row_bytes, size_of_val(self.messages), other)
    }

    /// Returns the cost of a backward over all entries.
    pub(super) fn backward_cost(&self, back: Pattern, grad: &[T]) -> Cost {
        let mut cost = self.messages_backward_cost(back, grad, self.rows());
        cost.bytes += self.destination_backward_cost(grad).bytes;
        cost
    }

    /// Returns the cost of D and the gradient of `t`, which are computed from the gradient, the output and its
    /// derivative.
    pub(super) fn destination_backward_cost(&self, grad: &[T]) -> Cost {
        let out = self.rows() * self.heads * self.width * size_of::<T>();
        Cost::stream(size_of_val(grad) + 2 * out, 2 * size_of_val(self.destination))
    }

    /// Returns the cost of the gradients of messages. Per entry, a row of the gradient (of `grad_rows` rows) and the
    /// four [`HeadStats`](super::HeadStats) per head are read. Messages are read and their gradients written.
    pub(super) fn messages_backward_cost(&self, back: Pattern, grad: &[T], grad_rows: usize) -> Cost {
        let grad_bytes = size_of_val(grad).checked_div(grad_rows).unwrap_or(0);
        let row_bytes = grad_bytes + 4 * self.heads * size_of::<T>();
        let other = self.self_loops() * row_bytes + 2 * size_of_val(self.messages);
        Cost::gather(back, row_bytes, self.rows() * row_bytes, other)
    }
}
