//! What a rank did when, for those who want to see it.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::position::Position;

/// What a span of time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Track {
    /// Work of this rank's own.
    Compute,
    /// A message on its way out, from being handed over until it has left.
    Send,
    /// A message that is asked for, until it has arrived.
    Receive,
    /// A thread that could not go on.
    Wait,
}

/// Something that took time. Times are nanoseconds since rank 0 began, by its clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it was spent on.
    pub track: Track,
    /// What it was.
    pub name: String,
    /// Where the rank was, or what the message belongs to.
    pub position: Position,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

/// Records spans, once it is switched on.
pub(crate) struct Recorder {
    on: AtomicBool,
    began: Instant,
    /// Nanoseconds by which rank 0's clock is ahead of this one.
    behind: AtomicI64,
    spans: Mutex<Vec<Span>>,
}

impl Recorder {
    pub fn new(began: Instant) -> Self {
        Recorder { on: false.into(), began, behind: 0.into(), spans: Mutex::default() }
    }

    pub fn switch_on(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The time now, if it is of interest.
    pub fn now(&self) -> Option<Instant> {
        self.is_on().then(Instant::now)
    }

    /// Nanoseconds of this rank's own clock.
    pub fn clock(&self, at: Instant) -> i64 {
        at.saturating_duration_since(self.began).as_nanos() as i64
    }

    /// Learns that rank 0's clock is ahead by so many nanoseconds.
    pub fn set_behind(&self, nanoseconds: i64) {
        self.behind.store(nanoseconds, Ordering::Relaxed);
    }

    /// Records what began at `start`; nothing if that was of no interest to anybody.
    pub fn add(
        &self,
        track: Track,
        position: Position,
        start: Option<Instant>,
        end: Instant,
        name: impl FnOnce() -> String,
    ) {
        let Some(start) = start else { return };
        // What arrived before it was asked for took no time.
        let start = self.clock(start.min(end)) as u64;
        let span = Span { track, name: name(), position, start, end: self.clock(end) as u64 };
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    /// All that was recorded, by rank 0's clock.
    pub fn take(&self) -> Vec<Span> {
        let behind = self.behind.load(Ordering::Relaxed);
        let mut spans = std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner));
        for span in &mut spans {
            span.start = span.start.saturating_add_signed(behind);
            span.end = span.end.saturating_add_signed(behind);
        }
        spans
    }
}

/// Records from when it was made until it is dropped.
pub struct SpanGuard<'a> {
    pub(crate) recorder: &'a Recorder,
    pub(crate) name: &'static str,
    pub(crate) start: Option<(Instant, Position)>,
}

impl Drop for SpanGuard<'_> {
    fn drop(&mut self) {
        if let Some((start, position)) = self.start {
            self.recorder
                .add(Track::Compute, position, Some(start), Instant::now(), || self.name.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn spans_are_recorded_by_rank_0s_clock_once_switched_on() {
        let began = Instant::now();
        let recorder = Recorder::new(began);
        assert!(recorder.now().is_none());
        let position = Position::new("forward").epoch(3).layer(1);
        recorder.add(Track::Send, position, recorder.now(), began, || unreachable!("nobody asked"));
        recorder.switch_on();
        assert!(recorder.now().is_some());
        let at = |ns| began + Duration::from_nanos(ns);
        recorder.add(Track::Send, position, Some(at(10)), at(30), || "a".into());
        recorder.add(Track::Receive, position, Some(at(90)), at(50), || "b".into());
        recorder.set_behind(-20);
        let times: Vec<_> = recorder.take().into_iter().map(|s| (s.name, s.start, s.end)).collect();
        assert_eq!(times, [("a".to_string(), 0, 10), ("b".to_string(), 30, 30)]);
        assert!(recorder.take().is_empty());
    }
}
