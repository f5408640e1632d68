//! What a forward keeps of its rows.

use std::ops::Range;

use crate::Real;
use crate::buffer::Buffer;

/// What a backward needs of its forward, and [`merge`](super::merge()) of both parts, beside the output.
///
/// Of a row without entries the largest logit is -∞ and all else is 0.
#[derive(Debug, Clone)]
pub struct Saved<T: Real> {
    /// Rows x heads: the largest logit, and the inverse of the sum of all exponentials, the largest being 1.
    pub(super) top: Buffer<T>,
    pub(super) inverse: Buffer<T>,
    /// What only a backward needs.
    pub(super) slopes: Option<Slopes<T>>,
}

/// How the output of each row and head follows its score `t`.
#[derive(Debug, Clone, Default)]
pub(super) struct Slopes<T: Real> {
    /// κ, the mean slope of the leaky ReLU under the weights, `Σ_e k_e α_e`: rows x heads.
    pub mean: Buffer<T>,
    /// Derivative of the output with respect to `t` of its row and head: rows x `heads * width`.
    pub derivative: Buffer<T>,
}

impl<T: Real> Default for Saved<T> {
    /// To be filled by a forward that has a backward.
    fn default() -> Self {
        Saved { slopes: Some(Slopes::default()), ..Self::for_evaluation() }
    }
}

impl<T: Real> Saved<T> {
    /// To be filled by a forward that has no backward: as much as merging needs.
    pub fn for_evaluation() -> Self {
        Saved { top: Buffer::default(), inverse: Buffer::default(), slopes: None }
    }

    /// Room for so many rows, of the same form.
    pub(super) fn make_room(&mut self, rows: usize, heads: usize, width: usize) {
        let by_head = || Buffer::unspecified(rows * heads);
        let derivative = || Buffer::unspecified(rows * heads * width);
        let slopes = self.slopes.is_some().then(|| Slopes { mean: by_head(), derivative: derivative() });
        *self = Saved { top: by_head(), inverse: by_head(), slopes };
    }

    /// All rows.
    pub(super) fn rows(&mut self) -> SavedRows<'_, T> {
        let Saved { top, inverse, slopes } = self;
        let slopes = slopes.as_mut().map(|Slopes { mean, derivative }| SlopeRows { mean, derivative });
        SavedRows { top, inverse, slopes }
    }

    /// The rows that belong to each task.
    pub(super) fn of_tasks(
        &mut self,
        tasks: &[Range<usize>],
        heads: usize,
        width: usize,
    ) -> Vec<SavedRows<'_, T>> {
        let (mut parts, mut rest) = (Vec::with_capacity(tasks.len()), self.rows());
        for rows in tasks {
            let (part, others) = rest.split_at(rows.len(), heads, width);
            parts.push(part);
            rest = others;
        }
        parts
    }
}

/// Rows of a [`Saved`].
pub(super) struct SavedRows<'a, T> {
    pub top: &'a mut [T],
    pub inverse: &'a mut [T],
    pub slopes: Option<SlopeRows<'a, T>>,
}

/// Rows of a [`Slopes`].
pub(super) struct SlopeRows<'a, T> {
    pub mean: &'a mut [T],
    pub derivative: &'a mut [T],
}

impl<'a, T: Real> SavedRows<'a, T> {
    /// One of the rows.
    #[inline(always)]
    pub(super) fn row(&mut self, r: usize, heads: usize, width: usize) -> SavedRows<'_, T> {
        let (scores, all) = (r * heads..(r + 1) * heads, r * heads * width..(r + 1) * heads * width);
        SavedRows {
            top: &mut self.top[scores.clone()],
            inverse: &mut self.inverse[scores.clone()],
            slopes: self.slopes.as_mut().map(|slopes| SlopeRows {
                mean: &mut slopes.mean[scores],
                derivative: &mut slopes.derivative[all],
            }),
        }
    }

    /// The rows before `r`, and the others.
    pub(super) fn split_at(self, r: usize, heads: usize, width: usize) -> (Self, Self) {
        let (top, other_top) = self.top.split_at_mut(r * heads);
        let (inverse, other_inverse) = self.inverse.split_at_mut(r * heads);
        let cut_slopes = |slopes: SlopeRows<'a, T>| {
            let (mean, other_mean) = slopes.mean.split_at_mut(r * heads);
            let (derivative, other) = slopes.derivative.split_at_mut(r * heads * width);
            (SlopeRows { mean, derivative }, SlopeRows { mean: other_mean, derivative: other })
        };
        let (slopes, other_slopes) = self.slopes.map(cut_slopes).unzip();
        let other = SavedRows { top: other_top, inverse: other_inverse, slopes: other_slopes };
        (SavedRows { top, inverse, slopes }, other)
    }

    /// What is known of rows without entries.
    pub(super) fn clear(&mut self) {
        self.top.fill(T::neg_infinity());
        self.inverse.fill(T::zero());
        if let Some(slopes) = &mut self.slopes {
            slopes.mean.fill(T::zero());
            slopes.derivative.fill(T::zero());
        }
    }
}
