//! Training on several ranks.

mod bits;
mod divergence;
mod layers;
mod partition;
mod pipelined;
mod sampled;
mod sampled_faults;
pub mod support;
mod weights;
