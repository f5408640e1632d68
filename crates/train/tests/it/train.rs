//! Whole runs on a small graph: exact repetition, resuming, stopping, and memory that does not grow.

use std::path::Path;

use halograph_graph::Dataset;
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::progress::Silent;
use halograph_nn::model::Kind;
use halograph_train::config::{Normalize, OptimizerKind, Precision, ScheduleKind};
use halograph_train::data::{Data, Scaling};
use halograph_train::event::{Ending, EpochRecord};
use halograph_train::run::{DataRef, Header, Run, read_weights};
use halograph_train::trained::TrainedModel;
use halograph_train::trainer::ResumePoint;
use halograph_train::{Config, Error, Event, Observer, Summary};
use tempfile::TempDir;

use crate::train_run;

fn dataset(folder: &Path, change: impl FnOnce(Spec) -> Spec) -> Dataset {
    let demo = presets::find("demo").unwrap().spec.clone();
    let spec = change(Spec { nodes: 300, edges: 2400, features: 8, classes: 3, ..demo });
    let path = folder.join("data");
    generate::make(&spec, "tiny", &path, false, &Silent).unwrap();
    Dataset::open(&path).unwrap()
}

fn config(kind: Kind) -> Config {
    let mut config = Config::new(kind);
    config.model.hidden = 8;
    config.model.input_dropout = 0.2;
    config.model.attention_dropout = 0.2;
    config.train.epochs = 12;
    config.train.threads = 1;
    config
}

fn header(dataset: &Dataset, config: Config) -> Header {
    Header { data: DataRef::new(dataset).unwrap(), config }
}

/// Keeps all epochs, and interrupts after one of them.
#[derive(Default)]
struct Watch {
    epochs: Vec<EpochRecord>,
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

fn run(folder: &Path, dataset: &Dataset, config: Config, stop_after: Option<u64>) -> (Summary, Watch) {
    let mut run = Run::create(folder, header(dataset, config), false).unwrap();
    let mut watch = Watch { stop_after, ..Watch::default() };
    let summary = train_run(dataset, &mut run, None, &mut watch).unwrap();
    (summary, watch)
}

fn weights(folder: &Path) -> Vec<u8> {
    read_weights(folder).unwrap().to_bytes()
}

#[test]
fn every_model_learns_and_repeats_its_bits_on_any_number_of_threads() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        let path = |n: usize| temp.path().join(format!("{}-{n}", kind.name()));
        let once = |threads: usize| {
            let mut config = config(kind);
            config.train.threads = threads;
            config.train.epochs = 30;
            run(&path(threads), &data, config, None).0
        };
        let (one, three) = (once(1), once(3));
        assert_eq!(one.loss_history, three.loss_history, "{kind:?}");
        assert_eq!(weights(&path(1)), weights(&path(3)), "{kind:?}");
        let (first, last) = (one.loss_history[0], one.loss.unwrap());
        assert!(last < 0.8 * first, "{kind:?}: the loss went from {first} to {last}");
        assert!(one.test.unwrap() > 0.5, "{kind:?}: {:?}", one.test);
    }
}

#[test]
fn a_run_that_was_interrupted_ends_as_if_it_had_not_been() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (kind, optimizer) in [
        (Kind::Sage, OptimizerKind::Adam),
        (Kind::Gat, OptimizerKind::Adamw),
        (Kind::Gcnii, OptimizerKind::Sgd),
    ] {
        let mut config = config(kind);
        config.model.norm = halograph_nn::model::NormKind::Batch;
        config.train.optimizer = optimizer;
        config.train.schedule = ScheduleKind::Cosine;
        let [straight, broken] =
            ["straight", "broken"].map(|n| temp.path().join(format!("{n}-{}", kind.name())));
        let (whole, watch) = run(&straight, &data, config.clone(), None);
        let (half, _) = run(&broken, &data, config, Some(5));
        assert_eq!((half.ending, half.epochs), (Ending::Interrupted, 5));

        let mut resumed = Run::resume(&broken).unwrap();
        let from = resumed.checkpoint.map(|c| ResumePoint::new(c, resumed.history));
        let mut rest = Watch::default();
        let summary = train_run(&data, &mut resumed.run, from, &mut rest).unwrap();
        assert_eq!((summary.ending, rest.epochs[0].epoch), (Ending::Finished, 6));
        assert_eq!(summary.loss_history, whole.loss_history);
        let scores = |epochs: &[EpochRecord]| epochs.iter().map(|e| e.scores).collect::<Vec<_>>();
        assert_eq!(scores(&rest.epochs), scores(&watch.epochs[5..]));
        assert_eq!(weights(&broken), weights(&straight), "{kind:?}");
    }
}

