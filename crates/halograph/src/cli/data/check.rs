//! `halograph data check DIR`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph_graph::dataset::check;
use halograph_graph::dataset::info::LabelCounts;
use halograph_graph::{Dataset, Error};

use crate::cli::progress::Bar;
use halograph::words::count;

use crate::cli::{print, say};

#[derive(clap::Args)]
pub struct Args {
    /// Dataset directory.
    dir: PathBuf,
    /// Print the faults as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// Returns exit code 0 without faults, 2 with faults.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let bar = Bar::new(args.quiet || args.json);
    let (manifest, faults) = check(&args.dir, &bar)?;
    drop(bar);
    let warnings = if faults.is_empty() { warnings(&args.dir)? } else { Vec::new() };
    if args.json {
        let found = serde_json::json!({ "ok": faults.is_empty(), "faults": faults, "warnings": warnings });
        print(&found.to_string())?;
    } else if faults.is_empty() {
        print(&format!(
            "{}: {} nodes, {} edges, {} features, {} classes: no fault found",
            args.dir.display(),
            manifest.nodes,
            manifest.edges,
            manifest.features,
            manifest.classes
        ))?;
        warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    } else {
        faults.iter().try_for_each(|fault| print(&fault.to_string()))?;
        let kinds = count(faults.len(), "kind");
        say(&format!("error: {}: {kinds} of faults", args.dir.display()));
        say(
            "  help: import or generate the dataset again; to change an array, change a copy and use `halograph data import npy`",
        );
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

/// Returns warnings about labels from which a model cannot learn, although the dataset has no fault.
fn warnings(dir: &Path) -> Result<Vec<String>, Error> {
    let dataset = Dataset::open(dir)?;
    Ok(LabelCounts::of(&dataset).warnings(&dataset.manifest))
}
