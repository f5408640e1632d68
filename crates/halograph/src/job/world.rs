//! Ranks that a launcher started.
//!
//! Every process reads its own options. Settings must agree on all ranks; paths need not. Rank 0 creates or resumes the
//! run and broadcasts where the run and the data are. A rank that was given data or a run directory of its own uses those,
//! so that hosts need not share a file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halograph_comm::{self as comm, Comm, Message};
use halograph_graph::Progress;
use halograph_graph::error::{Error as InputError, IoContext, Result as InputResult};
use halograph_graph::progress::Silent;
use halograph_train::run::{Header, rank_directory};
use halograph_train::tags::Control;
use halograph_train::{Error, Result};
use serde::{Deserialize, Serialize};

use super::demo::DemoGraph;
use super::start::{self, open_data};
use super::trained::demo_data;
use super::{Job, JobData, JobOptions, OutOption, Role};
use crate::config::{self, Setting};

/// The processes that train together.
#[derive(Clone, Default)]
pub struct World {
    comm: Option<Comm>,
}

impl World {
    /// This process alone; `train.ranks` may start ranks as threads.
    pub fn alone() -> Self {
        World::default()
    }

    /// Joins the ranks that a launcher (`mpirun`, `srun`) started; this process alone if it started none. Blocks until all
    /// ranks have joined. A build without MPI refuses to be one of several ranks. `settings` may set the timeout.
    #[cfg(feature = "mpi")]
    pub fn join(settings: &[Setting]) -> Result<Self> {
        if !comm::launched() {
            return Ok(World::alone());
        }
        // Invalid settings are refused later, when all ranks can be notified.
        let deadline = config::resolve(settings).ok().map(|c| Duration::from_secs_f64(c.train.deadline));
        let options = comm::Options::default();
        let options = comm::Options { deadline: deadline.unwrap_or(options.deadline), ..options };
        let comm = comm::mpi::join(&options)?;
        if comm.size() > 1 {
            return Ok(World { comm: Some(comm) });
        }
        comm.close()?;
        Ok(World::alone())
    }

    /// Refuses to be one of several ranks: this build has no MPI, and every rank would train on its own.
    #[cfg(not(feature = "mpi"))]
    pub fn join(_: &[Setting]) -> Result<Self> {
        if !comm::launched() {
            return Ok(World::alone());
        }
        let problem = "this process is one of several ranks, and this build has no MPI";
        Err(InputError::input("launcher", problem)
            .help("build with `cargo build --release --features mpi`, or start one process with --ranks N")
            .into())
    }

    /// Returns the communicator of all ranks; `None` for this process alone.
    pub fn comm(&self) -> Option<&Comm> {
        self.comm.as_ref()
    }

    /// Returns whether this process is rank 0.
    pub fn is_leader(&self) -> bool {
        self.comm.as_ref().is_none_or(|comm| comm.rank() == 0)
    }

    /// Returns whether this rank should report `error`: exactly one rank does, the one that knows the cause.
    pub fn reports(&self, error: &Error) -> bool {
        let Some(comm) = &self.comm else { return true };
        match error {
            Error::Ranks(comm::Error::Failed { rank, .. }) if *rank != comm.rank() => false,
            Error::Ranks(comm::Error::Mismatch { .. }) | Error::Diverged { .. } => comm.rank() == 0,
            _ => !comm.failure_is_remote(),
        }
    }

    /// Leaves the other ranks after success. Collective; blocks.
    pub fn close(self) -> Result<()> {
        self.comm.map_or(Ok(()), |comm| Ok(comm.close()?))
    }
}

/// The job, as rank 0 broadcasts it.
#[derive(Serialize, Deserialize)]
struct Announcement {
    header: Header,
    /// The run directory.
    directory: Option<PathBuf>,
    trace: Option<PathBuf>,
}

