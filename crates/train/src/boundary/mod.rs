//! What travels between ranks in a layer: messages of boundary rows forward, their gradients back; and which version of
//! them is read.
//!
//! An [`Exchange`] is what each rank reads of the others in one block. Both directions are started by one call and taken
//! by another, so that a strategy decides what is computed in between. What is started goes into a [`Line`], which gives
//! the version that is to be read: the one just started, or one of an epoch before, or an average.

mod exchange;
mod line;

pub use exchange::{Arriving, Exchange, Returned, Returning};
pub use line::{Cargo, Deviation, Journey, Line, Smoothing};
