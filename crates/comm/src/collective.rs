//! What all ranks do together, made of messages between two.
//!
//! All ranks must call the same collectives under the same tags. What a rank keeps for itself is moved, not sent.

use crate::comm::Comm;
use crate::error::Result;
use crate::message::Message;
use crate::tag::{Key, Part, Tag};

impl Comm {
    /// Sends message q to rank q; returns what each rank sent here, in the order of ranks.
    pub fn all_to_all(&self, tag: Tag, messages: Vec<Message>) -> Result<Vec<Message>> {
        self.exchange(self.group().key(Part::User, tag), messages)
    }

    /// Sends `message` to all; returns what each rank sent, in the order of ranks.
    pub fn all_gather(&self, tag: Tag, message: Message) -> Result<Vec<Message>> {
        self.gather(self.group().key(Part::User, tag), message)
    }

    /// Everybody gets the message that `root` gives. Only `root` may give one, and must.
    pub fn broadcast(&self, tag: Tag, root: usize, message: Option<Message>) -> Result<Message> {
        assert_eq!(message.is_some(), root == self.rank(), "the root gives what is broadcast");
        let Some(message) = message else { return self.receive(root, tag).wait() };
        for to in self.group().others() {
            self.send(to, tag, message.clone())?;
        }
        Ok(message)
    }

    /// Returns when all ranks have called it.
    pub fn barrier(&self, tag: Tag) -> Result<()> {
        self.gather(self.group().key(Part::User, tag), Message::empty()).map(drop)
    }

    pub(crate) fn gather(&self, key: Key, message: Message) -> Result<Vec<Message>> {
        self.exchange(key, vec![message; self.size()])
    }

    fn exchange(&self, key: Key, messages: Vec<Message>) -> Result<Vec<Message>> {
        assert_eq!(messages.len(), self.size(), "a message for every rank");
        let mut own = None;
        for (to, message) in messages.into_iter().enumerate() {
            if to == self.rank() {
                own = Some(message);
            } else {
                self.send_as(to, key, message)?;
            }
        }
        let receive = |from| {
            let own = if from == self.rank() { own.take() } else { None };
            own.map_or_else(|| self.receive_as(from, key).wait(), Ok)
        };
        (0..self.size()).map(receive).collect()
    }
}
