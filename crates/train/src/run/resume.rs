//! Resuming a run: first it is locked and read, then changed, so that a caller can check everything in between.

use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, Result};
use serde_json::Value;

use super::checkpoint::{self, Checkpoint, Saved};
use super::files::{self, WEIGHTS};
use super::header::{Header, RunFile};
use super::history::History;
use super::lock::Lock;
use super::note::ResumeNote;
use super::{Resumed, Run};

/// An existing run that this process has locked, but not changed. Dropping it releases the lock.
#[derive(Debug)]
pub struct LockedRun {
    path: PathBuf,
    header: Header,
    summary: Option<Value>,
    lock: Lock,
}

/// The newest complete checkpoint of a run, if there is one.
#[derive(Debug)]
pub struct FoundCheckpoint {
    saved: Option<Saved>,
    notes: Vec<ResumeNote>,
}

impl FoundCheckpoint {
    /// Returns the checkpoint; `None` if the run ended before its first one.
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.saved.as_ref().map(|saved| &saved.checkpoint)
    }
}

impl LockedRun {
    /// Locks the run in `path` and reads its header. Refuses a run of another format version, and one that another process
    /// writes.
    pub fn lock(path: &Path) -> Result<LockedRun> {
        // Before the lock file is created: the folder may not be a run.
        RunFile::read(path)?;
        let lock = Lock::take(path)?;
        let (header, summary) = RunFile::read(path)?.into_parts();
        Ok(LockedRun { path: path.to_path_buf(), header, summary, lock })
    }

    /// Returns the data and the configuration of the run.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the run directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the newest complete checkpoint. Fails if all checkpoints are damaged: starting over would overwrite the last
    /// results, and the user must decide that.
    pub fn newest_checkpoint(&self) -> Result<FoundCheckpoint> {
        let mut damage: Vec<String> = Vec::new();
        for at in checkpoint::points(&self.path)? {
            match checkpoint::read(&self.path, at, self.header.config.train.ranks) {
                Ok(found) => {
                    let note = |problem| ResumeNote::DamagedCheckpoint { problem, used: at };
                    let notes = damage.into_iter().map(note).collect();
                    return Ok(FoundCheckpoint { saved: Some(found), notes });
                }
                // The first line only: the help of a single error does not apply here.
                Err(error) => damage.extend(error.to_string().lines().next().map(String::from)),
            }
        }
        if damage.is_empty() {
            return Ok(FoundCheckpoint { saved: None, notes: Vec::new() });
        }
        let problem = format!("no checkpoint is complete: {}", damage.join("; "));
        Err(Error::input(self.path.display(), problem).help(format!(
            "restore one from a backup, or start over with --overwrite; eval and predict can still use {WEIGHTS}"
        )))
    }

    /// Resumes the run from its newest checkpoint. Truncates `metrics.jsonl` to it and removes temporary files.
    pub fn resume(self, found: FoundCheckpoint) -> Result<Resumed> {
        let LockedRun { path, header, summary, lock } = self;
        let FoundCheckpoint { saved, mut notes } = found;
        lock.check()?;
        files::remove_leftovers(&path)?;
        let (epoch, end) =
            saved.as_ref().map_or((0, 0), |saved| (saved.checkpoint.epoch, saved.metrics_bytes));
        let (file, history, note) = History::reopen(&path, epoch, end)?;
        notes.extend(note);
        let checkpoint = saved.map(|saved| saved.checkpoint);
        let newest = checkpoint.as_ref().map(Checkpoint::point);
        let run =
            Run { path, header, history: file, newest, lock, new_folders: None, summary_before: summary };
        Ok(Resumed { run, checkpoint, history, notes })
    }
}
