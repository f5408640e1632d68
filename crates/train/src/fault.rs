//! Faults injected by tests.

use halograph_comm::Comm;

use crate::error::Result;

/// A fault of one rank at the start of an epoch.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub rank: usize,
    pub epoch: u64,
    /// Whether the rank stops sending heartbeats instead of panicking.
    pub stalls: bool,
}

impl Fault {
    /// Panics or stalls if the fault is for this rank and epoch.
    pub(crate) fn strike(self, comm: &Comm, epoch: u64) -> Result<()> {
        if (self.rank, self.epoch) != (comm.rank(), epoch) {
            return Ok(());
        }
        assert!(self.stalls, "a panic was requested for this rank");
        comm.stall().map_or(Ok(()), |error| Err(error.into()))
    }
}
