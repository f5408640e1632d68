//! `halograph data check DIR`

use std::path::PathBuf;
use std::process::ExitCode;

use halograph_graph::dataset::check;

use crate::cli::progress::Bar;
use halograph::words::count;

use crate::cli::{print, say};

#[derive(clap::Args)]
pub struct Args {
    /// The dataset directory.
    dir: PathBuf,
    /// Print the faults as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// Exit code 0 if nothing is wrong, 2 otherwise.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let bar = Bar::new(args.quiet || args.json);
    let (manifest, faults) = check(&args.dir, &bar)?;
    drop(bar);
    if args.json {
        print(&serde_json::to_string(&serde_json::json!({ "ok": faults.is_empty(), "faults": faults }))?)?;
    } else if faults.is_empty() {
        print(&format!(
            "{}: {} nodes, {} edges, {} features, {} classes: no fault found",
            args.dir.display(),
            manifest.nodes,
            manifest.edges,
            manifest.features,
            manifest.classes
        ))?;
    } else {
        faults.iter().try_for_each(|fault| print(&fault.to_string()))?;
        let kinds = count(faults.len(), "kind");
        say(&format!("error: {}: {kinds} of faults", args.dir.display()));
        say(
            "  help: import or make the dataset again; a changed array goes in through `halograph data import npy`",
        );
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}
