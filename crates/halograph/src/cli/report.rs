//! `halograph report RUN… -o FILE.html`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use halograph::train::report::{RunReport, RunSource, SortKey, may_write, write};
use halograph_graph::error::{Error, Result};

use halograph::words::count;

use super::{print, say};

#[derive(clap::Args)]
pub struct Args {
    /// Run directories; runs may be in progress.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// HTML page to write [default: report.html in the first run].
    #[arg(short, long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Order of the runs on the page [default: as given].
    #[arg(long, value_enum, value_name = "KEY")]
    sort: Option<SortArg>,
    /// Trace of the first run, as written by `train --trace`; repeat for the following runs [default: trace.json in the run].
    #[arg(long, value_name = "F.json")]
    trace: Vec<PathBuf>,
    /// Also write the timeline of the first run with a trace.
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SortArg {
    /// Validation score, highest first.
    Val,
    /// Test score, highest first.
    Test,
    /// Median epoch time, shortest first.
    Time,
    /// Name of the run.
    Name,
}

impl From<SortArg> for SortKey {
    fn from(sort: SortArg) -> Self {
        match sort {
            SortArg::Val => SortKey::Val,
            SortArg::Test => SortKey::Test,
            SortArg::Time => SortKey::Time,
            SortArg::Name => SortKey::Name,
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let out = args.out.clone().unwrap_or_else(|| args.runs[0].join("report.html"));
    let sources = sources(args)?;
    if args.svg.as_ref() == Some(&out) {
        let error = Error::input(out.display(), "given for both the page and the timeline");
        return Err(error.help("give -o and --svg different files").into());
    }
    for file in [&out].into_iter().chain(&args.svg) {
        may_write(file, args.overwrite)?;
    }
    let mut report = RunReport::read(&sources)?;
    let timeline = args.svg.as_deref().map(|file| timeline(&report, &args.runs[0], file)).transpose()?;
    args.sort.into_iter().for_each(|key| report.sort(key.into()));
    write(&out, &report.html(), args.overwrite)?;
    if let Some((file, svg)) = timeline {
        write(file, &svg, args.overwrite)?;
    }
    say(&format!("report on {} with {}", count(args.runs.len(), "run"), count(report.epochs(), "epoch")));
    for file in [&out].into_iter().chain(&args.svg) {
        print(&file.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Pairs every run with the trace that was given for it, if any.
fn sources(args: &Args) -> Result<Vec<RunSource>> {
    if let Some(file) = args.trace.get(args.runs.len()) {
        let problem = format!("trace {}, but only {}", args.runs.len() + 1, count(args.runs.len(), "run"));
        return Err(Error::input(file.display(), problem).help("give at most one --trace for each run"));
    }
    let traces = args.trace.iter().cloned().map(Some).chain(std::iter::repeat(None));
    Ok(args.runs.iter().cloned().zip(traces).map(|(run, trace)| RunSource { run, trace }).collect())
}

/// Returns the timeline to write to `file`.
fn timeline<'a>(report: &RunReport, run: &Path, file: &'a Path) -> Result<(&'a Path, String)> {
    let svg = report.timeline().ok_or_else(|| {
        Error::input(run.display(), "has no trace to draw a timeline from")
            .help("train on several ranks with --trace F.json, and give --trace F.json here")
    });
    Ok((file, svg?))
}
