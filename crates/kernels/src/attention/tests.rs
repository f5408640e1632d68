use super::*;
use crate::sparse::Transpose;
use crate::testing::{assert_close, assert_gradient, dot, noise};

/// A pattern without entries of rows from themselves, and what stands around it.
struct Case {
    bounds: Vec<u64>,
    columns: Vec<u32>,
    count: usize,
    first: usize,
    heads: usize,
    width: usize,
    p: f64,
    ids: Vec<u32>,
}

impl Case {
    /// Rows of these lengths over `count` columns; row 0 is column `first`.
    fn new(lengths: &[usize], count: usize, first: usize, [heads, width]: [usize; 2]) -> Self {
        let key = Key::new(count as u64, "entries");
        let (mut bounds, mut columns) = (vec![0], vec![]);
        for (r, &length) in lengths.iter().enumerate() {
            let others = (0..length as u64).map(|i| key.with(r as u64).below(i, count as u64 - 1) as u32);
            columns.extend(others.map(|c| if c as usize >= first + r { c + 1 } else { c }));
            bounds.push(columns.len() as u64);
        }
        let ids = (0..count as u32).map(|c| 7 * c + 3).collect();
        Case { bounds, columns, count, first, heads, width, p: 0.0, ids }
    }

    fn masked(self, p: f64) -> Self {
        Case { p, ..self }
    }

    fn rows(&self) -> usize {
        self.bounds.len() - 1
    }

    fn lengths(&self) -> [usize; 3] {
        let all = self.heads * self.width;
        [self.count * (all + self.heads), self.rows() * self.heads, self.rows() * all]
    }

    fn attention<'a, T: Real>(&'a self, messages: &'a [T], destination: &'a [T]) -> Attention<'a, T> {
        let mask = Mask { key: Key::new(3, "mask"), p: self.p, ids: Some(&self.ids) };
        Attention {
            pattern: Pattern::new(&self.bounds, &self.columns),
            messages,
            destination,
            first: self.first,
            heads: self.heads,
            width: self.width,
            slope: 0.2,
            mask: Some(mask).filter(|_| self.p > 0.0),
        }
    }

    /// Output, and gradients of messages and scores, by the naive way in double precision.
    fn oracle(&self, messages: &[f64], destination: &[f64], grad: &[f64]) -> [Vec<f64>; 3] {
        let at = self.attention(messages, destination);
        let transpose = Transpose::of(at.pattern, self.count);
        let (mut saved, [mut dm, mut dt, mut out]) =
            (Saved::default(), self.lengths().map(|n| vec![f64::NAN; n]));
        at.forward_naive(Some(&mut saved), &mut out);
        at.backward_naive(transpose.pattern(), (&saved, &out), grad, &mut dm, &mut dt);
        [out, dm, dt]
    }

    /// Holds the fast way to the naive one at every level, operands starting at odd places.
    fn check(&self, scale: f32, tolerance: f64) {
        let [messages, destination, grad] = self.lengths().map(|n| noise::<f32>(n as u64, n + 1));
        let all = self.heads * self.width;
        let mut messages = messages;
        for message in messages[1..].chunks_exact_mut(all + self.heads) {
            message[all..].iter_mut().for_each(|s| *s *= scale);
        }
        let (messages, destination, grad) = (&messages[1..], &destination[1..], &grad[1..]);
        let shared = &grad[..self.rows() * self.width];
        let spread: Vec<f32> = shared.chunks_exact(self.width).flat_map(|g| g.repeat(self.heads)).collect();
        let at = self.attention(messages, destination);
        let transpose = Transpose::of(at.pattern, self.count);
        for (grad, all_grad) in [(grad, grad), (shared, &spread)] {
            let [out, dm, dt] = self.oracle(&wide(messages), &wide(destination), &wide(all_grad));
            for level in Level::available() {
                let (mut saved, mut got) = (Saved::default(), vec![f32::NAN; out.len() + 1]);
                at.forward_fast(level, None, &mut got[1..]);
                assert_close(&wide(&got[1..]), &out, tolerance);
                at.forward_fast(level, Some(&mut saved), &mut got[1..]);
                assert_close(&wide(&got[1..]), &out, tolerance);
                let (mut dm_got, mut dt_got) = (vec![f32::NAN; dm.len() + 1], vec![f32::NAN; dt.len()]);
                let (back, forward) = (transpose.pattern(), (&saved, &got[1..]));
                at.backward_fast(level, back, forward, grad, &mut dm_got[1..], &mut dt_got);
                assert_close(&wide(&dm_got[1..]), &dm, tolerance);
                assert_close(&wide(&dt_got), &dt, tolerance);
            }
        }
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| x as f64).collect()
}

