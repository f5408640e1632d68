//! Row-wise kernels of attention: scores, and the mean of heads.

use std::ops::Range;

use rayon::prelude::*;

use crate::Real;
use crate::rows::{RUN, add_in_order};
use crate::simd::{Isa, Level, dispatch, sum_lanes};
use crate::work::{self, Cost};

/// Partial sums of a dot product, kept in vector registers.
const LANES: usize = 16;

/// Rows per task.
const TASK_ROWS: usize = 64;

/// Returns `x · y`, summed in [`LANES`] partial sums.
#[inline(always)]
pub(super) fn dot<T: Real>(x: &[T], y: &[T]) -> T {
    let (x_lanes, x_rest) = x.as_chunks::<LANES>();
    let (y_lanes, y_rest) = y.as_chunks::<LANES>();
    let mut sums = [T::zero(); LANES];
    for (x, y) in x_lanes.iter().zip(y_lanes) {
        (0..LANES).for_each(|i| sums[i] += x[i] * y[i]);
    }
    let rest: T = x_rest.iter().zip(y_rest).map(|(&x, &y)| x * y).sum();
    sum_lanes(sums) + rest
}

/// Computes the scores of `z` per head: `s = a_src · z` is written to the end of each message, `t = a_dst · z` to
/// `scores` (rows x heads).
///
/// `messages` is rows x (heads * width + heads), with `z` in the first columns. `source` and `destination` (heads x
/// width) are `a_src` and `a_dst`.
pub fn score<T: Real>(heads: usize, [source, destination]: [&[T]; 2], messages: &mut [T], scores: &mut [T]) {
    let all = source.len();
    let read = size_of_val(messages);
    let _work = work::begin("scores", || Cost::stream(read, 2 * size_of_val(scores)));
    let runs =
        messages.par_chunks_mut(TASK_ROWS * (all + heads)).zip(scores.par_chunks_mut(TASK_ROWS * heads));
    runs.for_each(|(messages, scores)| {
        score_rows::<T>(Level::best(), heads, [source, destination], messages, scores);
    });
}

#[inline(always)]
fn score_rows_body<I: Isa, T: Real>(heads: usize, a: [&[T]; 2], messages: &mut [T], scores: &mut [T]) {
    let [source, destination] = a;
    let all = source.len();
    let rows = messages.chunks_exact_mut(all + heads).zip(scores.chunks_exact_mut(heads));
    for (message, scores) in rows {
        let (z, source_scores) = message.split_at_mut(all);
        dot_by_head(z, source, source_scores);
        dot_by_head(z, destination, scores);
    }
}
dispatch!(fn score_rows[T: Real](heads: usize, a: [&[T]; 2], messages: &mut [T], scores: &mut [T]) = score_rows_body);

/// Computes the dot product of `z` and `a` for each head.
#[inline(always)]
fn dot_by_head<T: Real>(z: &[T], a: &[T], out: &mut [T]) {
    let width = a.len() / out.len();
    let parts = z.chunks_exact(width).zip(a.chunks_exact(width));
    out.iter_mut().zip(parts).for_each(|(out, (z, a))| *out = dot(z, a));
}

/// Computes the backward of [`score`]: adds to the gradient of `z` in `grad`, the gradient of `messages`, and to the
/// gradients of `a_src` and `a_dst`.
///
/// `scores_grad` is the gradient of the scores of the rows `own`; the scores of other rows have no gradient.
pub fn score_backward<T: Real>(
    messages: &[T],
    heads: usize,
    [source, destination]: [&[T]; 2],
    grad: &mut [T],
    (own, scores_grad): (Range<usize>, &[T]),
    [source_sums, destination_sums]: [&mut [T]; 2],
) {
    let all = source.len();
    let pitch = all + heads;
    let size = size_of_val(messages);
    let _work = work::begin("scores backward", || Cost::stream(2 * size + size_of_val(scores_grad), size));
    let runs = grad.par_chunks_mut(RUN * pitch).zip(messages.par_chunks(RUN * pitch)).enumerate();
    let sums = runs.map(|(run, (grad, messages))| {
        // The own rows of the run.
        let (first, end) = (run * RUN, run * RUN + grad.len() / pitch);
        let (from, to) = (own.start.clamp(first, end), own.end.clamp(first, end));
        let of_own =
            if from < to { &scores_grad[(from - own.start) * heads..(to - own.start) * heads] } else { &[] };
        let rows = ScoredRows { heads, messages, own: [from - first, to - first], scores_grad: of_own };
        let mut sums = vec![T::zero(); 2 * all];
        backward_rows::<T>(Level::best(), rows, [source, destination], grad, &mut sums);
        sums
    });
    let sums: Vec<Vec<T>> = sums.collect();
    add_in_order(sums.iter().map(|sums| &sums[..all]), source_sums);
    add_in_order(sums.iter().map(|sums| &sums[all..]), destination_sums);
}

