//! The error type of this crate.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Result of the fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be read, parsed or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of the operating system: missing file, no permission, full disk.
    #[error("{}: cannot {action}: {source}{}", path.display(), io_help(source))]
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// The operation that failed, as a verb: `open`, `write`.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Invalid input.
    #[error("{place}: {problem}{}", help_line(help))]
    Input {
        /// File, and line, column, byte or row where known.
        place: String,
        /// The problem, with the offending value.
        problem: String,
        /// The remedy; may be empty.
        help: String,
    },
    /// More memory is needed than is free. Nothing was written.
    #[error("{place}: {problem}{}", help_line(help))]
    OutOfMemory {
        /// What needs it.
        place: String,
        /// How much is needed, and how much is free.
        problem: String,
        /// The remedy; may be empty.
        help: String,
    },
    /// The observer asked to stop.
    #[error("interrupted; nothing was written")]
    Cancelled,
}

fn help_line(help: &str) -> String {
    if help.is_empty() { String::new() } else { format!("\n  help: {help}") }
}

fn io_help(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\n  help: free some space or choose another output folder; nothing was left behind"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "\n  help: check the permissions of this user for that path"
        }
        io::ErrorKind::NotFound => "\n  help: check the path",
        io::ErrorKind::NotADirectory => "\n  help: a component of the path is a file, not a folder",
        _ => "",
    }
}

impl Error {
    /// Creates an error for invalid input at `place`, without a remedy.
    pub fn input(place: impl Display, problem: impl Display) -> Self {
        Error::Input { place: place.to_string(), problem: problem.to_string(), help: String::new() }
    }

    /// Creates an error for a lack of memory, without a remedy.
    pub fn out_of_memory(place: impl Display, problem: impl Display) -> Self {
        Error::OutOfMemory { place: place.to_string(), problem: problem.to_string(), help: String::new() }
    }

    /// Returns the same error with a remedy.
    #[must_use]
    pub fn help(self, advice: impl Display) -> Self {
        match self {
            Error::Input { place, problem, .. } => Error::Input { place, problem, help: advice.to_string() },
            Error::OutOfMemory { place, problem, .. } => {
                Error::OutOfMemory { place, problem, help: advice.to_string() }
            }
            other => other,
        }
    }

    /// Turns the error of a missing file into one of invalid input with a remedy; returns other errors unchanged.
    #[must_use]
    pub fn if_missing(self, advice: impl Display) -> Self {
        match self {
            Error::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Error::input(path.display(), "is missing").help(advice)
            }
            other => other,
        }
    }

    /// Returns whether the machine failed (full disk, broken device), not the input or the command.
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
            Error::Input { .. } | Error::OutOfMemory { .. } | Error::Cancelled => false,
        }
    }
}

/// Adds path and operation to an [`io::Result`].
pub trait IoContext<T> {
    /// Adds the file and the operation that failed.
    fn at(self, path: &Path, action: &'static str) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, path: &Path, action: &'static str) -> Result<T> {
        self.map_err(|source| Error::Io { path: path.to_path_buf(), action, source })
    }
}
