//! The command line: one file per command, one `match` here. Only programs call it: it prints, handles signals and may end
//! the process.

mod bench;
mod class_table;
mod data;
mod eval;
mod generate;
mod interrupt;
mod partition;
mod predict;
mod progress;
mod report;
mod runs;
mod sweep;
mod train;
mod version;

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use clap::{Parser, Subcommand};
use halograph::job::Note;
use halograph::{Error, comm};
use halograph_graph::Error as InputError;

pub use train::flags::key_of_flag;

/// This program, even if its file is replaced meanwhile.
const THIS_FILE: &str = "/proc/self/exe";

/// How this program was started.
pub struct Invocation {
    /// The arguments; the first is the name of the program.
    pub arguments: Vec<OsString>,
    /// The command that starts this program again, to be followed by arguments.
    pub command: Vec<OsString>,
}

impl Invocation {
    /// Returns the invocation of this process, which is a program of its own.
    pub fn of_process() -> Self {
        Invocation { arguments: std::env::args_os().collect(), command: vec![THIS_FILE.into()] }
    }
}

/// The invocation that [`main`] was called with.
static INVOCATION: OnceLock<Invocation> = OnceLock::new();

/// Returns how this program was started.
fn invocation() -> &'static Invocation {
    INVOCATION.get_or_init(Invocation::of_process)
}

/// Runs the command of `invocation` and returns its exit code. Prints; may end the process. Called once in a process.
pub fn main(invocation: Invocation) -> u8 {
    let arguments = &INVOCATION.get_or_init(|| invocation).arguments;
    #[cfg(feature = "parquet")]
    quiet_expected_panics();
    let code = run(parse(arguments)).unwrap_or_else(|error| fail(&error));
    (0..=u8::MAX).find(|&number| ExitCode::from(number) == code).unwrap_or(1)
}

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

/// Train graph neural networks on graphs that outgrow one process, on ordinary CPUs.
#[derive(Parser)]
#[command(version = version::text(), about, arg_required_else_help = true, max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make, import, describe and check datasets
    #[command(subcommand)]
    Data(data::Command),
    /// Partition a dataset into shards, one per rank
    Partition(partition::Args),
    /// Train a model
    Train(train::Args),
    /// Measure an epoch phase by phase against the roofline of this machine
    Bench(bench::Args),
    /// Score a trained model
    Eval(eval::Args),
    /// Write predicted classes, probabilities, logits or embeddings of nodes
    Predict(predict::Args),
    /// Train all combinations of some settings
    Sweep(sweep::Args),
    /// List runs with their scores
    Runs(runs::Args),
    /// Compare runs on one HTML page
    Report(report::Args),
    /// Print a completion script for a shell
    Completions(generate::CompletionArgs),
    /// Write man pages
    Man(generate::ManArgs),
}

/// Runs one command.
fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Explicit, so that no environment variable changes the number of threads.
    rayon::ThreadPoolBuilder::new().num_threads(cores()).build_global()?;
    match args.command {
        Command::Data(command) => data::run(command),
        Command::Partition(args) => partition::run(&args),
        Command::Train(args) => train::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => generate::man(&args),
    }
}

/// Parses the command line; exits with a message if that fails.
fn parse(arguments: &[OsString]) -> Args {
    Args::try_parse_from(arguments).unwrap_or_else(|error| {
        // Not for --help and --version.
        if error.use_stderr() {
            wait_for_rank_0();
        }
        error.exit()
    })
}

/// Lets rank 0 print first, if a launcher started this process. Ranks that have not joined cannot agree on which rank
/// prints. Usually all have the same error: then rank 0 exits, and the launcher ends the others.
fn wait_for_rank_0() {
    if comm::launched_rank().is_some_and(|rank| rank > 0) {
        std::thread::sleep(RANK_0_FIRST);
    }
}

/// How long other ranks wait for the launcher to end them, which takes seconds on a busy host. An error that only one rank
/// has is printed after this time.
const RANK_0_FIRST: Duration = Duration::from_secs(10);

/// Prints an error and returns its exit code: 2 usage or bad input, 3 a rank was lost, 130 interrupted, 1 anything else
/// (a full disk, a broken device).
fn fail(error: &anyhow::Error) -> ExitCode {
    wait_for_rank_0();
    print_error(error);
    match (error.downcast_ref::<Error>(), error.downcast_ref::<InputError>()) {
        (Some(error), _) => exit_code(error),
        (None, Some(error)) => input_exit_code(error),
        (None, None) => ExitCode::from(1),
    }
}

/// Returns the exit code of an error of a job.
fn exit_code(error: &Error) -> ExitCode {
    match error {
        Error::Ranks(comm::Error::Mismatch { .. }) => ExitCode::from(2),
        Error::Ranks(_) => ExitCode::from(3),
        Error::Input(error) => input_exit_code(error),
        _ => ExitCode::from(1),
    }
}

fn input_exit_code(error: &InputError) -> ExitCode {
    match error {
        InputError::Cancelled => ExitCode::from(interrupt::EXIT_CODE),
        error if error.is_environment() => ExitCode::from(1),
        _ => ExitCode::from(2),
    }
}

/// Prints the message of an error.
fn print_error(error: &impl std::fmt::Display) {
    say(&format!("error: {error}"));
}

/// Prints a note.
fn note(note: &Note) {
    say(&format!("note: {note}"));
}

/// Prints a line to standard error; a closed standard error is ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns whether standard error is a terminal that can redraw a line.
fn is_interactive() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Returns how this program was called, for suggested commands: `cargo run` puts it on no path.
fn program() -> String {
    let name = invocation().arguments.first().map_or("".into(), |name| name.to_string_lossy());
    if name.contains('/') { quoted(Path::new(&*name)) } else { "halograph".into() }
}

/// Quotes `path` for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "-_./+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Prints a result to standard output. A reader that closed the pipe (`| head`) is not an error.
fn print(text: &str) -> Result<(), InputError> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(InputError::Io { path: "standard output".into(), action: "write", source: e })
        }
        _ => Ok(()),
    }
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}
