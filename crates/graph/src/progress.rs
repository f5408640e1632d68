//! Progress and cancellation of long operations. Libraries do not print: they report to an observer.

use crate::error::{Error, Result};

/// Observer of a long operation, which it may cancel.
pub trait Progress: Sync {
    /// A stage begins, with `total` units of work if known.
    fn begin(&self, _stage: &str, _total: Option<u64>, _unit: Unit) {}
    /// A short stage begins. Observers that only log may ignore it.
    fn brief(&self, _stage: &str) {}
    /// Work that does not ask [`Progress::cancelled`] begins (`true`) or ends (`false`). Nothing is on disk meanwhile.
    fn uninterruptible(&self, _active: bool) {}
    /// `n` more units of the current stage are done.
    fn advance(&self, _n: u64) {}
    /// Returns whether to cancel the operation, which then returns [`Error::Cancelled`] and leaves nothing on disk.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Unit of the work of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes read or written.
    Bytes,
    /// Rows, edges, nodes.
    Items,
}

impl dyn Progress + '_ {
    /// Reports `n` finished units; fails with [`Error::Cancelled`] if the observer cancels.
    pub fn tick(&self, n: u64) -> Result<()> {
        self.advance(n);
        if self.cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Ignores all reports.
pub struct Silent;

impl Progress for Silent {}
