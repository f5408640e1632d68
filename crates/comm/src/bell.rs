//! What the progress thread sleeps by.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes one sleeper. A ring while nobody sleeps is heard by the next sleep.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Sleeps until the next ring, but no longer than `most`.
    pub fn sleep(&self, most: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.changed.wait_timeout_while(rung, most, |rung| !*rung);
        *slept.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_heard_by_the_next_sleep() {
        let bell = Bell::default();
        bell.ring();
        // Would time the test out if it were not heard.
        bell.sleep(Duration::from_secs(3600));
        bell.sleep(Duration::ZERO);
    }
}
