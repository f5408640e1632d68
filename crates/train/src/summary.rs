//! The summary of a finished run.

use std::collections::BTreeMap;
use std::ops::Range;

use halograph_graph::dataset::Metric;
use halograph_graph::sample::Sample;
use halograph_nn::model::Kind;
use serde::Serialize;

use crate::class_report::ClassReport;
use crate::config::{Config, StrategyKind, TrainConfig};
use crate::event::{Best, Ending, EpochRecord};
use crate::memory;
use crate::objective::Objective;

/// The result of a trainer.
pub(crate) struct Outcome {
    pub ending: Ending,
    pub model: Kind,
    pub parameters: u64,
    pub epochs: u64,
    /// Completed steps of the next epoch.
    pub step: u64,
    pub history: Vec<EpochRecord>,
    pub best: Option<Best>,
    /// Scores of single classes with the best weights; `None` if interrupted.
    pub classes: Option<ClassReport>,
    /// Duration of the steps of this process in seconds.
    pub seconds: f64,
}

/// A run in numbers: the line that `--json` prints. Scores are fractions, those of the best validation epoch.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Why training ended.
    pub ending: Ending,
    /// The strategy.
    pub strategy: StrategyKind,
    /// The transport between ranks.
    pub transport: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Threads of each rank.
    pub threads: usize,
    /// Kind of the model.
    pub model: Kind,
    /// Number of trainable parameters.
    pub parameters: u64,
    /// Epochs trained.
    pub epochs: u64,
    /// Optimiser steps trained of the next epoch, if the run was stopped inside it.
    #[serde(skip_serializing_if = "is_zero")]
    pub step: u64,
    /// The metric of the scores.
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
    /// Scores of single classes; `None` if the run was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<ClassReport>,
    /// Weight of each class in the loss, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<Vec<f64>>,
    /// The epoch whose weights are kept.
    pub best_epoch: Option<u64>,
    /// Median seconds of an epoch, without evaluation and checkpoints.
    pub epoch_seconds_median: f64,
    /// Seconds of every epoch.
    pub epoch_seconds: Vec<f64>,
    /// Seconds of all evaluations.
    pub evaluation_seconds: f64,
    /// Seconds of computation in all epochs: the mean over ranks.
    pub compute_seconds: f64,
    /// Exposed communication time in all epochs: seconds in which a rank only waited; the mean over ranks.
    pub wait_seconds: f64,
    /// Overlapped communication time in all epochs: seconds in which boundary rows of the same epoch were in transit during
    /// computation; the mean over ranks. Rows that a later epoch reads are not counted.
    pub hidden_seconds: f64,
    /// CPU seconds of all epochs, over all threads of all ranks including those that carry messages; `None` for one
    /// process.
    pub cpu_seconds: Option<f64>,
    /// Compute seconds of the slowest rank divided by the mean.
    pub balance: f64,
    /// Payload bytes sent per epoch by all ranks: those of the last epoch or, of sampled batches, the mean over epochs.
    pub bytes_per_epoch: u64,
    /// The same by purpose; in addition the bytes of the whole run for `evaluation` and `setup`, which are not in the sum.
    pub bytes_by_tag: BTreeMap<String, u64>,
    /// Messages sent per epoch by all ranks.
    pub messages_per_epoch: u64,
    /// Peak resident memory of the process, or of all processes together.
    pub peak_rss_bytes: Option<u64>,
    /// Seconds of training up to the best epoch.
    pub seconds_to_best: Option<f64>,
    /// The parts of the graph, one per rank.
    pub parts: Vec<PartFacts>,
    /// Sampled batches, of strategies that have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchTotals>,
    /// Rows that ranks fetched of each other for sampled batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetches: Option<FetchTotals>,
    /// Stages and chunks, of strategies that split the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineFacts>,
}

/// How stages and chunks are spread over ranks, and what ranks waited for. Shares are of compute and waiting in all epochs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipelineFacts {
    /// The stage groups.
    pub groups: Vec<GroupFacts>,
    /// Parts of the graph: ranks of each stage group.
    pub parts: usize,
    /// Chunks of the graph, of all parts together.
    pub chunks: usize,
    /// Optimiser steps of an epoch.
    pub steps_per_epoch: u64,
    /// The bubble if every chunk took equally long in every stage group.
    pub bubble_formula: f64,
    /// Measured share of waits while the pipeline fills and drains: for the first chunk of a step, for its first gradients,
    /// and for other stage groups after the last chunk.
    pub bubble: f64,
    /// Measured share of all other waits: for rows, gradients and sums.
    pub exposed_communication: f64,
    /// Measured share of all waits.
    pub idle: f64,
    /// Compute seconds of the slowest stage group divided by the mean of all, minus 1.
    pub imbalance: f64,
}

