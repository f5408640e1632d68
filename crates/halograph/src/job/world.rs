//! Ranks that a launcher started.
//!
//! Every process reads its own options. Settings must agree on all ranks; paths need not. A rank that was given data or a
//! run directory of its own uses those, so that hosts need not share a file system. A job is opened in this order:
//!
//! 1. All ranks compare their settings.
//! 2. Rank 0 resolves the run and broadcasts it, with the place of the data.
//! 3. Every rank opens its data, is admitted by its memory, and reads its file of the checkpoint, if there is one.
//! 4. Only when all ranks are ready, rank 0 creates, replaces or resumes the run, and broadcasts its directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use halograph_comm::{self as comm, Comm, Message};
use halograph_graph::Progress;
use halograph_graph::error::{Error as InputError, IoContext, Result as InputResult};
use halograph_train::event::Point;
use halograph_train::launch::{RankPart, all_succeed};
use halograph_train::run::{self, Header};
use halograph_train::tags::Control;
use halograph_train::{Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::demo::open_dataset;
use super::plan::{Plan, Target};
use super::prepare::{Admission, stage};
use super::start::{self, open_data};
use super::trained::demo_data;
use super::{Job, JobData, JobOptions, Role, leading};
use crate::config::{self, Setting};

/// How long a rank without a message waits before it returns: the first rank to exit decides the launcher's exit code.
const EXIT_DELAY: Duration = Duration::from_millis(200);

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
        let ranks = comm::launched_ranks().map(|n| Setting::new("launcher", "train.ranks", &n.to_string()));
        let settings: Vec<Setting> = settings.iter().cloned().chain(ranks).collect();
        let deadline = config::resolve(&settings).ok().map(|c| Duration::from_secs_f64(c.train.deadline));
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
        let problem = match (comm::launched(), comm::launched_ranks()) {
            (false, _) | (true, Some(1)) => return Ok(World::alone()),
            (true, Some(ranks)) => format!("started {ranks} ranks, and this build has no MPI"),
            (true, None) => "may have started several ranks, and this build has no MPI".to_string(),
        };
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

    /// Runs `work` on this rank, then leaves the other ranks. Collective; blocks.
    ///
    /// If any rank fails, all ranks return an error. A rank that knows the cause calls `report` with its error: usually one
    /// rank, several only if they fail independently at the same time. It notifies the others only after that, and they
    /// return last: a launcher kills all ranks when one exits, and takes the exit code of the first. A process alone reports
    /// its own error.
    pub fn run<T>(self, work: impl FnOnce(&World) -> Result<T>, report: impl FnOnce(&Error)) -> Result<T> {
        let done = work(&self).and_then(|value| self.clone().close().map(|()| value));
        done.map_err(|error| self.fail(error, report))
    }

    /// Leaves the other ranks after success. Collective; blocks.
    pub fn close(self) -> Result<()> {
        self.comm.map_or(Ok(()), |comm| Ok(comm.close()?))
    }

    /// Reports the failure of this rank, or waits until another one has; then the communicator can no longer be used. Returns
    /// the error. [`World::run`] does this.
    pub fn fail(self, error: Error, report: impl FnOnce(&Error)) -> Error {
        let Some(comm) = &self.comm else {
            report(&error);
            return error;
        };
        let error = cause(error, comm);
        if reports(&error, comm) {
            report(&error);
            comm.fail(&error.to_string());
        } else {
            comm.wait_for_failure();
            std::thread::sleep(EXIT_DELAY);
        }
        error
    }
}

/// Returns whether this rank should report `error`: it knows the cause, and no other rank has reported one.
fn reports(error: &Error, comm: &Comm) -> bool {
    match error {
        Error::Ranks(comm::Error::Failed { rank, .. }) if *rank != comm.rank() => false,
        Error::Ranks(comm::Error::Mismatch { .. }) | Error::Diverged { .. } => comm.rank() == 0,
        _ => !comm.failure_is_remote(),
    }
}

