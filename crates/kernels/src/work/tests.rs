use half::f16;

use super::*;
use crate::activation::Activation;
use crate::aggregate::{SelfLoops, Weights, aggregate, aggregate_half};
use crate::attention::{Attention, Saved, mean_of_heads, score, score_backward};
use crate::batch_norm::{self, Moments};
use crate::buffer::Buffer;
use crate::dropout::{Mask, dropout, dropout_in_place};
use crate::epilogue::{Affine, Epilogue};
use crate::gemm::{Mat, Start, Tall, add_outer, multiply};
use crate::keyed::Key;
use crate::loss::{bce_with_logits, cross_entropy};
use crate::optim::{Adam, Sgd, squared_norm};
use crate::sparse::Transpose;
use crate::{layer_norm, rows};

/// Bytes of a number.
const F: usize = size_of::<f32>();
const ROWS: usize = 5;
const WIDTH: usize = 3;
/// Numbers and bytes of a matrix.
const ALL: usize = ROWS * WIDTH;
const SIZE: usize = ALL * F;

/// Returns the only kernel call of `work`.
#[track_caller]
fn only(work: impl FnOnce()) -> (&'static str, Cost) {
    let ((), done) = record(work);
    assert_eq!(done.len(), 1, "{done:?}");
    assert!(done[0].seconds >= 0.0);
    (done[0].kernel, done[0].cost)
}

/// Checks that `work` is one stream of these numbers of bytes.
#[track_caller]
fn assert_stream(read: usize, written: usize, work: impl FnOnce()) {
    let (kernel, cost) = only(work);
    let want = Cost { kind: Kind::Stream { read, written }, flops: 0, bytes: (read + written) as u64 };
    assert_eq!(cost, want, "{kernel}");
}

#[test]
fn calls_outside_of_a_recording_are_not_recorded() {
    let work = || rows::scale(2.0f32, &mut [1.0; 4]);
    work();
    let ((), done) = record(|| (0..3).for_each(|_| work()));
    assert_eq!(done.iter().map(|w| w.kernel).collect::<Vec<_>>(), ["scale"; 3]);
    work();
    assert!(record(|| ()).1.is_empty());
}

#[test]
fn only_the_outermost_of_nested_kernels_is_recorded() {
    let ((), done) = record(|| {
        let outer = begin("outer", || Cost::stream(1, 2));
        rows::scale(2.0f32, &mut [1.0; 4]);
        drop(outer);
        rows::scale(2.0f32, &mut [1.0; 4]);
    });
    assert_eq!(done.iter().map(|w| w.kernel).collect::<Vec<_>>(), ["outer", "scale"]);
}

#[test]
fn recordings_may_be_nested_and_survive_a_panic() {
    let (inner, outer) = record(|| {
        rows::scale(2.0f32, &mut [1.0; 4]);
        record(|| rows::add_row(&mut [1.0f32; 4], &[1.0])).1
    });
    assert_eq!((inner[0].kernel, inner.len()), ("add bias", 1));
    assert_eq!((outer[0].kernel, outer.len()), ("scale", 1));
    let caught = std::panic::catch_unwind(|| record(|| rows::add_scaled(1.0f32, &[1.0], &mut [])));
    assert!(caught.is_err());
    assert!(STATE.get() == State::Off);
    assert!(record(|| ()).1.is_empty());
}

#[test]
fn products_count_flops_and_bytes() {
    let (a, b, mut c) = ([1.0f32; 10], [1.0f32; 6], [0.0f32; 15]);
    let (_, cost) = only(|| {
        multiply(1.0, Tall::new(&a, 5, 2), Mat::new(&b, 2, 3), Start::Zero, &mut c, 3);
    });
    let kind = Kind::Product { m: 5, k: 2, n: 3 };
    assert_eq!(cost, Cost { kind, flops: 60, bytes: 4 * (10 + 6 + 15) });
    let mut sum = [0.0f32; 6];
    let (_, cost) = only(|| add_outer(1.0, Tall::new(&a, 5, 2), Tall::new(&c, 5, 3), &mut sum));
    let kind = Kind::Outer { rows: 5, m: 2, n: 3 };
    assert_eq!(cost, Cost { kind, flops: 60, bytes: 4 * (10 + 15 + 2 * 6) });
}

/// Three rows; the last entry of the second is omitted.
const PATTERN: Pattern = Pattern { starts: &[0, 2, 4], ends: &[2, 3, 5], columns: &[1, 3, 0, 2, 4] };
/// Bytes of the pattern.
const INDEX: usize = 4 * 4 + 3 * 8;

