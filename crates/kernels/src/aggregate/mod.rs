//! Sparse aggregation (SpMM): weighted sums of rows along a sparse pattern.
//!
//! ```text
//! out[r] = d[r] * Σ_{e in row r} a[e] * s[c_e] * x[c_e]  +  w[i] * x[x_first + i]      for r = out_first + i
//! ```
//!
//! The last term is that of self-loops, which the pattern does not contain. Each of the weights `a`, `s`, `d` and `w` is
//! optional. The backward with respect to `x` is the same sum over the transposed pattern with `s` and `d` swapped and `a`
//! in the order of its entries.
//! Both directions are gathers, so they need no atomics and add in a fixed order.
//!
//! [`fast`] is the implementation for `f32`; [`naive`] is the reference, also used for `f64`.

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

/// Weights of an aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a, T> {
    /// `a`, one per entry, in the order of the columns of the pattern; `None`: 1.
    pub entries: Option<&'a [f32]>,
    /// `s`, one per column; `None`: 1.
    pub source: Option<&'a [T]>,
    /// `d`, one per row; `None`: 1.
    pub destination: Option<&'a [T]>,
    /// Self-loops; `None`: none.
    pub self_loops: Option<SelfLoops<'a, T>>,
}

/// Self-loops of consecutive rows, not stored in the pattern. [`Weights::destination`] does not scale them.
#[derive(Debug, Clone, Copy)]
pub struct SelfLoops<'a, T> {
    /// `w`, one per row with a self-loop.
    pub weight: &'a [T],
    /// First row with a self-loop.
    pub out_first: usize,
    /// Row of `x` that belongs to row `out_first`; the following rows correspond in order.
    pub x_first: usize,
}

impl<T: Copy> SelfLoops<'_, T> {
    /// Returns the weight and the row of `x` of the self-loop of row `r`, if there is one.
    #[inline]
    pub(crate) fn of(self, r: usize) -> Option<(T, usize)> {
        let i = r.checked_sub(self.out_first)?;
        Some((*self.weight.get(i)?, self.x_first + i))
    }
}

impl<T> Default for Weights<'_, T> {
    fn default() -> Self {
        Weights { entries: None, source: None, destination: None, self_loops: None }
    }
}

impl<'a, T> Weights<'a, T> {
    /// Returns the weights of the transposed aggregation. `entries`: the weights of entries in the order of the transposed
    /// pattern, if there are any.
    #[must_use]
    pub fn transposed(self, entries: Option<&'a [f32]>) -> Self {
        assert_eq!(entries.is_some(), self.entries.is_some(), "both directions have weights of entries");
        let self_loops = self.self_loops.map(|loops| SelfLoops {
            out_first: loops.x_first,
            x_first: loops.out_first,
            ..loops
        });
        Weights { entries, source: self.destination, destination: self.source, self_loops }
    }

    /// Panics unless the weights, `x` numbers of input and `out` numbers of output match the pattern.
    fn check(&self, pattern: Pattern, x: usize, width: usize, out: usize) {
        assert_eq!(out, pattern.rows() * width, "length of the output");
        let sources = x.checked_div(width).unwrap_or(0);
        assert_eq!(x, sources * width, "length of the input: whole rows of {width}");
        assert_eq!(pattern.starts.len(), pattern.ends.len(), "length of the row bounds");
        assert!(
            self.entries.is_none_or(|a| a.len() == pattern.columns.len()),
            "one weight per entry of the pattern"
        );
        assert!(width == 0 || self.source.is_none_or(|s| s.len() == sources), "one source weight per column");
        assert!(self.destination.is_none_or(|d| d.len() == pattern.rows()), "one destination weight per row");
        if let Some(loops) = &self.self_loops {
            assert!(loops.out_first + loops.weight.len() <= pattern.rows(), "self-loops within the rows");
            assert!(
                width == 0 || loops.x_first + loops.weight.len() <= sources,
                "self-loops within the columns"
            );
        }
    }
}

/// Writes the weighted sums of rows of `x` (columns x `width`) to `out` (pattern rows x `width`).
pub fn aggregate<T: Real>(pattern: Pattern, weights: Weights<T>, x: &[T], width: usize, out: &mut [T]) {
    sum(pattern, weights, x, width, false, out);
}

/// As [`aggregate`], but adds to `out`, e.g. to the sums over other columns.
pub fn add_aggregate<T: Real>(pattern: Pattern, weights: Weights<T>, x: &[T], width: usize, out: &mut [T]) {
    sum(pattern, weights, x, width, true, out);
}

/// As [`aggregate`], with rows stored in half precision.
pub fn aggregate_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    out: &mut [T],
) {
    sum_half(pattern, weights, x, width, false, out);
}

/// As [`add_aggregate`], with rows stored in half precision.
pub fn add_aggregate_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    out: &mut [T],
) {
    sum_half(pattern, weights, x, width, true, out);
}

fn sum<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[T],
    width: usize,
    accumulate: bool,
    out: &mut [T],
) {
    let _work =
        work::begin("aggregation", || cost(pattern, &weights, width * size_of::<T>(), size_of_val(x), out));
    if let (Some(x), Some(weights)) = (real::single(x), single(weights)) {
        let out = bytemuck::cast_slice_mut(out);
        let level = Level::best();
        return fast::aggregate(Aggregation { level, pattern, weights, x, width, accumulate }, out);
    }
    naive::aggregate(pattern, weights, x, width, accumulate, out);
}

fn sum_half<T: Real>(
    pattern: Pattern,
    weights: Weights<T>,
    x: &[f16],
    width: usize,
    accumulate: bool,
    out: &mut [T],
) {
    let _work =
        work::begin("aggregation", || cost(pattern, &weights, width * size_of::<f16>(), size_of_val(x), out));
    if let Some(weights) = single(weights) {
        let out = bytemuck::cast_slice_mut(out);
        let level = Level::best();
        return fast::aggregate_half(Aggregation { level, pattern, weights, x, width, accumulate }, out);
    }
    naive::aggregate_half(pattern, weights, x, width, accumulate, out);
}

/// Returns the cost of an aggregation of rows of `row_bytes`.
fn cost<T>(pattern: Pattern, weights: &Weights<T>, row_bytes: usize, set_bytes: usize, out: &[T]) -> Cost {
    let lists = [weights.source, weights.destination].into_iter().flatten().map(size_of_val);
    let loops =
        weights.self_loops.as_ref().map_or(0, |loops| loops.weight.len() * (row_bytes + size_of::<T>()));
    let entries = weights.entries.map_or(0, |_| pattern.entries() * size_of::<f32>());
    Cost::gather(pattern, row_bytes, set_bytes, lists.sum::<usize>() + entries + loops + size_of_val(out))
}

/// Casts the weights to `f32`, if `T` is `f32`.
fn single<T: Real>(weights: Weights<'_, T>) -> Option<Weights<'_, f32>> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| Weights {
        entries: weights.entries,
        source: weights.source.and_then(real::single),
        destination: weights.destination.and_then(real::single),
        self_loops: weights.self_loops.map(|loops| SelfLoops {
            weight: bytemuck::cast_slice(loops.weight),
            out_first: loops.out_first,
            x_first: loops.x_first,
        }),
    })
}
