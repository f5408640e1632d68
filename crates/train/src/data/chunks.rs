//! Chunks of the training graph of a rank: runs of its rows, which are computed one after the other.
//!
//! The rows that a stage reads are in a *store*: the messages of the rank's own rows, chunk by chunk, then those of rows of
//! other ranks, by owner and then by chunk at the owner. A chunk has a block of its own: its sources are its own rows, and
//! all other rows that it reads, of other chunks and of other ranks, are its halo.
//!
//! All ranks compute chunks of one number at a time, so an exchange belongs to a chunk number: a rank sends those rows of
//! its chunk that any chunk of another rank reads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use halograph_comm::{Comm, Message};
use halograph_graph::block::{Block, Halo};
use halograph_graph::partition::Shard;
use halograph_kernels::Real;

use super::shard::{LocalGraph, ShardData, halo_rows, ids, level, row_lookup};
use crate::boundary::{Exchange, RankLink};
use crate::error::Result;
use crate::stage::StageBlock;
use crate::tags::Setup;

/// Marks rows that are not in a list.
const NOWHERE: u32 = u32::MAX;

/// How the training rows of a rank are divided into chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChunks {
    /// Chunk of each row of the shard, halo included; 0 for rows outside the training graph.
    of: Vec<u32>,
    count: usize,
}

impl RowChunks {
    /// Completes the chunks of owned rows by those of the halo. Collective; blocks.
    pub fn new(shard: &Shard, mut of: Vec<u32>, count: usize, comm: &Comm) -> Result<Self> {
        let asked = (0..comm.size() as u32).map(|owner| match owner == shard.part() {
            true => Message::new::<u32>(0),
            false => Message::of(shard.homes(owner)),
        });
        let asked = comm.all_to_all(Setup::ChunkRows.tag(), asked.collect())?;
        let mut answers = Vec::new();
        for rows in &asked {
            let rows = rows.as_slice::<u32>()?.iter();
            answers.push(Message::of(&rows.map(|&row| of[row as usize]).collect::<Vec<u32>>()));
        }
        let answers = comm.all_to_all(Setup::ChunkNumbers.tag(), answers)?;
        for (owner, answer) in answers.iter().enumerate() {
            if owner as u32 != shard.part() {
                of.extend_from_slice(answer.expect::<u32>(shard.homes(owner as u32).len())?);
            }
        }
        Ok(RowChunks { of, count })
    }

    /// Returns the chunk of a row of the shard.
    pub(super) fn of(&self, row: u32) -> u32 {
        self.of[row as usize]
    }

    /// Returns the number of chunks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns a digest of the chunks of all rows, of 63 bits.
    pub fn digest(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.count as u64).to_le_bytes());
        hasher.update(bytemuck::cast_slice(&self.of));
        let bytes = hasher.finalize();
        let (first, _) = bytes.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
        u64::from_le_bytes(*first) >> 1
    }
}

/// The rows that a stage computes and reads: by their distance from training rows, at most so far; `None`: all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StageRows {
    /// Computed rows.
    pub to: Option<u8>,
    /// Rows of the input.
    pub from: Option<u8>,
    /// Whether the stage aggregates over edges.
    pub reads_edges: bool,
}

/// The blocks of all chunks for one stage, and the store that they read.
pub struct StageChunks {
    /// The block of each chunk; its exchange is that of the chunk's number.
    pub blocks: Vec<StageBlock<'static>>,
    /// First stored row of each chunk, and the end of the rows of this rank.
    pub own: Vec<usize>,
    /// For each chunk number, the stored rows of that chunk of every other rank, in the order of ranks.
    pub remote: Vec<Vec<Range<usize>>>,
    /// The halo rows of each chunk.
    pub reads: Vec<ChunkReads>,
    /// Number of stored rows.
    pub rows: usize,
    /// Dataset ids of the stored rows of other ranks, in order: the last ones.
    pub remote_ids: Vec<u32>,
}

impl StageChunks {
    /// Returns all rows as one chunk, whose halo is exchanged and not stored.
    fn whole(local: &LocalGraph) -> Self {
        let rows = local.rows.len();
        let (remote, reads, remote_ids) = Default::default();
        let blocks = vec![local.block.clone()];
        StageChunks { blocks, own: vec![0, rows], remote, reads, rows, remote_ids }
    }

    /// Returns the number of rows that the stage reads of a chunk as its own.
    pub fn sources(&self, chunk: usize) -> usize {
        self.blocks[chunk].block.sources()
    }

    /// Returns the number of rows that the stage computes of a chunk.
    pub fn destinations(&self, chunk: usize) -> usize {
        self.blocks[chunk].block.destinations().len()
    }
}

/// The halo rows of a chunk.
#[derive(Default)]
pub struct ChunkReads {
    /// Their rows in the store, ascending.
    pub rows: Vec<u32>,
    /// Runs of `rows` that belong to chunks of one number: the number, and the run.
    pub runs: Vec<(usize, Range<usize>)>,
}

