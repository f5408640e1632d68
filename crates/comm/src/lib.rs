//! Typed point-to-point messages and collectives between ranks. Knows nothing about graphs or training.
//!
//! A [`Comm`] is a communicator, as in MPI. Messages have tags, and sending never blocks. Collectives are built on
//! messages and process ranks in a fixed order, so every transport gives the same bits and counts the same bytes. Ranks
//! are threads of one process ([`threads`]) or processes started by a launcher (`mpi`, with the feature of that name).
//!
//! Each rank has a *progress thread*. It moves messages, advances all-reduces, sends a heartbeat with the rank's
//! [`Position`] once a second, and detects lost ranks. Therefore every wait ends, with its result or with an error that
//! names the rank that failed.
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
mod wakeup;

pub use comm::{Comm, ReceiveRequest};
pub use counters::Counters;
pub use error::{Error, Result};
pub use handshake::handshake;
pub use launch::{launched, launched_rank, launched_ranks};
pub use message::Message;
pub use options::Options;
pub use position::Position;
pub use reduce::AllReduceRequest;
pub use tag::{Purpose, Tag};
pub use trace::{Recorder, Span, SpanGuard, Track};
pub use transport::{Priority, host};