/// A stage group. Seconds are those of all epochs, the mean over its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GroupFacts {
    /// Its first stage, and the end.
    pub stages: [usize; 2],
    /// Seconds of computation.
    pub compute_seconds: f64,
    /// Seconds waited while the pipeline filled or drained.
    pub bubble_seconds: f64,
    /// Seconds of all other waits.
    pub exposed_seconds: f64,
}

/// What the training time of a rank went to, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RankSeconds {
    pub compute: f64,
    pub bubble: f64,
    /// Other waits.
    pub exposed: f64,
}

impl PipelineFacts {
    /// Describes groups of these stages, whose ranks are in the order of groups in `ranks`.
    pub(crate) fn new(config: &Config, groups: &[Range<usize>], ranks: &[RankSeconds]) -> Self {
        let (parts, chunks) = (config.parts(), config.chunks());
        let group = |(stages, ranks): (&Range<usize>, &[RankSeconds])| {
            let mean = |part: fn(&RankSeconds) -> f64| ranks.iter().map(part).sum::<f64>() / parts as f64;
            GroupFacts {
                stages: [stages.start, stages.end],
                compute_seconds: mean(|rank| rank.compute),
                bubble_seconds: mean(|rank| rank.bubble),
                exposed_seconds: mean(|rank| rank.exposed),
            }
        };
        let facts: Vec<GroupFacts> = groups.iter().zip(ranks.chunks(parts)).map(group).collect();
        let sum = |part: fn(&GroupFacts) -> f64| facts.iter().map(part).sum::<f64>();
        let compute = sum(|group| group.compute_seconds);
        let (bubble, exposed) = (sum(|group| group.bubble_seconds), sum(|group| group.exposed_seconds));
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let whole = compute + bubble + exposed;
        let slowest = facts.iter().map(|group| group.compute_seconds).fold(0.0, f64::max);
        let filling = groups.len() as f64 - 1.0;
        PipelineFacts {
            parts,
            chunks,
            steps_per_epoch: config.layers.steps_per_epoch,
            bubble_formula: filling / (config.chunks_per_step() as f64 + filling),
            bubble: share(bubble, whole),
            exposed_communication: share(exposed, whole),
            idle: share(bubble + exposed, whole),
            imbalance: (share(slowest * groups.len() as f64, compute) - 1.0).max(0.0),
            groups: facts,
        }
    }
}

/// All sampled batches that this process, or all ranks, trained on. Nodes and edges are summed over ranks; seconds are the
/// mean over ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BatchTotals {
    /// Batches of an epoch.
    pub per_epoch: u64,
    /// Number of batches.
    pub batches: u64,
    /// Sampled edges.
    pub sampled_edges: u64,
    /// Input nodes: distinct nodes of a batch, summed over batches.
    pub input_nodes: u64,
    /// Computed nodes: destinations of all layers of a batch, summed over batches.
    pub computed_nodes: u64,
    /// Seconds of sampling: on one process summed over threads, on ranks with the waits for other ranks.
    pub sampling_seconds: f64,
    /// Seconds of gathering input rows.
    pub gather_seconds: f64,
    /// Seconds of forward and backward.
    pub compute_seconds: f64,
    /// Exposed sampling time: seconds in which the training thread waited for a batch or sampled one itself.
    pub wait_seconds: f64,
    /// The same of the rank that waited longest.
    pub longest_wait_seconds: f64,
}

impl BatchTotals {
    /// Adds the counts of one batch.
    pub(crate) fn add(&mut self, sample: &Sample) {
        self.batches += 1;
        self.sampled_edges += sample.edges() as u64;
        self.input_nodes += sample.rows().len() as u64;
        self.computed_nodes += sample.destinations() as u64;
    }
}

/// Rows that ranks fetched of each other for sampled batches. Rows are summed over ranks; seconds are the mean over ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct FetchTotals {
    /// Batches of a macrobatch.
    pub macrobatch: u64,
    /// All-to-alls for sampling and fetching, of each rank.
    pub relays: u64,
    /// Remote input rows: distinct ones of a macrobatch, summed over macrobatches.
    pub remote_rows: u64,
    /// Those of them that were fetched; the others were kept from earlier macrobatches.
    pub fetched_rows: u64,
    /// Input rows read by their owners, for their own batches or for other ranks: distinct ones of a macrobatch, summed over
    /// macrobatches.
    pub loaded_rows: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// Most rows that a rank keeps.
    pub kept_rows: u64,
    /// Macrobatches sampled ahead of the next one, to know which rows will be needed.
    pub coming: u64,
    /// Seconds of fetching, with the waits for other ranks.
    pub fetching_seconds: f64,
}

