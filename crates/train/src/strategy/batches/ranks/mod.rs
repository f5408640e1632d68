//! Mini-batches on ranks that own parts of the graph. Each rank samples the neighbours of its own vertices; how samples of a
//! batch are assembled from that is a [`Relay`].
//!
//! ```text
//! loader    for each macrobatch of W batches: sample them; fetch the distinct remote input rows that are not kept, two
//!           all-to-alls
//! step      wait for the batch; forward; loss of the seeds; backward; sum gradients over ranks; meanwhile, gather the input rows
//!           of the next batch
//! ```
//!
//! Which vertices are sampled does not depend on ranks or W, and nothing is stale: losses are those of one process, up to
//! rounding. A rank without seeds in a batch takes part with an empty one.

mod budget;
mod cache;
mod fetch;
mod loader;
mod relay;
mod rows;
mod source;
#[cfg(test)]
mod tests;

use std::thread::Scope;
use std::time::{Duration, Instant};

use halograph_comm::Comm;
use halograph_graph::partition::Shard;
use halograph_kernels::{Real, buffer};
use halograph_nn::Model;

use self::budget::MacrobatchPlan;
pub(crate) use self::budget::{MOST_COMING, ROW_COPIES, SAMPLE_COPIES};
use self::cache::KeptRows;
use self::fetch::Fetcher;
use self::loader::{MacrobatchLoader, Preparation, RankBatch};
pub use self::relay::{
    BatchSeeds, Batches, Relay, Workers, count, lists_by_batch, owned_rows_by_batch, rows_by_batch,
};
pub use self::source::{RankGraph, RankSource};
use super::{position, stage_blocks};
use crate::boundary::{Fresh, Peers, RankLink};
use crate::config::{Config, TrainConfig};
use crate::data::{ShardData, sampled_graph, training_rows};
use crate::error::Result;
use crate::evaluation::{self, Detail, Evaluated};
use crate::requests::Requests;
use crate::stage::{ModelInput, StageRunner};
use crate::strategy::ranked_step::{RankedStep, StepRows};
use crate::strategy::{Step, StepOutcome, Strategy};
use crate::summary::{BatchTotals, FetchTotals};
use crate::traffic::{StepMeter, gather_batches};

/// Creates the relay of a strategy.
pub type NewRelay = for<'g> fn(&Config, &'g RankGraph<'g>) -> Box<dyn Relay + 'g>;

/// Checks that `train.batch_memory` suffices for the batches of a run, whose input rows have about `row_bytes`. Collective;
/// blocks.
pub(crate) fn check_batch_memory(
    config: &Config,
    shard: &Shard,
    row_bytes: usize,
    comm: &Comm,
    relay: NewRelay,
) -> Result<()> {
    let graph = sampled_graph(shard, config.graphs());
    let graph = RankGraph::new(config, shard, &graph, training_rows(shard), comm)?;
    MacrobatchPlan::new(&config.train, &graph, &*relay(config, &graph), row_bytes).map(drop)
}

/// Training on sampled mini-batches of a shard.
pub struct RankBatches<'scope, 'env, 's, T: Real> {
    data: &'s ShardData<'s, T>,
    source: &'s RankSource<'s, T>,
    link: &'s RankLink,
    meter: &'s StepMeter,
    scope: &'scope Scope<'scope, 'env>,
    threads: usize,
    /// Until the first step.
    preparation: Option<Preparation<'s, T>>,
    /// From the first step.
    loader: Option<MacrobatchLoader>,
    /// Inputs of the next batch, if they have been gathered.
    coming_input: Option<ModelInput<T>>,
    totals: BatchTotals,
    fetches: FetchTotals,
}

