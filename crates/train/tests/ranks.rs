//! Ranks follow one process: the same losses and scores on any number of ranks, whatever the parts look like.

use std::path::Path;

use halograph_graph::Dataset;
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::progress::Silent;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::config::{Normalize, Overlap, PartitionKind, Precision, StrategyKind};
use halograph_train::event::{Ending, Epoch};
use halograph_train::run::{DataRef, Header, Run, read_weights};
use halograph_train::{Config, Event, Observer, Summary, train};
use tempfile::TempDir;

fn dataset(folder: &Path, change: impl FnOnce(Spec) -> Spec) -> Dataset {
    let demo = presets::find("demo").unwrap().spec.clone();
    let spec = change(Spec { nodes: 300, edges: 2400, features: 8, classes: 3, ..demo });
    let path = folder.join("data");
    generate::make(&spec, "tiny", &path, false, &Silent).unwrap();
    Dataset::open(&path).unwrap()
}

/// Everything on that can differ between ranks.
fn config(kind: Kind) -> Config {
    let mut config = Config::new(kind);
    config.model.hidden = 8;
    config.model.dropout = 0.4;
    config.model.input_dropout = 0.2;
    config.model.attention_dropout = 0.2;
    config.train.epochs = 20;
    config.train.threads = 1;
    config.train.weight_decay = 1e-3;
    config
}

fn on_ranks(config: &Config, ranks: usize) -> Config {
    let mut config = config.clone();
    config.train.strategy = StrategyKind::Partition;
    config.train.ranks = ranks;
    config
}

#[derive(Default)]
struct Watch {
    epochs: Vec<Epoch>,
    stop_after: Option<u64>,
}

impl Observer for Watch {
    fn on(&mut self, event: &Event) {
        if let Event::Epoch { record, .. } = event {
            self.epochs.push((*record).clone());
        }
    }

    fn interrupted(&self) -> bool {
        self.stop_after.is_some_and(|stop| self.epochs.last().is_some_and(|e| e.epoch >= stop))
    }
}

/// A run in a folder of its own, with all its epochs.
fn run(data: &Dataset, config: &Config) -> (Summary, Watch, Vec<u8>) {
    let temp = TempDir::new().unwrap();
    let header = Header { data: DataRef::new(data, &data.path).unwrap(), config: config.clone() };
    let mut run = Run::create(&temp.path().join("run"), header, false).unwrap();
    let mut watch = Watch::default();
    let summary = train(data, &mut run, None, &mut watch).unwrap();
    let weights = read_weights(run.path()).unwrap().to_bytes();
    (summary, watch, weights)
}

#[track_caller]
fn assert_follows(ranks: &[Epoch], alone: &[Epoch], tolerance: f64, what: &str) {
    assert_eq!(ranks.len(), alone.len());
    for (a, b) in ranks.iter().zip(alone) {
        let apart = (a.loss - b.loss).abs() / b.loss.abs().max(1e-3);
        assert!(
            apart <= tolerance,
            "{what}, epoch {}: loss {} where one process has {}",
            a.epoch,
            a.loss,
            b.loss
        );
    }
}

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
                    let scores = |epochs: &[Epoch]| {
                        epochs.iter().map(|e| e.scores.map(|s| (s.train, s.val, s.test))).collect::<Vec<_>>()
                    };
                    assert_eq!(scores(&together.epochs), scores(&alone.epochs), "{what}");
                }
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
    let config = on_ranks(&config(Kind::Gat), 3);
    let (whole, _, weights) = run(&data, &config);
    let path = temp.path().join("broken");
    let header = Header { data: DataRef::new(&data, &data.path).unwrap(), config };
    let mut first = Run::create(&path, header, false).unwrap();
    let mut watch = Watch { stop_after: Some(7), ..Watch::default() };
    let half = train(&data, &mut first, None, &mut watch).unwrap();
    assert_eq!((half.ending, half.epochs), (Ending::Interrupted, 7));
    for rank in 0..3 {
        assert!(path.join(format!("ckpt-7/rank-{rank}.safetensors")).exists());
    }
    drop(first);
    let mut resumed = Run::resume(&path).unwrap();
    let from = resumed.checkpoint.map(|c| (c, resumed.history));
    let summary = train(&data, &mut resumed.run, from, &mut Watch::default()).unwrap();
    assert_eq!(summary.loss_history, whole.loss_history);
    assert_eq!(read_weights(&path).unwrap().to_bytes(), weights);
}
