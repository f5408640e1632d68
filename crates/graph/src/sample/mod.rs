//! Sampled mini-batches: for the seed nodes of a batch, a sample of their in-neighbours, of the neighbours of these, and so
//! on, as one [`Block`] per hop.
//!
//! Which neighbours are drawn is a function of (key, hop, dataset vertex ids) alone; the key names seed, epoch and batch.
//! Neighbours are listed by ascending dataset id ([`Neighbors`]) and drawn by their position in that list. Therefore
//! threads, ranks and the order in which nodes are stored do not change a sample.
//!
//! Both samplers draw min(fanout, degree) in-neighbours of each destination, uniformly without replacement:
//!
//! - [`SamplerKind::Neighbor`]: independently for each destination, as PyG's `NeighborLoader` and DGL's `NeighborSampler`.
//! - [`SamplerKind::Labor`]: LABOR-0 with sequential Poisson sampling (Balin and Çatalyürek, NeurIPS 2023; GraphBolt's
//!   `LayerNeighborSampler`). One random variate per source and hop; a destination keeps the neighbours with the smallest
//!   variates. Destinations with common neighbours tend to draw the same ones, so that a batch has fewer distinct nodes at
//!   the same variance per destination.
//!
//! A stored self-loop is always kept and does not count towards the fanout. Edge weights do not change what is drawn; they
//! come with the drawn edges.
//!
//! ```
//! use halograph_graph::block::Block;
//! use halograph_graph::csr::CsrView;
//! use halograph_graph::sample::{Fanout, Neighbors, Sample, SampleSpec, Sampler, SamplerKind};
//! use halograph_kernels::keyed::Key;
//! // 0 - 1 - 2 - 3: a path.
//! let graph = CsrView { indptr: &[0, 1, 3, 5, 6], indices: &[1, 0, 2, 1, 3, 2] };
//! let block = Block::whole(graph);
//! let neighbors = Neighbors::of(&block);
//! let spec = SampleSpec { kind: SamplerKind::Neighbor, fanouts: vec![Fanout::All, Fanout::AtMost(1)] };
//! let mut sample = Sample::default();
//! Sampler::new(&neighbors, &spec).sample(Key::new(0, "sample").with(1), &[0], &mut sample);
//! assert_eq!(sample.rows()[..2], [0, 1], "the seed, then its only neighbour");
//! assert_eq!(sample.block(1).destinations(), 0..2);
//! ```

mod draw;
mod neighbors;
mod numbering;
mod ranks;
mod split;
#[cfg(test)]
mod tests;

use halograph_kernels::keyed::Key;
use serde::{Deserialize, Serialize};

use self::draw::Draw;
pub use self::neighbors::Neighbors;
use self::numbering::Numbering;
pub use self::numbering::RowSet;
pub use self::ranks::{Assembler, OwnedSampler, RankNumbers};
use self::split::Boundary;
pub use self::split::{DrawnHop, ExchangedRows, SplitAssembler};
use crate::block::{Block, InWeight};

/// How in-neighbours are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SamplerKind {
    /// Independently for each destination.
    #[default]
    Neighbor,
    /// LABOR-0: by one random variate per source and hop.
    Labor,
}

/// How many in-neighbours of each destination are drawn. Serialised as a number; −1: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "i64", try_from = "i64")]
pub enum Fanout {
    /// All.
    All,
    /// So many, or all if there are fewer.
    AtMost(u32),
}

impl From<Fanout> for i64 {
    fn from(fanout: Fanout) -> i64 {
        match fanout {
            Fanout::All => -1,
            Fanout::AtMost(most) => most.into(),
        }
    }
}

impl TryFrom<i64> for Fanout {
    type Error = String;

    fn try_from(fanout: i64) -> Result<Fanout, String> {
        match u32::try_from(fanout) {
            Ok(most) if most > 0 => Ok(Fanout::AtMost(most)),
            _ if fanout == -1 => Ok(Fanout::All),
            _ => Err(format!("{fanout}: must be at least 1, or -1 for all neighbours")),
        }
    }
}

impl Fanout {
    /// Returns the number of neighbours to draw of `degree`.
    pub(crate) fn of(self, degree: usize) -> usize {
        match self {
            Fanout::All => degree,
            Fanout::AtMost(most) => degree.min(most as usize),
        }
    }
}

/// What is sampled for a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampleSpec {
    /// The sampler.
    pub kind: SamplerKind,
    /// Fanout of each hop; the first is that of the seeds.
    pub fanouts: Vec<Fanout>,
}

/// Draws samples. Holds working memory of four to nine bytes per node, which is reused.
pub struct Sampler<'g> {
    neighbors: &'g Neighbors<'g>,
    spec: &'g SampleSpec,
    numbering: Numbering,
    draw: Draw,
}

impl<'g> Sampler<'g> {
    /// Creates a sampler. Allocates.
    pub fn new(neighbors: &'g Neighbors<'g>, spec: &'g SampleSpec) -> Self {
        Sampler { neighbors, spec, numbering: Numbering::new(neighbors.nodes()), draw: Draw::default() }
    }

    /// Draws the sample of distinct `seeds` (row numbers) into `sample`, whose memory is reused. `key` names seed, epoch
    /// and batch.
    ///
    /// # Panics
    /// If a seed is listed twice or is not a row.
    pub fn sample(&mut self, key: Key, seeds: &[u32], sample: &mut Sample) {
        sample.clear();
        self.numbering.start(seeds);
        sample.rows.extend_from_slice(seeds);
        sample.hops.resize_with(self.spec.fanouts.len(), Hop::default);
        for (hop, fanout) in self.spec.fanouts.iter().enumerate() {
            self.hop(key.with(hop as u64), *fanout, sample, hop);
        }
        self.numbering.clear(&sample.rows);
        sample.ids.extend(sample.rows.iter().map(|&row| self.neighbors.id(row)));
        sample.degrees.extend(sample.rows.iter().map(|&row| self.neighbors.degree(row) as u32));
        if self.neighbors.has_weights() {
            let sums = sample.rows.iter().filter_map(|&row| self.neighbors.in_weight(row));
            sample.in_weights.get_or_insert_default().extend(sums);
        }
    }

