//! Batch normalisation: normalises every column to mean 0 and variance 1, then applies an affine map.
//!
//! Ioffe, Szegedy, *Batch Normalization* (2015): `y = (x - mean) / sqrt(var + eps) * w + b`, with mean and biased
//! variance over all rows. Rows may be distributed over ranks, so sums over rows are separate steps: the caller merges
//! the [`Moments`] of all ranks before [`normalize`], and all-reduces [`GradSums`] before [`backward`].

use rayon::prelude::*;

use crate::Real;
pub use crate::layer_norm::{EPS, affine, affine_backward};
use crate::rows::{add_column_sums, sum_over_rows};
use crate::work::{self, Cost};

/// Momentum of the running statistics (weight of the new batch), as in PyTorch.
pub const MOMENTUM: f64 = 0.1;

/// Row count, and mean and sum of squared deviations of every column.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments<T> {
    /// Number of rows.
    pub count: u64,
    /// Mean of each column.
    pub mean: Vec<T>,
    /// Sum of squared deviations from the mean.
    pub squares: Vec<T>,
}

impl<T: Real> Moments<T> {
    /// Computes the moments of `x` (rows x `width`) in two passes. Allocates.
    pub fn of(x: &[T], width: usize) -> Self {
        // Two passes: the deviations need the mean.
        let _work = work::begin("batch moments", || Cost::stream(2 * size_of_val(x), 0));
        let (mut mean, mut squares) = (vec![T::zero(); width], vec![T::zero(); width]);
        let count = x.len().checked_div(width).unwrap_or(0);
        if count > 0 {
            add_column_sums(x, &mut mean);
            mean.iter_mut().for_each(|m| *m /= T::of(count as f64));
            sum_over_rows(count, &mut squares, |run, squares| {
                for i in run.start * width..run.end * width {
                    let deviation = x[i] - mean[i % width];
                    squares[i % width] += deviation * deviation;
                }
            });
        }
        Moments { count: count as u64, mean, squares }
    }

    /// Merges the moments of other rows into these (Chan, Golub, LeVeque 1979).
    pub fn merge(&mut self, other: &Self) {
        let count = self.count + other.count;
        if other.count == 0 {
            return;
        }
        let share = T::of(other.count as f64 / count as f64);
        let cross = share * T::of(self.count as f64);
        for c in 0..self.mean.len() {
            let delta = other.mean[c] - self.mean[c];
            self.mean[c] += share * delta;
            self.squares[c] += other.squares[c] + cross * delta * delta;
        }
        self.count = count;
    }

    /// Returns `1 / sqrt(var + eps)` of each column, with the biased variance. Allocates.
    pub fn scales(&self) -> Vec<T> {
        let n = T::of(self.count.max(1) as f64);
        self.squares.iter().map(|&s| (s / n + T::of(EPS)).sqrt().recip()).collect()
    }

    /// Updates running statistics with [`MOMENTUM`] and the unbiased variance. Does nothing for fewer than two rows,
    /// whose unbiased variance is undefined.
    pub fn update_running(&self, mean: &mut [T], variance: &mut [T]) {
        if self.count < 2 {
            return;
        }
        let (keep, take) = (T::of(1.0 - MOMENTUM), T::of(MOMENTUM));
        let n = T::of((self.count - 1) as f64);
        for c in 0..mean.len() {
            mean[c] = keep * mean[c] + take * self.mean[c];
            variance[c] = keep * variance[c] + take * (self.squares[c] / n);
        }
    }
}

/// Computes `x̂ = (x - mean) * scale` in place.
pub fn normalize<T: Real>(x: &mut [T], mean: &[T], scale: &[T]) {
    let width = mean.len();
    if width == 0 {
        return;
    }
    let _work = work::begin("batch norm", || Cost::stream(size_of_val(x), size_of_val(x)));
    x.par_chunks_mut(width).for_each(|x| {
        for (c, x) in x.iter_mut().enumerate() {
            *x = (*x - mean[c]) * scale[c];
        }
    });
}

