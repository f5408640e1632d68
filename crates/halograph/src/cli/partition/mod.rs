//! `halograph partition DIR -k K -o SHARDS`

mod presample;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use halograph::job::{AssignmentOption, ShardOptions, write_shards};
use halograph::nn::model::{Kind, Spec, StageMessages};
use halograph::train::cost::PartitionTraffic;
use halograph::words::count;
use halograph_graph::partition::folder::PartitionManifest;
use halograph_graph::partition::report::{PartCounts, PartitionReport};
use halograph_graph::partition::{Balance, MAX_PARTS, Method, Objective, PartitionSpec};
use halograph_graph::{Dataset, Error};
use indicatif::{HumanBytes, HumanCount};

use self::presample::{PresampleArgs, SplitTable};
use crate::cli::progress::Bar;
use crate::cli::{print, say};

#[derive(clap::Args)]
pub struct Args {
    /// Dataset directory.
    dir: PathBuf,
    /// Number of parts.
    #[arg(short = 'k', long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=MAX_PARTS as i64))]
    parts: u32,
    /// Folder of shards to write.
    #[arg(short, long, value_name = "SHARDS")]
    out: PathBuf,
    /// Partitioning method.
    #[arg(long, value_enum, default_value_t = MethodArg::Metis)]
    method: MethodArg,
    /// Objective of METIS [default: volume].
    #[arg(long, value_enum)]
    objective: Option<ObjectiveArg>,
    /// Also balance this between parts, besides nodes; repeatable.
    #[arg(long, value_enum, value_name = "WHAT")]
    balance: Vec<BalanceArg>,
    #[command(flatten)]
    presample: PresampleArgs,
    /// Seed; the same seed gives the same parts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of the split, from 0, of a dataset that has several; shards hold one.
    #[arg(long, value_name = "I", default_value_t = 0)]
    split_index: usize,
    /// Read the assignment from a file instead: an .npy array of integers, or a METIS file with one part per line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "objective", "balance", "seed"])]
    assignment: Option<PathBuf>,
    /// Model whose communication volume is reported; that is sampled with --presample.
    #[arg(long, value_name = "KIND", default_value = Kind::Sage.name(), value_parser = kinds())]
    model: Kind,
    /// Number of layers of that model.
    #[arg(long, value_name = "N", default_value_t = Spec::new(Kind::Sage).layers as u32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    layers: u32,
    /// Hidden size of that model.
    #[arg(long, value_name = "W", default_value_t = Spec::new(Kind::Sage).hidden as u32, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hidden: u32,
    /// Run METIS even if more memory is predicted than is free.
    #[arg(long)]
    force: bool,
    /// Replace an existing folder of shards.
    #[arg(long)]
    overwrite: bool,
    /// Print the result as one line of JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress and no report.
    #[arg(short, long)]
    quiet: bool,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let named = |name: String| Kind::ALL.into_iter().find(|kind| kind.name() == name);
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).map(move |name| named(name).expect("a listed name"))
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum MethodArg {
    /// METIS k-way: lowest communication; one thread, and several times the memory of the graph.
    Metis,
    /// Streaming (linear deterministic greedy): fast, with little memory.
    Stream,
    /// Uniformly at random.
    Random,
}

#[derive(Clone, Copy, ValueEnum)]
enum ObjectiveArg {
    /// Communication volume: halo rows.
    Volume,
    /// Edge cut: edges between parts.
    Cut,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum BalanceArg {
    /// Nodes (always balanced).
    Nodes,
    /// In-edges: the work of aggregation.
    Edges,
    /// Training nodes.
    Train,
}

impl Args {
    fn spec(&self) -> Result<PartitionSpec, Error> {
        let method = match self.presample.resolve(&self.model())? {
            None => self.plain_method()?,
            Some(presample) if self.method == MethodArg::Metis => Method::Presampled(presample),
            Some(_) => {
                return Err(Error::input(
                    "--presample",
                    "weighs the graph for METIS, and for no other method",
                )
                .help("leave out --method, or --presample"));
            }
        };
        let balances = |arg| self.balance.contains(&arg);
        let balance = Balance { edges: balances(BalanceArg::Edges), train: balances(BalanceArg::Train) };
        Ok(PartitionSpec { parts: self.parts, method, balance, seed: self.seed })
    }

    /// Returns the method without presampling.
    fn plain_method(&self) -> Result<Method, Error> {
        match (self.method, self.objective) {
            (MethodArg::Metis, None | Some(ObjectiveArg::Volume)) => Ok(Method::Metis(Objective::Volume)),
            (MethodArg::Metis, Some(ObjectiveArg::Cut)) => Ok(Method::Metis(Objective::Cut)),
            (_, Some(_)) => Err(Error::input("--objective", "only METIS has one").help("leave it out")),
            (MethodArg::Stream, None) => Ok(Method::Stream),
            (MethodArg::Random, None) => Ok(Method::Random),
        }
    }

    fn model(&self) -> Spec {
        Spec { layers: self.layers as usize, hidden: self.hidden as usize, ..Spec::new(self.model) }
    }