/// Returns what made a launcher interrupt this rank: the failure of another rank, if there is one. May block for
/// [`EXIT_DELAY`], because the signal may arrive before the failure is detected.
fn cause(error: Error, comm: &Comm) -> Error {
    if !matches!(error, Error::Input(InputError::Cancelled)) {
        return error;
    }
    std::thread::sleep(EXIT_DELAY);
    comm.failure().map_or(error, Error::from)
}

/// The job, as rank 0 broadcasts it before the run exists.
#[derive(Serialize, Deserialize)]
struct Announcement {
    header: Header,
    /// Where rank 0 reads the data; `None` for a dataset in memory.
    data: Option<PathBuf>,
    /// Whether the data are the built-in graph.
    is_demo: bool,
    trace: Option<PathBuf>,
    send_delay: Duration,
}

/// Opens the job on all ranks of a launcher. Collective; blocks.
pub(super) fn open(options: &JobOptions, world: &World, comm: &Comm, progress: &dyn Progress) -> Result<Job> {
    let settings = agree(&options.settings, comm)?;
    if comm.rank() > 0 {
        return follow(options, world, comm);
    }
    let plan = start::plan(options, &settings, progress)?;
    announce(comm, Some(&Announcement::of(&plan, options)?))?;
    all_succeed(comm, Control::DataOpened, Ok(()))?;
    stage(progress, "predicting memory")?;
    let (config, assignment) = (&plan.header.config, plan.assignment());
    let part = RankPart::open(comm, plan.data.source(), config, assignment, options.force)?;
    // Every rank predicts its own memory.
    let admission = Admission { predicted: None, layout: Some(part.layout().to_string()) };
    let opened = plan.commit(options, admission, |checkpoint| {
        // The last chance to stop before something is written.
        stage(progress, "loading")?;
        let checkpoint = checkpoint.map(|(run, at)| CheckpointFiles::of(run, at)).transpose()?;
        broadcast(comm, Control::ResumeFiles, Some(&checkpoint))?;
        all_succeed(comm, Control::JobReady, Ok(()))
    })?;
    let job = leading(options, world, Some(part), opened);
    let directory = job.directory().map(|path| std::path::absolute(path).at(path, "find")).transpose()?;
    broadcast(comm, Control::JobCreated, Some(&directory))?;
    Ok(job)
}

/// Opens the job on a rank other than 0.
fn follow(options: &JobOptions, world: &World, comm: &Comm) -> Result<Job> {
    let announced = announce(comm, None)?;
    let part = announced.header.config.part_of(comm.rank());
    let data = open_data(&options.data, part).and_then(|data| match data {
        Some(data) => Ok(data),
        None => announced.open_data(part),
    });
    let data = data.and_then(|data| data.with_split(announced.header.config.data.split_index));
    let data = all_succeed(comm, Control::DataOpened, data.map_err(Error::from))?;
    let part = RankPart::open(comm, data.source(), &announced.header.config, None, options.force)?;
    let checkpoint: Option<CheckpointFiles> = broadcast(comm, Control::ResumeFiles, None)?;
    let own = own_directory(options, checkpoint.as_ref(), comm);
    let own = all_succeed(comm, Control::JobReady, own)?;
    let created: Option<PathBuf> = broadcast(comm, Control::JobCreated, None)?;
    // Without a directory of rank 0 there are no checkpoints: all ranks must agree on that.
    let directory = created.map(|created| own.unwrap_or(created));
    Ok(Job {
        data,
        notes: Vec::new(),
        world: world.clone(),
        trace: announced.trace,
        send_delay: announced.send_delay,
        force: options.force,
        role: Role::Follow { header: Box::new(announced.header), directory },
        part: Some(part),
        started: false,
    })
}

/// Returns the run directory that was given to this rank, if one was. Refuses a run whose `checkpoint` this rank cannot read.
fn own_directory(
    options: &JobOptions,
    checkpoint: Option<&CheckpointFiles>,
    comm: &Comm,
) -> Result<Option<PathBuf>> {
    let own = options.out.path().map(|own| std::path::absolute(own).at(own, "find")).transpose()?;
    if let Some(checkpoint) = checkpoint {
        checkpoint.check(own.as_deref().unwrap_or(&checkpoint.directory), comm)?;
    }
    Ok(own)
}

