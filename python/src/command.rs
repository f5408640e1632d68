//! The command line.

use std::ffi::OsString;

use halograph::cli::{self, Invocation};
use pyo3::prelude::*;

/// Runs the command `halograph` with these arguments, the name of the program first, and returns its exit code; may end the
/// process. `again` is the command that starts it again.
#[pyfunction]
pub fn run_command(py: Python<'_>, arguments: Vec<OsString>, again: Vec<OsString>) -> u8 {
    py.detach(|| cli::main(Invocation { arguments, command: again }))
}
