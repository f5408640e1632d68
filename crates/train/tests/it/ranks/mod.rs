//! Training on several ranks.

mod bits;
mod divergence;
mod layers;
mod partition;
mod pipelined;
mod sampled;
mod sampled_faults;
mod scores;
pub mod support;
mod weights;
