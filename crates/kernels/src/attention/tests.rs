use super::*;
use crate::keyed::Key;
use crate::simd::Level;
use crate::sparse::Transpose;
use crate::testing::{assert_close, assert_gradient, dot, noise};

mod parts;

/// A pattern without self-loops, and the other parameters of an attention.
struct Case {
    bounds: Vec<u64>,
    columns: Vec<u32>,
    count: usize,
    /// As [`Attention::first`].
    first: Option<usize>,
    heads: usize,
    width: usize,
    p: f64,
    row_ids: Vec<u32>,
    ids: Vec<u32>,
}

impl Case {
    /// Returns a case with random rows of these lengths over `count` columns; row 0 is column `first`.
    fn new(lengths: &[usize], count: usize, first: usize, shape: [usize; 2]) -> Self {
        let key = Key::new(count as u64, "entries");
        let (mut bounds, mut columns) = (vec![0], vec![]);
        for (r, &length) in lengths.iter().enumerate() {
            let others = (0..length as u64).map(|i| key.with(r as u64).below(i, count as u64 - 1) as u32);
            columns.extend(others.map(|c| if c as usize >= first + r { c + 1 } else { c }));
            bounds.push(columns.len() as u64);
        }
        Case::of((bounds, columns), count, first, shape)
    }

    /// Returns a star graph: row 0 has entries in all other columns, the other rows in column 0.
    fn star(count: usize, shape: [usize; 2]) -> Self {
        let columns = (1..count as u32).chain((1..count).map(|_| 0)).collect();
        let bounds = [0].into_iter().chain(count as u64 - 1..2 * count as u64 - 1).collect();
        Case::of((bounds, columns), count, 0, shape)
    }

    fn of(
        (bounds, columns): (Vec<u64>, Vec<u32>),
        count: usize,
        first: usize,
        [heads, width]: [usize; 2],
    ) -> Self {
        let id = |c: usize| 7 * c as u32 + 3;
        let row_ids = (first..first + bounds.len() - 1).map(id).collect();
        let ids = (0..count).map(id).collect();
        Case { bounds, columns, count, first: Some(first), heads, width, p: 0.0, row_ids, ids }
    }

    /// Returns the case with attention dropout.
    fn masked(self, p: f64) -> Self {
        Case { p, ..self }
    }

    /// Returns the case without self-loops.
    fn bipartite(self) -> Self {
        Case { first: None, ..self }
    }

    fn rows(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Returns the lengths of messages, destination scores and output.
    fn lengths(&self) -> [usize; 3] {
        let all = self.heads * self.width;
        [self.count * (all + self.heads), self.rows() * self.heads, self.rows() * all]
    }

    fn attention<'a, T: Real>(&'a self, messages: &'a [T], destination: &'a [T]) -> Attention<'a, T> {
        // With self-loops, the ids of rows are those of their columns.
        let rows = self.first.is_none().then_some(&self.row_ids[..]);
        let mask = Mask { key: Key::new(3, "mask"), p: self.p, rows, columns: Some(&self.ids) };
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

    /// Returns the output and the gradients of messages and scores, by the reference implementation in double
    /// precision.
    fn reference(&self, messages: &[f64], destination: &[f64], grad: &[f64]) -> [Vec<f64>; 3] {
        let at = self.attention(messages, destination);
        let transpose = Transpose::of(at.pattern, self.count);
        let (mut saved, [mut dm, mut dt, mut out]) =
            (Saved::default(), self.lengths().map(|n| vec![f64::NAN; n]));
        at.forward_naive(Some(&mut saved), &mut out);
        at.backward_naive(transpose.pattern(), (&saved, &out), grad, &mut dm, &mut dt);
        [out, dm, dt]
    }

    /// Compares the fast implementation with the reference.
    fn check(&self, scale: f32, tolerance: f64) {
        self.check_segments(Config::best().segment, scale, tolerance);
    }

