//! The resolved configuration of a run.
//!
//! Serialised, it has the tables `[data]`, `[model]`, `[train]` and `[layers]`, in TOML files and in `run.json`.

mod layers;

use std::collections::BTreeMap;
use std::path::PathBuf;

use halograph_graph::dataset::{Manifest, Metric};
use halograph_graph::error::{Error, Result};
use halograph_graph::sample::{Fanout, SamplerKind};
use halograph_nn::Project;
use halograph_nn::model::{Kind, Spec};
use serde::{Deserialize, Serialize};

pub use layers::{ChunkOrder, GradientWeighting, HistoryInit, LayersConfig};

const MAX_THREADS: usize = 1024;
const MAX_RANKS: usize = 4096;
/// Limits memory: rows are stored until they are read.
const MAX_STALENESS: u64 = 100;

const DEFAULT_STALENESS: u64 = 1;
const DEFAULT_WARMUP_EPOCHS: u64 = 20;
const DEFAULT_GAMMA: f64 = 0.95;
/// Training nodes per optimiser step.
pub const DEFAULT_BATCH_SIZE: u64 = 1024;
const DEFAULT_BATCH_MEMORY: u64 = 512 << 20;
/// Fanouts of the first hops, and of all further ones.
const DEFAULT_FANOUTS: [i64; 3] = [15, 10, 5];

/// The configuration of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Preprocessing of the data.
    pub data: DataConfig,
    /// The model.
    pub model: Spec,
    /// Training.
    pub train: TrainConfig,
    /// Strategies that split the model.
    // Runs from before they existed do not have it.
    #[serde(default)]
    pub layers: LayersConfig,
}

/// Preprocessing of the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Scaling of features.
    pub normalize: Normalize,
    /// Whether training uses only training nodes, and validation only training and validation nodes.
    pub inductive: bool,
    /// Number of the split, from 0, of a dataset that has several.
    // Runs from before a dataset had several splits do not have it.
    #[serde(default)]
    pub split_index: usize,
    /// Whether edge weights are used, if the dataset has any and the model uses them.
    // Runs from before they existed do not have it.
    #[serde(default = "default_edge_weights")]
    pub edge_weights: bool,
}

fn default_edge_weights() -> bool {
    true
}

/// Which graphs a run reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphOptions {
    /// Whether training, validation and test have graphs of their own.
    pub inductive: bool,
    /// Whether edges have their weights, if the dataset has any.
    pub edge_weights: bool,
}

/// Scaling of features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalize {
    /// No scaling.
    None,
    /// Divides every row by the sum of its absolute values, as PyG's `NormalizeFeatures`.
    Rows,
    /// Standardises every column: mean 0 and variance 1 over the training rows.
    Columns,
}

/// The optimiser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam with L2 weight decay, as PyTorch's `Adam`.
    Adam,
    /// Adam with decoupled weight decay.
    Adamw,
    /// Stochastic gradient descent with momentum.
    Sgd,
}

/// The learning-rate schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Constant.
    Constant,
    /// Cosine annealing from `lr` to 0 after the last epoch.
    Cosine,
    /// Multiplied by `step_factor` every `step_epochs` epochs.
    Step,
}

/// When the schedule changes the learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleUnit {
    /// Between epochs.
    #[default]
    Epoch,
    /// Between optimiser steps.
    Step,
}

/// Floating-point type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

/// How the work is spread over ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrategyKind {
    /// One process computes every row.
    Single,
    /// Each rank computes the rows that it owns and reads fresh halo rows; exact.
    Partition,
    /// As `partition`, but halo rows are some epochs stale, so that communication overlaps with whole epochs (PipeGCN).
    Pipelined,
    /// Many optimiser steps per epoch, each on a sampled mini-batch of training nodes. On several ranks, each computes the
    /// seed nodes that it owns.
    Minibatch,
    /// As `minibatch`, but each node of a mini-batch is computed by one rank, its owner; hidden rows are exchanged (GSplit).
    Split,
    /// Each rank computes consecutive stages of the model on the whole graph, chunk by chunk (GNNPipe).
    Layers,
    /// As `layers`, but each stage is computed by several ranks, each on a part of the graph.
    Hybrid,
}

