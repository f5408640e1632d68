//! Admission by memory: how much a run needs, predicted before it starts.
//!
//! 1. A lower bound from sizes alone (`bound`): weights, gradients, optimiser state, one matrix of each hidden layer. If
//!    that is more than is free, nothing is allocated.
//! 2. Dry runs (`dry_run`): two epochs on two graphs of some hundred nodes, with as many layers and columns. Every
//!    buffer is recorded; its size is linear in the number of nodes. Replaying the buffers in their real sizes, through
//!    the rules of the pool, gives the peak. So the prediction stays true when layers change what they keep.
//! 3. Strategy `minibatch` (`batches`): dry runs of the shape of a sampled batch, and of an evaluation of the whole graph.
//!    On ranks the size of a batch is estimated (`rank_batches`).
//! 4. Strategies that split the model (`stages`): the dry runs are of the whole model; one rank has a share of them.
//! 5. Edges, and for parts of a graph halo rows, are counted.
//!
//! The prediction is a function of the data and the configuration, up to the memory that the process already has.

mod batches;
mod bound;
mod dry_run;
mod rank_batches;
mod shape;
mod stages;

use halograph_graph::Dataset;
use halograph_graph::dataset::Manifest;
use halograph_graph::error::Error as InputError;
use halograph_graph::partition::report::PartCounts;
use halograph_graph::partition::shard::manifest::ShardManifest;
use halograph_graph::partition::{PartitionInfo, Shard};
use halograph_nn::model::{Kind, StageMessages};

use self::bound::{Least, number_bytes};
use self::dry_run::{DryRuns, Phase};
use self::shape::Shape;
use self::stages::Stages;
use crate::config::{Config, RowEncoding, StrategyKind};
use crate::cost::{NumberBytes, RowBytes};
use crate::error::Result;
use crate::memory::{available, is_counting, rss};
use crate::pool::threads;
use crate::setup;
use crate::strategy::pipelined::Schedule;

/// Predicted peak memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// Peak in bytes; at least this much if it [is a bound](Prediction::is_bound).
    pub bytes: u64,
    /// Weights, gradients, optimiser state and best weights of all ranks, in bytes.
    pub weights: u64,
    /// Whether only a lower bound was computed, because that is more than is free.
    pub is_bound: bool,
    /// What needs less memory.
    remedy: &'static str,
}

impl Prediction {
    /// Returns the prediction of so many equal processes.
    fn times(self, processes: u64) -> Self {
        let [bytes, weights] = [self.bytes, self.weights].map(|bytes| bytes.saturating_mul(processes));
        Prediction { bytes, weights, ..self }
    }
}

/// Predicts the peak memory of training `config` on `dataset` in one process; `None` where the program does not count
/// allocations. Blocks.
pub fn predict(dataset: &Dataset, config: &Config) -> Result<Option<Prediction>> {
    if !is_counting() {
        return Ok(None);
    }
    let before = rss().unwrap_or(0);
    let shape = Shape::of(dataset, config);
    if config.train.strategy.samples() {
        return batches::predict(dataset, &shape, config, before);
    }
    let least = Least::of_ranks(1, &shape, config);
    predict_with(&shape, config, least, Phase::Training, |runs| {
        let edges = graph_bytes(config, &dataset.manifest, shape.stored_edges, shape.nodes);
        before
            + PROCESS
            + edges
            + runs.at(shape.nodes, HaloBytes::default())
            + threads(&config.train) as u64 * THREAD
    })
}

/// The size of one part of a graph.
#[derive(Debug, Clone, Copy)]
pub struct PartSize {
    /// Owned vertices.
    pub owned: u64,
    /// Halo rows.
    pub halo: u64,
    /// In-edges of owned vertices.
    pub edges: u64,
}

impl From<&PartCounts> for PartSize {
    fn from(size: &PartCounts) -> Self {
        PartSize { owned: size.nodes, halo: size.halo, edges: size.edges }
    }
}

impl From<&ShardManifest> for PartSize {
    fn from(part: &ShardManifest) -> Self {
        PartSize { owned: part.owned, halo: part.halo, edges: part.edges }
    }
}

impl From<&Shard> for PartSize {
    fn from(shard: &Shard) -> Self {
        let (owned, rows) = (shard.owned() as u64, shard.rows() as u64);
        PartSize { owned, halo: rows - owned, edges: shard.edges().indices.len() as u64 }
    }
}

