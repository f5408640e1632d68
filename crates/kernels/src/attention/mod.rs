//! Graph attention (GAT): softmax over the entries of each row of a sparse pattern, then a weighted sum, per head.
//!
//! ```text
//! l_e = leaky_relu(s[u] + t[v])      α_e = exp(l_e) / Σ_{row v} exp(l)      out[v] = Σ_e α_e * f_e * z[u]
//! ```
//!
//! | symbol | meaning |
//! |---|---|
//! | e = (v, u) | entry of row v (destination) in column u (source); the self-loop, if any, is the last of its row |
//! | s, t, z | source score, destination score and message, per head |
//! | l_e, α_e | logit and attention weight |
//! | f_e | attention dropout: 0 or 1 / (1 - p); 1 without a mask |
//! | k_e | slope of the leaky ReLU at e |
//! | G, D | gradient of `out`; `D[v] = G[v] · out[v]` |
//!
//! No array per entry is stored: the backward computes α again from the maximum logit and the softmax denominator of
//! each row. Forward and backward are gathers:
//!
//! ```text
//! dz[u] = Σ_v α_e f_e G[v]      ds[u] = Σ_v k_e α_e (f_e G[v] · z[u] - D[v])      dt[v] = G[v] · ∂out[v] / ∂t[v]
//! ```
//!
//! The forward computes `∂out[v] / ∂t[v] = Σ_e k_e α_e f_e z[u] - out[v] Σ_e k_e α_e`.
//!
//! Columns may be split into parts, e.g. own rows and halo rows, with one [`Attention`] each. [`merge()`] combines
//! the forwards of two parts into that over all entries. In the backward, [`Attention::destination_backward`] is
//! called once and [`Attention::messages_backward`] for each part.

mod cost;
mod fast;
mod heads;
mod mask;
mod merge;
mod naive;
mod saved;

use std::any::Any;

use rayon::prelude::*;

use crate::Real;
use crate::buffer::Buffer;
use crate::real::{single, single_mut};
use crate::sparse::Pattern;
use crate::work;
use fast::Config;

pub use heads::{mean_of_heads, score, score_backward};
pub use mask::Mask;
pub use merge::merge;
pub use saved::Saved;

/// Operands of attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a, T> {
    /// Entries, without self-loops.
    pub pattern: Pattern<'a>,
    /// `z`, then `s`, of each column: columns x (`heads * width + heads`).
    pub messages: &'a [T],
    /// `t`: rows x `heads`.
    pub destination: &'a [T],
    /// Self-loops: row r has an entry in column `first + r`. `None`: no self-loops; the output of a row without entries
    /// is 0.
    pub first: Option<usize>,
    /// Number of heads.
    pub heads: usize,
    /// Width of `z` per head.
    pub width: usize,
    /// Slope of the leaky ReLU below 0, from 0 to 1.
    pub slope: f64,
    /// Attention dropout; `None`: no dropout.
    pub mask: Option<Mask<'a>>,
}

/// Values of a row and head for the gradients of messages: t, maximum logit, inverse of the softmax denominator, D.
type HeadStats<T> = [T; 4];

/// Values of all rows for [`Attention::messages_backward`]. The same for all parts of the columns.
#[derive(Debug, Clone)]
pub struct RowStats<T: Real> {
    /// Rows x heads.
    values: Buffer<HeadStats<T>>,
}

/// A matrix whose rows hold `width` columns per head, or `width` columns that are shared by all heads.
#[derive(Clone, Copy)]
struct HeadRows<'a, T> {
    data: &'a [T],
    /// Row stride.
    pitch: usize,
    /// Distance between the columns of consecutive heads; 0 if all heads share them.
    step: usize,
}

impl<'a, T> HeadRows<'a, T> {
    /// Returns a gradient of the output, of rows x `heads * width` or rows x `width`.
    fn gradient(data: &'a [T], rows: usize, heads: usize, width: usize) -> Self {
        let pitch = data.len().checked_div(rows).unwrap_or(0);
        assert!(rows * pitch == data.len() && (rows == 0 || pitch == width || pitch == heads * width));
        HeadRows { data, pitch, step: if pitch == width { 0 } else { width } }
    }

    /// Returns the columns of a row and head.
    fn at(self, row: usize, head: usize, width: usize) -> &'a [T] {
        &self.data[row * self.pitch + head * self.step..][..width]
    }
}

impl<'a, T: Real> Attention<'a, T> {
    /// Returns the length of a message: `z` and `s` of all heads.
    fn pitch(&self) -> usize {
        self.heads * (self.width + 1)
    }

    /// Returns the number of rows.
    fn rows(&self) -> usize {
        self.pattern.rows()
    }

