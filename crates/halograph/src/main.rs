//! `halograph`: the binary. The command line is in the library, because the Python package has it too.

use std::process::ExitCode;

use halograph::cli::{self, Invocation};

/// Counts allocations, so that the memory of a run can be predicted.
#[global_allocator]
static ALLOCATOR: halograph::train::memory::Counting = halograph::train::memory::Counting;

fn main() -> ExitCode {
    cli::main(Invocation::of_process()).into()
}
