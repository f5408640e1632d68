//! File formats shared by datasets and importers.

use std::fs::{self, File};
use std::path::Path;

use crate::error::{Error, IoContext, Result};

pub mod npy;
pub mod npz;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod pickle;
pub mod strings;
pub mod text;

/// Opens a regular file for reading. Refuses anything else: opening a pipe could block.
pub(crate) fn open(path: &Path) -> Result<File> {
    let kind = fs::metadata(path).at(path, "open")?.file_type();
    if kind.is_dir() {
        return Err(Error::input(path.display(), "is a directory, not a file"));
    }
    if !kind.is_file() {
        return Err(Error::input(path.display(), "is not a regular file").help("save it to a file first"));
    }
    File::open(path).at(path, "open")
}
