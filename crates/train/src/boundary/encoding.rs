//! How rows are encoded in messages.
//!
//! Rows behind a ReLU, and often a dropout, are mostly zeros. [`Encoding::Nonzero`] sends a bitmap of each row and the other
//! entries. Gradients need not even a bitmap: a ReLU multiplies the gradient of an entry that is 0 by 0, so only those of the
//! entries that were sent are returned, and both sides know them. Neither changes a result.

use std::ops::Range;

use halograph_comm::Message;
use halograph_kernels::Real;
use halograph_kernels::nonzero::{self, WORD};
use halograph_nn::Matrix;
use rayon::prelude::*;

use crate::error::Result;

/// How rows are encoded in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// All entries.
    #[default]
    Dense,
    /// A bitmap of the entries other than 0, and these entries.
    Nonzero,
}

/// Bitmaps of rows, and the entries of each row among those of all of them.
struct Bitmaps {
    /// Words of a bitmap; at least 1, so that rows without columns have an empty one.
    words: usize,
    bits: Vec<u64>,
    ranges: Vec<Range<usize>>,
}

impl Bitmaps {
    /// Returns the bitmaps of rows of `columns` numbers.
    fn of<'m, T: Real>(columns: usize, rows: impl IndexedParallelIterator<Item = &'m [T]>) -> Self {
        let words = columns.div_ceil(WORD).max(1);
        let mut bits = vec![0; words * rows.len()];
        let counts = bits
            .par_chunks_mut(words)
            .zip(rows)
            .map(|(bits, row)| nonzero::bitmap(row, &mut bits[..row.len().div_ceil(WORD)]));
        let counts: Vec<usize> = counts.collect();
        Bitmaps { words, ranges: ranges(counts), bits }
    }

    /// Returns the number of entries.
    fn entries(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }

    fn rows(&self) -> impl IndexedParallelIterator<Item = &[u64]> {
        self.bits.par_chunks(self.words)
    }

    /// Splits `entries` into those of each row.
    fn split<'e, T>(&self, mut entries: &'e mut [T]) -> Vec<&'e mut [T]> {
        let next =
            |range: &Range<usize>| entries.split_off_mut(..range.len()).expect("an entry of every bit");
        self.ranges.iter().map(next).collect()
    }
}

/// Returns consecutive ranges of these lengths.
fn ranges(lengths: Vec<usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |length| {
        end += length;
        end - length..end
    };
    lengths.into_iter().map(range).collect()
}

fn row<T: Real>(x: &Matrix<T>, row: u32) -> &[T] {
    x.run(row as usize..row as usize + 1)
}

/// Encodes `rows` of `x`: bitmaps of all of them, then their nonzero entries.
pub(super) fn encode<T: Real>(x: &Matrix<T>, rows: &[u32]) -> Message {
    let bitmaps = Bitmaps::of(x.cols(), rows.par_iter().map(|&at| row(x, at)));
    let bits = bytemuck::cast_slice(&bitmaps.bits);
    let mut message = Message::new::<u8>(bits.len() + size_of::<T>() * bitmaps.entries());
    let (head, entries) = message.as_mut_slice::<u8>().split_at_mut(bits.len());
    head.copy_from_slice(bits);
    let entries = bitmaps.split(bytemuck::cast_slice_mut(entries));
    entries.into_par_iter().zip(bitmaps.rows()).zip(rows).for_each(|((entries, bits), &at)| {
        nonzero::pack(row(x, at), bits, entries);
    });
    message
}

/// Decodes rows that [`encode`] has encoded into `out`, rows of `columns` numbers.
pub(super) fn decode<T: Real>(message: &Message, columns: usize, out: &mut [T]) -> Result<()> {
    let (words, rows) = (columns.div_ceil(WORD).max(1), out.len() / columns.max(1));
    let bytes = size_of::<u64>() * words * rows;
    let bits: &[u64] = match message.as_slice::<u8>()?.get(..bytes) {
        Some(bits) => bytemuck::cast_slice(bits),
        // An error that names the message.
        None => message.expect(words * rows)?,
    };
    let ranges = ranges(bits.par_chunks(words).map(nonzero::count).collect());
    let count = ranges.last().map_or(0, |range| range.end);
    let entries = &message.expect::<u8>(bytes + size_of::<T>() * count)?[bytes..];
    let entries: &[T] = bytemuck::cast_slice(entries);
    let rows = out.par_chunks_mut(columns.max(1)).zip(bits.par_chunks(words)).zip(ranges);
    rows.for_each(|((row, bits), range)| nonzero::unpack(&entries[range], bits, row));
    Ok(())
}

/// Encodes the rows `run` of `grad`: the entries where `pattern` is not 0.
pub(super) fn encode_where<T: Real>(grad: &Matrix<T>, pattern: &Matrix<T>, run: Range<usize>) -> Message {
    let columns = grad.cols().max(1);
    let bitmaps = Bitmaps::of(columns, pattern.run(run.clone()).par_chunks(columns));
    let mut message = Message::new::<T>(bitmaps.entries());
    let entries = bitmaps.split(message.as_mut_slice());
    let rows = grad.run(run).par_chunks(columns).zip(bitmaps.rows()).zip(entries);
    rows.for_each(|((row, bits), entries)| nonzero::pack(row, bits, entries));
    message
}

/// Adds entries that [`encode_where`] has encoded to `rows` of `grad`, where those of `pattern` are not 0.
pub(super) fn add_where<T: Real>(
    message: &Message,
    pattern: &Matrix<T>,
    rows: &[u32],
    grad: &mut Matrix<T>,
) -> Result<()> {
    let bitmaps = Bitmaps::of(grad.cols(), rows.par_iter().map(|&at| row(pattern, at)));
    let entries = message.expect::<T>(bitmaps.entries())?;
    // Rows may repeat only in messages of different ranks, but a task for each is not worth it.
    let each = rows.iter().zip(bitmaps.bits.chunks(bitmaps.words)).zip(&bitmaps.ranges);
    for ((&at, bits), range) in each {
        nonzero::add(&entries[range.clone()], bits, grad.run_mut(at as usize..at as usize + 1));
    }
    Ok(())
}
