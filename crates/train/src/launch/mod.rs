//! Entry points of training.
//!
//! [`train`] runs rank 0: in one process, with ranks as threads of this process, or as rank 0 of the processes that a
//! launcher started. [`train_as_follower`] runs any other rank that a launcher started. [`RankPart::open`] is what such
//! ranks can check before a run exists: their data and their memory.
//!
//! Every rank runs the same trainer. Only rank 0 writes the run. A checkpoint holds one file of each rank, in the run
//! directory or, on a host that does not share that directory, in a directory of the rank.

mod member;
mod part;
mod shards;
mod single;
mod sink;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use halograph_comm::{self as comm, Comm, Options};
use halograph_graph::Dataset;
use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_graph::partition::{
    Assignment, Balance, Layout, Method, Objective, PartitionInfo, PartitionSpec, Presample, Shard,
    assignment_for,
};
use halograph_graph::progress::Silent;

use self::member::{Member, Role};
pub use self::part::{RankPart, all_succeed};
pub(crate) use self::shards::TrainedShards;
use crate::admission;
use crate::config::{Config, PartitionKind, TrainConfig};
use crate::data;
use crate::error::{Error, Result};
use crate::event::{Event, Observer};
pub use crate::fault::Fault;
use crate::pool::{in_pool, threads};
use crate::run::{Header, RunStore};
use crate::summary::Summary;
use crate::trainer::ResumePoint;

/// The name of the transport within this process.
const THREADS: &str = "threads";
const MPI: &str = "mpi";

/// Rank 0 of a run.
pub struct Leader<'a> {
    /// The communicator of all ranks, if a launcher started this process as one of several.
    pub world: Option<&'a Comm>,
    /// The run: its header says what is trained, and it receives the results.
    pub run: &'a mut dyn RunStore,
    /// Where a resumed run continues.
    pub from: Option<ResumePoint>,
    /// Receives events and may request to stop.
    pub observer: &'a mut dyn Observer,
}

/// Any other rank that a launcher started.
pub struct Follower<'a> {
    /// The communicator of all ranks.
    pub world: &'a Comm,
    /// The data and the configuration of the run, equal to those of rank 0.
    pub header: &'a Header,
    /// Path of the run directory on this rank's host; `None` if the run has none.
    pub directory: Option<&'a Path>,
    /// May request to stop; receives no events.
    pub observer: &'a mut dyn Observer,
}

/// Where the rows of the ranks come from.
#[derive(Clone, Copy)]
pub enum DataSource<'a> {
    /// A dataset, which is partitioned in memory if there are several ranks.
    Dataset(&'a Dataset),
    /// A folder of shards that `halograph partition` wrote; a rank opens only its own shard.
    Shards(&'a Path),
}

impl<'a> From<&'a Dataset> for DataSource<'a> {
    fn from(dataset: &'a Dataset) -> Self {
        DataSource::Dataset(dataset)
    }
}

/// Options of a run that do not change its results.
#[derive(Clone, Copy, Default)]
pub struct Extras<'a> {
    /// File for a trace of all ranks.
    pub trace: Option<&'a Path>,
    /// The part of each node of a dataset, if known; on rank 0.
    pub assignment: Option<&'a Assignment>,
    /// The part of a rank that a launcher started, if it is open: on all ranks, or on none.
    pub part: Option<&'a RankPart>,
    /// Whether a rank that a launcher started trains although it is predicted to need more memory than is free.
    pub force: bool,
    /// Fault to inject, for tests.
    #[doc(hidden)]
    pub fault: Option<Fault>,
    /// Artificial delay of messages between ranks, for benchmarks. Must be the same on every rank.
    #[doc(hidden)]
    pub send_delay: Duration,
}

/// The run that a rank takes part in.
#[derive(Clone, Copy)]
struct Order<'a> {
    header: &'a Header,
    directory: Option<&'a Path>,
    extras: Extras<'a>,
}

/// Trains as rank 0 what the header of the run says. Blocks; collective if there are several ranks.
///
/// Returns when all epochs are done, when patience ends, or when a rank requests to stop; the state is saved in each
/// case. After an error the last checkpoint is as it was.
pub fn train(source: DataSource, leader: Leader, extras: Extras) -> Result<Summary> {
    let header = leader.run.header().clone();
    let directory: Option<PathBuf> = leader.run.directory().map(|run| run.path().to_path_buf());
    header.config.check()?;
    let order = Order { header: &header, directory: directory.as_deref(), extras };
    match (leader.world, source) {
        (Some(comm), _) => {
            let summary = train_as_rank(comm, order, source, Role::Lead(Box::new(leader)))?;
            Ok(summary.expect("rank 0 returns a summary"))
        }
        (None, DataSource::Dataset(dataset)) if !header.config.train.uses_parts() => {
            check_split(header.config.data.split_index, dataset.split_index())?;
            single::train(dataset, order, leader)
        }
        (None, _) => train_on_threads(source, order, leader),
    }
}

/// Refuses data with another split than the configured one.
fn check_split(configured: usize, chosen: usize) -> InputResult<()> {
    if configured == chosen {
        return Ok(());
    }
    let problem = format!("{configured}, but the data have split {chosen}");
    Err(InputError::input("data.split_index", problem)
        .help("of a dataset choose the split (Dataset::with_split); partition it again for other shards"))
}

/// Trains as a rank other than 0 of those that a launcher started. Collective; blocks.
pub fn train_as_follower(source: DataSource, follower: Follower, extras: Extras) -> Result<()> {
    let Follower { world, header, directory, observer } = follower;
    let order = Order { header, directory, extras };
    train_as_rank(world, order, source, Role::Follow(observer)).map(drop)
}