impl<'scope, 'env, 's: 'scope, T: Real> RankBatches<'scope, 'env, 's, T> {
    /// Plans macrobatches within the memory of `train`. Batches are prepared on a thread of `scope`. Collective; blocks.
    pub fn new(
        train: &TrainConfig,
        relay: Box<dyn Relay + 's>,
        data: &'s ShardData<'s, T>,
        source: &'s RankSource<'s, T>,
        (link, meter): (&'s RankLink, &'s StepMeter),
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<Self> {
        let row_bytes = source.rows.row_bytes();
        let plan = MacrobatchPlan::new(train, &source.graph, &*relay, row_bytes)?;
        let nodes = source.graph.numbers.nodes();
        let kept = KeptRows::new(train.row_cache, nodes, plan.kept_rows, row_bytes);
        let fetcher = Fetcher::new(source, kept);
        let totals = BatchTotals { per_epoch: source.graph.seeds.batches(), ..BatchTotals::default() };
        let fetches = FetchTotals {
            macrobatch: plan.macrobatch,
            row_bytes: row_bytes as u64,
            kept_rows: plan.kept_rows as u64,
            coming: plan.coming as u64,
            ..FetchTotals::default()
        };
        Ok(RankBatches {
            data,
            source,
            link,
            meter,
            scope,
            threads: rayon::current_num_threads(),
            preparation: Some(Preparation::new(source, relay, fetcher, plan)),
            loader: None,
            coming_input: None,
            totals,
            fetches,
        })
    }

    /// Returns the totals of all steps of all ranks so far. Collective; blocks.
    pub fn totals(&self) -> Result<(BatchTotals, FetchTotals)> {
        gather_batches(&self.link.comm, self.totals, self.fetches)
    }

    /// Runs forward, loss and backward of one batch; sums its loss and gradients over ranks. Meanwhile, gathers the inputs of
    /// the next batch, if that is prepared. Collective; blocks.
    fn compute(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        batch: &RankBatch,
        input: ModelInput<T>,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let peers = Peers::training(self.link, step.epoch, step.step);
        let seeds = self.data.rows[0].select(&batch.seeds.positions);
        let shape = (seeds.rows.len(), self.source.caches_aggregate);
        let blocks = stage_blocks(model, &batch.sample, shape, |hop| batch.exchanges[hop].clone());
        let mut halo = Fresh;
        let mut runner = StageRunner::new(Some(step.key), Some(batch.sample.ids()), Some(peers), &mut halo);
        let BatchSeeds { of_all_ranks: count, weight, .. } = batch.seeds;
        let objective = &self.data.objective;
        let divisor =
            weight.or_else(|| objective.divisor_of_count(count)).expect("weighted seeds have weights");
        let rows = StepRows { own: &seeds, count, divisor };
        let ranked = RankedStep { peers, blocks: &blocks, rows, weights: objective.weights() };
        let (started, exposed) = (Instant::now(), self.link.comm.waited());
        let mut gathered = Duration::ZERO;
        let outcome = ranked.run(&mut runner, model, input, requests, || {
            let started = Instant::now();
            if let Some((batch, rows)) = self.loader.as_ref().and_then(MacrobatchLoader::coming) {
                let gather = || self.source.rows.gather(&batch.inputs, &rows.bytes);
                self.coming_input = Some(peers.timed("gather", gather));
            }
            gathered = started.elapsed();
        })?;
        let exposed = self.link.comm.waited() - exposed;
        self.totals.gather_seconds += gathered.as_secs_f64();
        self.totals.compute_seconds += started.elapsed().saturating_sub(exposed + gathered).as_secs_f64();
        Ok(outcome)
    }
}

impl<'scope, 's: 'scope, T: Real> Strategy<T> for RankBatches<'scope, '_, 's, T> {
    fn steps(&self) -> u64 {
        self.source.graph.seeds.batches()
    }

    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let measured = self.meter.start(self.link, step.epoch, step.step)?;
        let peers = Peers::training(self.link, step.epoch, step.step);
        peers.enter(0, "batch");
        if let Some(preparation) = self.preparation.take() {
            let at = (step.epoch, step.step);
            self.loader = Some(MacrobatchLoader::start(self.scope, preparation, self.threads, at));
        }
        let loader = self.loader.as_mut().expect("started at the first step");
        let started = Instant::now();
        let at = position("batch", step.epoch, step.step);
        let (batch, rows, counts) =
            self.link.wait_for("batch", at, move || loader.next(step.epoch, step.step))?;
        let waited = started.elapsed().as_secs_f64();
        peers.enter(0, "gather");
        let gather = || peers.timed("gather", || self.source.rows.gather(&batch.inputs, &rows.bytes));
        let input = self.coming_input.take().unwrap_or_else(gather);
        self.totals.gather_seconds += started.elapsed().as_secs_f64() - waited;
        self.totals.wait_seconds += waited;
        self.totals.add(&batch.sample);
        if let Some(counts) = counts {
            self.totals.sampling_seconds += counts.sampling_seconds;
            self.fetches.fetching_seconds += counts.fetching_seconds;
            self.fetches.relays += counts.relays;
            self.fetches.remote_rows += counts.fetched.remote_rows;
            self.fetches.fetched_rows += counts.fetched.fetched_rows;
            self.fetches.loaded_rows += counts.loaded_rows;
        }
        let outcome = self.compute(model, step, &batch, input, requests)?;
        drop(measured);
        Ok(outcome)
    }

    fn evaluate(&mut self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>> {
        // A full-graph pass needs other sizes than batches.
        buffer::release();
        let scores = evaluation::scores_on_ranks(model, self.data, self.link, epoch, detail);
        buffer::release();
        scores
    }

    fn agree(&mut self, requests: Requests) -> Result<Requests> {
        self.link.agree(requests)
    }
}
