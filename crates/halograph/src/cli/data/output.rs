//! What the commands that make a dataset share: where it goes and what is said about it.

use std::path::PathBuf;

use halograph_graph::dataset::Manifest;
use indicatif::HumanCount;
use serde::Serialize;

use crate::cli::progress::Bar;
use crate::cli::{print, say};

#[derive(clap::Args)]
pub struct Output {
    /// The dataset directory to make.
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// What to call the dataset [default: after what it is made from].
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
    /// Progress as asked for.
    pub fn bar(&self) -> Bar {
        Bar::new(self.quiet || self.json)
    }

    /// Tells what was made: `lines` and `notes` for people, `report` for programs.
    pub fn tell(
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
