//! Attention along a sparse pattern: softmax over the entries of each row, then a sum per head.
//!
//! ```text
//! l_e = leaky_relu(s[u] + t[v])      α_e = exp(l_e) / Σ_{row v} exp(l)      out[v] = Σ_e α_e * f_e * z[u]
//! ```
//!
//! for the entries e = (v, u) of row v and one more that is implied, v itself, the last of its row. f_e is 0 or
//! 1 / (1 - p) under a mask, else 1.
//!
//! Nothing is kept by entry: the backward makes α anew from the largest logit and the sum of each row, and everything
//! is a gather. With G the gradient of `out`, `D[v] = G[v] · out[v]` and k_e the slope of the leaky ReLU at e,
//!
//! ```text
//! dz[u] = Σ_v α_e f_e G[v]      ds[u] = Σ_v k_e α_e (f_e G[v] · z[u] - D[v])      dt[v] = G[v] · ∂out[v] / ∂t[v]
//! ```
//!
//! where `∂out[v] / ∂t[v] = Σ_e k_e α_e f_e z[u] - out[v] Σ_e k_e α_e` comes out of the forward. Each head is on its own.

mod exp;
mod fast;
mod heads;
mod naive;

use std::any::Any;

use rayon::prelude::*;

use crate::Real;
use crate::buffer::Buffer;
use crate::keyed::Key;
use crate::real::{single, single_mut};
use crate::simd::Level;
use crate::sparse::Pattern;
use crate::work::{self, Cost};

pub use heads::{mean_of_heads, score, score_backward};

/// What is dropped: a function of the ids of an entry's two ends and the head.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// Names the mask.
    pub key: Key,
    /// Probability that an entry is dropped, in one head.
    pub p: f64,
    /// Id of each column; `None`: its number.
    pub ids: Option<&'a [u32]>,
}

impl Mask<'_> {
    #[inline]
    fn id(&self, column: usize) -> u64 {
        self.ids.map_or(column as u64, |ids| ids[column] as u64)
    }

    /// The stream of the entry from `column` in the row that is itself column `own`; positions are heads.
    #[inline]
    fn entry(&self, own: usize, column: usize) -> Key {
        self.key.with(self.id(own)).with(self.id(column))
    }

    /// Whether that entry is dropped in `head`.
    fn drops(&self, own: usize, column: usize, head: usize) -> bool {
        self.entry(own, column).unit(head as u64) < self.p
    }
}

/// The operands of attention.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a, T> {
    /// Entries other than those of rows from themselves, which must not be among them.
    pub pattern: Pattern<'a>,
    /// `z` and then `s` of each column: columns x (`heads * width + heads`).
    pub messages: &'a [T],
    /// `t`: rows x `heads`.
    pub destination: &'a [T],
    /// The column that row 0 is itself; the others follow.
    pub first: usize,
    /// Number of heads.
    pub heads: usize,
    /// Columns of `z` in one head.
    pub width: usize,
    /// Slope of the leaky ReLU below 0, from 0 to 1.
    pub slope: f64,
    /// Absent: nothing is dropped.
    pub mask: Option<Mask<'a>>,
}

/// What a backward needs of its forward, beside its output.
#[derive(Debug, Clone, Default)]
pub struct Saved<T: Real> {
    /// Rows x heads: the largest logit, and the inverse of the sum of all exponentials, the largest being 1.
    top: Buffer<T>,
    inverse: Buffer<T>,
    /// Derivative of the output with respect to `t` of its row and head: rows x `heads * width`.
    derivative: Buffer<T>,
}

