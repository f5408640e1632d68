//! Presampling: ordinary neighbour sampling of some epochs before training, which counts how often every vertex is computed
//! (GSplit, arXiv 2303.13775). The counts weigh the graph that is partitioned.
//!
//! In split-parallel training all ranks compute one mini-batch: the owner of a vertex draws its in-neighbours and computes
//! its row, in every layer that needs it. Hidden rows of remote in-neighbours are exchanged. If the last hop reads input rows,
//! ranks cache them: it causes work, but no exchange in every step.

mod batches;
mod count;

use serde::{Deserialize, Serialize};

pub(super) use self::batches::Batches;
pub(super) use self::count::Counts;
use crate::dataset::Manifest;
use crate::sample::{Fanout, SamplerKind};

/// Work of one destination row besides its edges, in units of aggregating one edge: dense products and element-wise steps.
///
/// At hidden size 128, a GraphSAGE layer computes 65,000 floating-point operations per row and reads 512 bytes per edge.
const DENSE_EDGES: u64 = 16;

/// The sampling of training: everything but the seed that determines which vertices and edges it visits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presample {
    /// Number of epochs to sample.
    pub epochs: u32,
    /// Training vertices per batch.
    pub batch_size: u64,
    /// The sampler.
    pub sampler: SamplerKind,
    /// Fanout of each hop; the first is that of the seeds.
    pub fanouts: Vec<Fanout>,
    /// Whether the last hop reads input rows. If not, it reads hidden rows of a stage without edges.
    pub reads_inputs: bool,
    /// Whether the aggregate of input rows is cached: the last hop is not sampled then.
    pub cached_input: bool,
    /// Whether training sees only training vertices and the edges between them.
    pub inductive: bool,
}

impl Presample {
    /// Epochs that training samples before it partitions a dataset.
    pub const DEFAULT_EPOCHS: u32 = 2;

    /// Returns the number of hops; each computes one layer.
    pub fn hops(&self) -> usize {
        self.fanouts.len()
    }

    /// Returns the fanouts of the hops whose sources are hidden rows: of all but a last one that reads input rows.
    pub fn exchanged(&self) -> &[Fanout] {
        &self.fanouts[..self.hops().saturating_sub(self.reads_inputs as usize)]
    }

    /// Returns the edges that `hop` draws into a vertex with this many in-neighbours; self-loops do not count.
    pub(super) fn edges(&self, hop: usize, degree: u32) -> u64 {
        let is_cached = self.cached_input && hop + 1 == self.hops();
        if is_cached { 0 } else { self.fanouts[hop].of(degree as usize) as u64 }
    }

    /// Returns the work of a destination row of `hop`, in units of aggregating one edge.
    pub(super) fn work(&self, hop: usize, degree: u32) -> u64 {
        DENSE_EDGES + self.edges(hop, degree)
    }

    /// Returns the peak memory of sampling in bytes.
    pub(super) fn peak_bytes(&self, manifest: &Manifest) -> u64 {
        let (nodes, threads) = (manifest.nodes, rayon::current_num_threads() as u64);
        let mut destinations = self.batch_size.min(nodes);
        let mut sample = 0u64;
        for fanout in self.exchanged() {
            let edges = match fanout {
                Fanout::All => manifest.edges,
                Fanout::AtMost(most) => destinations.saturating_mul((*most).into()).min(manifest.edges),
            };
            sample =
                sample.saturating_add(edges.saturating_mul(4)).saturating_add(destinations.saturating_mul(8));
            destinations = destinations.saturating_add(edges).min(nodes);
        }
        // A sampler numbers all vertices, and LABOR draws a variate of each; a sample has rows, ids and degrees.
        let sampler = sample.saturating_add(nodes.saturating_mul(9 + 12));
        let induced = if self.inductive { manifest.edges.saturating_mul(4) } else { 0 };
        let counts = nodes.saturating_mul(4 * self.hops() as u64);
        counts.saturating_add(induced).saturating_add(threads.saturating_mul(sampler))
    }
}
