//! Settings of strategies `layers` and `hybrid`, which split the model over ranks.

use halograph_graph::error::{Error, Result};
use halograph_nn::model::NormKind;
use serde::{Deserialize, Serialize};

use super::{Config, StrategyKind};

/// Chunks per rank, unless set.
const CHUNKS_PER_RANK: u64 = 4;
/// Chunks are numbered by 16 bits in tags.
const MAX_CHUNKS: u64 = 1 << 15;

/// Settings of strategies `layers` and `hybrid`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayersConfig {
    /// Stage groups: runs of consecutive stages of the model; `None`: as many as ranks (layers).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stages: Option<u64>,
    /// Chunks of the graph, of all parts together; `None`: four per rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u64>,
    /// Epochs after which history is refreshed; 1: it is always the newest rows.
    pub history_epochs: u64,
    /// Rows of history before the first step.
    pub history_init: HistoryInit,
    /// In which order chunks are computed.
    pub chunk_order: ChunkOrder,
    /// How gradients between chunks are scaled.
    pub gradient_weights: GradientWeighting,
    /// Optimiser steps per epoch, each on an equal share of the chunks.
    pub steps_per_epoch: u64,
    /// Bytes per rank for activations of a step; those of further chunks are computed again before their backward. `None`: all
    /// are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_memory: Option<u64>,
}

impl Default for LayersConfig {
    fn default() -> Self {
        LayersConfig {
            stages: None,
            chunks: None,
            history_epochs: 1,
            history_init: HistoryInit::Forward,
            chunk_order: ChunkOrder::Alternating,
            gradient_weights: GradientWeighting::Position,
            steps_per_epoch: 1,
            activation_memory: None,
        }
    }
}

/// Rows of history before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryInit {
    /// Zeros, as in the GNNPipe paper.
    Zero,
    /// Those of one synchronous forward.
    Forward,
}

/// In which order chunks are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChunkOrder {
    /// Drawn anew in every epoch, as in the GNNPipe paper.
    Random,
    /// Drawn anew in every second epoch, and reversed in the one after it: a row that is read from history in one of the two
    /// is fresh in the other.
    Alternating,
    /// The same in every epoch.
    Fixed,
}

/// How gradients that chunks contribute to rows of earlier chunks are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GradientWeighting {
    /// By 2, as in the GNNPipe paper.
    Doubled,
    /// By the position of the chunk in the order: more if fewer chunks come after it.
    Position,
    /// Not at all.
    Unscaled,
}

impl Config {
    /// Returns the number of stage groups, which have consecutive stages of the model: 1 unless the strategy splits it.
    pub fn stage_groups(&self) -> usize {
        match self.train.strategy {
            StrategyKind::Layers | StrategyKind::Hybrid => {
                self.layers.stages.map_or(self.train.ranks, |stages| stages as usize)
            }
            _ => 1,
        }
    }

    /// Returns the number of parts of the graph that ranks train on.
    pub fn parts(&self) -> usize {
        (self.train.ranks / self.stage_groups().max(1)).max(1)
    }

    /// Returns the part of the graph that a rank trains on.
    pub fn part_of(&self, rank: usize) -> u32 {
        (rank % self.parts()) as u32
    }

    /// Returns the number of chunks of the graph, of all parts together.
    pub fn chunks(&self) -> usize {
        let chunks = self.layers.chunks.unwrap_or(CHUNKS_PER_RANK * self.train.ranks as u64);
        usize::try_from(chunks).unwrap_or(usize::MAX)
    }

    /// Returns the number of chunks of a part that an optimiser step computes.
    pub(crate) fn chunks_per_step(&self) -> usize {
        self.chunks() / self.parts() / (self.layers.steps_per_epoch as usize).max(1)
    }

    /// Returns whether activations of some chunks may be computed again.
    pub(crate) fn recomputes(&self) -> bool {
        let splits_model = self.train.strategy.splits_model();
        splits_model && self.layers.activation_memory.is_some() && self.chunks_per_step() > 1
    }

