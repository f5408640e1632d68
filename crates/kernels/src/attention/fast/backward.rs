//! Backward: gradients of messages.

use std::ops::Range;

use rayon::prelude::*;

use super::Config;
use super::block::{BLOCK, Block, Entries, EntryDropout, LANES, lanes, lanes_mut, leaky};
use crate::attention::heads::dot;
use crate::attention::{Attention, HeadRows, HeadStats};
use crate::exp::exp;
use crate::simd::{Isa, dispatch, sum_lanes};
use crate::sparse::{Pattern, split_by_task};

/// Implements [`Attention::messages_backward`].
pub(crate) fn backward(
    config: Config,
    at: &Attention<f32>,
    back: Pattern,
    (stats, rows): (&[HeadStats<f32>], Option<&[u32]>),
    grad: HeadRows<f32>,
    messages_grad: &mut [f32],
) {
    let job = Job { config, at, back, stats, rows, grad };
    let tasks = config.tasks(back);
    let outs = split_by_task(&tasks, at.pitch(), messages_grad);
    tasks.into_par_iter().zip(outs).for_each(|(columns, out)| job.columns(columns, out));
}

/// Operands of a backward.
#[derive(Clone, Copy)]
struct Job<'a> {
    config: Config,
    at: &'a Attention<'a, f32>,
    back: Pattern<'a>,
    stats: &'a [HeadStats<f32>],
    rows: Option<&'a [u32]>,
    grad: HeadRows<'a, f32>,
}

impl<'a> Job<'a> {
    /// Returns the entries of column `u`.
    fn entries(self, u: usize) -> Entries<'a> {
        let stored = &self.back.columns[self.back.row(u)];
        Entries { stored, self_loop: self.at.own_row(u).map(|row| row as u32) }
    }

    /// Computes the columns of a task.
    fn columns(self, columns: Range<usize>, out: &mut [f32]) {
        let Some(long) = self.config.long_row(self.back, &columns) else {
            return backward_columns(self.config.level, self, columns, None, out);
        };
        let others = columns.start..long;
        let (out, long_out) = out.split_at_mut(others.len() * self.at.pitch());
        rayon::join(
            || self.long_column(long, long_out),
            || backward_columns(self.config.level, self, others, None, out),
        );
    }

    /// Computes a long column: segments in parallel, then their sums in order.
    fn long_column(self, u: usize, out: &mut [f32]) {
        let segments = self.entries(u).segments(self.config.segment);
        let mut parts = vec![0.0; segments.len() * out.len()];
        segments.into_par_iter().zip(parts.par_chunks_exact_mut(out.len())).for_each(|(entries, part)| {
            backward_columns(self.config.level, self, u..u + 1, Some(entries), part);
        });
        out.fill(0.0);
        for part in parts.chunks_exact(out.len()) {
            out.iter_mut().zip(part).for_each(|(o, part)| *o += part);
        }
    }
}

dispatch!(fn backward_columns(
    job: Job,
    columns: Range<usize>,
    entries: Option<Entries>,
    out: &mut [f32],
) = backward_columns_body);

/// Computes columns; with `entries`, one column over these instead of all its entries.
#[inline(always)]
fn backward_columns_body<I: Isa>(job: Job, columns: Range<usize>, entries: Option<Entries>, out: &mut [f32]) {
    let at = job.at;
    let (drop, negative) = (at.mask.map(EntryDropout::new), vec![0.0; at.heads * at.width]);
    let (block, block_stats) = (Block::new(), BlockStats::new());
    let mut backward = Backward { job, drop, block, block_stats, negative };
    for (u, out) in columns.zip(out.chunks_exact_mut(at.pitch())) {
        backward.column::<I>(u, entries.unwrap_or_else(|| job.entries(u)), out);
    }
}

/// Working memory for a backward of columns.
struct Backward<'a> {
    job: Job<'a>,
    drop: Option<EntryDropout<'a>>,
    block: Block,
    block_stats: BlockStats,
    /// Sum over non-positive entries, N.
    negative: Vec<f32>,
}

