//! Options of a communicator.

use std::time::Duration;

/// Timeout, heartbeat interval, piece size and artificial delay. Must be the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Timeout: a rank is lost if no message or heartbeat of it arrives for this long.
    pub deadline: Duration,
    /// Interval between two heartbeats of a rank.
    pub heartbeat: Duration,
    /// Maximum bytes that are sent between processes in one piece. Longer messages are split, so that heartbeats need
    /// not wait for them. Sending a few pieces must take much less time than the deadline.
    pub piece: usize,
    /// Artificial delay, for tests and benchmarks: every message between two ranks, except those of
    /// [`Purpose::Control`](crate::Purpose::Control), becomes available to its receiver this long after its arrival.
    /// Neither results nor the order of messages depend on it.
    pub delay: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            deadline: Duration::from_secs(30),
            heartbeat: Duration::from_secs(1),
            piece: 4 << 20,
            delay: Duration::ZERO,
        }
    }
}

impl Options {
    /// Returns the interval between two heartbeats: at most a quarter of the deadline, so that one may be late.
    pub(crate) fn heartbeat_interval(&self, deadline: Duration) -> Duration {
        self.heartbeat.min(deadline / 4)
    }
}
