//! `.npz` archives: members that are stored as they are, mapped in place.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use memmap2::Mmap;
use zip::ZipArchive;
use zip::result::ZipError;

use super::npy::{self, Array, Bytes};
use crate::error::{Error, IoContext, Result};

/// An open archive of arrays.
pub struct Npz {
    path: PathBuf,
    map: Arc<Mmap>,
    archive: Mutex<ZipArchive<File>>,
}

impl Npz {
    /// Opens the archive `path`.
    pub fn open(path: &Path) -> Result<Npz> {
        let file = File::open(path).at(path, "open")?;
        let archive = ZipArchive::new(file)
            .map_err(|e| Error::input(path.display(), format!("not an npz archive: {e}")))?;
        Ok(Npz { path: path.to_path_buf(), map: npy::map(path)?, archive: Mutex::new(archive) })
    }

    /// The array called `name`, if it is there.
    pub fn get(&self, name: &str) -> Result<Option<Array>> {
        let label = format!("{}[{name}]", self.path.display());
        let mut archive = self.archive.lock().unwrap_or_else(|e| e.into_inner());
        let member = match archive.by_name(&format!("{name}.npy")) {
            Err(ZipError::FileNotFound) => return Ok(None),
            other => other.map_err(|e| Error::input(&label, e))?,
        };
        if member.compression() != zip::CompressionMethod::Stored {
            return Err(Error::input(label, "is compressed").help("save it with numpy.savez"));
        }
        let start = member.data_start().unwrap_or(u64::MAX);
        let end = start.checked_add(member.size()).filter(|&end| end <= self.map.len() as u64);
        let end = end.ok_or_else(|| Error::input(&label, "reaches beyond the end of the archive"))?;
        Array::new(label, Bytes::Mapped(self.map.clone(), start as usize..end as usize)).map(Some)
    }
}
