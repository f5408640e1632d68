//! Sums over ranks, the same bits on every one.
//!
//! A vector is cut into a chunk for each rank. Everybody sends chunk q to rank q, which adds them up in the order of
//! ranks and sends the sum to everybody. Whatever arrives first, the order of additions is the same; and all ranks
//! together send `2 (P - 1)` times the vector, the least there is. The progress thread does it, so that whoever began it
//! can do other things.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use halograph_kernels::Real;
use halograph_kernels::buffer::Buffer;

use crate::comm::Comm;
use crate::error::Result;
use crate::group::Group;
use crate::message::Message;
use crate::shared::Shared;
use crate::tag::{Key, Part, Tag};

/// A sum under way.
pub(crate) trait Reduction: Send {
    /// Returns what reductions that share messages have in common.
    fn key(&self) -> Key;

    /// Uses what has arrived; how many messages that was.
    fn advance(&mut self, shared: &Shared) -> Result<usize>;

    fn is_done(&self) -> bool;
}

/// The part of `len` numbers that rank `rank` of `size` adds up.
fn chunk(len: usize, rank: usize, size: usize) -> Range<usize> {
    len * rank / size..len * (rank + 1) / size
}

/// Sums and flags of a reduction, once it is done.
type Slot<T> = Arc<Mutex<Option<(Buffer<T>, u8)>>>;

struct Adding<T> {
    group: Arc<Group>,
    tag: Tag,
    numbers: Buffer<T>,
    /// The sum of this rank's chunk so far.
    sum: Message,
    /// Flags of the ranks whose addends were added so far, and of this rank.
    flags: u8,
    /// The rank whose chunk is added next; all have been when it is their number.
    addend: usize,
    /// The rank whose sum is awaited next.
    place: usize,
    result: Slot<T>,
    done: bool,
}

impl<T: Real> Adding<T> {
    /// Returns the part of the vector that a rank of the group adds up.
    fn chunk(&self, rank: usize) -> Range<usize> {
        chunk(self.numbers.len(), rank, self.group.size())
    }

    /// Adds the next rank's chunk, if it is there.
    fn add(&mut self, shared: &Shared) -> Result<bool> {
        let own = self.chunk(self.group.rank());
        let arrived = self.next(shared, self.addend, Part::Addend)?;
        let addend = match &arrived {
            Some(message) => message.expect(own.len())?,
            None if self.addend == self.group.rank() => &self.numbers[own],
            None => return Ok(false),
        };
        let sum = self.sum.as_mut_slice::<T>();
        if self.addend == 0 {
            sum.copy_from_slice(addend);
        } else {
            sum.iter_mut().zip(addend).for_each(|(s, &x)| *s += x);
        }
        self.flags |= arrived.map_or(0, |message| message.flags());
        self.addend += 1;
        if self.addend == self.group.size() {
            self.share(shared);
        }
        Ok(true)
    }

    /// Sends the finished sum of this rank's chunk to all.
    fn share(&mut self, shared: &Shared) {
        let own = self.chunk(self.group.rank());
        self.numbers[own].copy_from_slice(self.sum.as_mut_slice());
        let key = self.group.key(Part::Sum, self.tag);
        for to in self.group.others() {
            shared.send(self.group.world_rank(to), key, self.sum.clone());
        }
    }

    /// Puts the next rank's sum in its place, if it is there.
    fn put(&mut self, shared: &Shared) -> Result<bool> {
        if self.place != self.group.rank() {
            let Some(sum) = self.next(shared, self.place, Part::Sum)? else { return Ok(false) };
            let range = self.chunk(self.place);
            self.numbers[range.clone()].copy_from_slice(sum.expect(range.len())?);
        }
        self.place += 1;
        Ok(true)
    }

    /// The next message of `from`, if it is there. This rank sends itself none.
    fn next(&self, shared: &Shared, from: usize, part: Part) -> Result<Option<Message>> {
        let from = self.group.world_rank(from);
        let next = shared.inbox.next(from, self.group.key(part, self.tag));
        next.transpose().map_err(|_| shared.never(from, self.tag))
    }
}

impl<T: Real> Reduction for Adding<T> {
    fn key(&self) -> Key {
        self.group.key(Part::Addend, self.tag)
    }

    fn advance(&mut self, shared: &Shared) -> Result<usize> {
        let (mut steps, size) = (0, self.group.size());
        while self.addend < size && self.add(shared)? {
            steps += 1;
        }
        while self.addend == size && self.place < size && self.put(shared)? {
            steps += 1;
        }
        if self.place == size {
            let numbers = std::mem::take(&mut self.numbers);
            *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some((numbers, self.flags));
            self.done = true;
            shared.inbox.look_again();
        }
        Ok(steps)
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

/// A sum over ranks that is under way.
#[must_use = "the sum is what `wait` returns"]
pub struct Reducing<T> {
    shared: Arc<Shared>,
    tag: Tag,
    result: Slot<T>,
}

impl<T: Real> Reducing<T> {
    /// The sums, when they are there.
    pub fn wait(self) -> Result<Buffer<T>> {
        Ok(self.wait_with_flags()?.0)
    }

    /// Blocks until the sums are known. Returns them and the bitwise OR of the flags of all ranks.
    pub fn wait_with_flags(self) -> Result<(Buffer<T>, u8)> {
        self.shared.wait(self.tag, |_| self.result.lock().unwrap_or_else(PoisonError::into_inner).take())
    }
}

impl Comm {
    /// Adds up `numbers` of all ranks: everybody gets the same bits. All must give equally many.
    pub fn all_reduce<T: Real>(&self, tag: Tag, numbers: &mut [T]) -> Result<()> {
        let sums = self.start_all_reduce(tag, Buffer::from(&*numbers)).wait()?;
        numbers.copy_from_slice(&sums);
        Ok(())
    }

    /// As [`Comm::all_reduce`], while this thread goes on. Several may be under way; all ranks must begin those of one
    /// tag in the same order.
    pub fn start_all_reduce<T: Real>(&self, tag: Tag, numbers: Buffer<T>) -> Reducing<T> {
        self.start_all_reduce_with_flags(tag, numbers, 0)
    }

    /// As [`Comm::start_all_reduce`]; also combines the flags of all ranks by bitwise OR, for
    /// [`Reducing::wait_with_flags`]. Flags add neither messages nor payload bytes. Ranks that call
    /// [`Comm::start_all_reduce`] for the same reduction take part with flags 0.
    pub fn start_all_reduce_with_flags<T: Real>(
        &self,
        tag: Tag,
        numbers: Buffer<T>,
        flags: u8,
    ) -> Reducing<T> {
        let (shared, group) = (self.shared().clone(), self.group().clone());
        let (len, size) = (numbers.len(), group.size());
        if size == 1 {
            return Reducing { shared, tag, result: Arc::new(Mutex::new(Some((numbers, flags)))) };
        }
        for to in group.others() {
            let addend = Message::of(&numbers[chunk(len, to, size)]).with_flags(flags);
            shared.send(group.world_rank(to), group.key(Part::Addend, tag), addend);
        }
        let result = Slot::default();
        let sum = Message::new::<T>(chunk(len, group.rank(), size).len());
        let adding = Adding {
            group,
            tag,
            numbers,
            sum,
            flags,
            addend: 0,
            place: 0,
            result: result.clone(),
            done: false,
        };
        shared.begin(Box::new(adding));
        Reducing { shared, tag, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once() {
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
