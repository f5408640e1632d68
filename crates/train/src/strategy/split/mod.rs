//! One mini-batch split over all ranks (GSplit): every vertex of every layer of a batch is sampled, loaded and computed by
//! exactly one rank, its owner. Hidden rows of neighbours are exchanged between layers, as in `partition`.
//!
//! ```text
//! loader    for each macrobatch of W batches:
//!             each hop      draw neighbours of own rows; tell their owners which rows are read      one all-to-all
//!             deepest hop   fetch the distinct remote input rows that are not kept                  two all-to-alls
//! step      forward    for each stage: send rows that others read; aggregate own rows; add halo rows
//!           loss       of the seeds of all ranks
//!           backward   returns gradients of halo rows to their owners; gradients are summed over ranks
//! ```
//!
//! Nothing is computed twice, so a batch norm counts each row once: training follows `minibatch` on one rank, up to rounding.
//! Input rows are fetched, each at most once per macrobatch, instead of exchanged in every step. A first stage that multiplies
//! them by weights before it aggregates them does so for fetched rows, too: repeating that takes less time than sending the
//! products and returning their gradients. Nothing is fetched if the first stage reads no edges, or if its aggregate is cached:
//! then the deepest hop is not even sampled.

mod relay;

pub use self::relay::SplitRelay;
