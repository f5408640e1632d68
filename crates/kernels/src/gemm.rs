//! Dense products of row-major matrices, `C = alpha * op(A) * op(B) + beta * C`.

use rayon::prelude::*;

use crate::Real;

/// Rows of C a task computes. Fixed, so that the number of threads never changes how a sum is split.
const TASK_ROWS: usize = 128;

/// A borrowed row-major matrix, possibly read transposed.
#[derive(Debug, Clone, Copy)]
pub struct Mat<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    /// Distance in `data` from a row to the next, and from a column to the next.
    strides: [usize; 2],
}

impl<'a, T> Mat<'a, T> {
    /// `data` as `rows` x `cols`.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "{rows} x {cols} matrix");
        Mat { data, rows, cols, strides: [cols, 1] }
    }

    /// The transpose, without moving anything.
    #[must_use]
    pub fn t(self) -> Self {
        let [r, c] = self.strides;
        Mat { data: self.data, rows: self.cols, cols: self.rows, strides: [c, r] }
    }

    /// Number of rows as read.
    pub fn rows(self) -> usize {
        self.rows
    }

    /// Number of columns as read.
    pub fn cols(self) -> usize {
        self.cols
    }
}

/// `c = alpha * a * b + beta * c`, where `c` is row-major, `a.rows()` x `b.cols()`.
///
/// `beta = 0` overwrites `c` whatever it held, NaN included.
pub fn gemm<T: Real>(alpha: T, a: Mat<T>, b: Mat<T>, beta: T, c: &mut [T]) {
    assert_eq!(a.cols, b.rows, "inner dimensions of a product");
    assert_eq!(c.len(), a.rows * b.cols, "size of a product");
    if c.is_empty() {
        return;
    }
    let n = b.cols;
    c.par_chunks_mut(TASK_ROWS * n).enumerate().for_each(|(task, c)| {
        let first = task * TASK_ROWS;
        let m = c.len() / n;
        // An empty inner dimension leaves A without elements to point at.
        let a_from = if a.cols == 0 { a.data } else { &a.data[first * a.strides[0]..] };
        let strides = [a.strides, b.strides, [n, 1]].map(|s| s.map(|x| x as isize));
        // SAFETY: `Mat::new` and the asserts above tie shapes and strides to the slices' lengths; this task
        // alone borrows its rows of C, mutably, so they overlap nothing.
        unsafe {
            T::multiply(
                [m, a.cols, n],
                [alpha, beta],
                [a_from.as_ptr(), b.data.as_ptr()],
                c.as_mut_ptr(),
                strides,
            );
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, noise};

    /// Three loops over explicit indices.
    fn naive(alpha: f64, a: Mat<f64>, b: Mat<f64>, beta: f64, c: &mut [f64]) {
        let at = |m: Mat<f64>, i: usize, j: usize| m.data[i * m.strides[0] + j * m.strides[1]];
        for i in 0..a.rows {
            for j in 0..b.cols {
                let sum: f64 = (0..a.cols).map(|k| at(a, i, k) * at(b, k, j)).sum();
                c[i * b.cols + j] = alpha * sum + beta * c[i * b.cols + j];
            }
        }
    }

    #[test]
    fn agrees_with_three_loops_in_all_four_orders() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 2), (300, 17, 33), (4, 0, 3), (0, 3, 2), (130, 3, 1)] {
            let (a, b, start) = (noise(1, m * k), noise(2, k * n), noise(3, m * n));
            for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
                let a = if ta { Mat::new(&a, k, m).t() } else { Mat::new(&a, m, k) };
                let b = if tb { Mat::new(&b, n, k).t() } else { Mat::new(&b, k, n) };
                let (mut got, mut want) = (start.clone(), start.clone());
                gemm(0.7, a, b, -0.3, &mut got);
                naive(0.7, a, b, -0.3, &mut want);
                assert_close(&got, &want, 1e-12);
            }
        }
    }

    #[test]
    fn single_precision_agrees_with_double() {
        let (m, k, n) = (140, 40, 9);
        let (a, b) = (noise::<f64>(4, m * k), noise::<f64>(5, k * n));
        let narrow = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let (a32, b32) = (narrow(&a), narrow(&b));
        let (mut got, mut want) = (vec![f32::NAN; m * n], vec![f64::NAN; m * n]);
        gemm(1.0, Mat::new(&a32, m, k), Mat::new(&b32, k, n), 0.0, &mut got);
        gemm(1.0, Mat::new(&a, m, k), Mat::new(&b, k, n), 0.0, &mut want);
        let got: Vec<f64> = got.iter().map(|&x| x as f64).collect();
        assert_close(&got, &want, 1e-5);
    }
}
