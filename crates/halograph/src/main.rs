//! `halograph`: the binary. Parsing, wiring and exit codes; everything else lives in the libraries.

use std::process::ExitCode;

use clap::Parser;

mod cli;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    match cli::run(args) {
        Ok(code) => code,
        Err(error) => cli::fail(&error),
    }
}
