//! `halograph predict RUN -o FILE.npy`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph::nn::Matrix;
use halograph::train::run::folder_of;
use halograph::train::{self, Output};
use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::io::npy;
use indicatif::HumanCount;

use super::engine::plain;
use super::{print, say, trained};

#[derive(clap::Args)]
pub struct Args {
    /// The run whose kept weights are used.
    run: PathBuf,
    /// The array to write: a row a node, in the order of the dataset; a column a class, with its logit.
    #[arg(short, long, value_name = "FILE.npy")]
    out: PathBuf,
    /// Predict for this dataset [default: the one it was trained on].
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write what enters the last layer instead of logits.
    #[arg(long)]
    embeddings: bool,
    /// Threads; with parts, of each of them [default: as in training].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Replace an existing file.
    #[arg(long)]
    overwrite: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    may_write(&args.out, args.overwrite)?;
    let (trained, source) = trained::open(&args.run, args.data.as_deref(), args.threads)?;
    let output = if args.embeddings { Output::Embeddings } else { Output::Logits };
    let rows = train::predict(&trained, source.for_ranks(), output).map_err(plain)?;
    write(&rows, &args.out, args.overwrite)?;
    let what = if args.embeddings { "embeddings" } else { "logits" };
    let [n, width] = [rows.rows(), rows.cols()].map(|n| HumanCount(n as u64));
    say(&format!("{what} of {n} nodes of {}, {width} wide, f32", source.manifest().name));
    print(&args.out.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Asked before anything is computed.
fn may_write(path: &Path, overwrite: bool) -> Result<()> {
    if path.is_dir() {
        return Err(
            Error::input(path.display(), "a folder").help("give the name of a file, as in logits.npy")
        );
    }
    if !overwrite && path.symlink_metadata().is_ok() {
        return Err(exists(path));
    }
    Ok(())
}

fn exists(path: &Path) -> Error {
    Error::input(path.display(), "exists already").help("choose another file, or replace it with --overwrite")
}

/// Writes the whole array, or nothing: a hidden file takes the name when it is complete.
fn write(rows: &Matrix<f32>, path: &Path, overwrite: bool) -> Result<()> {
    let folder = folder_of(path);
    // What is written is `path`, whatever it is called meanwhile.
    let as_told = |error| match error {
        Error::Io { action, source, .. } => Error::Io { path: path.to_path_buf(), action, source },
        other => other,
    };
    let hidden = tempfile::Builder::new().prefix(".predict-").tempdir_in(folder).at(path, "create")?;
    let partial = hidden.path().join("rows.npy");
    let mut writer = npy::Writer::create(&partial, &[rows.rows(), rows.cols()]).map_err(as_told)?;
    writer.write(rows.data()).and_then(|()| writer.finish()).map_err(as_told)?;
    let partial = tempfile::TempPath::try_from_path(partial).at(path, "create")?;
    let named = if overwrite { partial.persist(path) } else { partial.persist_noclobber(path) };
    named.map_err(|e| e.error).at(path, "create")?;
    std::fs::File::open(folder).and_then(|f| f.sync_all()).at(folder, "write")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_appears_whole_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&Matrix::new(2, 3, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), &path, false).unwrap();
        let array = npy::Array::open(&path).unwrap();
        assert_eq!(array.header.shape, [2, 3]);
        assert_eq!(array.as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_existing_file_stays_unless_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        std::fs::write(&path, "mine").unwrap();
        assert!(may_write(&path, false).is_err() && may_write(&path, true).is_ok());
        assert!(write(&Matrix::zeros(1, 1), &path, false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        write(&Matrix::zeros(1, 1), &path, true).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), b"mine");
        assert!(may_write(folder.path(), true).is_err());
    }
}
