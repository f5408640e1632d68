//! Samples the batches of a macrobatch together with the other ranks: each rank draws the neighbours of the vertices that it
//! owns, for its own batches and on request of the others.
//!
//! ```text
//! hop 1            seeds are owned: drawn without communication
//! each further hop requests: rows of the owner, batch by batch          one all-to-all
//!                  replies:  their drawn neighbours, as numbers         one all-to-all
//! ```

use std::sync::{Mutex, PoisonError};

use halograph_comm::{Message, Purpose, Tag};
use halograph_graph::sample::{Assembler, OwnedSampler, Sample};
use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::source::RankGraph;
use crate::error::Result;

/// Slots of the messages of a hop.
const REQUEST: u8 = 0;
const REPLY: u8 = 1;

/// Consecutive batches of an epoch, as this rank takes part in them.
#[derive(Debug, Clone)]
pub(super) struct Batches {
    pub epoch: u64,
    /// First step.
    pub first: u64,
    pub batches: Vec<BatchSeeds>,
}

/// The seeds of one batch.
#[derive(Debug, Clone)]
pub(super) struct BatchSeeds {
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

/// Samples batches together with the other ranks.
pub(super) struct Relay<'s> {
    graph: &'s RankGraph<'s>,
    workers: Mutex<Vec<Worker<'s>>>,
}

/// Memory of one sampling thread.
struct Worker<'s> {
    sampler: OwnedSampler<'s>,
    assembler: Assembler,
    /// Owned rows of a batch.
    rows: Vec<u32>,
}

impl<'s> Relay<'s> {
    pub(super) fn new(graph: &'s RankGraph<'s>) -> Self {
        Relay { graph, workers: Mutex::default() }
    }

    /// Samples `batches`. Rows of the samples are numbers of vertices, without ids and degrees. Collective; blocks. Returns
    /// the samples and the number of all-to-alls.
    pub(super) fn sample(&self, batches: &Batches) -> Result<(Vec<Sample>, u64)> {
        let graph = self.graph;
        let seeds = batches.batches.iter().map(|batch| graph.numbers_of(&batch.rows));
        let mut samples: Vec<Sample> = seeds.map(Sample::of_seeds).collect();
        let mut relays = 0;
        for hop in 0..graph.spec.fanouts.len() {
            let mut replies = Vec::new();
            if hop > 0 {
                let tag = batches.tag(Purpose::Sampling).layer(hop as u16);
                let requests = self.requests(&samples).iter().map(|rows| Message::of(rows)).collect();
                let asked = graph.exchange(tag.slot(REQUEST), requests)?;
                let draw =
                    |request: &Message| Ok(Message::of(&self.reply(batches, hop, request.as_slice()?)));
                let drawn = asked.par_iter().map(draw).collect::<Result<_>>()?;
                replies = graph.exchange(tag.slot(REPLY), drawn)?;
                relays += 2;
            }
            self.assemble(batches, hop, &mut samples, &replies)?;
        }
        Ok((samples, relays))
    }

    /// Returns for each other rank the rows whose neighbours are needed: for each batch their count, then the rows.
    fn requests(&self, samples: &[Sample]) -> Vec<Vec<u32>> {
        let (numbers, own) = (&self.graph.numbers, self.graph.rank());
        let of_batch = |sample: &Sample| {
            let mut rows = vec![Vec::new(); self.graph.comm.size()];
            for &number in sample.rows().iter().filter(|&&number| !numbers.owns(own, number)) {
                let owner = numbers.owner(number);
                rows[owner].push(numbers.row(owner, number));
            }
            rows
        };
        let batches: Vec<Vec<Vec<u32>>> = samples.par_iter().map(of_batch).collect();
        let of_rank = |rank: usize| {
            let rows = batches.iter().map(|batch| &batch[rank]);
            rows.flat_map(|rows| std::iter::once(count(rows.len())).chain(rows.iter().copied())).collect()
        };
        let none = |rank: usize| if rank == own { Vec::new() } else { of_rank(rank) };
        (0..self.graph.comm.size()).map(none).collect()
    }

    /// Draws the neighbours of requested rows: for each batch the length of its part, then for each row their count and
    /// numbers.
    fn reply(&self, batches: &Batches, hop: usize, mut request: &[u32]) -> Vec<u32> {
        let mut requested = Vec::new();
        while let Some((&count, rest)) = request.split_first() {
            let (rows, rest) = rest.split_at(count as usize);
            requested.push(rows);
            request = rest;
        }
        let of_batch = |(batch, rows): (&BatchSeeds, &&[u32])| {
            let mut lists = vec![0];
            self.with_worker(|worker| {
                worker.sampler.start(batch.key, hop, rows);
                for at in 0..rows.len() {
                    let start = lists.len();
                    lists.push(0);
                    worker.sampler.draw(rows, at, &mut lists);
                    lists[start] = count(lists.len() - start - 1);
                }
            });
            lists[0] = count(lists.len() - 1);
            lists
        };
        let parts: Vec<Vec<u32>> =
            batches.batches.par_iter().zip(requested.par_iter()).map(of_batch).collect();
        parts.concat()
    }

    /// Adds a hop to all samples, from own draws and from the replies of the other ranks.
    fn assemble(
        &self,
        batches: &Batches,
        hop: usize,
        samples: &mut [Sample],
        replies: &[Message],
    ) -> Result<()> {
        let mut of_batches = vec![Vec::with_capacity(replies.len()); samples.len()];
        for reply in replies {
            let mut rest: &[u32] = reply.as_slice()?;
            for of_batch in &mut of_batches {
                // A rank does not reply to itself.
                let (&length, after) = rest.split_first().unwrap_or((&0, &[]));
                let (lists, after) = after.split_at(length as usize);
                of_batch.push(lists);
                rest = after;
            }
        }
        let (numbers, own) = (&self.graph.numbers, self.graph.rank());
        let tasks = samples.par_iter_mut().zip(&batches.batches).zip(of_batches);
        tasks.for_each(|((sample, batch), mut lists)| {
            self.with_worker(|Worker { sampler, assembler, rows }| {
                rows.clear();
                let owned = sample.rows().iter().filter(|&&number| numbers.owns(own, number));
                rows.extend(owned.map(|&number| numbers.row(own, number)));
                sampler.start(batch.key, hop, rows);
                let mut at = 0;
                assembler.add_hop(sample, |number, list| {
                    if numbers.owns(own, number) {
                        sampler.draw(rows, at, list);
                        at += 1;
                        return;
                    }
                    let lists = &mut lists[numbers.owner(number)];
                    let (&count, after) = lists.split_first().expect("a reply to every request");
                    let (neighbors, after) = after.split_at(count as usize);
                    list.extend_from_slice(neighbors);
                    *lists = after;
                });
            });
        });
        Ok(())
    }

    fn with_worker<R>(&self, work: impl FnOnce(&mut Worker<'s>) -> R) -> R {
        let lock = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = lock().pop();
        let mut worker = spare.unwrap_or_else(|| Worker {
            sampler: OwnedSampler::new(&self.graph.neighbors, &self.graph.spec, &self.graph.row_numbers),
            assembler: Assembler::new(self.graph.numbers.nodes()),
            rows: Vec::new(),
        });
        let result = work(&mut worker);
        lock().push(worker);
        result
    }
}

/// Encodes a number of rows or neighbours.
fn count(number: usize) -> u32 {
    u32::try_from(number).expect("lists of a batch have fewer than 2^32 entries")
}
