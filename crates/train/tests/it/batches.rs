//! Small graphs and runs for tests of sampled mini-batches.

use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::sample::SamplerKind;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, NormKind};
use halograph_nn::state::State;
use halograph_train::config::{Precision, StrategyKind};
use halograph_train::event::EpochRecord;
use halograph_train::launch::{self, Extras, Leader};
use halograph_train::run::{DataRef, Header, MemoryRun};
use halograph_train::{Config, Event, Observer, Summary};

use crate::ranks::support;

pub const SAMPLERS: [SamplerKind; 2] = [SamplerKind::Neighbor, SamplerKind::Labor];
pub const FEATURES: usize = 6;
pub const CLASSES: usize = 3;
/// Relative difference that is left to rounding in double precision.
pub const ROUNDING: f64 = 1e-9;

/// How a test graph differs from the usual one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traits {
    pub self_loops: bool,
    pub multi_label: bool,
    pub edge_weights: bool,
}

/// Every other node is trained on, and none is for validation: a run keeps its last weights.
pub fn every_other(v: usize) -> u8 {
    [1, 3][v % 2]
}

/// An undirected graph in memory, with noise as features.
pub fn from_edges(
    nodes: usize,
    edges: &[(u32, u32)],
    traits: Traits,
    split: impl Fn(usize) -> u8,
) -> Dataset {
    let mut edges = edges.to_vec();
    if traits.self_loops {
        edges.extend((0..nodes as u32).step_by(3).map(|v| (v, v)));
    }
    let options = EdgeOptions { directed: false, keep_self_loops: true };
    let graph = match traits.edge_weights {
        true => GraphArrays::from_weighted_edges(nodes, &support::weighted(&edges), options),
        false => GraphArrays::from_edges(nodes, &edges, options),
    };
    let graph = graph.unwrap();
    let key = Key::new(1, "features");
    let features = (0..(nodes * FEATURES) as u64).map(|i| key.approx_normal(i)).collect();
    let labels = match traits.multi_label {
        false => Labels::Single((0..nodes).map(|v| (v / 2 % CLASSES) as i64).collect()),
        true => {
            let key = Key::new(2, "labels");
            let flags = (0..(nodes * CLASSES) as u64).map(|i| key.below(i, 2) as u8).collect();
            Labels::Multi { classes: CLASSES, flags }
        }
    };
    let split = (0..nodes).map(split).collect();
    let arrays = DatasetArrays::new("test", graph, FeatureArray::f32(FEATURES, features), labels, split);
    Dataset::from_arrays(DatasetArrays { classes: Some(CLASSES), ..arrays }).unwrap()
}

/// Random edges between all nodes but the last three, which are isolated; node 0 is a hub.
pub fn random_edges(nodes: u32, mean_degree: u64) -> Vec<(u32, u32)> {
    let (key, linked) = (Key::new(3, "edges"), nodes as u64 - 3);
    let random = (0..linked * mean_degree / 2)
        .map(|i| (key.below(2 * i, linked) as u32, key.below(2 * i + 1, linked) as u32))
        .filter(|(u, v)| u != v);
    random.chain((1..linked as u32).step_by(4).map(|v| (0, v))).collect()
}

pub fn random_graph(traits: Traits) -> Dataset {
    from_edges(90, &random_edges(90, 6), traits, every_other)
}

/// Double precision, with everything dropped that can be dropped.
pub fn config(kind: Kind) -> Config {
    let mut config = support::config(kind);
    (config.model.heads, config.model.hidden) = (2, 6);
    (config.train.precision, config.train.epochs) = (Precision::F64, 3);
    config
}

/// The same with mini-batches. `fanout`: of every hop.
pub fn sampled(config: &Config, batch_size: u64, fanout: i64) -> Config {
    let mut config = config.clone();
    config.train.strategy = StrategyKind::Minibatch;
    config.train.batch_size = batch_size;
    config.train.fanout = vec![fanout; config.model.hops()];
    config
}

/// The same as one batch of everything.
pub fn whole(config: &Config) -> Config {
    sampled(config, 1 << 40, -1)
}

