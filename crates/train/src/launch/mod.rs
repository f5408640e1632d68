//! Entry points: training in one process, on ranks that are threads, or as one of the ranks that a launcher started.
//!
//! Every rank runs the same trainer. Rank 0 alone writes the run; a checkpoint holds a file of each rank, in the folder of
//! the run or, where a rank does not see that, in one of its own.

mod member;
mod shards;
mod single;
mod sink;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use halograph_comm::{self as comm, Comm, Message, Options, handshake};
use halograph_graph::Dataset;
use halograph_graph::partition::{
    Assignment, Facts as Layout, Method, Objective, Recipe, Shard, assignment_for,
};
use halograph_graph::progress::Silent;

use self::member::Member;
pub(crate) use self::shards::TrainedShards;
pub use self::single::train;
use crate::admission;
use crate::config::{Config, PartitionKind, TrainConfig};
use crate::error::{Error, Result};
use crate::event::{Event, Observer};
pub use crate::fault::Fault;
use crate::pool::{in_pool, threads, threads_among};
use crate::run::{DataRef, Header, Run};
use crate::summary::Summary;
use crate::tags::Setup;
use crate::trainer::ResumePoint;

/// The name of the transport within this process.
const THREADS: &str = "threads";

/// What only rank 0 has.
pub struct Leader<'a> {
    /// The run that is written.
    pub run: &'a mut Run,
    /// Where a resumed run continues.
    pub from: Option<ResumePoint>,
    /// Receives events and may request to stop.
    pub observer: &'a mut dyn Observer,
}

/// The role of a rank.
pub enum Role<'a> {
    /// Rank 0.
    Lead(Leader<'a>),
    /// Any other rank; its observer may request to stop.
    Follow(&'a mut dyn Observer),
}

/// Where the shards of the ranks come from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A dataset that is partitioned in memory.
    Dataset(&'a Dataset),
    /// A folder that `halograph partition` wrote; a rank opens only its own shard.
    Shards(&'a Path),
}

impl<'a> From<&'a Dataset> for Source<'a> {
    fn from(dataset: &'a Dataset) -> Self {
        Source::Dataset(dataset)
    }
}

/// The run that all ranks take part in.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// Its configuration.
    pub config: &'a Config,
    /// Its data.
    pub data: &'a DataRef,
    /// The folder of the run.
    pub path: &'a Path,
    /// Options besides the configuration.
    pub extras: Extras<'a>,
}

/// Options of a run that do not change its results.
#[derive(Clone, Copy, Default)]
pub struct Extras<'a> {
    /// File for a trace of all ranks.
    pub trace: Option<&'a Path>,
    /// The part of each node of a dataset, if known; on rank 0.
    pub assignment: Option<&'a Assignment>,
    /// Whether a rank that a launcher started trains although it is predicted to need more memory than is free.
    pub force: bool,
    /// Fault to inject, for tests.
    #[doc(hidden)]
    pub fault: Option<Fault>,
}

/// Trains what the header of the run says, on ranks that are threads of this process.
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

/// Trains as one of the ranks that a launcher started. Rank 0 leads and returns a summary. Collective; blocks.
pub fn train_among(comm: &Comm, order: Order, source: Source, role: Role) -> Result<Option<Summary>> {
    let here = &comm.hosts()[comm.rank()];
    let neighbours = comm.hosts().iter().filter(|host| *host == here).count();
    let threads = threads_among(&order.config.train, neighbours);
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
        if let Some(bytes) = admission::predict_part(&shard, order.data, order.config)? {
            admission::admit(bytes.saturating_mul(neighbours as u64), order.extras.force)?;
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
    let parts = comm.broadcast(Setup::Assignment.tag(), 0, made)?;
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

/// Returns how nodes are partitioned.
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

struct NoObserver;

impl Observer for NoObserver {
    fn on(&mut self, _: &Event) {}
}
