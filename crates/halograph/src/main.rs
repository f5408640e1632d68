//! `halograph`: the binary. Parsing, wiring and exit codes; everything else lives in the libraries.

use std::process::ExitCode;

use clap::Parser;

mod cli;

/// Counts, so that the memory of a run can be told before it begins.
#[global_allocator]
static ALLOCATOR: halograph::train::memory::Counting = halograph::train::memory::Counting;

/// A decoder's panic on a damaged file becomes an ordinary error: the usual report would only confuse.
#[cfg(feature = "parquet")]
fn quiet_expected_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !halograph_graph::import::panic_expected() {
            report(panic);
        }
    }));
}

fn main() -> ExitCode {
    #[cfg(feature = "parquet")]
    quiet_expected_panics();
    let args = cli::Args::parse();
    match cli::run(args) {
        Ok(code) => code,
        Err(error) => cli::fail(&error),
    }
}
