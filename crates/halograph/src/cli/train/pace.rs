//! When lines inside an epoch are printed, and the estimated time to the end of a run. Knows no clock: callers pass times.

use std::time::Duration;

/// Least time between two lines inside an epoch.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Progress of a run in optimiser steps. Times are measured from its start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    /// Steps of an epoch.
    steps: u64,
    /// Steps of all epochs.
    all: u64,
    /// Steps that earlier processes completed.
    before: u64,
    /// Completed steps.
    done: u64,
    /// When a line was printed last, or an epoch ended.
    last: Duration,
}

impl Pace {
    /// Starts at `step` completed steps of epoch `from`, of `epochs` epochs of `steps` steps.
    pub fn new(from: u64, step: u64, epochs: u64, steps: u64) -> Self {
        let before = from.saturating_sub(1) * steps + step;
        Pace { steps, all: epochs * steps, before, done: before, last: Duration::ZERO }
    }

    /// Returns whether an epoch has several steps.
    pub fn has_steps(&self) -> bool {
        self.steps > 1
    }

    /// Returns the completed steps of all epochs.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Returns the steps of all epochs.
    pub fn all(&self) -> u64 {
        self.all
    }

    /// Counts the completed steps of an epoch.
    pub fn set(&mut self, epoch: u64, step: u64) {
        self.done = epoch.saturating_sub(1) * self.steps + step;
    }

    /// Counts a completed epoch: the next line inside an epoch comes some time after it.
    pub fn end_epoch(&mut self, epoch: u64, now: Duration) {
        self.set(epoch, self.steps);
        self.last = now;
    }

    /// Returns whether a line inside an epoch is due, and counts it as printed. The end of an epoch has a line of its own.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = !self.done.is_multiple_of(self.steps) && now.saturating_sub(self.last) >= BETWEEN_LINES;
        if is_due {
            self.last = now;
        }
        is_due
    }

    /// Returns the estimated seconds to the end of the run; `None` before the first step.
    pub fn eta(&self, now: Duration) -> Option<f64> {
        let done = self.done.checked_sub(self.before).filter(|&done| done > 0)?;
        Some(now.as_secs_f64() / done as f64 * self.all.saturating_sub(self.done) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn long_epochs_have_a_line_every_ten_seconds() {
        let mut pace = Pace::new(1, 0, 2, 100);
        let mut printed = Vec::new();
        for step in 1..=100 {
            pace.set(1, step);
            // A step takes 3 seconds.
            if pace.is_due(at(3 * step)) {
                printed.push(3 * step);
            }
        }
        assert_eq!(printed[..3], [12, 24, 36]);
        assert_eq!(printed.len(), 24, "none at the last step");
        pace.end_epoch(1, at(305));
        pace.set(2, 1);
        assert!(!pace.is_due(at(308)) && pace.is_due(at(315)));
    }

    #[test]
    fn short_epochs_have_none() {
        let mut pace = Pace::new(1, 0, 50, 9);
        for epoch in 1..=50 {
            for step in 1..=9 {
                pace.set(epoch, step);
                assert!(!pace.is_due(at(9 * (epoch - 1) + step)));
            }
            pace.end_epoch(epoch, at(9 * epoch));
        }
    }

    #[test]
    fn the_estimate_moves_within_an_epoch() {
        let mut pace = Pace::new(1, 0, 2, 10);
        assert_eq!(pace.eta(at(0)), None);
        pace.set(1, 5);
        assert_eq!(pace.eta(at(10)), Some(30.0));
        pace.set(1, 6);
        assert_eq!(pace.eta(at(12)), Some(28.0));
        pace.end_epoch(2, at(40));
        assert_eq!(pace.eta(at(40)), Some(0.0));
    }

    #[test]
    fn steps_of_an_earlier_process_took_no_time_of_this_one() {
        let mut pace = Pace::new(2, 5, 2, 10);
        assert_eq!((pace.done(), pace.all(), pace.eta(at(1))), (15, 20, None));
        pace.set(2, 6);
        assert_eq!(pace.eta(at(2)), Some(8.0));
    }
}
