//! Memory of strategies `minibatch` and `split` on ranks: a sampled batch, or the evaluation of a part.
//!
//! A rank cannot sample the parts of the others before the run starts, so the size of a batch is estimated: as if the drawn
//! neighbours were distributed evenly over all vertices. Real graphs have hubs, so that a batch has fewer distinct rows.

use halograph_graph::partition::PartitionInfo;
use halograph_graph::sample::Fanout;

use super::batches::{SAMPLE_ROW, SAMPLER_NODE, TRANSPOSE_ROW};
use super::bound::Least;
use super::dry_run::{self, DryRuns, Phase};
use super::shape::Shape;
use super::{
    HaloBytes, IN_WEIGHT, PROCESS, PartSize, Prediction, THREAD, bound, graph_bytes, layout_bytes,
    part_edges, predict_with, remedy, structure_bytes,
};
use crate::config::{Config, StrategyKind};
use crate::error::Result;
use crate::memory::available;
use crate::strategy::batches::ranks::{MOST_COMING, ROW_COPIES, SAMPLE_COPIES};

/// Bytes per vertex of the whole graph: places of fetched and of kept rows, and when rows are needed next.
const VERTEX: u64 = 10;
/// Bytes per training vertex: shuffled seeds of two epochs and of none.
const SEED: u64 = 12;
/// The same for weights in the loss.
const SEED_WEIGHT: u64 = 24;
/// Bytes of a halo row of a split sample: id, degree, and its place at the owner; and of a destination of a hop with a halo:
/// row starts and the number of a destination that reads it.
const HALO_ROW: u64 = 12;
const HALO_DESTINATION: u64 = 20;
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
    let shape = Shape::of_part(whole, config);
    let halo = parts.iter().map(|part| part.halo).max().unwrap_or(0);
    let batch = BatchEstimate::of(whole, &shape, config, halo);
    let facts = if parts.len() > 1 { layout_bytes(&whole.dataset) } else { 0 };
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
    let least = Least::of_ranks(parts.len() as u64, &batch.shape, &step);
    let mut predicted = predict_with(&batch.shape, &step, least, Phase::Training, |runs| {
        let halo = HaloBytes::of_batch_row(whole, config).times(batch.halo);
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
        4 * (owned + halo) + structure_bytes(part, part_edges(part, shape, config) + edges, whole, config);
    let inputs = whole.dataset.features as usize;
    let is_static = config.model.messages(inputs, whole.dataset.classes as usize)[0].is_static;
    let aggregate = if is_static { owned * shape.features as u64 * number } else { 0 };
    let weights = if config.train.class_weights.is_some() { SEED_WEIGHT } else { 0 };
    let seeds = (SEED + weights) * whole.training;
    structure + aggregate + VERTEX * nodes + seeds + batch.memory(part, whole, config)
}

/// Returns the bytes of an input row if batches of a run may need more than `train.batch_memory`: if batches that are as
/// large as estimated do. Then a batch should be sampled to find out.
pub(super) fn may_exceed_memory(whole: &PartitionInfo, config: &Config) -> Option<usize> {
    // The parts of other ranks are unknown here.
    let batch = BatchEstimate::of(whole, &Shape::of_part(whole, config), config, u64::MAX);
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
    /// Most rows that are exchanged in a hop (split).
    halo: u64,
    /// Batches of an epoch.
    batches: u64,
}

impl BatchEstimate {
    /// `most_halo`: halo rows of the part with most.
    fn of(whole: &PartitionInfo, part: &Shape, config: &Config, most_halo: u64) -> Self {
        let train = &config.train;
        let ExpectedSample { mut within, edges, mut halo } = ExpectedSample::of(whole, config);
        // What `split` reads of other ranks are halo rows of its part: often far fewer than of a random one.
        halo.iter_mut().for_each(|rows| *rows = rows.min(most_halo as f64));
        let (seeds, own) = (within[0], within[within.len() - 1]);
        // Fetched rows are rows of the batch, exchanged ones are not.
        let (rows, remote) = match train.strategy {
            StrategyKind::Split => {
                let fetched = halo.split_off(config.exchanged_hops()).into_iter().sum::<f64>();
                (own + fetched, fetched)
            }
            // Whole neighbourhoods of own seeds.
            _ if std::mem::take(&mut halo).is_empty() => (own, 0.0),
            _ => (own, own * remote_share(whole)),
        };
        *within.last_mut().expect("there are seeds") = rows;
        let boundary: u64 = halo.iter().zip(&within).map(boundary_bytes).sum();
        let number = bound::number_bytes(config).into();
        let aggregate = if train.cache_input_aggregate { part.features as u64 * number } else { 0 };
        let sum = if config.is_weighted(&whole.dataset) { IN_WEIGHT } else { 0 };
        let row_bytes = part.sent_feature_bytes(number) + aggregate + sum;
        let edge_bytes = graph_bytes(config, &whole.dataset, edges as u64, rows as u64);
        let hops = within.len() as u64 - 1;
        BatchEstimate {
            sample: edge_bytes + (SAMPLE_ROW + 4 * (hops + 1)) * rows as u64 + boundary,
            rows: remote as u64 * row_bytes,
            transposes: edge_bytes + TRANSPOSE_ROW * hops * rows as u64,
            row_bytes,
            halo: halo.iter().copied().fold(0.0, f64::max) as u64,
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
        let fetchable = match config.train.strategy {
            StrategyKind::Split => part.halo,
            _ => whole.dataset.nodes - part.owned,
        };
        // Rows are kept, and batches sampled ahead for that, only if rows are fetched.
        let (remote, coming) = match self.rows {
            0 => (0, 0),
            _ => (fetchable.saturating_mul(self.row_bytes), MOST_COMING),
        };
        let together = config.train.macrobatch.unwrap_or(u64::MAX).min(self.batches);
        let rows = together.saturating_mul(self.rows).min(remote);
        let samples = together.saturating_mul(self.sample);
        let all = remote + ROW_COPIES * rows + (SAMPLE_COPIES + coming).saturating_mul(samples);
        config.train.batch_memory.min(all)
    }
}

/// What one rank is expected to sample for a batch.
struct ExpectedSample {
    /// Seeds, and rows after each hop. Of `split`, those that the rank owns.
    within: Vec<f64>,
    edges: f64,
    /// Distinct rows that each hop reads of other ranks, if these own the rest of the batch.
    halo: Vec<f64>,
}

impl ExpectedSample {
    fn of(whole: &PartitionInfo, config: &Config) -> Self {
        let (train, m) = (&config.train, &whole.dataset);
        let nodes = if config.data.inductive { whole.training } else { m.nodes }.max(1) as f64;
        let degree = m.edges as f64 / m.nodes.max(1) as f64;
        let parts = f64::from(whole.parts.max(1));
        // A rank samples for its seeds or, if batches are split, its share of what is sampled for all of them.
        let is_split = train.strategy == StrategyKind::Split;
        let (owners, imbalance) = if is_split { (parts, IMBALANCE) } else { (1.0, 1.0) };
        let seeds = (train.batch_size.min(whole.training) as f64 / parts * IMBALANCE).ceil().max(1.0);
        let mut sample = ExpectedSample { within: vec![seeds], edges: 0.0, halo: Vec::new() };
        let mut rows = seeds * owners;
        // Each draw is new unless its vertex is in the batch: the expectation of distinct vertices.
        let share_drawn = |draws: f64| 1.0 - (-draws / nodes).exp();
        for fanout in config.sampled_fanouts() {
            let drawn = match fanout {
                Fanout::All => degree,
                Fanout::AtMost(most) => degree.min(most.into()),
            };
            let drawn = rows * drawn;
            rows += (nodes - rows).max(0.0) * share_drawn(drawn);
            sample.edges += drawn / owners * imbalance;
            sample.within.push((rows / owners * imbalance).min(rows));
            sample.halo.push(nodes * remote_share(whole) * share_drawn(drawn / owners));
        }
        sample
    }
}

/// Returns the share of vertices that another rank owns.
fn remote_share(whole: &PartitionInfo) -> f64 {
    1.0 - 1.0 / f64::from(whole.parts.max(1))
}

/// Returns the bytes of a hop of a split sample besides its edges. `halo`: its rows of other ranks.
fn boundary_bytes((halo, destinations): (&f64, &f64)) -> u64 {
    HALO_ROW * *halo as u64 + HALO_DESTINATION * *destinations as u64
}

#[cfg(test)]
mod tests {
    use halograph_graph::Dataset;
    use halograph_graph::build::EdgeOptions;
    use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
    use halograph_graph::partition::{Assignment, Layout};
    use halograph_kernels::keyed::Key;
    use halograph_nn::model::{Kind, Spec};

    use super::*;
    use crate::config::RowEncoding;

    const NODES: usize = 1000;
    const FEATURES: usize = 40;
    const CLASSES: usize = 3;
    const PARTS: u32 = 4;

    /// A random graph with about ten neighbours per vertex, in random parts.
    fn parts() -> PartitionInfo {
        let key = Key::new(1, "edges");
        let end = |i: usize| key.below(i as u64, NODES as u64) as u32;
        let edges: Vec<(u32, u32)> = (0..5 * NODES).map(|i| (end(2 * i), end(2 * i + 1))).collect();
        let graph = GraphArrays::from_edges(NODES, &edges, EdgeOptions::default()).unwrap();
        let features = FeatureArray::f32(FEATURES, vec![0.0; NODES * FEATURES]);
        let labels = Labels::Single((0..NODES as i64).map(|v| v % CLASSES as i64).collect());
        let data = DatasetArrays::new("test", graph, features, labels, vec![1; NODES]);
        let assignment = Assignment::new(PARTS, (0..NODES as u32).map(|v| v % PARTS).collect()).unwrap();
        Layout::of(&Dataset::from_arrays(data).unwrap(), &assignment).unwrap().partition
    }

    fn split(kind: Kind, fanout: &[i64]) -> Config {
        let mut config = Config::new(kind);
        config.model = Spec { layers: fanout.len(), hidden: 16, ..Spec::new(kind) };
        (config.train.strategy, config.train.ranks) = (StrategyKind::Split, PARTS as usize);
        (config.train.batch_size, config.train.fanout) = (40, fanout.to_vec());
        config
    }

    fn estimate_with(config: &Config, most_halo: u64) -> BatchEstimate {
        let whole = parts();
        BatchEstimate::of(&whole, &Shape::of_part(&whole, config), config, most_halo)
    }

    fn estimate(config: &Config) -> BatchEstimate {
        estimate_with(config, u64::MAX)
    }

    #[test]
    fn rows_of_a_deepest_hop_that_reads_inputs_are_fetched_and_not_exchanged() {
        let (one, two) = (estimate(&split(Kind::Sage, &[3])), estimate(&split(Kind::Sage, &[3, 3])));
        assert_eq!(one.halo, 0);
        assert!(one.rows > 0 && one.rows.is_multiple_of(4 * FEATURES as u64), "{}", one.rows);
        // What one layer fetches, two layers exchange.
        assert_eq!(two.halo, one.rows / (4 * FEATURES as u64));
        assert!(two.rows > one.rows);
        let mut cached = split(Kind::Sage, &[3, 3]);
        cached.train.cache_input_aggregate = true;
        let cached = estimate(&cached);
        assert_eq!((cached.halo, cached.rows), (two.halo, 0), "nothing is fetched");
        assert!(cached.shape.nodes < two.shape.nodes && cached.sample < two.sample);
        // Rows of all hops are hidden rows.
        let hidden = estimate(&split(Kind::Gcnii, &[3, 3]));
        assert!(hidden.rows == 0 && hidden.halo > two.halo, "{} and {}", hidden.halo, two.halo);
    }

    #[test]
    fn a_rank_of_a_split_batch_reads_no_more_rows_than_the_halo_of_its_part() {
        let config = split(Kind::Sage, &[3, 3]);
        let found = estimate_with(&config, 7);
        assert_eq!((found.halo, found.rows), (7, 7 * 4 * FEATURES as u64));
        assert!(found.sample < estimate(&config).sample && found.shape.nodes < estimate(&config).shape.nodes);
        // Whole neighbourhoods have rows beyond the halo.
        let mut config = config;
        config.train.strategy = StrategyKind::Minibatch;
        assert_eq!(estimate_with(&config, 7).rows, estimate(&config).rows);
    }

    #[test]
    fn data_parallel_batches_fetch_their_remote_inputs() {
        let mut config = split(Kind::Sage, &[3]);
        config.train.strategy = StrategyKind::Minibatch;
        let found = estimate(&config);
        assert!(found.halo == 0 && found.rows > 0);
        config.train.cache_input_aggregate = true;
        assert_eq!(estimate(&config).rows, 0, "the seeds are all rows");
    }

    #[test]
    fn halo_rows_of_a_split_batch_are_those_of_exchanged_stages() {
        let whole = parts();
        let bytes = |config: &Config| {
            let HaloBytes { kept, transient, saving } = HaloBytes::of_batch_row(&whole, config);
            assert_eq!((kept, saving), (0, 0));
            transient
        };
        let mut config = split(Kind::Sage, &[3, 3, 3]);
        // Rows of 16 numbers and of 3, as they are sent and as they are read; the former are kept until the backward.
        assert_eq!(bytes(&config), 4 * (2 * (16 + 3) + 16));
        config.train.row_encoding = RowEncoding::Dense;
        assert_eq!(bytes(&config), 4 * 2 * (16 + 3));
        assert_eq!(bytes(&split(Kind::Sage, &[3])), 0);
        // Rows before the ReLU of the first stage are not sent.
        assert_eq!(bytes(&split(Kind::Gcnii, &[3, 3])), 4 * (2 * 16 + 2 * 16));
    }
}
