//! Options of a communicator.

use std::time::Duration;

/// Timeouts and message sizes. Must be the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Silence after which a rank counts as lost.
    pub deadline: Duration,
    /// Time between two heartbeats of a rank.
    pub heartbeat: Duration,
    /// Maximum bytes that are sent between processes in one piece. Longer messages are split, so that heartbeats do not
    /// queue behind them: sending a few pieces must take much less time than the deadline.
    pub piece: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { deadline: Duration::from_secs(30), heartbeat: Duration::from_secs(1), piece: 4 << 20 }
    }
}

impl Options {
    /// Returns the time between two heartbeats. Several fit into the deadline, so that a late one is no loss.
    pub(crate) fn heartbeat_interval(&self, deadline: Duration) -> Duration {
        self.heartbeat.min(deadline / 4)
    }
}
