//! Sparse features give what the same features give if they are stored with their zeros: every model, every strategy.

use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::write::FeatureLayout;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::import::{ImportFormat, ImportOptions, import};
use halograph_graph::progress::Silent;
use halograph_kernels::keyed::Key;
use halograph_nn::Project;
use halograph_nn::model::Kind;
use halograph_train::config::{Normalize, PartitionKind, Precision, StrategyKind};
use halograph_train::run::{DataRef, Header, MemoryRun};
use halograph_train::{Config, Summary};
use tempfile::TempDir;

use crate::batches::{random_edges, sampled};
use crate::ranks::support::{Watch, config, from_edges, hybrid, layers, on_ranks, pipelined, run};
use crate::train_run;

const NODES: usize = 90;
const FEATURES: usize = 40;

/// A random graph with about one in eight features; some nodes have none, and one column is always there.
fn graph(is_sparse: bool) -> Dataset {
    let (key, options) = (Key::new(1, "features"), EdgeOptions::default());
    let graph = GraphArrays::from_edges(NODES, &random_edges(NODES as u32, 6), options).unwrap();
    let (mut starts, mut columns, mut values) = (vec![0u64], Vec::new(), Vec::new());
    let mut dense = vec![0.0; NODES * FEATURES];
    for v in 0..NODES {
        for c in (0..FEATURES).filter(|_| v % 11 != 3) {
            let at = (v * FEATURES + c) as u64;
            if c == 7 || key.below(at, 8) == 0 {
                let x = key.with(1).approx_normal(at);
                dense[at as usize] = x;
                columns.push(c as u32);
                values.push(x);
            }
        }
        starts.push(columns.len() as u64);
    }
    let features = match is_sparse {
        true => FeatureArray::sparse_f32(FEATURES, starts, columns, values),
        false => FeatureArray::f32(FEATURES, dense),
    };
    let labels = Labels::Single((0..NODES as i64).map(|v| v / 2 % 3).collect());
    let split = (0..NODES).map(|v| [1, 2, 1, 3][v % 4]).collect();
    Dataset::from_arrays(DatasetArrays::new("words", graph, features, labels, split)).unwrap()
}

/// Trains on both, the sparse features as a job does.
fn both(config: &Config, dense: &Config) -> [Summary; 2] {
    let mut sparse = config.clone();
    sparse.resolve_input(true);
    [(false, dense), (true, &sparse)].map(|(is_sparse, config)| run(&graph(is_sparse), config).0)
}

#[track_caller]
fn assert_same(config: &Config, dense: &Config, what: &str) {
    let [dense, sparse] = both(config, dense);
    assert_eq!(dense.loss_history.len(), sparse.loss_history.len(), "{what}");
    for (epoch, (want, got)) in dense.loss_history.iter().zip(&sparse.loss_history).enumerate() {
        assert!((got - want).abs() <= 1e-9 * want.abs(), "{what}, epoch {epoch}: {got}, dense {want}");
    }
    assert_eq!((sparse.val, sparse.test), (dense.val, dense.test), "{what}");
}

/// Everything dropped that can be dropped.
fn base(kind: Kind) -> Config {
    let mut config = config(kind);
    (config.train.precision, config.train.epochs) = (Precision::F64, 6);
    config
}

fn on(config: &Config, strategy: StrategyKind, ranks: usize) -> Config {
    let mut config = sampled(config, 9, 3);
    (config.train.strategy, config.train.ranks) = (strategy, ranks);
    config.train.partition = PartitionKind::Random;
    config
}

/// Every strategy that is exact.
fn exact(config: &Config) -> [Config; 7] {
    [
        config.clone(),
        on_ranks(config, 3),
        layers(config, 2, 1),
        hybrid(config, (2, 2), 2),
        on(config, StrategyKind::Minibatch, 1),
        on(config, StrategyKind::Minibatch, 3),
        on(config, StrategyKind::Split, 3),
    ]
}

#[test]
fn every_exact_strategy_follows_dense_features() {
    for kind in Kind::ALL {
        for input_dropout in [0.0, 0.3] {
            let mut config = base(kind);
            config.model.input_dropout = input_dropout;
            for config in exact(&config) {
                let (strategy, ranks) = (config.train.strategy.name(), config.train.ranks);
                let what = format!("{} {strategy} on {ranks} ranks, {input_dropout}", kind.name());
                assert_same(&config, &config, &what);
            }
        }
    }
}