impl Backward<'_> {
    /// Computes one column.
    #[inline(always)]
    fn column<I: Isa>(&mut self, u: usize, entries: Entries, out: &mut [f32]) {
        let at = self.job.at;
        out.fill(0.0);
        self.negative.fill(0.0);
        let (z_grad, source_grad) = out.split_at_mut(at.heads * at.width);
        self.add_entries::<I>(u, entries, z_grad, source_grad);
        for (h, source_grad) in source_grad.iter_mut().enumerate() {
            let head = h * at.width..(h + 1) * at.width;
            let (z, z_grad, negative) = (at.z(u, h), &mut z_grad[head.clone()], &self.negative[head]);
            *source_grad += dot(z, z_grad) + at.slope as f32 * dot(z, negative);
            z_grad.iter_mut().zip(negative).for_each(|(z, l)| *z += l);
        }
    }

    /// Adds weighted gradients to the sums P (`positive`) and N, and subtracts `Σ k α D` from `source_grad`.
    #[inline(always)]
    fn add_entries<I: Isa>(
        &mut self,
        u: usize,
        entries: Entries,
        positive: &mut [f32],
        source_grad: &mut [f32],
    ) {
        let Job { at, stats, rows, grad, .. } = self.job;
        let source = &at.messages[u * at.pitch() + at.heads * at.width..];
        for start in (0..entries.len()).step_by(BLOCK) {
            self.block.count = entries.block(start, &mut self.block.ends);
            if let Some(EntryDropout { mask, .. }) = self.drop {
                self.block.make_keys(|end| mask.entry(end, at.first, u));
            }
            if let Some(rows) = rows {
                self.block.map_ends(rows);
            }
            for (h, source_grad) in source_grad.iter_mut().enumerate() {
                self.block_stats.read(&self.block, &stats[h..], at.heads, source[h]);
                *source_grad -= self.block_stats.weights::<I>(&mut self.block, at.slope as f32);
                let sides = self.block.partition(&self.block_stats.logits, true, self.drop, h);
                self.block.add_sides::<I>(sides, grad, h, at.width, [&mut *positive, &mut self.negative]);
            }
        }
    }
}

/// Logits and [`HeadStats`] of the entries of a block, one array per value.
struct BlockStats {
    logits: [f32; BLOCK],
    max: [f32; BLOCK],
    inverse_sum: [f32; BLOCK],
    /// D.
    product: [f32; BLOCK],
}

impl BlockStats {
    fn new() -> Self {
        BlockStats {
            logits: [0.0; BLOCK],
            max: [0.0; BLOCK],
            inverse_sum: [0.0; BLOCK],
            product: [0.0; BLOCK],
        }
    }

    /// Gathers the values of the entries of a block, for one head.
    #[inline(always)]
    fn read(&mut self, block: &Block, stats: &[HeadStats<f32>], heads: usize, source: f32) {
        for (i, &end) in block.ends[..block.count].iter().enumerate() {
            let [destination, max, inverse_sum, product] = stats[end as usize * heads];
            self.logits[i] = source + destination;
            self.max[i] = max;
            self.inverse_sum[i] = inverse_sum;
            self.product[i] = product;
        }
    }

    /// Computes `α = exp(leaky(logit) - max) * inverse_sum`. Returns `Σ k_e α_e D`.
    #[inline(always)]
    fn weights<I: Isa>(&self, block: &mut Block, slope: f32) -> f32 {
        let count = block.count;
        let stats = lanes(&self.logits, count).iter().zip(lanes(&self.max, count));
        let stats = stats.zip(lanes(&self.inverse_sum, count));
        for (((x, max), inverse_sum), alpha) in stats.zip(lanes_mut(&mut block.alpha, count)) {
            (0..LANES).for_each(|i| alpha[i] = exp::<I>(leaky(x[i], slope) - max[i]) * inverse_sum[i]);
        }
        // The last lanes may contain values of an earlier block.
        block.alpha[count..count.next_multiple_of(LANES)].fill(0.0);
        let mut sums = [0.0; LANES];
        let stats = lanes(&self.logits, count).iter().zip(lanes(&self.product, count));
        for ((x, product), alpha) in stats.zip(lanes(&block.alpha, count)) {
            for i in 0..LANES {
                let k = if x[i] > 0.0 { 1.0 } else { slope };
                sums[i] += if alpha[i] == 0.0 { 0.0 } else { k * alpha[i] * product[i] };
            }
        }
        sum_lanes(sums)
    }
}
