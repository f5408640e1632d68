//! `halograph train [DATA]`

pub mod flags;
mod pace;
pub mod summary;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, value_parser};
use halograph::comm::launched;
use halograph::config;
use halograph::job::{DataOption, Job, JobOptions, NewDirectory, OutOption, World};
use halograph::train::Summary;
use halograph::train::event::Ending;
use halograph::train::run::TENSORBOARD;

use self::flags::{OUTPUT, Settings};
use self::watch::Watch;
use super::progress::Bar;
use super::sweep;
use super::{exit_code, interrupt, note, print, print_error, program, quoted, say};

const EXAMPLES: &str = "\
Examples:
  halograph train                                       a first run, on the built-in graph
  halograph train cora --model gcn --hidden 64          flags for the most common settings
  halograph train cora --config run.toml --set train.clip=1
                                                        all settings: from a file, or one by one
  halograph train cora -o runs/mine --epochs 500        stop it with Ctrl-C …
  halograph train --resume -o runs/mine                 … and continue
  halograph train cora --ranks 4 --strategy pipelined   four ranks as threads, PipeGCN
  mpirun -n 4 halograph train cora                      four processes, on one or more hosts (feature mpi)";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Dataset directory, or folder of shards [default: a built-in graph of 4,000 nodes]
    ///
    /// A dataset directory is written by `halograph data make` or `halograph data import`, a folder of shards by `halograph
    /// partition`. Without it the built-in graph is generated and stored in the run directory.
    data: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings<true>,
    /// Run directory [default: runs/<time>-<data>-<model>]
    ///
    /// Receives run.json (settings and summary), metrics.jsonl (one line per epoch), model.safetensors (weights of the best
    /// validation epoch) and checkpoints.
    #[arg(short, long, value_name = "RUN", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    /// Train this many seeds, from --seed on, into folders of --out; prints mean and standard deviation of the scores
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "overwrite", "trace", "tensorboard"], help_heading = OUTPUT,
          value_parser = value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Continue the run in --out, if there is one
    ///
    /// The results are the same as without the interruption. The number of epochs, --patience, --threads, --deadline,
    /// --checkpoint-seconds, --macrobatch, --batch-memory, --row-cache and --row-encoding may
    /// change.
    #[arg(long, requires = "out", help_heading = OUTPUT)]
    resume: bool,
    /// Replace an existing run, and an existing --trace file
    #[arg(long, conflicts_with = "resume", help_heading = OUTPUT)]
    overwrite: bool,
    /// Write a trace of all ranks, or of mini-batches, for Perfetto or chrome://tracing
    #[arg(long, value_name = "F.json", help_heading = OUTPUT)]
    trace: Option<PathBuf>,
    /// Write TensorBoard scalars to RUN/tensorboard
    #[arg(long, help_heading = OUTPUT)]
    tensorboard: bool,
    /// Train even if more memory is predicted than is free
    ///
    /// A model whose weights alone do not fit is still refused.
    #[arg(long, help_heading = OUTPUT)]
    force: bool,
    /// Print the summary as one line of JSON, and no progress
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Print only notes and errors
    #[arg(short, long, help_heading = OUTPUT, action = ArgAction::SetTrue)]
    quiet: bool,
    /// Stop, as after Ctrl-C, at a byte on standard input or at its end, for `sweep`
    #[arg(long, hide = true)]
    stop_by_stdin: bool,
    /// Delay every message between ranks by this much, for benchmarks
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, hide = true)]
    send_delay: u32,
}

impl Args {
    fn options(&self) -> halograph::Result<JobOptions> {
        Ok(JobOptions {
            data: self.data.clone().map_or(DataOption::Default, DataOption::Path),
            settings: self.settings.read()?,
            out: self.out.clone().map_or(OutOption::Default, OutOption::Path),
            resume: self.resume,
            overwrite: self.overwrite,
            force: self.force,
            trace: self.trace.clone(),
            send_delay: Duration::from_micros(self.send_delay.into()),
        })
    }

