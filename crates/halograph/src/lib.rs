//! halograph: graph neural networks on graphs that outgrow one process, on ordinary CPUs.
//!
//! This crate is the facade: the libraries under one name, and what stands between them and the command line.

pub mod config;
pub mod tensorboard;

pub use halograph_comm as comm;
pub use halograph_graph as graph;
pub use halograph_nn as nn;
pub use halograph_train as train;
