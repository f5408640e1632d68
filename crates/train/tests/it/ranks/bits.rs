//! On enough rows that every sum of a rank is made by several tasks: neither overlap nor threads change a bit.

use halograph_graph::Dataset;
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::progress::Silent;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::Config;
use halograph_train::config::{Overlap, PartitionKind, Smooth};
use halograph_train::event::{Scores, Staleness};
use tempfile::TempDir;

use super::support::{config, on_ranks, pipelined, run};

const RANKS: usize = 3;
const NODES: usize = 9600;
/// Rows that one task sums, at most (`rows::RUN`, `gemm::OUTER_ROWS`).
const RUN: u64 = 1024;
/// Numbers that one task averages, at most (`transfer::BLEND_CHUNK`, `versions::CHUNK`).
const CHUNK: u64 = 1 << 14;
const WIDTH: usize = 40;

fn dataset(temp: &TempDir) -> Dataset {
    let small = presets::find("small").unwrap().spec.clone();
    let spec = Spec { nodes: NODES, edges: 96_000, features: 24, classes: 5, train: 0.7, val: 0.1, ..small };
    let path = temp.path().join("data");
    generate::make(&spec, "large", &path, false, &Silent).unwrap();
    Dataset::open(&path).unwrap()
}

/// Everything that sums over rows, in random parts: most rows have a neighbour on each rank.
fn wide(kind: Kind) -> Config {
    let mut config = config(kind);
    config.model.hidden = WIDTH;
    if kind != Kind::Resgcn {
        config.model.norm = NormKind::Batch;
    }
    config.train.epochs = 3;
    config.train.eval_every = 3;
    config.train.clip = 1.0;
    config.train.partition = PartitionKind::Random;
    config
}

/// All numbers that a run computes.
struct Numbers {
    losses: Vec<f64>,
    staleness: Vec<Option<Staleness>>,
    scores: Vec<Option<Scores>>,
    weights: Vec<u8>,
}

fn numbers(data: &Dataset, config: &Config, overlap: Overlap, threads: usize) -> Numbers {
    let mut config = config.clone();
    (config.train.overlap, config.train.threads) = (overlap, threads);
    let (summary, watch, weights) = run(data, &config);
    for part in &summary.parts {
        assert!(part.train > 2 * RUN, "sums over {} rows are not cut", part.train);
        assert!(part.halo * WIDTH as u64 > 2 * CHUNK, "averages of {} rows are not cut", part.halo);
    }
    assert_eq!(summary.parts.len(), RANKS);
    Numbers {
        losses: summary.loss_history,
        staleness: watch.epochs.iter().map(|epoch| epoch.staleness.clone()).collect(),
        scores: watch.epochs.iter().map(|epoch| epoch.scores).collect(),
        weights,
    }
}

#[track_caller]
fn assert_same(data: &Dataset, config: &Config) {
    let kind = config.model.kind;
    let first = numbers(data, config, Overlap::On, 1);
    assert!(first.losses.iter().all(|loss| loss.is_finite()), "{kind:?}");
    for (overlap, threads) in [(Overlap::Off, 1), (Overlap::On, 2), (Overlap::Off, 3)] {
        let other = numbers(data, config, overlap, threads);
        let what = format!("{kind:?}, overlap {overlap:?}, {threads} threads");
        assert_eq!(other.losses, first.losses, "{what}");
        assert_eq!(other.staleness, first.staleness, "{what}");
        assert_eq!(other.scores, first.scores, "{what}");
        assert!(other.weights == first.weights, "{what}: other weights");
    }
}

#[test]
fn partition_gives_the_same_bits_with_any_overlap_and_threads() {
    let temp = TempDir::new().unwrap();
    let data = dataset(&temp);
    for kind in Kind::ALL {
        assert_same(&data, &on_ranks(&wide(kind), RANKS));
    }
}

#[test]
fn pipelined_gives_the_same_bits_with_any_overlap_and_threads() {
    let temp = TempDir::new().unwrap();
    let data = dataset(&temp);
    for kind in Kind::ALL {
        let mut config = pipelined(&wide(kind), RANKS);
        (config.train.smooth, config.train.measure_staleness) = (Smooth::Gf, true);
        assert_same(&data, &config);
    }
}
