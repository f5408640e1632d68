//! Products of a sparse tall matrix: its rows times a small matrix, and the gradient of a weight.
//!
//! Both are weighted sums of rows, as an aggregation is: over the entries of a row, of rows of the small matrix; over the entries
//! of a column, of rows of the gradient. Work is in proportion to the stored values. Sums are added in the order of columns and,
//! for the gradient, of rows.

use std::borrow::Cow;

use rayon::prelude::*;

use super::{Mat, Start, initialize};
use crate::aggregate::fast::{self, Aggregation};
use crate::aggregate::{Weights, naive};
use crate::buffer::Buffer;
use crate::simd::Level;
use crate::sparse::{Pattern, SparseRows};
use crate::{Real, real};

/// Rows and columns of a tile that is transposed at once.
const TILE: usize = 64;
const STRIP: usize = 16;
/// Rows of a gradient that are summed by column at once: they stay in cache.
const BLOCK_ROWS: usize = 4096;

/// Computes `c = start + alpha * x * b`, as [`super::multiply`]. Allocates a copy of `b`.
pub(super) fn multiply<T: Real>(
    alpha: T,
    x: SparseRows<T>,
    b: Mat<T>,
    start: Start<T>,
    c: &mut [T],
    pitch: usize,
) {
    let (columns, rows) = (b.cols, row_major(alpha, b));
    if pitch == columns {
        let is_kept = !matches!(start, Start::Zero);
        c.par_chunks_mut(TILE * pitch).for_each(|c| _ = initialize(start, c, columns, pitch));
        return sum_rows(x.pattern(), x.values(), &rows, columns, is_kept, c);
    }
    let mut product = Buffer::unspecified(x.rows() * columns);
    sum_rows(x.pattern(), x.values(), &rows, columns, false, &mut product);
    c.par_chunks_mut(pitch).zip(product.par_chunks(columns)).for_each(|(c, product)| {
        let c = match initialize(start, c, columns, pitch) {
            true => &mut c[..columns],
            false => return c[..columns].copy_from_slice(product),
        };
        c.iter_mut().zip(product).for_each(|(c, &x)| *c += x);
    });
}

/// Returns `alpha * b`, row by row.
fn row_major<T: Real>(alpha: T, b: Mat<T>) -> Buffer<T> {
    let mut out = Buffer::unspecified(b.rows * b.cols);
    let [row_stride, column_stride] = b.strides;
    out.par_chunks_mut((TILE * b.cols).max(1)).enumerate().for_each(|(tile, rows)| {
        let (first, count) = (tile * TILE, rows.len() / b.cols);
        // By columns: those of a transposed matrix are contiguous.
        for j in 0..b.cols {
            let from = first * row_stride + j * column_stride;
            (0..count).for_each(|i| rows[i * b.cols + j] = alpha * b.data[from + i * row_stride]);
        }
    });
    out
}

/// Writes or, with `accumulate`, adds the sums of rows of `x` times the `values` of the entries of `pattern`.
fn sum_rows<T: Real>(pattern: Pattern, values: &[T], x: &[T], width: usize, accumulate: bool, out: &mut [T]) {
    if let (Some(entries), Some(x)) = (real::single(values), real::single(x)) {
        let weights = Weights { entries: Some(entries), ..Weights::default() };
        let sums = Aggregation { level: Level::best(), pattern, weights, x, width, accumulate };
        return fast::aggregate(sums, bytemuck::cast_slice_mut(out));
    }
    out.par_chunks_mut(width).enumerate().for_each(|(r, out)| {
        let mut sums = vec![T::zero(); width];
        for e in pattern.row(r) {
            naive::add(values[e], &x[pattern.columns[e] as usize * width..][..width], &mut sums);
        }
        let sums = out.iter_mut().zip(sums);
        sums.for_each(|(out, sum)| *out = sum + if accumulate { *out } else { T::zero() });
    });
}

/// The gradient of a product: rows of `pitch` numbers, of which the first `columns` are read.
#[derive(Clone, Copy)]
pub(super) struct Gradient<'a, T> {
    pub data: &'a [T],
    pub columns: usize,
    pub pitch: usize,
}

impl<'a, T: Real> Gradient<'a, T> {
    /// Returns the numbers that are read, row by row. Allocates if there are others between them.
    fn rows(self) -> Cow<'a, [T]> {
        if self.pitch == self.columns {
            return Cow::Borrowed(self.data);
        }
        Cow::Owned(self.data.chunks(self.pitch).flat_map(|row| &row[..self.columns]).copied().collect())
    }
}