    /// Fills in numbers of stages and chunks of a run that does not set them.
    pub fn resolve_layers(&mut self) {
        if self.train.strategy.splits_model() {
            self.layers.stages = Some(self.stage_groups() as u64);
            self.layers.chunks = Some(self.chunks() as u64);
        }
    }

    /// Refuses invalid settings of strategies that split the model, or such settings with other strategies.
    pub(super) fn check_layers(&self) -> Result<()> {
        self.check_zeros()?;
        if !self.train.strategy.splits_model() {
            return self.check_no_layers();
        }
        self.check_stages()?;
        self.check_chunks()?;
        let (steps, slots) = (self.layers.steps_per_epoch, (self.chunks() / self.parts()) as u64);
        if !slots.is_multiple_of(steps) {
            let problem = format!("{steps}: must divide the {slots} chunks of each part");
            return refuse("steps_per_epoch", problem, "choose a divisor, or another --chunks");
        }
        Ok(())
    }

    fn check_zeros(&self) -> Result<()> {
        let own = &self.layers;
        for (key, is_zero) in [
            ("stages", own.stages == Some(0)),
            ("chunks", own.chunks == Some(0)),
            ("history_epochs", own.history_epochs == 0),
            ("steps_per_epoch", own.steps_per_epoch == 0),
        ] {
            if is_zero {
                return refuse(key, "0: must be at least 1".into(), "choose a number of 1 or more");
            }
        }
        Ok(())
    }

    fn check_no_layers(&self) -> Result<()> {
        let name = self.train.strategy.name();
        let default = LayersConfig::default();
        let (own, help) = (&self.layers, "choose --strategy layers or hybrid, or leave it out");
        for (key, is_default) in [
            ("stages", own.stages == default.stages),
            ("chunks", own.chunks == default.chunks),
            ("history_epochs", own.history_epochs == default.history_epochs),
            ("history_init", own.history_init == default.history_init),
            ("chunk_order", own.chunk_order == default.chunk_order),
            ("gradient_weights", own.gradient_weights == default.gradient_weights),
            ("steps_per_epoch", own.steps_per_epoch == default.steps_per_epoch),
            ("activation_memory", own.activation_memory == default.activation_memory),
        ] {
            if !is_default {
                return refuse(key, format!("strategy {name} does not split the model"), help);
            }
        }
        Ok(())
    }

    fn check_stages(&self) -> Result<()> {
        let (name, ranks) = (self.train.strategy.name(), self.train.ranks);
        if ranks < 2 {
            let problem = format!("{ranks}: strategy {name} needs 2 or more ranks");
            return Err(
                Error::input("train.ranks", problem).help("set --ranks, or train with strategy single")
            );
        }
        let is_layers = self.train.strategy == StrategyKind::Layers;
        match self.layers.stages {
            None if !is_layers => {
                let help = format!("set --stages to a divisor of the {ranks} ranks");
                return refuse("stages", "strategy hybrid needs a number of stage groups".into(), &help);
            }
            Some(stages) if is_layers && stages != ranks as u64 => {
                let problem =
                    format!("{stages}: strategy layers has one stage group per rank, and {ranks} ranks");
                return refuse("stages", problem, "leave it out, or choose --strategy hybrid");
            }
            Some(stages) if !(ranks as u64).is_multiple_of(stages) => {
                let problem = format!("{stages}: {ranks} ranks are not a multiple of it");
                return refuse("stages", problem, "choose a divisor of the number of ranks");
            }
            _ => {}
        }
        // Sizes do not change the number of stages.
        let most = self.model.messages(1, 1).len();
        let stages = self.stage_groups();
        if stages > most {
            let problem = format!("{stages} stage groups for a model of {most} stages");
            let key = if is_layers { "train.ranks" } else { "layers.stages" };
            let help = format!("choose at most {most}, or a deeper model (--layers)");
            return Err(Error::input(key, problem).help(help));
        }
        Ok(())
    }

