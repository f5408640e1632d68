//! The backward: the gradient of every message.

use std::ops::Range;

use rayon::prelude::*;

use super::Way;
use super::block::{BLOCK, Block, Drop, Entries, LANES, lanes, lanes_mut, leaky, sum};
use crate::attention::exp::exp;
use crate::attention::heads::dot;
use crate::attention::{Attention, Facts, Heads};
use crate::simd::{Isa, dispatch};
use crate::sparse::{Pattern, split_by_task};

/// Fills `messages_grad`. Facts and gradient are those of `rows` of theirs, if given.
pub(crate) fn backward(
    way: Way,
    at: &Attention<f32>,
    back: Pattern,
    (facts, rows): (&[Facts<f32>], Option<&[u32]>),
    grad: Heads<f32>,
    messages_grad: &mut [f32],
) {
    let job = Job { way, at, back, facts, rows, grad };
    let tasks = way.tasks(back);
    let outs = split_by_task(&tasks, at.pitch(), messages_grad);
    tasks.into_par_iter().zip(outs).for_each(|(columns, out)| job.columns(columns, out));
}

/// One backward, except where its result goes.
#[derive(Clone, Copy)]
struct Job<'a> {
    way: Way,
    at: &'a Attention<'a, f32>,
    back: Pattern<'a>,
    facts: &'a [Facts<f32>],
    rows: Option<&'a [u32]>,
    grad: Heads<'a, f32>,
}

