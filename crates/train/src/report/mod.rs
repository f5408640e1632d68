//! Reports on runs: one self-contained HTML page, drawn from run directories.
//!
//! - `read`: the files of a run; `spans`: one epoch of a trace;
//! - `scale`, `chart`: values over epochs; `timeline`: ranks over time;
//! - `results`, `classes`, `exchange`, `pipeline`, `batches`, `settings`: the tables; `table`, `text`: HTML;
//! - `page`: the page.
//!
//! Every number on the page is in a file of a run; if it is rounded, its tooltip has all digits.

use std::path::Path;

use halograph_graph::error::Result;

use crate::run::{self, write_file};

mod batches;
mod chart;
mod classes;
mod exchange;
mod page;
mod pipeline;
mod read;
mod results;
mod scale;
mod settings;
mod spans;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod timeline;

use read::RunData;
pub use read::RunSource;
pub use results::SortKey;

/// Several runs as read from disk.
#[derive(Debug)]
pub struct RunReport {
    runs: Vec<RunData>,
}

impl RunReport {
    /// Reads runs, which may be in progress. Refuses the trace of another run.
    pub fn read(sources: &[RunSource]) -> Result<RunReport> {
        let mut runs = sources.iter().map(RunData::read).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
        for (run, source) in runs.iter_mut().zip(sources) {
            if names.iter().filter(|name| **name == run.name).count() > 1 {
                run.name = source.run.display().to_string();
            }
        }
        Ok(RunReport { runs })
    }

    /// Sorts the runs; runs with equal keys keep their order.
    pub fn sort(&mut self, key: SortKey) {
        results::sort(&mut self.runs, key);
    }

    /// Returns the page.
    pub fn html(&self) -> String {
        page::html(&self.runs)
    }

    /// Returns the timeline of the first run that has a trace, as a self-contained SVG.
    pub fn timeline(&self) -> Option<String> {
        self.runs.iter().find_map(|run| run.traced.as_ref()).map(timeline::standalone)
    }

    /// Returns the number of recorded epochs of all runs.
    pub fn epochs(&self) -> usize {
        self.runs.iter().map(|run| run.epochs.len()).sum()
    }
}

/// Writes a page or a timeline, completely or not at all. An existing one is replaced if `overwrite`.
pub fn write(path: &Path, text: &str, overwrite: bool) -> Result<()> {
    may_write(path, overwrite)?;
    write_file(path, text.as_bytes())
}

/// Checks that [`write()`] may write to `path`. Writes nothing.
pub fn may_write(path: &Path, overwrite: bool) -> Result<()> {
    run::may_write(path, overwrite, "a report or a timeline", &["<!DOCTYPE html>", "<?xml"])
}
