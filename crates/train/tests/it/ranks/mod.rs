//! Training on several ranks.

mod bits;
mod divergence;
mod minibatch;
mod minibatch_faults;
mod partition;
mod pipelined;
pub mod support;
