//! Typed messages between ranks, and nothing about what they are for.
//!
//! A [`Comm`] is what a rank holds. Messages are tagged and never wait to be sent; collectives are written once over
//! them, in a fixed order of ranks, so that every transport gives the same bits and every byte is counted. Ranks are
//! threads of one process ([`threads`]) or processes that a launcher started (`mpi`, with the feature of that name).
//!
//! Each rank has a *progress thread*. It moves messages, adds up what is being reduced, tells the others once a second
//! that this rank lives and where it is, and notices who has fallen silent: no wait is without an end.
//!
//! ```
//! use halograph_comm::{Error, Options, Purpose, Tag, threads};
//!
//! let sums = threads::run(3, &Options::default(), |comm| {
//!     let mut mine = [comm.rank() as f32, 1.0];
//!     comm.all_reduce(Tag::new(Purpose::Weights), &mut mine)?;
//!     Ok::<_, Error>(mine)
//! });
//! assert!(sums.into_iter().all(|sum| sum.unwrap() == [3.0, 3.0]));
//! ```

mod bell;
mod collective;
mod comm;
mod counters;
mod error;
mod group;
mod handshake;
mod inbox;
mod launch;
mod message;
#[cfg(feature = "mpi")]
pub mod mpi;
mod notice;
mod options;
mod position;
mod progress;
mod reduce;
mod shared;
mod tag;
pub mod threads;
mod trace;
mod transport;

pub use comm::{Comm, Receiving};
pub use counters::Counters;
pub use error::{Error, Result};
pub use handshake::handshake;
pub use launch::launched;
pub use message::Message;
pub use options::Options;
pub use position::Position;
pub use reduce::Reducing;
pub use tag::{Purpose, Tag};
pub use trace::{Span, SpanGuard, Track};
pub use transport::Priority;