/// Trains on ranks that are threads of this process.
fn train_on_threads(source: DataSource, order: Order, leader: Leader) -> Result<Summary> {
    let train = &order.header.config.train;
    let threads = threads(train);
    let assignment = match source {
        DataSource::Dataset(dataset) => {
            data::check(dataset)?;
            Some(assignment_of(dataset, &order.header.config, order.extras.assignment)?)
        }
        DataSource::Shards(_) => None,
    };
    // Computed once for all ranks.
    let layout = match (source, &assignment) {
        (DataSource::Dataset(dataset), Some(assignment)) => Some(Layout::of(dataset, assignment)?),
        _ => None,
    };
    let leader = Mutex::new(Some(leader));
    let options = Options { delay: order.extras.send_delay, ..options(train) };
    let results = comm::threads::run(train.ranks, &options, |comm| {
        let leader = (comm.rank() == 0).then(|| leader.lock().ok()?.take()).flatten();
        let member = Member { comm, order, threads, transport: THREADS };
        in_pool(threads, || {
            let part = order.header.config.part_of(comm.rank());
            let shard = match (&layout, source) {
                (Some(layout), _) => layout.cut(part)?,
                (None, DataSource::Shards(path)) => Shard::open(path, part)?,
                (None, DataSource::Dataset(_)) => unreachable!("a dataset has a layout"),
            };
            part::check_equal(comm, &order.header.config, &shard)?;
            match leader {
                Some(leader) => member.train(&shard, Role::Lead(Box::new(leader))),
                None => member.train(&shard, Role::Follow(&mut NoObserver)),
            }
        })
    });
    Ok(all(results)?.into_iter().flatten().next().expect("rank 0 returns a summary"))
}

/// Refuses less memory for sampled batches than they need on ranks of this process, if it may be too little; changes no file.
/// `open` opens a part of `whole`. Blocks.
pub fn check_batch_memory(
    config: &Config,
    whole: &PartitionInfo,
    open: impl Fn(u32) -> InputResult<Shard> + Sync,
) -> Result<()> {
    if admission::may_exceed_batch_memory(whole, config).is_none() {
        return Ok(());
    }
    let results = comm::threads::run(config.train.ranks, &options(&config.train), |comm| {
        part::check_batch_memory(&open(comm.rank() as u32)?, config, comm)
    });
    all(results).map(drop)
}

/// Trains as one of the ranks that a launcher started. Rank 0 returns a summary. Collective; blocks.
fn train_as_rank(comm: &Comm, order: Order, source: DataSource, role: Role) -> Result<Option<Summary>> {
    let Extras { assignment, force, part, send_delay, .. } = order.extras;
    comm.set_delay(send_delay);
    let opened = match part {
        Some(_) => None,
        None => Some(RankPart::open(comm, source, &order.header.config, assignment, force)?),
    };
    let part = part.or(opened.as_ref()).expect("given, or opened now");
    let member = Member { comm, order, threads: part.threads, transport: MPI };
    in_pool(part.threads, || member.train(&part.shard, role))
}

/// Returns the given assignment, or the stored one, or computes it.
fn assignment_of<'a>(
    dataset: &Dataset,
    config: &Config,
    given: Option<&'a Assignment>,
) -> Result<Cow<'a, Assignment>> {
    Ok(match given {
        Some(given) => Cow::Borrowed(given),
        None => Cow::Owned(assignment_for(dataset, &partition_spec(config), &Silent)?),
    })
}

/// Returns the results of all ranks, or the first error.
fn all<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    // The error of the rank that failed is more precise than that of a rank that was notified.
    let is_notified = |error: &Error| matches!(error, Error::Ranks(comm::Error::Failed { .. }));
    let (mut found, mut notified) = (Vec::new(), None);
    for result in results {
        match result {
            Ok(one) => found.push(one),
            Err(error) if is_notified(&error) => notified = notified.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    notified.map_or(Ok(found), Err)
}

/// Returns how nodes are partitioned.
pub fn partition_spec(config: &Config) -> PartitionSpec {
    let train = &config.train;
    let is_presampled = train.partition == PartitionKind::Presampled;
    let method = match train.partition {
        PartitionKind::Metis => Method::Metis(Objective::Volume),
        PartitionKind::Presampled => Method::Presampled(presample(config)),
        PartitionKind::Stream => Method::Stream,
        PartitionKind::Random => Method::Random,
    };
    // A rank samples for the training nodes that it owns, and for all that read them: both must be even.
    let sampled = train.strategy.samples() && !is_presampled;
    let balance = Balance { edges: sampled, train: sampled };
    // Runs that differ in their seed share a partition.
    PartitionSpec { parts: config.parts() as u32, method, balance, seed: 0 }
}

/// Returns the sampling of a run.
fn presample(config: &Config) -> Presample {
    Presample {
        epochs: Presample::DEFAULT_EPOCHS,
        batch_size: config.train.batch_size,
        sampler: config.train.sampler,
        fanouts: config.fanouts(),
        reads_inputs: config.first_stage_reads_edges(),
        cached_input: config.train.cache_input_aggregate,
        inductive: config.data.inductive,
    }
}

fn options(train: &TrainConfig) -> Options {
    Options { deadline: Duration::from_secs_f64(train.deadline), ..Options::default() }
}

struct NoObserver;

impl Observer for NoObserver {
    fn on(&mut self, _: &Event) {}
}
