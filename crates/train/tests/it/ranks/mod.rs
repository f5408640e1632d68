//! Training on several ranks.

mod partition;
mod pipelined;
mod support;
