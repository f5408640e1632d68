//! Dropout whose mask is a function of (key, dataset vertex id, column), and so is stored nowhere.

use rayon::prelude::*;

use crate::Real;
use crate::keyed::Key;

/// What element `column` of the stream `row` is multiplied by: 0 with probability `p`, else `1 / (1 - p)`.
#[inline]
pub fn factor<T: Real>(row: Key, column: u64, p: f64) -> T {
    if row.unit(column) < p { T::zero() } else { T::of(1.0 / (1.0 - p)) }
}

/// Drops elements of `x` (rows x `width`) with probability `p` and scales the others by `1 / (1 - p)`.
///
/// `ids[r]` is the dataset id of row `r`; absent, rows are their own ids. The backward is the same function
/// applied to the gradient with the same key.
pub fn dropout<T: Real>(x: &mut [T], width: usize, ids: Option<&[u32]>, key: Key, p: f64) {
    if p == 0.0 || x.is_empty() {
        return;
    }
    assert!(ids.is_none_or(|ids| ids.len() * width == x.len()), "an id for every row");
    x.par_chunks_mut(width).enumerate().for_each(|(r, x)| {
        let row = key.with(ids.map_or(r as u64, |ids| ids[r] as u64));
        x.iter_mut().enumerate().for_each(|(c, x)| *x *= factor(row, c as u64, p));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: usize = 50;

    fn mask(ids: Option<&[u32]>, rows: usize, p: f64) -> Vec<f64> {
        let mut x = vec![1.0; rows * WIDTH];
        dropout(&mut x, WIDTH, ids, Key::new(1, "dropout"), p);
        x
    }

    #[test]
    fn share_and_scale_are_right() {
        let x = mask(None, 2000, 0.3);
        let dropped = x.iter().filter(|&&x| x == 0.0).count() as f64 / x.len() as f64;
        assert!((dropped - 0.3).abs() < 0.01, "{dropped}");
        assert!(x.iter().all(|&x| x == 0.0 || (x - 1.0 / 0.7).abs() < 1e-15));
    }

    #[test]
    fn a_row_keeps_its_mask_wherever_it_is_stored() {
        let whole = mask(None, 10, 0.5);
        let some = mask(Some(&[7, 2]), 2, 0.5);
        assert_eq!(some[..WIDTH], whole[7 * WIDTH..8 * WIDTH]);
        assert_eq!(some[WIDTH..], whole[2 * WIDTH..3 * WIDTH]);
    }

    #[test]
    fn the_ends_keep_everything_or_nothing() {
        assert!(mask(None, 2, 0.0).iter().all(|&x| x == 1.0));
        assert!(mask(None, 2, 1.0).iter().all(|&x| x == 0.0));
    }
}
