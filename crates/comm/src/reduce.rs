//! All-reduce: sums over ranks with the same bits on every rank.
//!
//! Reduce-scatter, then all-gather, over point-to-point messages. A vector is split into one chunk per rank. Every
//! rank sends chunk q to rank q, which adds the chunks in the order of ranks and sends the sum to all. Therefore the
//! order of additions does not depend on the order of arrival. All P ranks together send `2 (P - 1)` times the
//! vector, which is the minimum. The progress thread does the work, so that communication overlaps with computation.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use halograph_kernels::Real;
use halograph_kernels::buffer::Buffer;

use crate::comm::Comm;
use crate::error::Result;
use crate::group::Group;
use crate::message::Message;
use crate::shared::{Reduction, Shared};
use crate::tag::{Key, Kind, Tag};

/// Returns the range of the chunk of `len` numbers that rank `rank` of `size` ranks sums.
fn chunk(len: usize, rank: usize, size: usize) -> Range<usize> {
    len * rank / size..len * (rank + 1) / size
}

/// Sums and flags of a finished reduction.
type ResultCell<T> = Arc<Mutex<Option<(Buffer<T>, u8)>>>;

/// An all-reduce in progress, of numbers of type `T`. Ranks are those of the group.
struct AllReduce<T> {
    group: Arc<Group>,
    tag: Tag,
    numbers: Buffer<T>,
    /// Partial sum of this rank's chunk.
    sum: Message,
    /// Flags of this rank and of those whose addends were added.
    flags: u8,
    /// Rank whose addend is added next; the size of the group when all were added.
    next_addend: usize,
    /// Rank whose sum is stored next; the size of the group when all were stored.
    next_sum: usize,
    result: ResultCell<T>,
    done: bool,
}

impl<T: Real> AllReduce<T> {
    /// Returns the range of the chunk that a rank sums.
    fn chunk(&self, rank: usize) -> Range<usize> {
        chunk(self.numbers.len(), rank, self.group.size())
    }

    /// Adds the next addend, if it has arrived. Returns whether it has.
    fn add(&mut self, shared: &Shared) -> Result<bool> {
        let own = self.chunk(self.group.rank());
        let arrived = self.next(shared, self.next_addend, Kind::Addend)?;
        let addend = match &arrived {
            Some(message) => message.expect(own.len())?,
            None if self.next_addend == self.group.rank() => &self.numbers[own],
            None => return Ok(false),
        };
        let sum = self.sum.as_mut_slice::<T>();
        if self.next_addend == 0 {
            sum.copy_from_slice(addend);
        } else {
            sum.iter_mut().zip(addend).for_each(|(s, &x)| *s += x);
        }
        self.flags |= arrived.map_or(0, |message| message.flags());
        self.next_addend += 1;
        if self.next_addend == self.group.size() {
            self.send_sum(shared);
        }
        Ok(true)
    }

    /// Stores the sum of this rank's chunk and sends it to all.
    fn send_sum(&mut self, shared: &Shared) {
        let own = self.chunk(self.group.rank());
        self.numbers[own].copy_from_slice(self.sum.as_mut_slice());
        let key = self.group.key(Kind::Sum, self.tag);
        for to in self.group.others() {
            shared.send(self.group.world_rank(to), key, self.sum.clone());
        }
    }

    /// Stores the sum of the next rank's chunk, if it has arrived. Returns whether it has.
    fn store_sum(&mut self, shared: &Shared) -> Result<bool> {
        if self.next_sum != self.group.rank() {
            let Some(sum) = self.next(shared, self.next_sum, Kind::Sum)? else { return Ok(false) };
            let range = self.chunk(self.next_sum);
            self.numbers[range.clone()].copy_from_slice(sum.expect(range.len())?);
        }
        self.next_sum += 1;
        Ok(true)
    }

    /// Returns the next message of `from`, if it has arrived; always `None` for this rank itself.
    fn next(&self, shared: &Shared, from: usize, kind: Kind) -> Result<Option<Message>> {
        let from = self.group.world_rank(from);
        let next = shared.inbox.next(from, self.group.key(kind, self.tag));
        next.transpose().map_err(|_| shared.sender_left(from, self.tag))
    }
}

