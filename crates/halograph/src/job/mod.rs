//! A training job: data, settings and a run, from start or resume to predictions. The command line is a
//! thin layer over it.
//!
//! ```no_run
//! use halograph::job::{Job, JobOptions, NoObserver, World};
//! use halograph::graph::progress::Silent;
//!
//! let options = JobOptions::new("cora").set("model.kind", "gcn").set("train.epochs", 200).out("runs/mine");
//! let mut job = Job::open(&options, &World::alone(), &Silent)?;
//! job.notes().iter().for_each(|note| println!("note: {note}"));
//! let summary = job.train(&mut NoObserver)?.expect("this is rank 0");
//! println!("test {:?}", summary.test);
//! # Ok::<(), halograph::Error>(())
//! ```
//!
//! [`Job::open`] and [`Job::train`] serve one process, ranks as threads (`train.ranks`) and ranks that a launcher started
//! ([`World::join`]); the same program runs in all three. No run is created or changed before the data, the settings and
//! the memory have been checked on all ranks; only caches of a dataset may be written. A run that ends before its first epoch is removed.

mod data;
mod demo;
mod directory;
mod objective;
mod plan;
mod prepare;
mod resume;
mod shards;
mod split;
mod start;
mod trained;
mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halograph_graph::error::Error as InputError;
use halograph_graph::partition::Assignment;
use halograph_graph::{Dataset, Progress};
use halograph_train::event::{Event, Observer, Scores};
use halograph_train::launch::{self, Extras, Follower, Leader, RankPart};
use halograph_train::run::{Header, MemoryRun, Run, RunStore};
use halograph_train::trainer::ResumePoint;
use halograph_train::{Config, Result, Summary, TrainedModel};

pub use self::data::{JobData, is_shards};
pub use self::demo::open_dataset;
pub use self::directory::NewDirectory;
pub use self::prepare::{Admission, check_one_process};
pub use self::shards::{AssignmentOption, ShardOptions, write_shards};
pub use self::split::{ComparedPartition, SplitComparison, compare_splits};
pub use self::trained::{open_data_for, open_trained};
pub use self::world::World;
use crate::config::Setting;
pub use crate::note::Note;

/// What to train on.
#[derive(Clone, Default)]
pub enum DataOption {
    /// The built-in graph, or the data of the run that is resumed.
    #[default]
    Default,
    /// A dataset directory, or a folder of shards.
    Path(PathBuf),
    /// A dataset that is open already, on disk or in memory.
    Open(Arc<Dataset>),
}

impl From<&str> for DataOption {
    fn from(path: &str) -> Self {
        DataOption::Path(path.into())
    }
}

impl From<PathBuf> for DataOption {
    fn from(path: PathBuf) -> Self {
        DataOption::Path(path)
    }
}

impl From<Arc<Dataset>> for DataOption {
    fn from(dataset: Arc<Dataset>) -> Self {
        DataOption::Open(dataset)
    }
}

/// Where the results of a job go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OutOption {
    /// A new directory `runs/<time>-<dataset>-<model>`.
    #[default]
    Default,
    /// This directory.
    Path(PathBuf),
    /// Nowhere: the run is kept in memory, writes nothing and cannot be resumed.
    Memory,
}

impl OutOption {
    fn path(&self) -> Option<&Path> {
        match self {
            OutOption::Path(path) => Some(path),
            OutOption::Default | OutOption::Memory => None,
        }
    }
}

/// What a job is asked to do.
#[derive(Clone, Default)]
pub struct JobOptions {
    /// The data.
    pub data: DataOption,
    /// Settings in increasing order of precedence, over the defaults of the model.
    pub settings: Vec<Setting>,
    /// Where the results go.
    pub out: OutOption,
    /// Whether to continue the run in `out`, if there is one.
    pub resume: bool,
    /// Whether an existing run in `out`, and an existing trace file, may be replaced.
    pub overwrite: bool,
    /// Whether to train although more memory is predicted than is free.
    pub force: bool,
    /// File for a trace of all ranks.
    pub trace: Option<PathBuf>,
    /// Artificial delay of messages between ranks, for benchmarks. With a launcher, that of rank 0 counts.
    #[doc(hidden)]
    pub send_delay: Duration,
}

impl JobOptions {
    /// Trains on `data` with default settings, into a new directory.
    pub fn new(data: impl Into<DataOption>) -> Self {
        JobOptions { data: data.into(), ..JobOptions::default() }
    }

