//! Attention over entries that come in two parts.
//!
//! With S the sum of a part's exponentials, `a = S_a exp(top_a - top)` over the sum of both and b = 1 - a are the shares
//! of the parts in the softmax over all entries. Outputs and mean slopes κ are means under these shares, and of the
//! derivatives, `Σ k α f z - out κ` each, follows
//!
//! ```text
//! derivative = a derivative_a + b derivative_b + a b (κ_a - κ_b) (out_a - out_b)
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::saved::{Saved, SavedRows};
use crate::Real;
use crate::sparse::split_by_task;
use crate::work::{self, Cost};

/// Rows of the second part in a task.
const RUN: usize = 256;

/// Makes of `saved` and `out`, of an attention over some entries, those of the attention over the entries of `from` as
/// well, up to rounding: the forward over all of them at once.
///
/// `rows_of_from` names, rising, the row that each row of `from` is about; `None`: the same rows in both. Either part of
/// a row may be without entries. Both must have been saved in the same form.
pub fn merge<T: Real>(
    (saved, out): (&mut Saved<T>, &mut [T]),
    (from, from_out): (&Saved<T>, &[T]),
    rows_of_from: Option<&[u32]>,
    heads: usize,
    width: usize,
) {
    let all = heads * width;
    let (rows, from_rows) = (saved.top.len() / heads, from.top.len() / heads);
    let _work = work::begin("attention merge", || cost(from, heads, width));
    assert_eq!(saved.slopes.is_some(), from.slopes.is_some(), "both parts with a backward, or none");
    assert_eq!((out.len(), from_out.len()), (rows * all, from_rows * all), "outputs of what was saved");
    let listed = rows_of_from.map_or(rows, <[u32]>::len);
    assert_eq!(listed, from_rows, "a row of the first part for every one of the second");
    let in_order = |rows: &[u32]| rows.is_sorted_by(|a, b| a < b);
    assert!(rows_of_from.is_none_or(in_order), "rows in their order, once each");

    let row_of = |i: usize| rows_of_from.map_or(i, |rows| rows[i] as usize);
    let tasks = tasks(rows, from_rows, row_of);
    let parts = saved.of_tasks(&tasks, heads, width).into_par_iter().zip(split_by_task(&tasks, all, out));
    parts.zip(&tasks).enumerate().for_each(|(task, ((mut saved, out), rows))| {
        for i in task * RUN..from_rows.min((task + 1) * RUN) {
            let r = row_of(i) - rows.start;
            let into = (saved.row(r, heads, width), &mut out[r * all..(r + 1) * all]);
            merge_row(into, (from, from_out), i, width);
        }
    });
}

/// The rows of the first part that each run of rows of the second is about, with those between them.
fn tasks(rows: usize, from_rows: usize, row_of: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
    let starts = (0..from_rows).step_by(RUN).map(|i| if i == 0 { 0 } else { row_of(i) });
    let cuts: Vec<usize> = starts.chain([rows]).collect();
    cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
}

/// Two rows are read and one is written.
fn cost<T: Real>(from: &Saved<T>, heads: usize, width: usize) -> Cost {
    // Output, largest logit and inverse sum; derivative and mean slope.
    let numbers = heads * (width + 2) + from.slopes.as_ref().map_or(0, |_| heads * (width + 1));
    let bytes = from.top.len() / heads * numbers * size_of::<T>();
    Cost::stream(2 * bytes, bytes)
}

/// Merges row `i` of `from` into a row of the first part.
pub(super) fn merge_row<T: Real>(
    (mut saved, out): (SavedRows<T>, &mut [T]),
    (from, from_out): (&Saved<T>, &[T]),
    i: usize,
    width: usize,
) {
    let heads = saved.top.len();
    for (h, out) in out.chunks_exact_mut(width).enumerate() {
        let at = i * heads + h;
        let columns = at * width..(at + 1) * width;
        let sums = [&mut saved.top[h], &mut saved.inverse[h]];
        let Some([kept, added]) = merge_sums(sums, [from.top[at], from.inverse[at]]) else { continue };
        let from_out = &from_out[columns.clone()];
        if let (Some(slopes), Some(from)) = (&mut saved.slopes, &from.slopes) {
            let across = kept * added * (slopes.mean[h] - from.mean[at]);
            let derivatives = slopes.derivative[h * width..(h + 1) * width].iter_mut();
            let derivatives = derivatives.zip(&from.derivative[columns]);
            for ((d, &from_d), (&o, &from_o)) in derivatives.zip(out.iter().zip(from_out)) {
                *d = kept * *d + added * from_d + across * (o - from_o);
            }
            slopes.mean[h] = kept * slopes.mean[h] + added * from.mean[at];
        }
        out.iter_mut().zip(from_out).for_each(|(o, &from_o)| *o = kept * *o + added * from_o);
    }
}

/// Merges the softmax of another part into that of the first, and returns the shares of both; `None` if the other is
/// without entries.
fn merge_sums<T: Real>([top, inverse]: [&mut T; 2], [from_top, from_inverse]: [T; 2]) -> Option<[T; 2]> {
    if from_inverse == T::zero() {
        return None;
    }
    if *inverse == T::zero() {
        (*top, *inverse) = (from_top, from_inverse);
        return Some([T::zero(), T::one()]);
    }
    let largest = (*top).max(from_top);
    let weights = [(*top - largest).exp() / *inverse, (from_top - largest).exp() / from_inverse];
    let sum = weights[0] + weights[1];
    (*top, *inverse) = (largest, T::one() / sum);
    Some(weights.map(|weight| weight / sum))
}