#[test]
fn aggregations_count_one_row_per_entry() {
    let x = [1.0f32; ALL];
    let mut out = [0.0f32; 3 * WIDTH];
    let kind = |row_bytes, set_bytes| Kind::Gather { rows: 3, entries: 4, row_bytes, set_bytes };
    let (_, cost) = only(|| aggregate(PATTERN, Weights::default(), &x, WIDTH, &mut out));
    let bytes = (4 * WIDTH * F + INDEX + 3 * WIDTH * F) as u64;
    assert_eq!(cost, Cost { kind: kind(WIDTH * F, SIZE), flops: 0, bytes });

    let (by_source, by_row) = ([1.0; ROWS], [1.0; 3]);
    let self_loops = Some(SelfLoops { weight: &by_row[..2], out_first: 0, x_first: 0 });
    let weights = Weights { entries: None, source: Some(&by_source), destination: Some(&by_row), self_loops };
    let (_, weighted) = only(|| aggregate(PATTERN, weights, &x, WIDTH, &mut out));
    assert_eq!(weighted.bytes, bytes + ((ROWS + 3) * F + 2 * (WIDTH + 1) * F) as u64);

    let half = [f16::ONE; ALL];
    let (_, cost) = only(|| aggregate_half(PATTERN, Weights::<f32>::default(), &half, WIDTH, &mut out));
    let bytes = (4 * WIDTH * 2 + INDEX + 3 * WIDTH * F) as u64;
    assert_eq!(cost, Cost { kind: kind(WIDTH * 2, SIZE / 2), flops: 0, bytes });
}

#[test]
fn attention_counts_one_message_or_gradient_per_entry() {
    let (heads, width) = (2, 3);
    let pitch = heads * (width + 1);
    let messages = vec![0.5f32; ROWS * pitch];
    let destination = [0.5f32; 6];
    let attention = Attention {
        pattern: PATTERN,
        messages: &messages,
        destination: &destination,
        first: Some(0),
        heads,
        width,
        slope: 0.2,
        mask: None,
    };
    let (mut out, mut saved) = ([0.0f32; 18], Saved::default());
    let kind =
        Kind::Gather { rows: 3, entries: 4, row_bytes: pitch * F, set_bytes: size_of_val(&messages[..]) };
    // Messages of entries and rows; index; scores; output.
    let bytes = (4 + 3) * pitch * F + INDEX + 6 * F + 18 * F;
    let (_, cost) = only(|| attention.forward(None, &mut out));
    assert_eq!(cost, Cost { kind, flops: 0, bytes: bytes as u64 });
    let (_, cost) = only(|| attention.forward(Some(&mut saved), &mut out));
    assert_eq!(cost, Cost { kind, flops: 0, bytes: (bytes + (18 + 3 * 6) * F) as u64 });

    let back = Transpose::of(PATTERN, ROWS);
    let (mut messages_grad, mut destination_grad) = (vec![0.0; messages.len()], [0.0; 6]);
    // One gradient per head, and one for all heads.
    for columns in [heads * width, width] {
        let grad = vec![1.0f32; 3 * columns];
        let (_, cost) = only(|| {
            let saved = (&saved, &out[..]);
            attention.backward(back.pattern(), saved, &grad, &mut messages_grad, &mut destination_grad);
        });
        let row_bytes = (columns + 4 * heads) * F;
        let kind = Kind::Gather { rows: ROWS, entries: 4, row_bytes, set_bytes: 3 * row_bytes };
        let gathered = (4 + 3) * row_bytes + 4 * 4 + ROWS * 8;
        let other = 2 * messages.len() * F + (grad.len() + 2 * 18 + 2 * 6) * F;
        assert_eq!(cost, Cost { kind, flops: 0, bytes: (gathered + other) as u64 });
    }
}

#[test]
fn attention_scores_and_means_count_their_matrices() {
    let (heads, all) = (2, 6);
    let a = [1.0f32; 6];
    let (mut messages, mut scores) = (vec![1.0f32; ROWS * (all + heads)], vec![0.0f32; ROWS * heads]);
    let (size, few) = (size_of_val(&messages[..]), size_of_val(&scores[..]));
    assert_stream(size, 2 * few, || score(heads, [&a, &a], &mut messages, &mut scores));
    let (mut grad, mut sums) = (messages.clone(), [[0.0f32; 6]; 2]);
    let [source, destination] = &mut sums;
    assert_stream(2 * size + few, size, || {
        let own = (0..ROWS, &scores[..]);
        score_backward(&messages, heads, [&a, &a], &mut grad, own, [source, destination]);
    });
    let mut mean = [0.0f32; ALL];
    assert_stream(2 * SIZE, SIZE, || mean_of_heads(&[1.0; 2 * ALL], 2, WIDTH, &mut mean));
}

