//! One mini-batch split over all ranks (GSplit): the row of a vertex in a layer is sampled and computed by exactly one rank, the
//! owner of the vertex. Hidden rows of neighbours are exchanged between layers, as in `partition`.
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
//! No row is computed twice, so a batch norm counts each once: training follows `minibatch` on one rank, up to rounding.
//! Input rows are fetched, each at most once per macrobatch, instead of exchanged in every step. A first stage that multiplies
//! them by weights before it aggregates them does so for fetched rows, too. Nothing is fetched if the first stage reads no
//! edges: the deepest hop is then exchanged. Nor if its aggregate is cached: that hop is then not even sampled.

mod relay;

pub use self::relay::SplitRelay;
