//! Dropout whose mask is a function of (key, dataset vertex id, column), and so is stored nowhere.
//!
//! One hash decides four columns, 16 bits each: a probability is rounded to a multiple of 1/65536, and what is kept is
//! scaled by exactly what that leaves, so that the mean stays as it was.

use rayon::prelude::*;

use crate::Real;
use crate::keyed::Key;
use crate::work::{self, Cost};

/// Columns that one hash decides.
const LANES: usize = 4;
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
        self.keeps_all((column / LANES) as u64)[column % LANES]
    }

    /// Whether columns `LANES * group` and following stay.
    #[inline(always)]
    fn keeps_all(&self, group: u64) -> [bool; LANES] {
        let bits = self.key.at(group);
        std::array::from_fn(|lane| (bits >> (16 * lane)) as u16 >= self.threshold)
    }

    /// Calls `each` with every column of a row of `width`, and whether it stays, from the first to the last.
    #[inline(always)]
    pub(crate) fn for_each(&self, width: usize, mut each: impl FnMut(usize, bool)) {
        let whole = width / LANES;
        for group in 0..whole {
            let keeps = self.keeps_all(group as u64);
            (0..LANES).for_each(|lane| each(group * LANES + lane, keeps[lane]));
        }
        (whole * LANES..width).for_each(|column| each(column, self.keeps(column)));
    }
}

/// Writes the kept elements of `x` (rows x `width`), scaled, to `out`, and zeros for the others.
pub fn dropout<T: Real>(x: &[T], width: usize, mask: Mask, out: &mut [T]) {
    assert_eq!(x.len(), out.len(), "matrices of one size");
    if width == 0 {
        return;
    }
    let _work = work::begin("dropout", || Cost::stream(size_of_val(x), size_of_val(x)));
    let scale = mask.scale();
    out.par_chunks_mut(width).zip(x.par_chunks(width)).enumerate().for_each(|(r, (out, x))| {
        mask.row(r).for_each(width, |c, keep| out[c] = if keep { x[c] * scale } else { T::zero() });
    });
}

/// As [`dropout`], in place; also its backward, which turns the gradient of its output into that of its input.
pub fn dropout_in_place<T: Real>(grad: &mut [T], width: usize, mask: Mask) {
    if width == 0 {
        return;
    }
    let _work = work::begin("dropout backward", || Cost::stream(size_of_val(grad), size_of_val(grad)));
    let scale = mask.scale();
    grad.par_chunks_mut(width).enumerate().for_each(|(r, grad)| {
        mask.row(r).for_each(width, |c, keep| grad[c] = if keep { grad[c] * scale } else { T::zero() });
    });
}

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
        mask.row(5).for_each(WIDTH, |c, keep| assert_eq!(mask.row(5).keeps(c), keep));
    }

    #[test]
    fn never_is_no_mask_and_nearly_always_still_keeps_the_mean() {
        assert!(Mask::new(Key::new(1, "dropout"), 0.0, None).is_none());
        assert!(Mask::new(Key::new(1, "dropout"), 1e-6, None).is_none());
        assert_eq!(Mask::new(Key::new(1, "dropout"), 1.0 - 1e-9, None).unwrap().scale::<f64>(), 65536.0);
    }
}