/// Predicts the peak memory of training `config` in one process on all these parts of a graph, with all ranks of each. Blocks.
pub fn predict_parts(
    whole: &PartitionInfo,
    parts: &[PartSize],
    config: &Config,
) -> Result<Option<Prediction>> {
    if !is_counting() {
        return Ok(None);
    }
    let before = rss().unwrap_or(0);
    if config.train.strategy.samples() {
        return rank_batches::predict(whole, parts, config, (before, threads(&config.train)));
    }
    let shape = Shape::of_part(whole, config);
    let fixed = before + PROCESS + layout_bytes(&whole.dataset);
    if config.train.strategy.splits_model() {
        let halo = HaloBytes::of_row(whole, config);
        let stages: Vec<_> = parts.iter().map(|part| Stages::new(part, whole, &shape, config)).collect();
        let least = stages.iter().map(Stages::least_of_all).fold(Least::default(), Least::plus);
        return predict_with(&shape, config, least, Phase::Training, |runs| {
            fixed + stages.iter().map(|stages| stages.all_groups(runs, halo)).sum::<u64>()
        });
    }
    let least = Least::of_ranks(parts.len() as u64, &shape, config);
    predict_with(&shape, config, least, Phase::Training, |runs| {
        fixed + parts.iter().map(|part| part_bytes(runs, part, whole, &shape, config)).sum::<u64>()
    })
}

/// The ranks of this host.
#[derive(Debug, Clone, Copy)]
pub struct HostRanks<'a> {
    /// Their numbers, with that of this process.
    pub ranks: &'a [usize],
    /// Threads of each.
    pub threads: usize,
}

/// Predicts the peak memory of all ranks of this host, each a process, if they train `config`. This process has `shard`
/// already; the others are assumed to have parts of the same size. Blocks.
pub fn predict_host(shard: &Shard, config: &Config, host: HostRanks) -> Result<Option<Prediction>> {
    if !is_counting() {
        return Ok(None);
    }
    let free = available().unwrap_or(u64::MAX);
    predict_processes(shard, config, host, (rss().unwrap_or(0), free))
}

/// Predicts the peak memory of processes that have `before` bytes each, where `free` bytes are free. Blocks.
fn predict_processes(
    shard: &Shard,
    config: &Config,
    host: HostRanks,
    (before, free): (u64, u64),
) -> Result<Option<Prediction>> {
    let (whole, part, count) = (shard.partition(), PartSize::from(shard), host.ranks.len() as u64);
    if config.train.strategy.samples() {
        let one = rank_batches::predict(whole, &[part], config, (before, host.threads))?;
        return Ok(one.map(|one| one.times(count)));
    }
    let shape = Shape::of_part(whole, config);
    if config.train.strategy.splits_model() {
        let fixed = count * (before + PROCESS);
        let stages = Stages::new(&part, whole, &shape, config);
        let groups = || host.ranks.iter().map(|rank| rank / config.parts());
        let least = stages.least(groups());
        let halo = HaloBytes::of_row(whole, config);
        let peak =
            |runs: &DryRuns| fixed + groups().map(|group| stages.group(group, runs, halo)).sum::<u64>();
        // All processes make their dry runs at the same time.
        let each = free / count.max(1);
        return predict_within((free, each), &shape, config, least, Phase::Training, peak);
    }
    let least = Least::of_ranks(1, &shape, config);
    let peak = |runs: &DryRuns| before + PROCESS + part_bytes(runs, &part, whole, &shape, config);
    let one = predict_within((free, free), &shape, config, least, Phase::Training, peak)?;
    Ok(one.map(|one| one.times(count)))
}

/// Predicts by the lower bound if that is more than is free, otherwise by dry runs.
fn predict_with(
    shape: &Shape,
    config: &Config,
    least: Least,
    phase: Phase,
    peak: impl FnOnce(&DryRuns) -> u64,
) -> Result<Option<Prediction>> {
    let free = available().unwrap_or(u64::MAX);
    predict_within((free, free), shape, config, least, phase, peak)
}

