//! The run directory: everything a run leaves on disk, and how it is found again after any end.
//!
//! ```text
//! run.json            what the run is; after the end, its summary
//! metrics.jsonl       one line an epoch
//! model.safetensors   weights of the best evaluation
//! scaling.safetensors what was done to features, if that has numbers
//! ckpt-E/             all that is needed to continue after epoch E; ckpt-E.S/ after S more steps
//! rank-R/ckpt-E/      the same on the host of rank R, if that does not see this folder
//! demo-data/, tensorboard/   if the run was given no data, or was asked for event files
//! ```
//!
//! Every file appears whole or not at all, and one process at a time writes a run. Whatever ends that process (a
//! signal, a full disk, the power), [`Run::resume`] goes on from the newest checkpoint that is whole: it cuts
//! `metrics.jsonl` to it, and what followed is done again. A failed write is an [`Error`] and leaves that checkpoint
//! as it was.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use halograph_nn::state::State;
use serde_json::Value;

use crate::event::{EpochRecord, Point};
use checkpoint::Saved;
use files::{METRICS, REPORT, RUN, SCALING, Staged, TRACE, WEIGHTS};
use header::RunFile;
use history::History;
use lock::Lock;

mod checkpoint;
mod files;
mod header;
mod history;
mod lock;
mod note;
mod store;
#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, PartialEpoch, Written, annex};
pub use header::{DataRef, Header, is_run};
pub use note::ResumeNote;
pub use store::{MemoryRun, RunSink, RunStore};

/// Folder inside a run for a graph that was made for it, if it was given none.
pub const DEMO_DATA: &str = "demo-data";
/// Folder inside a run for TensorBoard's event files.
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
    /// Folders that were made for a new run, as long as it holds no epoch.
    fresh: Option<Vec<PathBuf>>,
    /// How it ended before, as long as it has not gone on.
    ended: Option<Value>,
}

/// A run that is taken up again.
#[derive(Debug)]
pub struct Resumed {
    /// The run.
    pub run: Run,
    /// Where it stood; nothing if it ended before its first checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The epochs up to the checkpoint; some are missing if a note says so.
    pub history: Vec<EpochRecord>,
    /// Damaged files, and what is used instead.
    pub notes: Vec<ResumeNote>,
}

impl Run {
    /// A new run in the folder `path`, which is made if it is not there. A run that is there already is replaced if
    /// `overwrite` and refused otherwise; a folder that holds anything else is refused always.
    pub fn create(path: &Path, header: Header, overwrite: bool) -> Result<Run> {
        may_create(path, overwrite)?;
        let made = files::make_folder(path)?;
        let lock = Lock::take(path).inspect_err(|_| files::remove_empty(&made))?;
        // Others may have been here before we had the lock.
        may_create(path, overwrite)?;
        let is_new = !is_run(path);
        let history = begin(path, &header).inspect_err(|_| files::unmake(path, &made))?;
        let fresh = is_new.then_some(made);
        Ok(Run { path: path.to_path_buf(), header, history, newest: None, lock, fresh, ended: None })
    }

    /// Removes a run that this process has made and that holds no epoch yet: it is worth nothing. Gives whether it did.
    pub fn take_back(&mut self) -> bool {
        let Some(made) = self.fresh.take() else { return false };
        files::strip(&self.path);
        files::remove_empty(&made);
        true
    }

    /// Takes up the run in `path` from its newest checkpoint that is whole. It is refused when there are checkpoints
    /// and none of them is, when another process writes it, and when another version wrote it.
    pub fn resume(path: &Path) -> Result<Resumed> {
        // Before anything is made in a folder that may not be a run's.
        RunFile::read(path)?;
        let lock = Lock::take(path)?;
        let (header, ended) = RunFile::read(path)?.into_parts();
        files::clean(path)?;
        let (found, mut notes) = newest_whole(path, header.config.train.ranks)?;
        let (epoch, end) =
            found.as_ref().map_or((0, 0), |saved| (saved.checkpoint.epoch, saved.metrics_bytes));
        let (file, history, note) = History::reopen(path, epoch, end)?;
        notes.extend(note);
        let checkpoint = found.map(|saved| saved.checkpoint);
        let newest = checkpoint.as_ref().map(Checkpoint::point);
        let run = Run { path: path.to_path_buf(), header, history: file, newest, lock, fresh: None, ended };
        Ok(Resumed { run, checkpoint, history, notes })
    }

    /// What the run is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Marks the folder, so that other processes can find out whether they see it ([`sees`]).
    pub fn mark(&self) -> Result<String> {
        self.lock.check()?;
        self.lock.mark()
    }

    /// Says in `run.json` that the run goes on, what it does from here on, and where its data are now.
    pub fn go_on(&mut self, header: Header) -> Result<()> {
        self.lock.check()?;
        self.header = header;
        let bytes = RunFile::new(&self.header, None).to_bytes(&self.path)?;
        files::write_whole(&self.path, RUN, &bytes)
    }

