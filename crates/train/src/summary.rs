//! What is said of a run when it is over.

use std::collections::BTreeMap;

use halograph_graph::dataset::Metric;
use halograph_nn::model::Kind;
use serde::Serialize;

use crate::config::{StrategyKind, TrainConfig};
use crate::event::{Best, Ending, Epoch};
use crate::memory;

/// How a training went.
pub(crate) struct Outcome {
    pub ending: Ending,
    pub model: Kind,
    pub parameters: u64,
    pub epochs: u64,
    /// Steps done of the next epoch.
    pub step: u64,
    pub history: Vec<Epoch>,
    pub best: Option<Best>,
    /// Seconds of the steps of this process.
    pub seconds: f64,
}

/// A run in numbers: the line that `--json` prints. Scores are fractions, those of the best validation epoch.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// How it ended.
    pub ending: Ending,
    /// How the work was spread.
    pub strategy: StrategyKind,
    /// How ranks talked.
    pub transport: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Threads of each rank.
    pub threads: usize,
    /// What was trained.
    pub model: Kind,
    /// Numbers it learnt.
    pub parameters: u64,
    /// Epochs trained.
    pub epochs: u64,
    /// Optimiser steps trained of the next epoch, if the run was stopped inside it.
    #[serde(skip_serializing_if = "is_zero")]
    pub step: u64,
    /// What scores are.
    pub metric: Metric,
    /// Training loss of the last epoch.
    pub loss: Option<f64>,
    /// Training loss of every epoch.
    pub loss_history: Vec<f64>,
    /// Score on training nodes.
    pub train: Option<f64>,
    /// Score on validation nodes.
    pub val: Option<f64>,
    /// Score on test nodes.
    pub test: Option<f64>,
    /// The epoch whose weights are kept.
    pub best_epoch: Option<u64>,
    /// Median seconds of an epoch; evaluation and checkpoints are not in it.
    pub epoch_seconds_median: f64,
    /// Seconds of every epoch.
    pub epoch_seconds: Vec<f64>,
    /// Seconds of all epochs together in which something was computed: the mean of all ranks.
    pub compute_seconds: f64,
    /// Seconds of all epochs together in which a rank waited for others and did nothing else: the mean of all ranks.
    pub wait_seconds: f64,
    /// Seconds of all epochs together in which boundary rows travelled while something was computed, and were then read:
    /// the mean of all ranks. Rows that a later epoch reads are not counted: they travel all the time.
    pub hidden_seconds: f64,
    /// CPU seconds of all epochs together: of all threads of all ranks, those that carry messages too; nothing for one
    /// process.
    pub cpu_seconds: Option<f64>,
    /// Compute seconds of the rank that has most, by the mean.
    pub balance: f64,
    /// Payload sent in an epoch by all ranks.
    pub bytes_per_epoch: u64,
    /// The same by what it was for. Beside it, and not in the sum, what the whole run took for `evaluation` and `setup`.
    pub bytes_by_tag: BTreeMap<String, u64>,
    /// Messages sent in an epoch by all ranks.
    pub messages_per_epoch: u64,
    /// Most memory that the process, or all processes together, had at once.
    pub peak_rss_bytes: Option<u64>,
    /// Seconds of training up to the best epoch.
    pub seconds_to_best: Option<f64>,
    /// The parts of the graph, one a rank.
    pub parts: Vec<PartFacts>,
}

/// The part of a graph that a rank has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartFacts {
    /// Nodes that it owns.
    pub nodes: u64,
    /// Those among them that it trains on.
    pub train: u64,
    /// Edges into nodes that it owns.
    pub edges: u64,
    /// Nodes of others that these come from.
    pub halo: u64,
}

/// What ranks sent each other, and waited for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic {
    pub transport: &'static str,
    pub compute_seconds: f64,
    pub wait_seconds: f64,
    pub hidden_seconds: f64,
    pub balance: f64,
    pub bytes_per_epoch: u64,
    pub bytes_by_tag: BTreeMap<String, u64>,
    pub messages_per_epoch: u64,
    /// Most memory of all ranks together.
    pub peak_rss_bytes: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub parts: Vec<PartFacts>,
}

impl Traffic {
    /// Of one process.
    pub(crate) fn none(outcome: &Outcome) -> Self {
        Traffic {
            transport: "none",
            balance: 1.0,
            compute_seconds: outcome.seconds,
            peak_rss_bytes: memory::peak_rss(),
            ..Traffic::default()
        }
    }
}

/// What a [`Summary`] is made from.
pub(crate) struct Facts<'a> {
    pub threads: usize,
    pub metric: Metric,
    pub outcome: &'a Outcome,
    pub train: &'a TrainConfig,
}

impl Summary {
    /// Of a run that went like this.
    pub(crate) fn new(Facts { threads, metric, outcome, train }: Facts, traffic: Traffic) -> Self {
        let epoch_seconds: Vec<f64> = outcome.history.iter().map(|e| e.seconds).collect();
        let scores = outcome.best.map(|best| best.scores);
        Summary {
            ending: outcome.ending,
            strategy: train.strategy,
            transport: traffic.transport,
            ranks: train.ranks,
            threads,
            model: outcome.model,
            parameters: outcome.parameters,
            epochs: outcome.epochs,
            step: outcome.step,
            metric,
            loss: outcome.history.last().map(|e| e.loss),
            loss_history: outcome.history.iter().map(|e| e.loss).collect(),
            train: scores.and_then(|s| s.train),
            val: scores.and_then(|s| s.val),
            test: scores.and_then(|s| s.test),
            best_epoch: outcome.best.map(|best| best.epoch),
            epoch_seconds_median: median(&epoch_seconds),
            epoch_seconds,
            compute_seconds: traffic.compute_seconds,
            wait_seconds: traffic.wait_seconds,
            hidden_seconds: traffic.hidden_seconds,
            balance: traffic.balance,
            bytes_per_epoch: traffic.bytes_per_epoch,
            bytes_by_tag: traffic.bytes_by_tag,
            messages_per_epoch: traffic.messages_per_epoch,
            peak_rss_bytes: traffic.peak_rss_bytes,
            seconds_to_best: outcome.best.map(|best| best.seconds),
            cpu_seconds: traffic.cpu_seconds,
            parts: traffic.parts,
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!([median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])], [0.0, 2.0, 2.5]);
    }
}
