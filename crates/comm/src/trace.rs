//! Records what a rank did when.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::position::Position;

/// What a rank did during a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Track {
    /// Computation.
    Compute,
    /// A message being sent, from the call until the transport has sent it.
    Send,
    /// A message being received, from the call until it has arrived.
    Receive,
    /// A blocked thread.
    Wait,
    /// A mini-batch being sampled in the background, by this thread of the rank.
    Sample(u16),
}

/// A traced span of time. Times are nanoseconds since the start of rank 0, by its clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What the rank did.
    pub track: Track,
    /// Name of the span.
    pub name: String,
    /// Position of the rank, or of the message.
    pub position: Position,
    /// Start.
    pub start: u64,
    /// End.
    pub end: u64,
}

/// Records spans once enabled. Threads may share it.
pub struct Recorder {
    enabled: AtomicBool,
    began: Instant,
    /// Nanoseconds by which rank 0's clock is ahead of this one.
    clock_offset: AtomicI64,
    spans: Mutex<Vec<Span>>,
}

impl Recorder {
    /// Creates a recorder that is not enabled; times count from `began`.
    pub fn new(began: Instant) -> Self {
        Recorder { enabled: false.into(), began, clock_offset: 0.into(), spans: Mutex::default() }
    }

    /// Enables recording.
    pub fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Returns whether recording is enabled.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Returns the current time if enabled.
    pub fn now(&self) -> Option<Instant> {
        self.is_enabled().then(Instant::now)
    }

    /// Returns a time as nanoseconds of this rank's own clock.
    pub(crate) fn clock(&self, at: Instant) -> i64 {
        at.saturating_duration_since(self.began).as_nanos() as i64
    }

    /// Sets the nanoseconds by which rank 0's clock is ahead of this one.
    pub(crate) fn set_clock_offset(&self, nanoseconds: i64) {
        self.clock_offset.store(nanoseconds, Ordering::Relaxed);
    }

    /// Records a span; nothing if `start` is `None`, i.e. if tracing was not enabled at its start.
    pub fn add(
        &self,
        track: Track,
        position: Position,
        start: Option<Instant>,
        end: Instant,
        name: impl FnOnce() -> String,
    ) {
        let Some(start) = start else { return };
        // A message may arrive before it is asked for: then receiving it took no time.
        let start = self.clock(start.min(end)) as u64;
        let span = Span { track, name: name(), position, start, end: self.clock(end) as u64 };
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }

    /// Records a span of computation from now until the guard is dropped; nothing unless enabled.
    pub fn span(&self, name: &'static str, position: Position) -> SpanGuard<'_> {
        self.span_on(Track::Compute, name, position)
    }

    /// Records a span on any track from now until the guard is dropped; nothing unless enabled.
    pub fn span_on(&self, track: Track, name: &'static str, position: Position) -> SpanGuard<'_> {
        SpanGuard { recorder: self, track, name, start: self.now().map(|now| (now, position)) }
    }

    /// Removes and returns all spans, by rank 0's clock.
    pub fn take(&self) -> Vec<Span> {
        let offset = self.clock_offset.load(Ordering::Relaxed);
        let mut spans = std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner));
        for span in &mut spans {
            span.start = span.start.saturating_add_signed(offset);
            span.end = span.end.saturating_add_signed(offset);
        }
        spans
    }
}

/// Records a span from its creation until it is dropped.
pub struct SpanGuard<'a> {
    recorder: &'a Recorder,
    track: Track,
    name: &'static str,
    start: Option<(Instant, Position)>,
}

impl<'a> SpanGuard<'a> {
    /// Creates the guard of a span of computation; it records nothing without a start.
    pub(crate) fn new(
        recorder: &'a Recorder,
        name: &'static str,
        start: Option<(Instant, Position)>,
    ) -> Self {
        SpanGuard { recorder, track: Track::Compute, name, start }
    }
}

impl Drop for SpanGuard<'_> {
    fn drop(&mut self) {
        if let Some((start, position)) = self.start {
            self.recorder.add(self.track, position, Some(start), Instant::now(), || self.name.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn spans_are_recorded_by_rank_0s_clock_once_enabled() {
        let began = Instant::now();
        let recorder = Recorder::new(began);
        assert!(recorder.now().is_none());
        let position = Position::new("forward").epoch(3).layer(1);
        recorder.add(Track::Send, position, recorder.now(), began, || unreachable!("not enabled"));
        recorder.enable();
        assert!(recorder.now().is_some());
        let at = |ns| began + Duration::from_nanos(ns);
        recorder.add(Track::Send, position, Some(at(10)), at(30), || "a".into());
        recorder.add(Track::Receive, position, Some(at(90)), at(50), || "b".into());
        recorder.set_clock_offset(-20);
        let times: Vec<_> = recorder.take().into_iter().map(|s| (s.name, s.start, s.end)).collect();
        assert_eq!(times, [("a".to_string(), 0, 10), ("b".to_string(), 30, 30)]);
        assert!(recorder.take().is_empty());
    }

    #[test]
    fn guards_record_on_their_track() {
        let recorder = Recorder::new(Instant::now());
        let position = Position::new("sampling").epoch(2).step(5);
        drop(recorder.span("before", position));
        recorder.enable();
        drop(recorder.span("forward", position));
        drop(recorder.span_on(Track::Sample(1), "batch", position));
        let spans: Vec<_> = recorder.take().into_iter().map(|s| (s.track, s.name, s.position)).collect();
        let expected = [
            (Track::Compute, "forward".to_string(), position),
            (Track::Sample(1), "batch".to_string(), position),
        ];
        assert_eq!(spans, expected);
    }
}
