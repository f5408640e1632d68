//! Samples batches together with the other ranks: each rank draws the neighbours of those vertices of a batch that it owns.
//! Both the reader and the owner of a row learn of it, so the lists of a hop are also the exchange of its layer.

use halograph_comm::{Message, Purpose};
use halograph_graph::sample::{DrawnHop, OwnedSampler, Sample, SplitAssembler};
use rayon::prelude::*;

use crate::config::Config;
use crate::error::Result;
use crate::strategy::batches::ranks::{
    Batches, RankGraph, Relay, Workers, owned_rows_by_batch, rows_by_batch,
};

/// Samples the part of each batch that a rank owns.
pub struct SplitRelay<'s> {
    graph: &'s RankGraph<'s>,
    /// Hops whose remote rows are exchanged; those of a deeper one are fetched as inputs.
    exchanged: usize,
    workers: Workers<Worker<'s>>,
}

/// Memory of one sampling thread.
struct Worker<'s> {
    sampler: OwnedSampler<'s>,
    assembler: SplitAssembler,
}

impl<'s> SplitRelay<'s> {
    /// Creates a relay.
    pub fn new(config: &Config, graph: &'s RankGraph<'s>) -> Self {
        SplitRelay { graph, exchanged: config.exchanged_hops(), workers: Workers::default() }
    }

    /// Tells the owners of drawn rows which of them are read. Collective; blocks. Returns for each batch and rank the own rows
    /// that it reads.
    fn exchange<'m>(
        &self,
        batches: &Batches,
        hop: usize,
        drawn: &[DrawnHop],
        messages: &'m mut Vec<Message>,
    ) -> Result<Vec<Vec<&'m [u32]>>> {
        let (graph, ranks) = (self.graph, self.graph.comm.size());
        let of_batch = |drawn: &DrawnHop| {
            let mut rows = vec![Vec::new(); ranks];
            for &row in drawn.halo_rows() {
                let number = graph.row_numbers[row as usize];
                let owner = graph.numbers.owner(number);
                rows[owner].push(graph.numbers.row(owner, number));
            }
            rows
        };
        let rows: Vec<Vec<Vec<u32>>> = drawn.par_iter().map(of_batch).collect();
        let tag = batches.tag(Purpose::Sampling).layer(hop as u16);
        *messages = graph.exchange(tag, rows_by_batch(&rows, ranks))?;
        let mut requested = vec![Vec::with_capacity(ranks); drawn.len()];
        let owned = graph.runs[graph.rank()].len();
        for (from, message) in messages.iter().enumerate() {
            let lists = owned_rows_by_batch(message, drawn.len(), from, owned)?;
            requested.iter_mut().zip(lists).for_each(|(requested, rows)| requested.push(rows));
        }
        Ok(requested)
    }

    fn with_worker<R>(&self, work: impl FnOnce(&mut Worker<'s>) -> R) -> R {
        let graph = self.graph;
        let new = || Worker {
            sampler: OwnedSampler::new(&graph.neighbors, &graph.spec, None),
            assembler: SplitAssembler::new(graph.row_numbers.len(), graph.runs[graph.rank()].len()),
        };
        self.workers.with(new, work)
    }
}

impl Relay for SplitRelay<'_> {
    fn sample(&self, batches: &Batches) -> Result<(Vec<Sample>, u64)> {
        let graph = self.graph;
        let mut samples: Vec<Sample> =
            batches.batches.iter().map(|batch| Sample::of_seeds(batch.rows.clone())).collect();
        for hop in 0..self.exchanged {
            let draws = samples.par_iter().zip(&batches.batches);
            let drawn: Vec<DrawnHop> = draws
                .map(|(sample, batch)| {
                    self.with_worker(|worker| worker.assembler.draw(&mut worker.sampler, batch.key, sample))
                })
                .collect();
            let mut messages = Vec::new();
            let requested = self.exchange(batches, hop, &drawn, &mut messages)?;
            samples.par_iter_mut().zip(drawn).zip(requested).for_each(|((sample, drawn), requested)| {
                self.with_worker(|Worker { assembler, .. }| {
                    assembler.finish(sample, drawn, &graph.neighbors, &requested, &graph.runs);
                });
            });
        }
        if self.reads_remote_inputs() {
            samples.par_iter_mut().zip(&batches.batches).for_each(|(sample, batch)| {
                self.with_worker(|worker| {
                    worker.assembler.add_inputs(&mut worker.sampler, batch.key, sample)
                });
            });
        }
        samples.par_iter_mut().for_each(|sample| sample.renumber(|row| graph.row_numbers[row as usize]));
        Ok((samples, self.exchanged as u64))
    }

    fn reads_remote_inputs(&self) -> bool {
        self.exchanged < self.graph.spec.fanouts.len()
    }
}
