//! Remarks on settings and jobs, as data: a caller decides how to present them.

use std::fmt;
use std::path::PathBuf;

use halograph_graph::dataset::Metric;
use halograph_nn::metrics::class_counts::ClassScores;
use halograph_train::class_report::{ClassReport, ScoredSubset};
use halograph_train::event::Scores;
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
    /// The dataset has edge weights, which the model does not use.
    EdgeWeightsUnused {
        /// Name of the model.
        model: &'static str,
    },
    /// Classes that no validation node, or no test node, has.
    ClassesWithoutNodes {
        /// `validation` or `test`.
        subset: &'static str,
        /// Their names or numbers.
        classes: Vec<String>,
    },
    /// Classes for which balanced weights are not defined.
    ClassesWithoutBalancedWeight {
        /// Their names or numbers.
        classes: Vec<String>,
    },
    /// A model that scores no better than the majority class.
    NoBetterThanMajority {
        /// `validation` or `test`.
        subset: &'static str,
        /// The metric.
        metric: Metric,
        /// The score of the model.
        score: f64,
        /// Names or numbers of the majority classes: one, or any number for multi-label data.
        majority: Vec<String>,
        /// The score of always predicting them.
        majority_score: f64,
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
    /// The graph of the data is of another kind than the one that the model was trained on.
    OtherKindOfGraph {
        /// Path or name of the data.
        data: String,
        /// What its edges are or have.
        edges: &'static str,
        /// Name of the data that the model was trained on.
        trained_on: String,
        /// What the edges of those are or have.
        trained_on_edges: &'static str,
    },
    /// The dataset at this path is not the one that the run was trained on.
    DatasetChanged {
        /// Its directory.
        path: PathBuf,
    },
}

impl Note {
    /// Returns whether this is a note on classes that names none.
    pub(crate) fn names_nothing(&self) -> bool {
        match self {
            Note::ClassesWithoutTrainingNodes { classes }
            | Note::ClassesWithoutNodes { classes, .. }
            | Note::ClassesWithoutBalancedWeight { classes } => classes.is_empty(),
            _ => false,
        }
    }

    /// Returns a remark on a model that scores no better than the majority class.
    pub fn on_majority(report: &ClassReport, scores: &Scores, metric: Metric) -> Option<Note> {
        let (found, score) = report.no_better_than_majority(scores)?;
        Some(Note::NoBetterThanMajority {
            subset: match found.subset {
                ScoredSubset::Val => "validation",
                ScoredSubset::Test => "test",
            },
            metric,
            score,
            majority: found.classes.iter().map(|&class| report.name(class)).collect(),
            majority_score: found.score,
        })
    }

    /// Returns remarks on classes that have nodes, but none in the validation or test nodes of a report.
    pub fn on_support(report: &ClassReport) -> Vec<Note> {
        let support = |scores: &Option<ClassScores>| scores.as_ref().map(|scores| scores.support.clone());
        let all = [&report.train, &report.val, &report.test].map(support);
        let occurs = |class: usize| all.iter().flatten().any(|support| support[class] > 0);
        let missing = |support: &Vec<u64>| {
            let missing = (0..support.len()).filter(|&class| support[class] == 0 && occurs(class));
            missing.map(|class| report.name(class)).collect()
        };
        let note = |subset, support: &Option<Vec<u64>>| {
            let classes = support.as_ref().map(missing).unwrap_or_default();
            Note::ClassesWithoutNodes { subset, classes }
        };
        let notes = [note("validation", &all[1]), note("test", &all[2])];
        notes.into_iter().filter(|note| !note.names_nothing()).collect()
    }
}

/// Lists the first names.
fn listed(names: &[String]) -> String {
    let listed = names.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", ");
    let rest = names.len().saturating_sub(5);
    if rest > 0 { format!("{listed} and {rest} more") } else { listed }
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
                let listed = listed(classes);
                write!(f, "no training node has class {listed}: the model cannot learn to predict it")
            }
            Note::ClassesWithoutNodes { subset, classes } => {
                write!(
                    f,
                    "no {subset} node has class {}: {subset} scores say nothing about it",
                    listed(classes)
                )
            }
            Note::ClassesWithoutBalancedWeight { classes } => write!(
                f,
                "train.class_weights = balanced: training nodes do not determine the weight of class {}: it is 1",
                listed(classes)
            ),
            Note::NoBetterThanMajority { subset, metric, score, majority, majority_score } => {
                let what = match majority.is_empty() {
                    true => "predicting no class".to_string(),
                    false => format!("always predicting class {}", listed(majority)),
                };
                write!(
                    f,
                    "{subset} {metric} {score:.4} is no better than {what} ({majority_score:.4}); on imbalanced classes, \
                     train --class-weights and --metric (train.class_weights, train.metric) may help"
                )
            }
            Note::EdgeWeightsUnused { model } => {
                write!(f, "model {model} does not use the edge weights of the dataset")
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
            Note::OtherKindOfGraph { data, edges, trained_on, trained_on_edges } => write!(
                f,
                "{data} has {edges}; the model was trained on {trained_on}, which has {trained_on_edges}: results may be \
                 worse"
            ),
            Note::DatasetChanged { path } => {
                write!(f, "{}: the dataset has changed since the run was trained", path.display())
            }
        }
    }
}