impl StrategyKind {
    /// Returns the name, as in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            StrategyKind::Single => "single",
            StrategyKind::Partition => "partition",
            StrategyKind::Pipelined => "pipelined",
            StrategyKind::Minibatch => "minibatch",
            StrategyKind::Split => "split",
            StrategyKind::Layers => "layers",
            StrategyKind::Hybrid => "hybrid",
        }
    }

    /// Returns whether optimiser steps are computed on sampled mini-batches.
    pub fn samples(self) -> bool {
        matches!(self, StrategyKind::Minibatch | StrategyKind::Split)
    }

    /// Returns whether a rank computes only some stages of the model.
    pub fn splits_model(self) -> bool {
        matches!(self, StrategyKind::Layers | StrategyKind::Hybrid)
    }

    /// Returns whether the strategy may run on several ranks.
    pub fn allows_ranks(self) -> bool {
        self != StrategyKind::Single
    }
}

/// Which stale rows are smoothed with an EMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Smooth {
    /// None.
    None,
    /// Features.
    F,
    /// Gradients.
    G,
    /// Both.
    #[default]
    Gf,
}

/// Which feature rows fetched from other ranks are cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowCache {
    /// None.
    None,
    /// The most recently used.
    Lru,
    /// Those of the nodes with the highest in-degree.
    Degree,
    /// Those that coming batches need soonest.
    #[default]
    Future,
}

/// How hidden rows are sent to other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowEncoding {
    /// All numbers.
    Dense,
    /// Numbers other than 0 and a bitmap, of rows that a ReLU has computed.
    #[default]
    Nonzero,
}

/// How nodes are assigned to ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartitionKind {
    /// METIS, for the least communication volume.
    Metis,
    /// METIS on a graph weighted by sampling some epochs before training: for strategies that sample.
    Presampled,
    /// A streaming partitioner: each node to the part with most of its neighbours.
    Stream,
    /// Uniformly at random.
    Random,
}

/// Weights of the classes in the loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "ClassWeightsText", into = "ClassWeightsText")]
pub enum ClassWeights {
    /// By the numbers of training nodes.
    Balanced,
    /// Those of a CSV file, which has not been read.
    File(PathBuf),
    /// One for each class.
    Given(Vec<f64>),
}

/// [`ClassWeights`] as they are written: `balanced`, a path, or numbers.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ClassWeightsText {
    Text(String),
    Numbers(Vec<f64>),
}

/// The text of [`ClassWeights::Balanced`].
const BALANCED: &str = "balanced";

impl From<ClassWeightsText> for ClassWeights {
    fn from(text: ClassWeightsText) -> Self {
        match text {
            ClassWeightsText::Text(text) if text == BALANCED => ClassWeights::Balanced,
            ClassWeightsText::Text(path) => ClassWeights::File(path.into()),
            ClassWeightsText::Numbers(weights) => ClassWeights::Given(weights),
        }
    }
}

impl From<ClassWeights> for ClassWeightsText {
    fn from(weights: ClassWeights) -> Self {
        match weights {
            ClassWeights::Balanced => ClassWeightsText::Text(BALANCED.into()),
            ClassWeights::File(path) => ClassWeightsText::Text(path.to_string_lossy().into_owned()),
            ClassWeights::Given(weights) => ClassWeightsText::Numbers(weights),
        }
    }
}

/// Whether communication overlaps with computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overlap {
    /// Rows that need no message are computed while messages are in transit.
    On,
    /// A rank waits for its messages first: the baseline that overlap is measured against.
    Off,
}

