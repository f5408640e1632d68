//! Memory of strategies `minibatch` and `split` on ranks: a sampled batch, or the evaluation of a part.
//!
//! A rank cannot sample the parts of the others before the run starts, so the size of a batch is estimated: as if the drawn
//! neighbours were distributed evenly over all vertices. Real graphs have hubs, so that a batch has fewer distinct rows.

use halograph_graph::partition::PartitionInfo;
use halograph_graph::sample::Fanout;

use super::batches::{SAMPLE_ROW, SAMPLER_NODE, TRANSPOSE_ROW};
use super::dry_run::{self, DryRuns, Phase};
use super::shape::Shape;
use super::{
    EDGE, FACTS, HaloBytes, OWNED, PROCESS, PartSize, Prediction, ROW, THREAD, bound, part_edges,
    predict_with, remedy,
};
use crate::config::{Config, StrategyKind};
use crate::error::Result;
use crate::memory::available;
use crate::strategy::batches::ranks::{MOST_COMING, ROW_COPIES, SAMPLE_COPIES};

/// Bytes per vertex of the whole graph: places of fetched and of kept rows, and when rows are needed next.
const VERTEX: u64 = 10;
/// Bytes per training vertex: shuffled seeds of two epochs and of none.
const SEED: u64 = 12;
/// Seeds of the rank with most of them, relative to the mean.
const IMBALANCE: f64 = 1.1;

/// Predicts the peak memory of a process that has `before` bytes now and trains these parts, one rank each, with `threads`
/// threads. Blocks.
pub(super) fn predict(
    whole: &PartitionInfo,
    parts: &[PartSize],
    config: &Config,
    (before, threads): (u64, usize),
) -> Result<Option<Prediction>> {
    let shape = Shape::of_part(whole, config.model.hops());
    let batch = BatchEstimate::of(whole, &shape, config);
    let facts = if parts.len() > 1 { FACTS * whole.dataset.nodes } else { 0 };
    let fixed: u64 = parts.iter().map(|part| fixed_bytes(part, whole, &shape, &batch, config)).sum();
    // Sampling threads, and as many that compute.
    let node_bytes = (SAMPLER_NODE * whole.dataset.nodes as f64) as u64;
    let threads = (parts.len() * threads) as u64 * (node_bytes + 2 * THREAD);
    let fixed = before + PROCESS + facts + fixed + threads;
    let number = bound::number_bytes(config).into();
    let features: u64 = parts.iter().map(|part| part.owned * shape.feature_bytes(number)).sum();
    let mut step = config.clone();
    (step.train.strategy, step.data.inductive) = (StrategyKind::Single, false);
    step.train.fanout = Vec::new();
    let mut predicted = predict_with(&batch.shape, &step, parts.len() as u64, Phase::Training, |runs| {
        let halo = HaloBytes::of_row(whole, config).times(batch.halo);
        let one = runs.at(batch.shape.nodes, halo) + batch.transposes;
        fixed + features + parts.len() as u64 * one
    })?;
    let free = available().unwrap_or(u64::MAX);
    if let Some(found) = predicted.as_mut().filter(|found| !found.is_bound) {
        let halo = HaloBytes::of_row(whole, config);
        let evaluation = match dry_run::nodes(&shape, config, free) {
            Some(nodes) => {
                let runs = DryRuns::new(&shape, config, nodes, Phase::Evaluation)?;
                parts.iter().map(|part| runs.at(part.owned, halo.times(part.halo))).sum()
            }
            None => parts.len() as u64 * bound::dry_run(&shape, config, dry_run::FEWEST_NODES),
        };
        found.bytes = found.bytes.max(fixed + evaluation);
    }
    predicted.iter_mut().for_each(|found| found.remedy = remedy(config.train.strategy));
    Ok(predicted)
}

/// Returns the bytes of a rank that do not depend on what it computes: its part, samples, fetched rows and seeds.
fn fixed_bytes(
    part: &PartSize,
    whole: &PartitionInfo,
    shape: &Shape,
    batch: &BatchEstimate,
    config: &Config,
) -> u64 {
    let &PartSize { owned, halo, edges } = part;
    let (nodes, number) = (whole.dataset.nodes, u64::from(bound::number_bytes(config)));
    // Neighbours by dataset id are a copy.
    let structure =
        (ROW + 4) * (owned + halo) + OWNED * owned + EDGE * (part_edges(part, shape, config) + edges);
    let inputs = whole.dataset.features as usize;
    let is_static = config.model.messages(inputs, whole.dataset.classes as usize)[0].is_static;
    let aggregate = if is_static { owned * shape.features as u64 * number } else { 0 };
    let seeds = SEED * whole.training;
    structure + aggregate + VERTEX * nodes + seeds + batch.memory(part, whole, config)
}