/// The same where `free` bytes are free, and `for_dry_runs` for dry runs.
fn predict_within(
    (free, for_dry_runs): (u64, u64),
    shape: &Shape,
    config: &Config,
    least: Least,
    phase: Phase,
    peak: impl FnOnce(&DryRuns) -> u64,
) -> Result<Option<Prediction>> {
    let Least { weights, bytes: least } = least;
    let remedy = remedy(config.train.strategy);
    let bound = |bytes: u64| Prediction { bytes, weights, is_bound: true, remedy };
    if least > free {
        return Ok(Some(bound(least)));
    }
    let Some(nodes) = dry_run::nodes(shape, config, for_dry_runs) else {
        // Dry runs are of the whole model; ranks that have some of its stages may need less.
        return Ok(Some(bound(match config.train.strategy.splits_model() {
            true => least,
            false => bound::dry_run(shape, config, dry_run::FEWEST_NODES),
        })));
    };
    let runs = DryRuns::new(shape, config, nodes, phase)?;
    Ok(Some(Prediction { bytes: peak(&runs), weights, is_bound: false, remedy }))
}

/// Returns the bytes of an input row if sampled batches of a run on ranks may need more than `train.batch_memory`.
pub(crate) fn may_exceed_batch_memory(whole: &PartitionInfo, config: &Config) -> Option<usize> {
    let is_sampled = config.train.strategy.samples();
    is_sampled.then(|| rank_batches::may_exceed_memory(whole, config)).flatten()
}

/// Refuses a run that needs more memory than is free, unless forced.
pub fn admit(prediction: &Prediction, force: bool) -> Result<()> {
    let free = available().map(|bytes| bytes.saturating_add(rss().unwrap_or(0)));
    match free {
        Some(free) if prediction.bytes > free && !force => Err(refusal(prediction, free).into()),
        _ => Ok(()),
    }
}

/// Refuses a model whose weights alone exceed the free memory, even if a run is forced.
pub fn check_weights(dataset: &Manifest, config: &Config) -> Result<()> {
    setup::check_weights(dataset.features, dataset.classes, config)
}

fn refusal(prediction: &Prediction, free: u64) -> InputError {
    let &Prediction { bytes, weights, .. } = prediction;
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let about = if prediction.is_bound { "at least" } else { "about" };
    let problem = format!(
        "training needs {about} {} and {} are free: {} for weights, gradients and optimiser state, {} for activations \
         and data",
        mib(bytes),
        mib(free),
        mib(weights),
        mib(bytes.saturating_sub(weights)),
    );
    let help = format!(
        "choose a smaller model.hidden or model.layers, or {}; --force tries it anyway",
        prediction.remedy
    );
    InputError::out_of_memory("memory", problem).help(help)
}

/// Returns what needs less memory with the same model.
fn remedy(strategy: StrategyKind) -> &'static str {
    match strategy {
        StrategyKind::Single => "train on more hosts, or with train.strategy = minibatch",
        StrategyKind::Partition | StrategyKind::Pipelined => "train on more hosts",
        StrategyKind::Layers | StrategyKind::Hybrid => "train on more ranks of more hosts",
        StrategyKind::Minibatch | StrategyKind::Split => {
            "a smaller train.batch_size, train.fanout or train.batch_memory"
        }
    }
}

/// Bytes of an edge in a block.
const EDGE: u64 = 4;
/// Bytes of the weight of an edge, and of the sum of the weights of the edges into a row.
const EDGE_WEIGHT: u64 = 4;
const IN_WEIGHT: u64 = 16;
/// Bytes of small allocations of a process, and of a thread: its stack, and memory that a product packs its factors into.
const PROCESS: u64 = 4 << 20;
const THREAD: u64 = 1 << 20;
/// Bytes per node of a graph that is partitioned in memory: see `Layout`, and the assignment.
const FACTS: u64 = 29;
/// Bytes of a row of a part, and of an owned row besides: ids, degrees, places, row starts.
const ROW: u64 = 30;
const OWNED: u64 = 48;

/// Returns the bytes of so many edges and rows of blocks, besides what does not depend on weights.
fn graph_bytes(config: &Config, dataset: &Manifest, edges: u64, rows: u64) -> u64 {
    match config.is_weighted(dataset) {
        true => (EDGE + EDGE_WEIGHT) * edges + IN_WEIGHT * rows,
        false => EDGE * edges,
    }
}

/// Returns the bytes of the partition of a graph in memory.
fn layout_bytes(dataset: &Manifest) -> u64 {
    let sums = if dataset.has_edge_weights() { 3 * IN_WEIGHT } else { 0 };
    (FACTS + sums) * dataset.nodes
}

/// Returns the bytes of the structure of a part: rows, and `edges` in all copies.
fn structure_bytes(part: &PartSize, edges: u64, whole: &PartitionInfo, config: &Config) -> u64 {
    let &PartSize { owned, halo, .. } = part;
    // Sums of weights: of the part for each of its graphs, and of its blocks.
    let rows = 3 * (owned + halo) + owned + halo;
    ROW * (owned + halo) + OWNED * owned + graph_bytes(config, &whole.dataset, edges, rows)
}

