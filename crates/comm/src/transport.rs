//! The interface of transports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::inbox::Inbox;
use crate::message::Message;
use crate::shared::Shared;
use crate::tag::Key;

/// Priority of a message among those to the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Sent in the order of the calls. For messages that the receiver waits for.
    Urgent,
    /// Sent only while no urgent message to that rank is pending. Urgent messages overtake it, except for the few
    /// pieces that the transport has already started to send. For messages that are needed later, e.g. in the next
    /// epoch.
    Background,
}

/// A message passed to a transport.
pub(crate) struct Outgoing {
    /// World rank of the receiver.
    pub to: usize,
    pub key: Key,
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads deliver at once"))]
    pub priority: Priority,
    pub message: Message,
    /// Time of the call, if tracing is enabled.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads deliver at once"))]
    pub since: Option<Instant>,
}

/// The half of a transport that all threads of a rank use.
pub(crate) trait Sender: Send + Sync {
    /// Sends or queues a message. Never blocks.
    fn send(&self, outgoing: Outgoing) -> SendStatus;
}

/// State of a message when [`Sender::send`] returns.
pub(crate) enum SendStatus {
    /// It is in the inbox of the receiver.
    Delivered,
    /// It is queued; the transport will call [`Shared::message_sent`].
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads deliver at once"))]
    Queued,
}

/// Failure to send to a rank or to receive from it.
pub(crate) struct TransportError {
    /// World rank of the other rank.
    pub rank: usize,
    pub cause: String,
}

/// The half of a transport that the progress thread creates and uses.
pub(crate) trait Transport {
    /// Sends and receives what is possible without blocking. Delivers received messages to `shared`. Returns whether
    /// anything was sent or received.
    fn poll(&mut self, shared: &Shared) -> Result<bool, TransportError>;

    /// Returns whether messages are still to be sent; with `notices_only`, whether heartbeats or failure notices are.
    fn pending(&self, notices_only: bool) -> bool;

    /// Returns the maximum sleep of the progress thread after a poll without progress.
    fn max_sleep(&self) -> Duration;

    /// Shuts the transport down, after all ranks have agreed to leave. May block until the other ranks do.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// A rank and its opened transport.
pub(crate) struct Link {
    pub rank: usize,
    pub inbox: Arc<Inbox>,
    pub sender: Box<dyn Sender>,
    pub transport: Box<dyn Transport>,
    /// Host of every rank, if known without communication.
    pub hosts: Option<Vec<String>>,
    /// Start of the clock, if all ranks share one.
    pub began: Option<Instant>,
}

/// Returns the name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
