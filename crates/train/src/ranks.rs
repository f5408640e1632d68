//! Training on several ranks, each with its own part of the graph.
//!
//! Every rank runs the same trainer; what they must agree on (when to stop, what was best) follows from numbers that are
//! the same on all of them, or is asked. Rank 0 alone writes the run; a checkpoint holds a file of each rank, in the
//! folder of the run or, where a rank does not see that, in one of its own.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use halograph_comm::{self as comm, Comm, Counters, Message, Options, Purpose, Tag, handshake};
use halograph_graph::Dataset;
use halograph_graph::dataset::Metric;
use halograph_graph::partition::{
    Assignment, Facts as Layout, Method, Objective, Recipe, Shard, assignment_for,
};
use halograph_graph::progress::Silent;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::metrics::{counts, score, share};
use halograph_nn::state::State;
use halograph_nn::{Matrix, Model};
use rayon::prelude::*;

use crate::boundary::Deviation;
use crate::config::{Config, Overlap, PartitionKind, Precision, TrainConfig};
use crate::data::part::{Part, fit_scaling};
use crate::data::{Rows, Scaling};
use crate::error::{Error, Result};
use crate::evaluation::new_model;
use crate::event::{Epoch, Event, Observer, Scores, Staleness};
use crate::loss::loss;
use crate::memory;
use crate::run::{self, Checkpoint, DataRef, Header, Run};
use crate::strategy::engine::Engine;
use crate::strategy::partition::{self, Plan, Rank};
use crate::strategy::pipelined::{Boundary, Schedule};
use crate::strategy::single::Output;
use crate::summary::{Facts, Summary, Traffic};
use crate::trace;
use crate::trainer::{Keeper, Standing, Trainer, in_pool, new_optimizer, threads};

/// The name of the transport within this process.
const THREADS: &str = "threads";

/// What rank 0 has and the others have not.
pub struct Leader<'a> {
    /// What is written.
    pub run: &'a mut Run,
    /// Where it goes on.
    pub from: Option<Standing>,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
}

/// What a rank does besides training.
pub enum Role<'a> {
    /// Rank 0.
    Lead(Leader<'a>),
    /// All others; whom to tell, and who may ask to stop.
    Follow(&'a mut dyn Observer),
}

/// Where the parts of the ranks come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A dataset that is cut in memory.
    Dataset(&'a Dataset),
    /// A folder that `halograph partition` wrote; a rank opens nothing but its own part.
    Shards(&'a Path),
}

impl<'a> From<&'a Dataset> for Source<'a> {
    fn from(dataset: &'a Dataset) -> Self {
        Source::Dataset(dataset)
    }
}

/// What all ranks of a run were told.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// What to do.
    pub config: &'a Config,
    /// On what.
    pub data: &'a DataRef,
    /// The folder of the run.
    pub path: &'a Path,
    /// What else is wanted.
    pub extras: Extras<'a>,
}

/// What a run may be asked for besides training.
#[derive(Clone, Copy, Default)]
pub struct Extras<'a> {
    /// The file that shall say what every rank did when.
    pub trace: Option<&'a Path>,
    /// How the nodes of a dataset are dealt out, if that is known; of rank 0.
    pub assignment: Option<&'a Assignment>,
    /// Whether one of the ranks that a launcher started begins although it will need more memory than is free.
    pub force: bool,
    /// What shall go wrong: for tests.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

/// Something that happens to a rank when it begins an epoch.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub rank: usize,
    pub epoch: u64,
    /// It falls silent instead of panicking.
    pub stalls: bool,
}

