//! Vectorised implementation for `f32`.
//!
//! A row is summed in blocks of columns. The sums of a block stay in registers over all entries of the row, and the
//! rows of later entries are prefetched. A task is a run of rows with about equally many entries; rows longer than a
//! segment are split into segments. Tasks and segments depend only on the pattern and the width, so the number of
//! threads does not change the result.

use std::ops::Range;

use rayon::prelude::*;

use super::lanes::{Lanes, Stored};
use super::{SelfLoops, Weights, naive};
use crate::simd::{Level, dispatch, prefetch};
use crate::sparse::{Pattern, split_by_task};

/// Scalar additions per task.
const TASK: usize = 1 << 19;
/// Entries per segment of a long row; also the maximum of entries and rows per task.
const SEGMENT: usize = 1 << 14;
/// Prefetch distance, in entries.
const AHEAD: usize = 12;

/// Operands of an aggregation of rows stored as `S`.
#[derive(Clone, Copy)]
pub struct Aggregation<'a, S> {
    /// Instruction set; must be available on this CPU.
    pub level: Level,
    /// Rows that are summed.
    pub pattern: Pattern<'a>,
    /// Weights.
    pub weights: Weights<'a, f32>,
    /// Input: columns of the pattern x `width`.
    pub x: &'a [S],
    /// Width of a row.
    pub width: usize,
    /// Whether sums are added to the output instead of replacing it.
    pub accumulate: bool,
}

/// As [`super::aggregate`] or, with `accumulate`, [`super::add_aggregate`].
pub fn aggregate(job: Aggregation<f32>, out: &mut [f32]) {
    run(job, out);
}

/// As [`super::aggregate_half`] or, with `accumulate`, [`super::add_aggregate_half`].
pub fn aggregate_half(job: Aggregation<half::f16>, out: &mut [f32]) {
    run(job, out);
}

/// Aggregates on all threads.
fn run<S: Stored>(job: Aggregation<S>, out: &mut [f32]) {
    job.weights.check(job.pattern, job.x.len(), job.width, out.len());
    if job.width == 0 {
        return;
    }
    let tasks = job.pattern.tasks((TASK / job.width).clamp(1, SEGMENT));
    if let [rows] = &tasks[..] {
        return sum_task(job, rows.clone(), out);
    }
    let shares = split_by_task(&tasks, job.width, out);
    tasks.into_par_iter().zip(shares).with_max_len(1).for_each(|(rows, out)| sum_task(job, rows, out));
}

/// Computes the sums of the rows of a task.
fn sum_task<S: Stored>(job: Aggregation<S>, rows: Range<usize>, out: &mut [f32]) {
    // Only the last row of a task can be longer than a segment: a task ends after it.
    let long = rows.end.checked_sub(1).filter(|&r| job.pattern.row(r).len() > SEGMENT);
    let Some(long) = long else { return sums(job.level, &job, rows, out) };
    let (out, last) = out.split_at_mut((long - rows.start) * job.width);
    rayon::join(|| sum_long_row(job, long, last), || sums(job.level, &job, rows.start..long, out));
}

/// Computes the sum of a long row: segments in parallel, then their sums in order.
fn sum_long_row<S: Stored>(job: Aggregation<S>, r: usize, out: &mut [f32]) {
    let row = job.pattern.row(r);
    let starts: Vec<u64> = row.clone().step_by(SEGMENT).map(|e| e as u64).collect();
    let ends: Vec<u64> = starts.iter().map(|&e| row.end.min(e as usize + SEGMENT) as u64).collect();
    let pattern = Pattern { starts: &starts, ends: &ends, ..job.pattern };
    let weights = Weights { destination: None, self_loops: None, ..job.weights };
    let segments = Aggregation { pattern, weights, accumulate: false, ..job };
    let mut parts = vec![0.0; starts.len() * job.width];
    parts
        .par_chunks_mut(job.width)
        .enumerate()
        .for_each(|(i, part)| sums(job.level, &segments, i..i + 1, part));
    let (total, others) = parts.split_at_mut(job.width);
    others.chunks_exact(job.width).for_each(|part| naive::add(1.0, part, total));
    if let Some(scale) = job.weights.destination {
        total.iter_mut().for_each(|o| *o *= scale[r]);
    }
    if let Some((weight, from)) = job.weights.self_loops.and_then(|loops| loops.of(r)) {
        let own = &job.x[from * job.width..(from + 1) * job.width];
        total.iter_mut().zip(own).for_each(|(o, x)| *o += weight * x.single());
    }
    if job.accumulate {
        naive::add(1.0, total, out);
    } else {
        out.copy_from_slice(total);
    }
}

