//! Samples that are split over ranks: a rank has those vertices of a batch that it owns, and for each hop the edges into them,
//! from own rows and from a [`Halo`] of rows that other ranks own.
//!
//! A hop takes two steps. [`SplitAssembler::draw`] draws the neighbours of own rows and returns which rows of other ranks are
//! among them; ranks tell each other. [`SplitAssembler::finish`] adds those that others have drawn to the own rows: they are
//! destinations of the next hop.

use std::ops::Range;
use std::sync::Arc;

use halograph_kernels::keyed::Key;

use super::numbering::{Numbering, RowSet};
use super::ranks::add_hop;
use super::{DrawnEdges, Hop, Neighbors, OwnedSampler, Sample};
use crate::block::Halo;

/// The rows that ranks read of each other in one hop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExchangedRows {
    /// For each rank, the rows of the sample that it reads, in the order of its halo rows.
    pub send_rows: Vec<Vec<u32>>,
    /// For each rank, how many halo rows it owns.
    pub halo_counts: Vec<usize>,
}

/// Rows of other ranks that a hop reads.
#[derive(Debug)]
pub(super) struct Boundary {
    pub halo: Arc<Halo>,
    /// Until it is taken.
    pub exchanged: Option<ExchangedRows>,
}

impl Boundary {
    /// Returns the bytes of memory.
    pub fn bytes(&self) -> usize {
        let sent = self.exchanged.iter().flat_map(|rows| &rows.send_rows).map(|rows| 4 * rows.capacity());
        self.halo.bytes() + sent.sum::<usize>()
    }
}

/// The drawn neighbours of the own rows of a batch.
pub struct DrawnHop {
    hop: Hop,
    halo_indptr: Vec<u64>,
    halo: DrawnEdges,
    /// Distinct rows of other ranks, ascending.
    halo_rows: Vec<u32>,
}

impl DrawnHop {
    /// Returns the distinct rows of other ranks that were drawn, ascending.
    pub fn halo_rows(&self) -> &[u32] {
        &self.halo_rows
    }
}

/// Assembles samples of own rows. Rows are those of the block that is sampled from: first the own ones, then those of other
/// ranks, one rank after the other.
pub struct SplitAssembler {
    numbering: Numbering,
    remote: RowSet,
    /// Place in the halo of each row of another rank.
    places: Vec<u32>,
    owned: usize,
}

impl SplitAssembler {
    /// Creates an assembler for a block of `rows` rows, the first `owned` of which are own ones. Allocates eight and a half
    /// bytes per row.
    pub fn new(rows: usize, owned: usize) -> Self {
        SplitAssembler {
            numbering: Numbering::new(rows),
            remote: RowSet::new(rows),
            places: vec![0; rows],
            owned,
        }
    }

    /// Draws the neighbours of all rows of `sample` for its next hop, of the batch whose stream is `key`.
    pub fn draw(&mut self, sampler: &mut OwnedSampler, key: Key, sample: &Sample) -> DrawnHop {
        let (rows, mut drawn) = (&sample.rows, DrawnEdges::default());
        let (mut hop, mut halo_indptr, mut halo) = (Hop::default(), vec![0], DrawnEdges::default());
        hop.clear();
        sampler.start(key, sample.hops.len(), rows);
        for (r, &row) in rows.iter().enumerate() {
            drawn.clear();
            sampler.draw(rows, r, &mut drawn);
            for (i, &neighbor) in drawn.sources.iter().enumerate() {
                let is_own = (neighbor as usize) < self.owned;
                if !is_own {
                    self.remote.insert(neighbor);
                }
                let edges = if is_own { &mut hop.drawn } else { &mut halo };
                edges.append(&[neighbor], drawn.weights.get(i).copied());
            }
            if drawn.sources.last() == Some(&row) {
                hop.loops.push(r as u32);
            }
            hop.end_row();
            halo_indptr.push(halo.sources.len() as u64);
        }
        let (mut halo_rows, places) = (Vec::new(), &mut self.places);
        self.remote.drain(|row| {
            places[row as usize] = halo_rows.len() as u32;
            halo_rows.push(row);
        });
        halo.sources.iter_mut().for_each(|row| *row = places[*row as usize]);
        DrawnHop { hop, halo_indptr, halo, halo_rows }
    }

    /// Adds a drawn hop to `sample`. `requested`: for each rank, the own rows that it has drawn, in the order of its halo.
    /// `runs`: for each rank, its rows of the block.
    pub fn finish(
        &mut self,
        sample: &mut Sample,
        drawn: DrawnHop,
        neighbors: &Neighbors,
        requested: &[&[u32]],
        runs: &[Range<usize>],
    ) {
        let DrawnHop { mut hop, halo_indptr, halo: edges, halo_rows } = drawn;
        self.numbering.start(&sample.rows);
        self.numbering.add_hop(&mut sample.rows, &mut hop, requested.iter().copied().flatten());
        let send = |rows: &&[u32]| rows.iter().map(|&row| self.numbering.position(row)).collect();
        let send_rows = requested.iter().map(send).collect();
        self.numbering.clear(&sample.rows);
        let before = |end: usize| halo_rows.partition_point(|&row| (row as usize) < end);
        let halo_counts = runs.iter().map(|run| before(run.end) - before(run.start)).collect();
        let degrees = halo_rows.iter().map(|&row| neighbors.degree(row) as u32).collect();
        let ids = halo_rows.iter().map(|&row| neighbors.id(row)).collect();
        let mut halo = Halo::new(halo_indptr, edges.sources, degrees, ids);
        if neighbors.has_weights() {
            let sums = halo_rows.iter().filter_map(|&row| neighbors.in_weight(row)).collect();
            halo = halo.with_weights(edges.weights, sums);
        }
        hop.boundary = Some(Boundary {
            halo: Arc::new(halo),
            exchanged: Some(ExchangedRows { send_rows, halo_counts }),
        });
        sample.hops.push(hop);
    }

    /// Adds a hop to `sample` whose drawn rows of other ranks become rows of the sample, after the own ones.
    pub fn add_inputs(&mut self, sampler: &mut OwnedSampler, key: Key, sample: &mut Sample) {
        let (rows, mut at) = (sample.rows.clone(), 0..);
        sampler.start(key, sample.hops.len(), &rows);
        add_hop(&mut self.numbering, sample, |_, list| {
            sampler.draw(&rows, at.next().expect("rows are counted without end"), list);
        });
    }
}

impl Sample {
    /// Replaces the number of every row.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        self.rows.iter_mut().for_each(|row| *row = number(*row));
    }

    /// Removes and returns, for each hop, the rows that ranks read of each other; `None` if there is no boundary.
    pub fn take_exchanged_rows(&mut self) -> Vec<Option<ExchangedRows>> {
        let boundaries = self.hops.iter_mut().map(|hop| hop.boundary.as_mut());
        boundaries.map(|boundary| boundary?.exchanged.take()).collect()
    }
}