/// Training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// How the work is spread over ranks.
    pub strategy: StrategyKind,
    /// Number of ranks.
    pub ranks: usize,
    /// How nodes are assigned to ranks.
    pub partition: PartitionKind,
    /// Whether communication overlaps with computation.
    pub overlap: Overlap,
    /// Staleness of halo rows in epochs (pipelined); 0 is `partition`.
    // Runs from before `pipelined` existed have none of these keys.
    #[serde(default = "default_staleness")]
    pub staleness: u64,
    /// Synchronous epochs at the beginning (pipelined).
    #[serde(default = "default_warmup_epochs")]
    pub warmup_epochs: u64,
    /// Synchronous epochs at the end (pipelined).
    #[serde(default)]
    pub cooldown_epochs: u64,
    /// Which stale rows are smoothed with an EMA (pipelined).
    #[serde(default)]
    pub smooth: Smooth,
    /// Decay of the EMA.
    #[serde(default = "default_gamma")]
    pub gamma: f64,
    /// Whether the EMA is bias-corrected; if not, it starts at zero as in the PipeGCN paper.
    #[serde(default = "default_smooth_correction")]
    pub smooth_correction: bool,
    /// Whether every epoch measures the relative error of stale rows, and waits for fresh ones to do so (pipelined).
    #[serde(default)]
    pub measure_staleness: bool,
    /// Training nodes per optimiser step, of all ranks together (minibatch, split).
    // Runs from before `minibatch` existed have none of these keys.
    #[serde(default = "default_batch_size")]
    pub batch_size: u64,
    /// Sampled in-neighbours per node and hop, hop 1 (of the seed nodes) first; -1: all. Empty: 15, 10, then 5 for every
    /// further hop (minibatch, split).
    #[serde(default)]
    pub fanout: Vec<i64>,
    /// How neighbours are sampled (minibatch, split).
    #[serde(default)]
    pub sampler: SamplerKind,
    /// Whether the first layer's aggregate of the features is computed once, over all neighbours, instead of sampled
    /// (minibatch, split).
    #[serde(default)]
    pub cache_input_aggregate: bool,
    /// Consecutive batches that are sampled and fetched in one exchange; `None`: as many as `batch_memory` allows
    /// (minibatch and split on several ranks).
    // Runs from before `minibatch` ran on several ranks have none of these keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macrobatch: Option<u64>,
    /// Bytes per rank for batches sampled and fetched ahead, and for cached remote rows (minibatch and split on several ranks).
    #[serde(default = "default_batch_memory")]
    pub batch_memory: u64,
    /// Which remote feature rows are cached (minibatch and split on several ranks).
    #[serde(default)]
    pub row_cache: RowCache,
    /// How hidden rows are sent to other ranks (split).
    // Runs from before `split` existed do not have it.
    #[serde(default)]
    pub row_encoding: RowEncoding,
    /// Timeout: the run fails if a rank is silent for this many seconds.
    pub deadline: f64,
    /// Metric of scores, which decides what the best epoch is; `None`: that of the dataset.
    // Runs from before these keys existed do not have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Weights of the classes in the loss; `None`: all are 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// Number of epochs.
    pub epochs: u64,
    /// The optimiser.
    pub optimizer: OptimizerKind,
    /// Learning rate.
    pub lr: f64,
    /// Momentum (SGD).
    pub momentum: f64,
    /// Weight decay of every parameter that `weight_decay_for` does not name.
    pub weight_decay: f64,
    /// Weight decay by prefix of the parameter name (`"convs.0"`); the longest matching prefix counts.
    pub weight_decay_for: BTreeMap<String, f64>,
    /// Maximum norm of the gradient (gradient clipping); 0: off.
    pub clip: f64,
    /// The learning-rate schedule.
    pub schedule: ScheduleKind,
    /// When the schedule changes the learning rate.
    #[serde(default)]
    pub schedule_unit: ScheduleUnit,
    /// Period of the step schedule, in epochs.
    pub step_epochs: u64,
    /// Factor of the step schedule.
    pub step_factor: f64,
    /// Early stopping: epochs without a better validation score after which training stops; 0: off.
    pub patience: u64,
    /// Epochs between evaluations.
    pub eval_every: u64,
    /// Seed of initial weights and dropout.
    pub seed: u64,
    /// Floating-point type.
    pub precision: Precision,
    /// Threads per rank; 0: the cores of the host divided by its ranks.
    pub threads: usize,
    /// Seconds between checkpoints; there is always one at the end.
    pub checkpoint_seconds: f64,
}

// Serde takes defaults from functions only.
fn default_staleness() -> u64 {
    DEFAULT_STALENESS
}

fn default_warmup_epochs() -> u64 {
    DEFAULT_WARMUP_EPOCHS
}

fn default_gamma() -> f64 {
    DEFAULT_GAMMA
}

fn default_smooth_correction() -> bool {
    true
}

fn default_batch_size() -> u64 {
    DEFAULT_BATCH_SIZE
}

fn default_batch_memory() -> u64 {
    DEFAULT_BATCH_MEMORY
}

impl TrainConfig {
    /// Returns whether a dataset is partitioned and trained by ranks that own a part each, also if there is only one part.
    /// Shards are always trained that way.
    pub fn uses_parts(&self) -> bool {
        match self.strategy {
            StrategyKind::Single => false,
            StrategyKind::Minibatch => self.ranks > 1,
            _ => true,
        }
    }
}