/// Weights in the inner loop: none, those of columns, or those of entries and perhaps columns.
const ONES: u8 = 0;
const SOURCES: u8 = 1;
const ENTRIES: u8 = 2;

dispatch!(fn sums[S: Stored](job: &Aggregation<S>, rows: Range<usize>, out: &mut [f32]) = sums_body);

#[inline(always)]
fn sums_body<I: Lanes, S: Stored>(job: &Aggregation<S>, rows: Range<usize>, out: &mut [f32]) {
    match (job.weights.entries, job.weights.source) {
        (Some(_), _) => rows_body::<I, S, ENTRIES>(job, rows, out),
        (None, Some(_)) => rows_body::<I, S, SOURCES>(job, rows, out),
        (None, None) => rows_body::<I, S, ONES>(job, rows, out),
    }
}

/// Operands of the sum of one row.
struct Row<'a, S> {
    /// Columns of its entries.
    columns: &'a [u32],
    /// Columns of the entries after it, for prefetching.
    following: &'a [u32],
    /// Weights of its entries; empty: 1.
    entries: &'a [f32],
    /// Weights of columns; empty: 1.
    source: &'a [f32],
    x: &'a [S],
    width: usize,
    /// Number of rows of `x`.
    sources: usize,
    scale: Option<f32>,
    /// Weight and row of `x` of its self-loop.
    self_loop: Option<(f32, usize)>,
    accumulate: bool,
}

#[inline(always)]
fn rows_body<I: Lanes, S: Stored, const WEIGHTS: u8>(
    job: &Aggregation<S>,
    rows: Range<usize>,
    out: &mut [f32],
) {
    let Aggregation { pattern, weights, x, width, accumulate, .. } = *job;
    let vectors = width.div_ceil(I::LANES);
    let blocks = vectors.div_ceil(I::SUMS);
    let sources = x.len() / width;
    for (r, out) in rows.zip(out.chunks_exact_mut(width)) {
        let entries = pattern.row(r);
        let row = Row {
            columns: &pattern.columns[entries.clone()],
            following: &pattern.columns[entries.end..],
            entries: weights.entries.map_or(&[], |a| &a[entries.clone()]),
            source: weights.source.unwrap_or(&[]),
            x,
            width,
            sources,
            scale: weights.destination.map(|d| d[r]),
            self_loop: weights.self_loops.and_then(|loops: SelfLoops<f32>| loops.of(r)),
            accumulate,
        };
        // If the pattern holds only halo edges, most rows have no entries.
        if accumulate && row.columns.is_empty() && row.self_loop.is_none() {
            continue;
        }
        let mut first = 0;
        for i in 0..blocks {
            // Blocks differ by at most one vector.
            let count = vectors * (i + 1) / blocks - vectors * i / blocks;
            let columns = first..width.min(first + count * I::LANES);
            select_block::<I, S, WEIGHTS>(count, &row, columns.clone(), out);
            first = columns.end;
        }
    }
}

