//! Measures the rates that bound kernels on this machine, in this process and on its threads. A rate is the best of
//! several repetitions.
//!
//! - GEMM: the rate of our own function at the same shape, on separate arrays;
//! - gathers: the bandwidth of a plain loop over random rows of that width, from a matrix of that size, without output;
//! - streams: the bandwidth of plain loops over as many bytes, so that data that fits a cache is compared with that cache.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use halograph_kernels::buffer::{self, Buffer};
use halograph_kernels::gemm::{Mat, Start, Tall, add_outer, multiply};
use halograph_kernels::keyed::Key;
use halograph_kernels::work::{Cost, Kind};
use halograph_kernels::{Real, probe};
use rayon::prelude::*;
use serde::Serialize;

/// Least number of repetitions, and least time for all of them.
const MIN_REPETITIONS: usize = 5;
const MIN_TIME: Duration = Duration::from_millis(100);
/// Larger sizes have the same rates: bytes of a GEMM operand, of the matrix of a gather, of all gathered rows.
const MAX_OPERAND: usize = 256 << 20;
const MAX_SET: usize = 1 << 30;
const MAX_GATHERED: usize = 4 << 30;
/// Smallest and largest stream measured, in bytes.
const STREAMS: [usize; 2] = [128 << 10, 512 << 20];

/// A measured rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// Access pattern or shape.
    pub what: String,
    /// FLOP or bytes per second.
    pub per_second: f64,
    /// `FLOP` or `B`.
    pub unit: &'static str,
}

/// Rates by kind of work; each is measured once.
#[derive(Default)]
pub(super) struct Limits {
    rates: HashMap<Kind, f64>,
}

impl Limits {
    /// Returns the seconds that `cost` takes at its measured rate. Measures the rate at the first call for its class.
    pub(super) fn seconds<T: Real>(&mut self, cost: &Cost) -> f64 {
        let amount = amount(cost).0;
        if amount == 0 {
            return 0.0;
        }
        let kind = class(cost.kind);
        let rate = *self.rates.entry(kind).or_insert_with(|| rate::<T>(kind));
        amount as f64 / rate
    }

    /// Returns rates that characterise the machine.
    pub(super) fn overview<T: Real>(&mut self) -> Vec<Rate> {
        let streams = [1 << 20, 16 << 20, STREAMS[1]].into_iter().flat_map(|bytes| {
            let update = Cost::stream(bytes / 3 * 2, bytes / 3);
            let size = mebibytes(bytes);
            let read = (format!("stream read, {size}"), Cost::stream(bytes, 0));
            [read, (format!("stream read and write, {size}"), update)]
        });
        let gather = |set_bytes: usize| {
            let kind = Kind::Gather { rows: 1 << 14, entries: 1 << 19, row_bytes: 1 << 10, set_bytes };
            let what = format!("gather of random 1 KiB rows, {}", mebibytes(set_bytes));
            (what, Cost { kind, flops: 0, bytes: 1 })
        };
        let gemm = ("GEMM, 16384 x 256 x 256".to_string(), large_gemm::<T>());
        let all = streams.chain([gather(8 << 20), gather(256 << 20), gemm]);
        all.collect::<Vec<_>>().into_iter().map(|(what, cost)| self.named::<T>(what, &cost)).collect()
    }

    /// Returns the arithmetic intensity (FLOP/B) above which work is compute-bound: GEMM rate / stream bandwidth.
    pub(super) fn ridge_point<T: Real>(&mut self) -> f64 {
        let (gemm, stream) = (large_gemm::<T>(), Cost::stream(STREAMS[1] / 3 * 2, STREAMS[1] / 3));
        let flops = gemm.flops as f64 / self.seconds::<T>(&gemm);
        flops / (stream.bytes as f64 / self.seconds::<T>(&stream))
    }

    fn named<T: Real>(&mut self, what: String, cost: &Cost) -> Rate {
        let (amount, unit) = amount(cost);
        Rate { what, per_second: amount as f64 / self.seconds::<T>(cost), unit }
    }
}