/// Returns the bytes of an input row if batches of a run may need more than `train.batch_memory`: if batches that are as
/// large as estimated do. Then a batch should be sampled to find out.
pub(super) fn may_exceed_memory(whole: &PartitionInfo, config: &Config) -> Option<usize> {
    let batch = BatchEstimate::of(whole, &Shape::of_part(whole, config.model.hops()), config);
    // Vectors have room for up to twice as many entries.
    let one = SAMPLE_COPIES * 2 * batch.sample + ROW_COPIES * batch.rows;
    let together = config.train.macrobatch.unwrap_or(1).min(batch.batches);
    (together.saturating_mul(one) > config.train.batch_memory).then_some(batch.row_bytes as usize)
}

/// A batch of one rank, as a graph of its own.
struct BatchEstimate {
    shape: Shape,
    /// Bytes of the sample, of its remote rows, and of the transposes of its blocks.
    sample: u64,
    rows: u64,
    transposes: u64,
    row_bytes: u64,
    /// Most rows that a stage reads of other ranks (split).
    halo: u64,
    /// Batches of an epoch.
    batches: u64,
}

impl BatchEstimate {
    fn of(whole: &PartitionInfo, part: &Shape, config: &Config) -> Self {
        let (train, m) = (&config.train, &whole.dataset);
        let nodes = if config.data.inductive { whole.training } else { m.nodes }.max(1) as f64;
        let degree = m.edges as f64 / m.nodes.max(1) as f64;
        let parts = f64::from(whole.parts.max(1));
        let remote_share = 1.0 - 1.0 / parts;
        // A rank samples for its seeds or, if batches are split, its share of what is sampled for all of them.
        let is_split = train.strategy == StrategyKind::Split;
        let (owners, imbalance) = if is_split { (parts, IMBALANCE) } else { (1.0, 1.0) };
        let seeds = (train.batch_size.min(whole.training) as f64 / parts * IMBALANCE).ceil().max(1.0);
        let (mut rows, mut edges, mut within) = (seeds * owners, 0.0, vec![seeds]);
        let mut halo = 0.0f64;
        for fanout in config.sampled_fanouts() {
            let drawn = match fanout {
                Fanout::All => degree,
                Fanout::AtMost(most) => degree.min(most.into()),
            };
            let drawn = rows * drawn;
            edges += drawn;
            // Each draw is new unless its vertex is in the batch: the expectation of distinct vertices.
            rows += (nodes - rows).max(0.0) * (1.0 - (-drawn / nodes).exp());
            within.push((rows / owners * imbalance).min(rows));
            halo = halo.max(nodes * remote_share * (1.0 - (-drawn / owners / nodes).exp()));
        }
        let (edges, own) = (edges / owners * imbalance, *within.last().expect("there are seeds"));
        // Input rows of other ranks are rows of the batch.
        let (rows, remote) = if is_split { (own + halo, halo) } else { (own, own * remote_share) };
        let halo = if is_split { halo as u64 } else { 0 };
        let number = bound::number_bytes(config).into();
        let aggregate = if train.cache_input_aggregate { part.features as u64 * number } else { 0 };
        let row_bytes = part.feature_bytes(number) + aggregate;
        let hops = within.len() as u64 - 1;
        let edge_bytes = EDGE * edges as u64;
        BatchEstimate {
            sample: edge_bytes + (SAMPLE_ROW + 4 * (hops + 1)) * rows as u64,
            rows: remote as u64 * row_bytes,
            transposes: edge_bytes + TRANSPOSE_ROW * hops * rows as u64,
            row_bytes,
            halo,
            batches: whole.training.div_ceil(train.batch_size.max(1)),
            shape: Shape {
                nodes: rows as u64,
                train: seeds / rows,
                val: 0.0,
                within: within.iter().map(|count| count / rows).collect(),
                ..*part
            },
        }
    }

    /// Returns the bytes of the rows and samples of macrobatches and of kept rows: at most the configured memory.
    fn memory(&self, part: &PartSize, whole: &PartitionInfo, config: &Config) -> u64 {
        let remote = (whole.dataset.nodes - part.owned).saturating_mul(self.row_bytes);
        let together = config.train.macrobatch.unwrap_or(u64::MAX).min(self.batches);
        let rows = together.saturating_mul(self.rows).min(remote);
        let samples = together.saturating_mul(self.sample);
        let all = remote + ROW_COPIES * rows + (SAMPLE_COPIES + MOST_COMING).saturating_mul(samples);
        config.train.batch_memory.min(all)
    }
}
