//! `halograph bench [DATA]`

mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use halograph::config;
use halograph::job::{DemoGraph, JobData, prepare};
use halograph::train::bench::{self, Comparison, Length, Report};
use halograph::train::config::StrategyKind;
use halograph::train::{Config, pool};
use halograph_graph::Dataset;
use halograph_graph::error::{Error, Result};
use halograph_graph::progress::Silent;

use super::progress::Bar;
use super::train::flags::Settings;
use super::{note, print};

const EXAMPLES: &str = "\
Examples:
  halograph bench                                         a first look, on a graph made on the spot
  halograph bench arxiv --model gat --hidden 256          the model you want to train
  halograph bench arxiv --scaling --threads 8             what eight threads are worth";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The dataset directory [default: a small graph, made on the spot].
    data: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings<false>,
    /// Epochs that are timed; phases are those of the median one.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    epochs: u64,
    /// Epochs before those.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=100_000))]
    warmup: u64,
    /// The same on one thread first, and whether more of them are worth what they could be.
    #[arg(long)]
    scaling: bool,
    /// Start even if more memory is predicted than is free.
    #[arg(long)]
    force: bool,
    /// Print the result as one line of JSON, and no progress.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = args.settings.read()?;
    let config = config::resolve(&settings)?;
    check_scaling(args, &config)?;
    check_alone(&config)?;
    let bar = Bar::new(args.quiet || args.json);
    let demo =
        if args.data.is_none() { Some(DemoGraph::generate(&std::env::temp_dir(), &Silent)?) } else { None };
    let path = demo.as_ref().map(DemoGraph::path).or(args.data.clone()).unwrap_or_default();
    let dataset = Arc::new(Dataset::open(&path)?);
    prepare(&JobData::from(dataset.clone()), &config, args.force, &bar)?;
    config::unused(&settings, &config).iter().for_each(note);
    let (report, comparison) = measure(args, &dataset, &config, &bar)?;
    drop(bar);
    if args.json {
        print(&json(&dataset, &config, &report, comparison.as_ref())?)?;
    } else {
        print(&text::text(&dataset, &config, &report, comparison.as_ref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// One thread is nothing to hold against itself.
fn check_scaling(args: &Args, config: &Config) -> Result<()> {
    if args.scaling && pool::threads(&config.train) == 1 {
        return Err(Error::input("--scaling", "there is one thread only").help("give more with --threads"));
    }
    Ok(())
}

/// What is held to the machine is one process.
fn check_alone(config: &Config) -> Result<()> {
    if config.train.strategy == StrategyKind::Single {
        return Ok(());
    }
    let problem = format!("train.ranks = {}: an epoch of one process is measured", config.train.ranks);
    Err(Error::input("bench", problem)
        .help("leave out ranks and strategy; `train --trace` shows what ranks do"))
}

fn measure(
    args: &Args,
    dataset: &Dataset,
    config: &Config,
    bar: &Bar,
) -> anyhow::Result<(Report, Option<Comparison>)> {
    let length = Length { warmup: args.warmup, epochs: args.epochs };
    if args.scaling {
        let (report, comparison) = bench::compare(dataset, config, length, bar)?;
        return Ok((report, Some(comparison)));
    }
    Ok((bench::bench(dataset, config, length, bar)?, None))
}

fn json(
    dataset: &Dataset,
    config: &Config,
    report: &Report,
    comparison: Option<&Comparison>,
) -> anyhow::Result<String> {
    let mut line = serde_json::to_value(report)?;
    line["data"] = dataset.manifest.name.clone().into();
    line["model"] = config.model.kind.name().into();
    line["scaling"] = serde_json::to_value(comparison)?;
    Ok(line.to_string())
}
