//! `halograph data import FORMAT SRC -o DIR`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::Metric;
use halograph_graph::dataset::write::FeatureType;
use halograph_graph::import::{ImportFormat, ImportOptions, ImportReport, SplitRule, import};
use indicatif::HumanCount;

use super::output::Output;
use super::tables::{CsvArgs, TableArgs};

#[derive(Subcommand)]
pub enum Command {
    /// A folder of plain arrays (indptr + indices or edge_index, feat, label, split or masks).
    Npy {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        which: SplitIndex,
    },
    /// The eight ind.NAME.PART files of Cora, Citeseer, Pubmed: their folder, or any one of them.
    Planetoid {
        #[command(flatten)]
        common: Common,
    },
    /// One .npz archive in the layout of gnn-benchmark (Amazon, Coauthor) or heterophilous-graphs.
    Npz {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        which: SplitIndex,
    },
    /// A GraphSAINT folder (adj_full.npz, feats.npy, class_map.json, role.json).
    Graphsaint {
        #[command(flatten)]
        common: Common,
    },
    /// A raw directory of the Open Graph Benchmark: the folder that holds raw/ and split/.
    Ogb {
        #[command(flatten)]
        common: Common,
        /// Splitting scheme, if split/ holds several.
        #[arg(long, value_name = "NAME")]
        scheme: Option<String>,
    },
    /// A folder of edges.csv and nodes.csv (or .tsv, or gzipped), or an edge file and --nodes.
    Csv {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        tables: TableArgs,
        #[command(flatten)]
        dialect: CsvArgs,
    },
    /// A folder of edges.parquet and nodes.parquet, or an edge file and --nodes.
    #[cfg(feature = "parquet")]
    Parquet {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        tables: TableArgs,
    },
}

#[derive(Args)]
pub struct Common {
    /// Folder or file to import.
    source: PathBuf,
    #[command(flatten)]
    output: Output,
    /// Keep edge directions instead of storing every edge both ways.
    #[arg(long)]
    directed: bool,
    /// Keep edges from a node to itself.
    #[arg(long)]
    keep_self_loops: bool,
    /// Keep only the largest connected component.
    #[arg(long)]
    largest_component: bool,
    /// Split: auto, given, per-class[:TRAIN,VAL] or fraction[:TRAIN,VAL]. auto uses the split in the files; without one, 20
    /// training and 30 validation nodes per class (multi-label: fractions 0.6 and 0.2).
    #[arg(long, value_name = "RULE", default_value = "auto")]
    split: SplitRule,
    /// Seed of a random split.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Metric of predictions [default: accuracy, or micro-f1 for multi-label data].
    #[arg(long, value_enum)]
    metric: Option<MetricArg>,
    /// Type of stored features; f16 halves space and memory traffic, and keeps three decimal digits.
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = FeatureArg::F32)]
    features: FeatureArg,
}

#[derive(Args)]
pub struct SplitIndex {
    /// Index of the split, if masks hold several; from 0 [default: 0].
    #[arg(long, value_name = "K")]
    split_index: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum MetricArg {
    Accuracy,
    MicroF1,
    Auc,
}

impl From<MetricArg> for Metric {
    fn from(arg: MetricArg) -> Metric {
        match arg {
            MetricArg::Accuracy => Metric::Accuracy,
            MetricArg::MicroF1 => Metric::MicroF1,
            MetricArg::Auc => Metric::Auc,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum FeatureArg {
    F32,
    F16,
}

impl From<FeatureArg> for FeatureType {
    fn from(arg: FeatureArg) -> FeatureType {
        match arg {
            FeatureArg::F32 => FeatureType::F32,
            FeatureArg::F16 => FeatureType::F16,
        }
    }
}

pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    let (format, common) = match command {
        Command::Npy { common, which } => (ImportFormat::Npy { split_index: which.split_index }, common),
        Command::Planetoid { common } => (ImportFormat::Planetoid, common),
        Command::Npz { common, which } => (ImportFormat::Npz { split_index: which.split_index }, common),
        Command::Graphsaint { common } => (ImportFormat::GraphSaint, common),
        Command::Ogb { common, scheme } => (ImportFormat::Ogb { scheme }, common),
        Command::Csv { common, tables, dialect } => {
            (ImportFormat::Csv(tables.into(), dialect.into()), common)
        }
        #[cfg(feature = "parquet")]
        Command::Parquet { common, tables } => (ImportFormat::Parquet(tables.into()), common),
    };
    let options = ImportOptions {
        edges: EdgeOptions { directed: common.directed, keep_self_loops: common.keep_self_loops },
        largest_component: common.largest_component,
        split: common.split,
        seed: common.seed,
        metric: common.metric.map(Metric::from),
        feature_type: common.features.into(),
        name: common.output.name.clone(),
        overwrite: common.output.overwrite,
    };
    let report = import(&format, &common.source, &common.output.out, &options, &common.output.bar())?;
    common.output.report(&report.manifest, &summary(&report), &report.notes, &report)?;
    Ok(ExitCode::SUCCESS)
}

fn summary(report: &ImportReport) -> Vec<String> {
    let [read, loops, stored] =
        [report.edges.read, report.edges.self_loops, report.edges.stored].map(HumanCount);
    let mut lines = vec![
        format!("edges: {read} read, {loops} of them self-loops; {stored} stored, duplicates removed"),
        format!("split: {}", report.split),
    ];
    if report.nodes_dropped > 0 {
        lines.push(format!("largest component: {} nodes left out", report.nodes_dropped));
    }
    lines
}
