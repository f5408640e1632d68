//! Sampling on ranks that own vertices: every rank draws the in-neighbours of its own vertices, and assembles samples of
//! batches from lists that it and the other ranks have drawn.

use halograph_kernels::keyed::Key;

use super::draw::Draw;
use super::numbering::Numbering;
use super::{AHEAD, DrawnEdges, Hop, Neighbors, Sample, SampleSpec};
use crate::block::InWeight;

/// Numbers of the vertices of all ranks: first the rows of rank 0, then those of rank 1, and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankNumbers {
    /// First number of each rank, and the end.
    firsts: Vec<u32>,
}

impl RankNumbers {
    /// Creates the numbers of ranks that own `counts` vertices.
    ///
    /// # Panics
    /// If there are 2^32 vertices or more.
    pub fn new(counts: &[u64]) -> Self {
        let mut end = 0u64;
        let ends = counts.iter().map(|count| {
            end += count;
            u32::try_from(end).expect("vertices have 32-bit numbers")
        });
        RankNumbers { firsts: std::iter::once(0).chain(ends).collect() }
    }

    /// Returns the number of vertices of all ranks.
    pub fn nodes(&self) -> usize {
        *self.firsts.last().expect("there is an end") as usize
    }

    /// Returns the rank that owns a vertex.
    #[inline]
    pub fn owner(&self, number: u32) -> usize {
        self.firsts.partition_point(|&first| first <= number) - 1
    }

    /// Returns whether `rank` owns a vertex.
    #[inline]
    pub fn owns(&self, rank: usize, number: u32) -> bool {
        (self.firsts[rank]..self.firsts[rank + 1]).contains(&number)
    }

    /// Returns the number of row `row` of `rank`.
    #[inline]
    pub fn number(&self, rank: usize, row: u32) -> u32 {
        self.firsts[rank] + row
    }

    /// Returns the row of a vertex at `owner`.
    #[inline]
    pub fn row(&self, owner: usize, number: u32) -> u32 {
        number - self.firsts[owner]
    }
}

/// Draws the in-neighbours of the vertices that a rank owns.
pub struct OwnedSampler<'g> {
    neighbors: &'g Neighbors<'g>,
    spec: &'g SampleSpec,
    /// Number of each row, owned or not; `None`: the row.
    numbers: Option<&'g [u32]>,
    draw: Draw,
}

impl<'g> OwnedSampler<'g> {
    /// Creates a sampler of the owned rows of `neighbors`; `numbers` are those of all its rows, `None`: the rows.
    pub fn new(neighbors: &'g Neighbors<'g>, spec: &'g SampleSpec, numbers: Option<&'g [u32]>) -> Self {
        assert!(numbers.is_none_or(|n| n.len() == neighbors.nodes()), "a number of every row");
        OwnedSampler { neighbors, spec, numbers, draw: Draw::default() }
    }

    /// Starts a hop of the batch whose stream is `key` into the owned rows `rows`.
    pub fn start(&mut self, key: Key, hop: usize, rows: &[u32]) {
        let (kind, fanout) = (self.spec.kind, self.spec.fanouts[hop]);
        self.draw.start(self.neighbors, kind, key.with(hop as u64), fanout, rows);
    }

    /// Appends the edges from the in-neighbours of `rows[at]`, drawn for the hop that was started, to `out`, as numbers; its
    /// own number is the last if the row has a self-loop.
    #[inline]
    pub fn draw(&mut self, rows: &[u32], at: usize, out: &mut DrawnEdges) {
        if let Some(&ahead) = rows.get(at + AHEAD) {
            self.neighbors.prefetch(ahead);
        }
        let (row, first) = (rows[at], out.sources.len());
        self.draw.neighbors(self.neighbors, row, out);
        self.neighbors.append_loop(row, out);
        if let Some(numbers) = self.numbers {
            out.sources[first..].iter_mut().for_each(|row| *row = numbers[*row as usize]);
        }
    }
}

/// Assembles samples from lists of drawn neighbours. Rows of these samples are numbers of vertices.
pub struct Assembler {
    numbering: Numbering,
}

impl Assembler {
    /// Creates an assembler for vertices with numbers below `nodes`. Allocates four and a quarter bytes per vertex.
    pub fn new(nodes: usize) -> Self {
        Assembler { numbering: Numbering::new(nodes) }
    }

    /// Assembles one hop: `list` appends the drawn edges of a vertex, its own number last if it has a self-loop. Hops of
    /// several samples may take turns.
    pub fn add_hop(&mut self, sample: &mut Sample, list: impl FnMut(u32, &mut DrawnEdges)) {
        add_hop(&mut self.numbering, sample, list);
    }
}

/// Adds a hop to `sample`: `list` appends the drawn edges of each row, itself last if it has a self-loop.
pub(super) fn add_hop(
    numbering: &mut Numbering,
    sample: &mut Sample,
    mut list: impl FnMut(u32, &mut DrawnEdges),
) {
    numbering.start(&sample.rows);
    let mut hop = Hop::default();
    hop.clear();
    for (r, &row) in sample.rows.iter().enumerate() {
        let first = hop.drawn.sources.len();
        list(row, &mut hop.drawn);
        if hop.drawn.sources[first..].last() == Some(&row) {
            hop.loops.push(r as u32);
        }
        hop.end_row();
    }
    numbering.add_hop(&mut sample.rows, &mut hop, &[]);
    sample.hops.push(hop);
    numbering.clear(&sample.rows);
}

impl Sample {
    /// Creates a sample without hops, of these seeds.
    pub fn of_seeds(seeds: Vec<u32>) -> Self {
        Sample { rows: seeds, ..Sample::default() }
    }

    /// Sets dataset id and degree of each row, when all hops have been assembled.
    pub fn describe(&mut self, of: impl Fn(u32) -> (u32, u32)) {
        (self.ids, self.degrees) = self.rows.iter().map(|&row| of(row)).unzip();
    }

    /// Sets the sum of in-weights of each row, when all hops have been assembled. Only for graphs with weights.
    pub fn describe_weights(&mut self, of: impl Fn(u32) -> InWeight) {
        self.in_weights = Some(self.rows.iter().map(|&row| of(row)).collect());
    }
}
