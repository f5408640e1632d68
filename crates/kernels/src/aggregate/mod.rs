//! Weighted sums of rows along a sparse pattern: the heart of message passing.
//!
//! `out[r] = d[r] * Σ_{e in row r} s[c_e] * x[c_e] + w[i] * x[own.x_first + i]`, where any of the weights may be absent
//! and the last term, of self-loops that the pattern does not hold, is that of rows `r = own.out_first + i`.
//! The backward with respect to `x` is the same sum over the transposed pattern with `s` and `d` exchanged:
//! a gather as well, hence without races and in a fixed order.
//!
//! [`naive`] is the sum as it is written here, [`fast`] what single precision uses.

use std::any::TypeId;

use half::f16;

use self::fast::Aggregation;
use crate::real::{self, Real};
use crate::simd::Level;
use crate::sparse::Pattern;
use crate::work::{self, Cost};

pub mod fast;
mod lanes;
pub mod naive;
#[cfg(test)]
mod tests;

/// What multiplies the terms of a sum; absent means 1, or for `own` no such term.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a, T> {
    /// By column, `s`.
    pub source: Option<&'a [T]>,
    /// By row, `d`.
    pub destination: Option<&'a [T]>,
    /// Of the rows' own terms, `w`.
    pub own: Option<Own<'a, T>>,
}

/// Self-loops that are not stored, the last terms of a run of rows. `destination` does not multiply them.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a, T> {
    /// A weight for each row of the run.
    pub weight: &'a [T],
    /// First row of the run.
    pub out_first: usize,
    /// The row of `x` that is the first one's own; the others follow.
    pub x_first: usize,
}

impl<T: Copy> Own<'_, T> {
    /// Weight and row of `x` of the own term of row `r`.
    #[inline]
    pub(crate) fn of(self, r: usize) -> Option<(T, usize)> {
        let i = r.checked_sub(self.out_first)?;
        Some((*self.weight.get(i)?, self.x_first + i))
    }
}

impl<T> Default for Weights<'_, T> {
    fn default() -> Self {
        Weights { source: None, destination: None, own: None }
    }
}

impl<T> Weights<'_, T> {
    /// The weights of the transposed sum.
    #[must_use]
    pub fn transposed(self) -> Self {
        let own = self.own.map(|own| Own { out_first: own.x_first, x_first: own.out_first, ..own });
        Weights { source: self.destination, destination: self.source, own }
    }

    /// Panics unless these weights, `x` and `out` numbers fit a pattern.
    fn check(&self, pattern: Pattern, x: usize, width: usize, out: usize) {
        assert_eq!(out, pattern.rows() * width, "one sum a row of the pattern");
        let sources = x.checked_div(width).unwrap_or(0);
        assert_eq!(x, sources * width, "whole rows of {width}");
        assert_eq!(pattern.starts.len(), pattern.ends.len(), "rows that begin also end");
        assert!(width == 0 || self.source.is_none_or(|s| s.len() == sources), "a weight for every column");
        assert!(self.destination.is_none_or(|d| d.len() == pattern.rows()), "a weight for every row");
        if let Some(own) = &self.own {
            assert!(own.out_first + own.weight.len() <= pattern.rows(), "own terms are of rows there are");
            assert!(width == 0 || own.x_first + own.weight.len() <= sources, "own rows are there");
        }
    }
}

/// Fills `out` (pattern rows x `width`) with weighted sums of the rows of `x` (columns x `width`).
pub fn aggregate<T: Real>(pattern: Pattern, weights: Weights<T>, x: &[T], width: usize, out: &mut [T]) {
    sum(pattern, weights, x, width, false, out);
}

/// As [`aggregate`], adding to what `out` holds: the terms of other columns that were summed before.
pub fn add_aggregate<T: Real>(pattern: Pattern, weights: Weights<T>, x: &[T], width: usize, out: &mut [T]) {
    sum(pattern, weights, x, width, true, out);
}

/// As [`aggregate`], of rows stored in half precision.
pub fn aggregate_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    out: &mut [T],
) {
    sum_half(pattern, weights, x, width, false, out);
}

/// As [`add_aggregate`], of rows stored in half precision.
pub fn add_aggregate_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    out: &mut [T],
) {
    sum_half(pattern, weights, x, width, true, out);
}

fn sum<T: Real>(pattern: Pattern, weights: Weights<T>, x: &[T], width: usize, keep: bool, out: &mut [T]) {
    let _work =
        work::begin("aggregation", || cost(pattern, &weights, width * size_of::<T>(), size_of_val(x), out));
    if let (Some(x), Some(weights)) = (real::single(x), single(weights)) {
        let out = bytemuck::cast_slice_mut(out);
        let level = Level::best();
        return fast::aggregate(Aggregation { level, pattern, weights, x, width, keep }, out);
    }
    naive::aggregate(pattern, weights, x, width, keep, out);
}

fn sum_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    keep: bool,
    out: &mut [T],
) {
    let _work =
        work::begin("aggregation", || cost(pattern, &weights, width * size_of::<f16>(), size_of_val(x), out));
    if let Some(weights) = single(weights) {
        let out = bytemuck::cast_slice_mut(out);
        let level = Level::best();
        return fast::aggregate_half(Aggregation { level, pattern, weights, x, width, keep }, out);
    }
    naive::aggregate_half(pattern, weights, x, width, keep, out);
}

/// What a sum of rows of `row_bytes` costs.
fn cost<T>(pattern: Pattern, weights: &Weights<T>, row_bytes: usize, set_bytes: usize, out: &[T]) -> Cost {
    let lists = [weights.source, weights.destination].into_iter().flatten().map(size_of_val);
    let own = weights.own.as_ref().map_or(0, |own| own.weight.len() * (row_bytes + size_of::<T>()));
    Cost::gather(pattern, row_bytes, set_bytes, lists.sum::<usize>() + own + size_of_val(out))
}

/// The weights in single precision, if that is what they are in.
fn single<T: Real>(weights: Weights<'_, T>) -> Option<Weights<'_, f32>> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| Weights {
        source: weights.source.and_then(real::single),
        destination: weights.destination.and_then(real::single),
        own: weights.own.map(|own| Own {
            weight: bytemuck::cast_slice(own.weight),
            out_first: own.out_first,
            x_first: own.x_first,
        }),
    })
}