/// Returns the peak bytes of a rank that trains a part of a graph.
fn part_bytes(runs: &DryRuns, part: &PartSize, whole: &PartitionInfo, shape: &Shape, config: &Config) -> u64 {
    let &PartSize { owned, halo, .. } = part;
    structure_bytes(part, part_edges(part, shape, config), whole, config)
        + runs.at(owned, HaloBytes::of_row(whole, config).times(halo))
        + threads(&config.train) as u64 * THREAD
}

/// Returns the edges of a part in all its copies: the part itself, its graphs, and the blocks of stages that compute fewer
/// rows.
fn part_edges(part: &PartSize, shape: &Shape, config: &Config) -> u64 {
    let copies = match config.data.inductive {
        true => shape.train + (shape.train + shape.val) + 1.0,
        false => 1.0 + shape.within[..shape.within.len() - 1].iter().sum::<f64>(),
    };
    ((1.0 + copies) * part.edges as f64) as u64
}

fn stage_messages(whole: &PartitionInfo, config: &Config) -> Vec<StageMessages> {
    let [inputs, outputs] = [whole.dataset.features, whole.dataset.classes].map(|n| n as usize);
    config.model.messages(inputs, outputs)
}

/// Bytes of memory for halo rows, in all stages.
#[derive(Clone, Copy, Default)]
struct HaloBytes {
    /// Kept from epoch to epoch.
    kept: u64,
    /// Allocated during a step.
    transient: u64,
    /// Allocated while a checkpoint is written: copies of what is kept, and again in the contents of the file.
    saving: u64,
}

impl HaloBytes {
    /// Returns the bytes of one halo row of each stage that reads edges, of a whole part.
    fn of_row(whole: &PartitionInfo, config: &Config) -> Self {
        // Attention needs halo rows until the backward; `pipelined` keeps versions of them instead.
        let is_kept = config.model.kind == Kind::Gat && config.train.strategy != StrategyKind::Pipelined;
        HaloBytes::of_stages(&stage_messages(whole, config), config, |_| is_kept)
    }

    /// Returns the bytes of one halo row of each stage whose rows `split` exchanges, in a batch.
    fn of_batch_row(whole: &PartitionInfo, config: &Config) -> Self {
        let mut messages = stage_messages(whole, config);
        messages.retain(|messages| messages.width > 0);
        let exchanged = messages.split_off(messages.len() - config.exchanged_hops());
        let (is_gat, encoding) = (config.model.kind == Kind::Gat, config.train.row_encoding);
        // To know which gradients are returned, of rows without zeros.
        let without_zeros =
            |messages: &StageMessages| messages.is_relu_output && encoding == RowEncoding::Nonzero;
        HaloBytes::of_stages(&exchanged, config, |messages| is_gat || without_zeros(messages))
    }

    /// Returns the bytes of one halo row of each of these stages. `is_kept`: whether a backward needs the halo rows.
    fn of_stages(
        messages: &[StageMessages],
        config: &Config,
        is_kept: impl Fn(&StageMessages) -> bool,
    ) -> Self {
        let number = number_bytes(config).into();
        let numbers = NumberBytes { features: number, activations: number };
        let rows = RowBytes::of_stages(messages, numbers);
        let recurring: u64 = rows.iter().map(|row| row.features + row.gradients).sum();
        let mut sizes: Vec<u64> =
            rows.iter().flat_map(|row| [row.setup, row.features.max(row.gradients)]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        // Messages of stages of the same width share memory. A message is in memory as it was sent and as it is read.
        let mut transient = 2 * sizes.iter().sum::<u64>();
        let kept_rows = rows.iter().zip(messages).filter(|(_, messages)| is_kept(messages));
        transient += kept_rows.map(|(row, _)| row.features).sum::<u64>();
        let kept = Schedule::of(&config.train).kept_versions() * recurring;
        // Messages that arrived are copied into matrices, and gradients of one stage at a time too.
        let features: u64 = rows.iter().map(|row| row.features).sum();
        let gradients = rows.iter().map(|row| row.gradients).max().unwrap_or(0);
        let saving = if kept > 0 { 2 * kept + features + gradients } else { 0 };
        HaloBytes { kept, transient, saving }
    }

    fn times(self, rows: u64) -> Self {
        let HaloBytes { kept, transient, saving } = self;
        HaloBytes { kept: rows * kept, transient: rows * transient, saving: rows * saving }
    }
}

#[cfg(test)]
mod tests {
    use halograph_graph::build::EdgeOptions;
    use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
    use halograph_graph::partition::{Assignment, Layout};

