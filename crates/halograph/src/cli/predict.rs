//! `halograph predict RUN -o FILE`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use halograph::job::{JobData, Note, open_trained};
use halograph::rows::{self, Chosen, Classes, Output, Predictions, RowFormat};
use halograph::train::{Prediction, TrainedModel};
use halograph_graph::dataset::{IDS, Subset};
use halograph_graph::error::{Error, Result};
use indicatif::HumanCount;

use super::{note, print, say};

const EXAMPLES: &str = "\
Examples:
  halograph predict runs/a -o predictions.csv             id, class and a probability per class
  halograph predict runs/a --data march -o march.parquet  a new dataset, with or without labels
  halograph predict runs/a --split test --output classes -o -
  halograph predict runs/a -o logits.npy                  nodes × classes, f32
  halograph predict runs/a --embeddings 1 -o hidden.npy   output of the first hidden layer";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Run directory; the weights of the best validation epoch are used
    run: PathBuf,
    /// File to write: .csv, .parquet or .npy; `-` writes CSV to standard output
    ///
    /// One row per node, in dataset order. Tables begin with a column `id`: the id in the files that were imported, else the
    /// node number. An .npy array has no ids.
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Dataset directory or folder of shards, with or without labels [default: the data of the run]
    ///
    /// Feature columns with names are matched by name, in any order.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What to write [default: probabilities; logits for .npy]
    #[arg(long, value_enum, value_name = "WHAT")]
    output: Option<OutputArg>,
    /// Which nodes to write, by the split of the data
    #[arg(long, value_enum, value_name = "SUBSET", default_value_t = SubsetArg::All)]
    split: SubsetArg,
    /// Write the output of a hidden layer, counted from 1 [default: the last one]
    ///
    /// After norm and activation. gcnii and resgcn begin with a dense layer, which is layer 1.
    #[arg(long, value_name = "LAYER", num_args = 0..=1, conflicts_with = "output")]
    embeddings: Option<Option<usize>>,
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

#[derive(Clone, Copy, ValueEnum)]
enum OutputArg {
    /// The predicted class and a probability per class; multi-label: a 0 or 1 (probability above 0.5) and a probability per class.
    Probabilities,
    /// The predicted class and a logit per class.
    Logits,
    /// The predicted class alone; multi-label: a 0 or 1 per class.
    Classes,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum SubsetArg {
    Train,
    Val,
    Test,
    All,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.out == Path::new("-");
    let format = if to_stdout { RowFormat::Csv } else { format_of(&args.out)? };
    if !to_stdout {
        rows::may_write(&args.out, args.overwrite)?;
    }
    let (model, data, mut notes) = open_trained(&args.run, args.data.as_deref(), args.threads)?;
    notes.extend(ids_not_in_shards(&data, format));
    if !args.quiet {
        notes.iter().for_each(note);
    }
    let nodes = chosen_nodes(&data, args.split)?;
    let ids = if format.is_table() { data.ids()? } else { None };
    let table = table(args, &model, &data, format, &Chosen { nodes: &nodes, ids: ids.as_deref() })?;
    if to_stdout {
        return print_csv(&table).map(|()| ExitCode::SUCCESS);
    }
    rows::write(&table, &args.out, format, args.overwrite)?;
    if !args.quiet {
        say(&format!(
            "{}: {} of {} nodes",
            data.manifest().name,
            content(args, format),
            HumanCount(nodes.len() as u64)
        ));
        print(&args.out.display().to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes the rows of all nodes and makes a table of those that are chosen.
fn table(
    args: &Args,
    model: &TrainedModel,
    data: &JobData,
    format: RowFormat,
    chosen: &Chosen,
) -> Result<Predictions, halograph::Error> {
    if let Some(layer) = args.embeddings {
        let what = layer.map_or(Prediction::Embeddings, Prediction::Hidden);
        return Ok(Predictions::of_embeddings(&model.predict(data.source(), what)?, chosen));
    }
    let logits = model.predict(data.source(), Prediction::Logits)?;
    let trained_on = &model.header.data;
    let classes =
        Classes { task: trained_on.task, count: trained_on.classes as usize, names: &trained_on.class_names };
    Ok(Predictions::of_logits(&logits, chosen, &classes, output(args, format)))
}

fn output(args: &Args, format: RowFormat) -> Output {
    match args.output {
        Some(OutputArg::Probabilities) => Output::Probabilities,
        Some(OutputArg::Logits) => Output::Logits,
        Some(OutputArg::Classes) => Output::Classes,
        None if format.is_table() => Output::Probabilities,
        None => Output::Logits,
    }
}

/// Returns the name of what is written.
fn content(args: &Args, format: RowFormat) -> &'static str {
    match output(args, format) {
        _ if args.embeddings.is_some() => "embeddings",
        Output::Probabilities => "probabilities",
        Output::Logits => "logits",
        Output::Classes => "classes",
    }
}

/// Returns the nodes of a subset of the split; refuses an empty one.
fn chosen_nodes(data: &JobData, subset: SubsetArg) -> Result<Vec<u32>> {
    let (wanted, name) = match subset {
        SubsetArg::All => return Ok((0..data.manifest().nodes as u32).collect()),
        SubsetArg::Train => (Subset::Train, "train"),
        SubsetArg::Val => (Subset::Val, "val"),
        SubsetArg::Test => (Subset::Test, "test"),
    };
    let split = data.split()?;
    let nodes: Vec<u32> =
        (0..).zip(&split).filter(|(_, part)| **part == wanted as u8).map(|(v, _)| v).collect();
    if nodes.is_empty() {
        let problem = format!("no node of {} is in this subset of the split", data.place());
        return Err(Error::input(format!("--split {name}"), problem).help("--split all writes all nodes"));
    }
    Ok(nodes)
}

fn ids_not_in_shards(data: &JobData, format: RowFormat) -> Option<Note> {
    let JobData::Shards { path, whole } = data else { return None };
    let lost = format.is_table() && whole.dataset.files.contains_key(IDS);
    lost.then(|| Note::IdsNotInShards { path: path.clone() })
}

fn format_of(path: &Path) -> Result<RowFormat> {
    RowFormat::of(path).ok_or_else(|| {
        let endings = RowFormat::ENDINGS;
        Error::input(path.display(), "unknown format")
            .help(format!("use a name that ends with {endings}, or -o - for CSV on standard output"))
    })
}

/// Prints CSV. A reader that closed the pipe is not an error.
fn print_csv(table: &Predictions) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match rows::write_csv(table, &mut out) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Io { path: "standard output".into(), action: "write", source: e }.into())
        }
        _ => Ok(()),
    }
}