fn large_gemm<T: Real>() -> Cost {
    Cost::product([1 << 14, 256, 256], size_of::<T>())
}

/// Returns the FLOP or bytes that bound a piece of work, and their unit.
pub(super) fn amount(cost: &Cost) -> (u64, &'static str) {
    match cost.kind {
        Kind::Product { .. } | Kind::Outer { .. } => (cost.flops, "FLOP"),
        Kind::Gather { .. } | Kind::Stream { .. } => (cost.bytes, "B"),
    }
}

fn mebibytes(bytes: usize) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Returns the work whose rate is measured for `kind`: streams of about the same size share one.
pub(super) fn class(kind: Kind) -> Kind {
    match kind {
        Kind::Stream { read, written } => {
            let bytes = (read + written).clamp(STREAMS[0], STREAMS[1]);
            // Round to the nearest power of two.
            let bytes = (bytes + bytes / 3).next_power_of_two() / 2;
            if 4 * written < read {
                Kind::Stream { read: bytes, written: 0 }
            } else {
                Kind::Stream { read: bytes / 3 * 2, written: bytes / 3 }
            }
        }
        other => other,
    }
}

/// Rounds the sizes that differ from batch to batch, so that batches share phases and rates.
pub(super) fn rounded(kind: Kind) -> Kind {
    match kind {
        Kind::Product { m, k, n } => Kind::Product { m: coarse(m), k, n },
        Kind::Outer { rows, m, n } => Kind::Outer { rows: coarse(rows), m, n },
        Kind::Gather { rows, entries, row_bytes, set_bytes } => {
            let [rows, entries, set_bytes] = [rows, entries, set_bytes].map(coarse);
            Kind::Gather { rows, entries, row_bytes, set_bytes }
        }
        stream @ Kind::Stream { .. } => stream,
    }
}

/// Rounds to three significant binary digits.
fn coarse(size: usize) -> usize {
    let unit = (size.checked_ilog2().map_or(1, |log| 1 << log) / 4).max(1);
    (size + unit / 2) / unit * unit
}

fn rate<T: Real>(kind: Kind) -> f64 {
    let rate = match kind {
        Kind::Product { m, k, n } => product_rate::<T>([m, k, n]),
        Kind::Outer { rows, m, n } => outer_rate::<T>(rows, [m, n]),
        Kind::Gather { entries, row_bytes, set_bytes, .. } => gather_rate(entries, row_bytes, set_bytes),
        Kind::Stream { read, written } => stream_rate(read, written),
    };
    // The next measurement needs other sizes.
    buffer::release();
    rate
}

/// Runs `work` several times; returns the seconds of the fastest repetition.
fn fastest(mut work: impl FnMut()) -> f64 {
    // Warm-up: page faults.
    work();
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    for repetition in 1.. {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        if repetition >= MIN_REPETITIONS && begin.elapsed() >= MIN_TIME {
            break;
        }
    }
    // The clock may be too coarse for very short work.
    best.max(1e-9)
}

fn filled<T: Real>(len: usize) -> Buffer<T> {
    let mut buffer = Buffer::unspecified(len);
    buffer.par_chunks_mut(1 << 14).for_each(|x| x.fill(T::of(0.5)));
    buffer
}

/// Returns `rows`, reduced so that an operand has at most [`MAX_OPERAND`] bytes.
fn limited_rows<T>(rows: usize, width: usize) -> usize {
    rows.min((MAX_OPERAND / (width.max(1) * size_of::<T>())).max(1))
}

/// Measures FLOP per second.
fn product_rate<T: Real>([m, k, n]: [usize; 3]) -> f64 {
    let m = limited_rows::<T>(m, k.max(n));
    let (a, b, mut c) = (filled::<T>(m * k), filled::<T>(k * n), filled::<T>(m * n));
    let seconds =
        fastest(|| multiply(T::one(), Tall::new(&a, m, k), Mat::new(&b, k, n), Start::Zero, &mut c, n));
    2.0 * (m * k * n) as f64 / seconds
}

