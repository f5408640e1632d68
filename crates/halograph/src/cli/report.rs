//! `halograph report RUN… -o FILE.html`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph::train::report::{Report, Source, may_write, write};
use halograph_graph::error::{Error, Result};
use indicatif::HumanCount;

use super::{print, say};

#[derive(clap::Args)]
pub struct Args {
    /// The runs, side by side; they may still go on.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The page to write [default: report.html in the first run].
    #[arg(short, long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// What `train --trace` wrote of the first run; given again, of the second, … [default: trace.json in the run].
    #[arg(long, value_name = "F.json")]
    trace: Vec<PathBuf>,
    /// Write the timeline alone, too, as a picture: that of the first run with a trace.
    #[arg(long, value_name = "FILE.svg")]
    svg: Option<PathBuf>,
    /// Replace existing files.
    #[arg(long)]
    overwrite: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let out = args.out.clone().unwrap_or_else(|| args.runs[0].join("report.html"));
    let sources = sources(args)?;
    if args.svg.as_ref() == Some(&out) {
        let error = Error::input(out.display(), "is to be both the page and the timeline");
        return Err(error.help("give -o and --svg different files").into());
    }
    for file in [&out].into_iter().chain(&args.svg) {
        may_write(file, args.overwrite)?;
    }
    let report = Report::read(&sources)?;
    let timeline = args.svg.as_deref().map(|file| timeline(&report, &args.runs[0], file)).transpose()?;
    write(&out, &report.html(), args.overwrite)?;
    if let Some((file, picture)) = timeline {
        write(file, &picture, args.overwrite)?;
    }
    let [runs, epochs] = [args.runs.len(), report.epochs()].map(|n| HumanCount(n as u64));
    say(&format!("report on runs: {runs}, epochs on record: {epochs}"));
    for file in [&out].into_iter().chain(&args.svg) {
        print(&file.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every run with its trace, if one was given for it.
fn sources(args: &Args) -> Result<Vec<Source>> {
    if let Some(file) = args.trace.get(args.runs.len()) {
        let problem = format!("trace {} of {} runs", args.runs.len() + 1, args.runs.len());
        return Err(Error::input(file.display(), problem).help("give at most one --trace for each run"));
    }
    let traces = args.trace.iter().cloned().map(Some).chain(std::iter::repeat(None));
    Ok(args.runs.iter().cloned().zip(traces).map(|(run, trace)| Source { run, trace }).collect())
}

/// The picture for `file`.
fn timeline<'a>(report: &Report, run: &Path, file: &'a Path) -> Result<(&'a Path, String)> {
    let picture = report.timeline().ok_or_else(|| {
        Error::input(run.display(), "has no trace to draw a timeline from")
            .help("train on several ranks with --trace F.json, and give --trace F.json here")
    });
    Ok((file, picture?))
}
