//! The part of a rank that a launcher started: opened and admitted before a run is created.

use halograph_comm::{self as comm, Comm, Message, handshake};
use halograph_graph::partition::{Assignment, Layout, Shard};
use halograph_graph::{Dataset, Error as InputError};

use super::{DataSource, assignment_of};
use crate::admission::{self, HostRanks};
use crate::config::{Config, StrategyKind};
use crate::error::Result;
use crate::pool::{in_pool, threads_among};
use crate::strategy::batches::ranks::{self, RankGraph, Relay};
use crate::strategy::minibatch::DataParallelRelay;
use crate::strategy::split::SplitRelay;
use crate::tags::{Control, Setup};

/// The part of the graph that a rank trains, with the number of its threads.
pub struct RankPart {
    pub(super) shard: Shard,
    pub(super) threads: usize,
}

impl RankPart {
    /// Opens the part of this rank. Fails if version, configuration, dataset or layout differ between ranks and, unless
    /// `force`, if the rank needs more memory than is free. `assignment`: on rank 0, the part of each node, if known. Of
    /// a dataset only caches are written. Collective; blocks. After a failure of another rank, the next wait fails.
    pub fn open(
        comm: &Comm,
        source: DataSource,
        config: &Config,
        assignment: Option<&Assignment>,
        force: bool,
    ) -> Result<RankPart> {
        let here = &comm.hosts()[comm.rank()];
        let ranks_here: Vec<usize> = (0..comm.size()).filter(|&rank| comm.hosts()[rank] == *here).collect();
        let threads = threads_among(&config.train, ranks_here.len());
        in_pool(threads, || {
            let part = config.part_of(comm.rank());
            check_same_kind(comm, source)?;
            let shard = match source {
                DataSource::Shards(path) => Shard::open(path, part)?,
                DataSource::Dataset(dataset) => {
                    let assignment = shared_assignment(comm, dataset, config, assignment)?;
                    Layout::of(dataset, &assignment)?.cut(part)?
                }
            };
            check_equal(comm, config, &shard)?;
            let admitted = admit(&shard, config, HostRanks { ranks: &ranks_here, threads }, force);
            all_succeed(comm, Control::Admission, admitted)?;
            all_succeed(comm, Control::BatchMemory, check_batch_memory(&shard, config, comm))?;
            Ok(RankPart { shard, threads })
        })
    }

    /// Returns the layout of all parts.
    pub fn layout(&self) -> &str {
        &self.shard.partition().layout
    }
}

/// Refuses a dataset on one rank and shards on another, and different datasets. Collective; blocks.
fn check_same_kind(comm: &Comm, source: DataSource) -> Result<()> {
    let facts = match source {
        DataSource::Shards(_) => vec![("kind of data", "a folder of shards".to_string())],
        // Before the partition is used: it may not even have the right number of nodes.
        DataSource::Dataset(dataset) => {
            vec![("kind of data", "a dataset".to_string()), ("dataset", dataset.manifest.fingerprint.clone())]
        }
    };
    Ok(handshake(comm, &facts)?)
}

/// Refuses ranks of this host that need more memory than is free, unless `force`. Parts of the other ranks are assumed to be as
/// large as `shard`.
fn admit(shard: &Shard, config: &Config, host: HostRanks, force: bool) -> Result<()> {
    if let Some(predicted) = admission::predict_host(shard, config, host)? {
        admission::admit(&predicted, force)?;
    }
    admission::check_weights(&shard.partition().dataset, config)
}

/// Refuses less memory for sampled batches than they need. Samples one only if that may be. Collective; blocks.
pub(super) fn check_batch_memory(shard: &Shard, config: &Config, comm: &Comm) -> Result<()> {
    match admission::may_exceed_batch_memory(shard.partition(), config) {
        Some(row_bytes) => ranks::check_batch_memory(config, shard, row_bytes, comm, new_relay),
        None => Ok(()),
    }
}

/// Creates the relay of the configured strategy.
pub(super) fn new_relay<'g>(config: &Config, graph: &'g RankGraph<'g>) -> Box<dyn Relay + 'g> {
    match config.train.strategy {
        StrategyKind::Split => Box::new(SplitRelay::new(config, graph)),
        _ => Box::new(DataParallelRelay::new(graph)),
    }
}

/// Returns the `result` of this rank if all ranks succeeded. Otherwise the first rank that failed returns its error, and the
/// others that this rank has failed. Collective; blocks.
pub fn all_succeed<T>(comm: &Comm, tag: Control, result: Result<T>) -> Result<T> {
    let problem = result.as_ref().err().map_or(String::new(), ToString::to_string);
    let problems = comm.all_gather(tag.tag(), Message::of(problem.as_bytes()))?;
    for (rank, problem) in problems.iter().enumerate() {
        let problem = problem.as_slice::<u8>()?;
        if problem.is_empty() {
            continue;
        }
        if rank == comm.rank() {
            break;
        }
        let (host, cause) = (comm.hosts()[rank].clone(), String::from_utf8_lossy(problem).into_owned());
        return Err(comm::Error::Failed { rank, host, cause }.into());
    }
    result
}

/// Compares version, configuration and data of all ranks; fails if they differ. Collective; blocks.
pub(super) fn check_equal(comm: &Comm, config: &Config, shard: &Shard) -> Result<()> {
    let (own, parts) = (config.part_of(comm.rank()), config.parts());
    let text = serde_json::to_string(config).expect("numbers and names always serialise");
    let whole = shard.partition();
    let facts = [
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("configuration", blake3::hash(text.as_bytes()).to_hex()[..16].to_string()),
        ("dataset", whole.dataset.fingerprint.clone()),
        ("layout of parts", whole.layout.clone()),
        ("number of parts", whole.parts.to_string()),
    ];
    handshake(comm, &facts)?;
    let (part, rank) = (shard.part(), comm.rank());
    if part != own || whole.parts as usize != parts {
        let problem = format!("part {part} of {} on rank {rank} of {}", whole.parts, comm.size());
        return Err(InputError::input("shard", problem).help(ranks_of_parts(config)).into());
    }
    Ok(())
}

/// Returns how many ranks a number of parts needs, as a remedy.
fn ranks_of_parts(config: &Config) -> String {
    match config.train.strategy.splits_model() {
        true => format!(
            "partition the dataset into {} parts, or start {} ranks per part, one for each group of stages; rank r needs \
             part r modulo the number of parts",
            config.parts(),
            config.stage_groups(),
        ),
        false => "start as many ranks as there are parts, and give each rank the shard of its number".into(),
    }
}

/// Returns the assignment of rank 0 on all ranks. Collective; blocks.
fn shared_assignment(
    comm: &Comm,
    dataset: &Dataset,
    config: &Config,
    given: Option<&Assignment>,
) -> Result<Assignment> {
    let made = match comm.rank() {
        0 => Some(Message::of(assignment_of(dataset, config, given)?.of())),
        _ => None,
    };
    let parts = comm.broadcast(Setup::Assignment.tag(), 0, made)?;
    Ok(Assignment::new(config.parts() as u32, parts.as_slice::<u32>()?.to_vec())?)
}
