//! Dropout with keyed masks: an element is dropped by a function of (key, dataset vertex id, column), so masks are not
//! stored.
//!
//! One hash gives the random bits of four columns, 16 bits each. The probability p is rounded to a multiple of 1/65536,
//! and kept elements are scaled by 1 / (1 - p) with the rounded p, so that the expectation is preserved.

use rayon::prelude::*;

use crate::Real;
use crate::keyed::Key;
use crate::simd::{Isa, Level, dispatch};
use crate::sparse::SparseRows;
use crate::work::{self, Cost};

/// Columns per hash.
const LANES: usize = 4;
/// Columns whose mask is computed at once.
const RUN: usize = 64;
/// Rows of a sparse matrix per task.
const SPARSE_ROWS: usize = 64;
/// Number of values of 16 random bits.
const STEPS: f64 = 65536.0;

/// The dropout mask of a matrix.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    key: Key,
    /// Elements whose 16 random bits are below this are dropped.
    threshold: u16,
    /// Dataset id of each row; `None`: the row number.
    ids: Option<&'a [u32]>,
}

impl<'a> Mask<'a> {
    /// Returns the mask with drop probability `p`, below 1; `None` if `p` is rounded to 0.
    pub fn new(key: Key, p: f64, ids: Option<&'a [u32]>) -> Option<Self> {
        let threshold = (p * STEPS).round().clamp(0.0, STEPS - 1.0) as u16;
        (threshold > 0).then_some(Mask { key, threshold, ids })
    }

    /// Returns the factor of kept elements, 1 / (1 - p).
    pub fn scale<T: Real>(&self) -> T {
        T::of(STEPS / (STEPS - self.threshold as f64))
    }

    /// Returns the mask of one row.
    #[inline]
    pub fn row(&self, r: usize) -> RowMask {
        let id = self.ids.map_or(r as u64, |ids| ids[r] as u64);
        RowMask { key: self.key.with(id), threshold: self.threshold }
    }
}

/// The dropout mask of a row.
#[derive(Debug, Clone, Copy)]
pub struct RowMask {
    key: Key,
    threshold: u16,
}

impl RowMask {
    /// Returns whether the element in `column` is kept.
    #[inline]
    fn keeps(&self, column: usize) -> bool {
        let bits = self.key.at((column / LANES) as u64);
        (bits >> (16 * (column % LANES))) as u16 >= self.threshold
    }

    /// Calls `each` for consecutive runs of the columns `0..width`, with the first column of the run and whether each
    /// of its columns is kept.
    ///
    /// Hashes and comparisons are separate loops, because the compiler vectorises those but not a combined loop.
    #[inline(always)]
    pub(crate) fn for_each_run(&self, width: usize, mut each: impl FnMut(usize, &[bool])) {
        let mut keeps = [false; RUN];
        for first in (0..width).step_by(RUN) {
            let group = (first / LANES) as u64;
            // The first column is in the lowest bits, on little-endian and big-endian machines.
            let bits: [u64; RUN / LANES] = std::array::from_fn(|i| self.key.at(group + i as u64).to_le());
            let lanes: [u16; RUN] = bytemuck::cast(bits);
            (0..RUN).for_each(|i| keeps[i] = u16::from_le(lanes[i]) >= self.threshold);
            each(first, &keeps[..RUN.min(width - first)]);
        }
    }
}

/// Writes `x` (rows x `width`) to `out`, with kept elements scaled and dropped elements replaced by 0.
pub fn dropout<T: Real>(x: &[T], width: usize, mask: Mask, out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "length of the output");
    if width == 0 {
        return;
    }
    let _work = work::begin("dropout", || Cost::stream(size_of_val(x), size_of_val(x)));
    out.par_chunks_mut(width).zip(x.par_chunks(width)).enumerate().for_each(|(r, (out, x))| {
        out.copy_from_slice(x);
        drop_row::<T>(Level::best(), mask, r, out);
    });
}

/// Writes the stored values of `x` to `out`, with kept elements scaled and dropped elements replaced by 0: what [`dropout`]
/// gives for the same elements of a dense matrix.
pub fn dropout_sparse<T: Real>(x: SparseRows<T>, mask: Mask, out: &mut [T]) {
    assert_eq!(x.stored(), out.len(), "length of the output");
    let _work = work::begin("dropout", || Cost::stream(size_of_val(out) * 2, size_of_val(out)));
    let scale = mask.scale::<T>();
    let mut rest = out;
    let mut tasks = Vec::new();
    for first in (0..x.rows()).step_by(SPARSE_ROWS) {
        let rows = first..(first + SPARSE_ROWS).min(x.rows());
        let (out, after) = std::mem::take(&mut rest).split_at_mut(x.some(rows.clone()).stored());
        tasks.push((rows, out));
        rest = after;
    }
    tasks.into_par_iter().for_each(|(rows, mut out)| {
        for r in rows {
            let (mask, (columns, values)) = (mask.row(r), x.row(r));
            let (row, after) = std::mem::take(&mut out).split_at_mut(values.len());
            out = after;
            for ((out, &x), &column) in row.iter_mut().zip(values).zip(columns) {
                *out = if mask.keeps(column as usize) { x * scale } else { T::zero() };
            }
        }
    });
}

