//! Attention along a sparse pattern: softmax over the entries of each row, then a sum per head.
//!
//! ```text
//! l_e = leaky_relu(s[u] + t[v])      α_e = exp(l_e) / Σ_{row v} exp(l)      out[v] = Σ_e α_e * f_e * z[u]
//! ```
//!
//! for the entries e = (v, u) of row v and, where rows are columns, one more that is implied, v itself, the last of its
//! row. f_e is 0 or 1 / (1 - p) under a mask, else 1.
//!
//! Nothing is kept by entry: the backward makes α anew from the largest logit and the sum of each row, and everything
//! is a gather. With G the gradient of `out`, `D[v] = G[v] · out[v]` and k_e the slope of the leaky ReLU at e,
//!
//! ```text
//! dz[u] = Σ_v α_e f_e G[v]      ds[u] = Σ_v k_e α_e (f_e G[v] · z[u] - D[v])      dt[v] = G[v] · ∂out[v] / ∂t[v]
//! ```
//!
//! where `∂out[v] / ∂t[v] = Σ_e k_e α_e f_e z[u] - out[v] Σ_e k_e α_e` comes out of the forward. Each head is on its own.
//!
//! Columns may come in parts, one attention each: [`merge()`] makes of the forwards of two that over all entries. Of it
//! [`Attention::destination_backward`] is done once, and [`Attention::messages_backward`] for the columns of each part.

mod cost;
mod exp;
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
use fast::Way;

pub use heads::{mean_of_heads, score, score_backward};
pub use mask::Mask;
pub use merge::merge;
pub use saved::Saved;

/// The operands of attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a, T> {
    /// Entries other than those of rows from themselves, which must not be among them.
    pub pattern: Pattern<'a>,
    /// `z` and then `s` of each column: columns x (`heads * width + heads`).
    pub messages: &'a [T],
    /// `t`: rows x `heads`.
    pub destination: &'a [T],
    /// The column that row 0 is itself; the others follow. `None`: rows are no columns and have no entry but those of
    /// the pattern; the output of a row without any is 0.
    pub first: Option<usize>,
    /// Number of heads.
    pub heads: usize,
    /// Columns of `z` in one head.
    pub width: usize,
    /// Slope of the leaky ReLU below 0, from 0 to 1.
    pub slope: f64,
    /// Absent: nothing is dropped.
    pub mask: Option<Mask<'a>>,
}

/// Of one row and head, what the gradients of messages need: t, largest logit, inverse sum, D.
type Facts<T> = [T; 4];

/// What [`Attention::messages_backward`] needs of every row, whichever columns it is about.
#[derive(Debug, Clone)]
pub struct RowFacts<T: Real> {
    /// Rows x heads.
    facts: Buffer<Facts<T>>,
}

/// Rows of a matrix in which a head may find its columns: those of all heads side by side, or one for all of them.
#[derive(Clone, Copy)]
struct Heads<'a, T> {
    data: &'a [T],
    pitch: usize,
    /// From a head's columns to the next's.
    step: usize,
}

impl<'a, T> Heads<'a, T> {
    /// A gradient of the output.
    fn gradient(data: &'a [T], rows: usize, heads: usize, width: usize) -> Self {
        let pitch = data.len().checked_div(rows).unwrap_or(0);
        assert!(rows * pitch == data.len() && (rows == 0 || pitch == width || pitch == heads * width));
        Heads { data, pitch, step: if pitch == width { 0 } else { width } }
    }

    fn at(self, row: usize, head: usize, width: usize) -> &'a [T] {
        &self.data[row * self.pitch + head * self.step..][..width]
    }
}

impl<'a, T: Real> Attention<'a, T> {
    fn pitch(&self) -> usize {
        self.heads * (self.width + 1)
    }

    fn rows(&self) -> usize {
        self.pattern.rows()
    }

    fn columns(&self) -> usize {
        self.messages.len() / self.pitch()
    }