/// The checkpoint that a run continues from, as rank 0 broadcasts it before the run is changed.
#[derive(Serialize, Deserialize)]
struct CheckpointFiles {
    /// Run directory of rank 0.
    directory: PathBuf,
    epoch: u64,
    step: u64,
    manifest: String,
}

impl CheckpointFiles {
    fn of(run: &Path, at: Point) -> InputResult<Self> {
        let directory = std::path::absolute(run).at(run, "find")?;
        let manifest = String::from_utf8_lossy(&run::read_manifest(run, at)?).into_owned();
        Ok(CheckpointFiles { directory, epoch: at.epoch, step: at.step, manifest })
    }

    /// Refuses a checkpoint of which the file of this rank is missing or damaged.
    fn check(&self, directory: &Path, comm: &Comm) -> InputResult<()> {
        let at = Point { epoch: self.epoch, step: self.step };
        run::read_rank(directory, at, comm.rank(), comm.size(), self.manifest.as_bytes()).map(drop)
    }
}

impl Announcement {
    fn of(plan: &Plan, options: &JobOptions) -> InputResult<Self> {
        let data = plan.data.reference()?.path;
        let is_demo = match &plan.target {
            Target::Existing(run) => data == std::path::absolute(demo_data(run.path())).ok(),
            Target::New(_) => false,
        };
        Ok(Announcement {
            header: plan.header.clone(),
            data,
            is_demo: is_demo || plan.demo.is_some(),
            trace: options.trace.clone(),
            send_delay: options.send_delay,
        })
    }

    /// Opens the data of rank 0 on a rank that was given none. On another host it generates the built-in graph, in temporary
    /// files that are removed, but stay mapped.
    fn open_data(&self, part: u32) -> InputResult<JobData> {
        let missing = || {
            InputError::input("data", "rank 0 trains on a dataset in memory, and this rank was given none")
                .help("give every rank the same dataset")
        };
        let there = self.data.as_ref().ok_or_else(missing)?;
        if self.is_demo && !there.exists() {
            return open_dataset(None).map(JobData::Dataset);
        }
        JobData::open(there, part)
    }
}

/// Returns the settings with the number of ranks, if they are valid and equal on all ranks. Collective; blocks.
fn agree(settings: &[Setting], comm: &Comm) -> Result<Vec<Setting>> {
    let ranks = Setting::new("launcher", "train.ranks", &comm.size().to_string());
    let all: Vec<Setting> = settings.iter().cloned().chain([ranks]).collect();
    let config = check_ranks(settings, comm.size()).and_then(|()| config::resolve(&all));
    let config = all_succeed(comm, Control::Settings, config.map_err(Error::from))?;
    let facts = config::flatten(&config)?;
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

/// Returns the announcement of rank 0 on all ranks, which then use its timeout. Collective; blocks.
fn announce(comm: &Comm, announcement: Option<&Announcement>) -> Result<Announcement> {
    let announced = broadcast(comm, Control::Job, announcement)?;
    comm.set_deadline(Duration::from_secs_f64(announced.header.config.train.deadline));
    Ok(announced)
}

/// Returns the value of rank 0 on all ranks. Collective; blocks.
fn broadcast<T: Serialize + DeserializeOwned>(comm: &Comm, tag: Control, value: Option<&T>) -> Result<T> {
    let text = value.map(|value| serde_json::to_vec(value).expect("numbers, names and paths serialise"));
    let message = comm.broadcast(tag.tag(), 0, text.as_deref().map(Message::of))?;
    let read = serde_json::from_slice(message.as_slice()?);
    let unreadable = |e| format!("its description of the job is unreadable: {e}");
    Ok(read.map_err(|e| InputError::input("rank 0", unreadable(e)))?)
}

#[cfg(test)]
mod tests;
