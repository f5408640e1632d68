//! Bandwidth of aggregation on random graphs, compared with sequential and random reads of memory.
//!
//! `cargo run --release -p halograph-kernels --example aggregate [ROWS ENTRIES [WIDTH]...]`
//!
//! Rates are GB/s of the rows read by entries: entries x width x 4 bytes / best time, without credit for caches.
#![expect(clippy::print_stdout, reason = "a program, not a library")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use half::f16;
use halograph_kernels::aggregate::fast::{self, Aggregation};
use halograph_kernels::aggregate::{Weights, naive};
use halograph_kernels::keyed::Key;
use halograph_kernels::simd::Level;
use halograph_kernels::sparse::Pattern;
use rayon::prelude::*;

const GRAPHS: [[usize; 2]; 2] = [[23_000, 2_300_000], [245_000, 12_000_000]];
const WIDTHS: [usize; 5] = [41, 64, 100, 256, 602];
const THREADS: [usize; 2] = [1, 2];
/// Time of all repetitions of a measurement; there are at least two.
const MIN_TIME: Duration = Duration::from_secs(1);

fn main() {
    let args: Vec<usize> =
        std::env::args().skip(1).map(|a| a.parse().expect("arguments are numbers")).collect();
    let (graphs, widths) = match &args[..] {
        [rows, entries, widths @ ..] => (vec![[*rows, *entries]], widths.to_vec()),
        _ => (GRAPHS.to_vec(), Vec::new()),
    };
    let widths = if widths.is_empty() { WIDTHS.to_vec() } else { widths };
    for [rows, entries] in graphs {
        println!("{rows} rows, {entries} entries; GB/s with {THREADS:?} threads");
        let (bounds, columns) = random(rows, entries);
        widths.iter().for_each(|&width| measure(Pattern::new(&bounds, &columns), width));
    }
}

/// Returns bounds and columns of a graph with random entries, about equally many per row.
fn random(rows: usize, entries: usize) -> (Vec<u64>, Vec<u32>) {
    let key = Key::new(1, "example");
    let bounds = (0..=rows).map(|r| (r * entries / rows) as u64).collect();
    (bounds, (0..entries as u64).into_par_iter().map(|e| key.below(e, rows as u64) as u32).collect())
}

fn measure(pattern: Pattern, width: usize) {
    let x = vec![1.0f32; pattern.rows() * width];
    let mut out = vec![0.0f32; x.len()];
    let read = pattern.columns.len() * width * 4;
    let source = vec![0.5f32; pattern.rows()];
    let weights = Weights { source: Some(&source), ..Weights::default() };

    report(width, "sequential read", x.len() * 4, || {
        black_box(x.par_chunks(1 << 16).map(sum).reduce(|| 0, u64::wrapping_add));
    });
    report(width, "random rows", read, || {
        let row = |&c: &u32| sum(&x[c as usize * width..][..width]);
        black_box(pattern.columns.par_iter().with_min_len(1 << 12).map(row).reduce(|| 0, u64::wrapping_add));
    });
    report(width, "naive", read, || naive::aggregate(pattern, weights, &x, width, false, &mut out));
    for level in Level::available() {
        let name = |suffix: &str| format!("{}{suffix}", level.name());
        let weighted = Aggregation { level, pattern, weights, x: &x, width, accumulate: false };
        let plain = Aggregation { weights: Weights::default(), ..weighted };
        report(width, &name(""), read, || fast::aggregate(plain, &mut out));
        report(width, &name(", weighted"), read, || fast::aggregate(weighted, &mut out));
    }
    let x = vec![f16::ONE; x.len()];
    for level in Level::available() {
        let halves =
            Aggregation { level, pattern, weights: Weights::default(), x: &x, width, accumulate: false };
        let name = format!("{}, f16", level.name());
        report(width, &name, read / 2, || fast::aggregate_half(halves, &mut out));
    }
}

/// Returns the sum of the bits of `x`: reads all numbers in a loop that compilers vectorise.
fn sum(x: &[f32]) -> u64 {
    x.iter().map(|x| x.to_bits()).fold(0u32, u32::wrapping_add) as u64
}

/// Prints the rate of `work`, which reads `bytes`, for each number of threads.
fn report(width: usize, name: &str, bytes: usize, mut work: impl FnMut() + Send) {
    print!("{width:4}  {name:22}");
    for threads in THREADS {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads");
        print!("  {:6.2}", bytes as f64 / pool.install(|| best(&mut work)).as_secs_f64() / 1e9);
    }
    println!();
}

/// Returns the shortest time of several repetitions.
fn best(work: &mut impl FnMut()) -> Duration {
    let first = Instant::now();
    let mut times = Vec::new();
    while times.len() < 2 || first.elapsed() < MIN_TIME {
        let start = Instant::now();
        work();
        times.push(start.elapsed());
    }
    times.into_iter().min().expect("at least two repetitions")
}
