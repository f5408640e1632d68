//! One rank of a run, from its shard to the summary.

use halograph_comm::{Comm, Message};
use halograph_graph::partition::Shard;
use halograph_kernels::Real;
use halograph_nn::Model;

use super::part::new_relay;
use super::sink::RankedRunSink;
use super::{Leader, Order, THREADS};
use crate::boundary::RankLink;
use crate::config::{Overlap, Precision, RowEncoding, StrategyKind, TrainConfig};
use crate::data::{Scaling, ShardData, fit_scaling};
use crate::error::{Error, Result};
use crate::event::{Observer, Point};
use crate::memory;
use crate::objective::check_divisor;
use crate::run::{self, Header, RunStore};
use crate::setup::{check_decays, new_model, optimizer_of};
use crate::strategy::Strategy;
use crate::strategy::batches::ranks::{RankBatches, RankSource};
use crate::strategy::chunks::{self, Chunked, Grid, Links};
use crate::strategy::partition::Partition;
use crate::strategy::pipelined::Pipelined;
use crate::strategy::vertex_parallel::VertexParallel;
use crate::summary::{Facts, PartFacts, PipelineFacts, Summary, Traffic};
use crate::tags::Control;
use crate::trace;
use crate::traffic::StepMeter;
use crate::trainer::{Learner, ResumePoint, Trainer};

/// The role of a rank.
pub(super) enum Role<'a> {
    /// Rank 0, which writes the run.
    Lead(Box<Leader<'a>>),
    /// Any other rank; its observer may request to stop.
    Follow(&'a mut dyn Observer),
}

/// One of the ranks of a run.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub comm: &'a Comm,
    pub order: Order<'a>,
    pub threads: usize,
    pub transport: &'static str,
}

impl Member<'_> {
    /// Trains on the part of this rank; rank 0 returns a summary. Collective; blocks.
    pub fn train(self, shard: &Shard, role: Role) -> Result<Option<Summary>> {
        match self.order.header.config.train.precision {
            Precision::F32 => self.train_in::<f32>(shard, role),
            Precision::F64 => self.train_in::<f64>(shard, role),
        }
    }

    fn train_in<T: Real>(self, shard: &Shard, role: Role) -> Result<Option<Summary>> {
        let (comm, Header { config, data: data_ref }) = (self.comm, self.order.header);
        let model: Model<T> = new_model(data_ref, config)?;
        check_decays(&config.train, &model)?;
        let link =
            RankLink::new(comm, config.train.overlap == Overlap::On).with_encoding(encoding(&config.train));
        if self.order.extras.trace.is_some() {
            comm.trace();
        }
        let splits_model = config.train.strategy.splits_model();
        let grid = splits_model.then(|| Grid::new(&link, config.stage_groups())).transpose()?;
        // The ranks that own the other parts.
        let parts = grid.as_ref().map_or(&link, |grid| &grid.link);
        let scaling = match &grid {
            // Only ranks of the first stages read features; rank 0 is one of them.
            Some(grid) if !grid.is_first() => Scaling::None,
            _ => fit_scaling(shard, parts, config.data.normalize)?,
        };
        let scaling_state = scaling.to_state();
        let hops = config.nested_hops().unwrap_or(0);
        let data = match &grid {
            Some(grid) => chunks::load(shard, grid, config, scaling, hops)?,
            None => ShardData::load(shard, &link, config.graphs(), scaling, hops)?,
        };
        let data = data.with_objective(&config.train, parts)?;
        check_divisor(data.divisors[0])?;
        let stages = grid.as_ref().map(|grid| chunks::plan(&model, &config.model, &data, grid.stages));
        let model = match (&grid, &stages) {
            (Some(grid), Some(stages)) => model.restricted_to(stages.groups[grid.stage].clone()),
            _ => model,
        };
        let optimizer = optimizer_of(&config.train, &model);
        data.prepare(parts, &model)?;
        let meter = StepMeter::new(self.order.extras.fault);

        let (mut run, from, observer) = match role {
            Role::Lead(leader) => {
                let Leader { run, from, observer, .. } = *leader;
                (Some(run), from, observer)
            }
            Role::Follow(observer) => (None, None, observer),
        };
        if let (Some(run), Some(numbers)) = (&mut run, &scaling_state) {
            run.save_scaling(numbers)?;
        }
        let layout = &shard.partition().layout;
        let train = |strategy: &mut dyn Strategy<T>, model: Model<T>| {
            let mut trainer = Trainer::new(config, strategy, Learner { model, optimizer });
            if let Some(from) = self.agree_on_start(from, layout)? {
                trainer.restore(from)?;
            }
            let mut sink = RankedRunSink::new(comm, reborrow(&mut run), self.order.directory, layout)?;
            trainer.run(&mut sink, observer)
        };
        let (outcome, batches) = if config.train.strategy.samples() {
            let graph = data.sampled_graph();
            let source = RankSource::new(config, &model, &data, &graph, &link)?;
            std::thread::scope(|scope| {
                let relay = new_relay(config, source.graph());
                let mut strategy =
                    RankBatches::new(&config.train, relay, &data, &source, (&link, &meter), scope)?;
                // Without a notice, the loaders of the other ranks would complete a macrobatch first, and so would this one.
                let outcome =
                    train(&mut strategy, model).inspect_err(|error| comm.fail(&error.to_string()))?;
                Ok::<_, Error>((outcome, Some(strategy.totals()?)))
            })?
        } else if let (Some(grid), Some(stages)) = (&grid, &stages) {
            let links = Links { world: &link, grid };
            let mut strategy = Chunked::new(config, &model, &data, links, stages, &meter)?;
            (train(&mut strategy, model)?, None)
        } else {
            let shard_rows = VertexParallel::new(&model, &data, &link, &meter)?;
            (train(&mut *vertex_strategy(&config.train, shard_rows), model)?, None)
        };
        let mut traffic = Traffic {
            transport: self.transport,
            ..meter.gather(comm, batches.map(|(totals, _)| totals.per_epoch))?
        };
        traffic.parts = gather_parts(&parts.comm, &data)?;
        if self.transport == THREADS {
            // All ranks are in one process.
            traffic.peak_rss_bytes = memory::peak_rss();
            traffic.cpu_seconds = traffic.cpu_seconds.map(|all| all / comm.size() as f64);
        }
        let objective = &data.objective;
        let facts = Facts { threads: self.threads, objective, outcome: &outcome, train: &config.train };
        let summary = Summary::new(facts, traffic).with_fetches(batches);
        let pipeline = match &stages {
            Some(stages) => Some(PipelineFacts::new(config, &stages.groups, &meter.gather_seconds(comm)?)),
            None => None,
        };
        let summary = summary.with_pipeline(pipeline);
        if let Some(run) = &mut run {
            run.finish(&serde_json::to_value(&summary).expect("numbers and names always serialise"))?;
        }
        // Last: the run is complete even if the trace cannot be written.
        if let Some(file) = self.order.extras.trace {
            trace::gather(comm, file, self.order.directory)?;
        }
        Ok(run.map(|_| summary))
    }

    /// Returns where this rank continues: rank 0 broadcasts the point, and this rank reads its own checkpoint file. Refuses
    /// parts of another `layout` than the run was trained on.
    /// Collective; blocks.
    pub(super) fn agree_on_start(
        self,
        from: Option<ResumePoint>,
        layout: &str,
    ) -> Result<Option<ResumePoint>> {
        let comm = self.comm;
        let root = |message: Message| (comm.rank() == 0).then_some(message);
        let start = from.as_ref().map(|from| (from.point(), from.evaluated()));
        let (at, evaluated) = start.unwrap_or((Point { epoch: 0, step: 0 }, false));
        let start = Message::of(&[at.epoch, at.step, evaluated as u64]);
        let start = comm.broadcast(Control::ResumePoint.tag(), 0, root(start))?;
        let &[epoch, step, evaluated] = start.expect::<u64>(3)? else { unreachable!("there are three") };
        if (epoch, step) == (0, 0) {
            return Ok(None);
        }
        let path = self.order.directory.expect("only a run with a directory is resumed");
        let at = Point { epoch, step };
        if comm.rank() == 0 {
            run::check_partition(path, at, layout)?;
        }
        let manifest = if comm.rank() == 0 { run::read_manifest(path, at)? } else { Vec::new() };
        let manifest = comm.broadcast(Control::ResumeManifest.tag(), 0, root(Message::of(&manifest)))?;
        let from = match from {
            Some(from) => from,
            None => {
                let manifest = manifest.as_slice::<u8>()?;
                let checkpoint = run::read_rank(path, at, comm.rank(), comm.size(), manifest)?;
                ResumePoint::without_history(checkpoint, evaluated != 0)
            }
        };
        // No rank continues, and later replaces the checkpoint, before all have read their files.
        comm.barrier(Control::ResumeReady.tag())?;
        Ok(Some(from))
    }
}

