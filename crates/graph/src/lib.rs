//! Graphs and datasets: what they look like on disk and in memory, how they are imported, made and checked.
//!
//! - [`dataset`]: the memory-mapped directory everything else works on;
//! - [`import`]: readers for the formats people have;
//! - [`generate`]: seeded graphs of any size;
//! - [`build`]: from edges to clean compressed rows ([`Csr`]);
//! - [`order`]: which vertex stands in which row;
//! - [`partition`]: which rank owns which vertex, and what it needs.
//!
//! Nothing here prints or exits: long work reports to a [`Progress`] observer, failures are [`Error`]s.

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
mod staging;
pub mod subgraph;

pub use csr::{Csr, CsrView};
pub use dataset::Dataset;
pub use error::{Error, Result};
pub use progress::{Progress, Silent};
