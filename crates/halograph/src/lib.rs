//! halograph: graph neural networks on graphs that outgrow one process, on ordinary CPUs.
//!
//! This crate is the facade: [`job`] trains and applies models, [`config`] resolves settings, [`note`] has the remarks of
//! both, [`rows`] writes predictions, [`runs`] lists runs, [`sweep`] combines settings, and the other crates are re-exported
//! under one name. [`cli`] is the command line of the binary and of the Python package.

// Commands name this crate as other programs do.
extern crate self as halograph;

pub mod cli;
pub mod config;
pub mod job;
pub mod note;
pub mod rows;
pub mod runs;
pub mod sweep;
pub mod tensorboard;
pub mod words;

pub use halograph_comm as comm;
pub use halograph_graph as graph;
pub use halograph_nn as nn;
pub use halograph_train as train;

pub use halograph_train::{Error, Result};
pub use job::{Job, JobOptions};

/// Counts allocations, so that tests can refuse a run by its predicted memory.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: train::memory::Counting = train::memory::Counting;
