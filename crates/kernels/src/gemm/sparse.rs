//! Products of a sparse tall matrix: its rows times a small matrix, and the gradient of a weight.
//!
//! Work is in proportion to the stored values. Sums are added in the order of rows and, within a row, of columns.

use std::any::TypeId;
use std::ops::Range;

use rayon::prelude::*;

use super::{Mat, partial_sums};
use crate::Real;
use crate::buffer::Buffer;
use crate::simd::{Isa, Level, dispatch};
use crate::sparse::SparseRows;

/// Columns that are accumulated in registers: of a wide product, and of the rest.
const WIDE: usize = 64;
const NARROW: usize = 16;
/// Columns of a tile that is transposed at once.
const TILE: usize = 64;
/// Stored values per column of a factor that are worth a partial sum of a weight gradient.
const VALUES_PER_PART: usize = 16;

/// A small matrix in row order, rows padded by zeros to a multiple of [`NARROW`] columns.
pub(super) struct Padded<T> {
    data: Buffer<T>,
    columns: usize,
    pitch: usize,
}

impl<T: Real> Padded<T> {
    /// Copies `b`. Allocates.
    pub fn of(b: Mat<T>) -> Self {
        let pitch = b.cols.next_multiple_of(NARROW);
        let mut data = Buffer::unspecified(b.rows * pitch);
        let [row_stride, column_stride] = b.strides;
        data.par_chunks_mut((TILE * pitch).max(1)).enumerate().for_each(|(tile, rows)| {
            let first = tile * TILE;
            let count = rows.len() / pitch;
            // By columns: those of a transposed matrix are contiguous.
            for j in 0..b.cols {
                let from = first * row_stride + j * column_stride;
                for i in 0..count {
                    rows[i * pitch + j] = b.data[from + i * row_stride];
                }
            }
            rows.chunks_exact_mut(pitch).for_each(|row| row[b.cols..].fill(T::zero()));
        });
        Padded { data, columns: b.cols, pitch }
    }
}

/// Computes `c = alpha * x * b`, or adds it with `accumulate`, for the rows of a task; rows of `c` have a stride of `pitch`.
pub(super) fn multiply_rows<T: Real>(
    alpha: T,
    x: SparseRows<T>,
    b: &Padded<T>,
    accumulate: bool,
    c: &mut [T],
    pitch: usize,
) {
    rows(Level::best(), &RowsTask { alpha, x, b, accumulate, pitch }, c);
}

struct RowsTask<'a, T> {
    alpha: T,
    x: SparseRows<'a, T>,
    b: &'a Padded<T>,
    accumulate: bool,
    pitch: usize,
}

#[inline(always)]
fn rows_body<I: Isa, T: Real>(task: &RowsTask<T>, c: &mut [T]) {
    for (r, c) in c.chunks_exact_mut(task.pitch).enumerate() {
        let c = &mut c[..task.b.columns];
        let (row, mut first) = (task.x.row(r), 0);
        while first < c.len() {
            if task.b.pitch - first >= WIDE {
                block::<I, T, WIDE>(task, row, first, c);
                first += WIDE;
            } else {
                block::<I, T, NARROW>(task, row, first, c);
                first += NARROW;
            }
        }
    }
}
dispatch!(fn rows[T: Real](task: &RowsTask<T>, c: &mut [T]) = rows_body);

/// Computes `W` columns of a row, from `first` on.
#[inline(always)]
fn block<I: Isa, T: Real, const W: usize>(
    task: &RowsTask<T>,
    (columns, values): (&[u32], &[T]),
    first: usize,
    c: &mut [T],
) {
    let mut sums = [T::zero(); W];
    for (&column, &x) in columns.iter().zip(values) {
        let b = &task.b.data[column as usize * task.b.pitch + first..][..W];
        (0..W).for_each(|i| sums[i] = mul_add::<I, T>(x, b[i], sums[i]));
    }
    for (c, sum) in c[first..].iter_mut().zip(sums) {
        *c = task.alpha * sum + if task.accumulate { *c } else { T::zero() };
    }
}

/// Returns `a * b + c`, rounded once in single precision if the instruction set has FMA.
#[inline(always)]
fn mul_add<I: Isa, T: Real>(a: T, b: T, c: T) -> T {
    if TypeId::of::<T>() == TypeId::of::<f32>() {
        let [a, b, c] = [a, b, c].map(bytemuck::cast::<T, f32>);
        return bytemuck::cast(I::mul_add(a, b, c));
    }
    a * b + c
}

