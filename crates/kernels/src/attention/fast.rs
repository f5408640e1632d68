//! Attention in single precision, in vector registers.
//!
//! A row's entries are taken in blocks. For each head, the exponentials of a block are made side by side; entries are
//! then sorted into those whose logit is on the upper side of the leaky ReLU and those on the lower, dropped ones left
//! out, and the rows of each side are summed with the sums in registers. Two sums serve for everything: with U and L
//! the weighted sums of either side, the output is U + L, and what the slope multiplies is L alone. The backward is
//! the same over the transposed pattern, as
//!
//! ```text
//! ds[u] = Σ_v k_e α_e (f_e G[v] · z[u] - D[v]) = z[u] · (U + slope L) - Σ_v k_e α_e D[v]
//! ```

use std::ops::Range;

use rayon::prelude::*;

use super::exp::exp;
use super::heads::dot;
use super::{Attention, Heads, Mask, Saved};
use crate::buffer::Buffer;
use crate::keyed::Key;
use crate::simd::{Isa, Level, dispatch, prefetch};
use crate::sparse::{Pattern, cut};

/// Entries and rows of a task.
const TASK: usize = 4096;
/// Entries of a block.
const BLOCK: usize = 256;
/// Numbers that loops over a block take at once.
const LANES: usize = 16;
/// Entries between the row that is added and the one that is asked for.
const AHEAD: usize = 8;

/// Of one row and head, for one entry of the transposed pattern: t, largest logit, inverse sum, D.
type Facts = [f32; 4];

/// The parts of a [`Saved`] that belong to a task.
struct SavedRows<'a> {
    top: &'a mut [f32],
    inverse: &'a mut [f32],
    derivative: &'a mut [f32],
}

impl<'a> SavedRows<'a> {
    /// The parts that belong to each task.
    fn of_tasks(saved: &'a mut Saved<f32>, tasks: &[Range<usize>], heads: usize, width: usize) -> Vec<Self> {
        let top = cut(tasks, heads, &mut saved.top).into_iter();
        let inverse = cut(tasks, heads, &mut saved.inverse);
        let derivative = cut(tasks, heads * width, &mut saved.derivative);
        let parts = top.zip(inverse).zip(derivative);
        parts.map(|((top, inverse), derivative)| SavedRows { top, inverse, derivative }).collect()
    }

    /// The parts that belong to one row.
    #[inline(always)]
    fn row(&mut self, r: usize, heads: usize, width: usize) -> SavedRows<'_> {
        let (scores, all) = (r * heads..(r + 1) * heads, r * heads * width..(r + 1) * heads * width);
        SavedRows {
            top: &mut self.top[scores.clone()],
            inverse: &mut self.inverse[scores],
            derivative: &mut self.derivative[all],
        }
    }
}

pub(super) fn forward(level: Level, at: &Attention<f32>, saved: Option<&mut Saved<f32>>, out: &mut [f32]) {
    let (source, tasks) = (at.source(), at.pattern.tasks(TASK));
    let saved: Vec<Option<SavedRows>> = match saved {
        None => tasks.iter().map(|_| None).collect(),
        Some(saved) => SavedRows::of_tasks(saved, &tasks, at.heads, at.width).into_iter().map(Some).collect(),
    };
    let outs = cut(&tasks, at.heads * at.width, out);
    tasks.into_par_iter().zip(outs).zip(saved).for_each(|((rows, out), saved)| {
        forward_rows(level, at, &source, rows, saved, out);
    });
}

/// `products`: D, rows x heads.
pub(super) fn backward(
    level: Level,
    at: &Attention<f32>,
    back: Pattern,
    saved: &Saved<f32>,
    products: &[f32],
    grad: Heads<f32>,
    messages_grad: &mut [f32],
) {
    let fact = |i: usize| [at.destination[i], saved.top[i], saved.inverse[i], products[i]];
    let mut facts: Buffer<Facts> = Buffer::unspecified(products.len());
    facts.par_iter_mut().enumerate().with_min_len(4096).for_each(|(i, facts)| *facts = fact(i));
    let tasks = back.tasks(TASK);
    let outs = cut(&tasks, at.pitch(), messages_grad);
    tasks.into_par_iter().zip(outs).for_each(|(columns, out)| {
        backward_rows(level, at, back, &facts, grad, columns, out);
    });
}

