//! Attention as it stands in the books: the oracle of the fast one, and what double precision uses.

use rayon::prelude::*;

use super::{Attention, Heads, Saved};
use crate::Real;
use crate::activation::Activation;
use crate::sparse::Pattern;

impl<T: Real> Attention<'_, T> {
    fn logit(&self, row: usize, column: usize, head: usize) -> T {
        let source = self.messages[column * self.pitch() + self.heads * self.width + head];
        Activation::LeakyRelu(self.slope).at(source + self.destination[row * self.heads + head])
    }

    fn slope_at(&self, logit: T) -> T {
        Activation::LeakyRelu(self.slope).slope_at(logit)
    }

    /// The columns of a row, itself last.
    fn columns_of(&self, row: usize) -> impl Iterator<Item = usize> + Clone {
        let entries = &self.pattern.columns[self.pattern.row(row)];
        entries.iter().map(|&c| c as usize).chain([self.first + row])
    }
}

/// What a forward gives for one row and head.
struct Row<'a, T> {
    out: &'a mut [T],
    derivative: &'a mut [T],
    top: T,
    inverse: T,
}

impl<T: Real> Row<'_, T> {
    fn attend(&mut self, at: &Attention<T>, r: usize, h: usize) {
        let logits = at.columns_of(r).map(|u| at.logit(r, u, h));
        self.top = logits.clone().fold(T::neg_infinity(), T::max);
        let sum: T = logits.map(|l| (l - self.top).exp()).sum();
        self.inverse = T::one() / sum;
        self.out.fill(T::zero());
        self.derivative.fill(T::zero());
        let mut slopes = T::zero();
        for u in at.columns_of(r) {
            let logit = at.logit(r, u, h);
            let alpha = (logit - self.top).exp() * self.inverse;
            let (weight, slope) = (alpha * at.factor(r, u, h), at.slope_at(logit));
            slopes += slope * alpha;
            for (c, &z) in at.z(u, h).iter().enumerate() {
                self.out[c] += weight * z;
                self.derivative[c] += slope * weight * z;
            }
        }
        self.derivative.iter_mut().zip(&*self.out).for_each(|(d, &o)| *d -= slopes * o);
    }
}

pub(super) fn forward<T: Real>(at: &Attention<T>, saved: Option<&mut Saved<T>>, out: &mut [T]) {
    let (heads, width) = (at.heads, at.width);
    let mut unwanted = Saved::default();
    let saved = saved.unwrap_or_else(|| {
        unwanted = Saved::new(at.rows(), at.heads, at.width);
        &mut unwanted
    });
    let rows = out.par_chunks_exact_mut(width).zip(saved.derivative.par_chunks_exact_mut(width));
    let sums = saved.top.par_iter_mut().zip(&mut saved.inverse[..]);
    rows.zip(sums).enumerate().for_each(|(i, ((out, derivative), (top, inverse)))| {
        let mut row = Row { out, derivative, top: *top, inverse: *inverse };
        row.attend(at, i / heads, i % heads);
        (*top, *inverse) = (row.top, row.inverse);
    });
}

/// `products`: D, rows x heads.
pub(super) fn backward<T: Real>(
    at: &Attention<T>,
    back: Pattern,
    saved: &Saved<T>,
    products: &[T],
    grad: Heads<T>,
    messages_grad: &mut [T],
) {
    let (heads, width) = (at.heads, at.width);
    messages_grad.par_chunks_exact_mut(at.pitch()).enumerate().for_each(|(u, out)| {
        out.fill(T::zero());
        let (z_grad, source_grad) = out.split_at_mut(heads * width);
        let entries = back.columns[back.row(u)].iter().map(|&v| v as usize);
        for v in entries.chain(at.own_row(u)) {
            for h in 0..heads {
                let logit = at.logit(v, u, h);
                let alpha = (logit - saved.top[v * heads + h]).exp() * saved.inverse[v * heads + h];
                let (factor, grad) = (at.factor(v, u, h), grad.at(v, h, width));
                let product: T = grad.iter().zip(at.z(u, h)).map(|(&g, &z)| g * z).sum();
                source_grad[h] += at.slope_at(logit) * alpha * (factor * product - products[v * heads + h]);
                let z_grad = &mut z_grad[h * width..(h + 1) * width];
                z_grad.iter_mut().zip(grad).for_each(|(z, &g)| *z += alpha * factor * g);
            }
        }
    });
}
