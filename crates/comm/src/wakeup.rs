//! Wakes the progress thread.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Wakes one sleeping thread. A notification while no thread sleeps ends the next sleep at once.
#[derive(Default)]
pub(crate) struct Wakeup {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    /// Ends the current or next sleep. Does not block.
    pub(crate) fn notify(&self) {
        *self.notified.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Blocks until the next notification, at most for `timeout`.
    pub(crate) fn sleep(&self, timeout: Duration) {
        let notified = self.notified.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.changed.wait_timeout_while(notified, timeout, |notified| !*notified);
        *slept.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_ends_the_next_sleep() {
        let wakeup = Wakeup::default();
        wakeup.notify();
        // The test would time out if the notification were lost.
        wakeup.sleep(Duration::from_secs(3600));
        wakeup.sleep(Duration::ZERO);
    }
}
