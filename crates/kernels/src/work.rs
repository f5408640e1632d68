//! What kernels do, counted by themselves: operations, bytes, and the time they took.
//!
//! [`record`] listens to the calling thread. Every public kernel says at its entry what it is about to do
//! ([`begin`]); of kernels that call others the outermost counts. When nobody listens that is one look at a
//! thread-local.
//!
//! Bytes are those that must move: a stream reads and writes each of its arrays once, a gather reads a row for every
//! entry of its pattern, whatever caches make of it.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::sparse::Pattern;

/// What limits a piece of work, with the sizes that decide how fast it can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An `m x k` matrix times a `k x n` one.
    Product {
        /// Rows of the product.
        m: usize,
        /// Inner dimension.
        k: usize,
        /// Columns of the product.
        n: usize,
    },
    /// A sum over `rows` of outer products, `m x n`.
    Outer {
        /// Number of outer products.
        rows: usize,
        /// Rows of the sum.
        m: usize,
        /// Columns of the sum.
        n: usize,
    },
    /// Rows read in the order of a sparse pattern.
    Gather {
        /// Rows of the pattern: results.
        rows: usize,
        /// Rows read.
        entries: usize,
        /// Bytes of each.
        row_bytes: usize,
        /// Bytes of the matrix they are rows of: does it fit a cache?
        set_bytes: usize,
    },
    /// Arrays read and written from front to back.
    Stream {
        /// Bytes read.
        read: usize,
        /// Bytes written.
        written: usize,
    },
}

/// A piece of work before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// What limits it.
    pub kind: Kind,
    /// Floating-point operations; of gathers and streams, which they do not limit, 0.
    pub flops: u64,
    /// Bytes moved.
    pub bytes: u64,
}

impl Cost {
    /// Of a product of an `m x k` and a `k x n` matrix of numbers of `size` bytes.
    pub fn product([m, k, n]: [usize; 3], size: usize) -> Self {
        let bytes = (m * k + k * n + m * n) * size;
        Cost { kind: Kind::Product { m, k, n }, flops: 2 * (m * k * n) as u64, bytes: bytes as u64 }
    }

    /// Of a sum over `rows` of `m x n` outer products.
    pub fn outer(rows: usize, [m, n]: [usize; 2], size: usize) -> Self {
        let bytes = (rows * (m + n) + 2 * m * n) * size;
        Cost { kind: Kind::Outer { rows, m, n }, flops: 2 * (rows * m * n) as u64, bytes: bytes as u64 }
    }

    /// Of reading a row of `row_bytes`, out of `set_bytes`, for every entry of `pattern`; `beside`: bytes of everything
    /// else that is read or written, but the pattern.
    pub fn gather(pattern: Pattern, row_bytes: usize, set_bytes: usize, beside: usize) -> Self {
        let (rows, entries) = (pattern.rows(), pattern.entries());
        let index = entries * size_of::<u32>() + rows * size_of::<u64>();
        let bytes = entries * row_bytes + index + beside;
        let kind = Kind::Gather { rows, entries, row_bytes, set_bytes };
        Cost { kind, flops: 0, bytes: bytes as u64 }
    }

    /// Of reading and writing so many bytes in their order.
    pub fn stream(read: usize, written: usize) -> Self {
        Cost { kind: Kind::Stream { read, written }, flops: 0, bytes: (read + written) as u64 }
    }
}

/// A piece of work that was done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// The kernel that did it.
    pub kernel: &'static str,
    /// What it was.
    pub cost: Cost,
    /// How long it took.
    pub seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody listens.
    Off,
    /// The next kernel is recorded.
    Listening,
    /// A kernel is at work: those that it calls are part of it.
    Busy,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
    static DONE: RefCell<Vec<Work>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, and lists what the kernels that it calls on this thread did, in their order.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Work>) {
    /// Puts things back, whatever happens.
    struct Outer(State, Vec<Work>);
    impl Drop for Outer {
        fn drop(&mut self) {
            STATE.set(self.0);
            DONE.set(std::mem::take(&mut self.1));
        }
    }
    let _outer = Outer(STATE.replace(State::Listening), DONE.take());
    let result = work();
    (result, DONE.take())
}

/// Work that goes on until this is dropped.
#[must_use = "the work ends when this is dropped"]
pub struct Running(Option<(&'static str, Cost, Instant)>);

/// Says that `kernel` begins; what it costs is asked only if somebody listens.
#[inline]
pub fn begin(kernel: &'static str, cost: impl FnOnce() -> Cost) -> Running {
    if STATE.get() != State::Listening {
        return Running(None);
    }
    STATE.set(State::Busy);
    let cost = cost();
    Running(Some((kernel, cost, Instant::now())))
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((kernel, cost, start)) = self.0.take() {
            let seconds = start.elapsed().as_secs_f64();
            DONE.with_borrow_mut(|done| done.push(Work { kernel, cost, seconds }));
            STATE.set(State::Listening);
        }
    }
}

#[cfg(test)]
mod tests;
