//! `halograph partition --presample`: flags, and expected costs in split-parallel training.

use clap::ValueEnum;
use halograph::job::{ComparedPartition, ShardOptions, SplitComparison, compare_splits};
use halograph::nn::model::{Spec, StageMessages};
use halograph::train::config::{DEFAULT_BATCH_SIZE, default_fanouts};
use halograph::train::cost::split_step_bytes;
use halograph::words::count;
use halograph_graph::partition::cost::PartCost;
use halograph_graph::partition::{Assignment, Method, PartitionSpec, Presample};
use halograph_graph::sample::{Fanout, SamplerKind};
use halograph_graph::{Dataset, Error, Progress};
use indicatif::{HumanBytes, HumanCount};

#[derive(clap::Args)]
pub struct PresampleArgs {
    /// Partition for split-parallel training: sample this many epochs of mini-batches first, to weigh nodes and edges.
    #[arg(long, value_name = "EPOCHS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["objective", "balance", "assignment"])]
    presample: Option<u32>,
    /// Fanouts to presample, hop 1 first, one per layer; -1: all [default: 15,10, then 5].
    #[arg(
        long,
        value_name = "N,N,…",
        value_delimiter = ',',
        allow_hyphen_values = true,
        requires = "presample"
    )]
    fanout: Vec<i64>,
    /// Training nodes per mini-batch to presample [default: 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "presample")]
    batch_size: Option<u64>,
    /// Sampler to presample with [default: neighbor].
    #[arg(long, value_enum, requires = "presample")]
    sampler: Option<SamplerArg>,
    /// Presample for training on training nodes and the edges between them alone (data.inductive).
    #[arg(long, requires = "presample")]
    inductive: bool,
    /// Presample for training with a cached aggregate of the features: the last hop is not sampled [default: true for gcn,
    /// sage and gin without input dropout].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", requires = "presample")]
    cache_input_aggregate: Option<bool>,
}

#[derive(Clone, Copy, ValueEnum)]
enum SamplerArg {
    /// Each node draws its neighbours independently.
    Neighbor,
    /// LABOR-0: nodes with common neighbours tend to draw the same ones.
    Labor,
}

impl PresampleArgs {
    /// Returns the sampling of a model, if presampling is requested.
    pub fn resolve(&self, model: &Spec) -> Result<Option<Presample>, Error> {
        let Some(epochs) = self.presample else { return Ok(None) };
        // Neither depends on the number of features and classes.
        let StageMessages { width, is_static, .. } = model.messages(1, 1)[0];
        let cached_input = self.cache_input_aggregate.unwrap_or(is_static);
        if cached_input && !is_static {
            let name = model.kind.name();
            let problem = format!("the first layer of model {name} does not aggregate unchanged features");
            return Err(Error::input("--cache-input-aggregate", problem)
                .help("choose model gcn, sage or gin, or leave out the cache"));
        }
        let layers = model.hops();
        let fanouts: Vec<i64> = match self.fanout.is_empty() {
            true => default_fanouts().take(layers).collect(),
            false => self.fanout.clone(),
        };
        if fanouts.len() != layers {
            let problem =
                format!("{} for a model of {}", count(fanouts.len(), "fanout"), count(layers, "layer"));
            return Err(Error::input("--fanout", problem).help("give one fanout per layer; see --layers"));
        }
        let fanouts = fanouts.into_iter().map(Fanout::try_from).collect::<Result<_, String>>();
        Ok(Some(Presample {
            epochs,
            batch_size: self.batch_size.unwrap_or(DEFAULT_BATCH_SIZE),
            sampler: match self.sampler {
                None | Some(SamplerArg::Neighbor) => SamplerKind::Neighbor,
                Some(SamplerArg::Labor) => SamplerKind::Labor,
            },
            fanouts: fanouts.map_err(|problem| Error::input("--fanout", problem))?,
            reads_inputs: width > 0,
            cached_input,
            inductive: self.inductive,
        }))
    }
}

