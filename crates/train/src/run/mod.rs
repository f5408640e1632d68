//! The run directory: configuration, metrics, weights and checkpoints of a run.
//!
//! ```text
//! run.json            data and configuration; after the end, the summary
//! metrics.jsonl       one line per epoch
//! model.safetensors   weights of the best evaluation
//! scaling.safetensors statistics by which features are scaled, if there are any
//! ckpt-E/             checkpoint after epoch E; ckpt-E.S/: after S more steps
//! rank-R/ckpt-E/      file of rank R, on a host that does not share this directory
//! demo-data/          the built-in graph, for a run without data
//! tensorboard/        event files, if requested
//! ```
//!
//! Files are written atomically (temporary name, sync, rename), and a lock admits one writing process. However that
//! process ends, [`Run::resume`] continues from the newest complete checkpoint: it truncates `metrics.jsonl` to that
//! checkpoint, and later epochs are trained again. A failed write is an [`Error`] and leaves the checkpoint intact.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use halograph_nn::state::State;
use serde_json::Value;

use crate::event::{EpochRecord, Point};
use files::{METRICS, REPORT, RUN, SCALING, StagedFile, WEIGHTS};
use header::RunFile;
use history::History;
use lock::Lock;

mod checkpoint;
mod files;
mod header;
mod history;
mod lock;
mod note;
mod resume;
mod store;
#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, PartialEpoch, RankFile, rank_directory};
pub use files::TRACE;
pub use header::{DataRef, Header, is_run};
pub use note::ResumeNote;
pub use resume::{FoundCheckpoint, LockedRun};
pub use store::{MemoryRun, RunSink, RunStore};

/// Folder of the built-in graph inside a run that was given no data.
pub const DEMO_DATA: &str = "demo-data";
/// Folder of TensorBoard event files inside a run.
pub const TENSORBOARD: &str = "tensorboard";

/// A run that this process writes.
#[derive(Debug)]
pub struct Run {
    path: PathBuf,
    header: Header,
    history: History,
    /// The newest checkpoint.
    newest: Option<Point>,
    lock: Lock,
    /// Folders that were created for a new run, deepest first; `None` once an epoch is recorded, and for other runs.
    new_folders: Option<Vec<PathBuf>>,
    /// The summary of a resumed run; `None` once another epoch is recorded.
    summary_before: Option<Value>,
}

/// A resumed run.
#[derive(Debug)]
pub struct Resumed {
    /// The run.
    pub run: Run,
    /// The newest complete checkpoint; `None` if the run ended before its first one.
    pub checkpoint: Option<Checkpoint>,
    /// The epochs up to the checkpoint. [`ResumeNote::IncompleteHistory`] tells if some are missing.
    pub history: Vec<EpochRecord>,
    /// Damaged files, and the files used instead.
    pub notes: Vec<ResumeNote>,
}

impl Run {
    /// Creates a run in the directory `path` and locks it. Creates missing folders and writes files. Replaces an existing
    /// run if `overwrite`. Refuses a directory that contains anything else.
    pub fn create(path: &Path, header: Header, overwrite: bool) -> Result<Run> {
        check_can_create(path, overwrite)?;
        let made = files::create_folder(path)?;
        let lock = Lock::take(path).inspect_err(|_| files::remove_empty_folders(&made))?;
        // Another process may have created a run before this one had the lock.
        check_can_create(path, overwrite)?;
        let is_new = !is_run(path);
        let history = write_initial(path, &header).inspect_err(|_| files::undo_create(path, &made))?;
        let new_folders = is_new.then_some(made);
        Ok(Run {
            path: path.to_path_buf(),
            header,
            history,
            newest: None,
            lock,
            new_folders,
            summary_before: None,
        })
    }

    /// Removes the files of a run that this process created and that has no epoch yet; returns whether it did. Does
    /// nothing to any other run.
    pub fn discard_if_empty(&mut self) -> bool {
        let Some(made) = self.new_folders.take() else { return false };
        files::remove_run_files(&self.path);
        files::remove_empty_folders(&made);
        true
    }

