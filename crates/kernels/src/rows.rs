//! Row-wise operations: gather, scatter-add, bias, scaling, column sums.

use std::ops::Range;

use bytemuck::Pod;
use rayon::prelude::*;

use crate::Real;
use crate::simd::{Isa, Level, dispatch, prefetch};
use crate::work::{self, Cost};

/// Rows per task of a sum over rows.
pub(crate) const RUN: usize = 1024;
/// Rows per task of an operation on rows.
const TASK_ROWS: usize = 256;
/// Rows between the copied and the prefetched one.
const PREFETCH_DISTANCE: usize = 4;
/// Numbers per task of an element-wise operation.
const CHUNK: usize = 1 << 14;

/// Gathers rows of `width` numbers: `out[i] = x[rows[i]]`.
pub fn gather<E: Copy + Send + Sync>(x: &[E], width: usize, rows: &[u32], out: &mut [E]) {
    assert_eq!(out.len(), rows.len() * width, "length of the output");
    if width == 0 {
        return;
    }
    let _work =
        work::begin("gather rows", || Cost::stream(size_of_val(out) + size_of_val(rows), size_of_val(out)));
    let chunks = out.par_chunks_mut(TASK_ROWS * width).zip(rows.par_chunks(TASK_ROWS));
    chunks.for_each(|(out, rows)| {
        for (i, (out, &row)) in out.chunks_exact_mut(width).zip(rows).enumerate() {
            if let Some(&ahead) = rows.get(i + PREFETCH_DISTANCE) {
                let line = (64 / size_of::<E>().max(1)).max(1);
                (0..width).step_by(line).for_each(|c| prefetch(x, ahead as usize * width + c));
            }
            out.copy_from_slice(&x[row as usize * width..][..width]);
        }
    });
}

/// Rows of bytes, `stride` apart; what is read of each begins at `offset`.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a> {
    /// All rows.
    pub bytes: &'a [u8],
    /// Bytes of a row.
    pub stride: usize,
    /// First byte that is read of a row.
    pub offset: usize,
}

/// Gathers rows of `width` numbers from two places: `out[i]` is row `rows[i]` of `x` or, counted on from the last row of
/// `x`, of `more`.
pub fn gather_from_two<E: Pod + Send + Sync>(
    x: &[E],
    more: Strided,
    width: usize,
    rows: &[u32],
    out: &mut [E],
) {
    assert_eq!(out.len(), rows.len() * width, "length of the output");
    if width == 0 {
        return;
    }
    let _work =
        work::begin("gather rows", || Cost::stream(size_of_val(out) + size_of_val(rows), size_of_val(out)));
    let (count, size) = (x.len() / width, width * size_of::<E>());
    let row = |row: u32| match (row as usize).checked_sub(count) {
        None => bytemuck::cast_slice(&x[row as usize * width..][..width]),
        Some(row) => &more.bytes[row * more.stride + more.offset..][..size],
    };
    let chunks = out.par_chunks_mut(TASK_ROWS * width).zip(rows.par_chunks(TASK_ROWS));
    chunks.for_each(|(out, rows)| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            if let Some(&ahead) = rows.get(i + PREFETCH_DISTANCE) {
                let ahead: &[u8] = row(ahead);
                (0..size).step_by(64).for_each(|at| prefetch(ahead, at));
            }
            bytemuck::cast_slice_mut(out).copy_from_slice(row(rows[i]));
        }
    });
}

/// Adds rows of `width` numbers: `out[rows[i]] += x[i]`, in the order of `i`. The backward of [`gather`]. Indices may
/// repeat; parallel only if they are strictly ascending.
pub fn scatter_add<T: Real>(x: &[T], width: usize, rows: &[u32], out: &mut [T]) {
    assert_eq!(x.len(), rows.len() * width, "length of the input");
    if width == 0 {
        return;
    }
    let read = 2 * size_of_val(x) + size_of_val(rows);
    let _work = work::begin("scatter-add rows", || Cost::stream(read, size_of_val(x)));
    let ascending = rows.is_sorted_by(|a, b| a < b);
    scatter_from(0, x, width, rows, ascending, out);
}

/// Scatters to `out`, which begins at row `first`; in parallel if `rows` are strictly ascending.
fn scatter_from<T: Real>(first: u32, x: &[T], width: usize, rows: &[u32], ascending: bool, out: &mut [T]) {
    if ascending && rows.len() > RUN {
        let half = rows.len() / 2;
        let ((x, more_x), (rows, more_rows)) = (x.split_at(half * width), rows.split_at(half));
        let (out, more) = out.split_at_mut((more_rows[0] - first) as usize * width);
        rayon::join(
            || scatter_from(first, x, width, rows, ascending, out),
            || scatter_from(more_rows[0], more_x, width, more_rows, ascending, more),
        );
        return;
    }
    for (x, &r) in x.chunks_exact(width).zip(rows) {
        let out = &mut out[(r - first) as usize * width..][..width];
        out.iter_mut().zip(x).for_each(|(o, &x)| *o += x);
    }
}

/// Computes `out += factor * x` (axpy).
pub fn add_scaled<T: Real>(factor: T, x: &[T], out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "length of the output");
    let size = size_of_val(x);
    let _work = work::begin("scaled add", || Cost::stream(2 * size, size));
    let chunks = out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK));
    chunks.for_each(|(out, x)| out.iter_mut().zip(x).for_each(|(o, &x)| *o += factor * x));
}

/// Computes `x *= factor`.
pub fn scale<T: Real>(factor: T, x: &mut [T]) {
    let _work = work::begin("scale", || Cost::stream(size_of_val(x), size_of_val(x)));
    x.par_chunks_mut(CHUNK).for_each(|x| x.iter_mut().for_each(|x| *x *= factor));
}