/// Adds `alpha * gᵀ x` to `sum` (columns of g x columns of x). Allocates the entries of `x` by column and a sum.
pub(super) fn add_outer<T: Real>(alpha: T, g: Gradient<T>, x: SparseRows<T>, sum: &mut [T]) {
    let (width, g) = (g.columns, g.rows());
    let mut sums = Buffer::unspecified(x.cols() * width);
    by_column(x, |first, pattern, values| {
        sum_rows(pattern, values, &g[first * width..], width, first > 0, &mut sums);
    });
    if x.rows() > 0 {
        add_transposed(alpha, &sums, width, sum);
    }
}

/// Calls `visit` with the entries of blocks of rows of `x` by column: the first row, the rows of the entries of each column,
/// counted from it, and their values. Allocates as much memory as the entries have.
fn by_column<T: Real>(x: SparseRows<T>, mut visit: impl FnMut(usize, Pattern, &[T])) {
    // At least as many entries as columns in a block.
    let blocks = x.rows().div_ceil(BLOCK_ROWS).min(x.stored() / x.cols()).max(1);
    let (step, bounds) = (x.rows().div_ceil(blocks).max(1), x.cols() + 2);
    let mut rows = Buffer::<u32>::unspecified(x.stored());
    let mut values = Buffer::<T>::unspecified(x.stored());
    let mut starts = Buffer::<u64>::zeros(bounds * x.rows().div_ceil(step));
    let (mut rest_rows, mut rest_values, mut tasks) = (&mut rows[..], &mut values[..], Vec::new());
    for (first, starts) in (0..x.rows()).step_by(step).zip(starts.chunks_exact_mut(bounds)) {
        let x = x.some(first..x.rows().min(first + step));
        let (rows, after_rows) = rest_rows.split_at_mut(x.stored());
        let (values, after_values) = rest_values.split_at_mut(x.stored());
        (rest_rows, rest_values) = (after_rows, after_values);
        tasks.push((first, x, starts, rows, values));
    }
    tasks.par_iter_mut().for_each(|(_, x, starts, rows, values)| sort_by_column(*x, starts, rows, values));
    for (first, _, starts, rows, values) in tasks {
        visit(first, Pattern::new(&starts[..=x.cols()], rows), values);
    }
}

