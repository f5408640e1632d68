//! `halograph predict RUN -o FILE.npy`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph::job::open_trained;
use halograph::nn::Matrix;
use halograph::train::Prediction;
use halograph::train::run::folder_of;
use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::io::npy;
use indicatif::HumanCount;

use super::{note, print, say};

#[derive(clap::Args)]
pub struct Args {
    /// Run directory; the weights of the best validation epoch are used
    run: PathBuf,
    /// File to write: .npy, or .csv; `-` writes CSV to standard output
    ///
    /// One row per node, in dataset order; one column per class (logits), or per hidden unit (--embeddings). A .csv file has
    /// the node number in the first column.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Dataset directory or folder of shards [default: the data of the run]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Write embeddings (the input of the last layer) instead of logits
    #[arg(long)]
    embeddings: bool,
    /// Threads; with shards, per shard [default: as in training]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
}

/// How rows are written.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Npy,
    Csv,
    /// CSV to standard output.
    Stdout,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let format = format_of(&args.out)?;
    if format != Format::Stdout {
        may_write(&args.out, args.overwrite)?;
    }
    let (model, data, notes) = open_trained(&args.run, args.data.as_deref(), args.threads)?;
    if !args.quiet {
        notes.iter().for_each(note);
    }
    let (what, name) = match args.embeddings {
        true => (Prediction::Embeddings, "embeddings"),
        false => (Prediction::Logits, "logits"),
    };
    let rows = model.predict(data.source(), what)?;
    if format == Format::Stdout {
        return print_csv(&rows).map(|()| ExitCode::SUCCESS);
    }
    write(&rows, &args.out, format, args.overwrite)?;
    if !args.quiet {
        let [n, width] = [rows.rows(), rows.cols()].map(|n| HumanCount(n as u64));
        say(&format!("{}: {name} of {n} nodes × {width}, f32", data.manifest().name));
        print(&args.out.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_of(path: &Path) -> Result<Format> {
    if path == Path::new("-") {
        return Ok(Format::Stdout);
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("npy") => Ok(Format::Npy),
        Some("csv") => Ok(Format::Csv),
        _ => Err(Error::input(path.display(), "unknown format")
            .help("use a name that ends with .npy or .csv, or -o - for CSV on standard output")),
    }
}

/// Refuses a file that exists, before anything is computed.
fn may_write(path: &Path, overwrite: bool) -> Result<()> {
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

/// Writes the file atomically: a temporary file is renamed when it is complete.
fn write(rows: &Matrix<f32>, path: &Path, format: Format, overwrite: bool) -> Result<()> {
    let folder = folder_of(path);
    // Errors name `path`, not the hidden file.
    let with_path = |error| match error {
        Error::Io { action, source, .. } => Error::Io { path: path.to_path_buf(), action, source },
        other => other,
    };
    let hidden = tempfile::Builder::new().prefix(".predict-").tempdir_in(folder).at(path, "create")?;
    let partial = hidden.path().join("rows");
    match format {
        Format::Npy => write_npy(rows, &partial).map_err(with_path)?,
        Format::Csv | Format::Stdout => {
            let file = std::fs::File::create(&partial).at(path, "create")?;
            let mut out = std::io::BufWriter::new(file);
            write_csv(rows, &mut out).at(path, "write")?;
            let file = out.into_inner().map_err(|e| e.into_error()).at(path, "write")?;
            file.sync_all().at(path, "write")?;
        }
    }
    let partial = tempfile::TempPath::try_from_path(partial).at(path, "create")?;
    let named = if overwrite { partial.persist(path) } else { partial.persist_noclobber(path) };
    named.map_err(|e| e.error).at(path, "create")?;
    std::fs::File::open(folder).and_then(|f| f.sync_all()).at(folder, "write")
}

fn write_npy(rows: &Matrix<f32>, path: &Path) -> Result<()> {
    let mut writer = npy::Writer::create(path, &[rows.rows(), rows.cols()])?;
    writer.write(rows.data())?;
    writer.finish()?;
    Ok(())
}

/// Writes a header, then one line per node. Numbers read back as the same f32.
fn write_csv(rows: &Matrix<f32>, out: &mut dyn Write) -> std::io::Result<()> {
    let names: Vec<String> = (0..rows.cols()).map(|c| format!("{c}")).collect();
    writeln!(out, "node,{}", names.join(","))?;
    for row in 0..rows.rows() {
        write!(out, "{row}")?;
        rows.run(row..row + 1).iter().try_for_each(|x| write!(out, ",{x}"))?;
        writeln!(out)?;
    }
    out.flush()
}

/// Prints CSV. A reader that closed the pipe is not an error.
fn print_csv(rows: &Matrix<f32>) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match write_csv(rows, &mut out) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { path: "standard output".into(), action: "write", source: e }.into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        write(&Matrix::new(2, 3, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]), &path, Format::Npy, false).unwrap();
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
        assert!(write(&Matrix::zeros(1, 1), &path, Format::Npy, false).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        write(&Matrix::zeros(1, 1), &path, Format::Npy, true).unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), b"mine");
        assert!(may_write(folder.path(), true).is_err());
    }
}