impl Fault {
    fn strike(self, comm: &Comm, epoch: u64) -> Result<()> {
        if (self.rank, self.epoch) != (comm.rank(), epoch) {
            return Ok(());
        }
        assert!(self.stalls, "this rank was told to panic");
        comm.stall().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Trains what the header of `run` says, on ranks that are threads of this process.
pub fn train_on_threads(source: Source, leader: Leader, extras: Extras) -> Result<Summary> {
    let Header { config, data } = leader.run.header().clone();
    config.check()?;
    let path = leader.run.path().to_path_buf();
    let order = Order { config: &config, data: &data, path: &path, extras };
    let threads = threads(&config.train);
    let assignment = match source {
        Source::Dataset(dataset) => Some(assignment_of(dataset, &order)?),
        Source::Shards(_) => None,
    };
    // Once for all ranks.
    let layout = match (source, &assignment) {
        (Source::Dataset(dataset), Some(assignment)) => Some(Layout::of(dataset, assignment)?),
        _ => None,
    };
    let leader = Mutex::new(Some(leader));
    let results = comm::threads::run(config.train.ranks, &options(&config.train), |comm| {
        let leader = (comm.rank() == 0).then(|| leader.lock().ok()?.take()).flatten();
        let member = Member { comm, order, threads, transport: THREADS };
        in_pool(threads, || {
            let part = comm.rank() as u32;
            let shard = match (&layout, source) {
                (Some(layout), _) => layout.cut(part)?,
                (None, Source::Shards(path)) => Shard::open(path, part)?,
                (None, Source::Dataset(_)) => unreachable!("a dataset has a layout"),
            };
            match leader {
                Some(leader) => member.train(&shard, Role::Lead(leader)),
                None => member.train(&shard, Role::Follow(&mut NoObserver)),
            }
        })
    });
    Ok(all(results)?.into_iter().flatten().next().expect("rank 0 gives a summary"))
}

/// Trains as one of the ranks that a launcher started; rank 0 alone leads, and gives a summary.
pub fn train_among(comm: &Comm, order: Order, source: Source, role: Role) -> Result<Option<Summary>> {
    let here = &comm.hosts()[comm.rank()];
    let neighbours = comm.hosts().iter().filter(|host| *host == here).count();
    let threads = match order.config.train.threads {
        0 => (std::thread::available_parallelism().map_or(1, |n| n.get()) / neighbours).max(1),
        threads => threads,
    };
    let member = Member { comm, order, threads, transport: "mpi" };
    in_pool(threads, || {
        let shard = match source {
            Source::Shards(path) => Shard::open(path, comm.rank() as u32)?,
            Source::Dataset(dataset) => {
                // Before it is cut: parts of another graph would not even fit.
                handshake(comm, &[("dataset", dataset.manifest.fingerprint.clone())])?;
                let assignment = shared_assignment(comm, dataset, &order)?;
                Layout::of(dataset, &assignment)?.cut(comm.rank() as u32)?
            }
        };
        // Nobody knows the others' need; those on the same host are taken for alike.
        if let Some(bytes) = memory::predict_part(&shard, order.data, order.config)? {
            memory::admit(bytes.saturating_mul(neighbours as u64), order.extras.force)?;
        }
        member.train(&shard, role)
    })
}

/// The assignment that rank 0 was given, finds or makes.
fn assignment_of<'a>(dataset: &Dataset, order: &Order<'a>) -> Result<Cow<'a, Assignment>> {
    Ok(match order.extras.assignment {
        Some(given) => Cow::Borrowed(given),
        None => Cow::Owned(assignment_for(dataset, &recipe(&order.config.train), &Silent)?),
    })
}

/// The assignment that rank 0 makes or finds, on all ranks.
fn shared_assignment(comm: &Comm, dataset: &Dataset, order: &Order) -> Result<Assignment> {
    let made = match comm.rank() {
        0 => Some(Message::of(assignment_of(dataset, order)?.of())),
        _ => None,
    };
    let parts = comm.broadcast(Tag::new(Purpose::Setup).step(2), 0, made)?;
    Ok(Assignment::new(order.config.train.ranks as u32, parts.as_slice::<u32>()?.to_vec())?)
}

/// The results of all ranks, or what went wrong first.
fn all<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    // A rank that was told of another's failure knows less than that one.
    let is_told = |error: &Error| matches!(error, Error::Ranks(comm::Error::Failed { .. }));
    let (mut found, mut told) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(one) => found.push(one),
            Err(error) if is_told(&error) => told = told.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    told.map_or(Ok(found), Err)
}