    /// As [`Case::check`], with long rows split into segments of this length, at every level, with unaligned operands.
    fn check_segments(&self, segment: usize, scale: f32, tolerance: f64) {
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
            let [out, dm, dt] = self.reference(&wide(messages), &wide(destination), &wide(all_grad));
            for config in configs(segment) {
                let (mut saved, mut got) = (Saved::default(), vec![f32::NAN; out.len() + 1]);
                for saved in [None, Some(&mut Saved::for_evaluation()), Some(&mut saved)] {
                    at.forward_fast(config, saved, &mut got[1..]);
                    assert_close(&wide(&got[1..]), &out, tolerance);
                }
                let (mut dm_got, mut dt_got) = (vec![f32::NAN; dm.len() + 1], vec![f32::NAN; dt.len()]);
                let stats = at.destination_backward((&saved, &got[1..]), grad, &mut dt_got);
                let back = transpose.pattern();
                at.messages_backward_fast(config, back, (&stats, None), grad, &mut dm_got[1..]);
                assert_close(&wide(&dm_got[1..]), &dm, tolerance);
                assert_close(&wide(&dt_got), &dt, tolerance);
            }
        }
    }
}

/// Returns configurations of all levels with this length of segments.
fn configs(segment: usize) -> impl Iterator<Item = Config> {
    Level::available().into_iter().map(move |level| Config { level, segment })
}

fn wide<T: Real>(x: &[T]) -> Vec<f64> {
    x.iter().map(|x| x.wide()).collect()
}

#[test]
fn the_output_matches_the_closed_form() {
    // Two columns, one head of width 1; row 0 is column 0.
    let case = Case { columns: vec![1], ..Case::new(&[1], 2, 0, [1, 1]) };
    let (messages, mut out) = ([10.0f64, 0.5, 20.0, -3.0], [f64::NAN]);
    case.attention(&messages, &[1.0]).forward(None, &mut out);
    let (own, other) = (1.5f64.exp(), (-0.4f64).exp());
    assert_close(&out, &[(10.0 * own + 20.0 * other) / (own + other)], 1e-14);
}

