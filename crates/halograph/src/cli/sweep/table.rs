//! The table of a sweep: one row per combination, best first.

use std::path::Path;

use halograph::sweep::{Case, Spread};
use halograph::words::{aligned, seconds};
use serde_json::json;

use super::runner::Outcome;

/// Returns the table as text.
pub fn text(cases: &[Case]) -> String {
    let has_several = cases.iter().any(|case| case.runs > 1);
    let mut rows = vec![["settings", "val", "test", "epochs", "epoch", "runs"].map(String::from).to_vec()];
    rows.extend(cases.iter().map(|case| {
        let settings = if case.settings.is_empty() { "all runs".into() } else { case.settings.join(" ") };
        let time = case.epoch_seconds.map_or("–".into(), |time| seconds(time.mean));
        let epochs = case.epochs.map_or("–".into(), |epochs| format!("{:.0}", epochs.mean));
        vec![settings, score(case.val), score(case.test), epochs, time, case.runs.to_string()]
    }));
    let mut text = aligned(&rows, 1);
    if has_several {
        text += "\n± sample standard deviation over seeds and splits";
    }
    text
}

fn score(spread: Option<Spread>) -> String {
    match spread {
        None => "–".into(),
        Some(Spread { mean, deviation: None }) => format!("{mean:.4}"),
        Some(Spread { mean, deviation: Some(deviation) }) => format!("{mean:.4} ± {deviation:.4}"),
    }
}

/// Returns the table as a line of JSON.
pub fn json(cases: &[Case], outcome: &Outcome, folder: &Path) -> String {
    let run = |run: &halograph::sweep::Finished| {
        let directory = run.point.directory(folder).display().to_string();
        let summary = &run.summary;
        json!({"run": directory, "settings": run.point.labels(), "seed": run.point.seed, "val": summary["val"], "test": summary["test"]})
    };
    let runs: Vec<_> = outcome.finished.iter().map(run).collect();
    json!({"cases": cases, "runs": runs, "failed": outcome.failed}).to_string()
}
