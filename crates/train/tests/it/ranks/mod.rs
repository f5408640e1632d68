//! Training on several ranks.

mod bits;
mod divergence;
mod minibatch;
mod partition;
mod pipelined;
pub mod support;
