//! Streaming writer of one array.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Element, Header};
use crate::error::{Error, IoContext, Result};

/// Length and digest of a finished file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileRecord {
    /// Length in bytes, header included.
    pub bytes: u64,
    /// BLAKE3 of the whole file, in hexadecimal.
    pub blake3: String,
}

impl FileRecord {
    /// Returns the record of a file with these contents.
    pub(crate) fn of(contents: &[u8]) -> Self {
        let blake3 = blake3::hash(contents).to_hex().to_string();
        FileRecord { bytes: contents.len() as u64, blake3 }
    }
}

/// Writes one array from start to end and hashes it.
pub struct Writer<T> {
    path: PathBuf,
    out: BufWriter<File>,
    hash: blake3::Hasher,
    written: u64,
    expected: u64,
    element: std::marker::PhantomData<T>,
}

impl<T: Element> Writer<T> {
    /// Creates `path` and writes the header for `shape`.
    pub fn create(path: &Path, shape: &[usize]) -> Result<Self> {
        let header = Header::encode(&T::DTYPE, shape);
        let expected = shape.iter().map(|&d| d as u64).product::<u64>() * size_of::<T>() as u64;
        let file = File::create_new(path).at(path, "create")?;
        let mut writer = Writer {
            path: path.to_path_buf(),
            out: BufWriter::with_capacity(1 << 20, file),
            hash: blake3::Hasher::new(),
            written: 0,
            expected: expected + header.len() as u64,
            element: std::marker::PhantomData,
        };
        writer.write_bytes(&header)?;
        Ok(writer)
    }

    /// Appends elements.
    pub fn write(&mut self, elements: &[T]) -> Result<()> {
        self.write_bytes(bytemuck::cast_slice(elements))
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        self.out.write_all(bytes).at(&self.path, "write")
    }

    /// Syncs the file and returns its record. The number of elements must match the shape.
    pub fn finish(mut self) -> Result<FileRecord> {
        let record = self.flush()?;
        self.out.get_ref().sync_all().at(&self.path, "write")?;
        Ok(record)
    }

    /// Finishes the file without syncing it: the caller syncs many files at once.
    pub(crate) fn finish_unsynced(mut self) -> Result<FileRecord> {
        self.flush()
    }

    fn flush(&mut self) -> Result<FileRecord> {
        if self.written != self.expected {
            return Err(Error::input(
                self.path.display(),
                format!("{} bytes written where the shape needs {}", self.written, self.expected),
            ));
        }
        self.out.flush().at(&self.path, "write")?;
        Ok(FileRecord { bytes: self.written, blake3: self.hash.finalize().to_hex().to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Array;
    use super::*;

    #[test]
    fn written_files_map_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        let mut writer = Writer::<u32>::create(&path, &[4]).unwrap();
        writer.write(&[1, 2]).unwrap();
        writer.write(&[3, 4]).unwrap();
        let record = writer.finish().unwrap();
        assert_eq!(record.bytes, std::fs::metadata(&path).unwrap().len());
        let a = Array::open(&path).unwrap();
        assert_eq!(a.as_slice::<u32>().unwrap(), [1, 2, 3, 4]);
        assert!(a.as_slice::<i64>().is_none());
    }

    #[test]
    fn a_short_write_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::<u8>::create(&dir.path().join("a.npy"), &[4]).unwrap();
        assert!(writer.finish().is_err());
    }
}
