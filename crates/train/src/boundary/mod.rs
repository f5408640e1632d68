//! Rows at the boundary between ranks: which rows are exchanged, how they are sent, and which version of them is read.
//!
//! - [`Exchange`]: the rows that ranks read from each other in one block. Starting a transfer and reading its rows are two
//!   calls, so that a strategy decides what is computed in between.
//! - [`HaloSource`]: which version of halo rows and returned gradients a stage reads: the one just started
//!   ([`Fresh`]), or an earlier one kept in a [`VersionQueue`].
//! - [`RankLink`] and [`Peers`]: the connection to the other ranks, as the stage runner sees it.

mod encoding;
mod exchange;
mod halo;
mod link;
mod transfer;
mod versions;

pub use exchange::Exchange;
pub use halo::{Fresh, HaloSource};
pub use link::{GradientSums, LossSum, Peers, RankLink};
pub use transfer::{FeatureTransfer, GradientTransfer, ReturnedGradients};
pub use versions::{Deviation, Ema, RemoteRows, Transfer, VersionQueue};
