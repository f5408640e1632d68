//! Traces of buffers: which are allocated and dropped, and in which order, to predict the memory of larger runs.
//!
//! Two short runs of the same program on different numbers of rows allocate the same buffers in the same order. The size
//! of each is linear in the number of rows, so [`Trace::extrapolate`] gives the trace of any number of rows. Replaying
//! it through the rules of the pool ([`Trace::peak_bytes`]) gives the peak memory without allocating it.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{LINE, MIN_HUGE, MIN_POOLED, best_fit, size_for};

/// Lines of a huge page (2 MiB).
const HUGE_PAGE: usize = (2 << 20) / LINE;

/// One event of a trace. Buffers are numbered in the order of their allocation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// A buffer of so many lines is allocated.
    Allocate(usize),
    /// This buffer is dropped.
    Drop(usize),
    /// The pool is released.
    Release,
    /// So many bytes of a file become resident, or, if negative, are released.
    Mapped(i64),
}

/// The buffers of one thread, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    events: Vec<Event>,
}

/// A trace that is being recorded.
#[derive(Default)]
struct Recorder {
    trace: Trace,
    /// Number and lines of each live buffer, by address.
    live: HashMap<usize, (usize, usize)>,
    count: usize,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Runs `work` and returns the trace of the buffers that this thread allocates meanwhile. They do not use the pool. Work
/// on other threads is not recorded: call it in a pool of one thread.
pub fn record<R>(work: impl FnOnce() -> R) -> (Trace, R) {
    RECORDER.set(Some(Recorder::default()));
    let result = work();
    (RECORDER.take().map(|recorder| recorder.trace).unwrap_or_default(), result)
}

fn with_recorder(work: impl FnOnce(&mut Recorder)) {
    // Fails only while the thread ends.
    let _ = RECORDER.try_with(|recorder| recorder.borrow_mut().as_mut().map(work));
}

/// Returns whether this thread records a trace.
pub(super) fn is_recording() -> bool {
    RECORDER.try_with(|recorder| recorder.borrow().is_some()).unwrap_or(false)
}

/// Returns the bytes of recorded buffers that are live now.
pub fn live_bytes() -> u64 {
    let mut lines = 0;
    with_recorder(|recorder| lines = recorder.live.values().map(|(_, lines)| lines).sum());
    (lines * LINE) as u64
}

/// Records that so many bytes of a file become resident, or, if negative, are released.
pub fn mapped(bytes: i64) {
    with_recorder(|recorder| recorder.trace.events.push(Event::Mapped(bytes)));
}

pub(super) fn allocated(address: usize, lines: usize) {
    with_recorder(|recorder| {
        recorder.live.insert(address, (recorder.count, lines));
        recorder.count += 1;
        recorder.trace.events.push(Event::Allocate(lines));
    });
}

pub(super) fn dropped(address: usize) {
    with_recorder(|recorder| {
        // A buffer from before the recording is not part of the trace.
        if let Some((number, _)) = recorder.live.remove(&address) {
            recorder.trace.events.push(Event::Drop(number));
        }
    });
}

pub(super) fn released() {
    with_recorder(|recorder| recorder.trace.events.push(Event::Release));
}

impl Trace {
    /// Returns the trace of `rows` rows, where `self` is that of `few` rows and `twice` that of twice as many. If they
    /// differ in more than sizes, the sizes of `twice` are scaled, which overestimates those that are constant.
    pub fn extrapolate(&self, twice: &Trace, few: u64, rows: u64) -> Trace {
        let beyond = (rows as f64 - few as f64) / few as f64;
        let linear = |one: f64, two: f64| (one + (two - one) * beyond).max(0.0);
        let is_same = self.events.len() == twice.events.len();
        let mut events = Vec::with_capacity(twice.events.len());
        for (i, &event) in twice.events.iter().enumerate() {
            let scaled = match (self.events.get(i).filter(|_| is_same), event) {
                (Some(&Event::Allocate(one)), Event::Allocate(two)) => {
                    Event::Allocate(linear(one as f64, two as f64).ceil() as usize)
                }
                (Some(&Event::Mapped(one)), Event::Mapped(two)) => {
                    let bytes = linear(one.unsigned_abs() as f64, two.unsigned_abs() as f64) as i64;
                    Event::Mapped(bytes * two.signum())
                }
                (Some(&one), two) if one == two => two,
                _ => return twice.scaled(rows as f64 / (2 * few) as f64),
            };
            events.push(scaled);
        }
        Trace { events }
    }

    fn scaled(&self, factor: f64) -> Trace {
        let scale = |event: &Event| match *event {
            Event::Allocate(lines) => Event::Allocate((lines as f64 * factor).ceil() as usize),
            Event::Mapped(bytes) => Event::Mapped((bytes as f64 * factor) as i64),
            other => other,
        };
        Trace { events: self.events.iter().map(scale).collect() }
    }