    /// Adds a setting, e.g. `("model.hidden", 256)`. A part of the key that contains dots is quoted, as in TOML:
    /// `train.weight_decay_for."convs.0"`. The value may be a TOML table.
    pub fn set(mut self, key: &str, value: impl ToString) -> Self {
        self.settings.extend(Setting::quoted("set", key, &value.to_string()).parts());
        self
    }

    /// Writes the run into `path`.
    pub fn out(mut self, path: impl Into<PathBuf>) -> Self {
        self.out = OutOption::Path(path.into());
        self
    }

    /// Keeps the run in memory.
    pub fn in_memory(mut self) -> Self {
        self.out = OutOption::Memory;
        self
    }
}

/// Ignores all events and never requests to stop.
pub struct NoObserver;

impl Observer for NoObserver {
    fn on(&mut self, _: &Event) {}
}

/// A job whose data are open and whose run exists: ready to train.
pub struct Job {
    data: JobData,
    notes: Vec<Note>,
    world: World,
    trace: Option<PathBuf>,
    send_delay: Duration,
    force: bool,
    role: Role,
    /// The part of a rank that a launcher started.
    part: Option<RankPart>,
    /// Whether [`Job::train`] was called.
    started: bool,
}

enum Role {
    /// Rank 0, or the only process.
    Lead(Box<Lead>),
    /// Another rank that a launcher started.
    Follow {
        header: Box<Header>,
        /// Path of the run directory on this rank's host; `None` if the run has none.
        directory: Option<PathBuf>,
    },
}

/// What only rank 0 has.
struct Lead {
    store: Store,
    /// Where a resumed run continues.
    from: Option<ResumePoint>,
    /// Epochs completed before this process resumed the run.
    epochs_before: u64,
    /// The part of each node, if the data are not shards.
    assignment: Option<Assignment>,
    predicted: Option<u64>,
    /// Whether the run ended before its first epoch and was removed.
    removed: bool,
    /// Removes empty folders. Dropped last, after the files of a run without epochs are removed.
    _new: Option<NewDirectory>,
}

/// The run. Dropping it removes a new run that has no epoch.
enum Store {
    Directory(Box<Run>),
    Memory(Box<MemoryRun>),
}

impl Store {
    fn get(&self) -> &dyn RunStore {
        match self {
            Store::Directory(run) => &**run,
            Store::Memory(run) => &**run,
        }
    }

    fn get_mut(&mut self) -> &mut dyn RunStore {
        match self {
            Store::Directory(run) => &mut **run,
            Store::Memory(run) => &mut **run,
        }
    }

    /// Removes the files of a new run that has no epoch; returns whether it did.
    fn discard_if_empty(&mut self) -> bool {
        match self {
            Store::Directory(run) => run.discard_if_empty(),
            Store::Memory(_) => false,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.discard_if_empty();
    }
}

impl Job {
    /// Opens the data and creates or resumes the run. Blocks; collective if `world` has several ranks. Writes the run
    /// directory after data, settings and memory have been checked on all ranks, and may store a partition and a node order
    /// in the dataset directory. Dropping the job removes a new run that was not trained.
    ///
    /// After an error on one of several ranks, the others wait until all handles of its `world` are dropped; [`World::run`]
    /// does that.
    pub fn open(options: &JobOptions, world: &World, progress: &dyn Progress) -> Result<Self> {
        match world.comm() {
            None => open_alone(options, world, progress),
            Some(comm) => world::open(options, world, comm, progress),
        }
    }

    /// Trains until all epochs are completed, early stopping ends the run, or `observer` requests to stop. Returns a summary
    /// on rank 0, and `None` on other ranks. Blocks; collective if there are several ranks. A new run that ends before its
    /// first epoch is removed.
    ///
    /// A job is trained once: to continue the run, open it again with [`JobOptions::resume`].
    pub fn train(&mut self, observer: &mut dyn Observer) -> Result<Option<Summary>> {
        if std::mem::replace(&mut self.started, true) {
            return Err(InputError::input("job", "was trained already")
                .help("open the run again with `resume` to continue it, or a new job to start over")
                .into());
        }
        let comm = self.world.comm();
        let mut extras = Extras {
            trace: self.trace.as_deref(),
            part: self.part.as_ref(),
            force: self.force,
            send_delay: self.send_delay,
            ..Extras::default()
        };
        match &mut self.role {
            Role::Follow { header, directory } => {
                let world = comm.expect("only ranks of a launcher follow");
                let follower = Follower { world, header, directory: directory.as_deref(), observer };
                launch::train_as_follower(self.data.source(), follower, extras).map(|()| None)
            }
            Role::Lead(lead) => {
                extras.assignment = lead.assignment.as_ref();
                let from = lead.from.take();
                let leader = Leader { world: comm, run: lead.store.get_mut(), from, observer };
                let trained = launch::train(self.data.source(), leader, extras);
                let is_empty = trained.as_ref().map_or(true, Summary::is_empty);
                lead.removed = is_empty && lead.store.discard_if_empty();
                trained.map(Some)
            }
        }
    }

