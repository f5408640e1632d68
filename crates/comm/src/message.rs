//! Messages: arrays of numbers in pooled memory.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use halograph_kernels::buffer::Buffer;

use crate::error::{Error, Result};
use crate::tag::Key;

/// Bytes of a word, the unit of storage.
const WORD: usize = size_of::<u64>();
/// Words after the payload for key, length and flags, so that a message is sent without copying it.
const TRAILER: usize = 3;
/// Lowest bit of the flags in the last word of the trailer; the bits below hold the length.
const FLAGS: u32 = 56;

/// A message: an array of numbers of one type. May be empty.
#[derive(Clone)]
pub struct Message {
    /// Payload and trailer. Clones share it until one of them is written to.
    words: Arc<Buffer<u64>>,
    /// Bytes of the payload.
    bytes: usize,
    /// Flags of an all-reduce; not counted as payload.
    flags: u8,
    /// World rank of the sender and key; `None` before the message has arrived.
    origin: Option<(usize, Key)>,
}

impl Message {
    /// Allocates a message of `len` numbers with unspecified values, to be filled through [`Message::as_mut_slice`].
    pub fn new<E: Pod>(len: usize) -> Self {
        let bytes = len * size_of::<E>();
        let words = Buffer::unspecified(bytes.div_ceil(WORD) + TRAILER);
        Message { words: Arc::new(words), bytes, flags: 0, origin: None }
    }

    /// Allocates a message with a copy of `numbers`.
    pub fn of<E: Pod>(numbers: &[E]) -> Self {
        let mut message = Message::new::<E>(numbers.len());
        message.as_mut_slice().copy_from_slice(numbers);
        message
    }

    /// Returns a message without payload.
    pub fn empty() -> Self {
        Message::new::<u8>(0)
    }

    /// Returns the size of the payload in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the numbers, or [`Error::Size`] if the payload is not a multiple of their size.
    pub fn as_slice<E: Pod>(&self) -> Result<&[E]> {
        const { assert!(size_of::<E>() > 0, "zero-sized type") };
        if !self.bytes.is_multiple_of(size_of::<E>()) {
            return Err(self.wrong_size(format!("numbers of {} bytes", size_of::<E>())));
        }
        Ok(bytemuck::cast_slice(&self.raw()[..self.bytes]))
    }

    /// Returns the numbers, or [`Error::Size`] unless there are exactly `len`.
    pub fn expect<E: Pod>(&self, len: usize) -> Result<&[E]> {
        if self.bytes != len * size_of::<E>() {
            return Err(self.wrong_size(format!("{len} numbers of {} bytes", size_of::<E>())));
        }
        self.as_slice()
    }

    /// Returns the numbers for writing. Allocates a copy if the message has clones.
    ///
    /// # Panics
    /// If the payload is not a multiple of the size of a number.
    pub fn as_mut_slice<E: Pod>(&mut self) -> &mut [E] {
        let bytes = self.bytes;
        let words = &mut **Arc::make_mut(&mut self.words);
        bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<u64, u8>(words)[..bytes])
    }

    /// Returns the bytes of payload and trailer.
    fn raw(&self) -> &[u8] {
        bytemuck::cast_slice::<u64, u8>(&self.words)
    }

    fn wrong_size(&self, wanted: String) -> Error {
        let message = match self.origin {
            Some((from, key)) => format!("the message from rank {from} with tag {}", key.tag),
            None => "a local message".to_string(),
        };
        Error::Size { message, bytes: self.bytes, wanted }
    }

    /// Returns this message with other flags.
    pub(crate) fn with_flags(self, flags: u8) -> Self {
        Message { flags, ..self }
    }

    /// Returns the flags.
    pub(crate) fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns this message with its origin set.
    pub(crate) fn arrived(mut self, from: usize, key: Key) -> Self {
        self.origin = Some((from, key));
        self
    }
}

