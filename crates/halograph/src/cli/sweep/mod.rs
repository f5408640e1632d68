//! `halograph sweep [DATA] --grid KEY=VALUE,VALUE -o DIR`, and `halograph train --seeds N`

mod runner;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::value_parser;
use halograph::comm::launched;
use halograph::config::Setting;
use halograph::sweep::{Axis, Sweep, cases};
use halograph_graph::error::{Error, IoContext, Result};

use super::train::flags::{OUTPUT, Settings, key_of_flag};
use super::{interrupt, print, program, quoted, say};
use halograph::words::count;
use runner::Runner;

const EXAMPLES: &str = "\
Examples:
  halograph sweep cora --grid lr=0.01,0.003 --grid hidden=64,256 -o sweeps/cora
  halograph sweep cora --model gcn --grid dropout=0,0.5 --seeds 5 --jobs 2 -o sweeps/dropout
  halograph runs sweeps/cora                            all runs with their scores";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Dataset directory, or folder of shards [default: a built-in graph of 4,000 nodes]
    data: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings<true>,
    /// Values of a setting, one run each; repeated: all combinations
    ///
    /// KEY is a flag of `train` without dashes (lr) or a key of --set (model.alpha). A list as a value is put in brackets:
    /// --grid 'fanout=[15,10,5],[10,5,5]'.
    #[arg(long, value_name = "KEY=V,V", required = true)]
    grid: Vec<String>,
    /// Number of seeds for each combination, from --seed on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    seeds: u64,
    /// Number of concurrent runs, which share the cores unless --threads is given
    #[arg(long, value_name = "J", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    jobs: u64,
    /// Folder of the runs, one directory each; the same command continues an interrupted sweep
    #[arg(short, long, value_name = "DIR", help_heading = OUTPUT)]
    out: PathBuf,
    /// Train even if more memory is predicted than is free
    #[arg(long, help_heading = OUTPUT)]
    force: bool,
    /// Print the table as one line of JSON, and no progress
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
    /// Print only errors
    #[arg(short, long, help_heading = OUTPUT)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let axes: Vec<Axis> =
        args.grid.iter().map(|text| Axis::parse(text, key_of_flag)).collect::<Result<_>>()?;
    let settings = args.settings.read()?;
    let options = Options {
        data: args.data.as_deref(),
        jobs: args.jobs as usize,
        force: args.force,
        json: args.json,
        quiet: args.quiet,
    };
    train_all(Sweep::new(settings, &axes, args.seeds)?, &args.out, &options)
}

/// What `sweep` and `train --seeds` have in common, besides the runs and their folder.
pub struct Options<'a> {
    pub data: Option<&'a Path>,
    pub jobs: usize,
    pub force: bool,
    pub json: bool,
    pub quiet: bool,
}

/// Trains `seeds` seeds into `folder` and prints mean and deviation of the scores.
pub fn train_seeds(
    settings: Vec<Setting>,
    seeds: u64,
    folder: &Path,
    options: &Options,
) -> anyhow::Result<ExitCode> {
    train_all(Sweep::new(settings, &[], seeds)?, folder, options)
}

/// Trains all runs that have not ended, then prints the table.
fn train_all(sweep: Sweep, folder: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    if launched() {
        let problem = "several runs cannot start under a launcher";
        return Err(Error::input("mpirun or srun", problem)
            .help("start one `train` per run, or use --ranks")
            .into());
    }
    if let Some(data) = options.data.filter(|data| !data.exists()) {
        return Err(Error::input(data.display(), "does not exist")
            .help("give a dataset directory or a folder of shards")
            .into());
    }
    std::fs::create_dir_all(folder).at(folder, "create")?;
    interrupt::install();
    let runner = Runner::new(&sweep, folder, options)?;
    let outcome = runner.run();
    if !outcome.finished.is_empty() {
        let cases = cases(&outcome.finished);
        match options.json {
            true => print(&table::json(&cases, &outcome, folder))?,
            false if !options.quiet => print(&table::text(&cases))?,
            false => {}
        }
    }
    if !outcome.failed.is_empty() {
        say(&format!("{} failed: {}", count(outcome.failed.len(), "run"), outcome.failed.join(", ")));
        return Ok(ExitCode::from(outcome.code));
    }
    if outcome.finished.len() < sweep.points.len() {
        let left = count(sweep.points.len() - outcome.finished.len(), "run");
        let folder = quoted(folder);
        say(&format!(
            "interrupted with {left} left; the same {} command with -o {folder} continues",
            program()
        ));
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    Ok(ExitCode::SUCCESS)
}