/// Calls [`block`] with `N = count`.
#[inline(always)]
fn select_block<I: Lanes, S: Stored, const WEIGHTS: u8>(
    count: usize,
    row: &Row<S>,
    columns: Range<usize>,
    out: &mut [f32],
) {
    macro_rules! choose {
        ($($n:literal)*) => {
            match count {
                $($n if const { $n <= I::SUMS } => block::<I, S, WEIGHTS, $n>(row, columns, out),)*
                _ => unreachable!("blocks have from 1 to {} vectors", I::SUMS),
            }
        };
    }
    choose!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

/// Computes the sums of `columns`, which fill `N` vectors; the last vector may be partial.
#[inline(always)]
fn block<I: Lanes, S: Stored, const WEIGHTS: u8, const N: usize>(
    row: &Row<S>,
    columns: Range<usize>,
    out: &mut [f32],
) {
    let last = columns.len() - (N - 1) * I::LANES;
    assert!((1..=I::LANES).contains(&last) && columns.end <= row.width && columns.end <= out.len());
    // Read after this block: the next block of the same entries, or the first block of the following entries.
    let (next, after) = if columns.end < row.width { (columns.end, row.columns) } else { (0, row.following) };
    // SAFETY: `dispatch!` compiles this for the instruction set of `I` and calls it only if the CPU has it. Vectors lie
    // within `columns`, hence within a row of `x` and within `out`, by the assertion.
    unsafe {
        let mut sums = [I::splat(0.0); N];
        for (e, &c) in row.columns.iter().enumerate() {
            let ahead = e + AHEAD;
            let (first, later) = match ahead.checked_sub(row.columns.len()) {
                None => (columns.start, row.columns.get(ahead)),
                Some(ahead) => (next, after.get(ahead)),
            };
            if let Some(&later) = later {
                prefetch_block::<I, S, N>(row, later as usize, first);
            }
            let weight = match WEIGHTS {
                ONES => 1.0,
                SOURCES => row.source[c as usize],
                _ if row.source.is_empty() => row.entries[e],
                _ => row.entries[e] * row.source[c as usize],
            };
            let at = columns.start;
            if WEIGHTS == ONES {
                add::<I, S, false, N>(row, c as usize, at, last, weight, &mut sums);
            } else {
                add::<I, S, true, N>(row, c as usize, at, last, weight, &mut sums);
            }
        }
        if let Some(scale) = row.scale {
            for sum in &mut sums {
                *sum = I::mul(I::splat(scale), *sum);
            }
        }
        if let Some((weight, from)) = row.self_loop {
            add::<I, S, true, N>(row, from, columns.start, last, weight, &mut sums);
        }
        let at = out.as_mut_ptr().add(columns.start);
        if row.accumulate {
            for (i, sum) in sums[..N - 1].iter_mut().enumerate() {
                *sum = I::add(I::load(at.add(i * I::LANES)), *sum);
            }
            let before = I::load_first(at.add((N - 1) * I::LANES), last);
            sums[N - 1] = I::add(before, sums[N - 1]);
        }
        for (i, &sum) in sums[..N - 1].iter().enumerate() {
            I::store(sum, at.add(i * I::LANES));
        }
        I::store_first(sums[N - 1], at.add((N - 1) * I::LANES), last);
    }
}

/// Prefetches the part of row `c` of `x` that a block reads.
#[inline(always)]
fn prefetch_block<I: Lanes, S: Stored, const N: usize>(row: &Row<S>, c: usize, first: usize) {
    for line in (0..N * I::LANES).step_by(64 / size_of::<S>()) {
        prefetch(row.x, c * row.width + first + line);
    }
}

/// Adds the columns from `first` on of row `c` of `x` to `sums`, times `weight` if `WEIGHTED`. The last vector has
/// `last` columns.
///
/// # Safety
/// As [`Lanes`]; the columns must exist.
#[inline(always)]
unsafe fn add<I: Lanes, S: Stored, const WEIGHTED: bool, const N: usize>(
    row: &Row<S>,
    c: usize,
    first: usize,
    last: usize,
    weight: f32,
    sums: &mut [I::Vector; N],
) {
    assert!(c < row.sources, "column {c} of the pattern is out of range for {} rows", row.sources);
    // SAFETY: the row exists by the assertion; the caller guarantees the columns and the instruction set.
    unsafe {
        let at = row.x.as_ptr().add(c * row.width + first);
        let weight = I::splat(weight);
        for (i, sum) in sums.iter_mut().enumerate() {
            let at = at.add(i * I::LANES);
            let x = if i < N - 1 { S::load::<I>(at) } else { S::load_first::<I>(at, last) };
            *sum = if WEIGHTED { I::mul_add(weight, x, *sum) } else { I::add(*sum, x) };
        }
    }
}
