//! Blocks of the entries of a row.

use std::ops::Range;

use crate::attention::{HeadRows, Mask};
use crate::keyed::Key;
use crate::simd::{Isa, prefetch};

/// Maximum entries of a block.
pub(super) const BLOCK: usize = 256;
/// Numbers per iteration of vectorised loops over a block.
pub(super) const LANES: usize = 16;
/// Prefetch distance, in entries.
const AHEAD: usize = 8;

/// The entries of a row, by their other ends.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    /// Entries of the pattern.
    pub stored: &'a [u32],
    /// The self-loop, which is the last entry.
    pub self_loop: Option<u32>,
}

impl Entries<'_> {
    /// Returns the number of entries.
    pub(super) fn len(self) -> usize {
        self.stored.len() + self.self_loop.is_some() as usize
    }

    /// Copies the block that begins at entry `start`; returns its length.
    #[inline(always)]
    pub(super) fn block(self, start: usize, to: &mut [u32; BLOCK]) -> usize {
        let stored = &self.stored[start.min(self.stored.len())..self.stored.len().min(start + BLOCK)];
        to[..stored.len()].copy_from_slice(stored);
        match self.self_loop {
            Some(row) if stored.len() < BLOCK => {
                to[stored.len()] = row;
                stored.len() + 1
            }
            _ => stored.len(),
        }
    }

    /// Splits the entries into segments of `segment` stored entries.
    pub(super) fn segments(self, segment: usize) -> Vec<Self> {
        let pieces = self.stored.chunks(segment).map(|stored| Entries { stored, self_loop: None });
        let mut pieces: Vec<Self> = pieces.collect();
        if let Some(last) = pieces.last_mut() {
            last.self_loop = self.self_loop;
        }
        pieces
    }
}

/// Attention dropout of entries.
#[derive(Clone, Copy)]
pub(super) struct EntryDropout<'a> {
    pub mask: Mask<'a>,
    /// Entries whose 53 random bits are below this are dropped; equivalent to a uniform number below `p`.
    threshold: u64,
}

impl<'a> EntryDropout<'a> {
    /// Returns the dropout of a mask.
    pub(super) fn new(mask: Mask<'a>) -> Self {
        EntryDropout { mask, threshold: (mask.p * (1u64 << 53) as f64).ceil() as u64 }
    }

    /// Returns the factor of kept entries.
    fn scale(self) -> f32 {
        (1.0 / (1.0 - self.mask.p)) as f32
    }
}

/// Working memory for a block of entries.
pub(super) struct Block {
    /// Number of entries.
    pub count: usize,
    /// Other end of each entry.
    pub ends: [u32; BLOCK],
    /// Random stream of each entry, with dropout.
    keys: [Key; BLOCK],
    /// Whether each entry is kept, with dropout.
    kept: [bool; BLOCK],
    /// Attention weight of each entry, before dropout.
    pub alpha: [f32; BLOCK],
    /// Ends of kept entries: positive ones from the start, others from the end.
    rows: [u32; BLOCK],
    /// Attention weights of kept entries, after dropout, in the order of `rows`.
    weights: [f32; BLOCK],
}

impl Block {
    /// Returns an empty block.
    pub(super) fn new() -> Self {
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

    /// Removes dropped entries and partitions the others by the sign of their logits; without `by_sign`, all count as
    /// positive. Returns the ranges of positive and other entries in `rows`.
    #[inline(always)]
    pub(super) fn partition(
        &mut self,
        logits: &[f32; BLOCK],
        by_sign: bool,
        dropped: Option<EntryDropout>,
        head: usize,
    ) -> [Range<usize>; 2] {
        if let Some(drop) = dropped {
            for i in 0..self.count.next_multiple_of(LANES) {
                self.kept[i] = self.keys[i].at(head as u64) >> 11 >= drop.threshold;
            }
        } else if !by_sign {
            self.rows[..self.count].copy_from_slice(&self.ends[..self.count]);
            self.weights[..self.count].copy_from_slice(&self.alpha[..self.count]);
            return [0..self.count, BLOCK..BLOCK];
        }
        let scale = dropped.map_or(1.0, EntryDropout::scale);
        let (mut low, mut high) = (0, BLOCK);
        for (i, &logit) in logits[..self.count].iter().enumerate() {
            let kept = dropped.is_none() | self.kept[i];
            let positive = logit > 0.0;
            let negative = by_sign & !positive;
            // Both sides together never exceed the block. The place of a dropped entry is overwritten by the next.
            let place = if negative { high - 1 } else { low } % BLOCK;
            self.rows[place] = self.ends[i];
            self.weights[place] = self.alpha[i] * scale;
            low += (kept & !negative) as usize;
            high -= (kept & negative) as usize;
        }
        [0..low, high..BLOCK]
    }

    /// Computes the random stream of each entry.
    #[inline(always)]
    pub(super) fn make_keys(&mut self, key: impl Fn(usize) -> Key) {
        for i in 0..self.count {
            self.keys[i] = key(self.ends[i] as usize);
        }
    }

    /// Replaces each end by `map[end]`.
    #[inline(always)]
    pub(super) fn map_ends(&mut self, map: &[u32]) {
        self.ends[..self.count].iter_mut().for_each(|end| *end = map[*end as usize]);
    }

    /// Adds the weighted rows of `x` to the sums of each side, for one head.
    #[inline(always)]
    pub(super) fn add_sides<I: Isa>(
        &self,
        sides: [Range<usize>; 2],
        x: HeadRows<f32>,
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

/// Returns the leaky ReLU of `x`.
#[inline(always)]
pub(super) fn leaky(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { x * slope }
}

/// Returns the first `count` numbers of a block in groups of [`LANES`], rounded up.
#[inline(always)]
pub(super) fn lanes<T>(x: &[T; BLOCK], count: usize) -> &[[T; LANES]] {
    &x.as_chunks().0[..count.div_ceil(LANES)]
}

/// As [`lanes`], mutably.
#[inline(always)]
pub(super) fn lanes_mut<T>(x: &mut [T; BLOCK], count: usize) -> &mut [[T; LANES]] {
    &mut x.as_chunks_mut().0[..count.div_ceil(LANES)]
}

/// Computes `sums += Σ_i weights[i] * x[rows[i]]` for the columns of one head.
#[inline(always)]
fn add_rows<I: Isa>(rows: &[u32], weights: &[f32], x: HeadRows<f32>, head: usize, sums: &mut [f32]) {
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

/// As [`add_rows`], for N or up to 7 fewer columns from `from` on. Reads N columns and ignores the excess.
#[inline(always)]
fn add_columns<I: Isa, const N: usize>(
    rows: &[u32],
    weights: &[f32],
    x: HeadRows<f32>,
    from: usize,
    sums: &mut [f32],
) {
    // A separate sum per block, so that rounding errors do not grow with the length of a row.
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
