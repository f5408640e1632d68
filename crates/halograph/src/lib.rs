//! halograph: graph neural networks on graphs that outgrow one process, on ordinary CPUs.
//!
//! This crate is the facade: it re-exports the libraries under one name and holds the command line.

pub use halograph_graph as graph;
