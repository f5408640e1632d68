//! What a way of carrying messages must do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::inbox::Inbox;
use crate::message::Message;
use crate::shared::Shared;
use crate::tag::Key;

/// Order in which messages to one rank are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// In the order of the calls. For messages that a rank will wait for.
    Urgent,
    /// Only while no urgent message to that rank is pending. Urgent messages overtake it, except for the few pieces that
    /// the transport has already started to send. For messages that are needed later, e.g. in the next epoch.
    Background,
}

/// A message that was handed over.
pub(crate) struct Outgoing {
    pub to: usize,
    pub key: Key,
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "between threads nothing waits"))]
    pub priority: Priority,
    pub message: Message,
    /// When, if anybody wants to know how long it takes.
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "between threads it takes no time"))]
    pub since: Option<Instant>,
}

/// The half of a transport that all threads of a rank use.
pub(crate) trait Sender: Send + Sync {
    /// Takes a message over without waiting.
    fn send(&self, outgoing: Outgoing) -> Arrival;
}

/// Where a message is when its sender goes on.
pub(crate) enum Arrival {
    /// With its receiver.
    Here,
    /// On its way; the transport will tell [`Shared::left`].
    #[cfg_attr(not(feature = "mpi"), expect(dead_code, reason = "threads hand messages over at once"))]
    Later,
}

/// Why messages to or from a rank cannot be carried.
pub(crate) struct Trouble {
    pub rank: usize,
    pub cause: String,
}

/// The half of a transport that belongs to the progress thread, is made on it and never leaves it.
pub(crate) trait Transport {
    /// Moves what can be moved, without waiting: tells `shared` what arrived and what left. Whether anything happened.
    fn poll(&mut self, shared: &Shared) -> Result<bool, Trouble>;

    /// Whether anything has not left yet; with `notices_only`, any heartbeat or failure.
    fn pending(&self, notices_only: bool) -> bool;

    /// How long the progress thread may sleep when nothing happened.
    fn nap(&self) -> Duration;

    /// Ends it, after all ranks have agreed to.
    fn finish(self: Box<Self>) -> Result<(), String>;
}

/// A rank's place in its world, as the transport opens it.
pub(crate) struct Link {
    pub rank: usize,
    pub inbox: Arc<Inbox>,
    pub sender: Box<dyn Sender>,
    pub transport: Box<dyn Transport>,
    /// Names of hosts, where they are known without asking.
    pub hosts: Option<Vec<String>>,
    /// When the world began, where all ranks share a clock.
    pub began: Option<Instant>,
}

/// The name of this machine.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
