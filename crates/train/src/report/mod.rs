//! A report on runs: one page of HTML that stands alone, drawn from what the runs have left on disk.
//!
//! - `read`: the files of a run; `spans`: one epoch out of a trace;
//! - `scale`: axes, and curves with fewer points; `chart`: curves over epochs; `timeline`: ranks over time;
//! - `tables`, `text`, `page`: the page.
//!
//! Every number is one that stands in a file; where it is rounded, all of its digits are in a tooltip.

use std::path::Path;

use halograph_graph::error::Result;

use crate::run::{self, write_file};

mod chart;
mod page;
mod read;
mod scale;
mod spans;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod timeline;

use read::RunData;
pub use read::Source;

/// What is known of some runs.
#[derive(Debug)]
pub struct Report {
    runs: Vec<RunData>,
}

impl Report {
    /// Reads runs, which may still go on; a trace of a run must be its own.
    pub fn read(sources: &[Source]) -> Result<Report> {
        let mut runs = sources.iter().map(RunData::read).collect::<Result<Vec<_>>>()?;
        let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
        for (run, source) in runs.iter_mut().zip(sources) {
            if names.iter().filter(|name| **name == run.name).count() > 1 {
                run.name = source.run.display().to_string();
            }
        }
        Ok(Report { runs })
    }

    /// The page.
    pub fn html(&self) -> String {
        page::html(&self.runs)
    }

    /// The timeline of the first run that has a trace, as an SVG that stands alone.
    pub fn timeline(&self) -> Option<String> {
        self.runs.iter().find_map(|run| run.traced.as_ref()).map(timeline::standalone)
    }

    /// Epochs on record, of all runs.
    pub fn epochs(&self) -> usize {
        self.runs.iter().map(|run| run.rows.len()).sum()
    }
}

/// Writes a report or a timeline: whole, or not at all. What is there is replaced if `overwrite`.
pub fn write(path: &Path, text: &str, overwrite: bool) -> Result<()> {
    may_write(path, overwrite)?;
    write_file(path, text.as_bytes())
}

/// Whether [`write()`] would: asked before anything is read.
pub fn may_write(path: &Path, overwrite: bool) -> Result<()> {
    run::may_write(path, overwrite, "a report or a timeline", &["<!DOCTYPE html>", "<?xml"])
}
