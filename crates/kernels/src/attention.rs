//! Attention along a sparse pattern: softmax over the entries of each row, then a sum per head.
//!
//! Entry values are matrices of entries x heads, kept at the pattern's slots; rows of features are heads x width.
//!
//! ```text
//! l_e = leaky_relu(s[c_e] + t[r])        α_e = exp(l_e) / Σ_{row r} exp(l)        out[r] = Σ_e α_e * x[c_e]
//! ```

use rayon::prelude::*;

use crate::Real;
use crate::activation::Activation;
use crate::sparse::Pattern;

/// Scores from which logits are made.
#[derive(Debug, Clone, Copy)]
pub struct Scores<'a, T> {
    /// `s`: columns x heads.
    pub source: &'a [T],
    /// `t`: rows x heads.
    pub destination: &'a [T],
    /// Number of heads.
    pub heads: usize,
    /// Slope of the leaky ReLU below 0.
    pub slope: f64,
}

impl<T: Real> Scores<'_, T> {
    fn logit(&self, row: usize, column: usize, head: usize) -> T {
        let sum = self.source[column * self.heads + head] + self.destination[row * self.heads + head];
        Activation::LeakyRelu(self.slope).at(sum)
    }
}

/// The entries of each row of `values` (entries x `heads`), mutably. `pattern` keeps values in entry order.
fn by_row<'a, T>(pattern: Pattern, heads: usize, mut values: &'a mut [T]) -> Vec<&'a mut [T]> {
    assert!(pattern.slots.is_none(), "values are written in the order of the entries");
    assert_eq!(values.len(), pattern.columns.len() * heads, "a value for every entry and head");
    (0..pattern.rows())
        .map(|r| {
            let (row, rest) = std::mem::take(&mut values).split_at_mut(pattern.row(r).len() * heads);
            values = rest;
            row
        })
        .collect()
}

/// Fills `alpha` (entries x heads) with the softmax of the logits over each row.
pub fn edge_softmax<T: Real>(pattern: Pattern, scores: Scores<T>, alpha: &mut [T]) {
    let heads = scores.heads;
    by_row(pattern, heads, alpha).into_par_iter().enumerate().for_each(|(r, alpha)| {
        for h in 0..heads {
            let logits = pattern.row(r).map(|e| scores.logit(r, pattern.columns[e] as usize, h));
            let top = logits.clone().fold(T::neg_infinity(), T::max);
            let mut sum = T::zero();
            for (i, l) in (h..alpha.len()).step_by(heads).zip(logits) {
                alpha[i] = (l - top).exp();
                sum += alpha[i];
            }
            (h..alpha.len()).step_by(heads).for_each(|i| alpha[i] /= sum);
        }
    });
}

/// The backward of [`edge_softmax`] as far as the sums `s[c] + t[r]`: turns `grad`, the gradient of `alpha`, into it.
///
/// `dl_e = α_e * (dα_e - Σ_row α dα)`, times the slope of the leaky ReLU. The gradients of `s` and `t` are its
/// sums over columns and rows ([`sum_entries`]).
pub fn edge_softmax_backward<T: Real>(pattern: Pattern, scores: Scores<T>, alpha: &[T], grad: &mut [T]) {
    let heads = scores.heads;
    by_row(pattern, heads, grad).into_par_iter().enumerate().for_each(|(r, grad)| {
        let first = pattern.row(r).start;
        let alpha = &alpha[first * heads..pattern.row(r).end * heads];
        for h in 0..heads {
            let mean: T = (h..grad.len()).step_by(heads).map(|i| alpha[i] * grad[i]).sum();
            for i in (h..grad.len()).step_by(heads) {
                let logit = scores.logit(r, pattern.columns[first + i / heads] as usize, h);
                let slope = Activation::LeakyRelu(scores.slope).slope_at(logit);
                grad[i] = alpha[i] * (grad[i] - mean) * slope;
            }
        }
    });
}

/// `out[r] = Σ_{e in row r} values[e]` (rows x heads). Over the transposed pattern: sums by column.
pub fn sum_entries<T: Real>(pattern: Pattern, heads: usize, values: &[T], out: &mut [T]) {
    assert_eq!(out.len(), pattern.rows() * heads, "one sum a row and head");
    out.par_chunks_mut(heads).enumerate().for_each(|(r, out)| {
        out.fill(T::zero());
        for e in pattern.row(r) {
            let at = pattern.slot(e) * heads;
            out.iter_mut().zip(&values[at..at + heads]).for_each(|(o, &v)| *o += v);
        }
    });
}

/// `out[r, h] = Σ_{e in row r} weights[e, h] * x[c_e, h]`, where rows of `x` and `out` are heads x width.
///
/// Its backward with respect to `x` is the same sum over the transposed pattern.
pub fn attend<T: Real>(pattern: Pattern, heads: usize, weights: &[T], x: &[T], out: &mut [T]) {
    let stride = out.len().checked_div(pattern.rows()).unwrap_or(0);
    assert_eq!(out.len(), pattern.rows() * stride, "one row of output a row of the pattern");
    if stride == 0 {
        return;
    }
    let width = stride / heads;
    out.par_chunks_mut(stride).enumerate().for_each(|(r, out)| {
        out.fill(T::zero());
        for e in pattern.row(r) {
            let (from, at) = (pattern.columns[e] as usize * stride, pattern.slot(e) * heads);
            for (i, (o, &x)) in out.iter_mut().zip(&x[from..from + stride]).enumerate() {
                *o += weights[at + i / width] * x;
            }
        }
    });
}

