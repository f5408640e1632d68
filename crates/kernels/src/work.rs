//! FLOPs, bytes and time of kernel calls, for rooflines.
//!
//! [`record`] records the kernels called on the current thread. Every public kernel reports its cost at its entry
//! ([`begin`]); if kernels call each other, only the outermost is recorded. Outside of [`record`], `begin` reads one
//! thread-local and does nothing else.
//!
//! Bytes are algorithmic memory traffic without caches: a stream reads and writes each of its arrays once; a gather
//! reads one row per entry of its pattern.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use crate::sparse::Pattern;

/// Access pattern of a kernel call, with the sizes that determine its attainable rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// GEMM: the product of an `m x k` and a `k x n` matrix.
    Product {
        /// Rows of the product.
        m: usize,
        /// Inner dimension.
        k: usize,
        /// Columns of the product.
        n: usize,
    },
    /// GEMM of a weight gradient: a sum of `rows` outer products of size `m x n`.
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
        /// Rows of the pattern, i.e. of the result.
        rows: usize,
        /// Entries of the pattern, i.e. rows that are read.
        entries: usize,
        /// Bytes of a row that is read.
        row_bytes: usize,
        /// Working set: bytes of the matrix whose rows are read.
        set_bytes: usize,
    },
    /// Arrays read and written sequentially.
    Stream {
        /// Bytes read.
        read: usize,
        /// Bytes written.
        written: usize,
    },
}

/// Cost of a kernel call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Access pattern and sizes.
    pub kind: Kind,
    /// Floating-point operations; 0 for gathers and streams, which are bandwidth-bound.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Cost {
    /// Returns the cost of a product of an `m x k` and a `k x n` matrix of numbers of `size` bytes.
    pub fn product([m, k, n]: [usize; 3], size: usize) -> Self {
        let bytes = (m * k + k * n + m * n) * size;
        Cost { kind: Kind::Product { m, k, n }, flops: 2 * (m * k * n) as u64, bytes: bytes as u64 }
    }

    /// Returns the cost of a sum of `rows` outer products of size `m x n`, of numbers of `size` bytes.
    pub fn outer(rows: usize, [m, n]: [usize; 2], size: usize) -> Self {
        let bytes = (rows * (m + n) + 2 * m * n) * size;
        Cost { kind: Kind::Outer { rows, m, n }, flops: 2 * (rows * m * n) as u64, bytes: bytes as u64 }
    }

    /// Returns the cost of reading a row of `row_bytes`, from a matrix of `set_bytes`, for every entry of `pattern`.
    /// `other_bytes`: all other reads and writes, except of the pattern.
    pub fn gather(pattern: Pattern, row_bytes: usize, set_bytes: usize, other_bytes: usize) -> Self {
        let (rows, entries) = (pattern.rows(), pattern.entries());
        let index = entries * size_of::<u32>() + rows * size_of::<u64>();
        let bytes = entries * row_bytes + index + other_bytes;
        let kind = Kind::Gather { rows, entries, row_bytes, set_bytes };
        Cost { kind, flops: 0, bytes: bytes as u64 }
    }

    /// Returns the cost of reading and writing these numbers of bytes sequentially.
    pub fn stream(read: usize, written: usize) -> Self {
        Cost { kind: Kind::Stream { read, written }, flops: 0, bytes: (read + written) as u64 }
    }
}

/// A recorded kernel call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Its cost.
    pub cost: Cost,
    /// Its run time.
    pub seconds: f64,
}

/// State of the recording on a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not recording.
    Off,
    /// The next kernel call is recorded.
    Recording,
    /// A recorded kernel is running: kernels that it calls are not recorded.
    InKernel,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Off) };
    static DONE: RefCell<Vec<Work>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` and returns its result and the kernel calls on this thread, in order. May be nested: calls within an
/// inner recording belong to that one only.
pub fn record<R>(work: impl FnOnce() -> R) -> (R, Vec<Work>) {
    /// Restores the outer recording, also after a panic.
    struct Outer(State, Vec<Work>);
    impl Drop for Outer {
        fn drop(&mut self) {
            STATE.set(self.0);
            DONE.set(std::mem::take(&mut self.1));
        }
    }
    let _outer = Outer(STATE.replace(State::Recording), DONE.take());
    let result = work();
    (result, DONE.take())
}

/// Guard of a kernel call, which ends when the guard is dropped.
#[must_use = "the kernel call ends when this is dropped"]
pub struct Running(Option<(&'static str, Cost, Instant)>);

/// Starts the record of a call of `kernel`. Evaluates `cost` only while recording.
#[inline]
pub fn begin(kernel: &'static str, cost: impl FnOnce() -> Cost) -> Running {
    if STATE.get() != State::Recording {
        return Running(None);
    }
    STATE.set(State::InKernel);
    let cost = cost();
    Running(Some((kernel, cost, Instant::now())))
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((kernel, cost, start)) = self.0.take() {
            let seconds = start.elapsed().as_secs_f64();
            DONE.with_borrow_mut(|done| done.push(Work { kernel, cost, seconds }));
            STATE.set(State::Recording);
        }
    }
}

#[cfg(test)]
mod tests;
