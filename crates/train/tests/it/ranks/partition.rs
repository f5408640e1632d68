//! `partition` follows one process: the same losses and scores on any number of ranks, whatever the parts look like.

use halograph_graph::Dataset;
use halograph_graph::dataset::Metric;
use halograph_graph::dataset::write::FeatureType;
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::import::{ImportFormat, ImportOptions, import};
use halograph_graph::partition::{Method, PartitionSpec, assignment_for};
use halograph_graph::progress::Silent;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::config::{Normalize, Overlap, PartitionKind, Precision};
use halograph_train::cost::{NumberBytes, RowBytes, StepBytes};
use halograph_train::event::EpochRecord;
use halograph_train::{Config, Summary};
use tempfile::TempDir;

use super::support::{
    assert_follows, assert_resumes, assert_survives, config, dataset, from_edges, make, on_ranks, run,
};

#[test]
fn every_model_follows_one_process_on_any_number_of_ranks() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (precision, tolerance) in [(Precision::F64, 1e-9), (Precision::F32, 1e-4)] {
        for kind in Kind::ALL {
            let mut config = config(kind);
            config.train.precision = precision;
            let (_, alone, _) = run(&data, &config);
            for ranks in 1..=4 {
                let what = format!("{} on {ranks} ranks, {precision:?}", kind.name());
                let (_, together, _) = run(&data, &on_ranks(&config, ranks));
                assert_follows(&together.epochs, &alone.epochs, tolerance, &what);
                if precision == Precision::F64 {
                    let scores = |epochs: &[EpochRecord]| {
                        epochs.iter().map(|e| e.scores.map(|s| (s.train, s.val, s.test))).collect::<Vec<_>>()
                    };
                    assert_eq!(scores(&together.epochs), scores(&alone.epochs), "{what}");
                }
            }
        }
    }
}

/// A real graph and a larger made one: shorter, in the precision that users train in.
#[test]
fn cora_and_small_follow_too() {
    let temp = TempDir::new().unwrap();
    let small = temp.path().join("small");
    let preset = presets::find("small").unwrap();
    generate::make(&preset.spec, "small", &small, false, &Silent).unwrap();
    let mut graphs = vec![Dataset::open(&small).unwrap()];
    if let Some(source) = halograph_testing::real_data("cora") {
        let cora = temp.path().join("cora");
        import(&ImportFormat::Planetoid, &source, &cora, &ImportOptions::default(), &Silent).unwrap();
        graphs.push(Dataset::open(&cora).unwrap());
    }
    for data in &graphs {
        for kind in Kind::ALL {
            let mut config = config(kind);
            config.model.hidden = 16;
            config.train.eval_every = 20;
            config.train.precision = Precision::F32;
            let (_, alone, _) = run(data, &config);
            for ranks in 2..=4 {
                let what = format!("{} on {} with {ranks} ranks", kind.name(), data.manifest.name);
                let (_, together, _) = run(data, &on_ranks(&config, ranks));
                assert_follows(&together.epochs, &alone.epochs, 1e-4, &what);
            }
        }
    }
}

#[test]
fn norms_over_batches_fixed_sums_scaled_columns_and_inductive_graphs_follow_too() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    type Change = (&'static str, fn(&mut Config));
    let all: [Change; 5] = [
        ("batch norm", |c| c.model.norm = NormKind::Batch),
        ("fixed sums", |c| c.model.input_dropout = 0.0),
        ("columns", |c| c.data.normalize = Normalize::Columns),
        ("inductive", |c| {
            c.data.inductive = true;
            c.model.input_dropout = 0.0;
        }),
        ("clipped", |c| c.train.clip = 0.1),
    ];
    for kind in [Kind::Sage, Kind::Gcn, Kind::Gat] {
        for (name, change) in &all {
            let mut config = config(kind);
            config.train.precision = Precision::F64;
            change(&mut config);
            let (_, alone, _) = run(&data, &config);
            let (_, together, _) = run(&data, &on_ranks(&config, 3));
            assert_follows(&together.epochs, &alone.epochs, 1e-9, &format!("{} with {name}", kind.name()));
        }
    }
}