    /// Draws the in-neighbours of all rows of the sample; new ones are appended in ascending order.
    fn hop(&mut self, key: Key, fanout: Fanout, sample: &mut Sample, hop: usize) {
        let Sample { rows, hops, .. } = sample;
        let edges = &mut hops[hop];
        edges.clear();
        self.draw.start(self.neighbors, self.spec.kind, key, fanout, rows);
        for (r, &row) in rows.iter().enumerate() {
            if let Some(&ahead) = rows.get(r + AHEAD) {
                self.neighbors.prefetch(ahead);
            }
            self.draw.neighbors(self.neighbors, row, &mut edges.drawn);
            if self.neighbors.append_loop(row, &mut edges.drawn) {
                edges.loops.push(r as u32);
            }
            edges.end_row();
        }
        self.numbering.add_hop(rows, edges, &[]);
    }
}

/// Destinations between the one whose neighbours are drawn and the one whose list is prefetched.
const AHEAD: usize = 8;

/// The sample of one batch. Rows are numbered by hop: seeds first, then new neighbours of seeds, and so on; the sources of a
/// hop are the destinations of the next one.
#[derive(Debug, Default)]
pub struct Sample {
    rows: Vec<u32>,
    ids: Vec<u32>,
    degrees: Vec<u32>,
    /// `None`: the graph has no weights.
    in_weights: Option<Vec<InWeight>>,
    hops: Vec<Hop>,
}

/// Edges that were drawn: their sources and their weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DrawnEdges {
    /// Sources.
    pub sources: Vec<u32>,
    /// One for each source; empty if the graph has no weights.
    pub weights: Vec<f32>,
}

impl DrawnEdges {
    /// Removes all edges; keeps the memory.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.weights.clear();
    }

    /// Appends edges.
    pub fn append(&mut self, sources: &[u32], weights: impl IntoIterator<Item = f32>) {
        self.sources.extend_from_slice(sources);
        self.weights.extend(weights);
    }

    fn bytes(&self) -> usize {
        4 * (self.sources.capacity() + self.weights.capacity())
    }
}

/// Edges into the rows of a sample from their neighbours.
#[derive(Debug, Default)]
struct Hop {
    indptr: Vec<u64>,
    drawn: DrawnEdges,
    loops: Vec<u32>,
    sources: usize,
    /// Rows of other ranks; `None`: no such rows are read, or they are sources like all others.
    boundary: Option<Boundary>,
}

impl Hop {
    fn clear(&mut self) {
        self.indptr.clear();
        self.indptr.push(0);
        self.drawn.clear();
        self.loops.clear();
    }

    /// Ends the edges into a row.
    fn end_row(&mut self) {
        self.indptr.push(self.drawn.sources.len() as u64);
    }
}

impl Sample {
    fn clear(&mut self) {
        self.rows.clear();
        self.ids.clear();
        self.degrees.clear();
        self.in_weights.iter_mut().for_each(Vec::clear);
    }

    /// Returns the sampled rows, as numbers of the block that was sampled from.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns the dataset id of each row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Returns the number of hops.
    pub fn hops(&self) -> usize {
        self.hops.len()
    }

    /// Returns the rows that are destinations of a hop, counted from 0 at the seeds. Those of the hop after the last one are
    /// all rows of the sample.
    pub fn destination_rows(&self, hop: usize) -> &[u32] {
        let count = self.hops.get(hop).map_or(self.rows.len(), |hop| hop.indptr.len() - 1);
        &self.rows[..count]
    }

    /// Returns the number of rows that are computed: the destinations of all hops.
    pub fn destinations(&self) -> usize {
        self.hops.iter().map(|hop| hop.indptr.len() - 1).sum()
    }

    /// Returns the bytes of memory of the sample.
    pub fn bytes(&self) -> usize {
        let hop = |hop: &Hop| {
            let boundary = hop.boundary.as_ref().map_or(0, Boundary::bytes);
            8 * hop.indptr.capacity() + hop.drawn.bytes() + 4 * hop.loops.capacity() + boundary
        };
        // Rows, ids and degrees.
        let facts = 4 * 3 * self.rows.capacity()
            + size_of::<InWeight>() * self.in_weights.as_ref().map_or(0, Vec::capacity);
        facts + self.hops.iter().map(hop).sum::<usize>()
    }

    /// Returns the number of sampled edges of all hops.
    pub fn edges(&self) -> usize {
        let remote = |hop: &Hop| hop.boundary.as_ref().map_or(0, |boundary| boundary.halo.edges());
        self.hops.iter().map(|hop| hop.drawn.sources.len() + remote(hop)).sum()
    }

    /// Returns the edges of a hop, counted from 0 at the seeds. Borrows.
    pub fn block(&self, hop: usize) -> Block<'_> {
        let Hop { indptr, drawn, loops, sources, boundary } = &self.hops[hop];
        let (degrees, ids) = (&self.degrees[..*sources], &self.ids[..*sources]);
        let mut block = Block::sampled(indptr, &drawn.sources, degrees, ids, loops);
        if let Some(sums) = &self.in_weights {
            block = block.with_weights(&drawn.weights[..], &sums[..*sources]);
        }
        match boundary {
            Some(boundary) => block.with_halo(boundary.halo.clone()),
            None => block,
        }
    }
}
