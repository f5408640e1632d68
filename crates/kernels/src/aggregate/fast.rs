//! Single precision at the speed of memory.
//!
//! Sums stay in registers over all entries of a row, a block of columns at a time, while rows of the entries ahead are
//! asked for. Tasks are runs of rows with about equally many entries; rows longer than a task's share are cut into
//! segments of their own. Both follow from the pattern and the width alone: bits do not depend on threads.

use std::ops::Range;

use rayon::prelude::*;

use super::lanes::{Lanes, Stored};
use super::{Own, Weights, naive};
use crate::simd::{Level, dispatch, prefetch};
use crate::sparse::{Pattern, cut};

/// Additions of single numbers in a task.
const TASK: usize = 1 << 19;
/// Entries in a segment of a long row; also the most entries and rows of a task.
const SEGMENT: usize = 1 << 14;
/// How many entries ahead rows are asked for.
const AHEAD: usize = 12;

/// One aggregation of rows stored as `S`, without its output.
#[derive(Clone, Copy)]
pub struct Aggregation<'a, S> {
    /// The instruction set; this CPU must have it.
    pub level: Level,
    /// Which rows are summed.
    pub pattern: Pattern<'a>,
    /// What multiplies them.
    pub weights: Weights<'a, f32>,
    /// The rows.
    pub x: &'a [S],
    /// Columns of a row.
    pub width: usize,
    /// Whether sums are added to the content of the output.
    pub keep: bool,
}

/// As [`super::aggregate`] or, with `keep`, [`super::add_aggregate`].
pub fn aggregate(job: Aggregation<f32>, out: &mut [f32]) {
    run(job, out);
}

/// As [`super::aggregate_half`] or, with `keep`, [`super::add_aggregate_half`].
pub fn aggregate_half(job: Aggregation<half::f16>, out: &mut [f32]) {
    run(job, out);
}

fn run<S: Stored>(job: Aggregation<S>, out: &mut [f32]) {
    job.weights.check(job.pattern, job.x.len(), job.width, out.len());
    if job.width == 0 {
        return;
    }
    let tasks = job.pattern.tasks((TASK / job.width).clamp(1, SEGMENT));
    if let [rows] = &tasks[..] {
        return sum_task(job, rows.clone(), out);
    }
    let shares = cut(&tasks, job.width, out);
    tasks.into_par_iter().zip(shares).with_max_len(1).for_each(|(rows, out)| sum_task(job, rows, out));
}

/// A task: the sums of some rows.
fn sum_task<S: Stored>(job: Aggregation<S>, rows: Range<usize>, out: &mut [f32]) {
    // Only the last row of a task can be longer than a segment: the next row would be in the next task.
    let long = rows.end.checked_sub(1).filter(|&r| job.pattern.row(r).len() > SEGMENT);
    let Some(long) = long else { return sums(job.level, &job, rows, out) };
    let (out, last) = out.split_at_mut((long - rows.start) * job.width);
    rayon::join(|| sum_long_row(job, long, last), || sums(job.level, &job, rows.start..long, out));
}

/// A row cut into segments that are summed side by side and added up in their order.
fn sum_long_row<S: Stored>(job: Aggregation<S>, r: usize, out: &mut [f32]) {
    let row = job.pattern.row(r);
    let starts: Vec<u64> = row.clone().step_by(SEGMENT).map(|e| e as u64).collect();
    let ends: Vec<u64> = starts.iter().map(|&e| row.end.min(e as usize + SEGMENT) as u64).collect();
    let pattern = Pattern { starts: &starts, ends: &ends, ..job.pattern };
    let weights = Weights { destination: None, own: None, ..job.weights };
    let segments = Aggregation { pattern, weights, keep: false, ..job };
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
    if let Some((weight, from)) = job.weights.own.and_then(|own| own.of(r)) {
        let own = &job.x[from * job.width..(from + 1) * job.width];
        total.iter_mut().zip(own).for_each(|(o, x)| *o += weight * x.single());
    }
    if job.keep {
        naive::add(1.0, total, out);
    } else {
        out.copy_from_slice(total);
    }
}

dispatch!(fn sums[S: Stored](job: &Aggregation<S>, rows: Range<usize>, out: &mut [f32]) = sums_body);

#[inline(always)]
fn sums_body<I: Lanes, S: Stored>(job: &Aggregation<S>, rows: Range<usize>, out: &mut [f32]) {
    if job.weights.source.is_some() {
        rows_body::<I, S, true>(job, rows, out);
    } else {
        rows_body::<I, S, false>(job, rows, out);
    }
}

/// A row about to be summed.
struct Row<'a, S> {
    /// Its entries.
    columns: &'a [u32],
    /// The entries that follow.
    following: &'a [u32],
    source: &'a [f32],
    x: &'a [S],
    width: usize,
    /// Number of rows of `x`.
    sources: usize,
    scale: Option<f32>,
    /// Weight and row of `x`.
    own: Option<(f32, usize)>,
    keep: bool,
}

