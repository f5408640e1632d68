//! Samples the batches of a macrobatch together with the other ranks: each rank draws the neighbours of the vertices that it
//! owns, for its own batches and on request of the others.
//!
//! ```text
//! hop 1            seeds are owned: drawn without communication
//! each further hop requests: rows of the owner, batch by batch          one all-to-all
//!                  replies:  their drawn neighbours, as numbers, and    one all-to-all
//!                            the weights of the edges, if there are any
//! ```

use halograph_comm::{Message, Purpose};
use halograph_graph::sample::{Assembler, DrawnEdges, OwnedSampler, Sample};
use rayon::prelude::*;

use crate::error::Result;
use crate::strategy::batches::ranks::{
    BatchSeeds, Batches, RankGraph, Relay, Workers, count, lists_by_batch, owned_rows_by_batch, rows_by_batch,
};

/// Slots of the messages of a hop.
const REQUEST: u8 = 0;
const REPLY: u8 = 1;

/// Samples whole batches for the seeds of each rank.
pub struct DataParallelRelay<'s> {
    graph: &'s RankGraph<'s>,
    workers: Workers<Worker<'s>>,
}

/// Memory of one sampling thread.
struct Worker<'s> {
    sampler: OwnedSampler<'s>,
    assembler: Assembler,
    /// Owned rows of a batch.
    rows: Vec<u32>,
}

impl Relay for DataParallelRelay<'_> {
    fn sample(&self, batches: &Batches) -> Result<(Vec<Sample>, u64)> {
        let graph = self.graph;
        let seeds = batches.batches.iter().map(|batch| graph.numbers_of(&batch.rows));
        let mut samples: Vec<Sample> = seeds.map(Sample::of_seeds).collect();
        let mut relays = 0;
        for hop in 0..graph.spec.fanouts.len() {
            let mut replies = Vec::new();
            if hop > 0 {
                let tag = batches.tag(Purpose::Sampling).layer(hop as u16);
                let asked = graph.exchange(tag.slot(REQUEST), self.requests(&samples))?;
                let draw = |(from, request)| self.reply(batches, hop, from, request);
                let drawn = asked.par_iter().enumerate().map(draw).collect::<Result<_>>()?;
                replies = graph.exchange(tag.slot(REPLY), drawn)?;
                relays += 2;
            }
            self.assemble(batches, hop, &mut samples, &replies)?;
        }
        Ok((samples, relays))
    }

    fn reads_remote_inputs(&self) -> bool {
        // Without a sampled hop, all rows are seeds, which are owned.
        !self.graph.spec.fanouts.is_empty()
    }
}

impl<'s> DataParallelRelay<'s> {
    /// Creates a relay.
    pub fn new(graph: &'s RankGraph<'s>) -> Self {
        DataParallelRelay { graph, workers: Workers::default() }
    }

    /// Asks the other ranks for the neighbours of the rows that they own.
    fn requests(&self, samples: &[Sample]) -> Vec<Message> {
        let (numbers, own, ranks) = (&self.graph.numbers, self.graph.rank(), self.graph.comm.size());
        let of_batch = |sample: &Sample| {
            let mut rows = vec![Vec::new(); ranks];
            for &number in sample.rows().iter().filter(|&&number| !numbers.owns(own, number)) {
                let owner = numbers.owner(number);
                rows[owner].push(numbers.row(owner, number));
            }
            rows
        };
        let batches: Vec<Vec<Vec<u32>>> = samples.par_iter().map(of_batch).collect();
        rows_by_batch(&batches, ranks)
    }

    /// Draws the neighbours of rows that rank `from` requests: for each batch the length of its part, then for each row their
    /// count and numbers, and the weights of the edges, if there are any.
    fn reply(&self, batches: &Batches, hop: usize, from: usize, request: &Message) -> Result<Message> {
        let owned = self.graph.runs[self.graph.rank()].len();
        let requested = owned_rows_by_batch(request, batches.batches.len(), from, owned)?;
        let of_batch = |(batch, rows): (&BatchSeeds, &&[u32])| {
            let (mut lists, mut drawn) = (vec![0], DrawnEdges::default());
            self.with_worker(|worker| {
                worker.sampler.start(batch.key, hop, rows);
                for at in 0..rows.len() {
                    drawn.clear();
                    worker.sampler.draw(rows, at, &mut drawn);
                    lists.push(count(drawn.sources.len()));
                    lists.extend_from_slice(&drawn.sources);
                    lists.extend(drawn.weights.iter().map(|weight| weight.to_bits()));
                }
            });
            lists[0] = count(lists.len() - 1);
            lists
        };
        let parts: Vec<Vec<u32>> =
            batches.batches.par_iter().zip(requested.par_iter()).map(of_batch).collect();
        Ok(Message::of(&parts.concat()))
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
        for (from, reply) in replies.iter().enumerate() {
            let parts = lists_by_batch(reply, of_batches.len(), from)?;
            of_batches.iter_mut().zip(parts).for_each(|(of_batch, part)| of_batch.push(part));
        }
        let (numbers, own) = (&self.graph.numbers, self.graph.rank());
        let is_weighted = self.graph.neighbors.has_weights();
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
                    let (weights, after) = after.split_at(if is_weighted { count as usize } else { 0 });
                    list.append(neighbors, weights.iter().map(|&bits| f32::from_bits(bits)));
                    *lists = after;
                });
            });
        });
        Ok(())
    }

    fn with_worker<R>(&self, work: impl FnOnce(&mut Worker<'s>) -> R) -> R {
        let new = || Worker {
            sampler: OwnedSampler::new(
                &self.graph.neighbors,
                &self.graph.spec,
                Some(&self.graph.row_numbers),
            ),
            assembler: Assembler::new(self.graph.numbers.nodes()),
            rows: Vec::new(),
        };
        self.workers.with(new, work)
    }
}
