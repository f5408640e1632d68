//! Ranks that a launcher started.
//!
//! Every process reads its own options. Settings must agree on all ranks; paths need not. Rank 0 creates or resumes the
//! run and broadcasts where the run and the data are. A rank that was given data or a run directory of its own uses those,
//! so that hosts need not share a file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halograph_comm::{self as comm, Comm, Message};
use halograph_graph::Progress;
use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_graph::progress::Silent;
use halograph_train::run::{Header, annex};
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

/// What rank 0 tells the other ranks.
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
    let directory = job.directory().map(std::path::absolute).transpose();
    let directory = directory.map_err(|source| InputError::Io {
        path: job.directory().unwrap_or(Path::new("")).to_path_buf(),
        action: "find",
        source,
    })?;
    let header = lead.store.get().header().clone();
    broadcast(comm, Some(&Announcement { header, directory, trace: job.trace.clone() }))?;
    Ok(job)
}

/// Opens the job on a rank other than 0.
fn follow(options: &JobOptions, world: &World, comm: &Comm) -> Result<Job> {
    let announced = broadcast(comm, None)?;
    let directory = match &options.out {
        OutOption::Path(out) => Some(std::path::absolute(out).map_err(|source| InputError::Io {
            path: out.clone(),
            action: "find",
            source,
        })?),
        OutOption::Default | OutOption::Memory => announced.directory.clone(),
    };
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
    })
}

impl Announcement {
    /// Returns where this rank finds the data. Generates the built-in graph if this rank does not see that of rank 0.
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
        let annex = annex(directory, rank);
        let own = demo_data(&annex);
        if !own.exists() {
            DemoGraph::generate(&annex, &Silent)?.move_to(&own)?;
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
            Err(InputError::input(&s.place, problem).help("leave it out: the launcher decides"))
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
