//! How rows are encoded in messages.
//!
//! Rows behind a ReLU, and often a dropout, are mostly zeros. The encoding `nonzero` sends a bitmap of each row and the
//! other entries. Gradients need not even a bitmap: a ReLU multiplies the gradient of an entry that is 0 by 0, so only those of the
//! entries that were sent are returned, and both sides know them. Neither changes a result.

use std::ops::Range;

use halograph_comm::Message;
use halograph_graph::error::Error as InputError;
use halograph_kernels::Real;
use halograph_kernels::nonzero::{self, WORD};
use halograph_nn::Matrix;
use rayon::prelude::*;

use crate::error::Result;

/// Bitmaps of rows, and the entries of each row among those of all of them.
struct Bitmaps {
    /// Words of a bitmap.
    words: usize,
    bits: Vec<u64>,
    ranges: Vec<Range<usize>>,
}

impl Bitmaps {
    /// Returns the bitmaps of rows of `columns` numbers.
    fn of<'m, T: Real>(columns: usize, rows: impl IndexedParallelIterator<Item = &'m [T]>) -> Self {
        assert!(columns > 0, "rows have columns");
        let words = columns.div_ceil(WORD);
        let mut bits = vec![0; words * rows.len()];
        let counts = bits.par_chunks_mut(words).zip(rows).map(|(bits, row)| nonzero::bitmap(row, bits));
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
    assert!(columns > 0, "rows have columns");
    let (words, rows) = (columns.div_ceil(WORD), out.len() / columns);
    let bytes = size_of::<u64>() * words * rows;
    let bits: &[u64] = match message.as_slice::<u8>()?.get(..bytes) {
        Some(bits) => bytemuck::cast_slice(bits),
        // An error that names the message.
        None => message.expect(words * rows)?,
    };
    let beyond = |bits: &[u64]| bits[words - 1] >> (columns % WORD) != 0;
    if !columns.is_multiple_of(WORD) && bits.par_chunks(words).any(beyond) {
        let problem = format!("bits beyond the last of {columns} columns");
        return Err(InputError::input("a message of encoded rows", problem).into());
    }
    let ranges = ranges(bits.par_chunks(words).map(nonzero::count).collect());
    let count = ranges.last().map_or(0, |range| range.end);
    let entries = &message.expect::<u8>(bytes + size_of::<T>() * count)?[bytes..];
    let entries: &[T] = bytemuck::cast_slice(entries);
    let rows = out.par_chunks_mut(columns).zip(bits.par_chunks(words)).zip(ranges);
    rows.for_each(|((row, bits), range)| nonzero::unpack(&entries[range], bits, row));
    Ok(())
}

