//! Helpers of the tests of this crate.

use crate::Real;
use crate::keyed::Key;

/// Returns `len` reproducible numbers in `[-1, 1)`, different for every `seed`.
pub(crate) fn noise<T: Real>(seed: u64, len: usize) -> Vec<T> {
    let key = Key::new(seed, "test noise");
    (0..len as u64).map(|i| T::of(2.0 * key.unit(i) - 1.0)).collect()
}

/// Checks that `got` equals `want` within `tolerance`, relative to the larger of 1 and the expected value.
#[track_caller]
pub(crate) fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * w.abs().max(1.0), "element {i}: {g}, expected {w}");
    }
}

/// Checks `grad` against central differences of `f` at `x`.
#[track_caller]
pub(crate) fn assert_gradient(x: &[f64], grad: &[f64], f: impl Fn(&[f64]) -> f64) {
    const STEP: f64 = 1e-5;
    let mut x = x.to_vec();
    let numeric: Vec<f64> = (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + STEP;
            let above = f(&x);
            x[i] = at - STEP;
            let below = f(&x);
            x[i] = at;
            (above - below) / (2.0 * STEP)
        })
        .collect();
    assert_close(grad, &numeric, 1e-7);
}

/// Returns the dot product: a loss whose gradient with respect to `output` is `weights`.
pub(crate) fn dot(weights: &[f64], output: &[f64]) -> f64 {
    weights.iter().zip(output).map(|(w, o)| w * o).sum()
}

/// Returns bounds and columns of a random `rows` x `cols` pattern. Rows may be empty; columns may repeat.
pub(crate) fn pattern(seed: u64, rows: usize, cols: usize) -> (Vec<u64>, Vec<u32>) {
    let key = Key::new(seed, "test pattern");
    let mut starts = vec![0];
    let mut columns = Vec::new();
    for r in 0..rows as u64 {
        let row = key.with(r);
        columns.extend((0..row.below(0, 5)).map(|i| row.below(1 + i, cols as u64) as u32));
        starts.push(columns.len() as u64);
    }
    (starts, columns)
}
