//! Edge weights: every strategy on ranks follows one process, and weights of 1 change nothing.

use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_kernels::keyed::Key;
use halograph_nn::model::Kind;
use halograph_train::Config;
use halograph_train::config::{Precision, StrategyKind};

use super::support::{assert_follows, config, hybrid, layers, on_ranks, pipelined, run, weighted};

const NODES: u32 = 90;

fn data(graph: GraphArrays) -> Dataset {
    let key = Key::new(1, "features");
    let features = FeatureArray::f32(6, (0..6 * NODES as u64).map(|i| key.approx_normal(i)).collect());
    let labels = Labels::Single((0..NODES as i64).map(|v| v / 3 % 3).collect());
    let split = (0..NODES).map(|v| 1 + v as u8 % 3).collect();
    Dataset::from_arrays(DatasetArrays::new("weights", graph, features, labels, split)).unwrap()
}

/// Random edges, every ninth of which is a self-loop.
fn edges() -> Vec<(u32, u32)> {
    let key = Key::new(2, "edges");
    let end = |i: u64| key.below(i, u64::from(NODES)) as u32;
    (0..500).map(|i| (end(2 * i), if i % 9 == 0 { end(2 * i) } else { end(2 * i + 1) })).collect()
}

fn graph(edges: &[(u32, u32, f32)], directed: bool) -> GraphArrays {
    let options = EdgeOptions { directed, keep_self_loops: true };
    GraphArrays::from_weighted_edges(NODES as usize, edges, options).unwrap()
}

fn of_kind(kind: Kind, precision: Precision) -> Config {
    let mut config = config(kind);
    (config.train.precision, config.train.epochs, config.train.eval_every) = (precision, 8, 8);
    config
}

fn models() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.uses_edge_weights())
}

#[test]
fn every_strategy_follows_one_process() {
    for directed in [false, true] {
        let data = data(graph(&weighted(&edges()), directed));
        for kind in models() {
            for inductive in [false, true] {
                let mut config = of_kind(kind, Precision::F64);
                config.data.inductive = inductive;
                config.model.input_dropout = if inductive { 0.0 } else { 0.2 };
                let (_, alone, _) = run(&data, &config);
                let mut fresh = pipelined(&config, 3);
                fresh.train.staleness = 0;
                let ways = [on_ranks(&config, 2), on_ranks(&config, 4), fresh, layers(&config, 2, 1)];
                for split in ways.into_iter().chain([hybrid(&config, (2, 2), 2)]) {
                    let (_, together, _) = run(&data, &split);
                    let what = format!("{kind:?}, {:?}, inductive {inductive}", split.train.strategy);
                    assert_follows(&together.epochs, &alone.epochs, 1e-9, &what);
                }
            }
        }
    }
}

#[test]
fn chunks_of_weighted_graphs_become_exact_while_weights_are_frozen() {
    let data = data(graph(&weighted(&edges()), true));
    for kind in models() {
        let mut config = of_kind(kind, Precision::F64);
        (config.model.dropout, config.model.input_dropout) = (0.0, 0.0);
        // Below the precision of any weight.
        (config.train.lr, config.train.weight_decay) = (1e-30, 0.0);
        let (_, alone, _) = run(&data, &config);
        for split in [layers(&config, 2, 4), hybrid(&config, (2, 2), 4)] {
            let (_, together, _) = run(&data, &split);
            // After as many epochs as there are layers, all history is current.
            assert_follows(&together.epochs[5..], &alone.epochs[5..], 1e-9, &format!("{kind:?}"));
        }
    }
}

#[test]
fn weights_of_1_change_no_bit_and_other_weights_do() {
    let ones: Vec<_> = {
        let plain = GraphArrays::from_edges(
            NODES as usize,
            &edges(),
            EdgeOptions { directed: true, keep_self_loops: true },
        );
        let plain = plain.unwrap();
        let rows = plain.indptr.windows(2).zip(0..);
        rows.flat_map(|(ends, v)| {
            plain.indices[ends[0] as usize..ends[1] as usize].iter().map(move |&u| (u, v, 1.0))
        })
        .collect()
    };
    let [ones, other] = [ones, weighted(&edges())].map(|edges| data(graph(&edges, true)));
    for kind in models() {
        let sampled = |mut config: Config| {
            config.train.strategy = StrategyKind::Minibatch;
            (config.train.batch_size, config.train.fanout) = (11, vec![2; config.model.hops()]);
            config
        };
        let config = of_kind(kind, Precision::F32);
        for config in [config.clone(), on_ranks(&config, 2), sampled(config)] {
            let mut without = config.clone();
            without.data.edge_weights = false;
            let weights = |data: &Dataset, config: &Config| run(data, config).2;
            let plain = weights(&ones, &without);
            assert!(weights(&ones, &config) == plain, "{kind:?}, {:?}", config.train.strategy);
            assert!(weights(&other, &config) != weights(&other, &without), "{kind:?}");
        }
    }
}
