//! Values that a forward saves for the backward.

use std::ops::Range;

use crate::Real;
use crate::buffer::Buffer;

/// Values of a forward, beside the output, that the backward and [`merge`](super::merge()) need.
///
/// For a row without entries, the maximum logit is -∞ and all other values are 0.
#[derive(Debug, Clone)]
pub struct Saved<T: Real> {
    /// Maximum logit m: rows x heads.
    pub(super) max: Buffer<T>,
    /// Inverse of the softmax denominator `Σ exp(l - m)`: rows x heads.
    pub(super) inverse_sum: Buffer<T>,
    /// Values that only a backward needs.
    pub(super) slopes: Option<Slopes<T>>,
}

/// Derivatives with respect to the destination score `t`.
#[derive(Debug, Clone, Default)]
pub(super) struct Slopes<T: Real> {
    /// Mean slope of the leaky ReLU, κ = `Σ_e k_e α_e`: rows x heads.
    pub mean: Buffer<T>,
    /// Derivative of the output with respect to `t`: rows x `heads * width`.
    pub derivative: Buffer<T>,
}

impl<T: Real> Default for Saved<T> {
    /// Returns empty values for a forward with a backward.
    fn default() -> Self {
        Saved { slopes: Some(Slopes::default()), ..Self::for_evaluation() }
    }
}

impl<T: Real> Saved<T> {
    /// Returns empty values for a forward without a backward: only those that merging needs.
    pub fn for_evaluation() -> Self {
        Saved { max: Buffer::default(), inverse_sum: Buffer::default(), slopes: None }
    }

    /// Allocates the values of `rows` rows, with unspecified content.
    pub(super) fn allocate(&mut self, rows: usize, heads: usize, width: usize) {
        let by_head = || Buffer::unspecified(rows * heads);
        let derivative = || Buffer::unspecified(rows * heads * width);
        let slopes = self.slopes.is_some().then(|| Slopes { mean: by_head(), derivative: derivative() });
        *self = Saved { max: by_head(), inverse_sum: by_head(), slopes };
    }

    /// Returns all rows.
    pub(super) fn rows(&mut self) -> SavedRows<'_, T> {
        let Saved { max, inverse_sum, slopes } = self;
        let slopes = slopes.as_mut().map(|Slopes { mean, derivative }| SlopeRows { mean, derivative });
        SavedRows { max, inverse_sum, slopes }
    }

    /// Splits all rows by task.
    pub(super) fn split_by_task(
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
    pub max: &'a mut [T],
    pub inverse_sum: &'a mut [T],
    pub slopes: Option<SlopeRows<'a, T>>,
}

/// Rows of a [`Slopes`].
pub(super) struct SlopeRows<'a, T> {
    pub mean: &'a mut [T],
    pub derivative: &'a mut [T],
}

impl<'a, T: Real> SavedRows<'a, T> {
    /// Returns one of the rows.
    #[inline(always)]
    pub(super) fn row(&mut self, r: usize, heads: usize, width: usize) -> SavedRows<'_, T> {
        let (scores, all) = (r * heads..(r + 1) * heads, r * heads * width..(r + 1) * heads * width);
        SavedRows {
            max: &mut self.max[scores.clone()],
            inverse_sum: &mut self.inverse_sum[scores.clone()],
            slopes: self.slopes.as_mut().map(|slopes| SlopeRows {
                mean: &mut slopes.mean[scores],
                derivative: &mut slopes.derivative[all],
            }),
        }
    }

    /// Splits the rows before `r` from the others.
    pub(super) fn split_at(self, r: usize, heads: usize, width: usize) -> (Self, Self) {
        let (max, other_max) = self.max.split_at_mut(r * heads);
        let (inverse_sum, other_inverse_sum) = self.inverse_sum.split_at_mut(r * heads);
        let split_slopes = |slopes: SlopeRows<'a, T>| {
            let (mean, other_mean) = slopes.mean.split_at_mut(r * heads);
            let (derivative, other) = slopes.derivative.split_at_mut(r * heads * width);
            (SlopeRows { mean, derivative }, SlopeRows { mean: other_mean, derivative: other })
        };
        let (slopes, other_slopes) = self.slopes.map(split_slopes).unzip();
        let other = SavedRows { max: other_max, inverse_sum: other_inverse_sum, slopes: other_slopes };
        (SavedRows { max, inverse_sum, slopes }, other)
    }

    /// Sets the values of rows without entries.
    pub(super) fn clear(&mut self) {
        self.max.fill(T::neg_infinity());
        self.inverse_sum.fill(T::zero());
        if let Some(slopes) = &mut self.slopes {
            slopes.mean.fill(T::zero());
            slopes.derivative.fill(T::zero());
        }
    }
}
