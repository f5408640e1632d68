//! Work without the GIL, in a thread of its own, while the calling thread listens to signals.

use std::any::Any;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use halograph_graph::Progress;
use pyo3::prelude::*;

use crate::error::Failure;

/// Time between two looks for signals.
const POLL: Duration = Duration::from_millis(50);
/// As large as that of a main thread.
const STACK: usize = 8 << 20;

/// Whether work should stop.
#[derive(Default)]
pub struct StopFlag(AtomicBool);

impl StopFlag {
    /// Requests to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether it was requested.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Progress for &StopFlag {
    fn cancelled(&self) -> bool {
        self.get()
    }
}

/// The end of work, and the exception that a handler of a signal raised meanwhile.
pub struct Done<T> {
    pub result: Result<T, Failure>,
    pub signal: Option<PyErr>,
}

impl<T> Done<T> {
    /// Returns the result of work that a signal ends without one.
    pub fn or_signal(self) -> PyResult<T> {
        match (self.result, self.signal) {
            (_, Some(signal)) => Err(signal),
            (result, None) => Ok(result?),
        }
    }
}

/// Runs `work` in a thread and a thread pool of its own, without the GIL: a pool of the process would not survive a fork.
/// Python's handlers of signals run meanwhile, if this is Python's main thread; if
/// one raises, `work` is requested to stop.
pub fn run<T: Send>(py: Python<'_>, work: impl FnOnce(&StopFlag) -> Result<T, Failure> + Send) -> Done<T> {
    let stop = StopFlag::default();
    let mut signal = None;
    let result = std::thread::scope(|scope| {
        let (ended, mut ends) = channel();
        let flag = &stop;
        let caught = move || {
            let result = catch_unwind(AssertUnwindSafe(|| in_pool(|| work(flag))));
            // The receiver waits until then.
            let _ = ended.send(result.unwrap_or_else(|panic| Err(Failure::Panic(message(&*panic)))));
        };
        let started = std::thread::Builder::new()
            .name("halograph".into())
            .stack_size(STACK)
            .spawn_scoped(scope, caught);
        if let Err(error) = started {
            return Err(Failure::Job(halograph::Error::Threads { threads: 1, cause: error.to_string() }));
        }
        loop {
            let ends = &mut ends;
            match py.detach(move || ends.recv_timeout(POLL)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Panic("a thread ended early".into()));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = py.check_signals() {
                        stop.set();
                        signal.get_or_insert(error);
                    }
                }
            }
        }
    });
    Done { result, signal }
}

/// Runs `work` in a pool of as many threads as this process may use.
fn in_pool<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK).build();
    let pool = pool.map_err(|error| halograph::Error::Threads { threads, cause: error.to_string() })?;
    pool.install(work)
}

/// Returns the text of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".into())
}
