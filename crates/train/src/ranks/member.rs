//! One of the ranks of a run, from its part of the graph to the summary.

use halograph_comm::{Comm, Message, Purpose, Tag, handshake};
use halograph_graph::partition::Shard;
use halograph_kernels::Real;
use halograph_nn::Model;

use super::engine::Together;
use super::meter::Meter;
use super::shelf::Shelf;
use super::{Leader, Order, Role, THREADS};
use crate::config::{Overlap, Precision};
use crate::data::part::{Part, fit_scaling};
use crate::error::Result;
use crate::evaluation::new_model;
use crate::memory;
use crate::run;
use crate::strategy::partition::Rank;
use crate::strategy::pipelined::{Boundary, Schedule};
use crate::summary::{Facts, PartFacts, Summary, Traffic};
use crate::trace;
use crate::trainer::{Standing, Trainer, new_optimizer};

/// One of the ranks of a run.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    pub comm: &'a Comm,
    pub order: Order<'a>,
    pub threads: usize,
    pub transport: &'static str,
}

impl Member<'_> {
    /// Trains on its part; rank 0 gives a summary.
    pub fn train(self, shard: &Shard, role: Role) -> Result<Option<Summary>> {
        match self.order.config.train.precision {
            Precision::F32 => self.train_in::<f32>(shard, role),
            Precision::F64 => self.train_in::<f64>(shard, role),
        }
    }

    fn train_in<T: Real>(self, shard: &Shard, role: Role) -> Result<Option<Summary>> {
        self.shake_hands(shard)?;
        let (comm, config) = (self.comm, self.order.config);
        let model: Model<T> = new_model(self.order.data, config)?;
        let optimizer = new_optimizer(&config.train, &model)?;
        let rank = Rank::new(comm, config.train.overlap == Overlap::On);
        if self.order.extras.trace.is_some() {
            comm.trace();
        }
        let scaling = fit_scaling(shard, &rank, config.data.normalize)?;
        let numbers = scaling.to_state();
        let part = Part::load(shard, &rank, config.data.inductive, scaling, model.hops())?;
        part.make_sums(&rank, &model)?;
        let plan = part.plan(&rank, &model)?;
        let meter = Meter::new(&rank);
        let metric = shard.whole().dataset.metric;
        let fault = self.order.extras.fault;
        let measures = config.train.measure_staleness;
        let boundary = Boundary::new(Schedule::of(&config.train), model.stages.len(), measures);
        let engine = Together { part: &part, plan, boundary, rank, metric, meter, fault };
        let mut trainer = Trainer::new(config, engine, model, optimizer);

        let (mut run, from, observer) = match role {
            Role::Lead(Leader { run, from, observer }) => (Some(run), from, observer),
            Role::Follow(observer) => (None, None, observer),
        };
        if let (Some(run), Some(numbers)) = (&mut run, &numbers) {
            run.save_scaling(numbers)?;
        }
        if let Some((checkpoint, history)) = self.agree_on_start(from)? {
            trainer.restore(checkpoint, history)?;
        }
        let mut shelf = Shelf::new(comm, run.as_deref_mut(), self.order.path)?;
        let (outcome, engine) = trainer.run(&mut shelf, observer)?;
        let mut traffic = Traffic { transport: self.transport, ..engine.meter.gather(comm)? };
        traffic.parts = gather_parts(comm, shard, &part)?;
        if self.transport == THREADS {
            // One process has them all.
            traffic.peak_rss_bytes = memory::peak_rss();
            traffic.cpu_seconds = traffic.cpu_seconds.map(|all| all / comm.size() as f64);
        }
        let facts = Facts { threads: self.threads, metric, outcome: &outcome, train: &config.train };
        let summary = Summary::new(facts, traffic);
        if let Some(run) = &mut run {
            run.finish(&serde_json::to_value(&summary).expect("numbers and names always serialise"))?;
        }
        // Last: a run is whole without it.
        if let Some(file) = self.order.extras.trace {
            trace::gather(comm, file)?;
        }
        Ok(run.map(|_| summary))
    }

    /// Ranks that were started with different things must not begin.
    fn shake_hands(self, shard: &Shard) -> Result<()> {
        let config = serde_json::to_string(self.order.config).expect("numbers and names always serialise");
        let whole = shard.whole();
        let facts = [
            ("version", env!("CARGO_PKG_VERSION").to_string()),
            ("configuration", blake3::hash(config.as_bytes()).to_hex()[..16].to_string()),
            ("dataset", whole.dataset.fingerprint.clone()),
            ("layout of parts", whole.layout.clone()),
            ("number of parts", whole.parts.to_string()),
        ];
        handshake(self.comm, &facts)?;
        let (part, rank) = (shard.part() as usize, self.comm.rank());
        if part != rank || whole.parts as usize != self.comm.size() {
            let problem = format!("part {part} of {} on rank {rank} of {}", whole.parts, self.comm.size());
            let error = halograph_graph::Error::input("shard", problem);
            return Err(error
                .help("give every rank the part of its number, and as many ranks as parts")
                .into());
        }
        Ok(())
    }

    /// The epoch that rank 0 goes on from, and what this rank needs for it.
    fn agree_on_start(self, from: Option<Standing>) -> Result<Option<Standing>> {
        let (comm, path, tag) = (self.comm, self.order.path, Tag::new(Purpose::Control));
        let said = from.as_ref().map_or(0, |(checkpoint, _)| checkpoint.epoch);
        let root = |message: Message| (comm.rank() == 0).then_some(message);
        let epoch = comm.broadcast(tag, 0, root(Message::of(&[said])))?.expect::<u64>(1)?[0];
        if epoch == 0 {
            return Ok(None);
        }
        let manifest = if comm.rank() == 0 { run::read_manifest(path, epoch)? } else { Vec::new() };
        let manifest = comm.broadcast(tag.slot(1), 0, root(Message::of(&manifest)))?;
        let standing = match from {
            Some(standing) => standing,
            None => {
                let manifest = manifest.as_slice::<u8>()?;
                (run::read_rank(path, epoch, comm.rank(), comm.size(), manifest)?, Vec::new())
            }
        };
        // Nobody goes on, and replaces a checkpoint, before all have found theirs.
        comm.barrier(tag.slot(2))?;
        Ok(Some(standing))
    }
}

/// How large the parts of all ranks are.
fn gather_parts<T: Real>(comm: &Comm, shard: &Shard, part: &Part<T>) -> Result<Vec<PartFacts>> {
    let (nodes, rows) = (shard.owned() as u64, shard.rows() as u64);
    let edges = shard.edges().indices.len() as u64;
    let own = [nodes, part.rows[0].count(), edges, rows - nodes];
    let tag = Tag::new(Purpose::Control).slot(12);
    let read = |message: Message| {
        let &[nodes, train, edges, halo] = message.expect::<u64>(4)? else { unreachable!("there are four") };
        Ok(PartFacts { nodes, train, edges, halo })
    };
    comm.all_gather(tag, Message::of(&own))?.into_iter().map(read).collect()
}
