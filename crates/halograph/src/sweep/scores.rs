//! Scores of the runs of a sweep, seeds together.

use serde::Serialize;
use serde_json::Value;

use super::Point;

/// A run that has ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Its place in the sweep.
    pub index: usize,
    /// Its settings.
    pub point: Point,
    /// Its summary.
    pub summary: Value,
}

/// The runs that differ only in their seed.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// `key=value` of each axis.
    pub settings: Vec<String>,
    /// Number of runs.
    pub runs: usize,
    /// Validation score.
    pub val: Option<Spread>,
    /// Test score at the best validation epoch.
    pub test: Option<Spread>,
    /// Median seconds of an epoch.
    pub epoch_seconds: Option<Spread>,
    /// Number of epochs.
    pub epochs: Option<Spread>,
}

/// Mean and sample standard deviation of some numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation, which a single number does not have.
    pub deviation: Option<f64>,
}

impl Spread {
    /// Returns mean and deviation; `None` without numbers.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        let deviation = (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        (!numbers.is_empty()).then_some(Spread { mean, deviation })
    }
}

/// Summarises runs by case: best mean validation score first, then the order of the runs.
pub fn cases(runs: &[Finished]) -> Vec<Case> {
    let mut groups: Vec<(Vec<String>, Vec<&Value>)> = Vec::new();
    for run in runs {
        let labels = run.point.labels();
        match groups.iter_mut().find(|(found, _)| *found == labels) {
            Some((_, summaries)) => summaries.push(&run.summary),
            None => groups.push((labels, vec![&run.summary])),
        }
    }
    let mut cases: Vec<Case> = groups.into_iter().map(|(settings, found)| case(settings, &found)).collect();
    let score = |case: &Case| case.val.map_or(f64::NEG_INFINITY, |val| val.mean);
    cases.sort_by(|one, other| score(other).total_cmp(&score(one)));
    cases
}

fn case(settings: Vec<String>, summaries: &[&Value]) -> Case {
    let spread = |key: &str| {
        let numbers: Vec<f64> = summaries.iter().filter_map(|summary| summary[key].as_f64()).collect();
        Spread::of(&numbers)
    };
    Case {
        settings,
        runs: summaries.len(),
        val: spread("val"),
        test: spread("test"),
        epoch_seconds: spread("epoch_seconds_median"),
        epochs: spread("epochs"),
    }
}