    /// Adds an epoch to `metrics.jsonl`.
    pub fn record(&mut self, epoch: &EpochRecord) -> Result<()> {
        self.lock.check()?;
        (self.fresh, self.ended) = (None, None);
        self.history.append(epoch)
    }

    /// Saves where the run stands; when that is done, older checkpoints go. All epochs up to it must have been
    /// recorded, and the best weights saved, before: they are not written again when the run is resumed from here. If
    /// the newest checkpoint is at the same point, it is kept.
    pub fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.lock.check()?;
        let at = checkpoint.point();
        if self.newest != Some(at) {
            let metrics_bytes = self.history.sync()?;
            checkpoint::write(&self.path, checkpoint, metrics_bytes)?;
            (self.newest, self.fresh, self.ended) = (Some(at), None, None);
        }
        checkpoint::prune(&self.path, at)
    }

    /// Begins a checkpoint that several ranks write; gives whether there is anything to write: if the newest checkpoint
    /// is at the same point, it is kept.
    pub fn begin_checkpoint(&mut self, at: Point) -> Result<bool> {
        self.lock.check()?;
        if self.newest == Some(at) {
            return Ok(false);
        }
        checkpoint::begin(&self.path, at)?;
        Ok(true)
    }

    /// Ends a checkpoint that was begun, when all ranks have written ([`write_rank`]) what `written` describes, in their
    /// order; older ones go. As for [`Run::checkpoint`], epochs are recorded and weights saved before.
    pub fn commit_checkpoint(&mut self, checkpoint: &Checkpoint, written: Vec<Written>) -> Result<()> {
        self.lock.check()?;
        let metrics_bytes = self.history.sync()?;
        checkpoint::commit(&self.path, checkpoint, metrics_bytes, written)
            .inspect_err(|_| checkpoint::abandon(&self.path, checkpoint.point()))?;
        (self.newest, self.fresh, self.ended) = (Some(checkpoint.point()), None, None);
        checkpoint::prune(&self.path, checkpoint.point())
    }

    /// Gives up a checkpoint that was begun and cannot be made whole.
    pub fn abandon_checkpoint(&self, at: Point) {
        checkpoint::abandon(&self.path, at);
    }

    /// Saves the weights of the best evaluation.
    pub fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.lock.check()?;
        files::write_whole(&self.path, WEIGHTS, &weights.to_bytes())
    }

    /// Saves what is done to features before they are used.
    pub fn save_scaling(&mut self, scaling: &State) -> Result<()> {
        self.lock.check()?;
        files::write_whole(&self.path, SCALING, &scaling.to_bytes())
    }

    /// Adds the summary to `run.json`.
    pub fn finish(&mut self, summary: &Value) -> Result<()> {
        self.lock.check()?;
        self.history.sync()?;
        // A run that had nothing left to do is what it was.
        let summary = self.ended.as_ref().unwrap_or(summary);
        let bytes = RunFile::new(&self.header, Some(summary)).to_bytes(&self.path)?;
        files::write_whole(&self.path, RUN, &bytes)
    }
}

/// Writes what a new run begins with, in place of what an older one left.
fn begin(path: &Path, header: &Header) -> Result<History> {
    let new = Staged::write(path, RUN, &RunFile::new(header, None).to_bytes(path)?)?;
    // What the old run left must never be found beside the new description, so it goes first.
    for at in checkpoint::points(path)? {
        checkpoint::discard(path, at)?;
    }
    for name in [METRICS, WEIGHTS, SCALING, TRACE, REPORT] {
        files::remove_file(&path.join(name))?;
    }
    for name in files::FOLDERS {
        files::remove_folder(&path.join(name))?;
    }
    files::sync_folder(path)?;
    new.place()?;
    files::clean(path)?;
    History::create(path)
}

/// Where a file is, or will be: a bare name is one of this folder.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a file that was asked for by name may be written: asked before any work is done for it.
///
/// With `overwrite` a file is replaced if it begins as one of its kind does (`begins`), or is empty: a slip of the pen must
/// not cost a dataset or a run.
pub fn may_write(path: &Path, overwrite: bool, kind: &str, begins: &[&str]) -> Result<()> {
    if path.is_dir() {
        let error = Error::input(path.display(), "a folder");
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
    let longest = begins.iter().map(|text| text.len()).max().unwrap_or(0) as u64;
    File::open(path).and_then(|file| file.take(longest).read_to_end(&mut start)).at(path, "read")?;
    if start.is_empty() || begins.iter().any(|text| start.starts_with(text.as_bytes())) {
        return Ok(());
    }
    let error = Error::input(path.display(), format!("exists already and is not {kind}"));
    Err(error.help("choose another file: only one of its kind is replaced"))
}

/// Writes a file that stands beside a run: whole, or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = folder_of(path);
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::input(path.display(), "not the name of a file"))?;
    files::write_whole(folder, name, bytes)
}

/// Whether this process sees the folder `path` of the run that gave this [`Run::mark`].
pub fn sees(path: &Path, mark: &str) -> bool {
    lock::is_marked(path, mark)
}