/// The gradient of a product: rows of `pitch` numbers, of which the first `columns` are read.
#[derive(Clone, Copy)]
pub(super) struct Gradient<'a, T> {
    pub data: &'a [T],
    pub columns: usize,
    pub pitch: usize,
}

/// Adds `alpha * gᵀ x` to `sum` (columns of g x columns of x). Allocates sums of about that size: a scattered addition touches
/// some columns of `g` at a time, so that they stay in cache.
pub(super) fn add_outer<T: Real>(alpha: T, g: Gradient<T>, x: SparseRows<T>, sum: &mut [T]) {
    let width = match g.columns {
        ..=8 => 8,
        9..32 => 16,
        _ => 32,
    };
    let (rows, len) = (x.rows(), x.cols() * width);
    let parts = partial_sums(rows, sum.len()).min(x.stored() / (VALUES_PER_PART * x.cols())).max(1);
    let mut partial = Buffer::<T>::zeros(g.columns.div_ceil(width) * parts * len);
    partial.par_chunks_mut(len).enumerate().for_each(|(i, partial)| {
        let (first, part) = (i / parts * width, i % parts);
        let bound = |part: usize| (part * rows.div_ceil(parts)).min(rows);
        let task = OuterTask { g, x, first, rows: bound(part)..bound(part + 1) };
        match width {
            8 => outer_8(Level::best(), &task, partial),
            16 => outer_16(Level::best(), &task, partial),
            _ => outer_32(Level::best(), &task, partial),
        }
    });
    let blocks = sum.par_chunks_mut(width * x.cols()).zip(partial.par_chunks(parts * len));
    blocks.for_each(|(sum, partial)| {
        partial.chunks_exact(len).for_each(|partial| add_transposed(alpha, partial, width, sum));
    });
}

struct OuterTask<'a, T> {
    g: Gradient<'a, T>,
    x: SparseRows<'a, T>,
    /// First column of the gradient.
    first: usize,
    rows: Range<usize>,
}

/// Adds the outer products of rows of x and of `W` columns of g to `sum` (columns of x x `W`).
#[inline(always)]
fn outer_body<I: Isa, T: Real, const W: usize>(task: &OuterTask<T>, sum: &mut [T]) {
    let width = W.min(task.g.columns - task.first);
    for r in task.rows.clone() {
        let mut g = [T::zero(); W];
        g[..width].copy_from_slice(&task.g.data[r * task.g.pitch + task.first..][..width]);
        let (columns, values) = task.x.row(r);
        for (&column, &x) in columns.iter().zip(values) {
            let sum = &mut sum[column as usize * W..][..W];
            (0..W).for_each(|i| sum[i] = mul_add::<I, T>(x, g[i], sum[i]));
        }
    }
}

#[inline(always)]
fn outer_8_body<I: Isa, T: Real>(task: &OuterTask<T>, sum: &mut [T]) {
    outer_body::<I, T, 8>(task, sum)
}
dispatch!(fn outer_8[T: Real](task: &OuterTask<T>, sum: &mut [T]) = outer_8_body);

#[inline(always)]
fn outer_16_body<I: Isa, T: Real>(task: &OuterTask<T>, sum: &mut [T]) {
    outer_body::<I, T, 16>(task, sum)
}
dispatch!(fn outer_16[T: Real](task: &OuterTask<T>, sum: &mut [T]) = outer_16_body);

#[inline(always)]
fn outer_32_body<I: Isa, T: Real>(task: &OuterTask<T>, sum: &mut [T]) {
    outer_body::<I, T, 32>(task, sum)
}
dispatch!(fn outer_32[T: Real](task: &OuterTask<T>, sum: &mut [T]) = outer_32_body);

/// Adds `alpha` times the transpose of `from`, rows of `width` numbers, to the rows of `sum`.
fn add_transposed<T: Real>(alpha: T, from: &[T], width: usize, sum: &mut [T]) {
    let columns = from.len() / width;
    for first in (0..columns).step_by(TILE) {
        let tile = first..(first + TILE).min(columns);
        for (j, sum) in sum.chunks_exact_mut(columns).enumerate() {
            tile.clone().for_each(|c| sum[c] += alpha * from[c * width + j]);
        }
    }
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
