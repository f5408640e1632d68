use half::f16;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::sparse::Transpose;
use crate::testing::{assert_close, assert_gradient, dot, noise, pattern};

const ROWS: usize = 13;
const COLS: usize = 9;
const WIDTH: usize = 3;
const OWN: (usize, usize, usize) = (4, 2, 5);

/// Number of choices of weights, and whether to accumulate.
const CHOICES: usize = 32;

/// Selects weights by the bits of `choice`: 0 source, 1 destination, 2 self-loops, 4 entries. (Bit 3: accumulate.)
fn choose<'a, T>(
    choice: usize,
    a: &'a [f32],
    s: &'a [T],
    d: &'a [T],
    self_loops: SelfLoops<'a, T>,
) -> Weights<'a, T> {
    Weights {
        entries: (choice & 16 > 0).then_some(a),
        source: (choice & 1 > 0).then_some(s),
        destination: (choice & 2 > 0).then_some(d),
        self_loops: (choice & 4 > 0).then_some(self_loops),
    }
}

/// Computes the aggregation as a product with a dense matrix.
fn dense(pattern: Pattern, weights: Weights<f64>, x: &[f64]) -> Vec<f64> {
    let mut matrix = vec![0.0; ROWS * COLS];
    for r in 0..ROWS {
        for e in pattern.row(r) {
            let c = pattern.columns[e] as usize;
            matrix[r * COLS + c] += weights.entries.map_or(1.0, |a| a[e] as f64)
                * weights.source.map_or(1.0, |s| s[c])
                * weights.destination.map_or(1.0, |d| d[r]);
        }
        if let Some(loops) = weights.self_loops {
            let weight = |i| loops.weight.get(i).map(|w| (loops.x_first + i, w));
            r.checked_sub(loops.out_first)
                .and_then(weight)
                .into_iter()
                .for_each(|(c, w)| matrix[r * COLS + c] += w);
        }
    }
    (0..ROWS * WIDTH)
        .map(|i| (0..COLS).map(|c| matrix[i / WIDTH * COLS + c] * x[c * WIDTH + i % WIDTH]).sum())
        .collect()
}

#[test]
fn all_weights_match_a_dense_product_and_its_gradient() {
    let (starts, columns) = pattern(3, ROWS, COLS);
    let forward = Pattern::new(&starts, &columns);
    let transpose = Transpose::of(forward, COLS);
    let a: Vec<f32> = noise(6, columns.len());
    let back = Transpose::values(forward, COLS, &a);
    let (s, d, w) = (noise(1, COLS), noise(2, ROWS), noise(3, OWN.2));
    let (x, g) = (noise::<f64>(4, COLS * WIDTH), noise::<f64>(5, ROWS * WIDTH));
    for choice in (0..CHOICES).filter(|choice| choice & 8 == 0) {
        let weights = choose(choice, &a, &s, &d, SelfLoops { weight: &w, out_first: OWN.0, x_first: OWN.1 });
        let mut out = vec![f64::NAN; ROWS * WIDTH];
        aggregate(forward, weights, &x, WIDTH, &mut out);
        assert_close(&out, &dense(forward, weights, &x), 1e-14);

        let mut grad = vec![f64::NAN; COLS * WIDTH];
        aggregate(
            transpose.pattern(),
            weights.transposed(weights.entries.map(|_| &back[..])),
            &g,
            WIDTH,
            &mut grad,
        );
        assert_gradient(&x, &grad, |x| dot(&g, &dense(forward, weights, x)));
    }
}

#[test]
fn rows_without_entries_are_zero() {
    let mut out = [f32::NAN; 2];
    aggregate(Pattern::new(&[0, 0], &[]), Weights::default(), &[1.0, 2.0], 2, &mut out);
    assert_eq!(out, [0.0, 0.0]);
}

#[test]
#[should_panic(expected = "column 3 of the pattern is out of range for 3 rows")]
fn a_column_out_of_range_panics() {
    aggregate(Pattern::new(&[0, 1], &[3]), Weights::default(), &[0.0f32; 30], 10, &mut [0.0; 10]);
}

/// An aggregation in single precision, with operands of any alignment.
#[derive(Debug, Clone)]
struct Case {
    starts: Vec<u64>,
    ends: Vec<u64>,
    columns: Vec<u32>,
    sources: usize,
    width: usize,
    /// Offsets of `x` and `out` in their buffers.
    offsets: [usize; 2],
    seed: u64,
}

/// Value of `out`, and of the memory around it, before the aggregation.
const BEFORE: f32 = 77.0;
/// Elements after `x` and `out` in their buffers.
const PADDING: usize = 8;