/// Writes rows and values of the entries of `x` by column. `starts`, two more than columns, are 0; becomes the start of each
/// column, and the end.
fn sort_by_column<T: Real>(x: SparseRows<T>, starts: &mut [u64], rows: &mut [u32], values: &mut [T]) {
    (0..x.rows()).flat_map(|r| x.row(r).0).for_each(|&column| starts[column as usize + 2] += 1);
    (2..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
    for r in 0..x.rows() {
        let (columns, of_row) = x.row(r);
        for (&column, &value) in columns.iter().zip(of_row) {
            // The start of a column, until its entries are in place: then its end.
            let place = &mut starts[column as usize + 1];
            (rows[*place as usize], values[*place as usize]) = (r as u32, value);
            *place += 1;
        }
    }
}

/// Adds `alpha` times the transpose of `from`, rows of `width` numbers, to `sum`.
fn add_transposed<T: Real>(alpha: T, from: &[T], width: usize, sum: &mut [T]) {
    let columns = from.len() / width;
    sum.par_chunks_mut(STRIP * columns).enumerate().for_each(|(strip, sum)| {
        for first in (0..columns).step_by(TILE) {
            let tile = first..(first + TILE).min(columns);
            for (j, sum) in sum.chunks_exact_mut(columns).enumerate() {
                tile.clone().for_each(|c| sum[c] += alpha * from[c * width + strip * STRIP + j]);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use half::f16;

    use crate::gemm::{Mat, Start, Tall, add_outer, multiply, multiply_two};
    use crate::keyed::Key;
    use crate::sparse::SparseRows;
    use crate::testing::{assert_close, noise};

    /// Row starts, columns and values of a random matrix with empty rows and columns, and all its elements.
    fn matrix(rows: usize, cols: usize, share: f64) -> (Vec<u64>, Vec<u32>, Vec<f64>, Vec<f64>) {
        let (key, values) = (Key::new(5, "pattern"), noise::<f64>(6, rows * cols));
        let is_stored = |i: usize| cols > 0 && (i / cols) % 3 != 1 && key.unit(i as u64) < share;
        let dense: Vec<f64> = (0..rows * cols).map(|i| if is_stored(i) { values[i] } else { 0.0 }).collect();
        let stored: Vec<usize> = (0..dense.len()).filter(|&i| is_stored(i)).collect();
        let starts = (0..=rows).map(|r| stored.partition_point(|&i| i < r * cols) as u64).collect();
        let columns = stored.iter().map(|&i| (i % cols) as u32).collect();
        (starts, columns, stored.iter().map(|&i| dense[i]).collect(), dense)
    }

    const SHAPES: [[usize; 3]; 6] =
        [[1, 1, 1], [40, 30, 7], [600, 17, 33], [300, 90, 100], [5, 4, 64], [0, 3, 2]];

    #[test]
    fn products_match_the_dense_ones_for_every_start() {
        for [m, k, n] in SHAPES {
            let (starts, columns, values, dense) = matrix(m, k, 0.3);
            let x = Tall::sparse(SparseRows::new(&starts, &columns, &values, k));
            let (b, other) = (noise::<f64>(2, n * k), noise::<f64>(3, m * 5));
            let (b, b_other) = (Mat::new(&b, n, k).t(), noise::<f64>(4, 5 * n));
            let (before, row) = (noise::<f64>(7, m * n), noise::<f64>(8, n));
            for start in [Start::Zero, Start::Kept, Start::Row(&row)] {
                let both = [x, Tall::new(&dense, m, k)].map(|x| {
                    let mut one = before.clone();
                    multiply(0.7, x, b, start, &mut one, n);
                    let mut two = before.clone();
                    let second = (Tall::new(&other, m, 5), Mat::new(&b_other, 5, n));
                    multiply_two([(x, b), second], start, &mut two, n);
                    let mut swapped = before.clone();
                    multiply_two([second, (x, b)], start, &mut swapped, n);
                    [one, two, swapped].concat()
                });
                assert_close(&both[0], &both[1], 1e-13);
            }
        }
    }

    #[test]
    fn weight_gradients_match_the_dense_ones() {
        for [rows, k, n] in [SHAPES, [[5000, 20, 9]; 6]].concat() {
            let (starts, columns, values, dense) = matrix(rows, k, 0.4);
            let g = noise::<f64>(1, rows * (n + 2));
            // Without the last two columns of g.
            let g = Tall::pitched(&g, rows, n, n + 2);
            let both =
                [Tall::sparse(SparseRows::new(&starts, &columns, &values, k)), Tall::new(&dense, rows, k)];
            let [got, want] = both.map(|x| {
                let mut sum = noise::<f64>(9, n * k);
                add_outer(0.5, g, x, &mut sum);
                sum
            });
            assert_close(&got, &want, 1e-11);
        }
    }

    #[test]
    fn some_rows_and_single_precision_match() {
        let (m, k, n) = (700, 50, 70);
        let (starts, columns, values, dense) = matrix(m, k, 0.2);
        let narrow = |x: &[f64]| x.iter().map(|&x| f16::from_f64(x).to_f32()).collect::<Vec<f32>>();
        let (values, dense, b) = (narrow(&values), narrow(&dense), noise::<f32>(2, n * k));
        let (from, to) = (100, 650);
        let some = SparseRows::new(&starts[from..=to], &columns, &values, k);
        let [got, want] = [Tall::sparse(some), Tall::new(&dense[from * k..to * k], to - from, k)].map(|x| {
            let mut c = vec![f32::NAN; (to - from) * n];
            multiply(1.0, x, Mat::new(&b, n, k).t(), Start::Zero, &mut c, n);
            let mut sum = vec![0.0; n * k];
            add_outer(1.0, Tall::new(&c, to - from, n), x, &mut sum);
            [c, sum].concat().iter().map(|&x| x as f64).collect::<Vec<_>>()
        });
        assert_close(&got, &want, 1e-4);
    }

    #[test]
    fn threads_change_no_bit() {
        let (m, k, n) = (9000, 60, 40);
        let (starts, columns, values, _) = matrix(m, k, 0.2);
        let (b, g) = (noise::<f64>(2, n * k), noise::<f64>(3, m * n));
        let run = || {
            let x = Tall::sparse(SparseRows::new(&starts, &columns, &values, k));
            let mut c = vec![0.0; m * n];
            multiply(1.0, x, Mat::new(&b, n, k).t(), Start::Zero, &mut c, n);
            let mut sum = vec![0.0; n * k];
            add_outer(1.0, Tall::new(&g, m, n), x, &mut sum);
            (c, sum)
        };
        let with = |threads: usize| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads").install(run)
        };
        assert_eq!(with(1), with(3));
    }
}