    /// Returns the model with the best weights; fails before the first checkpoint, and on ranks other than 0. Reads the run
    /// directory, if there is one.
    pub fn trained(&self) -> Result<TrainedModel> {
        match &self.role {
            Role::Lead(lead) => match &lead.store {
                Store::Memory(run) => TrainedModel::of(run),
                Store::Directory(run) => TrainedModel::open(run.path()),
            },
            Role::Follow { .. } => {
                Err(InputError::input("trained model", "only rank 0 has the results of a run").into())
            }
        }
    }

    /// Returns the data.
    pub fn data(&self) -> &JobData {
        &self.data
    }

    /// Returns the resolved configuration.
    pub fn config(&self) -> &Config {
        match &self.role {
            Role::Lead(lead) => &lead.store.get().header().config,
            Role::Follow { header, .. } => &header.config,
        }
    }

    /// Returns remarks on the data and the settings, for the user. Empty on ranks other than 0.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns remarks on the scores of this job. Before the training, labels were counted only if the data are a dataset.
    pub fn notes_on(&self, summary: &Summary) -> Vec<Note> {
        let Some(report) = &summary.classes else { return Vec::new() };
        let scores = Scores { train: summary.train, val: summary.val, test: summary.test, val_loss: None };
        let mut notes = if self.data.parts().is_some() { Note::on_support(report) } else { Vec::new() };
        notes.extend(Note::on_majority(report, &scores, summary.metric));
        notes
    }

    /// Returns the summary of this job as JSON, with the predicted memory, the run directory and the name of the data.
    pub fn summary_json(&self, summary: &Summary) -> serde_json::Value {
        let mut line = serde_json::to_value(summary).expect("numbers and names always serialise");
        line["predicted_peak_bytes"] = self.predicted_bytes().into();
        line["run"] = self.directory().map(|path| path.display().to_string()).into();
        line["data"] = self.data.manifest().name.clone().into();
        line
    }

    /// Returns the run directory; `None` for a run in memory.
    pub fn directory(&self) -> Option<&Path> {
        match &self.role {
            Role::Lead(lead) => match &lead.store {
                Store::Directory(run) => Some(run.path()),
                Store::Memory(_) => None,
            },
            Role::Follow { directory, .. } => directory.as_deref(),
        }
    }

    /// Returns the predicted peak memory in bytes, if it was predicted.
    pub fn predicted_bytes(&self) -> Option<u64> {
        self.lead().and_then(|lead| lead.predicted)
    }

    /// Returns the number of epochs completed before this process resumed the run.
    pub fn epochs_before(&self) -> u64 {
        self.lead().map_or(0, |lead| lead.epochs_before)
    }

    /// Returns whether the run ended before its first epoch and was removed.
    pub fn is_removed(&self) -> bool {
        self.lead().is_some_and(|lead| lead.removed)
    }

    fn lead(&self) -> Option<&Lead> {
        match &self.role {
            Role::Lead(lead) => Some(lead.as_ref()),
            Role::Follow { .. } => None,
        }
    }
}

/// Opens a job of this process alone.
fn open_alone(options: &JobOptions, world: &World, progress: &dyn Progress) -> Result<Job> {
    let plan = start::plan(options, &options.settings, progress)?;
    let (assignment, config) = (plan.assignment(), &plan.header.config);
    let admission = prepare::admit(&plan.data, assignment, config, options.force, progress)?;
    // The last chance to stop before something is written.
    let opened = plan.commit(options, admission, |_| prepare::stage(progress, "loading"))?;
    Ok(leading(options, world, None, opened))
}

/// Returns the job of rank 0.
fn leading(
    options: &JobOptions,
    world: &World,
    part: Option<RankPart>,
    (data, lead, notes): (JobData, Lead, Vec<Note>),
) -> Job {
    Job {
        data,
        notes,
        world: world.clone(),
        trace: options.trace.clone(),
        send_delay: options.send_delay,
        force: options.force,
        role: Role::Lead(Box::new(lead)),
        part,
        started: false,
    }
}
