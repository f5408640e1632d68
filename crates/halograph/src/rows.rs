//! Files of predicted rows: `.npy` or CSV, written atomically.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::io::npy;
use halograph_nn::Matrix;
use halograph_train::run::folder_of;

/// The format of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowFormat {
    /// A numpy array of f32.
    Npy,
    /// A header, then one line per node that begins with its number.
    Csv,
}

impl RowFormat {
    /// Returns the format that the name of a file implies; `None` if it is neither `.npy` nor `.csv`.
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "npy" => Some(RowFormat::Npy),
            "csv" => Some(RowFormat::Csv),
            _ => None,
        }
    }
}

/// Refuses a folder and, unless `overwrite`, a file that exists. Call it before the rows are computed.
pub fn may_write(path: &Path, overwrite: bool) -> Result<()> {
    if path.is_dir() {
        return Err(
            Error::input(path.display(), "is a folder").help("give the name of a file, as in logits.npy")
        );
    }
    if !overwrite && path.symlink_metadata().is_ok() {
        return Err(Error::input(path.display(), "exists already")
            .help("choose another file, or replace it with --overwrite"));
    }
    Ok(())
}

/// Writes rows to a file atomically: a temporary file is renamed when it is complete. Fails if the file exists, unless
/// `overwrite`.
pub fn write(rows: &Matrix<f32>, path: &Path, format: RowFormat, overwrite: bool) -> Result<()> {
    let folder = folder_of(path);
    // Errors name `path`, not the hidden file.
    let with_path = |error| match error {
        Error::Io { action, source, .. } => Error::Io { path: path.to_path_buf(), action, source },
        other => other,
    };
    let hidden = tempfile::Builder::new().prefix(".predict-").tempdir_in(folder).at(path, "create")?;
    let partial = hidden.path().join("rows");
    match format {
        RowFormat::Npy => write_npy(rows, &partial).map_err(with_path)?,
        RowFormat::Csv => {
            let mut out = BufWriter::new(File::create(&partial).at(path, "create")?);
            write_csv(rows, &mut out).at(path, "write")?;
            let file = out.into_inner().map_err(|e| e.into_error()).at(path, "write")?;
            file.sync_all().at(path, "write")?;
        }
    }
    let partial = tempfile::TempPath::try_from_path(partial).at(path, "create")?;
    let named = if overwrite { partial.persist(path) } else { partial.persist_noclobber(path) };
    named.map_err(|e| e.error).at(path, "create")?;
    File::open(folder).and_then(|f| f.sync_all()).at(folder, "write")
}

fn write_npy(rows: &Matrix<f32>, path: &Path) -> Result<()> {
    let mut writer = npy::Writer::create(path, &[rows.rows(), rows.cols()])?;
    writer.write(rows.data())?;
    writer.finish()?;
    Ok(())
}

/// Writes a header, then one line per node. Numbers read back as the same f32.
pub fn write_csv(rows: &Matrix<f32>, out: &mut dyn Write) -> std::io::Result<()> {
    let names: Vec<String> = (0..rows.cols()).map(|c| format!("{c}")).collect();
    writeln!(out, "node,{}", names.join(","))?;
    for row in 0..rows.rows() {
        write!(out, "{row}")?;
        rows.run(row..row + 1).iter().try_for_each(|x| write!(out, ",{x}"))?;
        writeln!(out)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&Matrix::new(2, 3, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), &path, RowFormat::Npy, false).unwrap();
        let array = npy::Array::open(&path).unwrap();
        assert_eq!(array.header.shape, [2, 3]);
        assert_eq!(array.as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn existing_files_are_kept_unless_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        std::fs::write(&path, "mine").unwrap();
        assert!(may_write(&path, false).is_err() && may_write(&path, true).is_ok());
        assert!(write(&Matrix::zeros(1, 1), &path, RowFormat::Npy, false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        write(&Matrix::zeros(1, 1), &path, RowFormat::Npy, true).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), b"mine");
        assert!(may_write(folder.path(), true).is_err());
    }
}
