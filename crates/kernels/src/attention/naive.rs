//! Reference implementation of attention, for any precision. Tests compare the fast one with it.

use rayon::prelude::*;

use super::saved::{Saved, Slopes};
use super::{Attention, HeadRows, HeadStats};
use crate::Real;
use crate::activation::Activation;
use crate::buffer::Buffer;
use crate::sparse::Pattern;

impl<T: Real> Attention<'_, T> {
    /// Returns the logit of an entry in `column` of a row with score `t`.
    fn logit(&self, t: T, column: usize, head: usize) -> T {
        let source = self.messages[column * self.pitch() + self.heads * self.width + head];
        Activation::LeakyRelu(self.slope).at(source + t)
    }

    /// Returns the slope of the leaky ReLU.
    fn slope_at(&self, logit: T) -> T {
        Activation::LeakyRelu(self.slope).derivative_at_output(logit)
    }

    /// Returns the columns of a row's entries, that of the self-loop last.
    fn columns_of(&self, row: usize) -> impl Iterator<Item = usize> + Clone {
        let entries = &self.pattern.columns[self.pattern.row(row)];
        entries.iter().map(|&c| c as usize).chain(self.first.map(|first| first + row))
    }
}

/// Results of a forward for one row and head.
struct Row<'a, T> {
    out: &'a mut [T],
    derivative: &'a mut [T],
    max: &'a mut T,
    inverse_sum: &'a mut T,
    mean: &'a mut T,
}

impl<T: Real> Row<'_, T> {
    /// Computes the results for row `r` and head `h`.
    fn attend(self, at: &Attention<T>, r: usize, h: usize) {
        let t = at.destination[r * at.heads + h];
        let logits = at.columns_of(r).map(|u| at.logit(t, u, h));
        let max = logits.clone().fold(T::neg_infinity(), T::max);
        let sum: T = logits.map(|l| (l - max).exp()).sum();
        let inverse_sum = if sum == T::zero() { T::zero() } else { T::one() / sum };
        self.out.fill(T::zero());
        self.derivative.fill(T::zero());
        let mut mean = T::zero();
        for u in at.columns_of(r) {
            let logit = at.logit(t, u, h);
            let alpha = (logit - max).exp() * inverse_sum;
            let (weight, slope) = (alpha * at.factor(r, u, h), at.slope_at(logit));
            mean += slope * alpha;
            for (c, &z) in at.z(u, h).iter().enumerate() {
                self.out[c] += weight * z;
                self.derivative[c] += slope * weight * z;
            }
        }
        self.derivative.iter_mut().zip(&*self.out).for_each(|(d, &o)| *d -= mean * o);
        (*self.max, *self.inverse_sum, *self.mean) = (max, inverse_sum, mean);
    }
}

/// Implements [`Attention::forward`].
pub(super) fn forward<T: Real>(at: &Attention<T>, saved: Option<&mut Saved<T>>, out: &mut [T]) {
    let (heads, width) = (at.heads, at.width);
    let [mut max, mut inverse_sum, mut mean] = [(); 3].map(|()| Buffer::<T>::unspecified(at.rows() * heads));
    let mut derivative = Buffer::<T>::unspecified(out.len());
    let rows = out.par_chunks_exact_mut(width).zip(derivative.par_chunks_exact_mut(width));
    let sums = max.par_iter_mut().zip(&mut inverse_sum[..]).zip(&mut mean[..]);
    rows.zip(sums).enumerate().for_each(|(i, ((out, derivative), ((max, inverse_sum), mean)))| {
        Row { out, derivative, max, inverse_sum, mean }.attend(at, i / heads, i % heads);
    });
    if let Some(saved) = saved {
        let slopes = saved.slopes.is_some().then_some(Slopes { mean, derivative });
        *saved = Saved { max, inverse_sum, slopes };
    }
}

/// Implements [`Attention::messages_backward`].
pub(super) fn backward<T: Real>(
    at: &Attention<T>,
    back: Pattern,
    (stats, rows): (&[HeadStats<T>], Option<&[u32]>),
    grad: HeadRows<T>,
    messages_grad: &mut [T],
) {
    let (heads, width) = (at.heads, at.width);
    messages_grad.par_chunks_exact_mut(at.pitch()).enumerate().for_each(|(u, out)| {
        out.fill(T::zero());
        let (z_grad, source_grad) = out.split_at_mut(heads * width);
        let entries = back.columns[back.row(u)].iter().map(|&v| v as usize);
        for v in entries.chain(at.own_row(u)) {
            let row = rows.map_or(v, |rows| rows[v] as usize);
            for h in 0..heads {
                let [t, max, inverse_sum, d] = stats[row * heads + h];
                let logit = at.logit(t, u, h);
                let alpha = (logit - max).exp() * inverse_sum;
                let (factor, grad) = (at.factor(v, u, h), grad.at(row, h, width));
                let product: T = grad.iter().zip(at.z(u, h)).map(|(&g, &z)| g * z).sum();
                source_grad[h] += at.slope_at(logit) * alpha * (factor * product - d);
                let z_grad = &mut z_grad[h * width..(h + 1) * width];
                z_grad.iter_mut().zip(grad).for_each(|(z, &g)| *z += alpha * factor * g);
            }
        }
    });
}
