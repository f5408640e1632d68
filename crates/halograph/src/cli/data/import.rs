//! `halograph data import FORMAT SRC -o DIR`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use halograph_graph::Error;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::Metric;
use halograph_graph::dataset::write::{FeatureLayout, FeatureType};
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
    /// Split: auto, given, ratios TRAIN,VAL,TEST as 0.6,0.2,0.2, per-class[:TRAIN,VAL] or fraction[:TRAIN,VAL].
    ///
    /// auto uses all splits in the files; without one, 20 training and 30 validation nodes per class (multi-label: fractions
    /// 0.6 and 0.2). Ratios hold in every class (multi-label: over all nodes) and add up to 1. Nodes without a label are in no
    /// subset.
    #[arg(long, value_name = "RULE", default_value = "auto", allow_hyphen_values = true)]
    split: SplitRule,
    /// Seed of a random split.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Metric of predictions [default: accuracy, or micro-f1 for multi-label data].
    #[arg(long, value_enum)]
    metric: Option<MetricArg>,
    /// Layout of stored features. auto: sparse if at most 10 % of the values are not 0 and there are at least 64 columns, else
    /// dense. f16 and f32 are short for --feature-type.
    #[arg(long, value_enum, value_name = "LAYOUT", default_value_t = LayoutArg::Auto)]
    features: LayoutArg,
    /// Type of stored features; f16 halves space and memory traffic, and keeps three decimal digits [default: f32].
    #[arg(long, value_enum, value_name = "TYPE")]
    feature_type: Option<TypeArg>,
}

impl Common {
    /// Returns how features are stored.
    fn layout(&self) -> FeatureLayout {
        match self.features {
            LayoutArg::Auto | LayoutArg::F32 | LayoutArg::F16 => FeatureLayout::Auto,
            LayoutArg::Dense => FeatureLayout::Dense,
            LayoutArg::Sparse => FeatureLayout::Sparse,
        }
    }

    /// Returns the type in which features are stored; refuses two types.
    fn feature_type(&self) -> Result<FeatureType, Error> {
        let short = match self.features {
            LayoutArg::F32 => Some(TypeArg::F32),
            LayoutArg::F16 => Some(TypeArg::F16),
            _ => None,
        };
        if let (Some(short), Some(given)) = (short, self.feature_type)
            && short != given
        {
            let problem = format!("{} besides --feature-type {}", short.name(), given.name());
            return Err(Error::input("--features", problem).help("give the type once"));
        }
        Ok(match self.feature_type.or(short) {
            Some(TypeArg::F16) => FeatureType::F16,
            _ => FeatureType::F32,
        })
    }
}

#[derive(Args)]
pub struct SplitIndex {
    /// Keep only this split, counted from 0, of files that hold several [default: all; `train --split-index` chooses].
    #[arg(long, value_name = "K")]
    split_index: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum MetricArg {
    Accuracy,
    BalancedAccuracy,
    MacroF1,
    MicroF1,
    Auc,
}

impl From<MetricArg> for Metric {
    fn from(arg: MetricArg) -> Metric {
        match arg {
            MetricArg::Accuracy => Metric::Accuracy,
            MetricArg::BalancedAccuracy => Metric::BalancedAccuracy,
            MetricArg::MacroF1 => Metric::MacroF1,
            MetricArg::MicroF1 => Metric::MicroF1,
            MetricArg::Auc => Metric::Auc,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutArg {
    Auto,
    Dense,
    Sparse,
    F32,
    F16,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TypeArg {
    F32,
    F16,
}

impl TypeArg {
    fn name(self) -> &'static str {
        match self {
            TypeArg::F32 => "f32",
            TypeArg::F16 => "f16",
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
        feature_type: common.feature_type()?,
        feature_layout: common.layout(),
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