    /// `z` of a column and head.
    fn z(&self, column: usize, head: usize) -> &'a [T] {
        &self.messages[column * self.pitch() + head * self.width..][..self.width]
    }

    /// `s` of all columns: columns x heads, as compact as they are read.
    fn source(&self) -> Buffer<T> {
        let mut source = Buffer::unspecified(self.columns() * self.heads);
        let messages = self.messages.par_chunks_exact(self.pitch());
        let copy = |(to, from): (&mut [T], &[T])| to.copy_from_slice(&from[self.heads * self.width..]);
        source.par_chunks_exact_mut(self.heads).zip(messages).with_min_len(1024).for_each(copy);
        source
    }

    /// The row that column `column` is itself.
    fn own_row(&self, column: usize) -> Option<usize> {
        column.checked_sub(self.first?).filter(|&row| row < self.rows())
    }

    /// What the entry from `column` to `row` is multiplied by.
    fn factor(&self, row: usize, column: usize, head: usize) -> T {
        match self.mask {
            Some(mask) if mask.entry(row, self.first, column).unit(head as u64) < mask.p => T::zero(),
            Some(mask) => T::of(1.0 / (1.0 - mask.p)),
            None => T::one(),
        }
    }

    fn check(&self) {
        assert!(self.heads > 0 && self.width > 0, "at least one head of one column");
        assert!((0.0..=1.0).contains(&self.slope), "a slope that keeps the order of logits");
        assert_eq!(self.messages.len() % self.pitch(), 0, "whole messages");
        assert_eq!(self.destination.len(), self.rows() * self.heads, "a score for every row and head");
        let inside = |first: usize| first + self.rows() <= self.columns();
        assert!(self.first.is_none_or(inside), "every row is a column as well");
        let Some(mask) = self.mask else { return };
        assert!(mask.rows.is_none_or(|ids| ids.len() == self.rows()), "an id for every row");
        assert!(mask.columns.is_none_or(|ids| ids.len() == self.columns()), "an id for every column");
    }

    /// Fills `out` (rows x `heads * width`), and `saved`, in the form it has, with what [`Attention::backward`] or
    /// [`merge()`] needs, if there will be one.
    pub fn forward(&self, saved: Option<&mut Saved<T>>, out: &mut [T]) {
        let _work = work::begin("attention", || self.cost(saved.as_deref(), out));
        match (self.single(), single_mut(out)) {
            (Some(attention), Some(out)) => {
                let saved = saved.and_then(|saved| (saved as &mut dyn Any).downcast_mut());
                attention.forward_fast(Way::best(), saved, out);
            }
            _ => self.forward_naive(saved, out),
        }
    }

    /// The backward of [`Attention::forward`], which gave `saved` and `out`.
    ///
    /// `back` is the transposed pattern, `grad` the gradient of `out`, or one of rows x `width` that is the same for all
    /// heads. Fills `messages_grad` and `destination_grad`, the gradients of what they are named after.
    pub fn backward(
        &self,
        back: Pattern,
        forward: (&Saved<T>, &[T]),
        grad: &[T],
        messages_grad: &mut [T],
        destination_grad: &mut [T],
    ) {
        let _work = work::begin("attention backward", || self.backward_cost(back, grad));
        let facts = self.destination_backward(forward, grad, destination_grad);
        self.messages_backward(back, (&facts, None), grad, messages_grad);
    }

    /// The first step of [`Attention::backward`]: fills `destination_grad`, and returns what the second needs of the
    /// rows. `saved` and `out` are those over all entries, whatever part of them this attention is about.
    pub fn destination_backward(
        &self,
        (saved, out): (&Saved<T>, &[T]),
        grad: &[T],
        destination_grad: &mut [T],
    ) -> RowFacts<T> {
        let _work = work::begin("attention rows backward", || self.destination_backward_cost(grad));
        self.check();
        let (heads, width) = (self.heads, self.width);
        let derivative = &saved.slopes.as_ref().expect("a forward that was saved for a backward").derivative;
        assert_eq!(destination_grad.len(), self.destination.len(), "a gradient for every score");
        assert_eq!(out.len(), self.rows() * heads * width, "the output of the forward");
        assert_eq!(derivative.len(), out.len(), "a derivative of every output");
        let grad = Heads::gradient(grad, self.rows(), heads, width);
        let mut facts = Buffer::unspecified(destination_grad.len());
        let rows = facts.par_chunks_exact_mut(heads).zip(destination_grad.par_chunks_exact_mut(heads));
        rows.enumerate().with_min_len(256).for_each(|(r, (facts, destination_grad))| {
            for h in 0..heads {
                let (grad, i) = (grad.at(r, h, width), r * heads + h);
                let columns = i * width..(i + 1) * width;
                let product = heads::dot(grad, &out[columns.clone()]);
                facts[h] = [self.destination[i], saved.top[i], saved.inverse[i], product];
                destination_grad[h] = heads::dot(grad, &derivative[columns]);
            }
        });
        RowFacts { facts }
    }

    /// The second step of [`Attention::backward`], for the columns of this attention: fills `messages_grad`.
    ///
    /// Facts and gradient are those of all rows; `rows` names which of them the rows of this attention are, `None`: the
    /// same.
    pub fn messages_backward(
        &self,
        back: Pattern,
        (facts, rows): (&RowFacts<T>, Option<&[u32]>),
        grad: &[T],
        messages_grad: &mut [T],
    ) {
        let all_rows = facts.facts.len() / self.heads;
        let _work = work::begin("attention backward", || self.messages_backward_cost(back, grad, all_rows));
        let operands = (self.single(), (facts as &dyn Any).downcast_ref(), single(grad));
        match (operands, single_mut(messages_grad)) {
            ((Some(attention), Some(facts), Some(grad)), Some(to)) => {
                attention.messages_backward_fast(Way::best(), back, (facts, rows), grad, to);
            }
            _ => self.messages_backward_naive(back, (facts, rows), grad, messages_grad),
        }
    }

    /// [`Attention::forward`] as it stands in the books.
    pub fn forward_naive(&self, saved: Option<&mut Saved<T>>, out: &mut [T]) {
        self.check_output(out);
        naive::forward(self, saved, out);
    }

    /// [`Attention::backward`] as it stands in the books.
    pub fn backward_naive(
        &self,
        back: Pattern,
        forward: (&Saved<T>, &[T]),
        grad: &[T],
        messages_grad: &mut [T],
        destination_grad: &mut [T],
    ) {
        let facts = self.destination_backward(forward, grad, destination_grad);
        self.messages_backward_naive(back, (&facts, None), grad, messages_grad);
    }

    /// [`Attention::messages_backward`] as it stands in the books.
    pub fn messages_backward_naive(
        &self,
        back: Pattern,
        (facts, rows): (&RowFacts<T>, Option<&[u32]>),
        grad: &[T],
        messages_grad: &mut [T],
    ) {
        let grad = self.checked_gradient(back, (facts, rows), grad, messages_grad);
        naive::backward(self, back, (&facts.facts, rows), grad, messages_grad);
    }

    fn check_output(&self, out: &[T]) {
        self.check();
        let all = self.rows() * self.heads * self.width;
        assert_eq!(out.len(), all, "one row of output a row of the pattern");
    }

    fn checked_gradient<'g>(
        &self,
        back: Pattern,
        (facts, rows): (&RowFacts<T>, Option<&[u32]>),
        grad: &'g [T],
        messages_grad: &[T],
    ) -> Heads<'g, T> {
        self.check();
        assert_eq!(back.rows(), self.columns(), "the pattern the other way round");
        assert_eq!(messages_grad.len(), self.messages.len(), "a gradient for every message");
        let all_rows = facts.facts.len() / self.heads;
        assert_eq!(rows.map_or(all_rows, <[u32]>::len), self.rows(), "facts of every row");
        Heads::gradient(grad, all_rows, self.heads, self.width)
    }

    /// The same, if its numbers are `f32`.
    fn single(&self) -> Option<Attention<'a, f32>> {
        let Attention { pattern, messages, destination, first, heads, width, slope, mask } = *self;
        let (messages, destination) = (single(messages)?, single(destination)?);
        Some(Attention { pattern, messages, destination, first, heads, width, slope, mask })
    }
}

impl Attention<'_, f32> {
    fn forward_fast(&self, way: Way, saved: Option<&mut Saved<f32>>, out: &mut [f32]) {
        self.check_output(out);
        fast::forward(way, self, saved, out);
    }

    fn messages_backward_fast(
        &self,
        way: Way,
        back: Pattern,
        (facts, rows): (&RowFacts<f32>, Option<&[u32]>),
        grad: &[f32],
        messages_grad: &mut [f32],
    ) {
        let grad = self.checked_gradient(back, (facts, rows), grad, messages_grad);
        fast::backward(way, self, back, (&facts.facts, rows), grad, messages_grad);
    }
}

#[cfg(test)]
mod tests;
