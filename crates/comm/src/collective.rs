//! Collectives, built on point-to-point messages.
//!
//! All ranks of a communicator must call the same collectives with the same tags. A rank's message to itself is
//! moved, not sent.

use crate::comm::Comm;
use crate::error::Result;
use crate::message::Message;
use crate::tag::{Key, Kind, Tag};
use crate::transport::Priority;

impl Comm {
    /// Sends `messages[q]` to every rank q and returns the messages of all ranks to this one, in the order of ranks.
    /// Blocks until they have arrived. Collective.
    pub fn all_to_all(&self, tag: Tag, messages: Vec<Message>) -> Result<Vec<Message>> {
        self.all_to_all_with(tag, Priority::Urgent, messages)
    }

    /// As [`Comm::all_to_all`], with the given priority. Blocks; collective.
    ///
    /// A background all-to-all is for a thread that prepares later work: the time for which it blocks is neither part
    /// of [`Comm::waited`] nor recorded on [`Track::Wait`](crate::Track::Wait).
    pub fn all_to_all_with(
        &self,
        tag: Tag,
        priority: Priority,
        messages: Vec<Message>,
    ) -> Result<Vec<Message>> {
        let kind = match priority {
            Priority::Urgent => Kind::User,
            Priority::Background => Kind::Background,
        };
        self.exchange(self.group().key(kind, tag), priority, messages)
    }

    /// Sends `message` to all ranks and returns the messages of all ranks, in the order of ranks. Blocks until they
    /// have arrived. Collective.
    pub fn all_gather(&self, tag: Tag, message: Message) -> Result<Vec<Message>> {
        self.gather(self.group().key(Kind::User, tag), message)
    }

    /// Sends the message of rank `root` to all ranks and returns it. Blocks on other ranks until it has arrived.
    /// Collective.
    ///
    /// # Panics
    /// Unless rank `root` passes a message and the other ranks pass `None`.
    pub fn broadcast(&self, tag: Tag, root: usize, message: Option<Message>) -> Result<Message> {
        assert_eq!(message.is_some(), root == self.rank(), "only the root passes a message to a broadcast");
        let Some(message) = message else { return self.receive(root, tag).wait() };
        for to in self.group().others() {
            self.send(to, tag, message.clone())?;
        }
        Ok(message)
    }

    /// Blocks until all ranks have called it. Collective.
    pub fn barrier(&self, tag: Tag) -> Result<()> {
        self.gather(self.group().key(Kind::User, tag), Message::empty()).map(drop)
    }

    /// As [`Comm::all_gather`], with a key instead of a tag.
    pub(crate) fn gather(&self, key: Key, message: Message) -> Result<Vec<Message>> {
        self.exchange(key, Priority::Urgent, vec![message; self.size()])
    }

    /// As [`Comm::all_to_all_with`], with a key instead of a tag.
    fn exchange(&self, key: Key, priority: Priority, messages: Vec<Message>) -> Result<Vec<Message>> {
        assert_eq!(messages.len(), self.size(), "one message per rank");
        let mut own = None;
        for (to, message) in messages.into_iter().enumerate() {
            if to == self.rank() {
                own = Some(message);
            } else {
                self.send_key(to, key, priority, message)?;
            }
        }
        let receive = |from| {
            let own = if from == self.rank() { own.take() } else { None };
            own.map_or_else(|| Ok(self.receive_as(from, key).wait_with(priority)?.0), Ok)
        };
        (0..self.size()).map(receive).collect()
    }
}