#[test]
fn directed_graphs_self_loops_halves_several_labels_and_auc_follow_too() {
    let temp = TempDir::new().unwrap();
    let key = Key::new(2, "edges");
    // Every ninth edge is a self-loop.
    let end = |i: u64| key.below(2 * i, 90) as u32;
    let other = |i: u64| if i.is_multiple_of(9) { end(i) } else { key.below(2 * i + 1, 90) as u32 };
    let edges: Vec<(u32, u32)> = (0..600).map(|i| (end(i), other(i))).collect();
    let directed = make(&temp.path().join("directed"), 90, &edges, true, FeatureType::F32, Metric::Auc);
    let halves = make(&temp.path().join("halves"), 90, &edges, false, FeatureType::F16, Metric::Accuracy);
    let several = dataset(&temp.path().join("several"), |spec| Spec { multi_label: true, ..spec });
    for (data, precision, tolerance) in
        [(&directed, Precision::F64, 1e-9), (&halves, Precision::F32, 1e-4), (&several, Precision::F64, 1e-9)]
    {
        for kind in Kind::ALL {
            for input_dropout in [0.0, 0.2] {
                let mut config = config(kind);
                config.train.precision = precision;
                config.model.input_dropout = input_dropout;
                let (alone, all, _) = run(data, &config);
                let (together, some, _) = run(data, &on_ranks(&config, 3));
                let what = format!("{} on {}", kind.name(), data.location());
                assert_follows(&some.epochs, &all.epochs, tolerance, &what);
                if precision == Precision::F64 {
                    let apart = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs();
                    assert!(apart(together.test, alone.test) < 1e-9, "{what}");
                }
            }
        }
    }
}

#[test]
fn overlap_and_threads_change_no_bit() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        let config = on_ranks(&config(kind), 3);
        let mut other = config.clone();
        other.train.overlap = Overlap::Off;
        other.train.threads = 2;
        let (one, two) = (run(&data, &config), run(&data, &other));
        assert_eq!(one.0.loss_history, two.0.loss_history, "{}", kind.name());
        assert_eq!(one.2, two.2, "{}", kind.name());
    }
}

#[test]
fn odd_parts_train() {
    let temp = TempDir::new().unwrap();
    let few = dataset(&temp.path().join("few"), |spec| Spec { nodes: 6, edges: 12, ..spec });
    let mut config = config(Kind::Sage);
    config.train.precision = Precision::F64;
    config.train.partition = PartitionKind::Random;
    let (_, alone, _) = run(&few, &config);
    // More ranks than nodes: some parts are empty, others without a training node.
    let (_, together, _) = run(&few, &on_ranks(&config, 9));
    assert_follows(&together.epochs, &alone.epochs, 1e-9, "more ranks than nodes");
}

#[test]
fn an_interrupted_run_of_ranks_ends_as_if_it_had_not_been() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    assert_resumes(&data, &on_ranks(&config(Kind::Gat), 3), 7);
}

/// Rows that ranks read of each other: for each part, how many in-neighbours of its vertices others own.
fn halo_rows(data: &Dataset, parts: &[u32], is_needed: impl Fn(usize) -> bool) -> u64 {
    let graph = data.graph();
    let mut read = std::collections::BTreeSet::new();
    for v in (0..graph.nodes()).filter(|&v| is_needed(v)) {
        read.extend(graph.row(v).iter().filter(|&&u| parts[u as usize] != parts[v]).map(|&u| (parts[v], u)));
    }
    read.len() as u64
}

/// A set of vertices and those they read; all there are if hardly any is missing.
fn reached(data: &Dataset, set: &[bool]) -> Vec<bool> {
    let graph = data.graph();
    let mut more = set.to_vec();
    for v in (0..set.len()).filter(|&v| set[v]) {
        graph.row(v).iter().for_each(|&u| more[u as usize] = true);
    }
    let count = more.iter().filter(|&&is| is).count();
    if count >= set.len() - set.len() / 32 { vec![true; set.len()] } else { more }
}

fn weights_bytes(summary: &Summary, ranks: u64, size: u64) -> u64 {
    2 * (ranks - 1) * summary.parameters * size
}