    /// Returns the peak memory in bytes if these buffers use the pool as [`Buffer`](super::Buffer)s do.
    pub fn peak_bytes(&self) -> u64 {
        let mut replay = Replay::default();
        self.events.iter().for_each(|&event| replay.step(event));
        replay.peak
    }
}

/// Memory of a buffer, in lines.
#[derive(Clone, Copy)]
struct Memory {
    size: usize,
    /// Lines that were used so far: the rest takes no memory.
    touched: usize,
}

/// Returns the lines of memory of this `size` that are resident if the first `count` are used: whole huge pages, if the
/// memory has requested them.
fn resident(count: usize, size: usize) -> usize {
    if size < MIN_HUGE { count } else { count.next_multiple_of(HUGE_PAGE).min(size) }
}

/// The state of a pool that allocates nothing.
#[derive(Default)]
struct Replay {
    /// Memory of each buffer.
    buffers: Vec<Memory>,
    free: Vec<Memory>,
    sizes: Vec<usize>,
    /// Touched lines of buffers and of free memory.
    held: usize,
    mapped: i64,
    peak: u64,
}

impl Replay {
    fn step(&mut self, event: Event) {
        match event {
            Event::Allocate(lines) => self.allocate(lines),
            Event::Drop(number) => {
                let memory = self.buffers[number];
                if memory.size >= MIN_POOLED {
                    self.free.push(memory);
                } else {
                    self.held -= memory.touched;
                }
            }
            Event::Release => {
                self.held -= self.free.drain(..).map(|memory| memory.touched).sum::<usize>();
                self.sizes.clear();
            }
            Event::Mapped(bytes) => self.mapped += bytes,
        }
        self.peak = self.peak.max((self.held * LINE) as u64 + self.mapped.max(0) as u64);
    }

    fn allocate(&mut self, count: usize) {
        let reused = match count < MIN_POOLED {
            true => None,
            false => best_fit(self.free.iter().map(|memory| memory.size), count),
        };
        let memory = match reused {
            Some(at) => self.free.swap_remove(at),
            None if count < MIN_POOLED => Memory { size: count, touched: 0 },
            None => Memory { size: size_for(&mut self.sizes, count), touched: 0 },
        };
        let touched = memory.touched.max(resident(count, memory.size));
        self.held += touched - memory.touched;
        self.buffers.push(Memory { touched, ..memory });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, rounded_up};
    use super::*;

    /// Three matrices of so many rows, of which two live at once, and a constant one.
    fn work(rows: usize) {
        let constant = Buffer::<f32>::zeros(100);
        let (a, b) = (Buffer::<f32>::zeros(rows * 16), Buffer::<f32>::zeros(rows * 64));
        drop(a);
        drop(Buffer::<f32>::zeros(rows * 16));
        mapped(rows as i64 * 4);
        mapped(-(rows as i64) * 4);
        drop((b, constant));
    }

    /// Returns the lines that are resident for a large buffer of `count` lines.
    fn held(count: usize) -> u64 {
        resident(count, rounded_up(count)) as u64
    }

    fn traces() -> [Trace; 2] {
        [64, 128].map(|rows| record(|| work(rows)).0)
    }

    #[test]
    fn an_extrapolated_trace_is_that_of_the_larger_run() {
        let [one, two] = traces();
        let (large, ()) = record(|| work(100_000));
        assert_eq!(one.extrapolate(&two, 64, 100_000), large);
        // The third matrix takes the memory of the first.
        let bytes = |numbers: usize| held((numbers * 4).div_ceil(LINE)) * LINE as u64;
        assert_eq!(large.peak_bytes(), 7 * LINE as u64 + bytes(1_600_000) + bytes(6_400_000) + 400_000);
    }

    #[test]
    fn runs_that_differ_are_overestimated() {
        let (one, ()) = record(|| drop(Buffer::<f32>::zeros(64)));
        let (two, ()) = record(|| drop((Buffer::<f32>::zeros(128), Buffer::<f32>::zeros(16))));
        let large = one.extrapolate(&two, 4, 4_000_000);
        assert_eq!(large.peak_bytes(), (held(4_000_000) + held(500_000)) * LINE as u64);
    }

    #[test]
    fn the_pool_keeps_memory_until_it_is_released() {
        let use_two = |between: &[Event]| {
            let first = [Event::Allocate(1_000_000), Event::Drop(0)];
            let events = [&first[..], between, &[Event::Allocate(600_000), Event::Drop(1)]].concat();
            Trace { events }.peak_bytes() / LINE as u64
        };
        assert_eq!(use_two(&[]), held(1_000_000) + held(600_000));
        assert_eq!(use_two(&[Event::Release]), held(1_000_000));
    }

    #[test]
    fn large_buffers_hold_whole_huge_pages() {
        assert_eq!(resident(1000, 1100), 1000);
        assert_eq!(resident(3 * HUGE_PAGE + 1, 5 * HUGE_PAGE), 4 * HUGE_PAGE);
        assert_eq!(resident(3 * HUGE_PAGE + 1, 3 * HUGE_PAGE + 9), 3 * HUGE_PAGE + 9);
    }

    #[test]
    fn live_buffers_are_counted() {
        let (_, live) = record(|| {
            let kept = Buffer::<f32>::zeros(1000);
            drop(Buffer::<f32>::zeros(1000));
            (live_bytes(), drop(kept), live_bytes())
        });
        assert_eq!(live, (4032, (), 0));
    }

    #[test]
    fn other_threads_are_not_recorded() {
        let (trace, ()) = record(|| {
            std::thread::scope(|scope| scope.spawn(|| drop(Buffer::<f32>::zeros(100))).join().unwrap());
        });
        assert_eq!(trace, Trace::default());
    }
}
