//! A trained model on a graph in parts.

use std::path::Path;

use halograph_comm::{self as comm, handshake};
use halograph_graph::partition::Shard;
use halograph_kernels::Real;
use halograph_nn::{Input, Model};

use super::{all, options};
use crate::boundary::{Peers, RankLink};
use crate::config::{Config, GraphOptions, TrainConfig};
use crate::data::{Preprocessing, ShardData};
use crate::error::Result;
use crate::evaluation::{Detail, Evaluated, scores_on_ranks, stage_output_on_ranks};
use crate::pool::{in_pool, threads};
use crate::tags::Evaluation;

/// Shards that a trained model is applied to, on ranks that are threads of this process.
pub(crate) struct TrainedShards<'a> {
    /// The folder of shards.
    pub shards: &'a Path,
    pub config: &'a Config,
    pub preprocessing: Preprocessing,
}

impl TrainedShards<'_> {
    /// Calls `work` on one rank per part.
    fn on_threads<R: Send>(&self, work: impl Fn(&RankLink, &Shard) -> Result<R> + Sync) -> Result<Vec<R>> {
        let parts = Shard::describe(self.shards, 0)?.partition.parts as usize;
        let train = TrainConfig { ranks: parts, ..self.config.train.clone() };
        let threads = threads(&train);
        let results = comm::threads::run(parts, &options(&train), |comm| {
            in_pool(threads, || {
                let shard = Shard::open(self.shards, comm.rank() as u32)?;
                handshake(comm, &[("layout of parts", shard.partition().layout.clone())])?;
                work(&RankLink::new(comm, true), &shard)
            })
        });
        all(results)
    }

    /// Scores `model`; `None` if its outputs are not finite.
    pub(crate) fn scores<T: Real>(&self, model: &Model<T>) -> Result<Option<Evaluated>> {
        let mut found = self.on_threads(|link, shard| {
            let graphs = self.config.graphs();
            let data = ShardData::load(shard, link, graphs, self.preprocessing.clone(), model.hops())?;
            let data = data.with_objective(&self.config.train, link)?;
            data.prepare(link, model)?;
            scores_on_ranks(model, &data, link, 0, Detail::Classes)
        })?;
        Ok(found.swap_remove(0))
    }

    /// Evaluates the first `count` stages of `model` on every node: returns dataset ids and rows of each part.
    pub(crate) fn stage_output<T: Real>(
        &self,
        model: &Model<T>,
        count: usize,
    ) -> Result<Vec<(Vec<u32>, Input<T>)>> {
        self.on_threads(|link, shard| {
            let graphs = GraphOptions { inductive: false, ..self.config.graphs() };
            let data = ShardData::load(shard, link, graphs, self.preprocessing.clone(), model.hops())?;
            data.prepare(link, model)?;
            let (view, block) = data.train();
            let peers = Peers::forward_only(link, Evaluation::Rows.tag(0, 0));
            Ok((data.ids(), stage_output_on_ranks(model, view, block, peers, count)?))
        })
    }
}