/// Applies [`dropout`] in place. This is also its backward: it turns the gradient of the output into that of the input.
pub fn dropout_in_place<T: Real>(grad: &mut [T], width: usize, mask: Mask) {
    if width == 0 {
        return;
    }
    let _work = work::begin("dropout backward", || Cost::stream(size_of_val(grad), size_of_val(grad)));
    grad.par_chunks_mut(width).enumerate().for_each(|(r, grad)| drop_row::<T>(Level::best(), mask, r, grad));
}

#[inline(always)]
fn drop_row_body<I: Isa, T: Real>(mask: Mask, row: usize, x: &mut [T]) {
    let scale = mask.scale();
    mask.row(row).for_each_run(x.len(), |first, keeps| {
        let run = x[first..].iter_mut().zip(keeps);
        run.for_each(|(x, &keep)| *x = if keep { *x * scale } else { T::zero() });
    });
}
dispatch!(fn drop_row[T: Real](mask: Mask, row: usize, x: &mut [T]) = drop_row_body);

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 50;

    fn masked(ids: Option<&[u32]>, rows: usize, p: f64) -> Vec<f64> {
        let mut out = vec![f64::NAN; rows * WIDTH];
        let mask = Mask::new(Key::new(1, "dropout"), p, ids).expect("p is not 0");
        dropout(&vec![1.0; rows * WIDTH], WIDTH, mask, &mut out);
        let mut grad = vec![1.0; rows * WIDTH];
        dropout_in_place(&mut grad, WIDTH, mask);
        assert_eq!(grad, out, "the backward uses the same mask");
        out
    }

    #[test]
    fn drop_rate_and_scale_match_the_probability() {
        for p in [0.1, 0.5, 0.9] {
            let x = masked(None, 4000, p);
            let dropped = x.iter().filter(|&&x| x == 0.0).count() as f64 / x.len() as f64;
            assert!((dropped - p).abs() < 0.005, "{dropped}");
            assert!(x.iter().all(|&x| x == 0.0 || (x - 1.0 / (1.0 - p)).abs() < 1e-3));
        }
    }

    #[test]
    fn columns_and_rows_are_dropped_independently() {
        let x = masked(None, 4000, 0.5);
        let both = |a: usize, b: usize| {
            let kept = x.chunks_exact(WIDTH).filter(|row| row[a] > 0.0 && row[b] > 0.0).count();
            kept as f64 / 4000.0
        };
        for (a, b) in [(0, 1), (0, 3), (3, 4), (0, 4), (48, 49)] {
            assert!((both(a, b) - 0.25).abs() < 0.03, "columns {a} and {b}: {}", both(a, b));
        }
    }

    #[test]
    fn the_mask_of_a_row_depends_on_its_id_only() {
        let whole = masked(None, 10, 0.5);
        let some = masked(Some(&[7, 2]), 2, 0.5);
        assert_eq!(some[..WIDTH], whole[7 * WIDTH..8 * WIDTH]);
        assert_eq!(some[WIDTH..], whole[2 * WIDTH..3 * WIDTH]);
    }

    #[test]
    fn runs_match_single_columns() {
        let mask = Mask::new(Key::new(3, "dropout"), 0.3, None).unwrap();
        for width in [1, 63, 64, 65, 200] {
            let mut columns = 0;
            mask.row(5).for_each_run(width, |first, keeps| {
                assert_eq!(first, columns);
                columns += keeps.len();
                keeps.iter().zip(first..).for_each(|(&keep, c)| assert_eq!(mask.row(5).keeps(c), keep));
            });
            assert_eq!(columns, width);
        }
    }

    #[test]
    fn stored_values_are_dropped_as_in_a_dense_matrix() {
        let ids: Vec<u32> = (0..150).map(|r| r * 7 % 150).collect();
        let x: Vec<f64> = (0..150 * WIDTH).map(|i| if i % 3 == 0 { i as f64 + 1.0 } else { 0.0 }).collect();
        let stored: Vec<usize> = (0..x.len()).filter(|&i| x[i] != 0.0).collect();
        let starts: Vec<u64> = (0..=150).map(|r| stored.partition_point(|&i| i < r * WIDTH) as u64).collect();
        let columns: Vec<u32> = stored.iter().map(|&i| (i % WIDTH) as u32).collect();
        let values: Vec<f64> = stored.iter().map(|&i| x[i]).collect();
        let mask = Mask::new(Key::new(4, "dropout"), 0.4, Some(&ids)).unwrap();
        let mut want = vec![f64::NAN; x.len()];
        dropout(&x, WIDTH, mask, &mut want);
        let mut got = vec![f64::NAN; values.len()];
        dropout_sparse(SparseRows::new(&starts, &columns, &values, WIDTH), mask, &mut got);
        assert!(stored.iter().zip(&got).all(|(&i, got)| want[i] == *got));
    }

    #[test]
    fn extreme_probabilities_are_rounded() {
        assert!(Mask::new(Key::new(1, "dropout"), 0.0, None).is_none());
        assert!(Mask::new(Key::new(1, "dropout"), 1e-6, None).is_none());
        assert_eq!(Mask::new(Key::new(1, "dropout"), 1.0 - 1e-9, None).unwrap().scale::<f64>(), 65536.0);
    }
}
