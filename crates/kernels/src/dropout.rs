//! Dropout whose mask is a function of (key, dataset vertex id, column), and so is stored nowhere.
//!
//! One hash decides four columns, 16 bits each: a probability is rounded to a multiple of 1/65536, and what is kept is
//! scaled by exactly what that leaves, so that the mean stays as it was.

use rayon::prelude::*;

use crate::Real;
use crate::keyed::Key;
use crate::simd::{Isa, Level, dispatch};
use crate::work::{self, Cost};

/// Columns that one hash decides.
const LANES: usize = 4;
/// Columns decided at once.
const RUN: usize = 64;
/// Values of one lane.
const STEPS: f64 = 65536.0;

/// Which elements of a matrix are dropped.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    key: Key,
    /// Lanes below this are dropped.
    threshold: u16,
    /// Dataset id of each row; `None`: the row number.
    ids: Option<&'a [u32]>,
}

impl<'a> Mask<'a> {
    /// Elements are dropped with probability `p`, below 1; `None` if that is (rounded) never.
    pub fn new(key: Key, p: f64, ids: Option<&'a [u32]>) -> Option<Self> {
        let threshold = (p * STEPS).round().clamp(0.0, STEPS - 1.0) as u16;
        (threshold > 0).then_some(Mask { key, threshold, ids })
    }

    /// What kept elements are multiplied by.
    pub fn scale<T: Real>(&self) -> T {
        T::of(STEPS / (STEPS - self.threshold as f64))
    }

    /// The mask of one row.
    #[inline]
    pub fn row(&self, r: usize) -> RowMask {
        let id = self.ids.map_or(r as u64, |ids| ids[r] as u64);
        RowMask { key: self.key.with(id), threshold: self.threshold }
    }
}

/// Which elements of a row are dropped.
#[derive(Debug, Clone, Copy)]
pub struct RowMask {
    key: Key,
    threshold: u16,
}

impl RowMask {
    /// Whether the element in `column` stays.
    #[inline(always)]
    pub fn keeps(&self, column: usize) -> bool {
        let bits = self.key.at((column / LANES) as u64);
        (bits >> (16 * (column % LANES))) as u16 >= self.threshold
    }

    /// Calls `each` for every run of columns of a row of `width`, from the first to the last, with its first column and
    /// whether they stay.
    ///
    /// Hashes first, comparisons after: two loops that fit vector registers, where one of both does not.
    #[inline(always)]
    pub(crate) fn for_each_run(&self, width: usize, mut each: impl FnMut(usize, &[bool])) {
        let mut keeps = [false; RUN];
        for first in (0..width).step_by(RUN) {
            let group = (first / LANES) as u64;
            // The first lane is in the lowest bits, whatever the machine's order of bytes.
            let bits: [u64; RUN / LANES] = std::array::from_fn(|i| self.key.at(group + i as u64).to_le());
            let lanes: [u16; RUN] = bytemuck::cast(bits);
            (0..RUN).for_each(|i| keeps[i] = u16::from_le(lanes[i]) >= self.threshold);
            each(first, &keeps[..RUN.min(width - first)]);
        }
    }
}

/// Writes the kept elements of `x` (rows x `width`), scaled, to `out`, and zeros for the others.
pub fn dropout<T: Real>(x: &[T], width: usize, mask: Mask, out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "matrices of one size");
    if width == 0 {
        return;
    }
    let _work = work::begin("dropout", || Cost::stream(size_of_val(x), size_of_val(x)));
    out.par_chunks_mut(width).zip(x.par_chunks(width)).enumerate().for_each(|(r, (out, x))| {
        out.copy_from_slice(x);
        drop_row::<T>(Level::best(), mask, r, out);
    });
}

/// As [`dropout`], in place; also its backward, which turns the gradient of its output into that of its input.
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
        let mask = Mask::new(Key::new(1, "dropout"), p, ids).expect("something is dropped");
        dropout(&vec![1.0; rows * WIDTH], WIDTH, mask, &mut out);
        let mut grad = vec![1.0; rows * WIDTH];
        dropout_in_place(&mut grad, WIDTH, mask);
        assert_eq!(grad, out, "the backward is the same mask");
        out
    }

    #[test]
    fn share_and_scale_are_right() {
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
    fn a_row_keeps_its_mask_wherever_it_is_stored() {
        let whole = masked(None, 10, 0.5);
        let some = masked(Some(&[7, 2]), 2, 0.5);
        assert_eq!(some[..WIDTH], whole[7 * WIDTH..8 * WIDTH]);
        assert_eq!(some[WIDTH..], whole[2 * WIDTH..3 * WIDTH]);
    }

    #[test]
    fn one_column_is_asked_for_as_it_is_applied() {
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
    fn never_is_no_mask_and_nearly_always_still_keeps_the_mean() {
        assert!(Mask::new(Key::new(1, "dropout"), 0.0, None).is_none());
        assert!(Mask::new(Key::new(1, "dropout"), 1e-6, None).is_none());
        assert_eq!(Mask::new(Key::new(1, "dropout"), 1.0 - 1e-9, None).unwrap().scale::<f64>(), 65536.0);
    }
}
