//! How patient ranks are with one another.

use std::time::Duration;

/// How patient ranks are with one another. The same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// A rank that nothing was heard of for longer than this is lost.
    pub deadline: Duration,
    /// How often a rank says that it lives, whatever it is doing.
    pub heartbeat: Duration,
    /// The most bytes that travel between processes in one piece. Longer messages are cut, so that signs of life are
    /// not stuck behind them: a few pieces must take much less time than the deadline.
    pub piece: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { deadline: Duration::from_secs(30), heartbeat: Duration::from_secs(1), piece: 4 << 20 }
    }
}

impl Options {
    /// Time between two heartbeats: several fit into the deadline, or one late beat would be a loss.
    pub(crate) fn beat(&self, deadline: Duration) -> Duration {
        self.heartbeat.min(deadline / 4)
    }
}