impl Case {
    /// Returns a case with `gaps[i]` unused entries after row `i`.
    fn new(rows: &[Vec<u32>], gaps: &[usize], sources: usize, width: usize, seed: u64) -> Self {
        let (mut starts, mut ends, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (i, row) in rows.iter().enumerate() {
            starts.push(columns.len() as u64);
            columns.extend(row);
            ends.push(columns.len() as u64);
            // Out of range, so that reading an unused entry panics.
            columns.extend((0..gaps.get(i).map_or(0, |&g| g)).map(|_| u32::MAX));
        }
        Case { starts, ends, columns, sources, width, offsets: [0, 0], seed }
    }

    fn pattern(&self) -> Pattern<'_> {
        Pattern { starts: &self.starts, ends: &self.ends, columns: &self.columns }
    }

    /// Returns values of `x` that are exact in half precision.
    fn x(&self) -> Vec<f16> {
        noise::<f32>(self.seed, self.sources * self.width).into_iter().map(f16::from_f32).collect()
    }

    /// Returns the weights of entries.
    fn entries(&self) -> Vec<f32> {
        noise(self.seed + 4, self.columns.len())
    }

    /// Returns the weights of columns, of rows and of self-loops.
    fn weights(&self) -> [Vec<f32>; 3] {
        let loops = self.starts.len().min(self.sources) / 2;
        [
            noise(self.seed + 1, self.sources),
            noise(self.seed + 2, self.starts.len()),
            noise(self.seed + 3, loops),
        ]
    }

