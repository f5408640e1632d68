//! `halograph sweep [DATA] --grid KEY=VALUE,VALUE -o DIR`, and `halograph train --seeds N`

mod process;
mod runner;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::value_parser;
use halograph::comm::launched;
use halograph::config::Setting;
use halograph::job::{JobData, NewDirectory, is_shards, open_dataset};
use halograph::sweep::{Axis, Sweep, cases};
use halograph::train::run::is_run;
use halograph_graph::dataset::MANIFEST;
use halograph_graph::error::{Error, IoContext, Result};

use super::train::flags::{OUTPUT, Settings, key_of_flag};
use super::{interrupt, print, program, quoted, say};
use halograph::words::count;
use runner::{Outcome, Runner};

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
    /// Print only notes and errors
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
    train_all(settings, &axes, args.seeds, &NewDirectory::given(&args.out), &options)
}

/// What `sweep` and `train --seeds` have in common, besides the runs and their folder.
pub struct Options<'a> {
    pub data: Option<&'a Path>,
    pub jobs: usize,
    pub force: bool,
    pub json: bool,
    pub quiet: bool,
}

/// Trains all combinations of `axes` and `seeds` seeds that have not ended, each in a directory in `folder`; prints mean and
/// deviation of the scores.
pub fn train_all(
    settings: Vec<Setting>,
    axes: &[Axis],
    seeds: u64,
    folder: &NewDirectory,
    options: &Options,
) -> anyhow::Result<ExitCode> {
    if launched() {
        let problem = "several runs cannot start under a launcher";
        return Err(Error::input("mpirun or srun", problem)
            .help("start one `train` per run, or use --ranks")
            .into());
    }
    check_folder(&folder.path)?;
    let data = open(options.data)?;
    let sweep = Sweep::new(settings, axes, seeds, |settings| data.resolve(settings))?;
    let folder = folder.path.as_path();
    std::fs::create_dir_all(folder).at(folder, "create")?;
    interrupt::install();
    interrupt::end_on_second_signal();
    interrupt::set_training();
    let runner = Runner { sweep: &sweep, fingerprint: &data.manifest().fingerprint, folder, options };
    let outcome = runner.run();
    if !outcome.finished.is_empty() {
        let cases = cases(&outcome.finished);
        match options.json {
            true => print(&table::json(&cases, &outcome, folder))?,
            false if !options.quiet => print(&table::text(&cases))?,
            false => {}
        }
    }
    Ok(ending(&sweep, folder, &outcome))
}

/// Refuses to train runs inside a run, a dataset or shards.
fn check_folder(folder: &Path) -> Result<()> {
    let kind = match folder {
        folder if is_run(folder) => "a run",
        folder if folder.join(MANIFEST).exists() => "a dataset",
        folder if is_shards(folder, 0) => "a folder of shards",
        folder if folder.exists() && !folder.is_dir() => "a file",
        _ => return Ok(()),
    };
    Err(Error::input(folder.display(), format!("is {kind}"))
        .help("give --out a folder for the runs, which need not exist"))
}

/// Opens the data, or the built-in graph.
fn open(data: Option<&Path>) -> Result<JobData> {
    match data {
        Some(path) => JobData::open(path, 0),
        None => open_dataset(None).map(JobData::from),
    }
}

/// Reports runs that failed or are left; returns the exit code.
fn ending(sweep: &Sweep, folder: &Path, outcome: &Outcome) -> ExitCode {
    let left = sweep.points.len() - outcome.finished.len() - outcome.failed.len();
    if left > 0 {
        let (left, program, folder) = (count(left, "run"), program(), quoted(folder));
        say(&format!("interrupted with {left} left; the same {program} command with -o {folder} continues"));
    }
    if !outcome.failed.is_empty() {
        say(&format!("{} failed: {}", count(outcome.failed.len(), "run"), outcome.failed.join(", ")));
        return ExitCode::from(outcome.code);
    }
    if left > 0 { ExitCode::from(interrupt::EXIT_CODE) } else { ExitCode::SUCCESS }
}
