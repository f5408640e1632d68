//! `halograph predict RUN -o FILE.npy`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use halograph::job::open_trained;
use halograph::nn::Matrix;
use halograph::rows::{self, RowFormat};
use halograph::train::Prediction;
use halograph_graph::error::{Error, Result};
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

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.out == Path::new("-");
    let format = if to_stdout { RowFormat::Csv } else { format_of(&args.out)? };
    if !to_stdout {
        rows::may_write(&args.out, args.overwrite)?;
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
    if to_stdout {
        return print_csv(&rows).map(|()| ExitCode::SUCCESS);
    }
    rows::write(&rows, &args.out, format, args.overwrite)?;
    if !args.quiet {
        let [n, width] = [rows.rows(), rows.cols()].map(|n| HumanCount(n as u64));
        say(&format!("{}: {name} of {n} nodes × {width}, f32", data.manifest().name));
        print(&args.out.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_of(path: &Path) -> Result<RowFormat> {
    RowFormat::of(path).ok_or_else(|| {
        Error::input(path.display(), "unknown format")
            .help("use a name that ends with .npy or .csv, or -o - for CSV on standard output")
    })
}

/// Prints CSV. A reader that closed the pipe is not an error.
fn print_csv(rows: &Matrix<f32>) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match rows::write_csv(rows, &mut out) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { path: "standard output".into(), action: "write", source: e }.into())
        }
        _ => Ok(()),
    }
}
