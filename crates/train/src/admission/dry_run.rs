//! Short runs on small graphs, whose buffers are recorded and extrapolated.

use half::f16;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{Dataset, DatasetArrays, FeatureArray, GraphArrays, Labels, Subset, Task};
use halograph_graph::error::Result as InputResult;
use halograph_kernels::Real;
use halograph_kernels::buffer::trace::{self, Trace};
use halograph_nn::Model;

use super::HaloBytes;
use super::bound::{self, WeightBytes, partial_sum_bytes};
use super::shape::{Shape, stored_edges};
use crate::config::{Config, Precision, TrainConfig};
use crate::data::{Data, Scaling};
use crate::error::Result;
use crate::evaluation::{self, Detail, Keep};
use crate::memory::allocated_by_thread;
use crate::pool::in_pool;
use crate::requests::Requests;
use crate::setup::new_optimizer;
use crate::strategy::Strategy;
use crate::strategy::single::Single;
use crate::trainer::Learner;

/// Most nodes of the smaller dry run, and most numbers in its widest matrix.
const MOST_NODES: u64 = 512;
const MOST_NUMBERS: u64 = 1 << 18;
/// Fewest nodes of the smaller dry run.
pub(super) const FEWEST_NODES: u64 = 8;

/// Bytes of an edge in a block.
const EDGE: u64 = size_of::<u32>() as u64;
/// Bytes of a row that a copy of the whole graph takes besides its edges: row start and id.
const COPIED_ROW: u64 = 12;

/// What a dry run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Full-graph epochs, each with an evaluation.
    Training,
    /// Evaluations alone, which keep nothing.
    Evaluation,
}

/// Memory of training by the number of nodes.
pub(super) struct DryRuns {
    /// Nodes of the smaller dry run; the other had twice as many.
    few: u64,
    one: Recorded,
    two: Recorded,
    weights: WeightBytes,
    weight_sizes: Vec<usize>,
    number: u64,
    /// Bytes of the copies that an inductive run makes of a large graph, and a dry run does not.
    copied_row: u64,
}

/// What a dry run allocated.
struct Recorded {
    trace: Trace,
    /// Buffers that live as long as the run.
    buffers: u64,
    /// All other memory that lives as long as the run, without edges.
    other: u64,
    weight_sizes: Vec<usize>,
}

/// Returns the number of nodes of the smaller dry run; `None` if even the smallest takes more memory than `free`.
pub(super) fn nodes(shape: &Shape, config: &Config, free: u64) -> Option<u64> {
    let most = MOST_NODES.min(MOST_NUMBERS / bound::widest(shape, &config.model)).min(shape.nodes / 2);
    let mut nodes = most.max(FEWEST_NODES);
    while bound::dry_run(shape, config, 2 * nodes) > free {
        if nodes == FEWEST_NODES {
            return None;
        }
        nodes = (nodes / 2).max(FEWEST_NODES);
    }
    Some(nodes)
}

impl DryRuns {
    /// Trains two small graphs, of `few` and of twice as many nodes. Blocks.
    pub fn new(shape: &Shape, config: &Config, few: u64, phase: Phase) -> Result<Self> {
        // One thread: only then is the order of allocations the same in every run.
        in_pool(1, || match config.train.precision {
            Precision::F32 => DryRuns::measured::<f32>(shape, config, few, phase),
            Precision::F64 => DryRuns::measured::<f64>(shape, config, few, phase),
        })
    }

    fn measured<T: Real>(shape: &Shape, config: &Config, few: u64, phase: Phase) -> Result<Self> {
        // The first time fills buffers that the thread keeps.
        let run = |nodes: u64| dry_run::<T>(shape, config, nodes, phase);
        run(2 * few)?;
        let (one, two) = (run(few)?, run(2 * few)?);
        let weight_sizes = two.weight_sizes.clone();
        let weights = WeightBytes::of(shape, config);
        let copied_row = if config.data.inductive { COPIED_ROW } else { 0 };
        Ok(DryRuns { few, one, two, weights, weight_sizes, number: size_of::<T>() as u64, copied_row })
    }

    /// Returns the peak bytes of training `nodes` nodes and this memory of halo rows, without edges.
    pub fn at(&self, nodes: u64, halo: HaloBytes) -> u64 {
        let linear = |one: u64, two: u64| {
            let slope = (two as f64 - one as f64) / self.few as f64;
            (one as f64 + slope * (nodes as f64 - self.few as f64)).max(0.0) as u64
        };
        let other = linear(self.one.other, self.two.other) + self.copied_row * nodes + halo.kept;
        let trace = self.one.trace.extrapolate(&self.two.trace, self.few, nodes);
        let partial = partial_sum_bytes(nodes, self.weight_sizes.iter().copied(), self.number);
        let steps = trace.peak_bytes() + partial + halo.transient;
        let saving = linear(self.one.buffers, self.two.buffers) + self.weights.saving() + halo.saving;
        other + steps.max(saving)
    }
}

