//! What a run has left: its settings, its summary if it is over, its epochs, and what its ranks did in one of them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use serde::Deserialize;
use serde_json::Value;

use super::spans::Traced;
use crate::run::{read_header, read_summary};
use crate::strategy::pipelined::Schedule;

/// A run to report on.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its folder.
    pub run: PathBuf,
    /// What `train --trace` wrote of it, if that is not `trace.json` in its folder.
    pub trace: Option<PathBuf>,
}

/// A run as it was found.
#[derive(Debug)]
pub(super) struct RunData {
    /// What the page calls it.
    pub name: String,
    /// Settings and facts of its data by name, in the order of `run.json`.
    pub settings: Vec<(String, Value)>,
    /// Absent while it goes on, and after it was killed.
    pub summary: Option<Value>,
    /// What scores are.
    pub metric: Option<String>,
    /// Its epochs.
    pub rows: Vec<Row>,
    /// Whether the last line is only half there.
    pub torn: bool,
    /// What its ranks did in one epoch.
    pub traced: Option<Traced>,
}

/// A line of `metrics.jsonl`.
#[derive(Debug)]
pub(super) struct Row {
    /// As it stands there.
    pub text: String,
    /// What it says.
    pub record: Record,
}

/// What is read of a line; what else it may say is kept in its text.
#[derive(Debug, Deserialize)]
pub(super) struct Record {
    pub epoch: u64,
    pub loss: f64,
    pub lr: f64,
    pub seconds: f64,
    pub train: Option<f64>,
    pub val: Option<f64>,
    pub test: Option<f64>,
    pub val_loss: Option<f64>,
    #[serde(default)]
    pub staleness: Staleness,
}

/// How far stale rows were from fresh ones, by layer; nothing where a layer exchanges nothing.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Staleness {
    #[serde(default)]
    pub features: Vec<Option<f64>>,
    #[serde(default)]
    pub gradients: Vec<Option<f64>>,
}

impl RunData {
    /// Reads all that there is.
    pub fn read(source: &Source) -> Result<Self> {
        let header = read_header(&source.run)?;
        let summary = read_summary(&source.run)?;
        let ranks = header.config.train.ranks;
        let (rows, torn) = read_rows(&source.run.join("metrics.jsonl"))?;
        let usual = Schedule::of(&header.config.train).stale_epochs();
        let own = source.run.join("trace.json");
        let trace = source.trace.clone().or_else(|| own.exists().then_some(own));
        let traced = trace.map(|file| Traced::read(&file, ranks, usual)).transpose()?;
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
        let metric = summary.as_ref().and_then(|s| s["metric"].as_str()).map(String::from);
        Ok(RunData { name: name_of(&source.run), settings, summary, metric, rows, torn, traced })
    }

    /// A number of the summary.
    pub fn fact(&self, key: &str) -> Option<&Value> {
        self.summary.as_ref()?.get(key).filter(|value| !value.is_null())
    }
}

/// The last part of the path of a run, also of one that is called `.`.
fn name_of(run: &Path) -> String {
    let whole = fs::canonicalize(run).unwrap_or_else(|_| run.to_path_buf());
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| run.display().to_string())
}

/// Tables as `a.b` by their keys; anything else is a value.
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

/// The text of a regular file; nothing if it is not there.
pub(super) fn read_text(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Ok(facts) if !facts.is_file() => Err(Error::input(path.display(), "is not a regular file")),
        facts => facts.and_then(|_| fs::read(path)).at(path, "read").map(Some),
    }
}

/// The lines of `metrics.jsonl`, and whether one more was being written.
fn read_rows(path: &Path) -> Result<(Vec<Row>, bool)> {
    let bytes = read_text(path)?.unwrap_or_default();
    let mut rows: Vec<Row> = Vec::new();
    for (k, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        match parse_row(line, rows.last()) {
            Ok(row) => rows.push(row),
            Err(_) if !line.ends_with(b"\n") => return Ok((rows, true)),
            Err(problem) => {
                let place = format!("{}, line {}", path.display(), k + 1);
                let help = "restore the file from a copy, or remove the line";
                return Err(Error::input(place, problem).help(help));
            }
        }
    }
    Ok((rows, false))
}

fn parse_row(line: &[u8], before: Option<&Row>) -> Result<Row, String> {
    let text = String::from_utf8_lossy(line).trim_end().to_string();
    let shown: String = text.chars().take(60).collect();
    let record = serde_json::from_str::<Record>(&text);
    let record = record.map_err(|e| format!("not the record of an epoch: {e}, in {shown:?}"))?;
    match before.map(|row| row.record.epoch) {
        Some(last) if record.epoch <= last => Err(format!("epoch {} after epoch {last}", record.epoch)),
        _ => Ok(Row { text, record }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"epoch":1,"loss":0.30000000000000004,"lr":0.01,"seconds":0.002}"#;

    fn rows(text: &str) -> Result<(Vec<Row>, bool)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(&path, text).unwrap();
        read_rows(&path)
    }

    #[test]
    fn lines_are_kept_as_they_are() {
        let stale = r#"{"epoch":2,"loss":1e0,"lr":0.01,"seconds":2,"train":null,"val":0.5,"test":null,"val_loss":1.0,"staleness":{"features":[null,0.12],"gradients":[null,0.3]},"more":"</script>"}"#;
        let (rows, torn) = rows(&format!("{LINE}\n{stale}\n")).unwrap();
        assert_eq!((rows.len(), torn), (2, false));
        assert_eq!([rows[0].text.as_str(), rows[1].text.as_str()], [LINE, stale]);
        assert_eq!((rows[0].record.loss, rows[1].record.val), (0.1 + 0.2, Some(0.5)));
        assert_eq!(rows[1].record.staleness.gradients, [None, Some(0.3)]);
    }

    #[test]
    fn a_line_that_is_being_written_is_left_out() {
        let (rows, torn) = rows(&format!("{LINE}\n{{\"epoch\":2,\"lo")).unwrap();
        assert_eq!((rows.len(), torn), (1, true));
    }

    #[test]
    fn damage_is_named_by_its_line() {
        let order = rows(&format!("{LINE}\n{LINE}\n")).unwrap_err().to_string();
        assert!(order.contains("metrics.jsonl, line 2: epoch 1 after epoch 1"), "{order}");
        for bad in ["{}", "[1]", "{\"epoch\":1,\"loss\":null,\"lr\":1,\"seconds\":1}", "\u{0}"] {
            let error = rows(&format!("{bad}\n{LINE}\n")).unwrap_err().to_string();
            assert!(
                error.contains("line 1: not the record of an epoch") && error.contains("help"),
                "{error}"
            );
        }
    }

    #[test]
    fn no_epoch_is_no_fault() {
        assert!(rows("").unwrap().0.is_empty());
        assert!(read_rows(Path::new("nowhere/metrics.jsonl")).unwrap().0.is_empty());
    }
}