/// Opens the job on all ranks of a launcher. Collective; blocks.
pub(super) fn open(options: &JobOptions, world: &World, comm: &Comm, progress: &dyn Progress) -> Result<Job> {
    let settings = agree(&options.settings, comm)?;
    if comm.rank() > 0 {
        return follow(options, world, comm);
    }
    let job = start::open(options, world, &settings, progress)?;
    let lead = job.lead().expect("rank 0 leads");
    let directory = job.directory().map(|path| std::path::absolute(path).at(path, "find")).transpose()?;
    let header = lead.store.get().header().clone();
    broadcast(comm, Some(&Announcement { header, directory, trace: job.trace.clone() }))?;
    Ok(job)
}

/// Opens the job on a rank other than 0.
fn follow(options: &JobOptions, world: &World, comm: &Comm) -> Result<Job> {
    let announced = broadcast(comm, None)?;
    let directory = announced.directory_for(&options.out)?;
    let data = match open_data(&options.data, comm.rank() as u32)? {
        Some(data) => data,
        None => JobData::open(&announced.data_path(directory.as_deref(), comm.rank())?, comm.rank() as u32)?,
    };
    Ok(Job {
        data,
        notes: Vec::new(),
        world: world.clone(),
        trace: announced.trace,
        force: options.force,
        role: Role::Follow { header: announced.header, directory },
        started: false,
    })
}

impl Announcement {
    /// Returns the run directory of a rank with this option; `None` if rank 0 has none.
    fn directory_for(&self, out: &OutOption) -> InputResult<Option<PathBuf>> {
        match (&self.directory, out) {
            (Some(_), OutOption::Path(own)) => std::path::absolute(own).at(own, "find").map(Some),
            // Without a directory of rank 0 there are no checkpoints: all ranks must agree on that.
            (announced, _) => Ok(announced.clone()),
        }
    }

    /// Returns the directory of the data on this rank's host. Generates the built-in graph if that of rank 0 is not there.
    fn data_path(&self, directory: Option<&Path>, rank: usize) -> InputResult<PathBuf> {
        let missing = || {
            InputError::input("data", "rank 0 trains on a dataset in memory, and this rank was given none")
                .help("give every rank the same dataset")
        };
        let there = self.header.data.path.as_ref().ok_or_else(missing)?;
        let is_demo = self.directory.as_deref().is_some_and(|run| *there == demo_data(run));
        let Some(directory) = directory.filter(|_| is_demo && !there.exists()) else {
            return Ok(there.clone());
        };
        let folder = rank_directory(directory, rank);
        let own = demo_data(&folder);
        if !own.exists() {
            DemoGraph::generate(&folder, &Silent)?.move_to(&own)?;
        }
        Ok(own)
    }
}

/// Returns the settings with the number of ranks, if they are valid and equal on all ranks. Collective; blocks.
fn agree(settings: &[Setting], comm: &Comm) -> Result<Vec<Setting>> {
    let ranks = Setting::new("launcher", "train.ranks", &comm.size().to_string());
    let all: Vec<Setting> = settings.iter().cloned().chain([ranks]).collect();
    let config = check_ranks(settings, comm.size()).and_then(|()| config::resolve(&all));
    let problem = config.as_ref().err().map_or(String::new(), ToString::to_string);
    let problems = comm.all_gather(Control::Settings.tag(), Message::of(problem.as_bytes()))?;
    let text = |message: &Message| message.as_slice().map(|text| String::from_utf8_lossy(text).into_owned());
    let problems = problems.iter().map(text).collect::<comm::Result<Vec<_>>>()?;
    // The first rank with a problem reports it; other ranks only report different problems.
    if let Some(first) = problems.iter().position(|problem| !problem.is_empty()) {
        let is_known = problems[..comm.rank()].contains(&problem);
        let failed = || comm::Error::Failed {
            rank: first,
            host: comm.hosts()[first].clone(),
            cause: problems[first].clone(),
        };
        return Err(config.err().filter(|_| !is_known).map_or_else(|| failed().into(), Error::from));
    }
    let facts = config::flatten(&config?)?;
    let mut facts: Vec<(&str, String)> =
        facts.iter().map(|(key, value)| (key.as_str(), config::text(value))).collect();
    facts.push(("version of halograph", env!("CARGO_PKG_VERSION").to_string()));
    comm::handshake(comm, &facts)?;
    Ok(all)
}