#[test]
fn single_and_double_precision_follow_one_trajectory() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        let losses = |precision: Precision| {
            let mut config = config(kind);
            config.train.precision = precision;
            run(&temp.path().join(format!("{}-{precision:?}", kind.name())), &data, config, None)
                .0
                .loss_history
        };
        for (a, b) in losses(Precision::F32).iter().zip(losses(Precision::F64)) {
            assert!((a - b).abs() < 1e-3 * b.abs(), "{kind:?}: {a} and {b}");
        }
    }
}

#[test]
fn the_kept_weights_are_those_of_the_best_validation() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { label_noise: 0.3, ..spec });
    let mut config = config(Kind::Sage);
    config.train.epochs = 200;
    config.train.lr = 0.05;
    config.train.patience = 10;
    let path = temp.path().join("run");
    let (summary, watch) = run(&path, &data, config.clone(), None);
    assert_eq!(summary.ending, Ending::StoppedEarly);
    assert_eq!(summary.epochs, summary.best_epoch.unwrap() + 10);
    let best = watch.epochs.iter().filter_map(|e| e.scores?.val).fold(0.0, f64::max);
    assert_eq!(summary.val, Some(best));
    let scores = TrainedModel::open(&path).unwrap().evaluate(&data).unwrap();
    assert_eq!((scores.train, scores.val, scores.test), (summary.train, summary.val, summary.test));
}

#[test]
fn inductive_training_sees_training_nodes_only() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = config(Kind::Gcn);
    config.data.inductive = true;
    config.data.normalize = Normalize::Columns;
    config.train.epochs = 40;
    let (inductive, _) = run(&temp.path().join("inductive"), &data, config.clone(), None);
    assert!(inductive.test.unwrap() > 0.5, "{:?}", inductive.test);

    // The same training nodes in another world: other edges and other features outside the training graph.
    let other = damage_outside_training(&data, &temp.path().join("other"));
    let (same, _) = run(&temp.path().join("same"), &other, config.clone(), None);
    assert_eq!(same.loss_history, inductive.loss_history);
    config.data.inductive = false;
    let (whole, _) = run(&temp.path().join("whole"), &data, config, None);
    assert_ne!(whole.loss_history, inductive.loss_history);
}

/// A copy of `data` in which features of all but training nodes are 0, and every edge that touches another node comes
/// from elsewhere.
fn damage_outside_training(data: &Dataset, to: &Path) -> Dataset {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(data.path().unwrap()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    let file = to.join("feat.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let (nodes, width) = (data.split().len(), data.features().cols() * 4);
    let start = bytes.len() - nodes * width;
    for (v, &part) in data.split().iter().enumerate() {
        if part != 1 {
            bytes[start + v * width..][..width].fill(0);
        }
    }
    std::fs::write(file, bytes).unwrap();
    let file = to.join("indices.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let (graph, split) = (data.graph(), data.split());
    let start = bytes.len() - graph.indices.len() * 4;
    let outside = split.iter().position(|&part| part != 1).unwrap() as u32;
    for v in 0..nodes {
        for e in graph.indptr[v] as usize..graph.indptr[v + 1] as usize {
            if split[v] != 1 || split[graph.indices[e] as usize] != 1 {
                bytes[start + 4 * e..][..4].copy_from_slice(&outside.to_le_bytes());
            }
        }
    }
    std::fs::write(file, bytes).unwrap();
    Dataset::open(to).unwrap()
}

#[test]
fn several_labels_a_node_are_learnt() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { multi_label: true, ..spec });
    let mut config = config(Kind::Sage);
    config.train.epochs = 60;
    let (summary, _) = run(&temp.path().join("run"), &data, config, None);
    assert!(summary.loss.unwrap() < 0.8 * summary.loss_history[0], "{:?}", summary.loss);
    assert!(summary.test.unwrap() > 0.5, "{:?}", summary.test);
}

#[test]
fn without_validation_nodes_the_last_weights_are_kept() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { train: 0.8, val: 0.0, ..spec });
    let (summary, _) = run(&temp.path().join("run"), &data, config(Kind::Gcn), None);
    assert_eq!((summary.val, summary.best_epoch), (None, Some(12)));
}

