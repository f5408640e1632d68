//! Entries of a row, a block at a time.

use std::ops::Range;

use crate::attention::{Heads, Mask};
use crate::keyed::Key;
use crate::simd::{Isa, prefetch};

/// Entries of a block.
pub(super) const BLOCK: usize = 256;
/// Numbers that loops over a block take at once.
pub(super) const LANES: usize = 16;
/// Entries between the row that is added and the one that is asked for.
const AHEAD: usize = 8;

/// One row's entries, the one from itself last.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    pub stored: &'a [u32],
    pub own: Option<u32>,
}

impl Entries<'_> {
    pub(super) fn len(self) -> usize {
        self.stored.len() + self.own.is_some() as usize
    }

    /// Copies the block that begins at entry `start`; returns its length.
    #[inline(always)]
    pub(super) fn block(self, start: usize, to: &mut [u32; BLOCK]) -> usize {
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

    /// The same in pieces of `segment` stored entries.
    pub(super) fn segments(self, segment: usize) -> Vec<Self> {
        let pieces = self.stored.chunks(segment).map(|stored| Entries { stored, own: None });
        let mut pieces: Vec<Self> = pieces.collect();
        if let Some(last) = pieces.last_mut() {
            last.own = self.own;
        }
        pieces
    }
}

/// What is dropped, ready for loops.
#[derive(Clone, Copy)]
pub(super) struct Drop<'a> {
    pub mask: Mask<'a>,
    /// Entries whose 53 random bits are below it are dropped: no other than those whose uniform number is below `p`.
    threshold: u64,
}

impl<'a> Drop<'a> {
    pub(super) fn new(mask: Mask<'a>) -> Self {
        Drop { mask, threshold: (mask.p * (1u64 << 53) as f64).ceil() as u64 }
    }

    fn scale(self) -> f32 {
        (1.0 / (1.0 - self.mask.p)) as f32
    }
}

/// A block of entries under way.
pub(super) struct Block {
    pub count: usize,
    /// The other end of each entry, and its random stream where entries are dropped.
    pub ends: [u32; BLOCK],
    keys: [Key; BLOCK],
    kept: [bool; BLOCK],
    /// Weights before any are dropped.
    pub alpha: [f32; BLOCK],
    /// Entries of the upper side from the start, of the lower side from the end.
    rows: [u32; BLOCK],
    weights: [f32; BLOCK],
}

impl Block {
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

    /// Sorts the entries by the side of `logits`, all on the upper side unless `divided`. Returns the entries of either.
    #[inline(always)]
    pub(super) fn sort(
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
    pub(super) fn make_keys(&mut self, key: impl Fn(usize) -> Key) {
        for i in 0..self.count {
            self.keys[i] = key(self.ends[i] as usize);
        }
    }

    /// Names each end anew: `names[end]` for `end`.
    #[inline(always)]
    pub(super) fn rename(&mut self, names: &[u32]) {
        self.ends[..self.count].iter_mut().for_each(|end| *end = names[*end as usize]);
    }

    /// Adds the weighted rows of `x` of either side to its sums, for one head.
    #[inline(always)]
    pub(super) fn add_sides<I: Isa>(
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
pub(super) fn leaky(x: f32, slope: f32) -> f32 {
    if x > 0.0 { x } else { x * slope }
}

#[inline(always)]
pub(super) fn sum(lanes: [f32; LANES]) -> f32 {
    lanes.into_iter().sum()
}

/// The lanes that hold the first `count` numbers of a block.
#[inline(always)]
pub(super) fn lanes<T>(x: &[T; BLOCK], count: usize) -> &[[T; LANES]] {
    &x.as_chunks().0[..count.div_ceil(LANES)]
}

#[inline(always)]
pub(super) fn lanes_mut<T>(x: &mut [T; BLOCK], count: usize) -> &mut [[T; LANES]] {
    &mut x.as_chunks_mut().0[..count.div_ceil(LANES)]
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