/// Encodes the rows `run` of `grad`: the entries where `pattern` is not 0.
pub(super) fn encode_where<T: Real>(grad: &Matrix<T>, pattern: &Matrix<T>, run: Range<usize>) -> Message {
    let columns = grad.cols();
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

#[cfg(test)]
mod tests {
    use halograph_comm::{Options, Purpose, Tag, threads};
    use halograph_kernels::keyed::Key;
    use halograph_kernels::rows;

    use super::*;

    const WIDTHS: [usize; 7] = [1, 2, 63, 64, 65, 130, 256];

    /// Rows of random numbers, most of them 0; the first is all zero, the second has no zero.
    fn sparse<T: Real>(rows: usize, columns: usize) -> Matrix<T> {
        let key = Key::new(columns as u64, "sparse");
        let number = |at: usize| {
            let is_zero = match at / columns {
                0 => true,
                1 => false,
                _ => key.below(at as u64, 3) > 0,
            };
            if is_zero { T::zero() } else { T::of(0.5 + key.below(at as u64, 100) as f64) }
        };
        Matrix::new(rows, columns, (0..rows * columns).map(number).collect())
    }

    fn nonzeros<T: Real>(row: &[T]) -> usize {
        row.iter().filter(|&&x| x != T::zero()).count()
    }

    fn bytes_of<T: Real>(x: &Matrix<T>, rows: &[u32]) -> usize {
        let count: usize = rows.iter().map(|&at| nonzeros(row(x, at))).sum();
        8 * x.cols().div_ceil(64) * rows.len() + size_of::<T>() * count
    }

    fn round_trip<T: Real>(x: &Matrix<T>, rows: &[u32]) -> Vec<T> {
        let message = encode(x, rows);
        assert_eq!(message.bytes(), bytes_of(x, rows), "{} columns", x.cols());
        // What is left of earlier rows must not remain.
        let mut out = vec![T::of(7.0); rows.len() * x.cols()];
        decode(&message, x.cols(), &mut out).unwrap();
        out
    }

    fn check_round_trip<T: Real>() {
        for columns in WIDTHS {
            let x: Matrix<T> = sparse(9, columns);
            // In any order, and twice.
            for rows in [&[][..], &[0], &[1], &[5, 0, 2, 2, 8, 1, 0]] {
                let want: Vec<T> = rows.iter().flat_map(|&at| row(&x, at)).copied().collect();
                assert!(round_trip(&x, rows) == want, "{columns} columns, rows {rows:?}");
            }
        }
    }

    #[test]
    fn rows_survive_a_round_trip() {
        check_round_trip::<f32>();
        check_round_trip::<f64>();
    }

    #[test]
    fn numbers_that_compare_unequal_to_zero_are_sent() {
        let odd = [f32::NAN, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE / 4.0, -1.0];
        let x = Matrix::new(1, odd.len(), odd.to_vec());
        let found = round_trip(&x, &[0]);
        assert_eq!(found[0].to_bits(), odd[0].to_bits(), "NaN");
        assert_eq!(found[1].to_bits(), 0, "negative zero becomes zero");
        assert_eq!(
            found[2..].iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            odd[2..].iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        );
    }

    /// Returns the messages as another rank receives them.
    fn received(messages: &[Message]) -> Vec<Message> {
        let tag = |at: usize| Tag::new(Purpose::Features).epoch(3).layer(at as u16);
        let all = threads::run(2, &Options::default(), |comm| -> Result<Vec<Message>> {
            for (at, message) in messages.iter().enumerate().filter(|_| comm.rank() == 1) {
                comm.send(0, tag(at), message.clone())?;
            }
            let count = if comm.rank() == 0 { messages.len() } else { 0 };
            (0..count).map(|at| Ok(comm.receive(1, tag(at)).wait()?)).collect()
        });
        all.into_iter().next().unwrap().unwrap()
    }

    #[test]
    fn messages_of_a_wrong_size_are_refused_by_name() {
        let x: Matrix<f32> = sparse(6, 70);
        let rows = [1, 3, 4];
        let whole = encode(&x, &rows);
        let bytes = whole.as_slice::<u8>().unwrap();
        let longer = |more: usize| [bytes, &vec![0; more]].concat();
        let sizes = [0, 1, 8, 47, 48, 49, bytes.len() - 4, bytes.len() - 1];
        let mut wrong: Vec<Message> = sizes.iter().map(|&size| Message::of(&bytes[..size])).collect();
        wrong.extend([1, 4, 8, 280].map(|more| Message::of(&longer(more))));
        let mut out = vec![0.0f32; rows.len() * 70];
        for message in received(&wrong) {
            let error = decode(&message, 70, &mut out).unwrap_err().to_string();
            assert!(error.contains("rank 1") && error.contains("features"), "{error}");
            assert!(error.contains(&format!("{} bytes", message.bytes())), "{error}");
        }
        decode(&received(&[whole])[0], 70, &mut out).unwrap();

        let grad = sparse(3, 70);
        let pattern: Matrix<f32> = sparse(3, 70);
        let whole = encode_where(&grad, &pattern, 1..3);
        let bytes = whole.as_slice::<u8>().unwrap();
        let wrong = [0, 4, bytes.len() - 4, bytes.len() - 1].map(|size| Message::of(&bytes[..size]));
        let longer = Message::of(&[bytes, &[0; 4]].concat());
        for message in received(&[&wrong[..], &[longer]].concat()) {
            let mut sum = Matrix::zeros(3, 70);
            let error = add_where(&message, &pattern, &[1, 2], &mut sum).unwrap_err().to_string();
            assert!(error.contains("rank 1") && error.contains("features"), "{error}");
            assert!(sum == Matrix::zeros(3, 70), "nothing is added");
        }
    }

    #[test]
    fn gradients_of_nonzero_entries_are_added_like_dense_ones() {
        for columns in WIDTHS {
            let pattern: Matrix<f64> = sparse(8, columns);
            // The halo of the other rank: rows 4, 0, 4 and 1 of the owner, after two of another owner.
            let sent = [4, 0, 4, 1];
            let key = Key::new(1, "gradients");
            let of = |rows: usize, stream: u64| {
                let numbers =
                    (0..(rows * columns) as u64).map(|at| key.with(stream).approx_normal(at) as f64);
                Matrix::new(rows, columns, numbers.collect())
            };
            let (grad, own) = (of(6, 1), of(8, 2));
            let mut halo = Matrix::zeros(6, columns);
            for (at, &from) in sent.iter().enumerate() {
                halo.run_mut(2 + at..3 + at).copy_from_slice(row(&pattern, from));
            }
            let message = encode_where(&grad, &halo, 2..6);
            let count: usize = sent.iter().map(|&at| nonzeros(row(&pattern, at))).sum();
            assert_eq!(message.bytes(), 8 * count);
            let mut found = own.clone();
            add_where(&message, &pattern, &sent, &mut found).unwrap();

            let masked =
                grad.run(2..6).iter().zip(halo.run(2..6)).map(|(&g, &x)| if x == 0.0 { 0.0 } else { g });
            let mut want = own.clone();
            rows::scatter_add(&masked.collect::<Vec<f64>>(), columns, &sent, want.data_mut());
            assert!(found == want, "{columns} columns");
        }
    }
}