/// One row's entries, the one from itself last.
#[derive(Clone, Copy)]
struct Entries<'a> {
    stored: &'a [u32],
    own: Option<u32>,
}

impl Entries<'_> {
    fn len(self) -> usize {
        self.stored.len() + self.own.is_some() as usize
    }

    /// Copies the block that begins at entry `start`; returns its length.
    #[inline(always)]
    fn block(self, start: usize, to: &mut [u32; BLOCK]) -> usize {
        let stored = &self.stored[start.min(self.stored.len())..self.stored.len().min(start + BLOCK)];
        to[..stored.len()].copy_from_slice(stored);
        match self.own {
            Some(own) if stored.len() < BLOCK => {
                to[stored.len()] = own;
                stored.len() + 1
            }
            _ => stored.len(),
        }
    }
}

/// What is dropped, ready for loops.
#[derive(Clone, Copy)]
struct Drop<'a> {
    mask: Mask<'a>,
    /// Entries whose 53 random bits are below it are dropped: no other than those whose uniform number is below `p`.
    threshold: u64,
}

impl<'a> Drop<'a> {
    fn new(mask: Mask<'a>) -> Self {
        Drop { mask, threshold: (mask.p * (1u64 << 53) as f64).ceil() as u64 }
    }

    fn scale(self) -> f32 {
        (1.0 / (1.0 - self.mask.p)) as f32
    }
}

/// A block of entries under way.
struct Block {
    count: usize,
    /// The other end of each entry, and its random stream where entries are dropped.
    ends: [u32; BLOCK],
    keys: [Key; BLOCK],
    kept: [bool; BLOCK],
    /// Weights before any are dropped.
    alpha: [f32; BLOCK],
    /// Entries of the upper side from the start, of the lower side from the end.
    rows: [u32; BLOCK],
    weights: [f32; BLOCK],
}

impl Block {
    fn new() -> Self {
        Block {
            count: 0,
            ends: [0; BLOCK],
            keys: [Key::new(0, ""); BLOCK],
            kept: [true; BLOCK],
            alpha: [0.0; BLOCK],
            rows: [0; BLOCK],
            weights: [0.0; BLOCK],
        }
    }

    /// Sorts the entries by the side of `logits`, all on the upper side unless `divided`. Returns the entries of either.
    #[inline(always)]
    fn sort(
        &mut self,
        logits: &[f32; BLOCK],
        divided: bool,
        dropped: Option<Drop>,
        head: usize,
    ) -> [Range<usize>; 2] {
        if let Some(drop) = dropped {
            for i in 0..self.count.next_multiple_of(LANES) {
                self.kept[i] = self.keys[i].at(head as u64) >> 11 >= drop.threshold;
            }
        } else if !divided {
            self.rows[..self.count].copy_from_slice(&self.ends[..self.count]);
            self.weights[..self.count].copy_from_slice(&self.alpha[..self.count]);
            return [0..self.count, BLOCK..BLOCK];
        }
        let scale = dropped.map_or(1.0, Drop::scale);
        let (mut low, mut high) = (0, BLOCK);
        for (i, &logit) in logits[..self.count].iter().enumerate() {
            let kept = dropped.is_none() | self.kept[i];
            let upper = logit > 0.0;
            let lower = divided & !upper;
            // There is room between the two as long as there are entries; what is not kept is overwritten.
            let place = if lower { high - 1 } else { low } % BLOCK;
            self.rows[place] = self.ends[i];
            self.weights[place] = self.alpha[i] * scale;
            low += (kept & !lower) as usize;
            high -= (kept & lower) as usize;
        }
        [0..low, high..BLOCK]
    }

    #[inline(always)]
    fn make_keys(&mut self, key: impl Fn(usize) -> Key) {
        for i in 0..self.count {
            self.keys[i] = key(self.ends[i] as usize);
        }
    }

    /// Adds the weighted rows of `x` of either side to its sums, for one head.
    #[inline(always)]
    fn add_sides<I: Isa>(
        &self,
        sides: [Range<usize>; 2],
        x: Heads<f32>,
        head: usize,
        width: usize,
        sums: [&mut [f32]; 2],
    ) {
        for (side, sums) in sides.into_iter().zip(sums) {
            if !side.is_empty() {
                let (rows, weights) = (&self.rows[side.clone()], &self.weights[side]);
                add_rows::<I>(rows, weights, x, head, &mut sums[head * width..(head + 1) * width]);
            }
        }
    }
}

