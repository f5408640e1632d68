//! What a rank asks of all ranks at the end of a step.

/// Requests of one rank, or of all ranks together. A request of any rank is carried out by all of them.
///
/// Inside an epoch, requests are flags of the loss all-reduce, so that agreeing on them costs no message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Write a checkpoint.
    pub save: bool,
    /// Write a checkpoint and stop.
    pub stop: bool,
}

const SAVE: u8 = 1;
const STOP: u8 = 2;

impl Requests {
    /// Combines the requests of two.
    pub fn or(self, other: Self) -> Self {
        Requests { save: self.save || other.save, stop: self.stop || other.stop }
    }

    /// Encodes the requests as flags that a reduction combines by OR.
    pub fn to_flags(self) -> u8 {
        (self.save as u8 * SAVE) | (self.stop as u8 * STOP)
    }

    /// Decodes combined flags.
    pub fn from_flags(flags: u8) -> Self {
        Requests { save: flags & SAVE != 0, stop: flags & STOP != 0 }
    }
}
