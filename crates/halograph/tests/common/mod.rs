//! Runs the binary in a folder.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command line, split at spaces, inside `folder`.
pub fn halograph(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halograph"));
    command.args(line.split_whitespace()).current_dir(folder).output().expect("the binary runs")
}

/// Runs a command and expects success; returns standard output.
pub fn ok(folder: &Path, line: &str) -> String {
    let out = halograph(folder, line);
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// Runs a command and expects bad input; returns standard error.
pub fn refused(folder: &Path, line: &str) -> String {
    let out = halograph(folder, line);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{line}: {stderr}");
    assert!(out.stdout.is_empty() && !stderr.contains("panicked"), "{stderr}");
    stderr
}