    /// Resumes the run in `path` from its newest complete checkpoint and locks it. Truncates `metrics.jsonl` and removes
    /// temporary files. Refuses a run of another format version, one that another process writes, and one whose
    /// checkpoints are all damaged. To check more before anything is written, see [`LockedRun`].
    pub fn resume(path: &Path) -> Result<Resumed> {
        let run = LockedRun::lock(path)?;
        let found = run.newest_checkpoint()?;
        run.resume(found)
    }

    /// Returns the data and the configuration of the run.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the run directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new unique token into the lock file and returns it, for [`is_same_directory`] on other hosts.
    pub fn write_token(&self) -> Result<String> {
        self.lock.check()?;
        self.lock.write_token()
    }

    /// Writes `run.json` of a resumed run, without a summary: settings and the place of the data may have changed.
    pub fn update_header(&mut self, header: Header) -> Result<()> {
        self.lock.check()?;
        self.header = header;
        let bytes = RunFile::new(&self.header, None).to_bytes(&self.path)?;
        files::write_atomic(&self.path, RUN, &bytes)
    }

    /// Appends an epoch to `metrics.jsonl`.
    pub fn record(&mut self, epoch: &EpochRecord) -> Result<()> {
        self.lock.check()?;
        self.history.append(epoch)?;
        (self.new_folders, self.summary_before) = (None, None);
        Ok(())
    }

    /// Writes a checkpoint of one rank, then removes older ones. Keeps the newest checkpoint if it is at the same point.
    ///
    /// Record all epochs and save the best weights before: a run that is resumed from here does not write them again.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.lock.check()?;
        let at = checkpoint.point();
        if self.newest != Some(at) {
            let metrics_bytes = self.history.sync()?;
            checkpoint::write(&self.path, checkpoint, metrics_bytes)?;
            (self.newest, self.new_folders, self.summary_before) = (Some(at), None, None);
        }
        checkpoint::prune(&self.path, at)
    }

    /// Creates the temporary folder of a checkpoint that several ranks write. Returns `false` if the newest checkpoint is
    /// at the same point: then there is nothing to write.
    pub fn begin_checkpoint(&mut self, at: Point) -> Result<bool> {
        self.lock.check()?;
        if self.newest == Some(at) {
            return Ok(false);
        }
        checkpoint::begin(&self.path, at)?;
        Ok(true)
    }

    /// Completes a checkpoint after all ranks have written their files ([`write_rank`]), then removes older ones. `files`
    /// are in rank order; `partition` is the layout of the parts that they own. As for [`Run::checkpoint`], record epochs
    /// and save weights before.
    pub fn commit_checkpoint(
        &mut self,
        checkpoint: &Checkpoint,
        files: Vec<RankFile>,
        partition: &str,
    ) -> Result<()> {
        self.lock.check()?;
        let metrics_bytes = self.history.sync()?;
        checkpoint::commit(&self.path, checkpoint, metrics_bytes, files, Some(partition))
            .inspect_err(|_| checkpoint::abandon(&self.path, checkpoint.point()))?;
        (self.newest, self.new_folders, self.summary_before) = (Some(checkpoint.point()), None, None);
        checkpoint::prune(&self.path, checkpoint.point())
    }

    /// Removes the temporary folder of a checkpoint that cannot be completed.
    pub fn abandon_checkpoint(&self, at: Point) {
        checkpoint::abandon(&self.path, at);
    }

    /// Writes the weights of the best evaluation.
    pub fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.lock.check()?;
        files::write_atomic(&self.path, WEIGHTS, &weights.to_bytes())
    }

    /// Writes the statistics by which features are scaled.
    pub fn save_scaling(&mut self, scaling: &State) -> Result<()> {
        self.lock.check()?;
        files::write_atomic(&self.path, SCALING, &scaling.to_bytes())
    }

    /// Writes the summary into `run.json`. A resumed run that trained no further epoch keeps its earlier summary.
    pub fn finish(&mut self, summary: &Value) -> Result<()> {
        self.lock.check()?;
        self.history.sync()?;
        let summary = self.summary_before.as_ref().unwrap_or(summary);
        let bytes = RunFile::new(&self.header, Some(summary)).to_bytes(&self.path)?;
        files::write_atomic(&self.path, RUN, &bytes)
    }
}

