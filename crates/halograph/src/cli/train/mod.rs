//! `halograph train [DATA]`

pub mod demo;
pub mod flags;
mod job;
mod place;
pub mod summary;
mod watch;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph::comm::launched;
use halograph::train::config::StrategyKind;
use halograph::train::event::Ending;
use halograph::train::run::folder_of;
use halograph::train::trace;

use halograph_graph::error::{Error, Result};

use self::flags::Settings;
use self::job::{Job, scalars};
use self::watch::Watch;
use super::engine::Summary;
use super::progress::Bar;
use super::{interrupt, print, quoted, say};

const EXAMPLES: &str = "\
Examples:
  halograph train                                         a first run, on a graph made on the spot
  halograph train cora --model gcn --hidden 64            flags for what is changed most often
  halograph train cora --config run.toml --set train.clip=1
                                                          every key there is, in a file or one by one
  halograph train cora --out runs/mine --epochs 500       stop it with Ctrl-C …
  halograph train --resume --out runs/mine                … and go on where it stopped
  mpirun -n 4 halograph train cora                        four ranks, on one machine or more (feature mpi)";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The dataset directory, or a folder of parts by `halograph partition` [default: a small graph, made on the spot].
    data: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings<true>,
    /// The run's folder [default: runs/<time>-<data>-<model>].
    #[arg(long, value_name = "RUN")]
    out: Option<PathBuf>,
    /// Continue the run in --out if there is one; it may get more epochs, another patience, other threads.
    #[arg(long, requires = "out")]
    resume: bool,
    /// Replace an existing run, and an existing file of --trace.
    #[arg(long, conflicts_with = "resume")]
    overwrite: bool,
    /// Write what every rank did when to this file, for Perfetto or Chrome's about:tracing.
    #[arg(long, value_name = "F.json")]
    trace: Option<PathBuf>,
    /// Write scalars for TensorBoard to RUN/tensorboard.
    #[arg(long)]
    tensorboard: bool,
    /// Start even if more memory is predicted than is free; a model whose weights alone do not fit is still refused.
    #[arg(long)]
    force: bool,
    /// Print the result as one line of JSON, and no progress.
    #[arg(long)]
    json: bool,
    /// Print no progress and no summary; notes and errors remain.
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.settings.read()?;
    may_trace(args)?;
    if let Some(comm) = world::join(&settings)? {
        return world::run(args, &settings, comm);
    }
    let bar = Bar::new(args.quiet || args.json);
    let mut job = Job::open(args, &settings, &bar)?;
    drop(bar);
    if args.trace.is_some() && job.config().train.strategy == StrategyKind::Single {
        say("note: --trace shows what ranks send each other; there is one process and nothing to show");
    }
    job.notes.iter().for_each(|note| say(&format!("note: {note}")));
    // From here on, whatever is on disk is whole.
    interrupt::end_at_second();
    let mut watch = show(args, job.path());
    let trained = job.train(args.trace.as_deref(), &mut watch);
    drop(watch);
    finish(args, &mut job, trained)
}

/// Asked before anything is trained.
fn may_trace(args: &Args) -> Result<()> {
    let Some(file) = &args.trace else { return Ok(()) };
    let folder = folder_of(file);
    let is_run = args.out.as_deref() == Some(folder);
    if !(folder.is_dir() || is_run) {
        let error = Error::input(file.display(), "a trace cannot be written there");
        return Err(error.help("give --trace the name of a file in a folder that exists"));
    }
    // A job that goes on is started with the same words every time.
    trace::may_write(file, args.overwrite || args.resume)
}

/// Who shows a run while it goes on.
fn show(args: &Args, run: &Path) -> Watch {
    Watch::new(args.quiet || args.json, args.tensorboard.then(|| scalars(run)))
}

/// Says how a run went. One that came to nothing is not kept.
fn finish(args: &Args, job: &mut Job, trained: anyhow::Result<Summary>) -> anyhow::Result<ExitCode> {
    let summary = trained.inspect_err(|_| _ = job.take_back())?;
    if (summary.epochs, summary.step) == (0, 0) {
        return Ok(nothing_done(job));
    }
    let (job, summary) = (&*job, &summary);
    if args.json {
        print(&json(job, summary)?)?;
    } else if !args.quiet && summary.ending != Ending::Interrupted {
        print(&summary::text(job, summary))?;
    }
    Ok(ending(job, summary))
}

/// Ends what was interrupted before its first epoch.
fn nothing_done(job: &mut Job) -> ExitCode {
    let kept = if job.take_back() { "; nothing was written" } else { "" };
    say(&format!("interrupted before the first epoch{kept}"));
    ExitCode::from(interrupt::EXIT_CODE)
}

fn json(job: &Job, summary: &Summary) -> anyhow::Result<String> {
    let mut line = serde_json::to_value(summary)?;
    line["predicted_peak_bytes"] = job.predicted.into();
    line["run"] = job.path().display().to_string().into();
    line["data"] = job.source.manifest().name.clone().into();
    Ok(line.to_string())
}

/// The exit code; says how to go on after an interruption.
fn ending(job: &Job, summary: &Summary) -> ExitCode {
    if summary.ending != Ending::Interrupted {
        return ExitCode::SUCCESS;
    }
    let at = match summary.step {
        0 => format!("epoch {}", summary.epochs),
        step => format!("step {step} of epoch {}", summary.epochs + 1),
    };
    let path = quoted(job.path());
    let under = if launched() { " under the same launcher" } else { "" };
    say(&format!("interrupted after {at}; saved. Resume{under} with: halograph train --resume --out {path}"));
    ExitCode::from(interrupt::EXIT_CODE)
}