    fn self_loops<'a, T>(&self, weight: &'a [T]) -> SelfLoops<'a, T> {
        let first = |rows: usize| (rows - weight.len()) * (self.seed % 3) as usize / 2;
        SelfLoops { weight, out_first: first(self.starts.len()), x_first: first(self.sources) }
    }

    /// Returns the sums, and the sums of absolute values, in double precision.
    fn expected(&self, choice: usize, x: &[f16]) -> [Vec<f64>; 2] {
        [|x: f32| x as f64, |x: f32| x.abs() as f64].map(|of| {
            let [s, d, w] = self.weights().map(|w| w.into_iter().map(of).collect::<Vec<f64>>());
            let x: Vec<f64> = x.iter().map(|x| of(x.to_f32())).collect();
            let mut out = vec![BEFORE as f64; self.starts.len() * self.width];
            let a: Vec<f32> = self.entries().into_iter().map(|a| of(a) as f32).collect();
            let weights = choose(choice, &a, &s, &d, self.self_loops(&w));
            naive::aggregate(self.pattern(), weights, &x, self.width, choice & 8 > 0, &mut out);
            out
        })
    }

    /// Returns the sums of the fast implementation. Checks that memory around `out` is unchanged; memory around `x`
    /// is NaN.
    fn fast(&self, level: Level, choice: usize, x: &[f16], half: bool) -> Vec<f32> {
        let ([s, d, w], a) = (self.weights(), self.entries());
        let weights = choose(choice, &a, &s, &d, self.self_loops(&w));
        let mut read = vec![f16::NAN; self.offsets[0] + x.len() + PADDING];
        let at = self.offsets[0]..self.offsets[0] + x.len();
        read[at.clone()].copy_from_slice(x);
        let sums = self.offsets[1]..self.offsets[1] + self.starts.len() * self.width;
        let mut written = vec![BEFORE; sums.end + PADDING];
        let (out, accumulate) = (&mut written[sums.clone()], choice & 8 > 0);
        let (pattern, width) = (self.pattern(), self.width);
        if half {
            let x = &read[at];
            fast::aggregate_half(Aggregation { level, pattern, weights, x, width, accumulate }, out);
        } else {
            let read: Vec<f32> = read.iter().map(|x| x.to_f32()).collect();
            let x = &read[at];
            fast::aggregate(Aggregation { level, pattern, weights, x, width, accumulate }, out);
        }
        let around = written[..sums.start].iter().chain(&written[sums.end..]);
        assert!(around.into_iter().all(|&x| x == BEFORE), "memory around the output was written");
        written[sums].to_vec()
    }

    /// Calls `check` with the sums of the fast implementation for every level, choice of weights and storage type.
    fn for_each(&self, x: &[f16], check: impl Fn(usize, Vec<f32>)) {
        for level in Level::available() {
            for choice in 0..CHOICES {
                for half in [false, true] {
                    check(choice, self.fast(level, choice, x, half));
                }
            }
        }
    }

    fn assert_agrees(&self) {
        let x = self.x();
        let expected: Vec<_> = (0..CHOICES).map(|choice| self.expected(choice, &x)).collect();
        let longest = (0..self.starts.len()).map(|r| self.pattern().row(r).len()).max().unwrap_or(0);
        self.for_each(&x, |choice, got| {
            let [want, size] = &expected[choice];
            for (i, &got) in got.iter().enumerate() {
                let bound = (longest + 4) as f64 * f32::EPSILON as f64 * size[i];
                assert!((got as f64 - want[i]).abs() <= bound, "element {i}: {got}, expected {}", want[i]);
            }
        });
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let width = prop_oneof![
        select(vec![
            1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 41, 47, 64, 65, 95, 97, 100, 127, 128, 255, 256, 257, 602
        ]),
        1..300usize
    ];
    (1..20usize, width).prop_flat_map(|(sources, width)| {
        let rows = vec(vec(0..sources as u32, 0..12), 0..12);
        let gaps = vec(0..3usize, 12);
        (rows, gaps, 0..8usize, 0..8usize, 0..1000u64).prop_map(move |(rows, gaps, before, after, seed)| {
            Case { offsets: [before, after], ..Case::new(&rows, &gaps, sources, width, seed) }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fast_matches_naive(case in cases()) {
        case.assert_agrees();
    }

    #[test]
    fn nan_and_infinity_reach_exactly_the_sums_that_read_them(
        case in cases(),
        place in any::<prop::sample::Index>(),
        poison in select(vec![f16::NAN, f16::INFINITY, f16::NEG_INFINITY]),
    ) {
        let mut x = case.x();
        let place = place.index(x.len());
        x[place] = poison;
        let (row, column) = (place / case.width, place % case.width);
        case.for_each(&x, |choice, got| {
            let weights = case.weights();
            let self_loops = (choice & 4 > 0).then(|| case.self_loops(&weights[2]));
            for (i, got) in got.iter().enumerate() {
                let r = i / case.width;
                let entries = &case.columns[case.pattern().row(r)];
                let reads = entries.contains(&(row as u32))
                    || self_loops.and_then(|loops| loops.of(r)).is_some_and(|(_, from)| from == row);
                assert_eq!(!got.is_finite(), reads && i % case.width == column, "element {i}");
            }
        });
    }

    #[test]
    fn tasks_contain_all_rows_in_order_and_are_balanced(lengths in vec(0..50u64, 1..200), share in 1..500usize) {
        let mut bounds = vec![0];
        lengths.iter().for_each(|l| bounds.push(bounds[bounds.len() - 1] + l));
        let columns = vec![0; bounds[lengths.len()] as usize];
        let tasks = Pattern::new(&bounds, &columns).tasks(share);
        prop_assert!(tasks.iter().cloned().flatten().eq(0..lengths.len()));
        for task in tasks {
            let before_last = (bounds[task.end - 1] - bounds[task.start]) as usize + task.len() - 1;
            prop_assert!(!task.is_empty() && before_last < share);
        }
    }
}

#[test]
fn empty_patterns_rows_and_widths_are_valid() {
    for width in [1, 41, 257] {
        Case::new(&[], &[], 5, width, 1).assert_agrees();
        Case::new(&[vec![]], &[], 1, width, 1).assert_agrees();
        Case::new(&[vec![0]], &[], 1, width, 1).assert_agrees();
        Case::new(&[vec![], vec![], vec![]], &[], 0, width, 1).assert_agrees();
    }
    aggregate(Pattern::new(&[0, 1], &[0]), Weights::default(), &[0.0f32; 0], 0, &mut []);
}

/// Returns rows for several tasks, two of them longer than a segment.
fn with_hubs(width: usize) -> Case {
    let (starts, columns) = pattern(9, 6000, 50);
    let mut rows: Vec<Vec<u32>> =
        starts.windows(2).map(|s| columns[s[0] as usize..s[1] as usize].to_vec()).collect();
    rows[100] = (0..70_000).map(|i| i * 7 % 50).collect();
    rows[5999] = (0..20_000).map(|i| i % 50).collect();
    Case::new(&rows, &[], 50, width, 11)
}

#[test]
fn long_rows_match_naive() {
    [1, 20].into_iter().for_each(|width| with_hubs(width).assert_agrees());
}

#[test]
fn the_number_of_threads_does_not_change_the_result() {
    let case = with_hubs(100);
    let x = case.x();
    let bits = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let sums = pool.install(|| case.fast(Level::best(), 23, &x, false));
        sums.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(1), bits(2));
}
