//! What attention costs.

use super::{Attention, Saved};
use crate::Real;
use crate::sparse::Pattern;
use crate::work::Cost;

impl<T: Real> Attention<'_, T> {
    /// Entries that are not stored.
    fn own_entries(&self) -> usize {
        self.first.map_or(0, |_| self.rows())
    }

    /// Of a forward: a message for every entry.
    pub(super) fn cost(&self, saved: Option<&Saved<T>>, out: &[T]) -> Cost {
        let row_bytes = self.pitch() * size_of::<T>();
        let scores = size_of_val(self.destination);
        let saved = match saved {
            None => 0,
            // Largest logit and inverse sum.
            Some(Saved { slopes: None, .. }) => 2 * scores,
            // Mean slope and derivative as well.
            Some(_) => 3 * scores + size_of_val(out),
        };
        let beside = self.own_entries() * row_bytes + scores + size_of_val(out) + saved;
        Cost::gather(self.pattern, row_bytes, size_of_val(self.messages), beside)
    }

    /// Of a backward over all entries.
    pub(super) fn backward_cost(&self, back: Pattern, grad: &[T]) -> Cost {
        let mut cost = self.messages_backward_cost(back, grad, self.rows());
        cost.bytes += self.destination_backward_cost(grad).bytes;
        cost
    }

    /// Of D and the gradient of `t`: they are made from three matrices of the size of the output, or of the gradient.
    pub(super) fn destination_backward_cost(&self, grad: &[T]) -> Cost {
        let out = self.rows() * self.heads * self.width * size_of::<T>();
        Cost::stream(size_of_val(grad) + 2 * out, 2 * size_of_val(self.destination))
    }

    /// Of the gradients of messages. For every entry a row of the gradient, which has `grad_rows`, is read, and four
    /// numbers for each head: score, largest logit, inverse sum, D. Beside it messages are read and their gradients
    /// written.
    pub(super) fn messages_backward_cost(&self, back: Pattern, grad: &[T], grad_rows: usize) -> Cost {
        let grad_bytes = size_of_val(grad).checked_div(grad_rows).unwrap_or(0);
        let row_bytes = grad_bytes + 4 * self.heads * size_of::<T>();
        let beside = self.own_entries() * row_bytes + 2 * size_of_val(self.messages);
        Cost::gather(back, row_bytes, self.rows() * row_bytes, beside)
    }
}
