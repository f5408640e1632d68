//! Lists the runs in a folder.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use halograph_train::run::{is_run, read_header, read_summary};
use serde::Serialize;

/// Folders below this depth are not searched.
const DEPTH: usize = 6;

/// A run, for a list of runs.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// Its directory.
    pub path: PathBuf,
    /// Name of the dataset.
    pub data: String,
    /// Kind of the model.
    pub model: String,
    /// Name of the strategy.
    pub strategy: String,
    /// Number of ranks.
    pub ranks: u64,
    /// Number of epochs.
    pub epochs: Option<u64>,
    /// Best validation score.
    pub val: Option<f64>,
    /// Test score at the best validation epoch.
    pub test: Option<f64>,
    /// Median seconds of an epoch.
    pub epoch_seconds: Option<f64>,
    /// `finished`, `stopped-early`, `interrupted`, or `no summary`: in progress or killed.
    pub state: String,
}

/// Returns the runs in `folder`, by path, and the errors of runs and folders in it that cannot be read. Does not follow links.
pub fn find(folder: &Path) -> Result<(Vec<Listed>, Vec<Error>)> {
    let (mut paths, mut runs, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    search(folder, DEPTH, &mut paths, &mut unreadable)?;
    paths.sort();
    for path in paths {
        match listed(path) {
            Ok(run) => runs.push(run),
            Err(error) => unreadable.push(error),
        }
    }
    Ok((runs, unreadable))
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>, unreadable: &mut Vec<Error>) -> Result<()> {
    if is_run(folder) {
        found.push(folder.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(folder).at(folder, "list")? {
        let entry = entry.at(folder, "list")?;
        let is_searched = depth > 0 && entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_searched && let Err(error) = search(&entry.path(), depth - 1, found, unreadable) {
            unreadable.push(error);
        }
    }
    Ok(())
}

fn listed(path: PathBuf) -> Result<Listed> {
    let header = read_header(&path)?;
    let summary = read_summary(&path)?.unwrap_or_default();
    Ok(Listed {
        data: header.data.name,
        model: header.config.model.kind.name().into(),
        strategy: summary["strategy"]
            .as_str()
            .map_or_else(|| name_of(&header.config.train.strategy), String::from),
        ranks: header.config.train.ranks.max(1) as u64,
        epochs: summary["epochs"].as_u64(),
        val: summary["val"].as_f64(),
        test: summary["test"].as_f64(),
        epoch_seconds: summary["epoch_seconds_median"].as_f64(),
        state: summary["ending"].as_str().unwrap_or("no summary").into(),
        path,
    })
}

/// Returns a unit variant as it is written in settings.
fn name_of(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(String::from)).unwrap_or_default()
}
