//! Merges the attention over two parts of the entries into that over all entries.
//!
//! Let S and m be the softmax denominator and the maximum logit of a part. In the softmax over all entries, part A
//! has the weight `a = S_A exp(m_A - m) / (S_A exp(m_A - m) + S_B exp(m_B - m))` and part B has b = 1 - a. Outputs
//! and mean slopes κ are averaged with these weights. For the derivatives `Σ k α f z - out κ`:
//!
//! ```text
//! derivative = a derivative_A + b derivative_B + a b (κ_A - κ_B) (out_A - out_B)
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::saved::{Saved, SavedRows};
use crate::Real;
use crate::sparse::split_by_task;
use crate::work::{self, Cost};

/// Rows of the second part per task.
const RUN: usize = 256;

/// Merges the forward of a second part, `from` and `from_out`, into that of the first, `saved` and `out`. The result
/// equals the forward over the entries of both parts, up to rounding.
///
/// `rows_of_from` maps the rows of the second part to rows of the first, strictly ascending; `None`: the identity. A
/// row may have no entries in either part. Both forwards must be with a backward, or both without.
pub fn merge<T: Real>(
    (saved, out): (&mut Saved<T>, &mut [T]),
    (from, from_out): (&Saved<T>, &[T]),
    rows_of_from: Option<&[u32]>,
    heads: usize,
    width: usize,
) {
    let all = heads * width;
    let (rows, from_rows) = (saved.max.len() / heads, from.max.len() / heads);
    let _work = work::begin("attention merge", || cost(from, heads, width));
    assert_eq!(saved.slopes.is_some(), from.slopes.is_some(), "both parts with a backward, or both without");
    assert_eq!((out.len(), from_out.len()), (rows * all, from_rows * all), "length of the outputs");
    let listed = rows_of_from.map_or(rows, <[u32]>::len);
    assert_eq!(listed, from_rows, "number of rows of the second part");
    let ascending = |rows: &[u32]| rows.is_sorted_by(|a, b| a < b);
    assert!(rows_of_from.is_none_or(ascending), "rows of the second part are not strictly ascending");

    let row_of = |i: usize| rows_of_from.map_or(i, |rows| rows[i] as usize);
    let tasks = tasks(rows, from_rows, row_of);
    let parts =
        saved.split_by_task(&tasks, heads, width).into_par_iter().zip(split_by_task(&tasks, all, out));
    parts.zip(&tasks).enumerate().for_each(|(task, ((mut saved, out), rows))| {
        for i in task * RUN..from_rows.min((task + 1) * RUN) {
            let r = row_of(i) - rows.start;
            let into = (saved.row(r, heads, width), &mut out[r * all..(r + 1) * all]);
            merge_row(into, (from, from_out), i, width);
        }
    });
}

/// Splits the rows of the first part into tasks, each with the rows of a run of the second part.
fn tasks(rows: usize, from_rows: usize, row_of: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let starts = (0..from_rows).step_by(RUN).map(|i| if i == 0 { 0 } else { row_of(i) });
    let bounds: Vec<usize> = starts.chain([rows]).collect();
    bounds.windows(2).map(|bounds| bounds[0]..bounds[1]).collect()
}

/// Returns the cost: per row of the second part, two rows are read and one is written.
fn cost<T: Real>(from: &Saved<T>, heads: usize, width: usize) -> Cost {
    // Output, maximum logit and inverse sum; with a backward, derivative and mean slope.
    let numbers = heads * (width + 2) + from.slopes.as_ref().map_or(0, |_| heads * (width + 1));
    let bytes = from.max.len() / heads * numbers * size_of::<T>();
    Cost::stream(2 * bytes, bytes)
}

/// Merges row `i` of `from` into a row of the first part.
pub(super) fn merge_row<T: Real>(
    (mut saved, out): (SavedRows<T>, &mut [T]),
    (from, from_out): (&Saved<T>, &[T]),
    i: usize,
    width: usize,
) {
    let heads = saved.max.len();
    for (h, out) in out.chunks_exact_mut(width).enumerate() {
        let at = i * heads + h;
        let columns = at * width..(at + 1) * width;
        let sums = [&mut saved.max[h], &mut saved.inverse_sum[h]];
        let Some([a, b]) = merge_sums(sums, [from.max[at], from.inverse_sum[at]]) else { continue };
        let from_out = &from_out[columns.clone()];
        if let (Some(slopes), Some(from)) = (&mut saved.slopes, &from.slopes) {
            let cross = a * b * (slopes.mean[h] - from.mean[at]);
            let derivatives = slopes.derivative[h * width..(h + 1) * width].iter_mut();
            let derivatives = derivatives.zip(&from.derivative[columns]);
            for ((d, &from_d), (&o, &from_o)) in derivatives.zip(out.iter().zip(from_out)) {
                *d = a * *d + b * from_d + cross * (o - from_o);
            }
            slopes.mean[h] = a * slopes.mean[h] + b * from.mean[at];
        }
        out.iter_mut().zip(from_out).for_each(|(o, &from_o)| *o = a * *o + b * from_o);
    }
}

/// Merges maximum and inverse sum of the second part into those of the first. Returns the weights of both parts; `None`
/// if the second has no entries.
fn merge_sums<T: Real>(
    [max, inverse_sum]: [&mut T; 2],
    [from_max, from_inverse_sum]: [T; 2],
) -> Option<[T; 2]> {
    if from_inverse_sum == T::zero() {
        return None;
    }
    if *inverse_sum == T::zero() {
        (*max, *inverse_sum) = (from_max, from_inverse_sum);
        return Some([T::zero(), T::one()]);
    }
    let largest = (*max).max(from_max);
    let weights = [(*max - largest).exp() / *inverse_sum, (from_max - largest).exp() / from_inverse_sum];
    let sum = weights[0] + weights[1];
    (*max, *inverse_sum) = (largest, T::one() / sum);
    Some(weights.map(|weight| weight / sum))
}