/// Encoding for transport between processes.
#[cfg_attr(not(any(test, feature = "mpi")), expect(dead_code, reason = "threads do not encode messages"))]
impl Message {
    /// Writes the trailer of a message that is sent with `key`.
    pub(crate) fn seal(&mut self, key: Key) {
        let (end, [high, low]) = (self.words.len() - TRAILER, key.to_words());
        let last = (self.flags as u64) << FLAGS | self.bytes as u64;
        Arc::make_mut(&mut self.words)[end..].copy_from_slice(&[high, low, last]);
    }

    /// Returns payload and trailer of a sealed message.
    pub(crate) fn sealed(&self) -> &[u64] {
        &self.words
    }

    /// Decodes a sealed message; `None` if the words do not encode one.
    pub(crate) fn unsealed(words: Buffer<u64>) -> Option<(Key, Self)> {
        let end = words.len().checked_sub(TRAILER)?;
        let key = Key::from_words([words[end], words[end + 1]])?;
        let (flags, bytes) = ((words[end + 2] >> FLAGS) as u8, words[end + 2] & ((1 << FLAGS) - 1));
        let bytes = usize::try_from(bytes).ok()?;
        let message = |words| Message { words: Arc::new(words), bytes, flags, origin: None };
        (bytes.div_ceil(WORD) == end).then(|| (key, message(words)))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("bytes", &self.bytes).field("origin", &self.origin).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::tag::{Kind, Purpose, Tag};

    fn user(tag: Tag) -> Key {
        Group::world(0, 1).key(Kind::User, tag)
    }

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for len in [0, 1, 2, 3, 1000] {
            let numbers: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let message = Message::of(&numbers);
            assert_eq!(message.bytes(), len * 4);
            assert_eq!(message.as_slice::<f32>().unwrap(), numbers);
            assert_eq!(message.clone().expect::<f32>(len).unwrap(), numbers);
        }
        assert_eq!(Message::empty().as_slice::<f64>().unwrap(), &[] as &[f64]);
    }

    #[test]
    fn clones_share_memory_until_written_to() {
        let mut message = Message::of(&[1u32, 2, 3]);
        let copy = message.clone();
        let address = |message: &Message| message.as_slice::<u32>().unwrap().as_ptr();
        assert_eq!(address(&message), address(&copy));
        message.as_mut_slice::<u32>()[0] = 9;
        assert_eq!(
            (message.as_slice().unwrap(), copy.as_slice().unwrap()),
            (&[9u32, 2, 3][..], &[1u32, 2, 3][..])
        );
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        let key = user(Tag::new(Purpose::Gradients).layer(2));
        let message = Message::of(&[1u32, 2, 3]).arrived(4, key);
        let text = message.as_slice::<f64>().unwrap_err().to_string();
        for part in ["rank 4", "gradients", "layer 2", "12 bytes", "numbers of 8 bytes"] {
            assert!(text.contains(part), "{text}");
        }
        let text = message.expect::<u32>(5).unwrap_err().to_string();
        assert!(text.contains("5 numbers of 4 bytes"), "{text}");
    }

    #[test]
    fn sealed_messages_are_decoded_and_damaged_ones_are_rejected() {
        let key = user(Tag::new(Purpose::Features).epoch(9));
        for numbers in [&[][..], &[1u8], &[1, 2, 3, 4, 5, 6, 7, 8], &[7; 9]] {
            let flags = 0xa5 & 0xff << numbers.len();
            let mut message = Message::of(numbers).with_flags(flags as u8);
            message.seal(key);
            let words = Buffer::from(message.sealed());
            let (found, message) = Message::unsealed(words.clone()).unwrap();
            assert_eq!((found, message.as_slice::<u8>().unwrap()), (key, numbers));
            assert_eq!((message.flags(), message.bytes()), (flags as u8, numbers.len()));
            let mut damaged = words;
            *damaged.last_mut().unwrap() += 9;
            assert!(Message::unsealed(damaged).is_none());
        }
        assert!(Message::unsealed(Buffer::zeros(1)).is_none());
    }
}
