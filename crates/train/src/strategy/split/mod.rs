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
//! Input rows are fetched if the first stage aggregates them unchanged: each at most once per macrobatch. Otherwise the first
//! stage exchanges rows like all others: products with its weights, which only the owner computes; or, with a cached input
//! aggregate, nothing, and the deepest hop is not sampled.

mod relay;

pub use self::relay::SplitRelay;
