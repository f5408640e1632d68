//! What travels: plain numbers in memory that is used again.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use halograph_kernels::buffer::Buffer;

use crate::error::{Error, Result};
use crate::tag::Key;

/// Bytes of a word, the unit of storage.
const WORD: usize = size_of::<u64>();
/// Spare words behind the payload: key and length travel there, so that sending copies nothing.
const TRAILER: usize = 3;
/// Position of the flags in the last word of the trailer; the length is below them.
const FLAGS: u32 = 56;

/// Numbers of one kind on their way, or the room for them. None at all is a message too.
#[derive(Clone)]
pub struct Message {
    /// Shared by copies: one message for all ranks is in memory once, unless it has to be sealed.
    words: Arc<Buffer<u64>>,
    bytes: usize,
    /// Sent beside the payload and not counted as part of it.
    flags: u8,
    /// Who sent it as what; nobody before it has arrived.
    origin: Option<(usize, Key)>,
}

impl Message {
    /// Room for `len` numbers, nobody knows which: to be filled through [`Message::as_mut_slice`].
    pub fn new<E: Pod>(len: usize) -> Self {
        let bytes = len * size_of::<E>();
        let words = Buffer::unspecified(bytes.div_ceil(WORD) + TRAILER);
        Message { words: Arc::new(words), bytes, flags: 0, origin: None }
    }

    /// A copy of `numbers`.
    pub fn of<E: Pod>(numbers: &[E]) -> Self {
        let mut message = Message::new::<E>(numbers.len());
        message.as_mut_slice().copy_from_slice(numbers);
        message
    }

    /// Nothing, as a sign.
    pub fn empty() -> Self {
        Message::new::<u8>(0)
    }

    /// The payload in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The numbers.
    pub fn as_slice<E: Pod>(&self) -> Result<&[E]> {
        const { assert!(size_of::<E>() > 0, "numbers have a size") };
        if !self.bytes.is_multiple_of(size_of::<E>()) {
            return Err(self.wrong_size(format!("numbers of {} bytes", size_of::<E>())));
        }
        Ok(bytemuck::cast_slice(&self.raw()[..self.bytes]))
    }

    /// The numbers, exactly `len` of them.
    pub fn expect<E: Pod>(&self, len: usize) -> Result<&[E]> {
        if self.bytes != len * size_of::<E>() {
            return Err(self.wrong_size(format!("{len} numbers of {} bytes", size_of::<E>())));
        }
        self.as_slice()
    }

    /// The numbers, to be filled in.
    ///
    /// # Panics
    /// If the message was not made for numbers of this size: whoever fills it has made it.
    pub fn as_mut_slice<E: Pod>(&mut self) -> &mut [E] {
        let bytes = self.bytes;
        let words = &mut **Arc::make_mut(&mut self.words);
        bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<u64, u8>(words)[..bytes])
    }

    fn raw(&self) -> &[u8] {
        bytemuck::cast_slice::<u64, u8>(&self.words)
    }

    fn wrong_size(&self, wanted: String) -> Error {
        let message = match self.origin {
            Some((from, key)) => format!("the message of rank {from} with {}", key.tag),
            None => "a message that was not sent".to_string(),
        };
        Error::Size { message, bytes: self.bytes, wanted }
    }

    /// Returns this message with other flags.
    pub(crate) fn with_flags(self, flags: u8) -> Self {
        Message { flags, ..self }
    }

    pub(crate) fn flags(&self) -> u8 {
        self.flags
    }

    /// Remembers who sent it as what.
    pub(crate) fn arrived(mut self, from: usize, key: Key) -> Self {
        self.origin = Some((from, key));
        self
    }
}

/// As it travels between processes.
#[cfg_attr(
    not(any(test, feature = "mpi")),
    expect(dead_code, reason = "threads hand messages over as they are")
)]
impl Message {
    /// Writes the trailer of a message sent as `key`.
    pub(crate) fn seal(&mut self, key: Key) {
        let (end, [high, low]) = (self.words.len() - TRAILER, key.to_words());
        let last = (self.flags as u64) << FLAGS | self.bytes as u64;
        Arc::make_mut(&mut self.words)[end..].copy_from_slice(&[high, low, last]);
    }

    /// Payload and trailer, once that was written.
    pub(crate) fn sealed(&self) -> &[u64] {
        &self.words
    }

    /// From what another rank sealed, if it is that.
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
    use crate::tag::{Part, Purpose, Tag};

    fn user(tag: Tag) -> Key {
        Group::world(0, 1).key(Part::User, tag)
    }

    #[test]
    fn numbers_come_out_as_they_went_in() {
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
    fn a_copy_is_no_second_one_until_it_changes() {
        let mut message = Message::of(&[1u32, 2, 3]);
        let copy = message.clone();
        let at = |message: &Message| message.as_slice::<u32>().unwrap().as_ptr();
        assert_eq!(at(&message), at(&copy));
        message.as_mut_slice::<u32>()[0] = 9;
        assert_eq!(
            (message.as_slice().unwrap(), copy.as_slice().unwrap()),
            (&[9u32, 2, 3][..], &[1u32, 2, 3][..])
        );
    }

    #[test]
    fn a_wrong_length_is_named() {
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
    fn a_sealed_message_is_opened_and_damage_is_not() {
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
