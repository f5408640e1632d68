//! Strategies: the order of work of an epoch, a file each. What is computed is the layers' business.

pub(crate) mod engine;
pub mod partition;
pub mod pipelined;
pub mod single;
