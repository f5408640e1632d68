//! What a run tells while it goes on: one typed stream, for a progress bar, a metrics file, a plot.

use std::fmt;

use halograph_nn::model::Kind;
use serde::{Deserialize, Serialize};

/// A point between two optimiser steps; `7.12` is 12 steps after epoch 7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// Whole epochs done.
    pub epoch: u64,
    /// Steps done of the next epoch.
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
pub struct Epoch {
    /// Counted from 1.
    pub epoch: u64,
    /// Training loss, before the epoch's step and with dropout.
    pub loss: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// Seconds of forward, backward and step; evaluation and checkpoints not counted.
    pub seconds: f64,
    /// How far rows of other ranks were from fresh ones, in epochs that measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staleness: Option<Staleness>,
    /// Scores after the step, in epochs that evaluate.
    #[serde(default, skip_serializing_if = "Option::is_none", flatten)]
    pub scores: Option<Scores>,
}

/// How far what an epoch read of other ranks was from what it would have read a moment later: the norm of the difference
/// by the norm of what was fresh, for each layer; nothing where a layer reads nothing of others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Staleness {
    /// Messages of halo rows.
    pub features: Vec<Option<f64>>,
    /// Gradients of own rows.
    pub gradients: Vec<Option<f64>>,
}

/// Scores of one evaluation; an absent one has no nodes.
///
/// In JSON it is `null`, but its name is there: this is what tells [`Epoch`]s that evaluate from others.
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

/// The evaluation whose weights are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// After this epoch.
    pub epoch: u64,
    /// Its scores.
    pub scores: Scores,
    /// Seconds of training up to it, evaluations and checkpoints not counted.
    pub seconds: f64,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// Everything is loaded; epoch `from` (counted from 1) is next.
    Started {
        /// What is trained.
        model: Kind,
        /// Numbers it learns.
        parameters: u64,
        /// First epoch to come.
        from: u64,
        /// Last epoch, unless it stops early.
        epochs: u64,
    },
    /// An epoch is over.
    Epoch {
        /// Its record.
        record: &'a Epoch,
        /// The best evaluation so far.
        best: Option<&'a Best>,
    },
    /// A checkpoint is complete.
    Checkpoint {
        /// Where it was taken.
        at: Point,
    },
}

/// Watches a run and may ask it to stop.
pub trait Observer: Send {
    /// Something happened.
    fn on(&mut self, event: &Event);

    /// Whether the run should save its state and stop.
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
    /// The validation score did not get better for `patience` epochs.
    StoppedEarly,
    /// The observer asked; the state is saved.
    Interrupted,
}
