//! The forward: output of every row, and what is saved of it.

use std::ops::Range;

use rayon::prelude::*;

use super::Way;
use super::block::{BLOCK, Block, Drop, Entries, LANES, lanes, lanes_mut, leaky, sum};
use crate::attention::exp::exp;
use crate::attention::merge::merge_row;
use crate::attention::saved::{Saved, SavedRows, SlopeRows};
use crate::attention::{Attention, Heads};
use crate::simd::{Isa, dispatch};
use crate::sparse::split_by_task;

/// Fills `out`, and `saved` in the form it has.
pub(crate) fn forward(way: Way, at: &Attention<f32>, saved: Option<&mut Saved<f32>>, out: &mut [f32]) {
    let (source, tasks) = (at.source(), way.tasks(at.pattern));
    let job = Job { way, at, source: &source };
    let saved: Vec<Option<SavedRows<f32>>> = match saved {
        None => tasks.iter().map(|_| None).collect(),
        Some(saved) => {
            saved.make_room(at.rows(), at.heads, at.width);
            saved.of_tasks(&tasks, at.heads, at.width).into_iter().map(Some).collect()
        }
    };
    let outs = split_by_task(&tasks, at.heads * at.width, out);
    tasks.into_par_iter().zip(outs).zip(saved).for_each(|((rows, out), saved)| job.rows(rows, saved, out));
}

/// One forward, except where its results go.
#[derive(Clone, Copy)]
struct Job<'a> {
    way: Way,
    at: &'a Attention<'a, f32>,
    /// `s` of all columns.
    source: &'a [f32],
}

impl<'a> Job<'a> {
    /// The entries of row `r`.
    fn entries(self, r: usize) -> Entries<'a> {
        let stored = &self.at.pattern.columns[self.at.pattern.row(r)];
        Entries { stored, own: self.at.first.map(|first| (first + r) as u32) }
    }

    /// A task: some rows.
    fn rows(self, rows: Range<usize>, saved: Option<SavedRows<f32>>, out: &mut [f32]) {
        let Attention { heads, width, .. } = *self.at;
        let Some(long) = self.way.long_row(self.at.pattern, &rows) else {
            return forward_rows(self.way.level, self, rows, None, saved, out);
        };
        let others = rows.start..long;
        let (out, long_out) = out.split_at_mut(others.len() * heads * width);
        let (saved, long_saved) = saved.map(|saved| saved.split_at(others.len(), heads, width)).unzip();
        rayon::join(
            || self.long_row(long, long_saved, long_out),
            || forward_rows(self.way.level, self, others, None, saved, out),
        );
    }

    /// A row cut into segments that are attended side by side and merged in their order.
    fn long_row(self, r: usize, saved: Option<SavedRows<f32>>, out: &mut [f32]) {
        let Attention { heads, width, .. } = *self.at;
        let segments = self.entries(r).segments(self.way.segment);
        let count = segments.len();
        let tasks: Vec<Range<usize>> = (0..count).map(|i| i..i + 1).collect();
        let is_trained = saved.as_ref().is_some_and(|saved| saved.slopes.is_some());
        let mut parts = if is_trained { Saved::default() } else { Saved::for_evaluation() };
        parts.make_room(count, heads, width);
        let mut part_outs = vec![0.0; count * heads * width];
        let results = parts.of_tasks(&tasks, heads, width).into_par_iter();
        let results = results.zip(part_outs.par_chunks_exact_mut(heads * width));
        segments.into_par_iter().zip(results).for_each(|(entries, (saved, out))| {
            forward_rows(self.way.level, self, r..r + 1, Some(entries), Some(saved), out);
        });

        let mut unwanted = Saved::for_evaluation();
        unwanted.make_room(1, heads, width);
        let mut saved = saved.unwrap_or_else(|| unwanted.rows());
        saved.clear();
        out.fill(0.0);
        for part in 0..count {
            merge_row((saved.row(0, heads, width), &mut *out), (&parts, &part_outs), part, width);
        }
    }
}

