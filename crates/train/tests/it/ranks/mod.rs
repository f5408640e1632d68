//! Training on several ranks.

mod bits;
mod divergence;
mod partition;
mod pipelined;
pub mod support;