#[test]
fn softmax_is_exponentials_over_their_sum() {
    // Two columns of one head of one number, and row 0 is column 0.
    let case = Case { columns: vec![1], ..Case::new(&[1], 2, 0, [1, 1]) };
    let (messages, mut out) = ([10.0f64, 0.5, 20.0, -3.0], [f64::NAN]);
    case.attention(&messages, &[1.0]).forward(None, &mut out);
    let (own, other) = (1.5f64.exp(), (-0.4f64).exp());
    assert_close(&out, &[(10.0 * own + 20.0 * other) / (own + other)], 1e-14);
}

#[test]
fn gradients_agree_with_differences() {
    for case in [
        Case::new(&[3, 0, 5, 2], 9, 2, [2, 3]),
        Case::new(&[3, 0, 5, 2], 9, 2, [2, 3]).masked(0.4),
        Case::new(&[6, 1], 8, 0, [1, 2]).masked(0.7),
    ] {
        let [messages, destination, grad] = case.lengths().map(|n| noise::<f64>(n as u64, n));
        let [out, dm, dt] = case.oracle(&messages, &destination, &grad);
        let value = |messages: &[f64], destination: &[f64]| {
            let mut out = vec![f64::NAN; out.len()];
            case.attention(messages, destination).forward(None, &mut out);
            dot(&grad, &out)
        };
        assert_gradient(&messages, &dm, |m| value(m, &destination));
        assert_gradient(&destination, &dt, |t| value(&messages, t));
    }
}

#[test]
fn fast_agrees_with_naive_for_all_shapes() {
    for width in [1, 7, 41, 64, 100] {
        for heads in [1, 2, 4, 8] {
            // Columns before and after those that are rows; empty rows among others.
            let case = Case::new(&[3, 0, 17, 1, 0, 40], 12, 4, [heads, width]);
            case.check(1.0, 1e-5);
            case.masked(0.5).check(1.0, 2e-5);
        }
    }
}

#[test]
fn fast_agrees_with_naive_for_rows_of_many_blocks() {
    for length in [255, 256, 257, 511, 512, 3000] {
        let case = Case::new(&[length, 0, 2], 500, 0, [2, 9]);
        case.check(1.0, 2e-5);
        case.masked(0.3).check(1.0, 2e-5);
    }
}

#[test]
fn nothing_and_next_to_nothing_are_legal() {
    Case::new(&[0], 1, 0, [2, 3]).check(1.0, 1e-6);
    Case::new(&[0, 0, 0], 5, 1, [1, 64]).check(1.0, 1e-6);
    Case::new(&[], 3, 0, [2, 3]).check(1.0, 0.0);
    Case::new(&[], 0, 0, [2, 3]).check(1.0, 0.0);
    Case::new(&[4, 2], 5, 0, [2, 3]).masked(1.0).check(1.0, 1e-6);
}

#[test]
fn large_scores_do_not_overflow() {
    // Single precision keeps such logits to 1e-3 only.
    Case::new(&[5, 60, 0, 300], 40, 0, [2, 5]).check(1e4, 1e-2);
}

#[test]
fn a_nan_stays_one() {
    let case = Case::new(&[2, 0], 3, 0, [1, 4]);
    let [mut messages, destination, _] = case.lengths().map(|n| noise::<f32>(n as u64, n));
    messages[4] = f32::NAN;
    for level in Level::available() {
        let mut out = [0.0; 8];
        case.attention(&messages, &destination).forward_fast(level, None, &mut out);
        assert!(out[..4].iter().all(|x| x.is_nan()) && out[4..].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let lengths: Vec<usize> = (0..2000).map(|r| r * r % 37).collect();
    let case = Case::new(&lengths, 2000, 0, [2, 8]).masked(0.2);
    let [messages, destination, grad] = case.lengths().map(|n| noise::<f32>(n as u64, n));
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let at = case.attention(&messages, &destination);
            let transpose = Transpose::of(at.pattern, case.count);
            let (mut saved, [mut dm, mut dt, mut out]) =
                (Saved::default(), case.lengths().map(|n| vec![f32::NAN; n]));
            at.forward(Some(&mut saved), &mut out);
            at.backward(transpose.pattern(), (&saved, &out), &grad, &mut dm, &mut dt);
            [out, dm, dt]
        })
    };
    assert_eq!(run(1), run(2));
}