    /// Returns the number of columns.
    fn columns(&self) -> usize {
        self.messages.len() / self.pitch()
    }

    /// Returns `z` of a column and head.
    fn z(&self, column: usize, head: usize) -> &'a [T] {
        &self.messages[column * self.pitch() + head * self.width..][..self.width]
    }

    /// Copies `s` of all columns to a contiguous array of columns x heads. Allocates.
    fn source(&self) -> Buffer<T> {
        let mut source = Buffer::unspecified(self.columns() * self.heads);
        let messages = self.messages.par_chunks_exact(self.pitch());
        let copy = |(to, from): (&mut [T], &[T])| to.copy_from_slice(&from[self.heads * self.width..]);
        source.par_chunks_exact_mut(self.heads).zip(messages).with_min_len(1024).for_each(copy);
        source
    }

    /// Returns the row whose self-loop is in this column.
    fn own_row(&self, column: usize) -> Option<usize> {
        column.checked_sub(self.first?).filter(|&row| row < self.rows())
    }

    /// Returns the dropout factor f of an entry.
    fn factor(&self, row: usize, column: usize, head: usize) -> T {
        match self.mask {
            Some(mask) if mask.entry(row, self.first, column).unit(head as u64) < mask.p => T::zero(),
            Some(mask) => T::of(1.0 / (1.0 - mask.p)),
            None => T::one(),
        }
    }

    /// Panics unless the operands match.
    fn check(&self) {
        assert!(self.heads > 0 && self.width > 0, "number and width of heads");
        // The maximum is taken before the leaky ReLU, which must not change the order of logits.
        assert!((0.0..=1.0).contains(&self.slope), "slope of the leaky ReLU");
        assert_eq!(self.messages.len() % self.pitch(), 0, "length of the messages");
        assert_eq!(self.destination.len(), self.rows() * self.heads, "one score per row and head");
        let inside = |first: usize| first + self.rows() <= self.columns();
        assert!(self.first.is_none_or(inside), "self-loops within the columns");
        let Some(mask) = self.mask else { return };
        assert!(mask.rows.is_none_or(|ids| ids.len() == self.rows()), "one id per row");
        assert!(mask.columns.is_none_or(|ids| ids.len() == self.columns()), "one id per column");
    }

    /// Writes the output (rows x `heads * width`) to `out`, and the values for [`Attention::backward`] or [`merge()`]
    /// to `saved`. Whether the values for a backward are included depends on how `saved` was created.
    pub fn forward(&self, saved: Option<&mut Saved<T>>, out: &mut [T]) {
        let _work = work::begin("attention", || self.cost(saved.as_deref(), out));
        match (self.single(), single_mut(out)) {
            (Some(attention), Some(out)) => {
                let saved = saved.and_then(|saved| (saved as &mut dyn Any).downcast_mut());
                attention.forward_fast(Config::best(), saved, out);
            }
            _ => self.forward_naive(saved, out),
        }
    }

    /// Computes the backward of [`Attention::forward`], whose results were `saved` and `out`.
    ///
    /// `back` is the transposed pattern. `grad` is the gradient of `out`, or one of rows x `width` that is the same for
    /// all heads. Writes the gradients of messages and destination scores to `messages_grad` and `destination_grad`.
    pub fn backward(
        &self,
        back: Pattern,
        forward: (&Saved<T>, &[T]),
        grad: &[T],
        messages_grad: &mut [T],
        destination_grad: &mut [T],
    ) {
        let _work = work::begin("attention backward", || self.backward_cost(back, grad));
        let stats = self.destination_backward(forward, grad, destination_grad);
        self.messages_backward(back, (&stats, None), grad, messages_grad);
    }

    /// Computes the first step of [`Attention::backward`]: writes `destination_grad` and returns the values for the
    /// second step. `saved` and `out` must be those over the entries of all parts. Allocates the result.
    pub fn destination_backward(
        &self,
        (saved, out): (&Saved<T>, &[T]),
        grad: &[T],
        destination_grad: &mut [T],
    ) -> RowStats<T> {
        let _work = work::begin("attention rows backward", || self.destination_backward_cost(grad));
        self.check();
        let (heads, width) = (self.heads, self.width);
        let derivative = &saved.slopes.as_ref().expect("values saved for a backward").derivative;
        assert_eq!(destination_grad.len(), self.destination.len(), "length of the gradient of scores");
        assert_eq!(out.len(), self.rows() * heads * width, "length of the output");
        assert_eq!(derivative.len(), out.len(), "length of the saved derivative");
        let grad = HeadRows::gradient(grad, self.rows(), heads, width);
        let mut stats = Buffer::unspecified(destination_grad.len());
        let rows = stats.par_chunks_exact_mut(heads).zip(destination_grad.par_chunks_exact_mut(heads));
        rows.enumerate().with_min_len(256).for_each(|(r, (stats, destination_grad))| {
            for h in 0..heads {
                let (grad, i) = (grad.at(r, h, width), r * heads + h);
                let columns = i * width..(i + 1) * width;
                let product = heads::dot(grad, &out[columns.clone()]);
                stats[h] = [self.destination[i], saved.max[i], saved.inverse_sum[i], product];
                destination_grad[h] = heads::dot(grad, &derivative[columns]);
            }
        });
        RowStats { values: stats }
    }

    /// Computes the second step of [`Attention::backward`], for the columns of this part: writes `messages_grad`.
    ///
    /// `stats` and `grad` are those of all rows; `rows` maps the rows of this part to them. `None`: the identity.
    pub fn messages_backward(
        &self,
        back: Pattern,
        (stats, rows): (&RowStats<T>, Option<&[u32]>),
        grad: &[T],
        messages_grad: &mut [T],
    ) {
        let all_rows = stats.values.len() / self.heads;
        let _work = work::begin("attention backward", || self.messages_backward_cost(back, grad, all_rows));
        let operands = (self.single(), (stats as &dyn Any).downcast_ref(), single(grad));
        match (operands, single_mut(messages_grad)) {
            ((Some(attention), Some(stats), Some(grad)), Some(to)) => {
                attention.messages_backward_fast(Config::best(), back, (stats, rows), grad, to);
            }
            _ => self.messages_backward_naive(back, (stats, rows), grad, messages_grad),
        }
    }

    /// As [`Attention::forward`], by the reference implementation.
    pub fn forward_naive(&self, saved: Option<&mut Saved<T>>, out: &mut [T]) {
        self.check_output(out);
        naive::forward(self, saved, out);
    }

    /// As [`Attention::backward`], by the reference implementation.
    pub fn backward_naive(
        &self,
        back: Pattern,
        forward: (&Saved<T>, &[T]),
        grad: &[T],
        messages_grad: &mut [T],
        destination_grad: &mut [T],
    ) {
        let stats = self.destination_backward(forward, grad, destination_grad);
        self.messages_backward_naive(back, (&stats, None), grad, messages_grad);
    }

    /// As [`Attention::messages_backward`], by the reference implementation.
    pub fn messages_backward_naive(
        &self,
        back: Pattern,
        (stats, rows): (&RowStats<T>, Option<&[u32]>),
        grad: &[T],
        messages_grad: &mut [T],
    ) {
        let grad = self.checked_gradient(back, (stats, rows), grad, messages_grad);
        naive::backward(self, back, (&stats.values, rows), grad, messages_grad);
    }

    /// Panics unless the operands and the length of the output match.
    fn check_output(&self, out: &[T]) {
        self.check();
        let all = self.rows() * self.heads * self.width;
        assert_eq!(out.len(), all, "length of the output");
    }

    /// Returns the gradient of the output by heads. Panics unless the operands match.
    fn checked_gradient<'g>(
        &self,
        back: Pattern,
        (stats, rows): (&RowStats<T>, Option<&[u32]>),
        grad: &'g [T],
        messages_grad: &[T],
    ) -> HeadRows<'g, T> {
        self.check();
        assert_eq!(back.rows(), self.columns(), "rows of the transposed pattern");
        assert_eq!(messages_grad.len(), self.messages.len(), "length of the gradient of messages");
        let all_rows = stats.values.len() / self.heads;
        assert_eq!(rows.map_or(all_rows, <[u32]>::len), self.rows(), "number of rows");
        HeadRows::gradient(grad, all_rows, self.heads, self.width)
    }

    /// Casts the operands to `f32`, if `T` is `f32`.
    fn single(&self) -> Option<Attention<'a, f32>> {
        let Attention { pattern, messages, destination, first, heads, width, slope, mask } = *self;
        let (messages, destination) = (single(messages)?, single(destination)?);
        Some(Attention { pattern, messages, destination, first, heads, width, slope, mask })
    }
}

impl Attention<'_, f32> {
    fn forward_fast(&self, config: Config, saved: Option<&mut Saved<f32>>, out: &mut [f32]) {
        self.check_output(out);
        fast::forward(config, self, saved, out);
    }

    fn messages_backward_fast(
        &self,
        config: Config,
        back: Pattern,
        (stats, rows): (&RowStats<f32>, Option<&[u32]>),
        grad: &[f32],
        messages_grad: &mut [f32],
    ) {
        let grad = self.checked_gradient(back, (stats, rows), grad, messages_grad);
        fast::backward(config, self, back, (&stats.values, rows), grad, messages_grad);
    }
}

#[cfg(test)]
mod tests;
