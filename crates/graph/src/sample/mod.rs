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
//! A stored self-loop is always kept and does not count towards the fanout.
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
#[cfg(test)]
mod tests;

use halograph_kernels::keyed::Key;
use serde::{Deserialize, Serialize};

use self::draw::Draw;
pub use self::neighbors::Neighbors;
use crate::block::Block;

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

/// How many in-neighbours of each destination are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fanout {
    /// All.
    All,
    /// So many, or all if there are fewer.
    AtMost(u32),
}

impl Fanout {
    /// Returns the number of neighbours to draw of `degree`.
    fn of(self, degree: usize) -> usize {
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
    /// Rows that are in the sample.
    seen: Bits,
    /// Rows that the current hop added.
    fresh: Bits,
    /// Position in the sample of each row that is in it.
    position: Vec<u32>,
    draw: Draw,
}

impl<'g> Sampler<'g> {
    /// Creates a sampler. Allocates.
    pub fn new(neighbors: &'g Neighbors<'g>, spec: &'g SampleSpec) -> Self {
        let nodes = neighbors.nodes();
        let (seen, fresh) = (Bits::new(nodes), Bits::new(nodes));
        Sampler { neighbors, spec, seen, fresh, position: vec![0; nodes], draw: Draw::default() }
    }

    /// Draws the sample of distinct `seeds` (row numbers) into `sample`, whose memory is reused. `key` names seed, epoch
    /// and batch.
    ///
    /// # Panics
    /// If a seed is listed twice or is not a row.
    pub fn sample(&mut self, key: Key, seeds: &[u32], sample: &mut Sample) {
        sample.clear();
        for &row in seeds {
            assert!(self.seen.insert(row), "seed {row} is listed twice");
            self.position[row as usize] = sample.rows.len() as u32;
            sample.rows.push(row);
        }
        sample.hops.resize_with(self.spec.fanouts.len(), Hop::default);
        for (hop, fanout) in self.spec.fanouts.iter().enumerate() {
            self.hop(key.with(hop as u64), *fanout, sample, hop);
        }
        sample.rows.iter().for_each(|&row| self.seen.remove(row));
        sample.ids.extend(sample.rows.iter().map(|&row| self.neighbors.id(row)));
        sample.degrees.extend(sample.rows.iter().map(|&row| self.neighbors.degree(row) as u32));
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
            self.draw.neighbors(self.neighbors, row, &mut edges.indices);
            if self.neighbors.has_loop(row) {
                edges.indices.push(row);
                edges.loops.push(r as u32);
            }
            edges.indptr.push(edges.indices.len() as u64);
        }
        for &row in &edges.indices {
            if self.seen.insert(row) {
                self.fresh.insert(row);
            }
        }
        let position = &mut self.position;
        self.fresh.drain(|row| {
            position[row as usize] = rows.len() as u32;
            rows.push(row);
        });
        edges.indices.iter_mut().for_each(|row| *row = position[*row as usize]);
        edges.sources = rows.len();
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
    hops: Vec<Hop>,
}

/// Edges into the rows of a sample from their neighbours.
#[derive(Debug, Default)]
struct Hop {
    indptr: Vec<u64>,
    indices: Vec<u32>,
    loops: Vec<u32>,
    sources: usize,
}

impl Hop {
    fn clear(&mut self) {
        self.indptr.clear();
        self.indptr.push(0);
        self.indices.clear();
        self.loops.clear();
    }
}

impl Sample {
    fn clear(&mut self) {
        self.rows.clear();
        self.ids.clear();
        self.degrees.clear();
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

    /// Returns the number of sampled edges of all hops.
    pub fn edges(&self) -> usize {
        self.hops.iter().map(|hop| hop.indices.len()).sum()
    }

    /// Returns the edges of a hop, counted from 0 at the seeds. Borrows.
    pub fn block(&self, hop: usize) -> Block<'_> {
        let Hop { indptr, indices, loops, sources, .. } = &self.hops[hop];
        Block::sampled(indptr, indices, &self.degrees[..*sources], &self.ids[..*sources], loops)
    }
}

/// A set of row numbers.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(rows: usize) -> Self {
        Bits(vec![0; rows.div_ceil(64)])
    }

    /// Adds a row; returns whether it is new.
    #[inline]
    fn insert(&mut self, row: u32) -> bool {
        let (word, bit) = (&mut self.0[row as usize / 64], 1 << (row % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    #[inline]
    fn remove(&mut self, row: u32) {
        self.0[row as usize / 64] &= !(1 << (row % 64));
    }

    /// Removes all rows, and calls `each` with them in ascending order.
    fn drain(&mut self, mut each: impl FnMut(u32)) {
        for (i, word) in self.0.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let mut rest = std::mem::take(word);
            while rest != 0 {
                each(i as u32 * 64 + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
    }
}