impl<T: Real> ShardData<'_, T> {
    /// Returns the first training row of each chunk, and the end.
    pub fn chunk_starts(&self) -> Vec<usize> {
        let (local, _) = self.training();
        starts_of(self.chunks(), &local.rows)
    }

    /// Returns the chunks of stages that compute and read these rows; the stage of `rows[i]` has index `first + i`.
    /// Collective; blocks.
    pub fn chunked_stages(
        &self,
        link: &RankLink,
        first: usize,
        rows: &[StageRows],
    ) -> Result<Vec<Arc<StageChunks>>> {
        let mut known: HashMap<StageRows, Arc<StageChunks>> = HashMap::new();
        let mut stages = Vec::new();
        for (at, &rows) in rows.iter().enumerate() {
            let made = match known.get(&rows) {
                Some(made) => made.clone(),
                None => Arc::new(self.chunked_stage(link, first + at, rows)?),
            };
            known.insert(rows, made.clone());
            stages.push(made);
        }
        Ok(stages)
    }

    fn chunked_stage(&self, link: &RankLink, index: usize, rows: StageRows) -> Result<StageChunks> {
        let (local, chunks) = (self.training().0, self.chunks());
        if chunks.count() == 1 && rows == (StageRows { to: None, from: None, reads_edges: true }) {
            return Ok(StageChunks::whole(local));
        }
        let distance = self.shard().distance();
        let within = |level: Option<u8>| -> Vec<u32> {
            let is_near = |&&row: &&u32| level.is_none_or(|level| distance[row as usize] <= level);
            local.rows.iter().filter(is_near).copied().collect()
        };
        let (to, from) = (within(rows.to), within(rows.from));
        let own = starts_of(chunks, &from);
        let destinations = starts_of(chunks, &to);
        if !rows.reads_edges {
            let block = |c: usize| {
                StageBlock::without_edges(destinations[c + 1] - destinations[c], own[c + 1] - own[c])
            };
            let blocks = (0..chunks.count()).map(block).collect();
            let rows = own[chunks.count()];
            let (remote, reads, remote_ids) = Default::default();
            return Ok(StageChunks { blocks, own, remote, reads, rows, remote_ids });
        }
        let halo = self.stored_halo(local, &to);
        let wanted: Vec<Vec<u32>> = halo.iter().map(|of| ids(self.shard(), of)).collect();
        let lookup = row_lookup(self.shard(), &from);
        let tag = Setup::StageHalo.of_graph(local.graph as u8).layer(index as u16);
        let exchange = Exchange::negotiate(&link.comm, tag, &wanted, lookup)?;
        let remote = remote_runs(chunks, &halo, own[chunks.count()]);
        let exchanges = exchange.by_run(&own, &remote);
        let store = Store { shard: self.shard(), local, own: &own, from: &from, halo: &halo.concat() };
        let mut place = store.places();
        let (mut blocks, mut reads) = (Vec::new(), Vec::new());
        for (c, exchange) in exchanges.into_iter().enumerate() {
            let (block, read) = store.chunk(c, &to[destinations[c]..destinations[c + 1]], &mut place);
            let runs = runs_of(&read, &own, &remote);
            reads.push(ChunkReads { rows: read, runs });
            blocks.push(StageBlock { block: Arc::new(block), exchange: Some(Arc::new(exchange)) });
        }
        let rows = from.len() + store.halo.len();
        Ok(StageChunks { blocks, own, remote, reads, rows, remote_ids: wanted.concat() })
    }

    /// Returns for each rank its rows that the owned rows `to` read, by chunk.
    fn stored_halo(&self, local: &LocalGraph, to: &[u32]) -> Vec<Vec<u32>> {
        let mut halo = halo_rows(self.shard(), local.graph, self.hops(), to);
        halo.iter_mut().for_each(|of| of.sort_by_key(|&row| self.chunks().of(row)));
        halo
    }
}

/// Returns the first of `rows`, which are sorted by chunk, in each chunk, and the end.
fn starts_of(chunks: &RowChunks, rows: &[u32]) -> Vec<usize> {
    (0..=chunks.count() as u32).map(|c| rows.partition_point(|&row| chunks.of(row) < c)).collect()
}

/// Returns for each chunk number the stored rows of that chunk of every rank. `halo`: the halo rows of each rank, by chunk;
/// `first`: where they begin in the store.
fn remote_runs(chunks: &RowChunks, halo: &[Vec<u32>], first: usize) -> Vec<Vec<Range<usize>>> {
    let mut runs = vec![Vec::new(); chunks.count()];
    let mut first = first;
    for rows in halo {
        let starts = starts_of(chunks, rows);
        runs.iter_mut().zip(starts.windows(2)).for_each(|(runs, run)| {
            runs.push(first + run[0]..first + run[1]);
        });
        first += rows.len();
    }
    runs
}

