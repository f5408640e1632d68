//! Reads a run directory: settings, summary, epochs and trace.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use serde::Deserialize;
use serde_json::Value;

use super::spans::{ExpectedRun, TracedEpoch};
use crate::config::Config;
use crate::run::{Header, read_header, read_summary};
use crate::strategy::pipelined::Schedule;
use crate::trace::{METRICS, TracedRun};

/// A run to report on.
#[derive(Debug, Clone)]
pub struct RunSource {
    /// Run directory.
    pub run: PathBuf,
    /// File that `train --trace` wrote, if it is not `trace.json` in the run directory.
    pub trace: Option<PathBuf>,
}

/// A run as read from disk.
#[derive(Debug)]
pub(super) struct RunData {
    /// Name on the page.
    pub name: String,
    /// Resolved configuration.
    pub config: Config,
    /// Dataset and configuration as dotted names and values.
    pub settings: Vec<(String, Value)>,
    /// Absent while the run is in progress, and after it was killed.
    pub summary: Option<Value>,
    /// Name of the metric; of a run of an older version, known from the summary only.
    pub metric: Option<String>,
    /// Epochs, in order.
    pub epochs: Vec<MetricsLine>,
    /// Whether the last line of `metrics.jsonl` is incomplete.
    pub has_partial_line: bool,
    /// One epoch of the trace.
    pub traced: Option<TracedEpoch>,
}

/// A line of `metrics.jsonl`.
#[derive(Debug)]
pub(super) struct MetricsLine {
    /// The line as it is.
    pub text: String,
    /// The values that the page uses.
    pub record: EpochRecord,
}

/// Values of a line of `metrics.jsonl`; unknown ones are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct EpochRecord {
    pub epoch: u64,
    pub loss: f64,
    pub lr: f64,
    pub seconds: f64,
    pub train: Option<f64>,
    pub val: Option<f64>,
    pub test: Option<f64>,
    pub val_loss: Option<f64>,
    #[serde(default)]
    pub staleness: StalenessRecord,
}

/// Relative error of stale rows by layer; `None` where a layer exchanges nothing.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StalenessRecord {
    #[serde(default)]
    pub features: Vec<Option<f64>>,
    #[serde(default)]
    pub gradients: Vec<Option<f64>>,
}

impl RunData {
    /// Reads a run directory and, if there is one, the trace of the run.
    pub fn read(source: &RunSource) -> Result<Self> {
        let header = read_header(&source.run)?;
        let summary = read_summary(&source.run)?;
        let (epochs, has_partial_line) = read_epochs(&source.run.join(METRICS))?;
        let default = source.run.join("trace.json");
        let trace = source.trace.clone().or_else(|| default.exists().then_some(default));
        let traced = trace.map(|file| read_trace(&file, &source.run, &header.config)).transpose()?;
        let metric = summary.as_ref().and_then(|s| s["metric"].as_str()).map(String::from);
        let metric = metric.or_else(|| header.config.train.metric.map(|metric| metric.to_string()));
        let (name, settings, config) = (name_of(&source.run), settings(&header), header.config);
        Ok(RunData { name, config, settings, summary, metric, epochs, has_partial_line, traced })
    }

    /// Returns a value of the summary.
    pub fn summary_value(&self, key: &str) -> Option<&Value> {
        self.summary.as_ref()?.get(key).filter(|value| !value.is_null())
    }

    /// Returns a setting by its dotted name.
    pub fn setting(&self, name: &str) -> Option<&Value> {
        self.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// Returns whether ranks exchange messages in this run.
    pub fn has_peers(&self) -> bool {
        self.config.train.ranks > 1
    }

    /// Returns the epoch with the best validation score so far; of equal scores, that of lower validation loss.
    pub fn best_epoch(&self) -> Option<&EpochRecord> {
        let scored = self.epochs.iter().map(|line| &line.record).filter(|record| record.val.is_some());
        scored.reduce(|best, new| {
            let is_better = new.val > best.val || (new.val == best.val && new.val_loss < best.val_loss);
            if is_better { new } else { best }
        })
    }
}

fn read_trace(file: &Path, run: &Path, config: &Config) -> Result<TracedEpoch> {
    let typical = Schedule::of(&config.train).stale_epochs();
    TracedEpoch::read(file, &ExpectedRun { run: TracedRun::of(run)?, ranks: config.train.ranks, typical })
}

/// Returns the last component of the path, also of `.`.
fn name_of(run: &Path) -> String {
    let whole = fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| run.display().to_string())
}