/// Returns how rows are sent in training.
fn encoding(train: &TrainConfig) -> RowEncoding {
    if train.strategy == StrategyKind::Split { train.row_encoding } else { RowEncoding::Dense }
}

/// Creates the configured strategy for ranks that own vertices.
fn vertex_strategy<'s, T: Real>(
    config: &TrainConfig,
    shard: VertexParallel<'s, T>,
) -> Box<dyn Strategy<T> + 's> {
    match config.strategy {
        StrategyKind::Pipelined => Box::new(Pipelined::new(shard, config)),
        StrategyKind::Single | StrategyKind::Partition => Box::new(Partition(shard)),
        StrategyKind::Minibatch | StrategyKind::Split => {
            unreachable!("RankBatches is created with the thread of its loader")
        }
        StrategyKind::Layers | StrategyKind::Hybrid => unreachable!("their ranks own stages"),
    }
}

/// Gathers the sizes of the parts of all ranks. Collective; blocks.
fn gather_parts<T: Real>(comm: &Comm, data: &ShardData<T>) -> Result<Vec<PartFacts>> {
    let shard = data.shard();
    let (nodes, rows) = (shard.owned() as u64, shard.rows() as u64);
    let edges = shard.edges().indices.len() as u64;
    let own = [nodes, data.rows[0].count(), edges, rows - nodes];
    let read = |message: Message| {
        let &[nodes, train, edges, halo] = message.expect::<u64>(4)? else { unreachable!("there are four") };
        Ok(PartFacts { nodes, train, edges, halo })
    };
    comm.all_gather(Control::PartSizes.tag(), Message::of(&own))?.into_iter().map(read).collect()
}

/// Lends the run of rank 0 for a shorter time.
fn reborrow<'b>(run: &'b mut Option<&mut (dyn RunStore + '_)>) -> Option<&'b mut dyn RunStore> {
    match run {
        Some(run) => Some(&mut **run),
        None => None,
    }
}
