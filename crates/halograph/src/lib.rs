//! halograph: graph neural networks on graphs that outgrow one process, on ordinary CPUs.
//!
//! This crate is the facade: the libraries under one name, and what stands between them and the command line.

pub mod memory;

pub use halograph_graph as graph;