/// Trains two epochs on a small graph of the same shape, and evaluates after each; or only evaluates.
fn dry_run<T: Real>(shape: &Shape, config: &Config, nodes: u64, phase: Phase) -> Result<Recorded> {
    let dataset = small_graph(shape, nodes as usize)?;
    let inductive = config.data.inductive;
    let before = allocated_by_thread();
    let (trace, measured) = trace::record(|| -> Result<_> {
        let model = Model::<T>::new(&config.model, shape.features, shape.classes, config.train.seed);
        let optimizer = new_optimizer(&config.train, &model)?;
        let scaling = Scaling::fit(&dataset, config.data.normalize)?;
        let data = Data::<T>::load(&dataset, config.graphs(), scaling, Some(model.hops()))?;
        let weight_sizes = model.params().filter(|p| p.shape.len() == 2).map(|p| p.value.len()).collect();
        let mut learner = Learner { model, optimizer };
        let mut best = learner.model.state();
        if phase == Phase::Evaluation {
            evaluation::scores(&learner.model, &data, Keep::Nothing, Detail::Scores)?;
        } else {
            let mut strategy = Single::new(&learner.model, &data)?;
            // Weights stay finite, whatever the learning rate of the run is.
            let train = TrainConfig { lr: 0.0, ..config.train.clone() };
            for epoch in 1..=2 {
                learner.step(&mut strategy, &train, (epoch, 0), &Requests::default)?;
                strategy.evaluate(&learner.model, epoch, Detail::Scores)?;
                best = learner.model.state();
            }
        }
        let live = (allocated_by_thread() - before).max(0) as u64;
        drop(best);
        Ok((live, trace::live_bytes(), weight_sizes))
    });
    let (live, buffers, weight_sizes) = measured?;
    let edges = EDGE * stored_edges(&dataset, inductive, false);
    Ok(Recorded { trace, buffers, other: live.saturating_sub(buffers + edges), weight_sizes })
}

/// Makes a graph of `nodes` nodes with zeros as features. As many of them as `shape` says are near training nodes, so that
/// layers compute as many rows. It has few edges: no buffer depends on their number.
fn small_graph(shape: &Shape, nodes: usize) -> InputResult<Dataset> {
    let count = |share: f64| ((share * nodes as f64).round() as usize).clamp(1, nodes);
    let train = count(shape.train);
    let val = count(shape.train + shape.val).max(train);
    let part = |v: usize| match v {
        v if v < train => Subset::Train,
        v if v < val => Subset::Val,
        _ => Subset::Test,
    };
    let split = (0..nodes).map(|v| part(v) as u8).collect();
    let edges = edges_by_level(&levels(shape, train, nodes));
    let options = EdgeOptions { directed: shape.is_directed, ..EdgeOptions::default() };
    let graph = GraphArrays::from_edges(nodes, &edges, options)?;
    let features = small_features(shape, nodes);
    let labels = match shape.task {
        Task::SingleLabel => Labels::Single(vec![0; nodes]),
        Task::MultiLabel => Labels::Multi { classes: shape.classes, flags: vec![0; nodes * shape.classes] },
    };
    let mut arrays = DatasetArrays::new("dry run", graph, features, labels, split);
    arrays.classes = Some(shape.classes);
    Dataset::from_arrays(arrays)
}

/// Returns features of `nodes` nodes, all of them 0. Sparse ones have as many stored values per node as `shape` says.
fn small_features(shape: &Shape, nodes: usize) -> FeatureArray {
    let (columns, numbers) = (shape.features, nodes * shape.features);
    match shape.stored_values {
        Some(values) => {
            let start = |v: usize| (v as f64 * values.min(columns as f64)) as u64;
            let starts: Vec<u64> = (0..=nodes).map(start).collect();
            let indices: Vec<u32> = starts.windows(2).flat_map(|row| 0..(row[1] - row[0]) as u32).collect();
            let zeros = vec![0.0; indices.len()];
            FeatureArray::sparse_f32(columns, starts, indices, zeros)
        }
        None if shape.is_half => FeatureArray::f16(columns, vec![f16::ZERO; numbers]),
        None => FeatureArray::f32(columns, vec![0.0; numbers]),
    }
}