dispatch!(fn forward_rows(
    job: Job,
    rows: Range<usize>,
    entries: Option<Entries>,
    saved: Option<SavedRows<f32>>,
    out: &mut [f32],
) = forward_rows_body);

/// Some rows; if there are `entries`, one row over these instead of its own.
#[inline(always)]
fn forward_rows_body<I: Isa>(
    job: Job,
    rows: Range<usize>,
    entries: Option<Entries>,
    mut saved: Option<SavedRows<f32>>,
    out: &mut [f32],
) {
    let Job { at, source, .. } = job;
    let mut forward = Forward {
        at,
        source,
        drop: at.mask.map(Drop::new),
        block: Block::new(),
        logits: vec![[0.0; BLOCK]; at.heads],
        sums: vec![HeadSums::default(); at.heads],
    };
    for (i, (r, out)) in rows.zip(out.chunks_exact_mut(at.heads * at.width)).enumerate() {
        let entries = entries.unwrap_or_else(|| job.entries(r));
        let saved = saved.as_mut().map(|saved| saved.row(i, at.heads, at.width));
        forward.row::<I>(r, entries, saved, out);
    }
}

/// What the forward collects for a head over the blocks of a row.
#[derive(Clone, Copy, Default)]
struct HeadSums {
    /// Largest logit.
    top: f32,
    /// Sum of all exponentials, and of those on the lower side.
    all: f32,
    lower: f32,
}

/// The forward of one row after the other.
struct Forward<'a> {
    at: &'a Attention<'a, f32>,
    source: &'a [f32],
    drop: Option<Drop<'a>>,
    block: Block,
    /// Of every head, s + t of a block.
    logits: Vec<[f32; BLOCK]>,
    sums: Vec<HeadSums>,
}