#[test]
fn gradients_match_finite_differences() {
    for case in [
        Case::new(&[3, 0, 5, 2], 9, 2, [2, 3]),
        Case::new(&[3, 0, 5, 2], 9, 2, [2, 3]).masked(0.4),
        Case::new(&[6, 1], 8, 0, [1, 2]).masked(0.7),
        Case::new(&[3, 0, 5, 2], 4, 0, [2, 3]).bipartite(),
        Case::new(&[0, 4, 0], 3, 0, [2, 3]).bipartite().masked(0.4),
    ] {
        let [messages, destination, grad] = case.lengths().map(|n| noise::<f64>(n as u64, n));
        let [out, dm, dt] = case.reference(&messages, &destination, &grad);
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
fn fast_matches_naive_for_all_shapes() {
    for width in [1, 7, 41, 64, 100, 257] {
        for heads in [1, 2, 3, 4, 8] {
            // There are columns before and after those of rows, and empty rows.
            let case = Case::new(&[3, 0, 17, 1, 0, 40], 12, 4, [heads, width]);
            case.check(1.0, 1e-5);
            case.masked(0.5).check(1.0, 2e-5);
        }
    }
}

#[test]
fn fast_matches_naive_for_rows_of_many_blocks() {
    for length in [255, 256, 257, 511, 512, 3000] {
        let case = Case::new(&[length, 0, 2], 500, 0, [2, 9]);
        case.check(1.0, 2e-5);
        case.masked(0.3).check(1.0, 2e-5);
    }
}

#[test]
fn empty_patterns_and_full_dropout_are_valid() {
    Case::new(&[0], 1, 0, [2, 3]).check(1.0, 1e-6);
    Case::new(&[0, 0, 0], 5, 1, [1, 64]).check(1.0, 1e-6);
    Case::new(&[], 3, 0, [2, 3]).check(1.0, 0.0);
    Case::new(&[], 0, 0, [2, 3]).check(1.0, 0.0);
    Case::new(&[4, 2], 5, 0, [2, 3]).masked(1.0).check(1.0, 1e-6);
}

#[test]
fn large_scores_do_not_overflow() {
    // Such logits have an accuracy of 1e-3 in single precision.
    Case::new(&[5, 60, 0, 300], 40, 0, [2, 5]).check(1e4, 1e-2);
}

#[test]
fn nan_is_propagated() {
    let case = Case::new(&[2, 0], 3, 0, [1, 4]);
    let [mut messages, destination, _] = case.lengths().map(|n| noise::<f32>(n as u64, n));
    messages[4] = f32::NAN;
    for config in configs(Config::best().segment) {
        let mut out = [0.0; 8];
        case.attention(&messages, &destination).forward_fast(config, None, &mut out);
        assert!(out[..4].iter().all(|x| x.is_nan()) && out[4..].iter().all(|x| x.is_finite()));
    }
}

#[test]
fn segments_match_naive() {
    for shape in [[1, 7], [2, 41], [4, 3]] {
        // Row lengths around multiples of a segment; a star graph; columns of about 200 entries.
        let lengths = [99, 100, 101, 0, 200, 201, 1000];
        let columns = Case::new(&[3; 700], 10, 0, shape).bipartite();
        for case in [Case::new(&lengths, 50, 4, shape), Case::star(777, shape), columns] {
            case.check_segments(100, 1.0, 2e-5);
            case.bipartite().masked(0.4).check_segments(100, 1.0, 2e-5);
        }
    }
    Case::star(300, [2, 5]).masked(1.0).check_segments(64, 1.0, 1e-6);
    // Such logits have an accuracy of 1e-3 in single precision.
    Case::star(300, [2, 5]).check_segments(64, 1e4, 1e-2);
}

#[test]
fn masks_depend_on_ids_only() {
    let case = Case::new(&[3, 0, 40, 2], 9, 2, [2, 3]).masked(0.4);
    let [messages, destination, _] = case.lengths().map(|n| noise::<f32>(n as u64, n));
    let at = case.attention(&messages, &destination);
    let key = Key::new(3, "mask");
    let output = |rows: Option<&[u32]>, columns: Option<&[u32]>| {
        let mut out = vec![f32::NAN; case.lengths()[2]];
        let mask = Some(Mask { key, p: 0.4, rows, columns });
        Attention { mask, ..at }.forward(None, &mut out);
        out
    };
    let ids = output(None, Some(&case.ids));
    assert_eq!(ids, output(Some(&case.row_ids), Some(&case.ids)));
    let numbers = output(None, None);
    assert_eq!(numbers, output(Some(&[2, 3, 4, 5]), Some(&[0, 1, 2, 3, 4, 5, 6, 7, 8])));
    assert_ne!(ids, numbers);
}

#[test]
fn the_output_of_rows_without_entries_is_zero() {
    let case = Case::new(&[0, 2, 0], 5, 0, [2, 3]).bipartite();
    case.check(1.0, 1e-6);
    let [messages, destination, _] = case.lengths().map(|n| noise::<f32>(n as u64, n));
    // With a slope of 0, 0 * -∞ must not give NaN.
    let at = Attention { slope: 0.0, ..case.attention(&messages, &destination) };
    for config in configs(Config::best().segment) {
        let (mut saved, mut out) = (Saved::default(), [f32::NAN; 18]);
        at.forward_fast(config, Some(&mut saved), &mut out);
        let [empty, full, also_empty] = out.as_chunks::<6>().0 else { panic!("three rows") };
        assert_eq!([empty, also_empty], [&[0.0; 6]; 2]);
        assert!(full.iter().all(|&x| x.is_finite() && x != 0.0));
        let slopes = saved.slopes.unwrap();
        assert!(slopes.derivative.iter().chain(&*slopes.mean).all(|x| x.is_finite()));
        assert_eq!((saved.max[0], saved.inverse_sum[0]), (f32::NEG_INFINITY, 0.0));
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_result() {
    let lengths: Vec<usize> = (0..2000).map(|r| r * r % 37).collect();
    let hub = 3 * Config::best().segment;
    for case in [Case::new(&lengths, 2000, 0, [2, 8]), Case::star(hub, [2, 8])] {
        let case = case.masked(0.2);
        assert_eq!(results(&case, 1), results(&case, 2));
    }
}

/// Returns the output and the gradients of messages and scores, computed by `threads` threads.
fn results(case: &Case, threads: usize) -> [Vec<f32>; 3] {
    let [messages, destination, grad] = case.lengths().map(|n| noise::<f32>(n as u64, n));
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
}