#[test]
fn every_byte_of_an_epoch_is_explained() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { train: 0.1, ..spec });
    let training = |v: usize| data.split()[v] == 1;
    for ranks in 2..=8u64 {
        let spec = PartitionSpec {
            parts: ranks as u32,
            method: Method::Random,
            balance: Default::default(),
            seed: 0,
        };
        let parts = assignment_for(&data, &spec, &Silent).unwrap().of().to_vec();
        // Of the last layer only rows of training nodes are computed, of those before also what these read.
        let near = reached(&data, &(0..data.graph().nodes()).map(training).collect::<Vec<bool>>());
        let far = reached(&data, &near);
        let last = halo_rows(&data, &parts, training);
        let [middle, all] = [near, far].map(|set| halo_rows(&data, &parts, |v| set[v]));
        let (inputs, hidden, classes) = (8, 16, 3);
        for kind in [Kind::Sage, Kind::Gcn, Kind::Gat] {
            for is_cached in [true, false] {
                let mut config = config(kind);
                config.model.layers = 3;
                config.model.hidden = hidden as usize;
                config.model.heads = 4;
                config.model.norm = NormKind::None;
                config.model.input_dropout = if is_cached { 0.0 } else { 0.2 };
                config.train.epochs = 2;
                config.train.partition = PartitionKind::Random;
                let (summary, ..) = run(&data, &on_ranks(&config, ranks as usize));
                let tag = |tag: &str| summary.bytes_by_tag[tag];
                // What travels in each layer: the narrower side; with attention what is projected, and scores.
                let widths = match kind {
                    Kind::Gat => [hidden + 4, hidden + 4, 4 * classes + 4],
                    _ => [inputs, hidden, classes],
                };
                let cached = is_cached && kind != Kind::Gat;
                let first = if cached { 0 } else { all * widths[0] };
                // Below the first aggregation there is a parameter only where rows are projected before.
                let first_back = if kind == Kind::Gat { all * widths[0] } else { 0 };
                let later = middle * widths[1] + last * widths[2];
                let what = format!("{} on {ranks} ranks, cached {is_cached}", kind.name());
                assert_eq!(tag("features"), 4 * (first + later), "{what}");
                assert_eq!(tag("gradients"), 4 * (first_back + later), "{what}");
                assert_eq!(tag("weights"), weights_bytes(&summary, ranks, 4), "{what}");
                // The cost model says the same.
                let messages = config.model.messages(inputs as usize, classes as usize);
                let rows = RowBytes::of_stages(&messages, NumberBytes::F32);
                let cost = StepBytes::new(&rows, &[all, middle, last], 4 * summary.parameters, ranks);
                let measured = StepBytes {
                    features: tag("features"),
                    gradients: tag("gradients"),
                    weights: tag("weights"),
                };
                assert_eq!(cost, measured, "{what}");
                // The loss.
                assert_eq!(tag("statistics"), 2 * (ranks - 1) * 8, "{what}");
                assert!(tag("setup") > 0 && tag("sampling") == 0, "{what}");
                let sum: u64 = ["features", "gradients", "weights", "statistics"].map(tag).iter().sum();
                assert_eq!(summary.bytes_per_epoch, sum, "{what}");
            }
        }
        // All rows needed (inductive: every row is trained on) and nothing projected before: the formula of PipeGCN.
        let mut config = config(Kind::Sage);
        config.model.layers = 3;
        config.model.hidden = hidden as usize;
        config.model.project = halograph_nn::Project::Last;
        config.model.input_dropout = 0.0;
        config.train.epochs = 2;
        config.train.partition = PartitionKind::Random;
        config.data.inductive = true;
        let (summary, ..) = run(&data, &on_ranks(&config, ranks as usize));
        let between = |v: usize, u: u32| training(v) && training(u as usize);
        let graph = data.graph();
        let mut read = std::collections::BTreeSet::new();
        for v in 0..graph.nodes() {
            let others = graph.row(v).iter().filter(|&&u| between(v, u) && parts[u as usize] != parts[v]);
            read.extend(others.map(|&u| (parts[v], u)));
        }
        let boundary = read.len() as u64;
        let volume = summary.bytes_by_tag["features"] + summary.bytes_by_tag["gradients"];
        assert_eq!(volume, 4 * boundary * 2 * (hidden + hidden), "{ranks} ranks");
        assert_eq!(summary.bytes_by_tag["weights"], 8 * (ranks - 1) * summary.parameters);
    }
}

#[test]
fn stars_and_islands_train() {
    let temp = TempDir::new().unwrap();
    // A star around node 0, a pair apart, and nodes without any edge.
    let mut edges: Vec<(u32, u32)> = (1..20).map(|v| (0, v)).collect();
    edges.push((20, 21));
    let data = from_edges(&temp.path().join("star"), 26, &edges);
    for kind in Kind::ALL {
        let mut config = config(kind);
        config.train.precision = Precision::F64;
        let (_, alone, _) = run(&data, &config);
        for partition in [PartitionKind::Metis, PartitionKind::Stream, PartitionKind::Random] {
            config.train.partition = partition;
            let (_, together, _) = run(&data, &on_ranks(&config, 5));
            assert_follows(&together.epochs, &alone.epochs, 1e-9, &format!("{} {partition:?}", kind.name()));
        }
    }
}

#[test]
fn a_rank_that_panics_or_falls_silent_ends_all_and_loses_nothing() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    assert_survives(&data, &on_ranks(&config(Kind::Sage), 3));
}