impl Forward<'_> {
    #[inline(always)]
    fn row<I: Isa>(&mut self, r: usize, entries: Entries, saved: Option<SavedRows<f32>>, out: &mut [f32]) {
        out.fill(0.0);
        if entries.len() == 0 {
            return saved.into_iter().for_each(|mut saved| saved.clear());
        }
        let (sums, slopes) = match saved {
            None => (None, None),
            Some(SavedRows { top, inverse, slopes }) => (Some((top, inverse)), slopes),
        };
        self.find_tops(r, entries);
        match slopes {
            None => {
                self.attend::<I>(r, entries, out, None);
                self.normalise(out);
            }
            Some(slopes) => {
                slopes.derivative.fill(0.0);
                self.attend::<I>(r, entries, out, Some(&mut *slopes.derivative));
                self.finish(slopes, out);
            }
        }
        if let Some((top, inverse)) = sums {
            for (h, sums) in self.sums.iter().enumerate() {
                (top[h], inverse[h]) = (sums.top, 1.0 / sums.all);
            }
        }
    }

    #[inline(always)]
    fn find_tops(&mut self, r: usize, entries: Entries) {
        self.sums.fill(HeadSums { top: f32::NEG_INFINITY, ..HeadSums::default() });
        for start in (0..entries.len()).step_by(BLOCK) {
            self.block.count = entries.block(start, &mut self.block.ends);
            for h in 0..self.at.heads {
                self.add_scores(r, h);
                let sums = &mut self.sums[h];
                sums.top = largest(&self.logits[h], self.block.count, sums.top);
            }
        }
        // The leaky ReLU keeps their order.
        self.sums.iter_mut().for_each(|sums| sums.top = leaky(sums.top, self.at.slope as f32));
    }

    /// `logits = s + t` for the entries of the block; lanes left over never win.
    #[inline(always)]
    fn add_scores(&mut self, r: usize, h: usize) {
        let (heads, count) = (self.at.heads, self.block.count);
        let (source, destination) = (&self.source[h..], self.at.destination[r * heads + h]);
        for (logit, &end) in self.logits[h].iter_mut().zip(&self.block.ends[..count]) {
            *logit = source[end as usize * heads] + destination;
        }
        self.logits[h][count..count.next_multiple_of(LANES)].fill(f32::NEG_INFINITY);
    }

    /// Adds entries to the sums of the two sides; of all to `upper` if there is no `lower`.
    #[inline(always)]
    fn attend<I: Isa>(&mut self, r: usize, entries: Entries, upper: &mut [f32], lower: Option<&mut [f32]>) {
        let (at, divided) = (self.at, lower.is_some());
        let z = Heads { data: at.messages, pitch: at.pitch(), step: at.width };
        let lower = lower.unwrap_or_default();
        for start in (0..entries.len()).step_by(BLOCK) {
            // A row of one block has just been read.
            let again = entries.len() > BLOCK;
            if again {
                self.block.count = entries.block(start, &mut self.block.ends);
            }
            if let Some(Drop { mask, .. }) = self.drop {
                let row = mask.row(r, at.first);
                self.block.make_keys(|end| row.with(mask.column_id(end)));
            }
            for h in 0..at.heads {
                if again {
                    self.add_scores(r, h);
                }
                exponentials::<I>(&mut self.block, &self.logits[h], at.slope as f32, &mut self.sums[h]);
                let sides = self.block.sort(&self.logits[h], divided, self.drop, h);
                self.block.add_sides::<I>(sides, z, h, at.width, [&mut *upper, &mut *lower]);
            }
        }
    }

    #[inline(always)]
    fn normalise(&self, out: &mut [f32]) {
        for (out, sums) in out.chunks_exact_mut(self.at.width).zip(&self.sums) {
            let inverse = 1.0 / sums.all;
            out.iter_mut().for_each(|o| *o *= inverse);
        }
    }

    /// Turns the sums of the two sides, in `out` and `slopes.derivative`, into the output and its derivative,
    /// `Σ k w z - out Σ k α` with k = 1 on the upper side and the slope on the lower.
    #[inline(always)]
    fn finish(&self, slopes: SlopeRows<f32>, out: &mut [f32]) {
        let (width, slope) = (self.at.width, self.at.slope as f32);
        for (h, sums) in self.sums.iter().enumerate() {
            let (inverse, share) = (1.0 / sums.all, sums.lower / sums.all);
            slopes.mean[h] = 1.0 - (1.0 - slope) * share;
            let head = h * width..(h + 1) * width;
            for (out, derivative) in out[head.clone()].iter_mut().zip(&mut slopes.derivative[head]) {
                let lower = *derivative * inverse;
                *out = *out * inverse + lower;
                *derivative = (1.0 - slope) * (share * *out - lower);
            }
        }
    }
}

#[inline(always)]
fn largest(x: &[f32; BLOCK], count: usize, at_least: f32) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut most = [at_least; LANES];
    for x in lanes(x, count) {
        (0..LANES).for_each(|i| most[i] = larger(most[i], x[i]));
    }
    most.into_iter().fold(at_least, larger)
}

/// `alpha = exp(leaky(logit) - top)`, added to the sums.
#[inline(always)]
fn exponentials<I: Isa>(block: &mut Block, logits: &[f32; BLOCK], slope: f32, sums: &mut HeadSums) {
    let count = block.count;
    for (x, e) in lanes(logits, count).iter().zip(lanes_mut(&mut block.alpha, count)) {
        (0..LANES).for_each(|i| e[i] = exp::<I>(leaky(x[i], slope) - sums.top));
    }
    block.alpha[count..count.next_multiple_of(LANES)].fill(0.0);
    let (mut all, mut lower) = ([0.0; LANES], [0.0; LANES]);
    for (x, e) in lanes(logits, count).iter().zip(lanes(&block.alpha, count)) {
        for i in 0..LANES {
            all[i] += e[i];
            lower[i] += if x[i] > 0.0 { 0.0 } else { e[i] };
        }
    }
    sums.all += sum(all);
    sums.lower += sum(lower);
}