/// Refuses another number of ranks than the launcher started.
fn check_ranks(settings: &[Setting], ranks: usize) -> InputResult<()> {
    let set = settings.iter().rev().find(|s| s.name() == "train.ranks");
    match set.filter(|s| s.value.as_integer() != Some(ranks as i64)) {
        None => Ok(()),
        Some(s) => {
            let problem = format!("train.ranks = {}, but the launcher started {ranks}", s.value);
            Err(InputError::input(&s.place, problem)
                .help("leave it out: the launcher sets the number of ranks"))
        }
    }
}

/// Returns the announcement of rank 0 on all ranks. Collective; blocks.
fn broadcast(comm: &Comm, announcement: Option<&Announcement>) -> Result<Announcement> {
    let text = announcement.map(|a| serde_json::to_vec(a).expect("numbers, names and paths serialise"));
    let message = comm.broadcast(Control::Job.tag(), 0, text.as_deref().map(Message::of))?;
    let read = serde_json::from_slice(message.as_slice()?);
    let announcement: Announcement = read
        .map_err(|e| InputError::input("rank 0", format!("its description of the job is unreadable: {e}")))?;
    comm.set_deadline(Duration::from_secs_f64(announcement.header.config.train.deadline));
    Ok(announcement)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halograph_graph::Dataset;
    use halograph_graph::build::EdgeOptions;
    use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};

    use super::*;
    use crate::job::NoObserver;

    fn dataset() -> Arc<Dataset> {
        let edges: Vec<(u32, u32)> = (0..30).map(|v| (v, (v + 1) % 30)).collect();
        let graph = GraphArrays::from_edges(30, &edges, EdgeOptions::default()).unwrap();
        let features = FeatureArray::f32(2, (0..60).map(|x| x as f32 / 60.0).collect());
        let labels = Labels::Single((0..30).map(|v| v % 2).collect());
        let split = (0..30).map(|v| 1 + v as u8 % 3).collect();
        Arc::new(Dataset::from_arrays(DatasetArrays::new("ring", graph, features, labels, split)).unwrap())
    }

    /// Trains on ranks that are given one output option each.
    fn train(outs: &[OutOption]) {
        let dataset = dataset();
        let results = comm::threads::run(outs.len(), &comm::Options::default(), |comm| -> Result<()> {
            let options = JobOptions { out: outs[comm.rank()].clone(), ..JobOptions::new(dataset.clone()) }
                .set("train.strategy", "partition")
                .set("train.partition", "random")
                .set("train.epochs", 3)
                .set("train.threads", 1);
            let world = World { comm: Some(comm.clone()) };
            let mut job = Job::open(&options, &world, &Silent)?;
            assert_eq!(job.train(&mut NoObserver)?.is_some(), comm.rank() == 0);
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }

    #[test]
    fn a_rank_ignores_its_directory_if_rank_0_has_none() {
        let temp = tempfile::tempdir().unwrap();
        train(&[OutOption::Memory, OutOption::Path(temp.path().join("own"))]);
        assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_rank_writes_checkpoints_to_its_own_directory() {
        let temp = tempfile::tempdir().unwrap();
        let [run, own] = ["run", "own"].map(|name| temp.path().join(name));
        train(&[OutOption::Path(run.clone()), OutOption::Path(own.clone())]);
        assert!(run.join("ckpt-3/rank-0.safetensors").exists() && run.join("ckpt-3/manifest.json").exists());
        assert!(own.join("rank-1/ckpt-3/rank-1.safetensors").exists());
    }

    #[test]
    fn a_rank_without_an_option_uses_the_directory_of_rank_0() {
        let temp = tempfile::tempdir().unwrap();
        let run = temp.path().join("run");
        train(&[OutOption::Path(run.clone()), OutOption::Memory]);
        assert!(run.join("ckpt-3/rank-1.safetensors").exists());
    }
}