/// How nodes are dealt out.
pub fn recipe(train: &TrainConfig) -> Recipe {
    let method = match train.partition {
        PartitionKind::Metis => Method::Metis(Objective::Volume),
        PartitionKind::Stream => Method::Stream,
        PartitionKind::Random => Method::Random,
    };
    Recipe { parts: train.ranks as u32, method, balance: Default::default(), seed: 0 }
}

fn options(train: &TrainConfig) -> Options {
    Options { deadline: Duration::from_secs_f64(train.deadline), ..Options::default() }
}

/// One of the ranks of a run.
#[derive(Clone, Copy)]
struct Member<'a> {
    comm: &'a Comm,
    order: Order<'a>,
    threads: usize,
    transport: &'static str,
}

impl Member<'_> {
    fn train(self, shard: &Shard, role: Role) -> Result<Option<Summary>> {
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
        if self.transport == THREADS {
            // One process has them all.
            traffic.peak_rss_bytes = memory::peak_rss();
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
        let manifest = comm.broadcast(tag.step(1), 0, root(Message::of(&manifest)))?;
        let standing = match from {
            Some(standing) => standing,
            None => {
                let manifest = manifest.as_slice::<u8>()?;
                (run::read_rank(path, epoch, comm.rank(), comm.size(), manifest)?, Vec::new())
            }
        };
        // Nobody goes on, and replaces a checkpoint, before all have found theirs.
        comm.barrier(tag.step(2))?;
        Ok(Some(standing))
    }
}

struct NoObserver;

impl Observer for NoObserver {
    fn on(&mut self, _: &Event) {}
}

/// Where the ranks of a run keep what they learn.
struct Shelf<'a> {
    comm: &'a Comm,
    /// Rank 0 alone.
    run: Option<&'a mut Run>,
    path: &'a Path,
    /// Whether `path` is the folder that rank 0 writes, and not one of the same name on another host.
    sees: bool,
}

impl<'a> Shelf<'a> {
    fn new(comm: &'a Comm, run: Option<&'a mut Run>, path: &'a Path) -> Result<Self> {
        let mark = run.as_ref().map(|run| run.mark()).transpose()?;
        let mark = mark.map(|mark| Message::of(mark.as_bytes()));
        let mark = comm.broadcast(Tag::new(Purpose::Control).step(3), 0, mark)?;
        let sees = run::sees(path, &String::from_utf8_lossy(mark.as_slice::<u8>()?));
        Ok(Shelf { comm, run, path, sees })
    }
}

impl Keeper for Shelf<'_> {
    fn record(&mut self, epoch: &Epoch) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| Ok(run.record(epoch)?))
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.run.as_mut().map_or(Ok(()), |run| Ok(run.save_weights(weights)?))
    }

    /// Every rank writes its file; when all have, rank 0 makes the checkpoint whole, and only then older ones go.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        let (comm, epoch) = (self.comm, checkpoint.epoch);
        comm.at(epoch as u32, 0, "checkpoint");
        let tag = Tag::new(Purpose::Control).epoch(epoch as u32);
        let begun = match &mut self.run {
            Some(run) => Some(Message::of(&[run.begin_checkpoint(epoch)? as u8])),
            None => None,
        };
        if comm.broadcast(tag, 0, begun)?.expect::<u8>(1)? == [0] {
            return Ok(());
        }
        let written = self.write_ranks(checkpoint, tag.step(1)).inspect_err(|_| {
            // A checkpoint that will not be whole only takes space.
            self.run.iter().for_each(|run| run.abandon_checkpoint(epoch));
        })?;
        if let Some(run) = &mut self.run {
            let read =
                |m: &Message| Ok(serde_json::from_slice(m.as_slice::<u8>()?).expect("as it was written"));
            let written = written.iter().map(read).collect::<Result<Vec<run::Written>>>()?;
            run.commit_checkpoint(checkpoint, written)?;
        }
        comm.barrier(tag.step(2))?;
        if !self.sees {
            run::prune_annex(self.path, epoch, comm.rank())?;
        }
        Ok(())
    }
}

