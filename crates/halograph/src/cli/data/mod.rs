//! `halograph data …`

mod check;
mod import;
mod info;
mod make;
mod output;
mod tables;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    /// Generate a graph with communities, from a seed, of any size.
    Make(make::Args),
    /// Convert files of another format to a dataset directory.
    #[command(subcommand)]
    Import(import::Command),
    /// Describe a dataset: counts, degrees, homophily, splits, memory per model.
    Info(info::Args),
    /// Check every value of a dataset and report all faults.
    Check(check::Args),
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Make(args) => make::run(args),
        Command::Import(command) => import::run(command),
        Command::Info(args) => info::run(args),
        Command::Check(args) => check::run(args),
    }
}
