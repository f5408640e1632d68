//! `halograph eval RUN`

use std::path::PathBuf;
use std::process::ExitCode;

use halograph::job::open_trained;
use halograph::note::Note;
use halograph::train::evaluation::Evaluated;

use super::{class_table, note, print};

#[derive(clap::Args)]
pub struct Args {
    /// Run directory; the weights of the best validation epoch are scored
    run: PathBuf,
    /// Dataset directory or folder of shards [default: the data of the run]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Threads; with shards, per shard [default: as in training]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the scores as one line of JSON, with those of every class on training, validation and test nodes
    #[arg(long)]
    json: bool,
    /// Print no notes
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (model, data, notes) = open_trained(&args.run, args.data.as_deref(), args.threads)?;
    if !args.quiet {
        notes.iter().for_each(note);
    }
    let manifest = data.manifest();
    let metric = model.header.config.train.metric.unwrap_or(manifest.metric);
    let Evaluated { scores, classes } = model.evaluate_classes(data.source())?;
    if let Some(report) = classes.as_ref().filter(|_| !args.quiet) {
        Note::on_support(report).iter().chain(&Note::on_majority(report, &scores, metric)).for_each(note);
    }
    if args.json {
        let mut line = serde_json::to_value(scores)?;
        line["run"] = args.run.display().to_string().into();
        line["data"] = manifest.name.clone().into();
        line["metric"] = metric.to_string().into();
        line["classes"] = serde_json::to_value(classes)?;
        print(&line.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let subsets = [("train", scores.train), ("validation", scores.val), ("test", scores.test)];
    for (subset, score) in subsets {
        let score = score.map_or("no labelled nodes, or undefined".into(), |s| format!("{s:.4}"));
        print(&format!("{subset:<12} {score}"))?;
    }
    print(&format!("{:<12} {metric}", "metric"))?;
    if let Some(table) = classes.as_ref().and_then(class_table::text) {
        print(&format!("\n{table}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