/// The leaky ReLU.
#[inline(always)]
fn leaky(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { x * slope }
}

#[inline(always)]
fn sum(lanes: [f32; LANES]) -> f32 {
    lanes.into_iter().sum()
}

/// The lanes that hold the first `count` numbers of a block.
#[inline(always)]
fn lanes<T>(x: &[T; BLOCK], count: usize) -> &[[T; LANES]] {
    &x.as_chunks().0[..count.div_ceil(LANES)]
}

#[inline(always)]
fn lanes_mut<T>(x: &mut [T; BLOCK], count: usize) -> &mut [[T; LANES]] {
    &mut x.as_chunks_mut().0[..count.div_ceil(LANES)]
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
    fn row<I: Isa>(&mut self, r: usize, saved: Option<SavedRows>, out: &mut [f32]) {
        let at = self.at;
        let stored = &at.pattern.columns[at.pattern.row(r)];
        let entries = Entries { stored, own: Some((at.first + r) as u32) };
        self.find_tops(r, entries);
        out.fill(0.0);
        match saved {
            None => {
                self.attend::<I>(r, entries, out, None);
                self.normalise(out);
            }
            Some(saved) => {
                saved.derivative.fill(0.0);
                self.attend::<I>(r, entries, out, Some(&mut *saved.derivative));
                self.finish(saved, out);
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
                let row = mask.key.with(mask.id(at.first + r));
                self.block.make_keys(|end| row.with(mask.id(end)));
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

    /// Turns the sums of the two sides, in `out` and `saved.derivative`, into the output and its derivative,
    /// `Σ k w z - out Σ k α` with k = 1 on the upper side and the slope on the lower.
    #[inline(always)]
    fn finish(&self, saved: SavedRows, out: &mut [f32]) {
        let (width, slope) = (self.at.width, self.at.slope as f32);
        for (h, sums) in self.sums.iter().enumerate() {
            let (inverse, share) = (1.0 / sums.all, sums.lower / sums.all);
            saved.top[h] = sums.top;
            saved.inverse[h] = inverse;
            let head = h * width..(h + 1) * width;
            for (out, derivative) in out[head.clone()].iter_mut().zip(&mut saved.derivative[head]) {
                let lower = *derivative * inverse;
                *out = *out * inverse + lower;
                *derivative = (1.0 - slope) * (share * *out - lower);
            }
        }
    }
}

#[inline(always)]
fn forward_rows_body<I: Isa>(
    at: &Attention<f32>,
    source: &[f32],
    rows: Range<usize>,
    mut saved: Option<SavedRows>,
    out: &mut [f32],
) {
    let mut forward = Forward {
        at,
        source,
        drop: at.mask.map(Drop::new),
        block: Block::new(),
        logits: vec![[0.0; BLOCK]; at.heads],
        sums: vec![HeadSums::default(); at.heads],
    };
    for (i, (r, out)) in rows.zip(out.chunks_exact_mut(at.heads * at.width)).enumerate() {
        forward.row::<I>(r, saved.as_mut().map(|saved| saved.row(i, at.heads, at.width)), out);
    }
}

dispatch!(fn forward_rows(
    at: &Attention<f32>,
    source: &[f32],
    rows: Range<usize>,
    saved: Option<SavedRows>,
    out: &mut [f32],
) = forward_rows_body);

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

/// The backward of one column after the other.
struct Backward<'a> {
    at: &'a Attention<'a, f32>,
    back: Pattern<'a>,
    facts: &'a [Facts],
    grad: Heads<'a, f32>,
    drop: Option<Drop<'a>>,
    block: Block,
    block_facts: BlockFacts,
    /// The sum of the lower side.
    lower: Vec<f32>,
}

impl Backward<'_> {
    #[inline(always)]
    fn column<I: Isa>(&mut self, u: usize, out: &mut [f32]) {
        let at = self.at;
        let stored = &self.back.columns[self.back.row(u)];
        let entries = Entries { stored, own: at.own_row(u).map(|row| row as u32) };
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
        let at = self.at;
        let source = &at.messages[u * at.pitch() + at.heads * at.width..];
        for start in (0..entries.len()).step_by(BLOCK) {
            self.block.count = entries.block(start, &mut self.block.ends);
            if let Some(Drop { mask, .. }) = self.drop {
                self.block.make_keys(|end| mask.entry(at.first + end, u));
            }
            for (h, source_grad) in source_grad.iter_mut().enumerate() {
                self.block_facts.read(&self.block, &self.facts[h..], at.heads, source[h]);
                *source_grad -= self.block_facts.weights::<I>(&mut self.block, at.slope as f32);
                let sides = self.block.sort(&self.block_facts.logits, true, self.drop, h);
                self.block.add_sides::<I>(sides, self.grad, h, at.width, [&mut *upper, &mut self.lower]);
            }
        }
    }
}

#[inline(always)]
fn backward_rows_body<I: Isa>(
    at: &Attention<f32>,
    back: Pattern,
    facts: &[Facts],
    grad: Heads<f32>,
    columns: Range<usize>,
    out: &mut [f32],
) {
    let (drop, lower) = (at.mask.map(Drop::new), vec![0.0; at.heads * at.width]);
    let (block, block_facts) = (Block::new(), BlockFacts::new());
    let mut backward = Backward { at, back, facts, grad, drop, block, block_facts, lower };
    for (u, out) in columns.zip(out.chunks_exact_mut(at.pitch())) {
        backward.column::<I>(u, out);
    }
}

dispatch!(fn backward_rows(
    at: &Attention<f32>,
    back: Pattern,
    facts: &[Facts],
    grad: Heads<f32>,
    columns: Range<usize>,
    out: &mut [f32],
) = backward_rows_body);

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
    fn read(&mut self, block: &Block, facts: &[Facts], heads: usize, source: f32) {
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

/// `sums += Σ_i weights[i] * x[rows[i]]` for the columns of one head.
#[inline(always)]
fn add_rows<I: Isa>(rows: &[u32], weights: &[f32], x: Heads<f32>, head: usize, sums: &mut [f32]) {
    let first = head * x.step;
    for (i, sums) in sums.chunks_mut(64).enumerate() {
        let from = first + i * 64;
        match sums.len().div_ceil(8) {
            1 => add_columns::<I, 8>(rows, weights, x, from, sums),
            2 => add_columns::<I, 16>(rows, weights, x, from, sums),
            3 => add_columns::<I, 24>(rows, weights, x, from, sums),
            4 => add_columns::<I, 32>(rows, weights, x, from, sums),
            5 => add_columns::<I, 40>(rows, weights, x, from, sums),
            6 => add_columns::<I, 48>(rows, weights, x, from, sums),
            7 => add_columns::<I, 56>(rows, weights, x, from, sums),
            _ => add_columns::<I, 64>(rows, weights, x, from, sums),
        }
    }
}

/// As [`add_rows`] for the columns from `from` on, N or up to 7 fewer: what is read beyond them is not used.
#[inline(always)]
fn add_columns<I: Isa, const N: usize>(
    rows: &[u32],
    weights: &[f32],
    x: Heads<f32>,
    from: usize,
    sums: &mut [f32],
) {
    // A sum of its own for the block: rounding errors grow with its length, not with that of a hub's row.
    let mut lanes = [0.0; N];
    let mut end = [0.0; N];
    for (i, (&row, &weight)) in rows.iter().zip(weights).enumerate() {
        if let Some(&later) = rows.get(i + AHEAD)
            && let Some(later) = x.data[later as usize * x.pitch + from..].first_chunk::<N>()
        {
            (0..N).step_by(16).for_each(|c| prefetch(later, c));
            prefetch(later, N - 1);
        }
        let row = &x.data[row as usize * x.pitch + from..];
        let row = match row.first_chunk() {
            Some(row) => row,
            None => {
                end[..row.len()].copy_from_slice(row);
                &end
            }
        };
        (0..N).for_each(|c| lanes[c] = I::mul_add(weight, row[c], lanes[c]));
    }
    sums.iter_mut().zip(lanes).for_each(|(sum, lane)| *sum += lane);
}
