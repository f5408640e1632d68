//! Events of a run: one typed stream for progress bars, metrics files and plots.

use std::fmt;

use halograph_nn::model::Kind;
use serde::{Deserialize, Serialize};

/// A point between two optimiser steps; `7.12` is 12 steps after epoch 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Completed epochs.
    pub epoch: u64,
    /// Completed steps of the next epoch.
    pub step: u64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            0 => write!(f, "{}", self.epoch),
            step => write!(f, "{}.{step}", self.epoch),
        }
    }
}

/// One epoch: a line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Counted from 1.
    pub epoch: u64,
    /// Training loss with dropout: the mean over the steps of the epoch, each before its update.
    pub loss: f64,
    /// Learning rate of the last step.
    pub lr: f64,
    /// Seconds of forward, backward and update; without evaluation and checkpoints.
    pub seconds: f64,
    /// Seconds of the evaluation, in epochs that evaluate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation_seconds: Option<f64>,
    /// Relative error of stale rows, in epochs that measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// Scores after the step, in epochs that evaluate.
    #[serde(default, skip_serializing_if = "Option::is_none", flatten)]
    pub scores: Option<Scores>,
}

/// Relative error of the stale rows that an epoch read: ‖stale − fresh‖ / ‖fresh‖ for each layer; `None` where a layer
/// reads no remote rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Staleness {
    /// Features of halo rows.
    pub features: Vec<Option<f64>>,
    /// Gradients of owned rows, as far as other ranks contribute to them.
    pub gradients: Vec<Option<f64>>,
}

/// Scores of one evaluation. A score is `None` if there are no labelled nodes, or if the metric is undefined on them (AUC
/// of a single class).
///
/// JSON has `null` for a score that is `None`: the keys tell an [`EpochRecord`] with an evaluation from one without.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// On training nodes.
    #[serde(deserialize_with = "Option::deserialize")]
    pub train: Option<f64>,
    /// On validation nodes.
    #[serde(deserialize_with = "Option::deserialize")]
    pub val: Option<f64>,
    /// On test nodes.
    #[serde(deserialize_with = "Option::deserialize")]
    pub test: Option<f64>,
    /// Loss on validation nodes.
    #[serde(deserialize_with = "Option::deserialize")]
    pub val_loss: Option<f64>,
}

/// The evaluation whose weights are kept: the best validation score.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The epoch after which it took place.
    pub epoch: u64,
    /// Scores on all subsets.
    pub scores: Scores,
    /// Seconds of training up to it, without evaluations and checkpoints.
    pub seconds: f64,
}

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// Everything is loaded; epoch `from` (counted from 1) is next.
    Started {
        /// Kind of the model.
        model: Kind,
        /// Number of trainable parameters.
        parameters: u64,
        /// First epoch of this process.
        from: u64,
        /// Last epoch, unless training stops early.
        epochs: u64,
        /// Optimiser steps of an epoch.
        steps: u64,
        /// Steps of epoch `from` that an earlier process completed.
        step: u64,
    },
    /// An optimiser step ended. Sent only if an epoch has several; the last one of an epoch is followed by its evaluation
    /// and by [`Event::Epoch`].
    Step {
        /// Epoch, counted from 1.
        epoch: u64,
        /// Completed steps of the epoch.
        step: u64,
        /// Steps of an epoch.
        steps: u64,
        /// Mean training loss of the completed steps.
        loss: f64,
    },
    /// An epoch ended.
    Epoch {
        /// Its record.
        record: &'a EpochRecord,
        /// The best evaluation so far.
        best: Option<&'a Best>,
    },
    /// A checkpoint is complete.
    Checkpoint {
        /// Where it was taken.
        at: Point,
    },
    /// The validation score is undefined although there are validation nodes, so early stopping is off and the newest
    /// weights are kept. Sent once.
    UndefinedValidationScore,
}

/// Receives the events of a run and may request to stop it.
pub trait Observer: Send {
    /// Handles an event.
    fn on(&mut self, event: &Event);

    /// Returns whether the run should save its state and stop. Called after every optimiser step.
    fn interrupted(&self) -> bool {
        false
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// All epochs were trained.
    Finished,
    /// The validation score did not improve for `patience` epochs.
    StoppedEarly,
    /// An observer requested it; the state is saved.
    Interrupted,
}
