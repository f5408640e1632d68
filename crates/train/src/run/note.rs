//! Remarks on a resumed run.

use std::fmt;
use std::path::PathBuf;

use crate::event::Point;

/// Damage that was found and worked around when a run was resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResumeNote {
    /// A checkpoint is damaged; an older one is used.
    DamagedCheckpoint {
        /// What is wrong with it.
        problem: String,
        /// The checkpoint that is used.
        used: Point,
    },
    /// Some epochs are missing in `metrics.jsonl`.
    IncompleteHistory {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// Epochs that could be read.
        recorded: u64,
        /// Epochs that were trained.
        epochs: u64,
    },
}

impl fmt::Display for ResumeNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResumeNote::DamagedCheckpoint { problem, used } => {
                write!(f, "{problem}; resuming from the checkpoint of epoch {used}")
            }
            ResumeNote::IncompleteHistory { path, problem, recorded, epochs } => write!(
                f,
                "{}: {problem}; the file has {recorded} of {epochs} epochs, the weights are complete",
                path.display()
            ),
        }
    }
}