impl Config {
    /// Returns which graphs a run reads.
    pub fn graphs(&self) -> GraphOptions {
        let edge_weights = self.data.edge_weights && self.model.kind.uses_edge_weights();
        GraphOptions { inductive: self.data.inductive, edge_weights }
    }

    /// Returns whether a run on this dataset uses edge weights.
    pub fn is_weighted(&self, dataset: &Manifest) -> bool {
        self.graphs().edge_weights && dataset.has_edge_weights()
    }

    /// Returns the defaults for a kind of model.
    pub fn new(kind: Kind) -> Self {
        Config {
            data: DataConfig {
                normalize: Normalize::None,
                inductive: false,
                split_index: 0,
                edge_weights: true,
            },
            model: Spec::new(kind),
            train: TrainConfig {
                strategy: StrategyKind::Single,
                ranks: 1,
                partition: PartitionKind::Metis,
                overlap: Overlap::On,
                staleness: DEFAULT_STALENESS,
                warmup_epochs: DEFAULT_WARMUP_EPOCHS,
                cooldown_epochs: 0,
                smooth: Smooth::default(),
                gamma: DEFAULT_GAMMA,
                smooth_correction: true,
                measure_staleness: false,
                batch_size: DEFAULT_BATCH_SIZE,
                fanout: Vec::new(),
                sampler: SamplerKind::default(),
                cache_input_aggregate: false,
                macrobatch: None,
                batch_memory: DEFAULT_BATCH_MEMORY,
                row_cache: RowCache::default(),
                row_encoding: RowEncoding::default(),
                deadline: 30.0,
                metric: None,
                class_weights: None,
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
            layers: LayersConfig::default(),
        }
    }

    /// Refuses invalid values, naming the key.
    pub fn check(&self) -> Result<()> {
        self.model.check()?;
        let train = &self.train;
        for (key, value) in
            [("epochs", train.epochs), ("eval_every", train.eval_every), ("step_epochs", train.step_epochs)]
        {
            require(value > 0, key, value, "at least 1")?;
        }
        require((1..=MAX_RANKS).contains(&train.ranks), "ranks", train.ranks, "from 1 to 4096")?;
        if !train.strategy.allows_ranks() {
            let want = format!("1 with train.strategy = \"{}\"", train.strategy.name());
            let found = require(train.ranks == 1, "ranks", train.ranks, &want);
            found.map_err(|error| {
                error.help("train on one rank, or choose strategy partition, pipelined, minibatch, split, layers or hybrid")
            })?;
        }
        if train.partition == PartitionKind::Presampled && !train.strategy.samples() {
            let problem = format!("strategy {} does not sample", train.strategy.name());
            return Err(Error::input("train.partition", format!("presampled: {problem}"))
                .help("choose --strategy minibatch or split, or another --partition"));
        }
        self.check_batches()?;
        self.check_layers()?;
        self.check_class_weights()?;
        require(train.staleness <= MAX_STALENESS, "staleness", train.staleness, "at most 100 epochs")?;
        require((0.0..1.0).contains(&train.gamma), "gamma", train.gamma, "at least 0 and below 1")?;
        let deadline = train.deadline.is_finite() && train.deadline >= 1.0;
        require(deadline, "deadline", train.deadline, "at least 1 second")?;
        // An upper bound against typing errors.
        require(train.threads <= MAX_THREADS, "threads", train.threads, "at most 1024; 0 for all cores")?;
        require(train.lr.is_finite() && train.lr > 0.0, "lr", train.lr, "a positive number")?;
        require((0.0..1.0).contains(&train.momentum), "momentum", train.momentum, "at least 0 and below 1")?;
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

    fn check_batches(&self) -> Result<()> {
        let (train, hops) = (&self.train, self.model.hops());
        require(train.batch_size > 0, "batch_size", train.batch_size, "at least 1")?;
        require(train.macrobatch != Some(0), "macrobatch", 0, "at least 1")?;
        require(train.batch_memory > 0, "batch_memory", train.batch_memory, "at least 1 byte")?;
        if let Some(&fanout) = train.fanout.iter().find(|&&fanout| fanout == 0 || fanout < -1) {
            require(false, "fanout", fanout, "at least 1, or -1 for all neighbours, for every hop")?;
        }
        if !train.fanout.is_empty() {
            if !train.strategy.samples() {
                let problem = format!("strategy {} does not sample", train.strategy.name());
                return Err(Error::input("train.fanout", problem)
                    .help("choose --strategy minibatch or split, or leave out the fanout"));
            }
            if train.fanout.len() != hops {
                let given = count(train.fanout.len(), "fanout");
                let problem = format!("{given} for a model of {}", count(hops, "graph layer"));
                let example = default_fanouts().take(hops.min(5)).map(|fanout| fanout.to_string());
                let mut example = example.collect::<Vec<_>>().join(",");
                if hops > 5 {
                    example += ",…";
                }
                let help = format!("give one fanout per layer, hop 1 first, e.g. --fanout {example}");
                return Err(Error::input("train.fanout", problem).help(help));
            }
        }
        if train.cache_input_aggregate && train.strategy.samples() {
            self.check_input_aggregate()?;
        }
        Ok(())
    }

    fn check_class_weights(&self) -> Result<()> {
        let Some(ClassWeights::Given(weights)) = &self.train.class_weights else { return Ok(()) };
        for (class, &weight) in weights.iter().enumerate() {
            let is_valid = weight.is_finite() && weight >= 0.0;
            require(is_valid, "class_weights", format!("{weight} for class {class}"), "0 or more")?;
        }
        let any = weights.iter().any(|&weight| weight > 0.0);
        require(any, "class_weights", format!("{weights:?}"), "above 0 for one class or more")
    }

    /// Refuses to cache an aggregate that changes from step to step.
    fn check_input_aggregate(&self) -> Result<()> {
        if self.model.has_static_input() {
            return Ok(());
        }
        let key = "train.cache_input_aggregate";
        let name = self.model.kind.name();
        let (problem, help) = if self.model.input_dropout > 0.0 {
            let problem = format!(
                "model.input_dropout = {} changes the features in every step",
                self.model.input_dropout
            );
            (problem, "set model.input_dropout to 0, or leave out the cache")
        } else if self.model.project == Project::First {
            (
                "model.project = \"first\" multiplies features by weights before they are aggregated".into(),
                "leave out model.project, or the cache",
            )
        } else {
            (
                format!("the first layer of model {name} does not aggregate unchanged features"),
                "choose model gcn, sage or gin, or leave out the cache",
            )
        };
        Err(Error::input(key, problem).help(help))
    }

    /// Adapts the first layer to features that are sparse or not. Columns that are standardised have no zeros left, and an
    /// aggregate that is cached is dense.
    pub fn resolve_input(&mut self, is_sparse: bool) {
        let is_cached = self.train.cache_input_aggregate && self.train.strategy.samples();
        let stays_sparse = is_sparse && self.data.normalize != Normalize::Columns;
        self.model.resolve_input(stays_sparse && !is_cached);
    }

    /// Fills in the fanouts of a run that samples and does not set them.
    pub fn resolve_fanout(&mut self) {
        if self.train.strategy.samples() && self.train.fanout.is_empty() {
            self.train.fanout = default_fanouts().take(self.model.hops()).collect();
        }
    }

    /// Returns the fanout of every hop, hop 1 first.
    pub fn fanouts(&self) -> Vec<Fanout> {
        let given = self.train.fanout.iter().copied();
        let fanout = |fanout: i64| match u32::try_from(fanout) {
            Ok(most) => Fanout::AtMost(most),
            Err(_) => Fanout::All,
        };
        match self.train.fanout.is_empty() {
            true => default_fanouts().take(self.model.hops()).map(fanout).collect(),
            false => given.map(fanout).collect(),
        }
    }

    /// Returns the fanout of every hop that is sampled: not of the deepest one if its aggregate is cached.
    pub fn sampled_fanouts(&self) -> Vec<Fanout> {
        let mut fanouts = self.fanouts();
        if self.train.cache_input_aggregate {
            fanouts.pop();
        }
        fanouts
    }

    /// Returns whether the first stage reads rows of neighbours; if not, the deepest hop reads its output.
    pub fn first_stage_reads_edges(&self) -> bool {
        // Does not depend on the number of features and classes.
        self.model.messages(1, 1)[0].width > 0
    }

    /// Returns the number of hops whose remote rows are exchanged in every step of `split`: all that are sampled, but for a
    /// deepest one that reads input rows. These are fetched.
    pub fn exchanged_hops(&self) -> usize {
        let fetches = self.first_stage_reads_edges() && !self.train.cache_input_aggregate;
        self.sampled_fanouts().len() - fetches as usize
    }

    /// Returns the number of graph layers by which rows are ordered in one process: rows that the loss needs come first.
    /// `None` if batches are sampled, to which that order is of no use.
    pub(crate) fn nested_hops(&self) -> Option<usize> {
        (!self.train.strategy.samples()).then(|| self.model.hops())
    }

    /// Returns what a dotted key requires to have an effect, if this configuration does not meet it.
    pub fn requirement(&self, key: &str) -> Option<&'static str> {
        let (kind, train) = (self.model.kind, &self.train);
        let pipelined = train.ranks > 1 && train.strategy == StrategyKind::Pipelined;
        let stale = pipelined && train.staleness > 0;
        let sampled = train.strategy.samples();
        let (is_met, requires) = match key {
            "model.heads" | "model.output_heads" | "model.attention_dropout" => {
                (kind == Kind::Gat, "model gat")
            }
            "model.self_in_mean" => (matches!(kind, Kind::Sage | Kind::Resgcn), "model sage or resgcn"),
            "data.edge_weights" => (kind.uses_edge_weights(), "a model other than gat"),
            "model.alpha" | "model.theta" => (kind == Kind::Gcnii, "model gcnii"),
            "model.train_eps" => (kind == Kind::Gin, "model gin"),
            "model.project" => (!matches!(kind, Kind::Gat | Kind::Gcnii), "another model"),
            "train.partition" | "train.overlap" if train.strategy.splits_model() => {
                (self.parts() > 1, "strategy hybrid with several ranks per stage group")
            }
            "train.partition" | "train.overlap" | "train.deadline" => (train.ranks > 1, "several ranks"),
            "train.staleness" => (pipelined, "strategy pipelined on several ranks"),
            "train.warmup_epochs" | "train.cooldown_epochs" | "train.smooth" | "train.measure_staleness" => {
                (stale, "strategy pipelined on several ranks with staleness 1 or more")
            }
            "train.gamma" | "train.smooth_correction" => (
                stale && train.smooth != Smooth::None,
                "strategy pipelined on several ranks with staleness 1 or more and smooth f, g or gf",
            ),
            "train.momentum" => (train.optimizer == OptimizerKind::Sgd, "optimizer sgd"),
            "train.step_epochs" | "train.step_factor" => {
                (train.schedule == ScheduleKind::Step, "schedule step")
            }
            "train.batch_size" | "train.fanout" | "train.sampler" | "train.cache_input_aggregate" => {
                (sampled, "strategy minibatch or split")
            }
            "train.macrobatch" | "train.batch_memory" | "train.row_cache" => {
                (sampled && train.ranks > 1, "strategy minibatch or split on several ranks")
            }
            "train.row_encoding" => {
                (train.strategy == StrategyKind::Split && train.ranks > 1, "strategy split on several ranks")
            }
            "train.schedule_unit" => (
                (sampled || self.layers.steps_per_epoch > 1) && train.schedule != ScheduleKind::Constant,
                "schedule cosine or step, and strategy minibatch, split or layers.steps_per_epoch above 1",
            ),
            "layers.history_epochs" | "layers.history_init" | "layers.chunk_order" => (
                train.strategy.splits_model() && self.chunks() > self.parts(),
                "strategy layers or hybrid with several chunks per part",
            ),
            "layers.gradient_weights" | "layers.activation_memory" => (
                train.strategy.splits_model() && self.chunks_per_step() > 1,
                "strategy layers or hybrid with several chunks per part and optimiser step",
            ),
            key if key.starts_with("layers.") => (train.strategy.splits_model(), "strategy layers or hybrid"),
            _ => (true, ""),
        };
        (!is_met).then_some(requires)
    }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Returns the default fanouts, hop 1 first, of a model of any depth; it does not end.
pub fn default_fanouts() -> impl Iterator<Item = i64> {
    DEFAULT_FANOUTS.into_iter().chain(std::iter::repeat(DEFAULT_FANOUTS[2]))
}

fn require(holds: bool, key: &str, value: impl std::fmt::Display, want: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::input(format!("train.{key}"), format!("{value}: must be {want}"))) }
}

#[cfg(test)]
mod tests;
