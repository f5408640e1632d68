//! Runs the binary through a shell.

use std::path::Path;
use std::process::Command;

/// Runs a line of bash in `folder`, in which `$H` is the binary; returns exit code and standard error.
pub fn shell(folder: &Path, line: &str) -> (Option<i32>, String) {
    let mut bash = Command::new("bash");
    let bash = bash.args(["-c", line]).env("H", env!("CARGO_BIN_EXE_halograph")).current_dir(folder);
    let out = bash.output().expect("bash runs");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}