impl Shelf<'_> {
    /// What all ranks have written for a checkpoint that was begun.
    fn write_ranks(&self, checkpoint: &Checkpoint, tag: Tag) -> Result<Vec<Message>> {
        let (comm, epoch) = (self.comm, checkpoint.epoch);
        let written = run::write_rank(self.path, epoch, comm.rank(), &checkpoint.state, self.sees)?;
        let text = serde_json::to_vec(&written).expect("numbers and names always serialise");
        Ok(comm.all_gather(tag, Message::of(&text))?)
    }
}

/// What a rank sent and waited for in its epochs.
struct Meter {
    rank: Rank,
    /// Sent in the last epoch.
    last: Counters,
    seconds: Duration,
    waited: Duration,
    hidden: Duration,
}

impl Meter {
    fn new(rank: &Rank) -> Self {
        Meter {
            rank: rank.clone(),
            last: Counters::default(),
            seconds: Duration::ZERO,
            waited: Duration::ZERO,
            hidden: Duration::ZERO,
        }
    }

    fn measure<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let hidden = || Duration::from_nanos(self.rank.hidden.load(Ordering::Relaxed));
        let comm = &self.rank.comm;
        let (before, start) = ((comm.sent(), comm.waited(), hidden()), Instant::now());
        let result = work()?;
        self.seconds += start.elapsed();
        let after = (comm.sent(), comm.waited(), hidden());
        self.last = after.0.since(&before.0);
        self.waited += after.1 - before.1;
        self.hidden += after.2 - before.2;
        Ok(result)
    }

    /// The numbers of all ranks together.
    fn gather(&self, comm: &Comm) -> Result<Traffic> {
        let ranks = comm.size() as f64;
        let waited = self.waited.as_secs_f64();
        let computed = self.seconds.as_secs_f64() - waited;
        let mut slowest = vec![0.0; comm.size()];
        slowest[comm.rank()] = computed;
        let resident = memory::peak_rss().unwrap_or(0) as f64;
        let mut numbers =
            vec![waited, self.hidden.as_secs_f64(), self.last.payload_messages() as f64, resident];
        for sent in [&self.last, &comm.sent()] {
            numbers.extend(Purpose::ALL.map(|purpose| sent.bytes(purpose) as f64));
        }
        comm.all_reduce(Tag::new(Purpose::Control).step(7), &mut numbers)?;
        comm.all_reduce(Tag::new(Purpose::Control).step(8), &mut slowest)?;
        let compute = slowest.iter().sum::<f64>() / ranks;
        let (last, total) = numbers[4..].split_at(Purpose::ALL.len());
        let once = |p: Purpose| matches!(p, Purpose::Evaluation | Purpose::Setup);
        let counted = Purpose::ALL.into_iter().filter(|&p| p != Purpose::Control);
        let bytes = |p: Purpose| if once(p) { total } else { last }[p as usize] as u64;
        Ok(Traffic {
            transport: "",
            wait_seconds: numbers[0] / ranks,
            hidden_seconds: numbers[1] / ranks,
            compute_seconds: compute,
            // Where nothing was computed all are alike.
            balance: if compute > 0.0 { slowest.into_iter().fold(0.0, f64::max) / compute } else { 1.0 },
            messages_per_epoch: numbers[2] as u64,
            bytes_per_epoch: counted.clone().filter(|&p| !once(p)).map(bytes).sum(),
            bytes_by_tag: counted.map(|p| (p.name().to_string(), bytes(p))).collect(),
            peak_rss_bytes: Some(numbers[3] as u64),
        })
    }
}

/// A rank that computes its rows together with the others.
struct Together<'p, T: Real> {
    part: &'p Part<'p, T>,
    plan: Plan<'p, T>,
    boundary: Boundary<T>,
    rank: Rank,
    metric: Metric,
    meter: Meter,
    fault: Option<Fault>,
}