/// Returns dataset and configuration as dotted names and values.
fn settings(header: &Header) -> Vec<(String, Value)> {
    let data = &header.data;
    let mut settings = vec![
        ("dataset".to_string(), Value::from(data.name.clone())),
        ("dataset.fingerprint".to_string(), Value::from(data.fingerprint.clone())),
    ];
    if let Some(path) = &data.path {
        settings.insert(1, ("dataset.path".to_string(), Value::from(path.display().to_string())));
    }
    let config = serde_json::to_value(&header.config).unwrap_or_default();
    flatten("", &config, &mut settings);
    settings
}

fn flatten(prefix: &str, value: &Value, into: &mut Vec<(String, Value)>) {
    let Value::Object(table) = value else {
        into.push((prefix.to_string(), value.clone()));
        return;
    };
    for (key, value) in table {
        let key = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        flatten(&key, value, into);
    }
}

/// Reads a regular file; `None` if there is none.
pub(super) fn read_file(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Ok(facts) if !facts.is_file() => Err(Error::input(path.display(), "is not a regular file")),
        facts => facts.and_then(|_| fs::read(path)).at(path, "read").map(Some),
    }
}

/// Reads the complete lines of `metrics.jsonl`; returns also whether an incomplete one follows.
fn read_epochs(path: &Path) -> Result<(Vec<MetricsLine>, bool)> {
    let bytes = read_file(path)?.unwrap_or_default();
    let mut lines: Vec<MetricsLine> = Vec::new();
    for (k, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        match parse_line(line, lines.last()) {
            Ok(line) => lines.push(line),
            Err(_) if !line.ends_with(b"\n") => return Ok((lines, true)),
            Err(problem) => {
                let place = format!("{}, line {}", path.display(), k + 1);
                let help = "restore the file from a copy, or remove the line";
                return Err(Error::input(place, problem).help(help));
            }
        }
    }
    Ok((lines, false))
}

fn parse_line(line: &[u8], before: Option<&MetricsLine>) -> Result<MetricsLine, String> {
    let text = String::from_utf8_lossy(line).trim_end().to_string();
    let shown: String = text.chars().take(60).collect();
    let record = serde_json::from_str::<EpochRecord>(&text);
    let record = record.map_err(|e| format!("not the record of an epoch: {e}, in {shown:?}"))?;
    match before.map(|line| line.record.epoch) {
        Some(last) if record.epoch <= last => Err(format!("epoch {} after epoch {last}", record.epoch)),
        _ => Ok(MetricsLine { text, record }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"epoch":1,"loss":0.30000000000000004,"lr":0.01,"seconds":0.002}"#;

    fn epochs(text: &str) -> Result<(Vec<MetricsLine>, bool)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS);
        fs::write(&path, text).unwrap();
        read_epochs(&path)
    }

    #[test]
    fn keeps_lines_unchanged() {
        let stale = r#"{"epoch":2,"loss":1e0,"lr":0.01,"seconds":2,"train":null,"val":0.5,"test":null,"val_loss":1.0,"staleness":{"features":[null,0.12],"gradients":[null,0.3]},"more":"</script>"}"#;
        let (lines, partial) = epochs(&format!("{LINE}\n{stale}\n")).unwrap();
        assert_eq!((lines.len(), partial), (2, false));
        assert_eq!([lines[0].text.as_str(), lines[1].text.as_str()], [LINE, stale]);
        assert_eq!((lines[0].record.loss, lines[1].record.val), (0.1 + 0.2, Some(0.5)));
        assert_eq!(lines[1].record.staleness.gradients, [None, Some(0.3)]);
    }

    #[test]
    fn leaves_out_an_incomplete_last_line() {
        let (lines, partial) = epochs(&format!("{LINE}\n{{\"epoch\":2,\"lo")).unwrap();
        assert_eq!((lines.len(), partial), (1, true));
    }

    #[test]
    fn names_the_line_of_damage() {
        let order = epochs(&format!("{LINE}\n{LINE}\n")).unwrap_err().to_string();
        assert!(order.contains("metrics.jsonl, line 2: epoch 1 after epoch 1"), "{order}");
        for bad in ["{}", "[1]", "{\"epoch\":1,\"loss\":null,\"lr\":1,\"seconds\":1}", "\u{0}"] {
            let error = epochs(&format!("{bad}\n{LINE}\n")).unwrap_err().to_string();
            assert!(
                error.contains("line 1: not the record of an epoch") && error.contains("help"),
                "{error}"
            );
        }
    }

    #[test]
    fn accepts_a_run_without_epochs() {
        assert!(epochs("").unwrap().0.is_empty());
        assert!(read_epochs(Path::new("nowhere/metrics.jsonl")).unwrap().0.is_empty());
    }
}
