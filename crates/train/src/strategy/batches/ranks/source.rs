//! What the batches of a rank are sampled from, and the input rows that it serves to the others.

use std::ops::Range;

use halograph_comm::{Comm, Message, Priority, Tag};
use halograph_graph::block::Block;
use halograph_graph::error::Error as InputError;
use halograph_graph::partition::Shard;
use halograph_graph::sample::{Neighbors, RankNumbers, SampleSpec};
use halograph_kernels::Real;
use halograph_nn::Model;

use super::super::{Seeds, Shuffled};
use super::relay::{BatchSeeds, Batches};
use super::rows::InputRows;
use crate::boundary::RankLink;
use crate::config::Config;
use crate::data::ShardData;
use crate::error::Result;
use crate::tags::Setup;

/// The part of the graph that a rank owns, as all ranks sample from it.
pub struct RankGraph<'s> {
    pub(crate) comm: Comm,
    /// Numbers of the vertices of all ranks; rows of a rank are those of its shard.
    pub(crate) numbers: RankNumbers,
    /// Number of each row of the shard.
    pub(crate) row_numbers: Vec<u32>,
    /// Rows of the shard that each rank owns; its own ones are the first.
    pub(crate) runs: Vec<Range<usize>>,
    pub(crate) neighbors: Neighbors<'s>,
    pub(crate) spec: SampleSpec,
    pub(in crate::strategy) seeds: Seeds,
}

impl<'s> RankGraph<'s> {
    /// Lists the neighbours of the owned rows of `graph`; copies its edges. `training`: the training rows of the shard.
    /// Collective; blocks.
    pub fn new(
        config: &Config,
        shard: &Shard,
        graph: &'s Block<'s>,
        training: Vec<u32>,
        comm: &Comm,
    ) -> Result<Self> {
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
        let seeds = Seeds::on_ranks(&config.train, training, shard.ids(), comm)?;
        if seeds.batches() == 0 {
            let error = InputError::input("shards", "no training node has a label");
            return Err(error.help("import the data with labels and a split, and partition it again").into());
        }
        let spec = SampleSpec { kind: config.train.sampler, fanouts: config.sampled_fanouts() };
        Ok(RankGraph {
            comm: comm.clone(),
            numbers,
            row_numbers,
            runs: (0..comm.size() as u32).map(|owner| shard.rows_of(owner)).collect(),
            neighbors: Neighbors::of(graph),
            spec,
            seeds,
        })
    }

    /// Returns the rank of this process.
    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// Returns the numbers of owned rows.
    pub fn numbers_of(&self, rows: &[u32]) -> Vec<u32> {
        rows.iter().map(|&row| self.row_numbers[row as usize]).collect()
    }

    /// Sends messages to all ranks and returns theirs, behind urgent ones. Collective; blocks.
    pub fn exchange(&self, tag: Tag, messages: Vec<Message>) -> Result<Vec<Message>> {
        Ok(self.comm.all_to_all_with(tag, Priority::Background, messages)?)
    }

    /// Returns `count` batches of a shuffled epoch, from `first`.
    pub(in crate::strategy) fn batches(
        &self,
        shuffled: &Shuffled,
        epoch: u64,
        first: u64,
        count: u64,
    ) -> Batches {
        let batch = |step: u64| {
            let (positions, rows) = self.seeds.batch(shuffled, step);
            let key = self.seeds.sample_key(epoch, step);
            let weight = self.seeds.weight(shuffled, step);
            BatchSeeds { key, positions, rows, of_all_ranks: self.seeds.size(step), weight }
        };
        Batches { epoch, first, batches: (first..first + count).map(batch).collect() }
    }
}

/// The part of a rank: its graph and its input rows.
pub struct RankSource<'s, T: Real> {
    pub(super) graph: RankGraph<'s>,
    pub(super) rows: InputRows<'s, T>,
    /// Batches are prepared up to this epoch.
    pub(super) epochs: u64,
    pub(super) caches_aggregate: bool,
}

impl<'s, T: Real> RankSource<'s, T> {
    /// Returns the part of the graph that batches are sampled from.
    pub fn graph(&self) -> &RankGraph<'s> {
        &self.graph
    }

    /// Takes the rows of `data`, which was prepared for `model`; `graph` is [`ShardData::sampled_graph`]. Collective; blocks.
    pub fn new(
        config: &Config,
        model: &Model<T>,
        data: &'s ShardData<'s, T>,
        graph: &'s Block<'s>,
        link: &RankLink,
    ) -> Result<Self> {
        let caches_aggregate = config.train.cache_input_aggregate;
        let mut sampled = RankGraph::new(config, data.shard(), graph, data.training_rows(), &link.comm)?;
        if let Some(weights) = data.rows[0].weights(data.objective.weights()) {
            sampled.seeds.set_weights(&weights, &link.comm)?;
        }
        Ok(RankSource {
            graph: sampled,
            rows: InputRows::new(model, data, graph, caches_aggregate),
            epochs: config.train.epochs,
            caches_aggregate,
        })
    }
}