impl<T: Real> Reduction for AllReduce<T> {
    fn key(&self) -> Key {
        self.group.key(Kind::Addend, self.tag)
    }

    fn advance(&mut self, shared: &Shared) -> Result<usize> {
        let (mut steps, size) = (0, self.group.size());
        while self.next_addend < size && self.add(shared)? {
            steps += 1;
        }
        while self.next_addend == size && self.next_sum < size && self.store_sum(shared)? {
            steps += 1;
        }
        if self.next_sum == size {
            let numbers = std::mem::take(&mut self.numbers);
            *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some((numbers, self.flags));
            self.done = true;
            shared.inbox.wake_waiters();
        }
        Ok(steps)
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

/// Handle for an all-reduce in progress.
#[must_use = "the sum is what `wait` returns"]
pub struct AllReduceRequest<T> {
    shared: Arc<Shared>,
    tag: Tag,
    result: ResultCell<T>,
}

impl<T: Real> AllReduceRequest<T> {
    /// Blocks until the all-reduce is done. Returns the sums.
    pub fn wait(self) -> Result<Buffer<T>> {
        Ok(self.wait_with_flags()?.0)
    }

    /// Blocks until the all-reduce is done. Returns the sums and the bitwise OR of the flags of all ranks.
    pub fn wait_with_flags(self) -> Result<(Buffer<T>, u8)> {
        self.shared.wait(self.tag, |_| self.result.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl Comm {
    /// Replaces `numbers` by their sums over all ranks, with the same bits on every rank. Blocks; collective. All ranks
    /// must pass equally many numbers.
    pub fn all_reduce<T: Real>(&self, tag: Tag, numbers: &mut [T]) -> Result<()> {
        let sums = self.start_all_reduce(tag, Buffer::from(&*numbers)).wait()?;
        numbers.copy_from_slice(&sums);
        Ok(())
    }

    /// Starts an all-reduce as [`Comm::all_reduce`]. Does not block; collective. Several may be in progress; all
    /// ranks must start those with equal tags in the same order.
    pub fn start_all_reduce<T: Real>(&self, tag: Tag, numbers: Buffer<T>) -> AllReduceRequest<T> {
        self.start_all_reduce_with_flags(tag, numbers, 0)
    }

    /// Starts an all-reduce as [`Comm::start_all_reduce`] that also combines the flags of all ranks by bitwise OR, for
    /// [`AllReduceRequest::wait_with_flags`].
    ///
    /// Flags add neither messages nor payload bytes. Ranks that start the same all-reduce without flags contribute 0.
    pub fn start_all_reduce_with_flags<T: Real>(
        &self,
        tag: Tag,
        numbers: Buffer<T>,
        flags: u8,
    ) -> AllReduceRequest<T> {
        let (shared, group) = (self.shared().clone(), self.group().clone());
        let (len, size) = (numbers.len(), group.size());
        if size == 1 {
            return AllReduceRequest { shared, tag, result: Arc::new(Mutex::new(Some((numbers, flags)))) };
        }
        for to in group.others() {
            let addend = Message::of(&numbers[chunk(len, to, size)]).with_flags(flags);
            shared.send(group.world_rank(to), group.key(Kind::Addend, tag), addend);
        }
        let result = ResultCell::default();
        shared.start_reduction(Box::new(AllReduce {
            sum: Message::new::<T>(chunk(len, group.rank(), size).len()),
            group,
            tag,
            numbers,
            flags,
            next_addend: 0,
            next_sum: 0,
            result: result.clone(),
            done: false,
        }));
        AllReduceRequest { shared, tag, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_disjoint_and_complete() {
        for (len, size) in [(0, 3), (1, 4), (7, 3), (8, 8), (100, 7)] {
            let mut end = 0;
            for rank in 0..size {
                let chunk = chunk(len, rank, size);
                assert_eq!(chunk.start, end);
                end = chunk.end;
            }
            assert_eq!(end, len);
        }
    }
}
