//! Weighted sums of rows along a sparse pattern: the heart of message passing.
//!
//! `out[r] = d[r] * Σ_{e in row r} w[e] * s[c_e] * x[c_e]`, where any of the three weights may be absent.
//! The backward with respect to `x` is the same sum over the transposed pattern with `s` and `d` exchanged:
//! a gather as well, hence without races and in a fixed order.

use rayon::prelude::*;

use crate::Real;
use crate::sparse::Pattern;

/// What multiplies the entries of a sum; absent means 1.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a, T> {
    /// By column, `s`.
    pub source: Option<&'a [T]>,
    /// By row, `d`.
    pub destination: Option<&'a [T]>,
    /// By entry, `w`, in the order of the pattern.
    pub entry: Option<&'a [T]>,
}

impl<T> Default for Weights<'_, T> {
    fn default() -> Self {
        Weights { source: None, destination: None, entry: None }
    }
}

impl<T> Weights<'_, T> {
    /// The weights of the transposed sum.
    #[must_use]
    pub fn transposed(self) -> Self {
        Weights { source: self.destination, destination: self.source, entry: self.entry }
    }
}

/// Fills `out` (pattern rows x `width`) with weighted sums of the rows of `x` (columns x `width`).
pub fn aggregate<T: Real>(pattern: Pattern, weights: Weights<T>, x: &[T], width: usize, out: &mut [T]) {
    assert_eq!(out.len(), pattern.rows() * width, "one sum a row of the pattern");
    if width == 0 {
        return;
    }
    out.par_chunks_mut(width).enumerate().for_each(|(r, out)| {
        out.fill(T::zero());
        for e in pattern.row(r) {
            let c = pattern.columns[e] as usize;
            let weight = weights.entry.map_or(T::one(), |w| w[e]) * weights.source.map_or(T::one(), |s| s[c]);
            for (o, &x) in out.iter_mut().zip(&x[c * width..(c + 1) * width]) {
                *o += weight * x;
            }
        }
        if let Some(scale) = weights.destination {
            out.iter_mut().for_each(|o| *o *= scale[r]);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse::Transpose;
    use crate::testing::{assert_close, assert_gradient, dot, noise, pattern};

    const ROWS: usize = 13;
    const COLS: usize = 9;
    const WIDTH: usize = 3;

    /// The same sum as a dense matrix times a vector, column by column.
    fn dense(pattern: Pattern, weights: Weights<f64>, x: &[f64]) -> Vec<f64> {
        let mut matrix = vec![0.0; ROWS * COLS];
        for r in 0..ROWS {
            for e in pattern.row(r) {
                let c = pattern.columns[e] as usize;
                matrix[r * COLS + c] += weights.entry.map_or(1.0, |w| w[e])
                    * weights.source.map_or(1.0, |s| s[c])
                    * weights.destination.map_or(1.0, |d| d[r]);
            }
        }
        (0..ROWS * WIDTH)
            .map(|i| (0..COLS).map(|c| matrix[i / WIDTH * COLS + c] * x[c * WIDTH + i % WIDTH]).sum())
            .collect()
    }

    #[test]
    fn every_choice_of_weights_agrees_with_a_dense_product_and_its_gradient() {
        let (starts, columns) = pattern(3, ROWS, COLS);
        let forward = Pattern::new(&starts, &columns);
        let transpose = Transpose::of(forward, COLS);
        let (s, d, w) = (noise(1, COLS), noise(2, ROWS), noise(3, columns.len()));
        let (x, g) = (noise::<f64>(4, COLS * WIDTH), noise::<f64>(5, ROWS * WIDTH));
        for choice in 0..8 {
            let weights = Weights {
                source: (choice & 1 > 0).then_some(&s[..]),
                destination: (choice & 2 > 0).then_some(&d[..]),
                entry: (choice & 4 > 0).then_some(&w[..]),
            };
            let mut out = vec![f64::NAN; ROWS * WIDTH];
            aggregate(forward, weights, &x, WIDTH, &mut out);
            assert_close(&out, &dense(forward, weights, &x), 1e-14);

            if weights.entry.is_some() {
                continue;
            }
            let mut grad = vec![f64::NAN; COLS * WIDTH];
            aggregate(transpose.pattern(), weights.transposed(), &g, WIDTH, &mut grad);
            assert_gradient(&x, &grad, |x| dot(&g, &dense(forward, weights, x)));
        }
    }

    #[test]
    fn rows_without_entries_are_zero() {
        let mut out = [f32::NAN; 2];
        aggregate(Pattern::new(&[0, 0], &[]), Weights::default(), &[1.0, 2.0], 2, &mut out);
        assert_eq!(out, [0.0, 0.0]);
    }
}