    fn is_silent(&self) -> bool {
        self.quiet || self.json
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(seeds) = args.seeds {
        return train_seeds(args, seeds);
    }
    if args.stop_by_stdin {
        interrupt::listen_to_parent();
    }
    let options = args.options()?;
    let world = join(&options)?;
    let is_rank = world.comm().is_some();
    if is_rank {
        interrupt::install();
        interrupt::end_on_second_signal();
        interrupt::set_rank();
    }
    if !world.is_leader() {
        interrupt::set_quiet();
    }
    let work = |world: &World| {
        // One rank reports the failure; a signal of the launcher that follows from it is no news.
        train(args, &options, world).inspect_err(|_| {
            if is_rank {
                interrupt::set_quiet()
            }
        })
    };
    Ok(world.run(work, print_error).unwrap_or_else(|error| exit_code(&error)))
}

/// Trains several seeds, one after the other.
fn train_seeds(args: &Args, seeds: u64) -> anyhow::Result<ExitCode> {
    let settings = args.settings.read()?;
    let folder = match &args.out {
        Some(out) => NewDirectory::given(out),
        None => {
            let data = args
                .data
                .as_deref()
                .and_then(Path::file_name)
                .map_or("demo".into(), |name| name.to_string_lossy());
            NewDirectory::create(&data, &format!("{}-seeds", config::resolve(&settings)?.model.kind.name()))?
        }
    };
    let (data, force, json, quiet) = (args.data.as_deref(), args.force, args.json, args.quiet);
    let options = sweep::Options { data, jobs: 1, force, json, quiet };
    sweep::train_all(settings, &[], seeds, &folder, &options)
}

/// Joins the ranks that a launcher started. Until all have joined, a signal ends the process.
fn join(options: &JobOptions) -> halograph::Result<World> {
    if !launched() {
        return Ok(World::alone());
    }
    interrupt::set_joining(true);
    let world = World::join(&options.settings)?;
    interrupt::set_joining(false);
    Ok(world)
}

/// Opens and trains the job of `options`, on this rank.
fn train(args: &Args, options: &JobOptions, world: &World) -> halograph::Result<ExitCode> {
    let bar = Bar::new(args.is_silent() || !world.is_leader());
    let mut job = Job::open(options, world, &bar)?;
    drop(bar);
    job.notes().iter().for_each(note);
    // From here on every file on disk is complete.
    interrupt::end_on_second_signal();
    let tensorboard = job.directory().filter(|_| args.tensorboard).map(|run| run.join(TENSORBOARD));
    let mut watch = match world.is_leader() {
        true => Watch::new(args.is_silent(), tensorboard),
        false => Watch::new(true, None),
    };
    let trained = job.train(&mut watch);
    drop(watch);
    if world.comm().is_some() {
        // Training is over: a signal changes nothing any more.
        interrupt::set_quiet();
    }
    match trained? {
        Some(summary) => finish(args, &job, &summary),
        None => Ok(code(interrupt::requested())),
    }
}

/// Prints the summary and returns the exit code.
fn finish(args: &Args, job: &Job, summary: &Summary) -> halograph::Result<ExitCode> {
    let interrupted = summary.ending == Ending::Interrupted;
    if summary.is_empty() {
        let kept = if job.is_removed() { "; nothing was written" } else { "" };
        say(&format!("interrupted before the first epoch{kept}"));
        return Ok(code(true));
    }
    job.notes_on(summary).iter().for_each(note);
    if args.json {
        print(&job.summary_json(summary).to_string())?;
    } else if !args.quiet && !interrupted {
        print(&summary::text(job, summary, args.trace.as_deref()))?;
    }
    if interrupted {
        say(&how_to_resume(job, summary));
    }
    Ok(code(interrupted))
}

/// Returns the exit code of a job that ended without an error.
fn code(interrupted: bool) -> ExitCode {
    if interrupted { ExitCode::from(interrupt::EXIT_CODE) } else { ExitCode::SUCCESS }
}

fn how_to_resume(job: &Job, summary: &Summary) -> String {
    let at = match summary.step {
        0 => format!("epoch {}", summary.epochs),
        step => format!("step {step} of epoch {}", summary.epochs + 1),
    };
    let path = job.directory().map_or_else(String::new, quoted);
    let launcher = if launched() { " under the same launcher" } else { "" };
    format!("interrupted after {at}; saved. Resume{launcher} with: {} train --resume -o {path}", program())
}