/// Sums over the rows of all ranks for the backward through batch statistics. [`affine_backward`] computes them for the
/// rows of one rank.
#[derive(Debug, Clone, Copy)]
pub struct GradSums<'a, T> {
    /// Number of rows.
    pub count: u64,
    /// `Σ g * x̂` of each column: the gradient of the weight.
    pub weight_grad: &'a [T],
    /// `Σ g` of each column: the gradient of the bias.
    pub bias_grad: &'a [T],
}

/// Computes the backward with respect to `x`: turns the gradient of the output into that of the input, in place.
///
/// `dx = w * scale * (g - Σg / n - x̂ * Σ(g x̂) / n)`; without `sums` (statistics are constants) `dx = w * scale * g`.
pub fn backward<T: Real>(normal: &[T], scale: &[T], weight: &[T], sums: Option<GradSums<T>>, grad: &mut [T]) {
    let width = weight.len();
    if width == 0 {
        return;
    }
    let size = size_of_val(normal);
    let _work = work::begin("batch norm backward", || Cost::stream(2 * size, size));
    grad.par_chunks_mut(width).zip(normal.par_chunks(width)).for_each(|(grad, normal)| {
        for (c, g) in grad.iter_mut().enumerate() {
            let shared = sums.map_or(T::zero(), |s| {
                (s.bias_grad[c] + normal[c] * s.weight_grad[c]) / T::of(s.count.max(1) as f64)
            });
            *g = weight[c] * scale[c] * (*g - shared);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_gradient, dot, noise};

    const WIDTH: usize = 3;
    const ROWS: usize = 7;

    fn forward(x: &[f64], weight: &[f64]) -> Vec<f64> {
        let moments = Moments::of(x, WIDTH);
        let mut normal = x.to_vec();
        normalize(&mut normal, &moments.mean, &moments.scales());
        let mut out = vec![0.0; x.len()];
        affine(&normal, weight, &[0.0; WIDTH], &mut out);
        out
    }

    #[test]
    fn merged_moments_match_those_of_all_rows() {
        let x = noise::<f64>(1, ROWS * WIDTH);
        let whole = Moments::of(&x, WIDTH);
        for cut in 0..=ROWS {
            let mut parts = Moments::of(&x[..cut * WIDTH], WIDTH);
            parts.merge(&Moments::of(&x[cut * WIDTH..], WIDTH));
            assert_eq!(parts.count, whole.count);
            assert_close(&parts.mean, &whole.mean, 1e-14);
            assert_close(&parts.squares, &whole.squares, 1e-14);
        }
    }

    #[test]
    fn statistics_match_closed_forms() {
        let moments = Moments::of(&[1.0f64, 2.0, 6.0], 1);
        assert_close(&moments.mean, &[3.0], 1e-15);
        assert_close(&moments.scales(), &[1.0 / (14.0 / 3.0 + EPS).sqrt()], 1e-15);
        let (mut mean, mut variance) = (vec![0.0], vec![1.0]);
        moments.update_running(&mut mean, &mut variance);
        assert_close(&mean, &[0.3], 1e-15);
        assert_close(&variance, &[0.9 + 0.1 * 7.0], 1e-15);
    }

    #[test]
    fn gradients_match_finite_differences() {
        let (x, g) = (noise::<f64>(1, ROWS * WIDTH), noise::<f64>(2, ROWS * WIDTH));
        let weight = noise::<f64>(3, WIDTH);
        let moments = Moments::of(&x, WIDTH);
        let scale = moments.scales();
        let mut normal = x.clone();
        normalize(&mut normal, &moments.mean, &scale);
        let (mut weight_grad, mut bias_grad) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);
        affine_backward(&normal, &g, &mut weight_grad, &mut bias_grad);
        let mut dx = g.clone();
        let sums = GradSums { count: moments.count, weight_grad: &weight_grad, bias_grad: &bias_grad };
        backward(&normal, &scale, &weight, Some(sums), &mut dx);
        assert_gradient(&x, &dx, |x| dot(&g, &forward(x, &weight)));
        assert_gradient(&weight, &weight_grad, |weight| dot(&g, &forward(&x, weight)));
    }
}
