//! Remarks on settings and jobs, as data: a caller decides how to present them.

use std::fmt;
use std::path::PathBuf;

use halograph_train::run::ResumeNote;

/// A remark that does not stop a job.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Note {
    /// A setting that has no effect with the others.
    Unused {
        /// Where it was set.
        place: String,
        /// Its key.
        key: String,
        /// What it requires.
        requires: &'static str,
    },
    /// Strategy `pipelined` on one rank, where nothing is stale.
    PipelinedOnOneRank,
    /// No epoch of `pipelined` reads stale rows.
    AllEpochsSynchronous {
        /// Epochs of the run.
        epochs: u64,
    },
    /// Every epoch of `pipelined` reads rows of the first one.
    AlwaysStale {
        /// `train.staleness`.
        staleness: u64,
    },
    /// Early stopping may come before the synchronous epochs at the end.
    PatienceBeforeCooldown,
    /// Early stopping without validation nodes.
    NoValidationNodes,
    /// Classes that no training node has.
    ClassesWithoutTrainingNodes {
        /// Their names or numbers.
        classes: Vec<String>,
    },
    /// A trace of strategy `single` would be empty: none is written.
    NothingToTrace,
    /// Something about the checkpoint that a run is resumed from.
    Resume(ResumeNote),
    /// A resumed run that has no checkpoint starts from the beginning.
    NoCheckpoint,
    /// Shards do not hold the ids that the user's files give to nodes: tables of predictions have node numbers instead.
    IdsNotInShards {
        /// The folder of shards.
        path: PathBuf,
    },
    /// The dataset at this path is not the one that the run was trained on.
    DatasetChanged {
        /// Its directory.
        path: PathBuf,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Unused { place, key, requires } => {
                write!(f, "{place}: {key} has no effect here: it requires {requires}")
            }
            Note::PipelinedOnOneRank => {
                f.write_str("strategy pipelined has no effect on one rank: there are no remote rows")
            }
            Note::AllEpochsSynchronous { epochs } => write!(
                f,
                "all {epochs} epochs are synchronous, by train.warmup_epochs and train.cooldown_epochs: this is \
                 strategy partition"
            ),
            Note::AlwaysStale { staleness } => {
                write!(f, "train.staleness = {staleness}: all epochs read the rows of the first one")
            }
            Note::PatienceBeforeCooldown => f.write_str(
                "train.patience may end the run before the synchronous epochs of train.cooldown_epochs",
            ),
            Note::NoValidationNodes => f.write_str(
                "there are no validation nodes: train.patience has no effect, and the last weights are kept",
            ),
            Note::ClassesWithoutTrainingNodes { classes } => {
                let listed = classes.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
                let rest = classes.len().saturating_sub(5);
                let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
                write!(f, "no training node has class {listed}{more}: the model cannot learn to predict it")
            }
            Note::NothingToTrace => f.write_str(
                "no trace is written: strategy single has no messages and no mini-batches to record",
            ),
            Note::Resume(note) => note.fmt(f),
            Note::NoCheckpoint => {
                f.write_str("there is no checkpoint yet: the run starts from the beginning")
            }
            Note::IdsNotInShards { path } => write!(
                f,
                "{}: shards hold node numbers, not the ids of the source: the table has node numbers; for ids give the \
                 dataset with --data",
                path.display()
            ),
            Note::DatasetChanged { path } => {
                write!(f, "{}: the dataset has changed since the run was trained", path.display())
            }
        }
    }
}