    /// Returns the messages of the stages of the model.
    fn messages(&self, dataset: &Dataset) -> Vec<StageMessages> {
        let [inputs, outputs] = [dataset.manifest.features, dataset.manifest.classes].map(|n| n as usize);
        let mut model = self.model();
        model.resolve_input(dataset.manifest.is_sparse());
        model.messages(inputs, outputs)
    }

    fn options(&self) -> Result<ShardOptions, Error> {
        let assignment = match &self.assignment {
            Some(path) => AssignmentOption::File { path: path.clone(), parts: self.parts },
            None => AssignmentOption::Computed(self.spec()?),
        };
        let (out, overwrite, force) = (self.out.clone(), self.overwrite, self.force);
        Ok(ShardOptions { assignment, out, overwrite, force })
    }
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.model().check()?;
    let options = args.options()?;
    options.check()?;
    let dataset = Dataset::open(&args.dir)?.with_split(args.split_index)?;
    let bar = Bar::new(args.quiet || args.json);
    let partition = write_shards(&dataset, &options, &bar)?;
    let messages = args.messages(&dataset);
    let reports = args.json || !args.quiet;
    let split = match &options.assignment {
        AssignmentOption::Computed(spec) if reports => {
            SplitTable::of(&dataset, spec, &options, &messages, &bar)?
        }
        _ => None,
    };
    drop(bar);
    split.iter().flat_map(SplitTable::notes).for_each(|note| say(&format!("note: {note}")));
    let traffic = PartitionTraffic::of(&partition.report, &messages);
    if args.json {
        print(&json(args, &partition, &traffic, split.as_ref()).to_string())?;
    } else if !args.quiet {
        lines(args, &partition, &traffic, split.as_ref()).iter().try_for_each(|line| print(line))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn json(
    args: &Args,
    partition: &PartitionManifest,
    traffic: &PartitionTraffic,
    split: Option<&SplitTable>,
) -> serde_json::Value {
    let PartitionTraffic { setup_bytes, bytes_per_epoch, pair_bytes_per_epoch } = traffic;
    let traffic = serde_json::json!({
        "model": args.model,
        "layers": args.layers,
        "hidden": args.hidden,
        "setup_bytes": setup_bytes,
        "bytes_per_epoch": bytes_per_epoch,
        "pair_bytes_per_epoch": pair_bytes_per_epoch,
    });
    let mut json = serde_json::json!({ "out": args.out, "partition": partition, "traffic": traffic });
    if let Some(split) = split {
        json["split"] = split.json();
    }
    json
}

fn lines(
    args: &Args,
    partition: &PartitionManifest,
    traffic: &PartitionTraffic,
    split: Option<&SplitTable>,
) -> Vec<String> {
    let PartitionManifest { report, dataset, origin, .. } = partition;
    let how = origin.objective.as_ref().map_or(String::new(), |objective| format!(", objective {objective}"));
    let [nodes, edges] = [dataset.nodes, dataset.edges].map(HumanCount);
    let mut lines = vec![
        format!(
            "{}: {nodes} nodes, {edges} edges in {} ({}{how})",
            dataset.name,
            count(partition.parts, "part"),
            origin.method
        ),
        table_row(["part", "nodes", "edges", "training", "halo", "send"].map(String::from)),
    ];
    lines.extend(report.sizes.iter().enumerate().map(|(part, size)| size_row(part, size)));
    let PartitionReport { cut_edges, cut_share, halo, alpha, balance, .. } = report;
    lines.push(format!("cut      {} edges, {:.1} % of all", HumanCount(*cut_edges), 100.0 * cut_share));
    lines.push(format!("halo     {} rows, {alpha:.3} per node", HumanCount(*halo)));
    lines.push(format!(
        "balance  nodes {:.3}, edges {:.3}, training {:.3}, halo {:.3} (maximum / mean)",
        balance.nodes, balance.edges, balance.training, balance.halo
    ));
    lines.push(format!(
        "traffic  {}, {}, hidden size {}: {} of features once, then {} per epoch{}",
        args.model.name(),
        count(args.layers, "layer"),
        args.hidden,
        HumanBytes(traffic.setup_bytes),
        HumanBytes(traffic.bytes_per_epoch),
        busiest(report, traffic)
    ));
    lines.extend(split.into_iter().flat_map(SplitTable::lines));
    lines.push(format!("shards   {}", args.out.display()));
    lines
}

/// Describes the pair of parts with the highest communication volume.
fn busiest(report: &PartitionReport, traffic: &PartitionTraffic) -> String {
    let pairs = report.pairs.iter().zip(&traffic.pair_bytes_per_epoch);
    let most = pairs.max_by_key(|(pair, _)| pair.rows);
    most.map_or(String::new(), |(pair, &bytes)| {
        format!("; most from {} to {}: {}", pair.from, pair.to, HumanBytes(bytes))
    })
}

fn size_row(part: usize, size: &PartCounts) -> String {
    let PartCounts { nodes, edges, training, halo, send } = *size;
    let [nodes, edges, training, halo, send] =
        [nodes, edges, training, halo, send].map(|n| HumanCount(n).to_string());
    table_row([part.to_string(), nodes, edges, training, halo, send])
}

fn table_row([part, nodes, edges, training, halo, send]: [String; 6]) -> String {
    format!("{part:>5} {nodes:>13} {edges:>15} {training:>13} {halo:>13} {send:>13}")
}
