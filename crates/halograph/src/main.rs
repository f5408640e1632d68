//! `halograph`: the binary. Parsing, wiring and exit codes; everything else lives in the libraries.

use std::process::ExitCode;

mod cli;

/// Counts allocations, so that the memory of a run can be predicted.
#[global_allocator]
static ALLOCATOR: halograph::train::memory::Counting = halograph::train::memory::Counting;

/// Suppresses the report of panics that the Parquet reader turns into errors.
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
    match cli::run(cli::parse()) {
        Ok(code) => code,
        Err(error) => cli::fail(&error),
    }
}
