//! `halograph data …`

mod import;
mod make;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Turn files of another format into a dataset directory.
    #[command(subcommand)]
    Import(import::Command),
    /// Make a graph with communities: seeded, of any size.
    Make(make::Command),
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Import(command) => import::run(command),
        Command::Make(command) => make::run(command),
    }
}