/// What a run leaves.
pub struct Outcome {
    pub summary: Summary,
    pub epochs: Vec<EpochRecord>,
    /// Mean loss of the epoch after each step, if epochs have several.
    pub steps: Vec<f64>,
    pub weights: State,
    pub run: MemoryRun,
}

/// Records losses.
#[derive(Default)]
struct Losses {
    epochs: Vec<EpochRecord>,
    steps: Vec<f64>,
}

impl Observer for Losses {
    fn on(&mut self, event: &Event) {
        match event {
            Event::Step { loss, .. } => self.steps.push(*loss),
            Event::Epoch { record, .. } => self.epochs.push((*record).clone()),
            _ => (),
        }
    }
}

#[track_caller]
pub fn train(data: &Dataset, config: &Config) -> Outcome {
    train_with(data, config, Extras::default())
}

#[track_caller]
pub fn train_with(data: &Dataset, config: &Config, extras: Extras) -> Outcome {
    let mut run = MemoryRun::new(header(data, config));
    let mut losses = Losses::default();
    let leader = Leader { world: None, run: &mut run, from: None, observer: &mut losses };
    let summary = launch::train(data.into(), leader, extras).unwrap();
    assert!(summary.loss_history.iter().all(|loss| loss.is_finite()), "{:?}", summary.loss_history);
    assert_eq!(summary.batches.is_some(), config.train.strategy.samples());
    let Losses { epochs, steps } = losses;
    Outcome { summary, epochs, steps, weights: run.weights().unwrap().clone(), run }
}

pub fn header(data: &Dataset, config: &Config) -> Header {
    Header { data: DataRef::new(data).unwrap(), config: config.clone() }
}

/// Compares losses, and weights relative to the largest one of their array.
#[track_caller]
pub fn assert_close(got: &Outcome, want: &Outcome, what: &str) {
    assert_losses_close(got, want, what);
    assert_eq!(got.weights.0.keys().collect::<Vec<_>>(), want.weights.0.keys().collect::<Vec<_>>());
    for (name, want) in &want.weights.0 {
        let Some(want) = want.to_real::<f64>() else { continue };
        let got = got.weights.0[name].to_real::<f64>().unwrap();
        let largest = want.iter().fold(0.0, |most: f64, w| most.max(w.abs()));
        for (g, w) in got.iter().zip(&want) {
            assert!((g - w).abs() <= ROUNDING * largest, "{what}, {name}: {g} where {w} was expected");
        }
    }
}

#[track_caller]
pub fn assert_losses_close(got: &Outcome, want: &Outcome, what: &str) {
    let (got, want) = (&got.summary.loss_history, &want.summary.loss_history);
    assert_eq!(got.len(), want.len(), "{what}");
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() <= ROUNDING * w.abs(), "{what}: loss {g} where {w} was expected");
    }
}

#[track_caller]
pub fn assert_same_bits(got: &Outcome, want: &Outcome, what: &str) {
    assert_eq!(got.summary.loss_history, want.summary.loss_history, "{what}");
    let scores = |outcome: &Outcome| outcome.epochs.iter().map(|e| e.scores).collect::<Vec<_>>();
    assert_eq!(scores(got), scores(want), "{what}");
    assert!(got.weights == want.weights, "{what}: other weights");
}

/// All models, with the norms that `norms` lists if they have a choice.
pub fn models(norms: &[NormKind]) -> Vec<Config> {
    let with_norms = |kind: Kind| {
        let norms = if kind.uses("norm") { norms.to_vec() } else { vec![config(kind).model.norm] };
        norms.into_iter().map(move |norm| {
            let mut config = config(kind);
            config.model.norm = norm;
            config
        })
    };
    let mut all: Vec<Config> = Kind::ALL.into_iter().flat_map(with_norms).collect();
    for kind in [Kind::Sage, Kind::Resgcn] {
        let mut config = config(kind);
        config.model.self_in_mean = true;
        all.push(config);
    }
    let (mut eps, mut dense) = (config(Kind::Gin), config(Kind::Gcn));
    eps.model.train_eps = true;
    dense.model.linear_layers = 1;
    all.extend([eps, dense]);
    all
}