impl<'a> Job<'a> {
    /// The entries of column `u`.
    fn entries(self, u: usize) -> Entries<'a> {
        let stored = &self.back.columns[self.back.row(u)];
        Entries { stored, own: self.at.own_row(u).map(|row| row as u32) }
    }

    /// A task: some columns.
    fn columns(self, columns: Range<usize>, out: &mut [f32]) {
        let Some(long) = self.way.long_row(self.back, &columns) else {
            return backward_columns(self.way.level, self, columns, None, out);
        };
        let others = columns.start..long;
        let (out, long_out) = out.split_at_mut(others.len() * self.at.pitch());
        rayon::join(
            || self.long_column(long, long_out),
            || backward_columns(self.way.level, self, others, None, out),
        );
    }

    /// A column cut into segments that are summed side by side and added up in their order.
    fn long_column(self, u: usize, out: &mut [f32]) {
        let segments = self.entries(u).segments(self.way.segment);
        let mut parts = vec![0.0; segments.len() * out.len()];
        segments.into_par_iter().zip(parts.par_chunks_exact_mut(out.len())).for_each(|(entries, part)| {
            backward_columns(self.way.level, self, u..u + 1, Some(entries), part);
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

/// Some columns; if there are `entries`, one column over these instead of its own.
#[inline(always)]
fn backward_columns_body<I: Isa>(job: Job, columns: Range<usize>, entries: Option<Entries>, out: &mut [f32]) {
    let at = job.at;
    let (drop, lower) = (at.mask.map(Drop::new), vec![0.0; at.heads * at.width]);
    let (block, block_facts) = (Block::new(), BlockFacts::new());
    let mut backward = Backward { job, drop, block, block_facts, lower };
    for (u, out) in columns.zip(out.chunks_exact_mut(at.pitch())) {
        backward.column::<I>(u, entries.unwrap_or_else(|| job.entries(u)), out);
    }
}

/// The backward of one column after the other.
struct Backward<'a> {
    job: Job<'a>,
    drop: Option<Drop<'a>>,
    block: Block,
    block_facts: BlockFacts,
    /// The sum of the lower side.
    lower: Vec<f32>,
}

impl Backward<'_> {
    #[inline(always)]
    fn column<I: Isa>(&mut self, u: usize, entries: Entries, out: &mut [f32]) {
        let at = self.job.at;
        out.fill(0.0);
        self.lower.fill(0.0);
        let (z_grad, source_grad) = out.split_at_mut(at.heads * at.width);
        self.collect::<I>(u, entries, z_grad, source_grad);
        for (h, source_grad) in source_grad.iter_mut().enumerate() {
            let head = h * at.width..(h + 1) * at.width;
            let (z, z_grad, lower) = (at.z(u, h), &mut z_grad[head.clone()], &self.lower[head]);
            *source_grad += dot(z, z_grad) + at.slope as f32 * dot(z, lower);
            z_grad.iter_mut().zip(lower).for_each(|(z, l)| *z += l);
        }
    }

    /// Adds gradients to the sums of the two sides, and takes `Σ k α D` from `source_grad`.
    #[inline(always)]
    fn collect<I: Isa>(&mut self, u: usize, entries: Entries, upper: &mut [f32], source_grad: &mut [f32]) {
        let Job { at, facts, rows, grad, .. } = self.job;
        let source = &at.messages[u * at.pitch() + at.heads * at.width..];
        for start in (0..entries.len()).step_by(BLOCK) {
            self.block.count = entries.block(start, &mut self.block.ends);
            if let Some(Drop { mask, .. }) = self.drop {
                self.block.make_keys(|end| mask.entry(end, at.first, u));
            }
            if let Some(rows) = rows {
                self.block.rename(rows);
            }
            for (h, source_grad) in source_grad.iter_mut().enumerate() {
                self.block_facts.read(&self.block, &facts[h..], at.heads, source[h]);
                *source_grad -= self.block_facts.weights::<I>(&mut self.block, at.slope as f32);
                let sides = self.block.sort(&self.block_facts.logits, true, self.drop, h);
                self.block.add_sides::<I>(sides, grad, h, at.width, [&mut *upper, &mut self.lower]);
            }
        }
    }
}

/// The facts of a block, one array each.
struct BlockFacts {
    logits: [f32; BLOCK],
    top: [f32; BLOCK],
    inverse: [f32; BLOCK],
    product: [f32; BLOCK],
}

impl BlockFacts {
    fn new() -> Self {
        BlockFacts { logits: [0.0; BLOCK], top: [0.0; BLOCK], inverse: [0.0; BLOCK], product: [0.0; BLOCK] }
    }

    #[inline(always)]
    fn read(&mut self, block: &Block, facts: &[Facts<f32>], heads: usize, source: f32) {
        for (i, &end) in block.ends[..block.count].iter().enumerate() {
            let [destination, top, inverse, product] = facts[end as usize * heads];
            self.logits[i] = source + destination;
            self.top[i] = top;
            self.inverse[i] = inverse;
            self.product[i] = product;
        }
    }

    /// `alpha = exp(leaky(logit) - top) * inverse`; returns `Σ k_e α_e D`.
    #[inline(always)]
    fn weights<I: Isa>(&self, block: &mut Block, slope: f32) -> f32 {
        let count = block.count;
        let facts = lanes(&self.logits, count).iter().zip(lanes(&self.top, count));
        let facts = facts.zip(lanes(&self.inverse, count));
        for (((x, top), inverse), alpha) in facts.zip(lanes_mut(&mut block.alpha, count)) {
            (0..LANES).for_each(|i| alpha[i] = exp::<I>(leaky(x[i], slope) - top[i]) * inverse[i]);
        }
        // What is left over in the last lanes are facts of an earlier block.
        block.alpha[count..count.next_multiple_of(LANES)].fill(0.0);
        let mut sums = [0.0; LANES];
        let facts = lanes(&self.logits, count).iter().zip(lanes(&self.product, count));
        for ((x, product), alpha) in facts.zip(lanes(&block.alpha, count)) {
            for i in 0..LANES {
                let k = if x[i] > 0.0 { 1.0 } else { slope };
                sums[i] += if alpha[i] == 0.0 { 0.0 } else { k * alpha[i] * product[i] };
            }
        }
        sum(sums)
    }
}