/// Measures FLOP per second.
fn outer_rate<T: Real>(rows: usize, [m, n]: [usize; 2]) -> f64 {
    let rows = limited_rows::<T>(rows, m.max(n));
    let (g, x, mut sum) = (filled::<T>(rows * m), filled::<T>(rows * n), filled::<T>(m * n));
    // Keeps sums finite: other values may be slower.
    let scale = T::of(1e-6);
    let seconds = fastest(|| add_outer(scale, Tall::new(&g, rows, m), Tall::new(&x, rows, n), &mut sum));
    2.0 * (rows * m * n) as f64 / seconds
}

/// Measures bytes per second.
fn gather_rate(entries: usize, row_bytes: usize, set_bytes: usize) -> f64 {
    let width = row_bytes.div_ceil(size_of::<f32>()).max(1);
    let row_bytes = width * size_of::<f32>();
    let set = (set_bytes.min(MAX_SET) / row_bytes).max(1);
    let entries = entries.clamp(1, (MAX_GATHERED / row_bytes).max(1)) as u64;
    let key = Key::new(0, "random rows");
    let rows: Vec<u32> = (0..entries).into_par_iter().map(|i| key.below(i, set as u64) as u32).collect();
    let x = filled::<f32>(set * width);
    let seconds = fastest(|| {
        std::hint::black_box(probe::gather(&x, width, &rows));
    });
    (rows.len() * row_bytes + size_of_val(&*rows)) as f64 / seconds
}

/// Measures bytes per second.
fn stream_rate(read: usize, written: usize) -> f64 {
    if written == 0 {
        let x = filled::<f32>(read / size_of::<f32>());
        let seconds = fastest(|| {
            std::hint::black_box(probe::read(&x));
        });
        return size_of_val(&*x) as f64 / seconds;
    }
    let len = written / size_of::<f32>();
    let (mut x, y) = (filled::<f32>(len), filled::<f32>(len));
    let seconds = fastest(|| probe::update(&mut x, 1e-6, &y));
    3.0 * size_of_val(&*y) as f64 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_similar_size_share_a_rate() {
        let of = |read, written| class(Kind::Stream { read, written });
        assert_eq!(of(1 << 20, 0), Kind::Stream { read: 1 << 20, written: 0 });
        assert_eq!(of(1_200_000, 5), of(900_000, 9));
        assert_ne!(of(1 << 20, 0), of(1 << 19, 1 << 19));
        assert_eq!(of(0, 10), of(3, 7));
        assert_eq!(of(5 << 30, 0), Kind::Stream { read: STREAMS[1], written: 0 });
    }

    #[test]
    fn sizes_of_batches_are_rounded_to_three_binary_digits() {
        assert_eq!([0, 1, 7, 9, 100, 186_150, 180_000].map(coarse), [0, 1, 7, 10, 96, 196_608, 163_840]);
        assert_eq!(
            rounded(Kind::Product { m: 1000, k: 100, n: 256 }),
            Kind::Product { m: 1024, k: 100, n: 256 }
        );
    }

    #[test]
    fn every_kind_of_work_has_a_rate() {
        use halograph_kernels::sparse::Pattern;
        let mut limits = Limits::default();
        let pattern = Pattern::new(&[0, 2, 2], &[1, 0]);
        let costs = [
            Cost::product([3, 2, 4], 4),
            Cost::product([0, 2, 4], 4),
            Cost::outer(3, [2, 4], 4),
            Cost::gather(pattern, 6, 12, 8),
            Cost::gather(Pattern::new(&[0], &[]), 0, 0, 8),
            Cost::stream(100, 100),
            Cost::stream(100, 0),
        ];
        assert!(limits.ridge_point::<f64>() > 0.0);
        for cost in costs {
            let seconds = limits.seconds::<f64>(&cost);
            assert!(seconds.is_finite() && seconds >= 0.0, "{cost:?}: {seconds}");
        }
    }
}