/// With stale rows it matters which rows travel: dense features in the same order of projection.
#[test]
fn stale_strategies_follow_dense_features_that_are_projected_first() {
    for kind in Kind::ALL {
        let mut deep = base(kind);
        deep.model.layers = 4;
        for config in [pipelined(&base(kind), 3), layers(&deep, 2, 4), hybrid(&deep, (2, 2), 4)] {
            let mut dense = config.clone();
            dense.resolve_input(true);
            let what = format!("{} {}", kind.name(), config.train.strategy.name());
            assert_same(&config, &dense, &what);
        }
    }
}

#[test]
fn normalised_inductive_and_unprojected_features_follow_too() {
    type Change = (&'static str, fn(&mut Config));
    let all: [Change; 4] = [
        ("rows", |c| c.data.normalize = Normalize::Rows),
        ("columns", |c| c.data.normalize = Normalize::Columns),
        ("inductive", |c| c.data.inductive = true),
        ("projected last", |c| c.model.project = Project::Last),
    ];
    for kind in [Kind::Sage, Kind::Gcn, Kind::Gin] {
        for (name, change) in &all {
            let mut config = base(kind);
            (config.model.input_dropout, config.model.train_eps) = (0.0, kind == Kind::Gin);
            change(&mut config);
            let batches = on(&config, StrategyKind::Split, 2);
            for config in [config.clone(), on_ranks(&config, 3), layers(&config, 2, 1), batches] {
                let what = format!("{} {}, {name}", kind.name(), config.train.strategy.name());
                assert_same(&config, &config, &what);
            }
        }
    }
}

#[test]
fn a_cached_aggregate_of_sparse_features_is_the_dense_one() {
    for (strategy, ranks) in
        [(StrategyKind::Minibatch, 1), (StrategyKind::Minibatch, 2), (StrategyKind::Split, 2)]
    {
        let mut config = on(&base(Kind::Sage), strategy, ranks);
        (config.model.input_dropout, config.train.cache_input_aggregate) = (0.0, true);
        assert_same(&config, &config, &format!("{} on {ranks} ranks", strategy.name()));
    }
}

/// Messages are projected rows, and fetched rows have their zeros: the formulas of dense features hold.
#[test]
fn ranks_send_the_bytes_of_dense_features() {
    for input_dropout in [0.0, 0.3] {
        let mut config = base(Kind::Gcn);
        config.model.input_dropout = input_dropout;
        for config in exact(&config) {
            let mut dense = config.clone();
            dense.resolve_input(true);
            let [dense, sparse] = both(&config, &dense);
            assert_eq!(dense.bytes_by_tag, sparse.bytes_by_tag, "{}", config.train.strategy.name());
        }
    }
}

#[test]
fn wrong_columns_and_values_are_refused_when_rows_are_read() {
    let temp = TempDir::new().unwrap();
    let edges = random_edges(NODES as u32, 6);
    let source = temp.path().join("dense");
    drop(from_edges(&source, NODES, &edges));
    let target = temp.path().join("sparse");
    let options = ImportOptions { feature_layout: FeatureLayout::Sparse, ..ImportOptions::default() };
    import(&ImportFormat::Npy { split_index: None }, &source, &target, &options, &Silent).unwrap();
    for (file, at, bytes, problem) in [
        ("feat_indices.npy", 3, 8u32.to_le_bytes(), "element 3 (row 0): out-of-range column 8 of 8"),
        ("feat_indices.npy", 9, 0u32.to_le_bytes(), "element 9 (row 1): repeated column 0"),
        ("feat_indices.npy", 10, 0u32.to_le_bytes(), "element 10 (row 1): unsorted columns: 0 after 1"),
        ("feat_values.npy", 9, f32::NAN.to_le_bytes(), "row 1, column 1: NaN is not a finite number"),
    ] {
        let path = target.join(file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[128 + 4 * at..][..4].copy_from_slice(&bytes);
        std::fs::write(&path, bad).unwrap();
        let data = Dataset::open(&target).unwrap();
        let header = Header { data: DataRef::new(&data).unwrap(), config: base(Kind::Gcn) };
        let mut memory = MemoryRun::new(header);
        let error = train_run(&data, &mut memory, None, &mut Watch::default()).unwrap_err();
        assert!(error.to_string().contains(problem) && error.to_string().contains(file), "{error}");
        std::fs::write(&path, good).unwrap();
    }
}
