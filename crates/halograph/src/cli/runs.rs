//! `halograph runs [DIR]`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use halograph::runs::{Listed, find};
use halograph::words::{aligned, seconds};
use halograph_graph::error::{Error, Result};

use super::{print, say};

#[derive(clap::Args)]
pub struct Args {
    /// Folder that contains run directories, at any depth.
    #[arg(default_value = "runs")]
    folder: PathBuf,
    /// Order of the runs.
    #[arg(long, value_enum, value_name = "KEY", default_value = "name")]
    sort: SortArg,
    /// Print one line of JSON per run.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum SortArg {
    /// Name of the run; runs named by default are in the order of their start.
    Name,
    /// Validation score, highest first.
    Val,
    /// Test score, highest first.
    Test,
    /// Median epoch time, shortest first.
    Time,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut runs, unreadable) = find(&args.folder)?;
    unreadable.iter().for_each(|error| say(&format!("note: {error}")));
    if runs.is_empty() {
        let problem = "contains no runs";
        return Err(Error::input(args.folder.display(), problem)
            .help("give a folder of `halograph train` runs")
            .into());
    }
    sort(&mut runs, args.sort);
    match args.json {
        true => runs.iter().try_for_each(print_json)?,
        false => print(&text(&runs, &args.folder))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print_json(run: &Listed) -> Result<()> {
    print(&serde_json::to_string(run).expect("numbers and names always serialise"))
}

fn sort(runs: &mut [Listed], key: SortArg) {
    let highest = |score: Option<f64>| -score.unwrap_or(f64::NEG_INFINITY);
    match key {
        SortArg::Name => runs.sort_by(|a, b| a.path.cmp(&b.path)),
        SortArg::Val => runs.sort_by(|a, b| highest(a.val).total_cmp(&highest(b.val))),
        SortArg::Test => runs.sort_by(|a, b| highest(a.test).total_cmp(&highest(b.test))),
        SortArg::Time => {
            let time = |run: &Listed| run.epoch_seconds.unwrap_or(f64::INFINITY);
            runs.sort_by(|a, b| time(a).total_cmp(&time(b)));
        }
    }
}

const HEAD: [&str; 9] = ["run", "data", "model", "strategy", "epochs", "val", "test", "epoch", "state"];
/// Columns of text; numbers follow.
const TEXT_COLUMNS: usize = 4;

fn text(runs: &[Listed], folder: &Path) -> String {
    let score = |score: Option<f64>| score.map_or("–".into(), |score| format!("{score:.4}"));
    let row = |run: &Listed| {
        let name =
            run.path.strip_prefix(folder).ok().filter(|name| *name != Path::new("")).unwrap_or(&run.path);
        let ranks = if run.ranks > 1 { format!(" × {}", run.ranks) } else { String::new() };
        vec![
            name.display().to_string(),
            run.data.clone(),
            run.model.clone(),
            format!("{}{ranks}", run.strategy),
            run.epochs.map_or("–".into(), |epochs| epochs.to_string()),
            score(run.val),
            score(run.test),
            run.epoch_seconds.map_or("–".into(), seconds),
            run.state.clone(),
        ]
    };
    let head = vec![HEAD.map(String::from).to_vec()];
    aligned(&head.into_iter().chain(runs.iter().map(row)).collect::<Vec<_>>(), TEXT_COLUMNS)
}
