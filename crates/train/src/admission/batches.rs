//! Memory of strategy `minibatch`: a sampled batch, or the evaluation of the whole graph.
//!
//! Batches of a run have about the same size, so the first one is sampled. To a model, its rows are a graph whose training
//! nodes are the seeds: the dry runs of a graph of that shape give the memory of a step.

use halograph_graph::Dataset;
use halograph_graph::block::Block;
use halograph_graph::dataset::Subset;
use halograph_graph::sample::{Neighbors, Sample, SampleSpec, Sampler};
use halograph_kernels::keyed::Key;

use super::bound::{self, Least};
use super::dry_run::{self, DryRuns, Phase};
use super::shape::Shape;
use super::{EDGE, HaloBytes, PROCESS, Prediction, THREAD, predict_with, remedy};
use crate::config::{Config, StrategyKind};
use crate::error::Result;
use crate::memory::available;
use crate::pool::threads;

/// Bytes per node of a sampler: positions, variates (LABOR) and two sets.
pub(super) const SAMPLER_NODE: f64 = 8.25;
/// Bytes per row of a sample: row, id, degree, row start.
pub(super) const SAMPLE_ROW: u64 = 20;
/// Bytes per row of a transpose: row start and place, per hop.
pub(super) const TRANSPOSE_ROW: u64 = 16;

/// Predicts the peak memory of a process that has `before` bytes now. Samples one batch; blocks.
pub(super) fn predict(
    dataset: &Dataset,
    whole: &Shape,
    config: &Config,
    before: u64,
) -> Result<Option<Prediction>> {
    let batch = BatchShape::of(dataset, whole, config);
    let mut step = config.clone();
    (step.train.strategy, step.data.inductive) = (StrategyKind::Single, false);
    step.train.fanout = Vec::new();
    let number: u64 = bound::number_bytes(config).into();
    let seen = if config.data.inductive { whole.nodes_within(0) } else { whole.nodes };
    let features = seen * whole.feature_bytes(number);
    let aggregate = match config.train.cache_input_aggregate {
        true => seen * whole.features as u64 * number,
        false => 0,
    };
    // Neighbours by dataset id are a copy if nodes are stored in another order.
    let edges =
        EDGE * (whole.stored_edges + if dataset.order()?.is_some() { dataset.manifest.edges } else { 0 });
    let threads = threads(&config.train) as u64;
    let sampler = (SAMPLER_NODE * seen as f64) as u64;
    // Batches ahead and the current one, with its transposes.
    let sampling = (threads + 1) * sampler + (threads + 2) * batch.bytes + batch.transposes;
    let fixed = before + PROCESS + threads * THREAD + edges + sampling + aggregate;
    let least = Least::of_ranks(1, &batch.shape, &step);
    let mut predicted = predict_with(&batch.shape, &step, least, Phase::Training, |runs| {
        fixed + features + runs.at(batch.shape.nodes, HaloBytes::default())
    })?;
    let free = available().unwrap_or(u64::MAX);
    if let Some(found) = predicted.as_mut().filter(|found| !found.is_bound) {
        let evaluation = match dry_run::nodes(whole, config, free) {
            Some(nodes) => {
                DryRuns::new(whole, config, nodes, Phase::Evaluation)?.at(whole.nodes, HaloBytes::default())
            }
            None => bound::dry_run(whole, config, dry_run::FEWEST_NODES),
        };
        found.bytes = found.bytes.max(fixed + evaluation);
    }
    predicted.iter_mut().for_each(|found| found.remedy = remedy(config.train.strategy));
    Ok(predicted)
}

/// A batch, as a graph of its own.
struct BatchShape {
    shape: Shape,
    /// Bytes of the sample, and of the transposes of its blocks.
    bytes: u64,
    transposes: u64,
}

impl BatchShape {
    /// Samples a random batch.
    fn of(dataset: &Dataset, whole: &Shape, config: &Config) -> Self {
        let split = dataset.split();
        let training = (0..).zip(split).filter(|(_, subset)| **subset == Subset::Train as u8).map(|(v, _)| v);
        let mut training: Vec<u32> = training.collect();
        // Rows of an inductive run are training nodes.
        let block = match config.data.inductive {
            true => Block::induced(dataset.graph(), &training),
            false => Block::whole(dataset.graph()),
        };
        if config.data.inductive {
            training = (0..training.len() as u32).collect();
        }
        // The least hashes: a random batch.
        let key = Key::new(config.train.seed, "dry run");
        training.sort_unstable_by_key(|&v| key.at(v as u64));
        training.truncate(usize::try_from(config.train.batch_size).unwrap_or(usize::MAX));
        let spec = SampleSpec { kind: config.train.sampler, fanouts: config.sampled_fanouts() };
        let mut sample = Sample::default();
        Sampler::new(&Neighbors::of(&block), &spec).sample(key, &training, &mut sample);
        let rows = sample.rows().len().max(1);
        let share = |count: usize| count as f64 / rows as f64;
        let sources = (0..sample.hops()).map(|hop| share(sample.block(hop).sources()));
        let shape = Shape {
            nodes: rows as u64,
            train: share(training.len()),
            val: 0.0,
            within: [share(training.len())].into_iter().chain(sources).collect(),
            ..*whole
        };
        let edges = EDGE * sample.edges() as u64;
        let transposes = edges + TRANSPOSE_ROW * (sample.hops() * rows) as u64;
        BatchShape { shape, bytes: edges + SAMPLE_ROW * rows as u64, transposes }
    }
}