#[test]
fn a_loss_that_is_no_number_stops_the_run_and_spares_its_checkpoint() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = config(Kind::Gcn);
    // A learning rate that grows a million times an epoch: the first epochs still give numbers.
    (config.train.lr, config.train.schedule) = (1e-3, ScheduleKind::Step);
    (config.train.step_epochs, config.train.step_factor) = (1, 1e6);
    config.train.checkpoint_seconds = 0.0;
    let mut run = Run::create(&temp.path().join("run"), header(&data, config), false).unwrap();
    let error = train_run(&data, &mut run, None, &mut Watch::default()).expect_err("it runs away");
    let Error::Diverged { epoch, .. } = error else { panic!("{error}") };
    assert!(epoch > 1, "there was something to spare");
    drop(run);
    let resumed = Run::resume(&temp.path().join("run")).unwrap();
    let checkpoint = resumed.checkpoint.unwrap();
    assert_eq!(checkpoint.epoch, epoch - 1);
    let finite =
        |t: &halograph_nn::state::Tensor| t.to_real::<f64>().is_none_or(|v| v.iter().all(|x| x.is_finite()));
    assert!(checkpoint.state.0.values().all(finite));
}

#[test]
fn patience_is_judged_by_evaluations() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = config(Kind::Sage);
    (config.train.epochs, config.train.eval_every, config.train.patience) = (40, 10, 5);
    let (summary, watch) = run(&temp.path().join("run"), &data, config, None);
    let evaluations: Vec<u64> = watch.epochs.iter().filter(|e| e.scores.is_some()).map(|e| e.epoch).collect();
    assert!(evaluations.len() > 1, "one look decides nothing");
    assert_eq!(evaluations.last(), Some(&summary.epochs));
}

#[test]
fn weights_that_ran_away_are_never_the_best() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = config(Kind::Gcn);
    (config.train.lr, config.train.epochs) = (1e30, 1);
    let mut run = Run::create(&temp.path().join("run"), header(&data, config), false).unwrap();
    let error = train_run(&data, &mut run, None, &mut Watch::default()).unwrap_err();
    assert!(matches!(error, Error::Diverged { epoch: 1, .. }), "{error}");
    assert!(read_weights(&temp.path().join("run")).is_err(), "there was nothing to keep");
}

#[test]
fn a_column_that_is_constant_in_training_is_only_centred() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    // 0.1 in training rows, something else in the others: any deviation would be that of rounding.
    let file = data.path().unwrap().join("feat.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let (nodes, width) = (data.split().len(), data.features().cols() * 4);
    let start = bytes.len() - nodes * width;
    for (v, &part) in data.split().iter().enumerate() {
        let value: f32 = if part == 1 { 0.1 } else { 0.4 };
        bytes[start + v * width..][..4].copy_from_slice(&value.to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    let data = Dataset::open(data.path().unwrap()).unwrap();
    let scaling = Scaling::fit(&data, Normalize::Columns).unwrap();
    let kept = scaling.to_state().unwrap();
    assert_eq!(Scaling::from_state("run", &kept, data.features().cols()).unwrap(), scaling);
    let loaded = Data::<f64>::load(&data, Config::new(Kind::Sage).graphs(), scaling, None).unwrap();
    let features = loaded.train.features.full();
    let first = |v: usize| features.run(v..v + 1)[0];
    for (v, &part) in data.split().iter().enumerate() {
        let want = if part == 1 { 0.0 } else { 0.3 };
        assert!((first(v) - want).abs() < 1e-6, "node {v}: {}", first(v));
    }
}

#[test]
fn a_weight_decay_for_nothing_is_refused() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = config(Kind::Gcn);
    config.train.weight_decay_for.insert("conv".into(), 0.1);
    let mut run = Run::create(&temp.path().join("run"), header(&data, config), false).unwrap();
    let error = train_run(&data, &mut run, None, &mut Watch::default()).unwrap_err().to_string();
    assert!(error.contains("\"conv\"") && error.contains("convs.0.bias"), "{error}");
}