/// Returns the first node of each distance from training nodes, and the end of those that a model reads.
fn levels(shape: &Shape, train: usize, nodes: usize) -> Vec<usize> {
    let mut starts = vec![0, train];
    for share in shape.within.iter().skip(1) {
        let end = ((share * nodes as f64).round() as usize).clamp(starts[starts.len() - 1], nodes);
        starts.push(end);
    }
    starts.dedup();
    starts
}

/// Returns edges (source, destination): nodes of each level but the first are read by the level before. Other nodes have no
/// edges.
fn edges_by_level(starts: &[usize]) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    for level in starts.windows(3) {
        let &[above, first, end] = level else { unreachable!("windows of three") };
        edges.extend((first..end).map(|v| (v as u32, (above + (v - first) % (first - above)) as u32)));
    }
    edges
}

#[cfg(test)]
mod tests {
    use halograph_graph::order::nested;
    use halograph_nn::model::{Kind, Spec};

    use super::*;

    fn shape(within: &[f64], is_directed: bool) -> Shape {
        Shape {
            nodes: 1500,
            features: 48,
            classes: 5,
            task: Task::SingleLabel,
            train: within[0],
            val: 0.125,
            within: within.to_vec(),
            stored_edges: 0,
            is_half: false,
            stored_values: None,
            is_directed,
        }
    }

    fn config(kind: Kind, inductive: bool) -> Config {
        let mut config = Config::new(kind);
        config.model = Spec { hidden: 32, heads: 2, ..config.model };
        config.data.inductive = inductive;
        config
    }

    #[test]
    fn a_small_graph_has_as_many_rows_at_each_distance() {
        for within in [vec![0.25, 0.5, 0.75], vec![0.125, 0.5, 0.5], vec![0.25, 1.0, 1.0]] {
            for is_directed in [false, true] {
                let dataset = small_graph(&shape(&within, is_directed), 64).unwrap();
                let training: Vec<u32> = (0..(64.0 * within[0]) as u32).collect();
                let found = nested(dataset.graph(), None, &training, 2);
                let counts = [found.sizes[1], found.sizes[0], found.inputs];
                let expected: Vec<usize> = within.iter().map(|share| (share * 64.0) as usize).collect();
                assert_eq!(counts[..], expected[..], "directed: {is_directed}");
            }
        }
    }

    #[test]
    fn small_runs_predict_the_buffers_of_a_larger_one() {
        for kind in Kind::ALL {
            for (inductive, is_directed) in [(false, false), (false, true), (true, false)] {
                let (shape, config) = (shape(&[0.25, 0.5, 0.75, 1.0], is_directed), config(kind, inductive));
                let peak = |few: u64, rows: u64| {
                    in_pool(1, || {
                        let runs = [few, 2 * few]
                            .map(|nodes| dry_run::<f32>(&shape, &config, nodes, Phase::Training));
                        let [one, two] = runs.map(Result::unwrap);
                        Ok(one.trace.extrapolate(&two.trace, few, rows).peak_bytes())
                    })
                    .unwrap() as f64
                };
                // Extrapolated from 64 rows, and recorded.
                let (predicted, recorded) = (peak(64, 1536), peak(768, 1536));
                let ratio = predicted / recorded;
                assert!((0.98..1.02).contains(&ratio), "{}, inductive {inductive}: {ratio}", kind.name());
            }
        }
    }

    #[test]
    fn equal_dry_runs_predict_equal_memory() {
        let (shape, config) = (shape(&[0.25, 0.5, 0.75, 1.0], false), config(Kind::Gat, false));
        let at =
            || DryRuns::new(&shape, &config, 64, Phase::Training).unwrap().at(100_000, HaloBytes::default());
        assert_eq!(at(), at());
    }

    #[test]
    fn a_dry_run_never_exceeds_what_is_free() {
        let (shape, mut config) = (shape(&[0.25, 0.5, 0.75, 1.0], false), config(Kind::Sage, false));
        config.model = Spec { hidden: 512, layers: 50, ..config.model };
        let weights = WeightBytes::of(&shape, &config).training();
        let plenty = nodes(&shape, &config, u64::MAX).unwrap();
        let fewer = nodes(&shape, &config, weights + (64 << 20)).unwrap();
        assert!(FEWEST_NODES <= fewer && fewer < plenty, "{fewer} of {plenty}");
        assert!(bound::dry_run(&shape, &config, 2 * fewer) <= weights + (64 << 20));
        assert_eq!(nodes(&shape, &config, weights), None);
    }
}