/// Writes `run.json` and an empty history; removes the files of an older run.
fn write_initial(path: &Path, header: &Header) -> Result<History> {
    let new = StagedFile::write(path, RUN, &RunFile::new(header, None).to_bytes(path)?)?;
    // Removed first: files of the old run must never be found beside the new run.json.
    for at in checkpoint::points(path)? {
        checkpoint::remove(path, at)?;
    }
    for name in [METRICS, WEIGHTS, SCALING, TRACE, REPORT] {
        files::remove_file(&path.join(name))?;
    }
    for name in files::FOLDERS {
        files::remove_folder(&path.join(name))?;
    }
    files::sync_folder(path)?;
    new.publish()?;
    files::remove_leftovers(path)?;
    History::create(path)
}

/// Returns the folder of a file; `.` for a bare name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses an output file that cannot be written later. Call it before the work whose result it receives.
///
/// With `overwrite` an existing file may be replaced if it is empty or starts with one of `prefixes`, i.e. is of the same
/// kind: a mistyped name must not destroy a dataset or a run.
pub fn may_write(path: &Path, overwrite: bool, kind: &str, prefixes: &[&str]) -> Result<()> {
    if path.is_dir() {
        let error = Error::input(path.display(), "is a folder");
        return Err(error.help(format!("give the name of a file for {kind}")));
    }
    let folder = folder_of(path);
    if folder.is_dir() && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err() {
        let error = Error::input(path.display(), format!("{kind} cannot be written there"));
        return Err(error.help("choose another file, or allow writing into its folder"));
    }
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    if !overwrite {
        let error = Error::input(path.display(), "exists already");
        return Err(error.help("choose another file, or replace it with --overwrite"));
    }
    let mut start = Vec::new();
    let longest = prefixes.iter().map(|text| text.len()).max().unwrap_or(0) as u64;
    File::open(path).and_then(|file| file.take(longest).read_to_end(&mut start)).at(path, "read")?;
    if start.is_empty() || prefixes.iter().any(|text| start.starts_with(text.as_bytes())) {
        return Ok(());
    }
    let error = Error::input(path.display(), format!("exists already and is not {kind}"));
    Err(error.help("choose another file: --overwrite replaces only a file of the same kind"))
}

/// Writes a file atomically.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = folder_of(path);
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::input(path.display(), "not the name of a file"))?;
    files::write_atomic(folder, name, bytes)
}

/// Returns whether `path` is the run directory for which [`Run::write_token`] returned `token`, and not another directory
/// of that name on another host.
pub fn is_same_directory(path: &Path, token: &str) -> bool {
    lock::has_token(path, token)
}

/// Writes the state of `rank` into the checkpoint that [`Run::begin_checkpoint`] began in `path` or, if `path` is not
/// shared with rank 0, into the [`rank_directory`].
pub fn write_rank(path: &Path, at: Point, rank: usize, state: &State, is_shared: bool) -> Result<RankFile> {
    let write = if is_shared { checkpoint::write_rank } else { checkpoint::write_in_rank_directory };
    Ok(RankFile::new(write(path, at, rank, state)?, !is_shared))
}

/// Removes older checkpoints from the [`rank_directory`] of `rank`.
pub fn prune_rank_directory(path: &Path, at: Point, rank: usize) -> Result<()> {
    checkpoint::prune(&rank_directory(path, rank), at)
}

