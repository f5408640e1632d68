//! A trained model on a graph in parts.

use std::path::Path;

use halograph_comm::{self as comm, Purpose, Tag, handshake};
use halograph_graph::partition::Shard;
use halograph_kernels::Real;
use halograph_nn::Model;

use super::engine::scores;
use super::{all, options};
use crate::config::{Config, TrainConfig};
use crate::data::Scaling;
use crate::data::part::Part;
use crate::error::Result;
use crate::event::Scores;
use crate::strategy::partition::{self, Rank};
use crate::strategy::single::Output;
use crate::trainer::{in_pool, threads};

/// What is done with a trained model on each part of a graph.
pub(crate) struct Use<'a> {
    /// The parts.
    pub shards: &'a Path,
    pub config: &'a Config,
    pub scaling: Scaling,
}

impl Use<'_> {
    /// Calls `work` on ranks that are threads of this process, one for each part.
    fn on_threads<R: Send>(&self, work: impl Fn(&Rank, &Shard) -> Result<R> + Sync) -> Result<Vec<R>> {
        let parts = Shard::describe(self.shards, 0)?.whole.parts as usize;
        let train = TrainConfig { ranks: parts, ..self.config.train.clone() };
        let threads = threads(&train);
        let results = comm::threads::run(parts, &options(&train), |comm| {
            in_pool(threads, || {
                let shard = Shard::open(self.shards, comm.rank() as u32)?;
                handshake(comm, &[("layout of parts", shard.whole().layout.clone())])?;
                work(&Rank::new(comm, true), &shard)
            })
        });
        all(results)
    }

    /// Scores of `model`; nothing if its outputs are not finite.
    pub(crate) fn scores<T: Real>(&self, model: &Model<T>) -> Result<Option<Scores>> {
        let found = self.on_threads(|rank, shard| {
            let inductive = self.config.data.inductive;
            let part = Part::load(shard, rank, inductive, self.scaling.clone(), model.hops())?;
            part.make_sums(rank, model)?;
            scores(&part, rank, shard.whole().dataset.metric, model, 0)
        })?;
        Ok(found[0])
    }

    /// What `model` says of every node: dataset ids and outputs of each part.
    pub(crate) fn outputs<T: Real>(&self, model: &Model<T>) -> Result<Vec<(Vec<u32>, Output<T>)>> {
        self.on_threads(|rank, shard| {
            let part = Part::load(shard, rank, false, self.scaling.clone(), model.hops())?;
            part.make_sums(rank, model)?;
            let (ids, view, shared) = part.seen();
            let tag = Tag::new(Purpose::Evaluation);
            Ok((ids, partition::evaluate(model, view, shared, rank, tag)?))
        })
    }
}
