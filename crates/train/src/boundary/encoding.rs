//! How rows are encoded in messages.
//!
//! Rows behind a ReLU, and often a dropout, are mostly zeros. [`Encoding::Nonzero`] sends a bitmap of each row and the other
//! entries. Gradients need not even a bitmap: a ReLU multiplies the gradient of an entry that is 0 by 0, so only those of the
//! entries that were sent are returned, and both sides know them. Neither changes a result.

use std::ops::Range;

use halograph_comm::Message;
use halograph_kernels::Real;
use halograph_nn::Matrix;
use rayon::prelude::*;

use crate::error::Result;

/// Columns described by one word of a bitmap.
const WORD: usize = u64::BITS as usize;

/// How rows are encoded in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// All entries.
    #[default]
    Dense,
    /// A bitmap of the entries other than 0, and these entries.
    Nonzero,
}

fn is_nonzero<T: Real>(x: T) -> bool {
    // Also for what is not a number.
    !(x == T::zero())
}

fn nonzeros<T: Real>(row: &[T]) -> usize {
    row.iter().map(|&x| is_nonzero(x) as usize).sum()
}

/// Returns the ranges of the nonzero entries of consecutive rows among those of all of them, and their number.
fn ranges<'m, T: Real>(rows: impl IndexedParallelIterator<Item = &'m [T]>) -> (Vec<Range<usize>>, usize) {
    let counts: Vec<usize> = rows.map(nonzeros).collect();
    let mut end = 0;
    let range = |count| {
        end += count;
        end - count..end
    };
    (counts.into_iter().map(range).collect(), end)
}

/// Splits `entries` into consecutive ranges.
fn split<'e, T>(mut entries: &'e mut [T], ranges: &[Range<usize>]) -> Vec<&'e mut [T]> {
    let next =
        |range: &Range<usize>| entries.split_off_mut(..range.len()).expect("ranges end at the last entry");
    ranges.iter().map(next).collect()
}

fn row<T: Real>(x: &Matrix<T>, row: u32) -> &[T] {
    x.run(row as usize..row as usize + 1)
}

/// Encodes `rows` of `x`: bitmaps of all of them, then their nonzero entries.
pub(super) fn encode<T: Real>(x: &Matrix<T>, rows: &[u32]) -> Message {
    let words = x.cols().div_ceil(WORD);
    let (ranges, count) = ranges(rows.par_iter().map(|&at| row(x, at)));
    let mut message = Message::new::<u8>(8 * words * rows.len() + size_of::<T>() * count);
    let (bitmaps, entries) = message.as_mut_slice::<u8>().split_at_mut(8 * words * rows.len());
    let bitmaps = bytemuck::cast_slice_mut::<u8, u64>(bitmaps).par_chunks_mut(words.max(1));
    let entries = split(bytemuck::cast_slice_mut::<u8, T>(entries), &ranges);
    bitmaps.zip(entries).zip(rows).for_each(|((bitmap, entries), &at)| {
        let mut next = 0;
        for (word, chunk) in bitmap.iter_mut().zip(row(x, at).chunks(WORD)) {
            *word = 0;
            for (bit, &value) in chunk.iter().enumerate() {
                if is_nonzero(value) {
                    *word |= 1 << bit;
                    entries[next] = value;
                    next += 1;
                }
            }
        }
    });
    message
}

/// Decodes rows that [`encode`] has encoded into `out`, rows of `columns` numbers.
pub(super) fn decode<T: Real>(message: &Message, columns: usize, out: &mut [T]) -> Result<()> {
    let (words, rows) = (columns.div_ceil(WORD), out.len() / columns.max(1));
    let bytes = 8 * words * rows;
    let bitmaps: &[u64] = match message.as_slice::<u8>()?.get(..bytes) {
        Some(bitmaps) => bytemuck::cast_slice(bitmaps),
        // An error that names the message.
        None => message.expect::<u8>(bytes).map(bytemuck::cast_slice)?,
    };
    let counts = bitmaps
        .par_chunks(words.max(1))
        .map(|bitmap| bitmap.iter().map(|word| word.count_ones() as usize).sum::<usize>());
    let mut starts: Vec<usize> = counts.collect();
    let mut count = 0;
    starts.iter_mut().for_each(|start| count += std::mem::replace(start, count));
    let entries = &message.expect::<u8>(bytes + size_of::<T>() * count)?[bytes..];
    let entries = bytemuck::cast_slice::<u8, T>(entries);
    let rows = out.par_chunks_mut(columns.max(1)).zip(bitmaps.par_chunks(words.max(1)));
    rows.zip(starts).for_each(|((row, bitmap), mut next)| {
        row.fill(T::zero());
        for (chunk, &word) in row.chunks_mut(WORD).zip(bitmap) {
            let mut rest = word;
            while rest != 0 {
                chunk[rest.trailing_zeros() as usize] = entries[next];
                next += 1;
                rest &= rest - 1;
            }
        }
    });
    Ok(())
}

/// Encodes the rows `run` of `grad`: the entries where `pattern` is not 0.
pub(super) fn encode_where<T: Real>(grad: &Matrix<T>, pattern: &Matrix<T>, run: Range<usize>) -> Message {
    let columns = grad.cols().max(1);
    let pattern = || pattern.run(run.clone()).par_chunks(columns);
    let (ranges, count) = ranges(pattern());
    let mut message = Message::new::<T>(count);
    let entries = split(message.as_mut_slice::<T>(), &ranges);
    let rows = grad.run(run.clone()).par_chunks(columns).zip(pattern()).zip(entries);
    rows.for_each(|((grad, pattern), entries)| {
        let chosen = grad.iter().zip(pattern).filter(|(_, x)| is_nonzero(**x));
        entries.iter_mut().zip(chosen).for_each(|(entry, (&value, _))| *entry = value);
    });
    message
}

/// Adds entries that [`encode_where`] has encoded to `rows` of `grad`, where those of `pattern` are not 0.
pub(super) fn add_where<T: Real>(
    message: &Message,
    pattern: &Matrix<T>,
    rows: &[u32],
    grad: &mut Matrix<T>,
) -> Result<()> {
    let count: usize = rows.par_iter().map(|&at| nonzeros(row(pattern, at))).sum();
    let mut entries = message.expect::<T>(count)?.iter();
    for &at in rows {
        let pattern = row(pattern, at);
        let grad = grad.run_mut(at as usize..at as usize + 1);
        let chosen = grad.iter_mut().zip(pattern).filter(|(_, x)| is_nonzero(**x));
        chosen.zip(&mut entries).for_each(|((grad, _), &value)| *grad = *grad + value);
    }
    Ok(())
}