    use super::*;
    use crate::config::Smooth;

    fn ring(nodes: usize) -> Dataset {
        let edges: Vec<(u32, u32)> = (0..nodes as u32).map(|v| (v, (v + 1) % nodes as u32)).collect();
        let graph = GraphArrays::from_edges(nodes, &edges, EdgeOptions::default()).unwrap();
        let features = FeatureArray::f32(16, vec![0.0; nodes * 16]);
        let labels = Labels::Single((0..nodes as i64).map(|v| v % 3).collect());
        Dataset::from_arrays(DatasetArrays::new("ring", graph, features, labels, vec![1; nodes])).unwrap()
    }

    /// One rank per host, and all four on one.
    #[test]
    fn ranks_need_memory_for_their_own_stages() {
        let dataset = ring(64);
        let assignment = |parts: u32| Assignment::new(parts, (0..64).map(|v| v % parts).collect()).unwrap();
        for (strategy, stages, parts) in [(StrategyKind::Layers, 4, 1), (StrategyKind::Hybrid, 2, 2)] {
            let mut config = Config::new(Kind::Sage);
            (config.model.hidden, config.model.layers) = (256, 12);
            (config.train.strategy, config.train.ranks) = (strategy, 4);
            (config.train.threads, config.layers.stages) = (1, Some(stages));
            let assignment = assignment(parts);
            let shard = Layout::of(&dataset, &assignment).unwrap().cut(0).unwrap();
            let at = |ranks: &[usize], free: u64| {
                let host = HostRanks { ranks, threads: 1 };
                predict_processes(&shard, &config, host, (0, free)).unwrap().unwrap()
            };
            let shape = Shape::of_part(shard.partition(), &config);
            let whole = Least::of_ranks(1, &shape, &config).bytes;
            let groups = Stages::new(&PartSize::from(&shard), shard.partition(), &shape, &config);
            for rank in 0..4 {
                let least = groups.least([rank / parts as usize].into_iter()).bytes;
                assert!(least < whole * 11 / 16, "{strategy:?}, rank {rank}: {least} of {whole}");
                let refused = at(&[rank], least - 1);
                assert!(refused.is_bound && refused.bytes == least, "{refused:?}");
                // Dry runs of the whole model may need more: then the bound admits the run.
                let found = at(&[rank], least);
                assert!(stages == 2 || found.is_bound && found.bytes == least, "{found:?}");
                let free = whole * 7 / 8;
                let found = at(&[rank], free);
                assert!(
                    !found.is_bound && found.bytes <= free,
                    "{strategy:?}, rank {rank}: {found:?} of {free}"
                );
            }
            let all = at(&[0, 1, 2, 3], u64::MAX);
            let each: Vec<u64> = (0..4).map(|rank| at(&[rank], u64::MAX).bytes).collect();
            assert!(!all.is_bound);
            assert_eq!(all.bytes, each.iter().sum::<u64>());
            assert!(parts > 1 || each.iter().any(|&one| one != each[0]), "{each:?}");
        }
    }

    #[test]
    fn stale_rows_add_to_the_memory_of_steps_and_of_checkpoints() {
        let (dataset, assignment) = (ring(8), Assignment::new(2, vec![0, 0, 0, 0, 1, 1, 1, 1]).unwrap());
        let whole = Layout::of(&dataset, &assignment).unwrap().partition;
        let bytes = |strategy, smooth| {
            let mut config = Config::new(Kind::Sage);
            (config.model.hidden, config.model.layers) = (32, 2);
            (config.train.strategy, config.train.smooth) = (strategy, smooth);
            HaloBytes::of_row(&whole, &config)
        };
        let fresh = bytes(StrategyKind::Partition, Smooth::None);
        assert_eq!((fresh.kept, fresh.saving), (0, 0));
        // Features of 16 columns once; then 3 columns each way.
        assert_eq!(fresh.transient, 2 * (16 + 3) * 4);
        for (smooth, versions) in [(Smooth::None, 1), (Smooth::Gf, 2)] {
            let stale = bytes(StrategyKind::Pipelined, smooth);
            assert_eq!((stale.kept, stale.transient), (versions * 2 * 3 * 4, fresh.transient));
            assert_eq!(stale.saving, 2 * stale.kept + 2 * 3 * 4);
        }
    }
}
