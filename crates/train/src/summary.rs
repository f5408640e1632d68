//! What is said of a run when it is over.

use std::collections::BTreeMap;

use halograph_graph::dataset::Metric;
use halograph_nn::model::Kind;
use serde::Serialize;

use crate::config::StrategyKind;
use crate::event::{Best, Ending, Epoch};

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
    /// Seconds of all epochs together in which something was computed.
    pub compute_seconds: f64,
    /// Seconds of all epochs together in which a rank waited for another.
    pub wait_seconds: f64,
    /// Payload sent in an epoch by all ranks.
    pub bytes_per_epoch: u64,
    /// The same by what it was for.
    pub bytes_by_tag: BTreeMap<String, u64>,
    /// Messages sent in an epoch by all ranks.
    pub messages_per_epoch: u64,
    /// Most memory the process had at once.
    pub peak_rss_bytes: Option<u64>,
    /// Seconds of training up to the best epoch.
    pub seconds_to_best: Option<f64>,
}

impl Summary {
    /// Of a run in one process.
    pub(crate) fn single(run: Single) -> Self {
        let epoch_seconds: Vec<f64> = run.history.iter().map(|e| e.seconds).collect();
        let scores = run.best.map(|best| best.scores);
        Summary {
            ending: run.ending,
            strategy: StrategyKind::Single,
            transport: "none",
            ranks: 1,
            threads: run.threads,
            model: run.model,
            parameters: run.parameters,
            epochs: run.epochs,
            metric: run.metric,
            loss: run.history.last().map(|e| e.loss),
            loss_history: run.history.iter().map(|e| e.loss).collect(),
            train: scores.and_then(|s| s.train),
            val: scores.and_then(|s| s.val),
            test: scores.and_then(|s| s.test),
            best_epoch: run.best.map(|best| best.epoch),
            epoch_seconds_median: median(&epoch_seconds),
            compute_seconds: epoch_seconds.iter().sum(),
            epoch_seconds,
            wait_seconds: 0.0,
            bytes_per_epoch: 0,
            bytes_by_tag: BTreeMap::new(),
            messages_per_epoch: 0,
            peak_rss_bytes: crate::memory::peak_rss(),
            seconds_to_best: run.best.map(|best| best.seconds),
        }
    }
}

/// What a [`Summary`] of one process is made from.
pub(crate) struct Single<'a> {
    pub ending: Ending,
    pub threads: usize,
    pub model: Kind,
    pub parameters: u64,
    pub epochs: u64,
    pub metric: Metric,
    pub history: &'a [Epoch],
    pub best: Option<Best>,
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
