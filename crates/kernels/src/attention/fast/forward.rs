//! Forward: outputs of rows, and saved values.

use std::ops::Range;

use rayon::prelude::*;

use super::Config;
use super::block::{BLOCK, Block, Entries, EntryDropout, LANES, lanes, lanes_mut, leaky};
use crate::attention::merge::merge_row;
use crate::attention::saved::{Saved, SavedRows, SlopeRows};
use crate::attention::{Attention, HeadRows};
use crate::exp::exp;
use crate::simd::{Isa, dispatch, sum_lanes};
use crate::sparse::split_by_task;

/// Implements [`Attention::forward`].
pub(crate) fn forward(config: Config, at: &Attention<f32>, saved: Option<&mut Saved<f32>>, out: &mut [f32]) {
    let (source, tasks) = (at.source(), config.tasks(at.pattern));
    let job = Job { config, at, source: &source };
    let saved: Vec<Option<SavedRows<f32>>> = match saved {
        None => tasks.iter().map(|_| None).collect(),
        Some(saved) => {
            saved.allocate(at.rows(), at.heads, at.width);
            saved.split_by_task(&tasks, at.heads, at.width).into_iter().map(Some).collect()
        }
    };
    let outs = split_by_task(&tasks, at.heads * at.width, out);
    tasks.into_par_iter().zip(outs).zip(saved).for_each(|((rows, out), saved)| job.rows(rows, saved, out));
}

/// Operands of a forward.
#[derive(Clone, Copy)]
struct Job<'a> {
    config: Config,
    at: &'a Attention<'a, f32>,
    /// `s` of all columns: columns x heads.
    source: &'a [f32],
}

impl<'a> Job<'a> {
    /// Returns the entries of row `r`.
    fn entries(self, r: usize) -> Entries<'a> {
        let stored = &self.at.pattern.columns[self.at.pattern.row(r)];
        Entries { stored, self_loop: self.at.first.map(|first| (first + r) as u32) }
    }

    /// Computes the rows of a task.
    fn rows(self, rows: Range<usize>, saved: Option<SavedRows<f32>>, out: &mut [f32]) {
        let Attention { heads, width, .. } = *self.at;
        let Some(long) = self.config.long_row(self.at.pattern, &rows) else {
            return forward_rows(self.config.level, self, rows, None, saved, out);
        };
        let others = rows.start..long;
        let (out, long_out) = out.split_at_mut(others.len() * heads * width);
        let (saved, long_saved) = saved.map(|saved| saved.split_at(others.len(), heads, width)).unzip();
        rayon::join(
            || self.long_row(long, long_saved, long_out),
            || forward_rows(self.config.level, self, others, None, saved, out),
        );
    }

    /// Computes a long row: segments in parallel, then their results are merged in order.
    fn long_row(self, r: usize, saved: Option<SavedRows<f32>>, out: &mut [f32]) {
        let Attention { heads, width, .. } = *self.at;
        let segments = self.entries(r).segments(self.config.segment);
        let count = segments.len();
        let tasks: Vec<Range<usize>> = (0..count).map(|i| i..i + 1).collect();
        let has_backward = saved.as_ref().is_some_and(|saved| saved.slopes.is_some());
        let mut parts = if has_backward { Saved::default() } else { Saved::for_evaluation() };
        parts.allocate(count, heads, width);
        let mut part_outs = vec![0.0; count * heads * width];
        let results = parts.split_by_task(&tasks, heads, width).into_par_iter();
        let results = results.zip(part_outs.par_chunks_exact_mut(heads * width));
        segments.into_par_iter().zip(results).for_each(|(entries, (saved, out))| {
            forward_rows(self.config.level, self, r..r + 1, Some(entries), Some(saved), out);
        });

        let mut unwanted = Saved::for_evaluation();
        unwanted.allocate(1, heads, width);
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

/// Computes rows; with `entries`, one row over these instead of all its entries.
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
        drop: at.mask.map(EntryDropout::new),
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

/// Softmax values of a head, accumulated over the blocks of a row.
#[derive(Clone, Copy, Default)]
struct HeadSums {
    /// Maximum logit.
    max: f32,
    /// Sum of exponentials over all entries.
    all: f32,
    /// Sum of exponentials over non-positive entries.
    negative: f32,
}

/// Working memory for a forward of rows.
struct Forward<'a> {
    at: &'a Attention<'a, f32>,
    source: &'a [f32],
    drop: Option<EntryDropout<'a>>,
    block: Block,
    /// s + t of the entries of a block, per head.
    logits: Vec<[f32; BLOCK]>,
    sums: Vec<HeadSums>,
}