/// Rows of a task of [`score_backward`].
#[derive(Clone, Copy)]
struct ScoredRows<'a, T> {
    heads: usize,
    messages: &'a [T],
    /// Own rows, counted from the first row of the task: from, to.
    own: [usize; 2],
    /// Gradient of the scores of the own rows.
    scores_grad: &'a [T],
}

/// Adds to the gradients of the rows, and to the sums for `a_src` and `a_dst`.
#[inline(always)]
fn backward_rows_body<I: Isa, T: Real>(rows: ScoredRows<T>, a: [&[T]; 2], grad: &mut [T], sums: &mut [T]) {
    let ScoredRows { heads, messages, own, scores_grad } = rows;
    let [source, destination] = a;
    let all = source.len();
    let (source_sums, destination_sums) = sums.split_at_mut(all);
    let rows = grad.chunks_exact_mut(all + heads).zip(messages.chunks_exact(all + heads));
    for (r, (grad, message)) in rows.enumerate() {
        let (z_grad, source_grad) = grad.split_at_mut(all);
        add_by_head(source_grad, &message[..all], source_sums);
        add_by_head(source_grad, source, z_grad);
        if (own[0]..own[1]).contains(&r) {
            let destination_grad = &scores_grad[(r - own[0]) * heads..][..heads];
            add_by_head(destination_grad, &message[..all], destination_sums);
            add_by_head(destination_grad, destination, z_grad);
        }
    }
}
dispatch!(fn backward_rows[T: Real](rows: ScoredRows<T>, a: [&[T]; 2], grad: &mut [T], sums: &mut [T]) = backward_rows_body);

/// Computes `out[h] += factors[h] * x[h]` for the columns of each head.
#[inline(always)]
fn add_by_head<T: Real>(factors: &[T], x: &[T], out: &mut [T]) {
    let width = x.len() / factors.len();
    let parts = x.chunks_exact(width).zip(out.chunks_exact_mut(width));
    for (&factor, (x, out)) in factors.iter().zip(parts) {
        out.iter_mut().zip(x).for_each(|(o, &x)| *o += factor * x);
    }
}

