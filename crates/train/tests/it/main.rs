//! Training as its users see it. One program, for it takes longer to link than to run.

mod gradients;
mod large;
mod parity;
mod ranks;
mod run;
mod train;
