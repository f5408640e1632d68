//! `halograph data …`

mod import;
mod tables;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Turn files of another format into a dataset directory.
    #[command(subcommand)]
    Import(import::Command),
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Import(command) => import::run(command),
    }
}
