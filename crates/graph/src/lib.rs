//! Graphs and datasets: on disk and in memory, imported, generated and checked.
//!
//! - [`dataset`]: a memory-mapped directory, or arrays in memory;
//! - [`import`]: readers of other formats;
//! - [`generate`]: random graphs of any size from a seed;
//! - [`build`]: from edges to sorted compressed rows ([`Csr`]);
//! - [`order`]: node orders;
//! - [`partition`]: ownership of vertices, halos and shards;
//! - [`sample`]: sampled mini-batches.
//!
//! Nothing here prints or exits: long operations report to a [`Progress`] observer, failures are [`Error`]s.

pub mod block;
pub mod build;
pub mod csr;
pub mod dataset;
pub mod error;
pub mod generate;
pub mod import;
pub mod io;
pub mod order;
pub mod partition;
pub mod progress;
pub mod sample;
mod staging;
pub mod subgraph;

pub use csr::{Csr, CsrView};
pub use dataset::Dataset;
pub use error::{Error, Result};
pub use progress::{Progress, Silent};