impl Forward<'_> {
    /// Computes one row.
    #[inline(always)]
    fn row<I: Isa>(&mut self, r: usize, entries: Entries, saved: Option<SavedRows<f32>>, out: &mut [f32]) {
        out.fill(0.0);
        if entries.len() == 0 {
            return saved.into_iter().for_each(|mut saved| saved.clear());
        }
        let (sums, slopes) = match saved {
            None => (None, None),
            Some(SavedRows { max, inverse_sum, slopes }) => (Some((max, inverse_sum)), slopes),
        };
        self.find_max(r, entries);
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
        if let Some((max, inverse_sum)) = sums {
            for (h, sums) in self.sums.iter().enumerate() {
                (max[h], inverse_sum[h]) = (sums.max, 1.0 / sums.all);
            }
        }
    }

    /// Computes the maximum logit per head.
    #[inline(always)]
    fn find_max(&mut self, r: usize, entries: Entries) {
        self.sums.fill(HeadSums { max: f32::NEG_INFINITY, ..HeadSums::default() });
        for start in (0..entries.len()).step_by(BLOCK) {
            self.block.count = entries.block(start, &mut self.block.ends);
            for h in 0..self.at.heads {
                self.add_scores(r, h);
                let sums = &mut self.sums[h];
                sums.max = maximum(&self.logits[h], self.block.count, sums.max);
            }
        }
        // The leaky ReLU preserves the order of logits.
        self.sums.iter_mut().for_each(|sums| sums.max = leaky(sums.max, self.at.slope as f32));
    }

    /// Computes `logits = s + t` for the entries of the block, and -∞ for unused lanes.
    #[inline(always)]
    fn add_scores(&mut self, r: usize, h: usize) {
        let (heads, count) = (self.at.heads, self.block.count);
        let (source, destination) = (&self.source[h..], self.at.destination[r * heads + h]);
        for (logit, &end) in self.logits[h].iter_mut().zip(&self.block.ends[..count]) {
            *logit = source[end as usize * heads] + destination;
        }
        self.logits[h][count..count.next_multiple_of(LANES)].fill(f32::NEG_INFINITY);
    }

    /// Adds weighted messages to the sums P (`positive`) and N (`negative`); without `negative`, all to `positive`.
    #[inline(always)]
    fn attend<I: Isa>(
        &mut self,
        r: usize,
        entries: Entries,
        positive: &mut [f32],
        negative: Option<&mut [f32]>,
    ) {
        let (at, by_sign) = (self.at, negative.is_some());
        let z = HeadRows { data: at.messages, pitch: at.pitch(), step: at.width };
        let negative = negative.unwrap_or_default();
        for start in (0..entries.len()).step_by(BLOCK) {
            // The logits of a row of one block are still in memory.
            let reload = entries.len() > BLOCK;
            if reload {
                self.block.count = entries.block(start, &mut self.block.ends);
            }
            if let Some(EntryDropout { mask, .. }) = self.drop {
                let row = mask.row(r, at.first);
                self.block.make_keys(|end| row.with(mask.column_id(end)));
            }
            for h in 0..at.heads {
                if reload {
                    self.add_scores(r, h);
                }
                exponentials::<I>(&mut self.block, &self.logits[h], at.slope as f32, &mut self.sums[h]);
                let sides = self.block.partition(&self.logits[h], by_sign, self.drop, h);
                self.block.add_sides::<I>(sides, z, h, at.width, [&mut *positive, &mut *negative]);
            }
        }
    }

    /// Divides the sums by the softmax denominators.
    #[inline(always)]
    fn normalise(&self, out: &mut [f32]) {
        for (out, sums) in out.chunks_exact_mut(self.at.width).zip(&self.sums) {
            let inverse_sum = 1.0 / sums.all;
            out.iter_mut().for_each(|o| *o *= inverse_sum);
        }
    }

    /// Turns the sums P in `out` and N in `slopes.derivative` into the output and its derivative `Σ k α f z - out Σ k
    /// α`, with k = 1 for positive entries and the slope for others.
    #[inline(always)]
    fn finish(&self, slopes: SlopeRows<f32>, out: &mut [f32]) {
        let (width, slope) = (self.at.width, self.at.slope as f32);
        for (h, sums) in self.sums.iter().enumerate() {
            let (inverse_sum, share) = (1.0 / sums.all, sums.negative / sums.all);
            slopes.mean[h] = 1.0 - (1.0 - slope) * share;
            let head = h * width..(h + 1) * width;
            for (out, derivative) in out[head.clone()].iter_mut().zip(&mut slopes.derivative[head]) {
                let negative = *derivative * inverse_sum;
                *out = *out * inverse_sum + negative;
                *derivative = (1.0 - slope) * (share * *out - negative);
            }
        }
    }
}

/// Returns the maximum of `initial` and the first `count` numbers of a block.
#[inline(always)]
fn maximum(x: &[f32; BLOCK], count: usize, initial: f32) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut maxima = [initial; LANES];
    for x in lanes(x, count) {
        (0..LANES).for_each(|i| maxima[i] = larger(maxima[i], x[i]));
    }
    maxima.into_iter().fold(initial, larger)
}

/// Computes `alpha = exp(leaky(logit) - max)` and adds it to the sums.
#[inline(always)]
fn exponentials<I: Isa>(block: &mut Block, logits: &[f32; BLOCK], slope: f32, sums: &mut HeadSums) {
    let count = block.count;
    for (x, e) in lanes(logits, count).iter().zip(lanes_mut(&mut block.alpha, count)) {
        (0..LANES).for_each(|i| e[i] = exp::<I>(leaky(x[i], slope) - sums.max));
    }
    block.alpha[count..count.next_multiple_of(LANES)].fill(0.0);
    let (mut all, mut negative) = ([0.0; LANES], [0.0; LANES]);
    for (x, e) in lanes(logits, count).iter().zip(lanes(&block.alpha, count)) {
        for i in 0..LANES {
            all[i] += e[i];
            negative[i] += if x[i] > 0.0 { 0.0 } else { e[i] };
        }
    }
    sums.all += sum_lanes(all);
    sums.negative += sum_lanes(negative);
}