impl<T: Real> Saved<T> {
    fn new(rows: usize, heads: usize, width: usize) -> Self {
        Saved {
            top: Buffer::unspecified(rows * heads),
            inverse: Buffer::unspecified(rows * heads),
            derivative: Buffer::unspecified(rows * heads * width),
        }
    }
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
        column.checked_sub(self.first).filter(|&row| row < self.rows())
    }

    /// What the entry from `column` to `row` is multiplied by.
    fn factor(&self, row: usize, column: usize, head: usize) -> T {
        match self.mask {
            Some(mask) if mask.drops(self.first + row, column, head) => T::zero(),
            Some(mask) => T::of(1.0 / (1.0 - mask.p)),
            None => T::one(),
        }
    }

    fn check(&self) {
        assert!(self.heads > 0 && self.width > 0, "at least one head of one column");
        assert!((0.0..=1.0).contains(&self.slope), "a slope that keeps the order of logits");
        assert_eq!(self.messages.len() % self.pitch(), 0, "whole messages");
        assert_eq!(self.destination.len(), self.rows() * self.heads, "a score for every row and head");
        assert!(self.first + self.rows() <= self.columns(), "every row is a column as well");
        let ids = self.mask.and_then(|mask| mask.ids);
        assert!(ids.is_none_or(|ids| ids.len() == self.columns()), "an id for every column");
    }

    /// Fills `out` (rows x `heads * width`), and `saved` with what [`Attention::backward`] needs, if there will be one.
    pub fn forward(&self, saved: Option<&mut Saved<T>>, out: &mut [T]) {
        let _work = work::begin("attention", || self.cost(saved.is_some(), out));
        match (self.single(), single_mut(out)) {
            (Some(attention), Some(out)) => {
                let saved = saved.and_then(|saved| (saved as &mut dyn Any).downcast_mut());
                attention.forward_fast(Level::best(), saved, out);
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
        (saved, out): (&Saved<T>, &[T]),
        grad: &[T],
        messages_grad: &mut [T],
        destination_grad: &mut [T],
    ) {
        let _work = work::begin("attention backward", || self.backward_cost(back, grad));
        let operands = (self.single(), (saved as &dyn Any).downcast_ref(), single(out), single(grad));
        match (operands, single_mut(messages_grad), single_mut(destination_grad)) {
            ((Some(attention), Some(saved), Some(out), Some(grad)), Some(to), Some(destination)) => {
                attention.backward_fast(Level::best(), back, (saved, out), grad, to, destination);
            }
            _ => self.backward_naive(back, (saved, out), grad, messages_grad, destination_grad),
        }
    }

    /// What a forward costs: a message for every entry, and one for every row, its own.
    fn cost(&self, is_saved: bool, out: &[T]) -> Cost {
        let row_bytes = self.pitch() * size_of::<T>();
        // Derivative, largest logit and inverse sum.
        let saved = if is_saved { size_of_val(out) + 2 * size_of_val(self.destination) } else { 0 };
        let beside = self.rows() * row_bytes + size_of_val(self.destination) + size_of_val(out) + saved;
        Cost::gather(self.pattern, row_bytes, size_of_val(self.messages), beside)
    }

    /// What a backward costs. For every entry a row of the gradient is read, and four numbers for each head: score,
    /// largest logit, inverse sum, D. Beside it messages are read and their gradients written; before, D and the
    /// gradient of `t` are made from three matrices of the size of the output, or of the gradient.
    fn backward_cost(&self, back: Pattern, grad: &[T]) -> Cost {
        let facts = 4 * self.heads * size_of::<T>();
        let set_bytes = size_of_val(grad) + self.rows() * facts;
        let row_bytes = set_bytes.checked_div(self.rows()).unwrap_or(0);
        let out = self.rows() * self.heads * self.width * size_of::<T>();
        let before = size_of_val(grad) + 2 * out + 2 * size_of_val(self.destination);
        let own = self.rows() * row_bytes;
        Cost::gather(back, row_bytes, set_bytes, own + 2 * size_of_val(self.messages) + before)
    }

    /// [`Attention::forward`] as it stands in the books.
    pub fn forward_naive(&self, saved: Option<&mut Saved<T>>, out: &mut [T]) {
        naive::forward(self, self.checked(saved, out), out);
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
        let grad = self.checked_gradient(back, grad, messages_grad);
        let products = self.destination_backward(forward, grad, destination_grad);
        naive::backward(self, back, forward.0, &products, grad, messages_grad);
    }

    /// Checks the operands and makes room in `saved`.
    fn checked<'s>(&self, mut saved: Option<&'s mut Saved<T>>, out: &[T]) -> Option<&'s mut Saved<T>> {
        self.check();
        assert_eq!(
            out.len(),
            self.rows() * self.heads * self.width,
            "one row of output a row of the pattern"
        );
        if let Some(saved) = &mut saved {
            **saved = Saved::new(self.rows(), self.heads, self.width);
        }
        saved
    }

    fn checked_gradient<'g>(&self, back: Pattern, grad: &'g [T], messages_grad: &[T]) -> Heads<'g, T> {
        self.check();
        assert_eq!(back.rows(), self.columns(), "the pattern the other way round");
        assert_eq!(messages_grad.len(), self.messages.len(), "a gradient for every message");
        Heads::gradient(grad, self.rows(), self.heads, self.width)
    }

    /// Fills the gradient of `t`, and returns D, the product of output and gradient: rows x heads both.
    fn destination_backward(
        &self,
        (saved, out): (&Saved<T>, &[T]),
        grad: Heads<T>,
        destination_grad: &mut [T],
    ) -> Buffer<T> {
        let (heads, width) = (self.heads, self.width);
        assert_eq!(destination_grad.len(), self.destination.len(), "a gradient for every score");
        assert_eq!(out.len(), self.rows() * heads * width, "the output of the forward");
        let mut products = Buffer::unspecified(destination_grad.len());
        let rows = products.par_chunks_exact_mut(heads).zip(destination_grad.par_chunks_exact_mut(heads));
        rows.enumerate().with_min_len(256).for_each(|(r, (products, destination_grad))| {
            for h in 0..heads {
                let (grad, at) = (grad.at(r, h, width), (r * heads + h) * width);
                products[h] = heads::dot(grad, &out[at..at + width]);
                destination_grad[h] = heads::dot(grad, &saved.derivative[at..at + width]);
            }
        });
        products
    }

    /// The same, if its numbers are `f32`.
    fn single(&self) -> Option<Attention<'a, f32>> {
        let Attention { pattern, messages, destination, first, heads, width, slope, mask } = *self;
        let (messages, destination) = (single(messages)?, single(destination)?);
        Some(Attention { pattern, messages, destination, first, heads, width, slope, mask })
    }
}

impl Attention<'_, f32> {
    fn forward_fast(&self, level: Level, saved: Option<&mut Saved<f32>>, out: &mut [f32]) {
        fast::forward(level, self, self.checked(saved, out), out);
    }

    fn backward_fast(
        &self,
        level: Level,
        back: Pattern,
        forward: (&Saved<f32>, &[f32]),
        grad: &[f32],
        messages_grad: &mut [f32],
        destination_grad: &mut [f32],
    ) {
        let grad = self.checked_gradient(back, grad, messages_grad);
        let products = self.destination_backward(forward, grad, destination_grad);
        fast::backward(level, self, back, forward.0, &products, grad, messages_grad);
    }
}

#[cfg(test)]
mod tests;
