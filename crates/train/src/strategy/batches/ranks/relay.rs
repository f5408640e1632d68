//! Batches that ranks sample together.

use halograph_comm::{Message, Purpose, Tag};
use halograph_graph::sample::Sample;
use halograph_kernels::keyed::Key;

use crate::error::Result;

/// Samples batches together with the other ranks.
pub trait Relay: Send + Sync {
    /// Samples `batches`. Rows of the samples are numbers of vertices, without ids and degrees. Collective; blocks. Returns
    /// the samples and the number of all-to-alls.
    fn sample(&self, batches: &Batches) -> Result<(Vec<Sample>, u64)>;

    /// Returns whether samples have rows of other ranks, which are fetched.
    fn reads_remote_inputs(&self) -> bool;
}

/// Consecutive batches of an epoch, as this rank takes part in them.
#[derive(Debug, Clone)]
pub struct Batches {
    /// The epoch.
    pub epoch: u64,
    /// First step.
    pub first: u64,
    /// One per step.
    pub batches: Vec<BatchSeeds>,
}

/// The seeds of one batch.
#[derive(Debug, Clone)]
pub struct BatchSeeds {
    /// Stream of the batch.
    pub key: Key,
    /// Positions of the seeds of this rank among its training rows, ascending.
    pub positions: Vec<u32>,
    /// Their rows in the shard.
    pub rows: Vec<u32>,
    /// Number of seeds of all ranks.
    pub of_all_ranks: u64,
}

impl Batches {
    /// Returns the tag of an exchange for these batches.
    pub fn tag(&self, purpose: Purpose) -> Tag {
        Tag::new(purpose).epoch(self.epoch as u32).step(self.first as u32)
    }
}

/// Returns a message to each rank with lists of rows: for each batch their count, then the rows. `rows[batch][rank]`: rows
/// that are sent to a rank; `own`: this rank, which gets an empty message.
pub fn rows_by_batch(rows: &[Vec<Vec<u32>>], ranks: usize, own: usize) -> Vec<Message> {
    let of_rank = |rank: usize| {
        let lists = rows.iter().filter(|_| rank != own).map(|batch| &batch[rank]);
        let encoded = lists.flat_map(|rows| std::iter::once(count(rows.len())).chain(rows.iter().copied()));
        Message::of(&encoded.collect::<Vec<u32>>())
    };
    (0..ranks).map(of_rank).collect()
}

/// Returns the lists of a message of [`rows_by_batch`], one per batch; none of a message to oneself.
pub fn lists_by_batch(mut message: &[u32]) -> Vec<&[u32]> {
    let mut lists = Vec::new();
    while let Some((&count, rest)) = message.split_first() {
        let (rows, rest) = rest.split_at(count as usize);
        lists.push(rows);
        message = rest;
    }
    lists
}

/// Encodes a number of rows or neighbours.
pub fn count(number: usize) -> u32 {
    u32::try_from(number).expect("lists of a batch have fewer than 2^32 entries")
}