/// Returns the runs of stored rows that belong to one chunk number.
fn runs_of(read: &[u32], own: &[usize], remote: &[Vec<Range<usize>>]) -> Vec<(usize, Range<usize>)> {
    let own = own.windows(2).enumerate().map(|(c, run)| (c, run[0]..run[1]));
    let ranks = remote.first().map_or(0, Vec::len);
    let other =
        (0..ranks).flat_map(|rank| remote.iter().enumerate().map(move |(c, of)| (c, of[rank].clone())));
    let at = |row: usize| read.partition_point(|&r| (r as usize) < row);
    let runs = own.chain(other).map(|(c, rows)| (c, at(rows.start)..at(rows.end)));
    runs.filter(|(_, run)| !run.is_empty()).collect()
}

/// The rows that a stage reads, as rows of the shard.
struct Store<'s> {
    shard: &'s Shard,
    local: &'s LocalGraph,
    own: &'s [usize],
    from: &'s [u32],
    halo: &'s [u32],
}

impl Store<'_> {
    /// Returns the stored row of each row of the shard.
    fn places(&self) -> Places {
        let mut stored = vec![NOWHERE; self.shard.rows()];
        self.from.iter().chain(self.halo).zip(0..).for_each(|(&row, at)| stored[row as usize] = at);
        Places { stored, halo: vec![NOWHERE; self.from.len() + self.halo.len()] }
    }

    fn shard_row(&self, stored: u32) -> u32 {
        let at = stored as usize;
        self.from.get(at).copied().unwrap_or_else(|| self.halo[at - self.from.len()])
    }

    /// Returns the block of chunk `c`, which computes the rows `to` of the shard, and the stored rows of its halo.
    fn chunk(&self, c: usize, to: &[u32], places: &mut Places) -> (Block<'static>, Vec<u32>) {
        let own = self.own[c] as u32..self.own[c + 1] as u32;
        let (edges, Places { stored, halo: numbers }) = (self.shard.edges(), places);
        let sources = |row: u32| {
            edges.row(row as usize).iter().map(|&column| stored[column as usize]).filter(|&at| at != NOWHERE)
        };
        let mut read = Vec::new();
        for at in to.iter().flat_map(|&row| sources(row)).filter(|at| !own.contains(at)) {
            if std::mem::replace(&mut numbers[at as usize], 0) == NOWHERE {
                read.push(at);
            }
        }
        read.sort_unstable();
        read.iter().zip(0..).for_each(|(&at, number)| numbers[at as usize] = number);
        let (mut inner, mut outer) = (Edges::default(), Edges::default());
        for &row in to {
            for at in sources(row) {
                match own.contains(&at) {
                    true => inner.indices.push(at - own.start),
                    false => outer.indices.push(numbers[at as usize]),
                }
            }
            [&mut inner, &mut outer].into_iter().for_each(Edges::end_row);
        }
        read.iter().for_each(|&at| numbers[at as usize] = NOWHERE);
        let degrees = self.shard.degrees(self.local.graph);
        let facts = |rows: &[u32]| {
            (rows.iter().map(|&row| degrees[row as usize]).collect::<Vec<u32>>(), ids(self.shard, rows))
        };
        let (degrees_own, ids_own) = facts(&self.from[own.start as usize..own.end as usize]);
        let block = Block::new(inner.indptr, inner.indices, 0..to.len(), degrees_own, Some(ids_own));
        let halo: Vec<u32> = read.iter().map(|&at| self.shard_row(at)).collect();
        let (degrees_halo, ids_halo) = facts(&halo);
        (block.with_halo(Halo::new(outer.indptr, outer.indices, degrees_halo, ids_halo)), read)
    }
}

/// Numbers of rows.
struct Places {
    /// Stored row of each row of the shard.
    stored: Vec<u32>,
    /// Halo row of each stored row in the current chunk, between chunks of none.
    halo: Vec<u32>,
}

/// Edges in compressed rows.
struct Edges {
    indptr: Vec<u64>,
    indices: Vec<u32>,
}

impl Default for Edges {
    fn default() -> Self {
        Edges { indptr: vec![0], indices: Vec::new() }
    }
}

impl Edges {
    /// Ends a row; its sources ascend.
    fn end_row(&mut self) {
        let start = self.indptr[self.indptr.len() - 1] as usize;
        self.indices[start..].sort_unstable();
        self.indptr.push(self.indices.len() as u64);
    }
}

/// Returns the distance of a row from training rows, at most `hops`, after its chunk.
pub(super) fn order_key(shard: &Shard, hops: usize, chunks: &RowChunks, row: u32) -> (u32, u8) {
    (chunks.of(row), level(shard, hops, row))
}
