//! Everything that decides a training run, with nothing left open: the resolved configuration.
//!
//! Serialised, it is the tables `[data]`, `[model]` and `[train]` of a TOML file and of `run.json`.

use std::collections::BTreeMap;

use halograph_graph::error::{Error, Result};
use halograph_nn::model::{Kind, Spec};
use serde::{Deserialize, Serialize};

const MOST_THREADS: usize = 1024;
const MOST_RANKS: usize = 4096;
/// Every epoch is kept until it is read.
const MOST_STALE: u64 = 100;

/// What a run does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is done to the data before training.
    pub data: DataConfig,
    /// The model.
    pub model: Spec,
    /// The training.
    pub train: TrainConfig,
}

/// What is done to the data before training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// How features are scaled.
    pub normalize: Normalize,
    /// Whether training sees training nodes only, validation these and its own, and testing all.
    pub inductive: bool,
}

/// How features are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalize {
    /// Not at all.
    None,
    /// Every row divided by the sum of its absolute values, as for the citation graphs.
    Rows,
    /// Every column to mean 0 and variance 1 over the training rows.
    Columns,
}

/// Which optimiser steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam; weight decay is added to gradients, as in PyTorch.
    Adam,
    /// AdamW; weight decay shrinks weights.
    Adamw,
    /// Gradient descent with momentum.
    Sgd,
}

/// How the learning rate changes over epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Not at all.
    Constant,
    /// Half a cosine, from `lr` to 0 after the last epoch.
    Cosine,
    /// Multiplied by `step_factor` every `step_epochs` epochs.
    Step,
}

/// When the learning rate changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleUnit {
    /// Between epochs.
    #[default]
    Epoch,
    /// Between optimiser steps.
    Step,
}

/// In which numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single.
    F32,
    /// Double.
    F64,
}

/// How the work is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrategyKind {
    /// Not at all: one process computes every row.
    Single,
    /// Each rank computes the rows that it owns, and reads those of others fresh.
    Partition,
    /// As `partition`, but reads rows of others as they were some epochs ago: messages travel behind whole epochs.
    Pipelined,
}

/// What is averaged over epochs of what is read of other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Smooth {
    /// Nothing.
    None,
    /// Features.
    F,
    /// Gradients.
    G,
    /// Both.
    #[default]
    Gf,
}

/// How nodes are dealt out to ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionKind {
    /// METIS, for the least rows on the wire.
    Metis,
    /// In one stream, each to the part that holds most of its neighbours.
    Stream,
    /// By lot.
    Random,
}

/// Whether something is computed while messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// What needs no message is computed meanwhile.
    On,
    /// A rank waits for what it needs before it goes on: the baseline that overlap is measured against.
    Off,
}

/// The training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// How the work is spread.
    pub strategy: StrategyKind,
    /// Ranks that share the work.
    pub ranks: usize,
    /// How nodes are dealt out to them.
    pub partition: PartitionKind,
    /// Whether something is computed while messages travel.
    pub overlap: Overlap,
    /// How many epochs old the rows of others are (pipelined); 0 is `partition`.
    // Runs from before there was `pipelined` have none of these keys.
    #[serde(default = "one")]
    pub staleness: u64,
    /// First epochs that read fresh rows (pipelined).
    #[serde(default = "twenty")]
    pub warmup_epochs: u64,
    /// Last epochs that read fresh rows (pipelined).
    #[serde(default)]
    pub cooldown_epochs: u64,
    /// What is averaged over epochs of what is read of others (pipelined).
    #[serde(default)]
    pub smooth: Smooth,
    /// What is left of an epoch in such an average when the next one comes.
    #[serde(default = "gamma")]
    pub gamma: f64,
    /// Whether the weights of the epochs in such an average add up to 1; if not, it begins near zero.
    #[serde(default = "yes")]
    pub smooth_correction: bool,
    /// Whether every epoch compares what it reads of others with what is fresh, and waits for that (pipelined).
    #[serde(default)]
    pub measure_staleness: bool,
    /// Seconds of silence after which a rank is lost.
    pub deadline: f64,
    /// Passes over the training nodes.
    pub epochs: u64,
    /// Which optimiser.
    pub optimizer: OptimizerKind,
    /// Learning rate.
    pub lr: f64,
    /// Momentum (SGD).
    pub momentum: f64,
    /// Weight decay of every parameter that `weight_decay_for` does not name.
    pub weight_decay: f64,
    /// Weight decay of parameters by the beginning of their names (`"convs.0"`); the longest that fits counts.
    pub weight_decay_for: BTreeMap<String, f64>,
    /// Largest norm of all gradients together; 0 for no limit.
    pub clip: f64,
    /// How the learning rate changes.
    pub schedule: ScheduleKind,
    /// Whether it changes between epochs or between optimiser steps.
    #[serde(default)]
    pub schedule_unit: ScheduleUnit,
    /// Epochs between steps of the step schedule.
    pub step_epochs: u64,
    /// What a step multiplies the learning rate by.
    pub step_factor: f64,
    /// Epochs without a better validation score after which training stops; 0 for never.
    pub patience: u64,
    /// Epochs between evaluations.
    pub eval_every: u64,
    /// Seed of initial weights and of everything that is dropped.
    pub seed: u64,
    /// In which numbers.
    pub precision: Precision,
    /// Threads of each rank; 0 for all cores, shared among the ranks of a machine.
    pub threads: usize,
    /// Seconds between checkpoints; there is one at the end in any case.
    pub checkpoint_seconds: f64,
}

