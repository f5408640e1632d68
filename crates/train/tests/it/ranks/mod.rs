//! Training on several ranks.

mod bits;
mod divergence;
mod partition;
mod pipelined;
mod sampled;
mod sampled_faults;
pub mod support;
