//! Bounds of memory from sizes alone: nothing is allocated, however large the model is.

use halograph_kernels::gemm::partial_sums;
use halograph_nn::model::Spec;

use super::shape::Shape;
use crate::config::{Config, OptimizerKind, Precision};

/// Bytes of all parameters of a model, and of what is kept for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct WeightBytes {
    /// One value of every parameter.
    one: u64,
    /// Values that the optimiser keeps of each parameter.
    moments: u64,
}

impl WeightBytes {
    pub fn of(shape: &Shape, config: &Config) -> Self {
        WeightBytes::of_parameters(config.model.parameters(shape.features, shape.classes), config)
    }

    /// Returns the bytes of so many parameters.
    pub fn of_parameters(numbers: u128, config: &Config) -> Self {
        let one = numbers.saturating_mul(number_bytes(config).into()).try_into().unwrap_or(u64::MAX);
        WeightBytes { one, moments: if config.train.optimizer == OptimizerKind::Sgd { 1 } else { 2 } }
    }

    /// Weights and gradients of a new model.
    pub fn built(self) -> u64 {
        self.one.saturating_mul(2)
    }

    /// Weights, gradients, moments and the best weights so far.
    pub fn training(self) -> u64 {
        self.one.saturating_mul(2 + self.moments + 1)
    }

    /// Returns the additional bytes while a checkpoint is written: copies of weights and moments, and the contents of the file.
    pub fn saving(self) -> u64 {
        self.one.saturating_mul((1 + self.moments) + (2 + self.moments))
    }
}

/// Bytes of a number in the working precision.
pub(super) fn number_bytes(config: &Config) -> u32 {
    match config.train.precision {
        Precision::F32 => 4,
        Precision::F64 => 8,
    }
}

/// A lower bound of memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Least {
    /// Weights, gradients, optimiser state and best weights.
    pub weights: u64,
    /// All of it.
    pub bytes: u64,
}

impl Least {
    /// Returns the bound of `ranks` ranks that have the whole model.
    pub fn of_ranks(ranks: u64, shape: &Shape, config: &Config) -> Self {
        Least::new(WeightBytes::of(shape, config), least_activations(shape, config)).times(ranks)
    }

    /// Returns the bound of one rank with these weights, whose steps keep so many bytes.
    pub fn new(weights: WeightBytes, activations: u64) -> Self {
        let (weights, besides) = (weights.training(), activations.max(weights.saving()));
        Least { weights, bytes: weights.saturating_add(besides) }
    }

    /// Returns the bound of `ranks` equal ranks.
    pub fn times(self, ranks: u64) -> Self {
        Least { weights: self.weights.saturating_mul(ranks), bytes: self.bytes.saturating_mul(ranks) }
    }

    /// Returns the bound of both.
    pub fn plus(self, other: Least) -> Self {
        let weights = self.weights.saturating_add(other.weights);
        Least { weights, bytes: self.bytes.saturating_add(other.bytes) }
    }
}

/// Returns the bytes of activations that a step keeps at least: one matrix of every hidden layer, of the rows that the loss
/// needs.
fn least_activations(shape: &Shape, config: &Config) -> u64 {
    let Spec { layers, hidden, linear_layers, .. } = config.model;
    let row = hidden as u64 * u64::from(number_bytes(config));
    let rows = |layer: usize| {
        let level =
            if config.data.inductive { 0 } else { (layers - 1 - layer).saturating_sub(linear_layers) };
        shape.nodes_within(level)
    };
    (0..layers - 1).map(|layer| row.saturating_mul(rows(layer))).fold(0, u64::saturating_add)
}

/// Matrices of a stage that a step may hold at once, and the largest that is allocated besides.
const MATRICES: u64 = 16;

/// Returns the bytes that a dry run of `nodes` nodes takes at most.
pub(super) fn dry_run(shape: &Shape, config: &Config, nodes: u64) -> u64 {
    let spec = &config.model;
    let row = widest(shape, spec) * u64::from(number_bytes(config));
    // Two dense layers beside those that count.
    let activations = (spec.layers as u64 + 2) * MATRICES * nodes * row;
    WeightBytes::of(shape, config).training().saturating_add(activations)
}

/// Returns the columns of the widest matrix of a model.
pub(super) fn widest(shape: &Shape, spec: &Spec) -> u64 {
    let heads = spec.heads.max(spec.output_heads);
    shape.features.max(spec.hidden + heads).max(heads * (shape.classes + 1)) as u64
}

/// Returns the bytes of partial sums of weight gradients, which are only allocated for many rows, for weights of these
/// numbers of elements.
pub(super) fn partial_sum_bytes(rows: u64, weights: impl Iterator<Item = usize>, number: u64) -> u64 {
    let mut sizes: Vec<usize> = weights.collect();
    sizes.sort_unstable();
    sizes.dedup();
    let bytes = |&len: &usize| match partial_sums(rows as usize, len) {
        1 => 0,
        parts => (parts * len) as u64 * number,
    };
    sizes.iter().map(bytes).sum()
}