impl<T: Real> Engine<T> for Together<'_, T> {
    fn epoch(&mut self, model: &mut Model<T>, number: u64, key: Key) -> Result<f64> {
        let Together { part, plan, boundary, rank, meter, fault, .. } = self;
        fault.map_or(Ok(()), |fault| fault.strike(&rank.comm, number))?;
        let epoch =
            partition::Epoch { rank, rows: &part.rows[0], count: part.counts[0], key, number: number as u32 };
        meter.measure(|| partition::epoch(model, plan, boundary, &epoch))
    }

    fn scores(&mut self, model: &Model<T>, number: u64) -> Result<Option<Scores>> {
        scores(self.part, &self.rank, self.metric, model, number)
    }

    fn agree(&mut self, flags: u8) -> Result<u8> {
        let tag = Tag::new(Purpose::Control).step(6);
        let all = self.rank.comm.all_gather(tag, Message::of(&[flags]))?;
        all.iter().try_fold(0, |so_far, message| Ok(so_far | message.expect::<u8>(1)?[0]))
    }

    fn staleness(&mut self) -> Result<Option<Staleness>> {
        let found = self.boundary.deviations();
        if found.iter().flatten().all(Option::is_none) {
            return Ok(None);
        }
        let mut sums: Vec<f64> =
            found.iter().flatten().flatten().flat_map(|found| [found.difference, found.whole]).collect();
        self.rank.comm.all_reduce(Tag::new(Purpose::Control).step(10), &mut sums)?;
        let mut pairs = sums.chunks_exact(2);
        let mut of = |found: Option<Deviation>| {
            let pair = found.and_then(|_| pairs.next())?;
            Some((pair[0] / pair[1].max(f64::MIN_POSITIVE)).sqrt())
        };
        let (features, gradients) = found.into_iter().map(|[f, g]| (of(f), of(g))).unzip();
        Ok(Some(Staleness { features, gradients }))
    }

    fn save(&mut self) -> Result<State> {
        self.boundary.save()
    }

    fn load(&mut self, place: &str, state: &State) -> Result<()> {
        Ok(self.boundary.load(place, state, &self.plan)?)
    }
}

/// Scores of `model` over the rows of all ranks; nothing if its outputs are not finite.
fn scores<T: Real>(
    part: &Part<T>,
    rank: &Rank,
    metric: Metric,
    model: &Model<T>,
    number: u64,
) -> Result<Option<Scores>> {
    let (mut found, mut val_loss, mut finite) = ([None; 3], None, true);
    let tag = Tag::new(Purpose::Evaluation).epoch(number as u32);
    part.each_view(rank, model, |graph, view, shared, scored| {
        let logits = partition::evaluate(model, view, shared, rank, tag.step(graph as u8))?.logits;
        finite &= logits.data().par_iter().all(|x| x.is_finite());
        for &which in scored {
            let (rows, count) = (&part.rows[which], part.counts[which]);
            found[which] = score_of(rank, metric, &logits, rows, count, tag.step(8 + which as u8))?;
            if which == 1 && count > 0 {
                val_loss = Some(loss(&logits, rows, count).0);
            }
        }
        Ok(())
    })?;
    let mut total = [val_loss.unwrap_or(0.0), !finite as u8 as f64];
    rank.comm.all_reduce(tag.step(12), &mut total)?;
    let [train, val, test] = found;
    let val_loss = val_loss.map(|_| total[0]);
    Ok((total[1] == 0.0).then_some(Scores { train, val, test, val_loss }))
}

/// The score of `rows` of all ranks, `count` together.
fn score_of<T: Real>(
    rank: &Rank,
    metric: Metric,
    logits: &Matrix<T>,
    rows: &Rows,
    count: u64,
    tag: Tag,
) -> Result<Option<f64>> {
    if count == 0 {
        return Ok(None);
    }
    if let Some((part, whole)) = counts(metric, logits, &rows.rows, rows.targets()) {
        // Whole numbers: exact far beyond any graph.
        let mut sums = [part as f64, whole as f64];
        rank.comm.all_reduce(tag, &mut sums)?;
        return Ok(Some(share((sums[0] as u64, sums[1] as u64))));
    }
    let (logits, rows) = rows.gathered(logits, &rank.comm, tag)?;
    Ok(score(metric, &logits, &rows.rows, rows.targets()))
}

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