/// The backward of [`attend`] with respect to its weights: `weights_grad[e, h] = grad[r, h] · x[c_e, h]`.
pub fn attend_backward<T: Real>(pattern: Pattern, heads: usize, x: &[T], grad: &[T], weights_grad: &mut [T]) {
    let stride = grad.len().checked_div(pattern.rows()).unwrap_or(0);
    let width = stride / heads;
    by_row(pattern, heads, weights_grad).into_par_iter().enumerate().for_each(|(r, out)| {
        let grad = &grad[r * stride..(r + 1) * stride];
        for (e, out) in pattern.row(r).zip(out.chunks_exact_mut(heads)) {
            let from = pattern.columns[e] as usize * stride;
            for (h, o) in out.iter_mut().enumerate() {
                let head = h * width..(h + 1) * width;
                *o = grad[head.clone()].iter().zip(&x[from..][head]).map(|(&g, &x)| g * x).sum();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::Transpose;
    use crate::testing::{assert_close, assert_gradient, dot, noise, pattern};

    const ROWS: usize = 9;
    const COLS: usize = 7;
    const HEADS: usize = 2;
    const WIDTH: usize = 3;

    fn scores<'a>(source: &'a [f64], destination: &'a [f64]) -> Scores<'a, f64> {
        Scores { source, destination, heads: HEADS, slope: 0.2 }
    }

    fn softmax(pattern: Pattern, scores: Scores<f64>) -> Vec<f64> {
        let mut alpha = vec![f64::NAN; pattern.columns.len() * HEADS];
        edge_softmax(pattern, scores, &mut alpha);
        alpha
    }

    #[test]
    fn softmax_is_exponentials_over_their_sum() {
        let (starts, columns) = pattern(1, ROWS, COLS);
        let pattern = Pattern::new(&starts, &columns);
        let (s, t) = (noise::<f64>(1, COLS * HEADS), noise::<f64>(2, ROWS * HEADS));
        let mut want = vec![0.0; columns.len() * HEADS];
        for r in 0..ROWS {
            for h in 0..HEADS {
                let exp = |e: usize| {
                    let l = s[columns[e] as usize * HEADS + h] + t[r * HEADS + h];
                    (if l > 0.0 { l } else { 0.2 * l }).exp()
                };
                let sum: f64 = pattern.row(r).map(exp).sum();
                pattern.row(r).for_each(|e| want[e * HEADS + h] = exp(e) / sum);
            }
        }
        assert_close(&softmax(pattern, scores(&s, &t)), &want, 1e-14);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let alpha =
            softmax(Pattern::new(&[0, 2], &[0, 1]), scores(&[900.0, 0.0, 900.0, -900.0], &[0.0, 0.0]));
        assert_close(&alpha, &[0.5, 1.0, 0.5, 0.0], 1e-15);
    }

    #[test]
    fn softmax_gradients_agree_with_differences() {
        let (starts, columns) = pattern(2, ROWS, COLS);
        let forward = Pattern::new(&starts, &columns);
        let (s, t) = (noise::<f64>(3, COLS * HEADS), noise::<f64>(4, ROWS * HEADS));
        let g = noise::<f64>(5, columns.len() * HEADS);
        let mut grad = g.clone();
        edge_softmax_backward(forward, scores(&s, &t), &softmax(forward, scores(&s, &t)), &mut grad);
        let (mut ds, mut dt) = (vec![0.0; s.len()], vec![0.0; t.len()]);
        sum_entries(Transpose::of(forward, COLS, true).pattern(), HEADS, &grad, &mut ds);
        sum_entries(forward, HEADS, &grad, &mut dt);
        assert_gradient(&s, &ds, |s| dot(&g, &softmax(forward, scores(s, &t))));
        assert_gradient(&t, &dt, |t| dot(&g, &softmax(forward, scores(&s, t))));
    }

    #[test]
    fn attended_sums_and_their_gradients_agree_with_a_slow_formula() {
        let (starts, columns) = pattern(3, ROWS, COLS);
        let forward = Pattern::new(&starts, &columns);
        let (w, x) = (noise::<f64>(6, columns.len() * HEADS), noise::<f64>(7, COLS * HEADS * WIDTH));
        let g = noise::<f64>(8, ROWS * HEADS * WIDTH);
        let slow = |w: &[f64], x: &[f64]| {
            let mut out = vec![0.0; ROWS * HEADS * WIDTH];
            for (i, o) in out.iter_mut().enumerate() {
                let (r, h, k) = (i / (HEADS * WIDTH), i / WIDTH % HEADS, i % WIDTH);
                let value = |e: usize| w[e * HEADS + h] * x[(columns[e] as usize * HEADS + h) * WIDTH + k];
                *o = forward.row(r).map(value).sum();
            }
            out
        };
        let mut out = vec![f64::NAN; g.len()];
        attend(forward, HEADS, &w, &x, &mut out);
        assert_close(&out, &slow(&w, &x), 1e-14);

        let (mut dw, mut dx) = (vec![f64::NAN; w.len()], vec![f64::NAN; x.len()]);
        attend_backward(forward, HEADS, &x, &g, &mut dw);
        attend(Transpose::of(forward, COLS, true).pattern(), HEADS, &w, &g, &mut dx);
        assert_gradient(&w, &dw, |w| dot(&g, &slow(w, &x)));
        assert_gradient(&x, &dx, |x| dot(&g, &slow(&w, x)));
    }
}