#[inline(always)]
fn rows_body<I: Lanes, S: Stored, const WEIGHTED: bool>(
    job: &Aggregation<S>,
    rows: Range<usize>,
    out: &mut [f32],
) {
    let Aggregation { pattern, weights, x, width, keep, .. } = *job;
    let vectors = width.div_ceil(I::LANES);
    let blocks = vectors.div_ceil(I::SUMS);
    let sources = x.len() / width;
    for (r, out) in rows.zip(out.chunks_exact_mut(width)) {
        let entries = pattern.row(r);
        let row = Row {
            columns: &pattern.columns[entries.clone()],
            following: &pattern.columns[entries.end..],
            source: weights.source.unwrap_or(&[]),
            x,
            width,
            sources,
            scale: weights.destination.map(|d| d[r]),
            own: weights.own.and_then(|own: Own<f32>| own.of(r)),
            keep,
        };
        // Nothing to add: of a part of the edges, most rows may have none.
        if keep && row.columns.is_empty() && row.own.is_none() {
            continue;
        }
        let mut first = 0;
        for i in 0..blocks {
            // Blocks of equal sizes, as near as can be.
            let count = vectors * (i + 1) / blocks - vectors * i / blocks;
            let columns = first..width.min(first + count * I::LANES);
            block_of::<I, S, WEIGHTED>(count, &row, columns.clone(), out);
            first = columns.end;
        }
    }
}

/// Calls the block of `count` vectors.
#[inline(always)]
fn block_of<I: Lanes, S: Stored, const WEIGHTED: bool>(
    count: usize,
    row: &Row<S>,
    columns: Range<usize>,
    out: &mut [f32],
) {
    macro_rules! choose {
        ($($n:literal)*) => {
            match count {
                $($n if const { $n <= I::SUMS } => block::<I, S, WEIGHTED, $n>(row, columns, out),)*
                _ => unreachable!("blocks have from 1 to {} vectors", I::SUMS),
            }
        };
    }
    choose!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
}

/// Sums of `columns`, which fill `N` vectors, the last one perhaps in part.
#[inline(always)]
fn block<I: Lanes, S: Stored, const WEIGHTED: bool, const N: usize>(
    row: &Row<S>,
    columns: Range<usize>,
    out: &mut [f32],
) {
    let last = columns.len() - (N - 1) * I::LANES;
    assert!((1..=I::LANES).contains(&last) && columns.end <= row.width && columns.end <= out.len());
    // What is read after this block: the next block of the same entries, or the first of those that follow.
    let (next, after) = if columns.end < row.width { (columns.end, row.columns) } else { (0, row.following) };
    // SAFETY: `dispatch!` compiles this for the instruction set of `I` and calls it where that is there. Vectors lie
    // within `columns`, hence within a row of `x` and within `out`, by the assertion.
    unsafe {
        let mut sums = [I::splat(0.0); N];
        for (e, &c) in row.columns.iter().enumerate() {
            let ahead = e + AHEAD;
            let (first, then) = match ahead.checked_sub(row.columns.len()) {
                None => (columns.start, row.columns.get(ahead)),
                Some(ahead) => (next, after.get(ahead)),
            };
            if let Some(&then) = then {
                ask::<I, S, N>(row, then as usize, first);
            }
            let weight = if WEIGHTED { row.source[c as usize] } else { 1.0 };
            add::<I, S, WEIGHTED, N>(row, c as usize, columns.start, last, weight, &mut sums);
        }
        if let Some(scale) = row.scale {
            for sum in &mut sums {
                *sum = I::mul(I::splat(scale), *sum);
            }
        }
        if let Some((weight, from)) = row.own {
            add::<I, S, true, N>(row, from, columns.start, last, weight, &mut sums);
        }
        let at = out.as_mut_ptr().add(columns.start);
        if row.keep {
            for (i, sum) in sums[..N - 1].iter_mut().enumerate() {
                *sum = I::add(I::load(at.add(i * I::LANES)), *sum);
            }
            let there = I::load_first(at.add((N - 1) * I::LANES), last);
            sums[N - 1] = I::add(there, sums[N - 1]);
        }
        for (i, &sum) in sums[..N - 1].iter().enumerate() {
            I::store(sum, at.add(i * I::LANES));
        }
        I::store_first(sums[N - 1], at.add((N - 1) * I::LANES), last);
    }
}

/// Asks for the part of row `c` of `x` that a block reads.
#[inline(always)]
fn ask<I: Lanes, S: Stored, const N: usize>(row: &Row<S>, c: usize, first: usize) {
    for line in (0..N * I::LANES).step_by(64 / size_of::<S>()) {
        prefetch(row.x, c * row.width + first + line);
    }
}

/// Adds columns from `first` on of row `c` of `x`, under `weight` if `WEIGHTED`, to sums; `last` of them in the last
/// vector.
///
/// # Safety
/// As [`Lanes`]; the columns are there.
#[inline(always)]
unsafe fn add<I: Lanes, S: Stored, const WEIGHTED: bool, const N: usize>(
    row: &Row<S>,
    c: usize,
    first: usize,
    last: usize,
    weight: f32,
    sums: &mut [I::Vector; N],
) {
    assert!(c < row.sources, "column {c} of a pattern, where there are {} rows", row.sources);
    // SAFETY: the row is there, as just asserted, and the caller promises the columns and the instruction set.
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
