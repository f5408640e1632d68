//! What the batches of a rank are sampled from, and the input rows that it serves to the others.

use halograph_comm::{Comm, Message, Priority, Tag};
use halograph_graph::block::Block;
use halograph_graph::sample::{Neighbors, RankNumbers, SampleSpec};
use halograph_kernels::Real;
use halograph_nn::Model;

use super::super::seeds::Seeds;
use super::relay::{BatchSeeds, Batches};
use super::rows::OwnedRows;
use crate::boundary::RankLink;
use crate::config::Config;
use crate::data::ShardData;
use crate::error::Result;
use crate::tags::Setup;

/// The part of a rank, as the others sample from it.
pub struct RankSource<'s, T: Real> {
    pub(super) comm: Comm,
    /// Numbers of the vertices of all ranks; rows of a rank are those of its shard.
    pub(super) numbers: RankNumbers,
    /// Number of each row of the shard.
    pub(super) row_numbers: Vec<u32>,
    pub(super) neighbors: Neighbors<'s>,
    pub(super) spec: SampleSpec,
    pub(super) rows: OwnedRows<'s, T>,
    pub(super) seeds: Seeds,
    /// Batches are prepared up to this epoch.
    pub(super) epochs: u64,
    pub(super) caches_aggregate: bool,
}

impl<'s, T: Real> RankSource<'s, T> {
    /// Lists the neighbours of the owned rows of `graph`, which is [`ShardData::sampled_graph`]; copies its edges. `data` has
    /// been prepared. Collective; blocks.
    pub fn new(
        config: &Config,
        model: &Model<T>,
        data: &'s ShardData<'s, T>,
        graph: &'s Block<'s>,
        link: &RankLink,
    ) -> Result<Self> {
        let (comm, shard) = (&link.comm, data.shard());
        let mut counts = Vec::new();
        let own = Message::of(&[shard.owned() as u64]);
        for message in comm.all_gather(Setup::OwnedCounts.tag(), own)? {
            counts.push(message.expect::<u64>(1)?[0]);
        }
        let numbers = RankNumbers::new(&counts);
        let mut row_numbers: Vec<u32> =
            (0..shard.owned() as u32).map(|row| numbers.number(comm.rank(), row)).collect();
        for owner in (0..comm.size()).filter(|&owner| owner != comm.rank()) {
            let homes = shard.homes(owner as u32).iter();
            row_numbers.extend(homes.map(|&row| numbers.number(owner, row)));
        }
        let caches_aggregate = config.train.cache_input_aggregate;
        Ok(RankSource {
            comm: comm.clone(),
            numbers,
            row_numbers,
            neighbors: Neighbors::of(graph),
            spec: SampleSpec { kind: config.train.sampler, fanouts: config.sampled_fanouts() },
            rows: OwnedRows::new(model, data, graph, caches_aggregate),
            seeds: Seeds::on_ranks(&config.train, data.training_rows(), shard.ids(), comm)?,
            epochs: config.train.epochs,
            caches_aggregate,
        })
    }

    /// Returns the rank of this process.
    pub(super) fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// Returns the numbers of owned rows.
    pub(super) fn numbers_of(&self, rows: &[u32]) -> Vec<u32> {
        rows.iter().map(|&row| self.row_numbers[row as usize]).collect()
    }

    /// Sends messages to all ranks and returns theirs, behind urgent ones. Collective; blocks.
    pub(super) fn exchange(&self, tag: Tag, messages: Vec<Message>) -> Result<Vec<Message>> {
        Ok(self.comm.all_to_all_with(tag, Priority::Background, messages)?)
    }

    /// Returns `count` batches of a shuffled epoch, from `first`.
    pub(super) fn batches(&self, shuffled: &[u32], epoch: u64, first: u64, count: u64) -> Batches {
        let batch = |step: u64| {
            let (positions, rows) = self.seeds.batch(shuffled, step);
            let key = self.seeds.sample_key(epoch, step);
            BatchSeeds { key, positions, rows, of_all_ranks: self.seeds.size(step) }
        };
        Batches { epoch, first, batches: (first..first + count).map(batch).collect() }
    }
}