    fn check_chunks(&self) -> Result<()> {
        let (chunks, parts) = (self.chunks() as u64, self.parts() as u64);
        if chunks < parts || !chunks.is_multiple_of(parts) {
            let problem = format!("{chunks}: each of {parts} parts needs as many chunks");
            return refuse("chunks", problem, &format!("choose a multiple of {parts}"));
        }
        if chunks / parts > MAX_CHUNKS {
            let problem = format!("{chunks}: at most {MAX_CHUNKS} per part");
            return refuse("chunks", problem, "choose fewer");
        }
        if self.model.norm == NormKind::Batch && chunks > parts {
            let problem = format!("batch needs all rows at once, and layers.chunks = {chunks}");
            let help = format!("choose --norm layer, or --chunks {parts}");
            return Err(Error::input("model.norm", problem).help(help));
        }
        Ok(())
    }
}

fn refuse(key: &str, problem: String, help: &str) -> Result<()> {
    Err(Error::input(format!("layers.{key}"), problem).help(help))
}

#[cfg(test)]
mod tests {
    use super::*;
    use halograph_nn::model::Kind;

    fn config(strategy: StrategyKind, ranks: usize) -> Config {
        let mut config = Config::new(Kind::Gcn);
        (config.train.strategy, config.train.ranks) = (strategy, ranks);
        config
    }

    #[test]
    fn ranks_are_stage_groups_times_parts() {
        let layers = config(StrategyKind::Layers, 3);
        assert_eq!((layers.stage_groups(), layers.parts(), layers.chunks()), (3, 1, 12));
        let mut hybrid = config(StrategyKind::Hybrid, 6);
        hybrid.layers.stages = Some(2);
        assert_eq!((hybrid.stage_groups(), hybrid.parts(), hybrid.chunks()), (2, 3, 24));
        assert_eq!([0, 2, 3, 5].map(|rank| hybrid.part_of(rank)), [0, 2, 0, 2]);
        let partition = config(StrategyKind::Partition, 4);
        assert_eq!((partition.stage_groups(), partition.parts(), partition.part_of(3)), (1, 4, 3));
    }

    #[test]
    fn what_cannot_run_is_refused_with_key_and_remedy() {
        type Change = fn(&mut Config);
        let cases: [(StrategyKind, usize, Change, &str); 10] = [
            (StrategyKind::Layers, 1, |_| (), "train.ranks: 1: strategy layers needs 2"),
            (StrategyKind::Layers, 4, |_| (), "train.ranks: 4 stage groups for a model of 3 stages"),
            (
                StrategyKind::Layers,
                2,
                |c| c.layers.stages = Some(3),
                "layers.stages: 3: strategy layers has one",
            ),
            (StrategyKind::Hybrid, 4, |_| (), "layers.stages: strategy hybrid needs a number"),
            (StrategyKind::Hybrid, 4, |c| c.layers.stages = Some(3), "layers.stages: 3: 4 ranks are not"),
            (
                StrategyKind::Hybrid,
                4,
                |c| (c.layers.stages, c.layers.chunks) = (Some(2), Some(3)),
                "layers.chunks: 3: each of 2 parts",
            ),
            (
                StrategyKind::Hybrid,
                4,
                |c| (c.layers.stages, c.layers.chunks) = (Some(1), Some(2)),
                "layers.chunks: 2: each of 4 parts",
            ),
            (StrategyKind::Layers, 2, |c| c.model.norm = NormKind::Batch, "model.norm: batch needs all rows"),
            (
                StrategyKind::Layers,
                2,
                |c| (c.layers.chunks, c.layers.steps_per_epoch) = (Some(8), 3),
                "layers.steps_per_epoch: 3: must divide the 8",
            ),
            (
                StrategyKind::Partition,
                2,
                |c| c.layers.chunks = Some(8),
                "layers.chunks: strategy partition does",
            ),
        ];
        for (strategy, ranks, change, expected) in cases {
            let mut config = config(strategy, ranks);
            change(&mut config);
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("help: "), "{error}");
        }
        let mut zero = config(StrategyKind::Layers, 2);
        zero.layers.history_epochs = 0;
        let error = zero.check().unwrap_err().to_string();
        assert!(error.contains("layers.history_epochs: 0: must be at least 1\n  help: choose"), "{error}");
        let mut exact = config(StrategyKind::Layers, 3);
        (exact.model.norm, exact.layers.chunks) = (NormKind::Batch, Some(1));
        exact.check().unwrap();
    }
}
