//! What this rank has sent, by purpose.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tag::Purpose;

const KINDS: usize = Purpose::ALL.len();

/// Payload a rank has sent to others so far. What it keeps for itself is not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    bytes: [u64; KINDS],
    messages: [u64; KINDS],
}

impl Counters {
    /// Bytes sent for `purpose`.
    pub fn bytes(&self, purpose: Purpose) -> u64 {
        self.bytes[purpose as usize]
    }

    /// Messages sent for `purpose`.
    pub fn messages(&self, purpose: Purpose) -> u64 {
        self.messages[purpose as usize]
    }

    /// Bytes sent for anything but control.
    pub fn payload_bytes(&self) -> u64 {
        self.bytes.iter().sum::<u64>() - self.bytes(Purpose::Control)
    }

    /// Messages sent for anything but control.
    pub fn payload_messages(&self) -> u64 {
        self.messages.iter().sum::<u64>() - self.messages(Purpose::Control)
    }

    /// What was sent after `earlier` was read.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let less = |now: [u64; KINDS], then: [u64; KINDS]| std::array::from_fn(|i| now[i] - then[i]);
        Counters { bytes: less(self.bytes, earlier.bytes), messages: less(self.messages, earlier.messages) }
    }
}

/// Counters that several threads add to.
#[derive(Default)]
pub(crate) struct Counting {
    bytes: [AtomicU64; KINDS],
    messages: [AtomicU64; KINDS],
}

impl Counting {
    pub fn add(&self, purpose: Purpose, bytes: usize) {
        self.bytes[purpose as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        self.messages[purpose as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn now(&self) -> Counters {
        let read = |all: &[AtomicU64; KINDS]| std::array::from_fn(|i| all[i].load(Ordering::Relaxed));
        Counters { bytes: read(&self.bytes), messages: read(&self.messages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_is_counted_but_no_payload() {
        let counting = Counting::default();
        counting.add(Purpose::Control, 7);
        let before = counting.now();
        counting.add(Purpose::Features, 100);
        counting.add(Purpose::Features, 0);
        let now = counting.now();
        assert_eq!((now.bytes(Purpose::Control), now.messages(Purpose::Control)), (7, 1));
        assert_eq!((now.payload_bytes(), now.payload_messages()), (100, 2));
        assert_eq!(now.since(&before).bytes(Purpose::Control), 0);
        assert_eq!(now.since(&before).messages(Purpose::Features), 2);
    }
}
