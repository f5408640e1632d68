//! `halograph bench [DATA]`

mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use halograph::config;
use halograph::job::{JobData, check_one_process, open_dataset};
use halograph::train::bench::{self, BenchReport, EpochCounts, ThreadScaling};
use halograph::train::{Config, pool};
use halograph_graph::Dataset;
use halograph_graph::error::{Error, Result};

use super::progress::Bar;
use super::train::flags::Settings;
use super::{note, print};

const EXAMPLES: &str = "\
Examples:
  halograph bench                                         the default model on a generated graph
  halograph bench arxiv --model gat --hidden 256          another dataset and model
  halograph bench arxiv --strategy minibatch              sampled mini-batches
  halograph bench arxiv --scaling --threads 8             speedup of 8 threads over one";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Dataset directory [default: a small generated graph].
    data: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings<false>,
    /// Timed epochs; the table shows the median one.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    epochs: u64,
    /// Warm-up epochs before the timed ones.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    warmup: u64,
    /// Measure on one thread too, and compare the speedup with that of the roofline.
    #[arg(long)]
    scaling: bool,
    /// Start even if the predicted peak memory exceeds free memory.
    #[arg(long)]
    force: bool,
    /// Print the result as one line of JSON, without progress.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.settings.read()?;
    let mut config = config::resolve(&settings)?;
    check_scaling(args, &config)?;
    check_single(&config)?;
    let bar = Bar::new(args.quiet || args.json);
    let dataset = Arc::new(open_dataset(args.data.as_deref())?.with_split(config.data.split_index)?);
    config.resolve_input(dataset.manifest.is_sparse());
    check_one_process(&JobData::from(dataset.clone()), &config, args.force, &bar)?;
    config::unused(&settings, &config).iter().for_each(note);
    let (report, scaling) = measure(args, &dataset, &config, &bar)?;
    drop(bar);
    if args.json {
        print(&json(&dataset, &config, &report, scaling.as_ref())?)?;
    } else {
        print(&text::text(&dataset, &config, &report, scaling.as_ref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses `--scaling` on one thread.
fn check_scaling(args: &Args, config: &Config) -> Result<()> {
    if args.scaling && pool::threads(&config.train) == 1 {
        return Err(Error::input("--scaling", "needs more than one thread").help("give --threads 2 or more"));
    }
    Ok(())
}

/// Refuses strategies that train parts of the graph on ranks: rooflines are of one process.
fn check_single(config: &Config) -> Result<()> {
    let train = &config.train;
    if !train.uses_parts() {
        return Ok(());
    }
    let ranks = if train.ranks > 1 { format!(" on {} ranks", train.ranks) } else { String::new() };
    let problem = format!("strategy {}{ranks}: bench measures one process", train.strategy.name());
    Err(Error::input("bench", problem)
        .help("leave out ranks and strategy; for several ranks use `train --trace` and `report`"))
}

fn measure(
    args: &Args,
    dataset: &Dataset,
    config: &Config,
    bar: &Bar,
) -> anyhow::Result<(BenchReport, Option<ThreadScaling>)> {
    let counts = EpochCounts { warmup: args.warmup, timed: args.epochs };
    if args.scaling {
        let (report, scaling) = bench::measure_scaling(dataset, config, counts, bar)?;
        return Ok((report, Some(scaling)));
    }
    Ok((bench::measure(dataset, config, counts, bar)?, None))
}

fn json(
    dataset: &Dataset,
    config: &Config,
    report: &BenchReport,
    scaling: Option<&ThreadScaling>,
) -> anyhow::Result<String> {
    let mut line = serde_json::to_value(report)?;
    line["data"] = dataset.manifest.name.clone().into();
    line["model"] = config.model.kind.name().into();
    line["scaling"] = serde_json::to_value(scaling)?;
    Ok(line.to_string())
}
