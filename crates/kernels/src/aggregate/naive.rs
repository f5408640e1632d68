//! Reference implementation for any precision; tests compare the fast one with it.

use half::f16;
use rayon::prelude::*;

use super::Weights;
use crate::Real;
use crate::sparse::Pattern;

/// As [`super::aggregate`] or, with `accumulate`, [`super::add_aggregate`], row by row and entry by entry.
pub fn aggregate<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[T],
    width: usize,
    accumulate: bool,
    out: &mut [T],
) {
    weights.check(pattern, x.len(), width, out.len());
    if width == 0 {
        return;
    }
    out.par_chunks_mut(width).enumerate().for_each(|(r, out)| {
        let before = accumulate.then(|| out.to_vec());
        out.fill(T::zero());
        for e in pattern.row(r) {
            let c = pattern.columns[e] as usize;
            let entry = weights.entries.map_or(T::one(), |a| T::of(a[e] as f64));
            let weight = weights.source.map_or(entry, |s| entry * s[c]);
            add(weight, &x[c * width..(c + 1) * width], out);
        }
        if let Some(scale) = weights.destination {
            out.iter_mut().for_each(|o| *o *= scale[r]);
        }
        if let Some((weight, from)) = weights.self_loops.and_then(|loops| loops.of(r)) {
            add(weight, &x[from * width..(from + 1) * width], out);
        }
        before.iter().for_each(|before| add(T::one(), before, out));
    });
}

/// As [`super::aggregate_half`] or, with `accumulate`, [`super::add_aggregate_half`]. Allocates a copy of `x` in `T`.
pub fn aggregate_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    accumulate: bool,
    out: &mut [T],
) {
    let mut wide = vec![T::zero(); x.len()];
    T::widen(x, &mut wide);
    aggregate(pattern, weights, &wide, width, accumulate, out);
}

/// Computes `out += weight * x`.
pub(crate) fn add<T: Real>(weight: T, x: &[T], out: &mut [T]) {
    out.iter_mut().zip(x).for_each(|(o, &x)| *o += weight * x);
}