#[test]
fn row_wise_kernels_count_their_matrices() {
    let x = [1.0f32; ALL];
    let mut y = x;
    let rows_read = 2 * WIDTH * F;
    let picked = [3u32, 1];
    assert_stream(rows_read + 8, rows_read, || {
        rows::gather(&x, WIDTH, &picked, &mut y[..2 * WIDTH]);
    });
    assert_stream(2 * rows_read + 8, rows_read, || {
        rows::scatter_add(&x[..2 * WIDTH], WIDTH, &picked, &mut y);
    });
    assert_stream(2 * SIZE, SIZE, || rows::add_scaled(1.0, &x, &mut y));
    assert_stream(SIZE, SIZE, || rows::scale(1.0, &mut y));
    assert_stream(SIZE, SIZE, || rows::add_row(&mut y, &[0.0; WIDTH]));
    assert_stream(SIZE, WIDTH * F, || rows::add_column_sums(&x, &mut [0.0; WIDTH]));
    let mask = Mask::new(Key::new(1, "work"), 0.5, None).unwrap();
    assert_stream(SIZE, SIZE, || dropout(&x, WIDTH, mask, &mut y));
    assert_stream(SIZE, SIZE, || dropout_in_place(&mut y, WIDTH, mask));
    assert_stream(0, SIZE, || drop(Buffer::<f32>::zeros(ALL)));
}

#[test]
fn norms_and_epilogues_count_their_matrices() {
    let (x, mut y, mut z) = ([1.0f32; ALL], [1.0f32; ALL], [1.0f32; ALL]);
    let (w, mut dw, mut db) = ([1.0f32; WIDTH], [0.0f32; WIDTH], [0.0f32; WIDTH]);
    let mut scales = [1.0f32; ROWS];
    let epilogue = Epilogue { activation: Activation::Relu, mask: None };
    assert_stream(SIZE, SIZE, || epilogue.forward(&mut y, WIDTH));
    assert_stream(2 * SIZE, SIZE, || epilogue.backward(&x, &mut y, WIDTH));
    assert_stream(SIZE, 2 * SIZE + ROWS * F, || {
        epilogue.layer_norm(Affine { weight: &w, bias: &w }, &mut y, &mut scales, &mut z);
    });
    assert_stream(3 * SIZE + ROWS * F, SIZE, || {
        epilogue.layer_norm_backward(&w, [&x, &scales, &z], &mut y, [&mut dw, &mut db]);
    });
    assert_stream(SIZE, SIZE, || layer_norm::affine(&x, &w, &w, &mut y));
    assert_stream(2 * SIZE, 0, || layer_norm::affine_backward(&x, &y, &mut dw, &mut db));
    assert_stream(2 * SIZE, 0, || drop(Moments::of(&x, WIDTH)));
    assert_stream(SIZE, SIZE, || batch_norm::normalize(&mut y, &w, &w));
    assert_stream(2 * SIZE, SIZE, || batch_norm::backward(&x, &w, &w, None, &mut y));
}

#[test]
fn losses_and_steps_count_their_arrays() {
    let (x, mut y, mut m, mut v) = ([1.0f32; ALL], [0.0f32; ALL], [0.0f32; ALL], [0.0f32; ALL]);
    // Two rows are listed: their logits, indices and labels are read; all gradients are written.
    assert_stream(2 * (WIDTH * F + 8), SIZE, || {
        cross_entropy(&x, WIDTH, &[0, 2], &[1, 1], (None, 2.0), &mut y);
    });
    assert_stream(2 * (WIDTH * F + 8), SIZE, || {
        bce_with_logits(&x, WIDTH, &[0, 2], &[1; 6], (None, 2.0), &mut y);
    });
    assert_stream(4 * SIZE, 3 * SIZE, || Adam::default().step(1, &mut y, &x, &mut m, &mut v));
    let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.0 };
    assert_stream(3 * SIZE, 2 * SIZE, || sgd.step(&mut y, &x, &mut m));
    assert_stream(2 * SIZE, 0, || {
        squared_norm(&[&m, &v]);
    });
}
