//! The one error type of this crate.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// What every fallible function here returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be read, understood or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: missing file, no permission, full disk.
    #[error("{}: cannot {action}: {source}{}", path.display(), io_help(source))]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// What was attempted, as a verb: `open`, `write`.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The input is not what it should be.
    #[error("{place}: {problem}{}", help_line(help))]
    Input {
        /// File, and line, column, byte or row where known.
        place: String,
        /// What is wrong, with the offending value.
        problem: String,
        /// What to do about it; empty when the problem says it all.
        help: String,
    },
    /// The observer asked to stop.
    #[error("interrupted: stopped before it was done; nothing was written")]
    Cancelled,
}

fn help_line(help: &str) -> String {
    if help.is_empty() { String::new() } else { format!("\n  help: {help}") }
}

fn io_help(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\n  help: free some space or choose another output folder; nothing partial was left behind"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "\n  help: check the rights of this user on that path"
        }
        io::ErrorKind::NotFound => "\n  help: check the path",
        io::ErrorKind::NotADirectory => "\n  help: a folder is needed there, not a file",
        _ => "",
    }
}

impl Error {
    /// Bad input at `place`, with nothing more to advise.
    pub fn input(place: impl Display, problem: impl Display) -> Self {
        Error::Input { place: place.to_string(), problem: problem.to_string(), help: String::new() }
    }

    /// The same error with advice.
    #[must_use]
    pub fn help(self, advice: impl Display) -> Self {
        match self {
            Error::Input { place, problem, .. } => Error::Input { place, problem, help: advice.to_string() },
            other => other,
        }
    }

    /// A file that is not there as bad input, with advice; other errors as they are.
    #[must_use]
    pub fn if_missing(self, advice: impl Display) -> Self {
        match self {
            Error::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Error::input(path.display(), "is missing").help(advice)
            }
            other => other,
        }
    }

    /// Whether the machine failed rather than the input or the command: a full disk, a broken device.
    pub fn is_environment(&self) -> bool {
        use io::ErrorKind::*;
        match self {
            Error::Io { source, .. } => !matches!(
                source.kind(),
                NotFound
                    | PermissionDenied
                    | ReadOnlyFilesystem
                    | NotADirectory
                    | IsADirectory
                    | AlreadyExists
                    | InvalidInput
                    | InvalidFilename
                    | InvalidData
                    | UnexpectedEof
            ),
            Error::Input { .. } | Error::Cancelled => false,
        }
    }
}

/// Adds path and verb to an [`io::Result`].
pub trait IoContext<T> {
    /// Names the file and what was attempted with it.
    fn at(self, path: &Path, action: &'static str) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.to_path_buf(), action, source })
    }
}
