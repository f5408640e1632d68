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
    /// Make a graph with communities: seeded, of any size.
    Make(make::Args),
    /// Turn files of another format into a dataset directory.
    #[command(subcommand)]
    Import(import::Command),
    /// Describe a dataset: counts, degrees, homophily, splits, memory per model.
    Info(info::Args),
    /// Look at every number of a dataset and name what is wrong.
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