impl FetchTotals {
    /// Returns the share of remote rows that had been kept; `None` without remote rows.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.remote_rows > 0).then(|| 1.0 - self.fetched_rows as f64 / self.remote_rows as f64)
    }

    /// Returns the bytes that were not fetched because the rows had been kept.
    pub fn saved_bytes(&self) -> u64 {
        (self.remote_rows - self.fetched_rows) * self.row_bytes
    }
}

/// The part of the graph of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartFacts {
    /// Owned nodes.
    pub nodes: u64,
    /// Owned training nodes.
    pub train: u64,
    /// In-edges of owned nodes.
    pub edges: u64,
    /// Halo nodes: remote sources of these edges.
    pub halo: u64,
}

/// Communication of all ranks.
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
    /// Peak resident memory of all ranks together.
    pub peak_rss_bytes: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub parts: Vec<PartFacts>,
}

impl Traffic {
    /// Returns the traffic of one process: none.
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

/// Input of [`Summary::new`].
pub(crate) struct Facts<'a> {
    pub threads: usize,
    pub objective: &'a Objective,
    pub outcome: &'a Outcome,
    pub train: &'a TrainConfig,
}

impl Summary {
    /// Returns whether the run ended before its first optimiser step.
    pub fn is_empty(&self) -> bool {
        (self.epochs, self.step) == (0, 0)
    }

    /// Combines outcome and traffic.
    pub(crate) fn new(Facts { threads, objective, outcome, train }: Facts, traffic: Traffic) -> Self {
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
            metric: objective.metric,
            loss: outcome.history.last().map(|e| e.loss),
            loss_history: outcome.history.iter().map(|e| e.loss).collect(),
            train: scores.and_then(|s| s.train),
            val: scores.and_then(|s| s.val),
            test: scores.and_then(|s| s.test),
            classes: outcome.classes.clone(),
            class_weights: objective.weights.clone(),
            best_epoch: outcome.best.map(|best| best.epoch),
            epoch_seconds_median: median(&epoch_seconds),
            evaluation_seconds: outcome.history.iter().filter_map(|e| e.evaluation_seconds).sum(),
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
            batches: None,
            fetches: None,
            pipeline: None,
        }
    }

    /// Adds how stages and chunks were spread over ranks.
    pub(crate) fn with_pipeline(self, facts: Option<PipelineFacts>) -> Self {
        Summary { pipeline: facts, ..self }
    }

    /// Adds what is known of the sampled batches of all ranks.
    pub(crate) fn with_fetches(self, totals: Option<(BatchTotals, FetchTotals)>) -> Self {
        let (batches, fetches) = totals.unzip();
        Summary { batches, fetches, ..self }
    }

    /// Adds what is known of the sampled batches of one process.
    pub(crate) fn with_batches(mut self, batches: Option<BatchTotals>) -> Self {
        if let Some(totals) = batches {
            self.wait_seconds = totals.wait_seconds;
            self.compute_seconds -= totals.wait_seconds;
        }
        let with_longest =
            |totals: BatchTotals| BatchTotals { longest_wait_seconds: totals.wait_seconds, ..totals };
        Summary { batches: batches.map(with_longest), ..self }
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
    fn waits_of_stage_groups_are_bubble_or_exposed_communication() {
        let mut config = Config::new(Kind::Gcnii);
        (config.train.strategy, config.train.ranks) = (StrategyKind::Hybrid, 4);
        (config.layers.stages, config.layers.chunks) = (Some(2), Some(12));
        let rank = |compute, bubble, exposed| RankSeconds { compute, bubble, exposed };
        let ranks = [rank(6.0, 1.0, 0.0), rank(8.0, 1.0, 2.0), rank(2.0, 4.0, 1.0), rank(4.0, 2.0, 1.0)];
        let facts = PipelineFacts::new(&config, &[0..3, 3..5], &ranks);
        let seconds = |stages, compute_seconds, bubble_seconds, exposed_seconds| GroupFacts {
            stages,
            compute_seconds,
            bubble_seconds,
            exposed_seconds,
        };
        assert_eq!(facts.groups, [seconds([0, 3], 7.0, 1.0, 1.0), seconds([3, 5], 3.0, 3.0, 1.0)]);
        assert_eq!((facts.parts, facts.chunks, facts.bubble_formula), (2, 12, 1.0 / 7.0));
        assert_eq!((facts.bubble, facts.exposed_communication, facts.idle), (0.25, 0.125, 0.375));
        assert!((facts.imbalance - 0.4).abs() < 1e-12, "{facts:?}");
        // A run that trained nothing has no shares.
        let none = PipelineFacts::new(&config, &[0..3, 3..5], &[RankSeconds::default(); 4]);
        assert_eq!((none.bubble, none.exposed_communication, none.imbalance), (0.0, 0.0, 0.0));
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!([median(&[]), median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0])], [0.0, 2.0, 2.5]);
    }
}
