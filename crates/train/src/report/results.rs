//! Results of the runs: one row per run, the best one marked, in any of several orders.

use std::cmp::Ordering;

use serde_json::Value;

use super::read::RunData;
use super::table::{Table, TableRow, list, marked_name};
use super::text::Unit;

/// A value of the summary: key, name on the page, format.
type Column = (&'static str, &'static str, Unit);

/// Results, as columns of the table.
const RESULTS: [Column; 9] = [
    ("val", "validation score", Unit::Fraction),
    ("test", "test score", Unit::Fraction),
    ("train", "training score", Unit::Fraction),
    ("best_epoch", "best epoch", Unit::Count),
    ("epochs", "epochs", Unit::Count),
    ("loss", "last training loss", Unit::Fraction),
    ("epoch_seconds_median", "median epoch time", Unit::Seconds),
    ("seconds_to_best", "time to best", Unit::Seconds),
    ("peak_rss_bytes", "peak memory", Unit::Bytes),
];

/// Conditions of a run: columns only if runs differ in them.
const CONDITIONS: [Column; 8] = [
    ("ending", "ending", Unit::Plain),
    ("strategy", "strategy", Unit::Plain),
    ("ranks", "ranks", Unit::Count),
    ("threads", "threads per rank", Unit::Count),
    ("transport", "transport", Unit::Plain),
    ("model", "model", Unit::Plain),
    ("parameters", "parameters", Unit::Count),
    ("metric", "metric", Unit::Plain),
];

/// An order of the runs on the page. Runs without the value come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKey {
    /// Validation score, highest first.
    Val,
    /// Test score at the best validation epoch, highest first.
    Test,
    /// Median epoch time, shortest first.
    Time,
    /// Name.
    Name,
}

/// Sorts runs; equal ones keep their order.
pub(super) fn sort(runs: &mut [RunData], key: SortKey) {
    let number = |run: &RunData, key: &str| result(run, key).and_then(|value| value.as_f64());
    let descending = |a: Option<f64>, b: Option<f64>| ascending(a.map(|x| -x), b.map(|x| -x));
    runs.sort_by(|a, b| match key {
        SortKey::Val => descending(number(a, "val"), number(b, "val")),
        SortKey::Test => descending(number(a, "test"), number(b, "test")),
        SortKey::Time => ascending(median_seconds(a), median_seconds(b)),
        SortKey::Name => a.name.cmp(&b.name),
    });
}

fn ascending(a: Option<f64>, b: Option<f64>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

/// Returns the table of results, and the list of conditions that are the same in all runs.
pub(super) fn results(runs: &[RunData]) -> String {
    let values = |(key, ..): &Column| runs.iter().map(|run| result(run, key)).collect::<Vec<_>>();
    let known = |column: &&Column| values(column).iter().any(Option::is_some);
    let differs = |column: &&Column| values(column).windows(2).any(|pair| pair[0] != pair[1]);
    let conditions = || CONDITIONS.iter().filter(known);
    let columns: Vec<&Column> = RESULTS.iter().filter(known).chain(conditions().filter(differs)).collect();
    let best = best(runs);
    let row = |(k, run): (usize, &RunData)| {
        let is_best = best.contains(&k);
        let badge = |key: &str| if is_best && key == "val" { BEST } else { "" };
        let cell = |&&(key, _, unit): &&Column| {
            format!("{}{}", badge(key), unit.html(&result(run, key).unwrap_or_default()))
        };
        let class = if is_best { "best" } else { "" };
        TableRow { name: marked_name(k, run), class, cells: columns.iter().map(cell).collect() }
    };
    let table = Table {
        columns: columns.iter().map(|(_, name, _)| name.to_string()).collect(),
        rows: runs.iter().enumerate().map(row).collect(),
    };
    let same = conditions().filter(|column| !differs(column));
    let same = same
        .map(|(key, name, unit)| (name.to_string(), unit.html(&result(&runs[0], key).unwrap_or_default())));
    table.to_html() + &list(same)
}

const BEST: &str = "<small class=\"badge\" title=\"highest validation score\">best</small>";

/// Returns the runs with the highest validation score; none unless all runs can be compared.
fn best(runs: &[RunData]) -> Vec<usize> {
    let dataset = |run: &RunData| run.setting("dataset.fingerprint").cloned();
    let mut metrics = runs.iter().filter_map(|run| run.metric.as_ref());
    let first = metrics.next();
    let comparable = runs.iter().all(|run| dataset(run) == dataset(&runs[0]));
    if runs.len() < 2 || !comparable || metrics.any(|metric| Some(metric) != first) {
        return Vec::new();
    }
    let scores = runs.iter().enumerate();
    let scores = scores.filter_map(|(k, run)| Some((k, result(run, "val")?.as_f64()?)));
    let scores: Vec<(usize, f64)> = scores.collect();
    let highest = scores.iter().map(|score| score.1).fold(f64::NEG_INFINITY, f64::max);
    scores.into_iter().filter(|score| score.1 == highest).map(|score| score.0).collect()
}

/// Returns a value of the summary; without a summary, what settings and epochs tell.
fn result(run: &RunData, key: &str) -> Option<Value> {
    if key == "transport" && !run.has_peers() {
        return None;
    }
    if run.summary.is_some() {
        return run.summary_value(key).cloned();
    }
    let best = run.best_epoch();
    match key {
        "ending" => Some("no summary yet".into()),
        "epochs" => Some(run.epochs.len().into()),
        "loss" => run.epochs.last().map(|line| line.record.loss.into()),
        "val" => best?.val.map(Value::from),
        "test" => best?.test.map(Value::from),
        "train" => best?.train.map(Value::from),
        "best_epoch" => best.map(|record| record.epoch.into()),
        "epoch_seconds_median" => median_seconds(run).map(Value::from),
        "strategy" | "ranks" => run.setting(&format!("train.{key}")).cloned(),
        "model" => run.setting("model.kind").cloned(),
        _ => None,
    }
}

/// Returns the median time of an epoch: that of the summary, or the lower median of the epochs so far.
fn median_seconds(run: &RunData) -> Option<f64> {
    if let Some(median) = run.summary_value("epoch_seconds_median") {
        return median.as_f64();
    }
    let mut seconds: Vec<f64> = run.epochs.iter().map(|line| line.record.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len().checked_sub(1)? / 2).copied()
}