/// Adds `row` to every row of `x`, e.g. a bias.
pub fn add_row<T: Real>(x: &mut [T], row: &[T]) {
    if row.is_empty() {
        return;
    }
    let _work = work::begin("add bias", || Cost::stream(size_of_val(x), size_of_val(x)));
    x.par_chunks_mut(TASK_ROWS * row.len()).for_each(|x| add_to_rows::<T>(Level::best(), row, x));
}

#[inline(always)]
fn add_to_rows_body<I: Isa, T: Real>(row: &[T], x: &mut [T]) {
    x.chunks_exact_mut(row.len()).for_each(|x| add(row, x));
}
dispatch!(fn add_to_rows[T: Real](row: &[T], x: &mut [T]) = add_to_rows_body);

/// Computes `sums += x`.
#[inline(always)]
fn add<T: Real>(x: &[T], sums: &mut [T]) {
    sums.iter_mut().zip(x).for_each(|(s, &x)| *s += x);
}

/// Adds the column sums of `x` to `sums`: the backward of [`add_row`] with respect to the row.
pub fn add_column_sums<T: Real>(x: &[T], sums: &mut [T]) {
    let width = sums.len();
    if width == 0 {
        return;
    }
    let _work = work::begin("column sums", || Cost::stream(size_of_val(x), size_of_val(sums)));
    sum_over_rows(x.len() / width, sums, |run, sums| {
        add_rows::<T>(Level::best(), &x[run.start * width..run.end * width], sums);
    });
}

#[inline(always)]
fn add_rows_body<I: Isa, T: Real>(x: &[T], sums: &mut [T]) {
    x.chunks_exact(sums.len()).for_each(|x| add(x, sums));
}
dispatch!(fn add_rows[T: Real](x: &[T], sums: &mut [T]) = add_rows_body);

/// Computes `sums += Σ_runs add(run)` over runs of rows. `add` adds the terms of a run to its second argument, which
/// starts at 0. Runs are computed in parallel and summed in order. Allocates one vector per run.
///
/// Runs have a fixed length, so the number of threads does not change the result, and rounding errors grow with the sum
/// of run length and number of runs instead of their product.
pub fn sum_over_rows<T: Real>(rows: usize, sums: &mut [T], add: impl Fn(Range<usize>, &mut [T]) + Sync) {
    let width = sums.len();
    let parts: Vec<Vec<T>> = (0..rows.div_ceil(RUN))
        .into_par_iter()
        .map(|i| {
            let mut part = vec![T::zero(); width];
            add(i * RUN..rows.min((i + 1) * RUN), &mut part);
            part
        })
        .collect();
    add_in_order(parts.iter().map(Vec::as_slice), sums);
}

/// Computes `sums += Σ parts`, in the order of the parts.
pub(crate) fn add_in_order<'a, T: Real>(parts: impl Iterator<Item = &'a [T]>, sums: &mut [T]) {
    for part in parts {
        add(part, sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_gradient, dot, noise};

    #[test]
    fn scatter_add_is_the_backward_of_gather() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let rows = [2, 0, 2];
        let mut out = [0.0; 6];
        gather(&x, 2, &rows, &mut out);
        assert_eq!(out, [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);

        let g = noise(1, 6);
        let mut grad = vec![0.0; 6];
        scatter_add(&g, 2, &rows, &mut grad);
        assert_gradient(&x, &grad, |x| {
            let mut out = [0.0; 6];
            gather(x, 2, &rows, &mut out);
            dot(&g, &out)
        });
    }

    #[test]
    fn all_tasks_of_rows_are_computed() {
        let x = noise::<f32>(1, 1000 * 3);
        let rows: Vec<u32> = (0..700).map(|i| i * 37 % 1000).collect();
        let mut out = vec![f32::NAN; 700 * 3];
        gather(&x, 3, &rows, &mut out);
        for (out, &r) in out.chunks_exact(3).zip(&rows) {
            assert_eq!(out, &x[r as usize * 3..][..3]);
        }
        let before = out.clone();
        add_row(&mut out, &[1.0, 2.0, 3.0]);
        for (i, (after, before)) in out.iter().zip(before).enumerate() {
            assert_eq!(*after, before + (1 + i % 3) as f32);
        }
    }

    #[test]
    fn a_bias_is_added_to_every_row_and_its_gradient_is_the_column_sum() {
        let mut x = [1.0, 2.0, 3.0, 4.0];
        add_row(&mut x, &[10.0, 20.0]);
        assert_eq!(x, [11.0, 22.0, 13.0, 24.0]);
        let mut sums = [1.0, 0.0];
        add_column_sums(&x, &mut sums);
        assert_eq!(sums, [25.0, 46.0]);
    }

    #[test]
    fn long_sums_are_accurate_in_single_precision() {
        // Equal terms are the worst case, because all are rounded in the same direction: a sequential sum has an
        // error of 4e-2. The bound for runs is (1024 + 3907) / 2^24 = 3e-4.
        let mut sum = [0.0f32];
        add_column_sums(&vec![0.1; 4_000_000], &mut sum);
        assert!((sum[0] as f64 / 400_000.0 - 1.0).abs() < 3e-4, "{}", sum[0]);
    }

    #[test]
    fn add_scaled_covers_all_chunks() {
        let mut out = vec![1.0; 40_000];
        add_scaled(0.5, &vec![4.0; 40_000], &mut out);
        assert!(out.iter().all(|&x| x == 3.0));
    }
}
