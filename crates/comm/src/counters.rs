//! Counters of sent messages, by purpose.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tag::Purpose;

const PURPOSES: usize = Purpose::ALL.len();

/// Payload bytes and messages that a rank has sent to other ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    bytes: [u64; PURPOSES],
    messages: [u64; PURPOSES],
}

impl Counters {
    /// Returns the bytes sent for `purpose`.
    pub fn bytes(&self, purpose: Purpose) -> u64 {
        self.bytes[purpose as usize]
    }

    /// Returns the messages sent for `purpose`.
    pub fn messages(&self, purpose: Purpose) -> u64 {
        self.messages[purpose as usize]
    }

    /// Returns the messages sent for all purposes except control.
    pub fn payload_messages(&self) -> u64 {
        self.messages.iter().sum::<u64>() - self.messages(Purpose::Control)
    }

    /// Returns the increase since `earlier` counters of the same rank.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let less = |now: [u64; PURPOSES], then: [u64; PURPOSES]| std::array::from_fn(|i| now[i] - then[i]);
        Counters { bytes: less(self.bytes, earlier.bytes), messages: less(self.messages, earlier.messages) }
    }
}

/// Counters that several threads increment.
#[derive(Default)]
pub(crate) struct AtomicCounters {
    bytes: [AtomicU64; PURPOSES],
    messages: [AtomicU64; PURPOSES],
}

impl AtomicCounters {
    /// Counts a message.
    pub(crate) fn add(&self, purpose: Purpose, bytes: usize) {
        self.bytes[purpose as usize].fetch_add(bytes as u64, Ordering::Relaxed);
        self.messages[purpose as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub(crate) fn now(&self) -> Counters {
        let read = |all: &[AtomicU64; PURPOSES]| std::array::from_fn(|i| all[i].load(Ordering::Relaxed));
        Counters { bytes: read(&self.bytes), messages: read(&self.messages) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_counted_but_not_as_payload() {
        let counters = AtomicCounters::default();
        counters.add(Purpose::Control, 7);
        let before = counters.now();
        counters.add(Purpose::Features, 100);
        counters.add(Purpose::Features, 0);
        let now = counters.now();
        assert_eq!((now.bytes(Purpose::Control), now.messages(Purpose::Control)), (7, 1));
        assert_eq!((now.bytes(Purpose::Features), now.payload_messages()), (100, 2));
        assert_eq!(now.since(&before).bytes(Purpose::Control), 0);
        assert_eq!(now.since(&before).messages(Purpose::Features), 2);
        for purpose in Purpose::ALL {
            let before = counters.now();
            counters.add(purpose, 1);
            let counted = counters.now().since(&before).payload_messages();
            assert_eq!(counted == 1, purpose != Purpose::Control, "{}", purpose.name());
        }
    }
}
