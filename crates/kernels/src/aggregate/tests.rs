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

/// All choices of weights: bit 0 source, bit 1 destination, bit 2 own; bit 3: added to what is there.
fn choose<'a, T>(choice: usize, s: &'a [T], d: &'a [T], own: Own<'a, T>) -> Weights<'a, T> {
    Weights {
        source: (choice & 1 > 0).then_some(s),
        destination: (choice & 2 > 0).then_some(d),
        own: (choice & 4 > 0).then_some(own),
    }
}

/// The same sum as a dense matrix times a vector, column by column.
fn dense(pattern: Pattern, weights: Weights<f64>, x: &[f64]) -> Vec<f64> {
    let mut matrix = vec![0.0; ROWS * COLS];
    for r in 0..ROWS {
        for e in pattern.row(r) {
            let c = pattern.columns[e] as usize;
            matrix[r * COLS + c] +=
                weights.source.map_or(1.0, |s| s[c]) * weights.destination.map_or(1.0, |d| d[r]);
        }
        if let Some(own) = weights.own {
            let weight = |i| own.weight.get(i).map(|w| (own.x_first + i, w));
            r.checked_sub(own.out_first)
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
fn every_choice_of_weights_agrees_with_a_dense_product_and_its_gradient() {
    let (starts, columns) = pattern(3, ROWS, COLS);
    let forward = Pattern::new(&starts, &columns);
    let transpose = Transpose::of(forward, COLS);
    let (s, d, w) = (noise(1, COLS), noise(2, ROWS), noise(3, OWN.2));
    let (x, g) = (noise::<f64>(4, COLS * WIDTH), noise::<f64>(5, ROWS * WIDTH));
    for choice in 0..8 {
        let weights = choose(choice, &s, &d, Own { weight: &w, out_first: OWN.0, x_first: OWN.1 });
        let mut out = vec![f64::NAN; ROWS * WIDTH];
        aggregate(forward, weights, &x, WIDTH, &mut out);
        assert_close(&out, &dense(forward, weights, &x), 1e-14);

        let mut grad = vec![f64::NAN; COLS * WIDTH];
        aggregate(transpose.pattern(), weights.transposed(), &g, WIDTH, &mut grad);
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
#[should_panic(expected = "column 3 of a pattern")]
fn a_column_that_is_not_there_is_refused() {
    aggregate(Pattern::new(&[0, 1], &[3]), Weights::default(), &[0.0f32; 30], 10, &mut [0.0; 10]);
}

/// A sum to be made in single precision, in memory of any alignment.
#[derive(Debug, Clone)]
struct Case {
    starts: Vec<u64>,
    ends: Vec<u64>,
    columns: Vec<u32>,
    sources: usize,
    width: usize,
    /// How far into their buffers `x` and `out` begin.
    offsets: [usize; 2],
    seed: u64,
}

/// What `out` holds before.
const THERE: f32 = 77.0;
/// What stands around `x` and `out`.
const OUTSIDE: usize = 8;

impl Case {
    /// Rows with `gaps` of entries after them that are not theirs.
    fn new(rows: &[Vec<u32>], gaps: &[usize], sources: usize, width: usize, seed: u64) -> Self {
        let (mut starts, mut ends, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (i, row) in rows.iter().enumerate() {
            starts.push(columns.len() as u64);
            columns.extend(row);
            ends.push(columns.len() as u64);
            // Not theirs, and nowhere: to follow one would be noticed.
            columns.extend((0..gaps.get(i).map_or(0, |&g| g)).map(|_| u32::MAX));
        }
        Case { starts, ends, columns, sources, width, offsets: [0, 0], seed }
    }

    fn pattern(&self) -> Pattern<'_> {
        Pattern { starts: &self.starts, ends: &self.ends, columns: &self.columns }
    }

    /// Values of `x` that are the same in half precision.
    fn x(&self) -> Vec<f16> {
        noise::<f32>(self.seed, self.sources * self.width).into_iter().map(f16::from_f32).collect()
    }

    /// Weights of columns, of rows and of own terms.
    fn weights(&self) -> [Vec<f32>; 3] {
        let own = self.starts.len().min(self.sources) / 2;
        [
            noise(self.seed + 1, self.sources),
            noise(self.seed + 2, self.starts.len()),
            noise(self.seed + 3, own),
        ]
    }

    fn own<'a, T>(&self, weight: &'a [T]) -> Own<'a, T> {
        let seat = |rows: usize| (rows - weight.len()) * (self.seed % 3) as usize / 2;
        Own { weight, out_first: seat(self.starts.len()), x_first: seat(self.sources) }
    }

    /// The sum in double precision, and the sum of the sizes of its terms.
    fn expected(&self, choice: usize, x: &[f16]) -> [Vec<f64>; 2] {
        [|x: f32| x as f64, |x: f32| x.abs() as f64].map(|of| {
            let [s, d, w] = self.weights().map(|w| w.into_iter().map(of).collect::<Vec<f64>>());
            let x: Vec<f64> = x.iter().map(|x| of(x.to_f32())).collect();
            let mut out = vec![THERE as f64; self.starts.len() * self.width];
            let weights = choose(choice, &s, &d, self.own(&w));
            naive::aggregate(self.pattern(), weights, &x, self.width, choice & 8 > 0, &mut out);
            out
        })
    }

    /// The sum by the fast path, and that nothing beside `out` was written nor anything beside `x` read.
    fn fast(&self, level: Level, choice: usize, x: &[f16], half: bool) -> Vec<f32> {
        let [s, d, w] = self.weights();
        let weights = choose(choice, &s, &d, self.own(&w));
        let mut read = vec![f16::NAN; self.offsets[0] + x.len() + OUTSIDE];
        let at = self.offsets[0]..self.offsets[0] + x.len();
        read[at.clone()].copy_from_slice(x);
        let sums = self.offsets[1]..self.offsets[1] + self.starts.len() * self.width;
        let mut written = vec![THERE; sums.end + OUTSIDE];
        let (out, keep) = (&mut written[sums.clone()], choice & 8 > 0);
        let (pattern, width) = (self.pattern(), self.width);
        if half {
            let x = &read[at];
            fast::aggregate_half(Aggregation { level, pattern, weights, x, width, keep }, out);
        } else {
            let read: Vec<f32> = read.iter().map(|x| x.to_f32()).collect();
            let x = &read[at];
            fast::aggregate(Aggregation { level, pattern, weights, x, width, keep }, out);
        }
        let around = written[..sums.start].iter().chain(&written[sums.end..]);
        assert!(around.into_iter().all(|&x| x == THERE), "only sums are written");
        written[sums].to_vec()
    }

    /// Calls `check` with the fast path's sums of every level, choice of weights and storage.
    fn for_each(&self, x: &[f16], check: impl Fn(usize, Vec<f32>)) {
        for level in Level::available() {
            for choice in 0..16 {
                for half in [false, true] {
                    check(choice, self.fast(level, choice, x, half));
                }
            }
        }
    }

    fn assert_agrees(&self) {
        let x = self.x();
        let expected: Vec<_> = (0..16).map(|choice| self.expected(choice, &x)).collect();
        let longest = (0..self.starts.len()).map(|r| self.pattern().row(r).len()).max().unwrap_or(0);
        self.for_each(&x, |choice, got| {
            let [want, size] = &expected[choice];
            for (i, &got) in got.iter().enumerate() {
                let bound = (longest + 4) as f64 * f32::EPSILON as f64 * size[i];
                assert!(
                    (got as f64 - want[i]).abs() <= bound,
                    "element {i}: {got} where {} was expected",
                    want[i]
                );
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
    fn the_fast_path_agrees_with_the_naive_one(case in cases()) {
        case.assert_agrees();
    }

    #[test]
    fn what_is_no_number_reaches_the_sums_that_read_it_and_no_others(
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
            let own = (choice & 4 > 0).then(|| case.own(&weights[2]));
            for (i, got) in got.iter().enumerate() {
                let r = i / case.width;
                let entries = &case.columns[case.pattern().row(r)];
                let reads = entries.contains(&(row as u32))
                    || own.and_then(|own| own.of(r)).is_some_and(|(_, from)| from == row);
                assert_eq!(!got.is_finite(), reads && i % case.width == column, "element {i}");
            }
        });
    }

    #[test]
    fn tasks_are_all_rows_in_order_with_fair_shares(lengths in vec(0..50u64, 1..200), share in 1..500usize) {
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
fn graphs_at_the_edge_of_being_one_are_legal() {
    for width in [1, 41, 257] {
        Case::new(&[], &[], 5, width, 1).assert_agrees();
        Case::new(&[vec![]], &[], 1, width, 1).assert_agrees();
        Case::new(&[vec![0]], &[], 1, width, 1).assert_agrees();
        Case::new(&[vec![], vec![], vec![]], &[], 0, width, 1).assert_agrees();
    }
    aggregate(Pattern::new(&[0, 1], &[0]), Weights::default(), &[0.0f32; 0], 0, &mut []);
}

/// Rows of several tasks, two of them longer than a segment.
fn with_hubs(width: usize) -> Case {
    let (starts, columns) = pattern(9, 6000, 50);
    let mut rows: Vec<Vec<u32>> =
        starts.windows(2).map(|s| columns[s[0] as usize..s[1] as usize].to_vec()).collect();
    rows[100] = (0..70_000).map(|i| i * 7 % 50).collect();
    rows[5999] = (0..20_000).map(|i| i % 50).collect();
    Case::new(&rows, &[], 50, width, 11)
}

#[test]
fn hubs_are_summed_like_other_rows() {
    [1, 20].into_iter().for_each(|width| with_hubs(width).assert_agrees());
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let case = with_hubs(100);
    let x = case.x();
    let bits = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        let sums = pool.install(|| case.fast(Level::best(), 7, &x, false));
        sums.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(1), bits(2));
}
