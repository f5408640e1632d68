//! The command line: one file a command, one `match` here.

mod assign;
mod bench;
mod data;
mod engine;
mod eval;
mod interrupt;
mod partition;
mod predict;
mod progress;
mod report;
mod source;
mod train;
mod trained;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use halograph::{comm, train as training};
use halograph_graph::Error;

/// Train graph neural networks on graphs that outgrow one process, on ordinary CPUs.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true, max_term_width = 110)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make, import, describe and check datasets.
    #[command(subcommand)]
    Data(data::Command),
    /// Cut a dataset into parts, one folder a rank.
    Partition(partition::Args),
    /// Train a model.
    Train(train::Args),
    /// Show where the time of an epoch goes, and how close that is to what this machine can do.
    Bench(bench::Args),
    /// Score a trained model.
    Eval(eval::Args),
    /// Write what a trained model says of every node.
    Predict(predict::Args),
    /// Show how runs went, as one page of HTML.
    Report(report::Args),
}

/// Runs one command to its end.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Said here, so that no environment variable decides behind the user's back.
    rayon::ThreadPoolBuilder::new().num_threads(cores()).build_global()?;
    match args.command {
        Command::Data(command) => data::run(command),
        Command::Partition(args) => partition::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Report(args) => report::run(&args),
    }
}

/// Exit codes: 2 usage or bad input, 3 a rank was lost, 1 anything else (a full disk, a broken device), 130 interrupted.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    say(&format!("error: {error}"));
    code(error)
}

/// The exit code of an error.
pub fn code(error: &anyhow::Error) -> ExitCode {
    if let Some(training::Error::Ranks(error)) = error.downcast_ref() {
        return ExitCode::from(if matches!(error, comm::Error::Mismatch { .. }) { 2 } else { 3 });
    }
    match error.downcast_ref::<Error>() {
        Some(Error::Cancelled) => ExitCode::from(interrupt::EXIT_CODE),
        Some(e) if !e.is_environment() => ExitCode::from(2),
        _ => ExitCode::from(1),
    }
}

/// Prints a line for the user to standard error. That nobody reads it any more must not end the work.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// `path` as a word of a shell command.
pub fn quoted(path: &std::path::Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "-_./+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Prints a result to standard output. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Io { path: "standard output".into(), action: "write", source: e }.into())
        }
        _ => Ok(()),
    }
}

/// So many of something, in words: `1 part`, `2 parts`.
pub fn many(n: impl TryInto<u64>, what: &str) -> String {
    let n = n.try_into().unwrap_or(u64::MAX);
    format!("{} {what}{}", indicatif::HumanCount(n), if n == 1 { "" } else { "s" })
}

/// Cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}