/// Writes what `rank` needs to go on into the checkpoint that [`Run::begin_checkpoint`] began in `path`, or into a
/// folder of its own if it does not see that one.
pub fn write_rank(path: &Path, at: Point, rank: usize, state: &State, sees: bool) -> Result<Written> {
    let write = if sees { checkpoint::write_rank } else { checkpoint::write_annex };
    Ok(Written::new(write(path, at, rank, state)?, !sees))
}

/// Removes what `rank` keeps of older checkpoints in a folder of its own.
pub fn prune_annex(path: &Path, at: Point, rank: usize) -> Result<()> {
    checkpoint::prune(&annex(path, rank), at)
}

/// Reads the manifest of the checkpoint at this point of the run in `path`.
pub fn read_manifest(path: &Path, at: Point) -> Result<Vec<u8>> {
    checkpoint::read_manifest(path, at)
}

/// Reads what `rank` of `ranks` needs of the checkpoint at this point of the run in `path`, which has this manifest.
pub fn read_rank(path: &Path, at: Point, rank: usize, ranks: usize, manifest: &[u8]) -> Result<Checkpoint> {
    checkpoint::read_rank(path, at, rank, ranks, manifest)
}

/// What the run in `path` is, whoever may be writing it.
pub fn read_header(path: &Path) -> Result<Header> {
    Ok(RunFile::read(path)?.into_parts().0)
}

/// How the run in `path` went, if it is over.
pub fn read_summary(path: &Path) -> Result<Option<Value>> {
    Ok(RunFile::read(path)?.into_parts().1)
}

/// The weights of the best evaluation of the run in `path`.
pub fn read_weights(path: &Path) -> Result<State> {
    let file = path.join(WEIGHTS);
    let bytes = files::read(&file).map_err(|error| match &error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            Error::input(file.display(), "there are no weights yet")
                .help("they are saved with the run's first checkpoint")
        }
        _ => error,
    })?;
    State::from_bytes(&file.display().to_string(), &bytes)
}

/// What the run in `path` did to features, if that has numbers.
pub fn read_scaling(path: &Path) -> Result<Option<State>> {
    let file = path.join(SCALING);
    if !file.exists() {
        return Ok(None);
    }
    State::from_bytes(&file.display().to_string(), &files::read(&file)?).map(Some)
}

/// Whether `path` may become a run: it is not there, is empty, or is nothing but a run and `overwrite` is set.
pub fn may_create(path: &Path, overwrite: bool) -> Result<()> {
    let refuse = |problem: String, help: &str| Err(Error::input(path.display(), problem).help(help));
    if path == Path::new("") {
        return refuse("a run needs a folder".into(), "give --out a path");
    }
    if path.exists() && !path.is_dir() {
        return refuse("is a file, not a folder".into(), "choose another folder for the run");
    }
    let names = files::names(path)?;
    // A process that died while it began a run may have left these.
    let Some(first) = names.iter().find(|name| *name != files::LOCK && !files::is_leftover(name)) else {
        return Ok(());
    };
    if !is_run(path) {
        return refuse(format!("holds {first:?} and is not a run"), "choose another folder for the run");
    }
    if !overwrite {
        return refuse(
            "holds a run already".into(),
            "continue it with --resume, replace it with --overwrite, or choose another folder",
        );
    }
    let mut foreign = names.iter().find(|name| !files::is_own(name)).cloned();
    for at in checkpoint::points(path)? {
        foreign = foreign.or(checkpoint::foreign(path, at)?);
    }
    for folder in files::FOLDERS {
        foreign = foreign.or(files::foreign(path, folder)?);
    }
    match foreign {
        None => Ok(()),
        Some(name) => refuse(
            format!("holds {name:?}, which is no part of a run and would be lost"),
            "move it away, or choose another folder",
        ),
    }
}

/// The newest checkpoint that is whole, and notes on newer ones that are not. If there are checkpoints and none is
/// whole, starting again would write over the last results: that is for the user to decide.
fn newest_whole(path: &Path, ranks: usize) -> Result<(Option<Saved>, Vec<ResumeNote>)> {
    let mut damage: Vec<String> = Vec::new();
    for at in checkpoint::points(path)? {
        match checkpoint::read(path, at, ranks) {
            Ok(found) => {
                let note = |problem| ResumeNote::DamagedCheckpoint { problem, used: at };
                return Ok((Some(found), damage.into_iter().map(note).collect()));
            }
            // The advice of a single error would not fit here: it is left out.
            Err(error) => damage.extend(error.to_string().lines().next().map(String::from)),
        }
    }
    if damage.is_empty() {
        return Ok((None, Vec::new()));
    }
    let problem = format!("no checkpoint is whole: {}", damage.join("; "));
    Err(Error::input(path.display(), problem).help(format!(
        "restore it from a copy, or start again with --overwrite; {WEIGHTS} may still be used by eval and predict"
    )))
}