/// Expected costs of a step on the presampled partition and on others.
pub struct SplitTable {
    presample: Presample,
    rows: Vec<TableRow>,
    refused: Vec<(&'static str, Error)>,
}

struct TableRow {
    partition: ComparedPartition,
    /// Bytes that each part exchanges.
    bytes: Vec<f64>,
}

impl SplitTable {
    /// Computes the costs if `spec` is presampled. Blocks; partitions that are compared may be stored beside the dataset.
    pub fn of(
        dataset: &Dataset,
        spec: &PartitionSpec,
        options: &ShardOptions,
        messages: &[StageMessages],
        progress: &dyn Progress,
    ) -> Result<Option<Self>, Error> {
        let Method::Presampled(presample) = &spec.method else { return Ok(None) };
        let path = options.out.join("assignment.npy");
        let assignment = Assignment::read(&path, dataset.manifest.nodes as usize, spec.parts)?;
        let compared = compare_splits(dataset, presample, spec.seed, &assignment, options.force, progress)?;
        let SplitComparison { partitions, refused } = compared;
        let row = |partition: ComparedPartition| TableRow {
            bytes: split_step_bytes(&partition.cost, messages),
            partition,
        };
        let rows = partitions.into_iter().map(row).collect();
        Ok(Some(SplitTable { presample: presample.clone(), rows, refused }))
    }

    /// Returns the partitions that the table does not have, with the reason.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|(method, error)| format!("{method} is not compared: {error}"))
    }

    pub fn json(&self) -> serde_json::Value {
        let row = |row: &TableRow| {
            let mut json = serde_json::json!(row.partition);
            json["part_bytes_per_step"] = row.bytes.clone().into();
            json["bytes_per_step"] = row.total().into();
            json
        };
        self.rows.iter().map(row).collect()
    }

    pub fn lines(&self) -> Vec<String> {
        let Presample { batch_size, fanouts, sampler, epochs, .. } = &self.presample;
        let fanouts: Vec<String> = fanouts.iter().map(|&fanout| i64::from(fanout).to_string()).collect();
        let sampler = format!("{sampler:?}").to_lowercase();
        let mut lines = vec![format!(
            "split    {} of batches of {batch_size} presampled, sampler {sampler}, fanouts {}; expected per step:",
            count(*epochs, "epoch"),
            fanouts.join(",")
        )];
        lines.push(part_row(
            ["part", "destinations", "edges", "remote rows", "traffic", "work / mean"].map(String::from),
        ));
        lines.extend((0..self.rows[0].bytes.len()).map(|part| self.rows[0].part(part)));
        lines.push(compared_row(
            ["partition", "remote rows", "by hop", "traffic", "work", "slowest"].map(String::from),
        ));
        let exchanged = self.presample.exchanged().len();
        lines.extend(self.rows.iter().map(|row| row.compared(exchanged)));
        lines.push("         (work: maximum / mean of parts; slowest: the same in single steps)".into());
        lines
    }
}

impl TableRow {
    fn total(&self) -> f64 {
        self.bytes.iter().sum()
    }

    /// Describes the costs of one part.
    fn part(&self, part: usize) -> String {
        let cost = &self.partition.cost;
        let sum = |of: fn(&PartCost) -> f64| {
            HumanCount(cost.hops.iter().map(|hop| of(&hop[part])).sum::<f64>().round() as u64).to_string()
        };
        let mean = cost.work.iter().sum::<f64>() / cost.work.len() as f64;
        let work = if mean > 0.0 { cost.work[part] / mean } else { 1.0 };
        part_row([
            part.to_string(),
            sum(|cost| cost.destinations),
            sum(|cost| cost.edges),
            sum(|cost| cost.remote_rows),
            HumanBytes(self.bytes[part].round() as u64).to_string(),
            format!("{work:.3}"),
        ])
    }

    /// Describes the costs of all parts together. `exchanged`: number of hops whose rows are exchanged.
    fn compared(&self, exchanged: usize) -> String {
        let ComparedPartition { method, cost } = &self.partition;
        let mut rows = cost.remote_rows();
        rows.truncate(exchanged);
        let whole = |rows: f64| HumanCount(rows.round() as u64).to_string();
        let hops: Vec<String> = rows.iter().map(|&rows| whole(rows)).collect();
        compared_row([
            (*method).into(),
            whole(rows.iter().sum()),
            hops.join(" + "),
            HumanBytes(self.total().round() as u64).to_string(),
            format!("{:.3}", cost.work_balance),
            format!("{:.3}", cost.step_balance),
        ])
    }
}

fn part_row([part, destinations, edges, rows, traffic, work]: [String; 6]) -> String {
    format!("{part:>5} {destinations:>13} {edges:>15} {rows:>13} {traffic:>13} {work:>13}")
}

fn compared_row([method, rows, hops, traffic, work, slowest]: [String; 6]) -> String {
    format!("{method:<12} {rows:>13} {hops:>21} {traffic:>13} {work:>7} {slowest:>8}")
}
