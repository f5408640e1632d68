//! How long work is watched and stopped. Libraries never print: an observer does.

use crate::error::{Error, Result};

/// Watches a long operation, stage by stage, and may ask it to stop.
pub trait Progress: Sync {
    /// A stage begins: `total` units of work if that is known.
    fn begin(&self, _stage: &str, _total: Option<u64>, _unit: Unit) {}
    /// A short stage begins. Observers that only log may ignore it.
    fn brief(&self, _stage: &str) {}
    /// Work that does not ask [`Progress::cancelled`] begins (`true`) or ends (`false`). Nothing is on disk meanwhile.
    fn uninterruptible(&self, _active: bool) {}
    /// `n` more units of the current stage are done.
    fn advance(&self, _n: u64) {}
    /// Whether the operation should give up. It then returns [`Error::Cancelled`] and leaves nothing behind.
    fn cancelled(&self) -> bool {
        false
    }
}

/// What a stage counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes read or written.
    Bytes,
    /// Rows, edges, nodes.
    Items,
}

impl dyn Progress + '_ {
    /// Reports `n` units done; fails if the observer asked to stop.
    pub fn tick(&self, n: u64) -> Result<()> {
        self.advance(n);
        if self.cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Watches nothing.
pub struct Silent;

impl Progress for Silent {}