fn one() -> u64 {
    1
}

fn twenty() -> u64 {
    20
}

fn gamma() -> f64 {
    0.95
}

fn yes() -> bool {
    true
}

impl Config {
    /// What is done when nothing more than the kind of the model is said.
    pub fn new(kind: Kind) -> Self {
        Config {
            data: DataConfig { normalize: Normalize::None, inductive: false },
            model: Spec::new(kind),
            train: TrainConfig {
                strategy: StrategyKind::Single,
                ranks: 1,
                partition: PartitionKind::Metis,
                overlap: Overlap::On,
                staleness: one(),
                warmup_epochs: twenty(),
                cooldown_epochs: 0,
                smooth: Smooth::default(),
                gamma: gamma(),
                smooth_correction: yes(),
                measure_staleness: false,
                deadline: 30.0,
                epochs: 100,
                optimizer: OptimizerKind::Adam,
                lr: 0.01,
                momentum: 0.9,
                weight_decay: 0.0,
                weight_decay_for: BTreeMap::new(),
                clip: 0.0,
                schedule: ScheduleKind::Constant,
                schedule_unit: ScheduleUnit::default(),
                step_epochs: 100,
                step_factor: 0.5,
                patience: 0,
                eval_every: 1,
                seed: 0,
                precision: Precision::F32,
                threads: 0,
                checkpoint_seconds: 60.0,
            },
        }
    }

    /// Refuses values that make no sense, naming the key.
    pub fn check(&self) -> Result<()> {
        self.model.check()?;
        let train = &self.train;
        for (key, value) in
            [("epochs", train.epochs), ("eval_every", train.eval_every), ("step_epochs", train.step_epochs)]
        {
            require(value > 0, key, value, "at least 1")?;
        }
        require((1..=MOST_RANKS).contains(&train.ranks), "ranks", train.ranks, "from 1 to 4096")?;
        let alone = train.strategy == StrategyKind::Single;
        require(!alone || train.ranks == 1, "ranks", train.ranks, "1 with train.strategy = \"single\"")?;
        require(train.staleness <= MOST_STALE, "staleness", train.staleness, "at most 100 epochs")?;
        require((0.0..1.0).contains(&train.gamma), "gamma", train.gamma, "at least 0 and below 1")?;
        let deadline = train.deadline.is_finite() && train.deadline >= 1.0;
        require(deadline, "deadline", train.deadline, "at least 1 second")?;
        // More threads than any machine has cores would only keep it busy making them.
        require(train.threads <= MOST_THREADS, "threads", train.threads, "at most 1024; 0 for all cores")?;
        require(train.lr.is_finite() && train.lr > 0.0, "lr", train.lr, "a positive number")?;
        require((0.0..1.0).contains(&train.momentum), "momentum", train.momentum, "from 0 up to 1")?;
        let positive = train.step_factor.is_finite() && train.step_factor > 0.0;
        require(positive, "step_factor", train.step_factor, "a positive number")?;
        let at_least_zero = [
            ("weight_decay", train.weight_decay),
            ("clip", train.clip),
            ("checkpoint_seconds", train.checkpoint_seconds),
        ];
        let decays =
            train.weight_decay_for.iter().map(|(name, &decay)| (format!("weight_decay_for.{name}"), decay));
        for (key, value) in
            at_least_zero.map(|(key, value)| (key.to_string(), value)).into_iter().chain(decays)
        {
            require(value.is_finite() && value >= 0.0, &key, value, "0 or more")?;
        }
        Ok(())
    }
}

fn require(holds: bool, key: &str, value: impl std::fmt::Display, want: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::input(format!("train.{key}"), format!("{value}: must be {want}"))) }
}