/// Reads the manifest of the checkpoint at this point of the run in `path`, for ranks that do not share the directory.
pub fn read_manifest(path: &Path, at: Point) -> Result<Vec<u8>> {
    checkpoint::read_manifest(path, at)
}

/// Refuses to resume the run in `path` from the checkpoint at this point on a partition of another layout
/// (`PartitionInfo::layout`) than it was written with. Checkpoints that record none are accepted.
pub fn check_partition(path: &Path, at: Point, layout: &str) -> Result<()> {
    checkpoint::check_partition(path, at, layout)
}

/// Reads the state of `rank` of `ranks` from the checkpoint at this point of the run in `path`, which has this manifest.
pub fn read_rank(path: &Path, at: Point, rank: usize, ranks: usize, manifest: &[u8]) -> Result<Checkpoint> {
    checkpoint::read_rank(path, at, rank, ranks, manifest)
}

/// Reads the data and the configuration of the run in `path`. Needs no lock.
pub fn read_header(path: &Path) -> Result<Header> {
    Ok(RunFile::read(path)?.into_parts().0)
}

/// Reads the summary of the run in `path`; `None` until it has ended. Needs no lock.
pub fn read_summary(path: &Path) -> Result<Option<Value>> {
    Ok(RunFile::read(path)?.into_parts().1)
}

/// Reads the epochs of the run in `path`, which may be in progress: up to the first line that is incomplete. Needs no lock.
pub fn read_history(path: &Path) -> Result<Vec<EpochRecord>> {
    let file = path.join(METRICS);
    match files::read(&file) {
        Ok(bytes) => Ok(history::parse(&bytes, u64::MAX).0),
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the weights of the best evaluation of the run in `path`. Needs no lock.
pub fn read_weights(path: &Path) -> Result<State> {
    let file = path.join(WEIGHTS);
    let bytes = files::read(&file).map_err(|error| match &error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            Error::input(file.display(), "there are no weights yet")
                .help("they are written with the first checkpoint of the run")
        }
        _ => error,
    })?;
    State::from_bytes(&file.display().to_string(), &bytes)
}

/// Reads the statistics by which the run in `path` scaled features, if there are any.
pub fn read_scaling(path: &Path) -> Result<Option<State>> {
    let file = path.join(SCALING);
    if !file.exists() {
        return Ok(None);
    }
    State::from_bytes(&file.display().to_string(), &files::read(&file)?).map(Some)
}

/// Refuses a path where no run can be created: only a missing or empty folder is accepted and, with `overwrite`, one that
/// contains a run and nothing else. Writes nothing.
pub fn check_can_create(path: &Path, overwrite: bool) -> Result<()> {
    let refuse = |problem: String, help: &str| Err(Error::input(path.display(), problem).help(help));
    if path == Path::new("") {
        return refuse("a run needs a folder".into(), "give --out a path");
    }
    if path.exists() && !path.is_dir() {
        return refuse("is a file, not a folder".into(), "choose another folder for the run");
    }
    let names = files::names(path)?;
    // A process that was killed while it created a run may have left these.
    let Some(first) = names.iter().find(|name| *name != files::LOCK && !files::is_leftover(name)) else {
        return Ok(());
    };
    if !is_run(path) {
        return refuse(format!("contains {first:?} and is not a run"), "choose another folder for the run");
    }
    if !overwrite {
        return refuse(
            "contains a run already".into(),
            "continue it with --resume, replace it with --overwrite, or choose another folder",
        );
    }
    let mut unexpected = names.iter().find(|name| !files::is_own(name)).cloned();
    for at in checkpoint::points(path)? {
        unexpected = unexpected.or(checkpoint::unexpected_file(path, at)?);
    }
    for folder in files::FOLDERS {
        unexpected = unexpected.or(files::unexpected_file(path, folder)?);
    }
    match unexpected {
        None => Ok(()),
        Some(name) => refuse(
            format!("contains {name:?}, which does not belong to a run and would be lost"),
            "move it away, or choose another folder",
        ),
    }
}
