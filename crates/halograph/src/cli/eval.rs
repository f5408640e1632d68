//! `halograph eval RUN`

use std::path::PathBuf;
use std::process::ExitCode;

use halograph::train;

use super::engine::plain;
use super::{print, trained};

#[derive(clap::Args)]
pub struct Args {
    /// The run whose kept weights are scored.
    run: PathBuf,
    /// Score on this dataset [default: the one it was trained on].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Threads; with parts, of each of them [default: as in training].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the scores as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (trained, source) = trained::open(&args.run, args.data.as_deref(), args.threads)?;
    let scores = train::evaluate(&trained, source.for_ranks()).map_err(plain)?;
    let manifest = source.manifest();
    if args.json {
        let mut line = serde_json::to_value(scores)?;
        line["run"] = args.run.display().to_string().into();
        line["data"] = manifest.name.clone().into();
        line["metric"] = manifest.metric.to_string().into();
        print(&line.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let parts = [("train", scores.train), ("validation", scores.val), ("test", scores.test)];
    for (part, score) in parts {
        let score = score.map_or("nothing to score".into(), |s| format!("{s:.4}"));
        print(&format!("{:<12} {score}", part))?;
    }
    print(&format!("{:<12} {}", "scored by", manifest.metric))?;
    Ok(ExitCode::SUCCESS)
}