/// Computes the mean over heads: `out[r] = Σ_h x[r, h] / heads`. `x` is rows x `heads * width`, `out` rows x `width`.
pub fn mean_of_heads<T: Real>(x: &[T], heads: usize, width: usize, out: &mut [T]) {
    assert_eq!(x.len(), out.len() * heads, "length of the output");
    let _work = work::begin("mean of heads", || Cost::stream(size_of_val(x), size_of_val(out)));
    let scale = T::of(1.0 / heads as f64);
    let rows = out.par_chunks_exact_mut(width).zip(x.par_chunks_exact(heads * width));
    rows.with_min_len(TASK_ROWS).for_each(|(out, x)| {
        out.fill(T::zero());
        for x in x.chunks_exact(width) {
            out.iter_mut().zip(x).for_each(|(o, &x)| *o += x);
        }
        out.iter_mut().for_each(|o| *o *= scale);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_gradient, dot as weighted, noise};

    const ROWS: usize = 7;
    const HEADS: usize = 3;
    const WIDTH: usize = 19;
    const ALL: usize = HEADS * WIDTH;

    /// Returns all messages, followed by the scores of rows 2..6.
    fn outcome(z: &[f64], a: [&[f64]; 2]) -> Vec<f64> {
        let mut messages = vec![f64::NAN; ROWS * (ALL + HEADS)];
        let rows = messages.chunks_exact_mut(ALL + HEADS).zip(z.chunks_exact(ALL));
        rows.for_each(|(message, z)| message[..ALL].copy_from_slice(z));
        let mut scores = vec![f64::NAN; ROWS * HEADS];
        score(HEADS, a, &mut messages, &mut scores);
        messages.extend(&scores[2 * HEADS..6 * HEADS]);
        messages
    }

    #[test]
    fn scores_are_dot_products_and_gradients_match_finite_differences() {
        let (z, a, b) = (noise::<f64>(1, ROWS * ALL), noise::<f64>(2, ALL), noise::<f64>(3, ALL));
        let got = outcome(&z, [&a, &b]);
        let want: f64 = (0..WIDTH).map(|c| z[2 * ALL + WIDTH + c] * a[WIDTH + c]).sum();
        assert_close(&[got[2 * (ALL + HEADS) + ALL + 1]], &[want], 1e-14);

        let g = noise::<f64>(4, got.len());
        let (grad, scores_grad) = g.split_at(ROWS * (ALL + HEADS));
        let (mut da, mut db) = (vec![0.0; ALL], vec![0.0; ALL]);
        let messages = &got[..grad.len()];
        let mut grad = grad.to_vec();
        let sums = [&mut da[..], &mut db];
        score_backward(messages, HEADS, [&a, &b], &mut grad, (2..6, scores_grad), sums);
        let dz: Vec<f64> = grad.chunks_exact(ALL + HEADS).flat_map(|row| row[..ALL].to_vec()).collect();
        assert_gradient(&z, &dz, |z| weighted(&g, &outcome(z, [&a, &b])));
        assert_gradient(&a, &da, |a| weighted(&g, &outcome(&z, [a, &b])));
        assert_gradient(&b, &db, |b| weighted(&g, &outcome(&z, [&a, b])));
    }

    /// The own rows begin and end inside runs.
    #[test]
    fn gradients_of_many_rows_match_a_loop_over_rows() {
        let (rows, own, pitch) = (2 * RUN + 300, RUN - 100..2 * RUN + 50, ALL + HEADS);
        let (messages, before) = (noise::<f64>(1, rows * pitch), noise::<f64>(2, rows * pitch));
        let (a, b) = (noise::<f64>(3, ALL), noise::<f64>(4, ALL));
        let scores_grad = noise::<f64>(5, own.len() * HEADS);
        let (mut want, mut want_a, mut want_b) = (before.clone(), vec![0.0; ALL], vec![0.0; ALL]);
        for (r, c) in (0..rows).flat_map(|r| (0..ALL).map(move |c| (r, c))) {
            let (z, source_grad) = (messages[r * pitch + c], before[r * pitch + ALL + c / WIDTH]);
            want[r * pitch + c] += source_grad * a[c];
            want_a[c] += source_grad * z;
            if own.contains(&r) {
                let score_grad = scores_grad[(r - own.start) * HEADS + c / WIDTH];
                want[r * pitch + c] += score_grad * b[c];
                want_b[c] += score_grad * z;
            }
        }
        let (mut got, mut got_a, mut got_b) = (before, vec![0.0; ALL], vec![0.0; ALL]);
        let sums = [&mut got_a[..], &mut got_b];
        score_backward(&messages, HEADS, [&a, &b], &mut got, (own, &scores_grad), sums);
        assert_close(&got, &want, 1e-12);
        assert_close(&got_a, &want_a, 1e-9);
        assert_close(&got_b, &want_b, 1e-9);
    }

    #[test]
    fn heads_are_averaged() {
        let mut out = [f64::NAN; 4];
        mean_of_heads(&[1.0, 2.0, 3.0, 6.0, 0.0, 1.0, 0.0, 3.0], 2, 2, &mut out);
        assert_eq!(out, [2.0, 4.0, 0.0, 2.0]);
    }
}
