//! Flags and output that the commands which write a dataset share.

use std::path::PathBuf;

use halograph_graph::dataset::Manifest;
use indicatif::HumanCount;
use serde::Serialize;

use crate::cli::progress::Bar;
use crate::cli::{print, say};

#[derive(clap::Args)]
pub struct Output {
    /// Dataset directory to write.
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Name of the dataset [default: the name of the preset or of the source].
    #[arg(long)]
    pub name: Option<String>,
    /// Replace an existing dataset.
    #[arg(long)]
    pub overwrite: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress and no summary; notes and errors remain.
    #[arg(short, long)]
    quiet: bool,
}

impl Output {
    /// Returns a progress bar, hidden with --quiet and --json.
    pub fn bar(&self) -> Bar {
        Bar::new(self.quiet || self.json)
    }

    /// Prints the result: `report` with --json, else `lines` and `notes`.
    pub fn report(
        &self,
        manifest: &Manifest,
        lines: &[String],
        notes: &[String],
        report: &impl Serialize,
    ) -> anyhow::Result<()> {
        if self.json {
            return Ok(print(&serde_json::to_string(report)?)?);
        }
        if !self.quiet {
            say(&counts(manifest));
            lines.iter().for_each(|line| say(line));
        }
        notes.iter().for_each(|note| say(&format!("note: {note}")));
        if !self.quiet {
            print(&self.out.display().to_string())?;
        }
        Ok(())
    }
}

fn counts(m: &Manifest) -> String {
    let [nodes, edges] = [m.nodes, m.edges].map(HumanCount);
    let direction = if m.directed { "directed" } else { "stored, both ways" };
    format!(
        "{}: {nodes} nodes, {edges} edges {direction}, {} features, {} classes",
        m.name, m.features, m.classes
    )
}
