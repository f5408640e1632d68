//! Class weights, metrics and scores of single classes: on ranks as in one process.

use halograph_graph::Dataset;
use halograph_graph::dataset::{Metric, Task};
use halograph_graph::generate::Spec;
use halograph_graph::partition::{Assignment, Layout, Origin, PartitionSpec, folder};
use halograph_graph::progress::Silent;
use halograph_nn::model::Kind;
use halograph_train::config::{ClassWeights, PartitionKind, Precision, StrategyKind};
use halograph_train::event::EpochRecord;
use halograph_train::launch::{DataSource, partition_spec};
use halograph_train::{Config, Summary, TrainedModel};
use tempfile::TempDir;

use super::support::{
    Watch, assert_follows, assert_resumes, config, create, dataset, hybrid, layers, on_ranks, pipelined, run,
};
use crate::train_run;

/// Losses relative to those of one process.
const ROUNDING: f64 = 1e-9;

fn data(folder: &TempDir, multi_label: bool) -> Dataset {
    let path = folder.path().join(if multi_label { "multi" } else { "single" });
    dataset(&path, |spec| Spec { multi_label, train: 0.4, val: 0.3, ..spec })
}

fn weighted(weights: ClassWeights, inductive: bool) -> Config {
    let mut config = config(Kind::Sage);
    (config.model.layers, config.train.epochs) = (2, 6);
    config.train.precision = Precision::F64;
    config.train.class_weights = Some(weights);
    config.data.inductive = inductive;
    config
}

fn sampled(config: &Config, strategy: StrategyKind, ranks: usize) -> Config {
    let mut config = config.clone();
    (config.train.strategy, config.train.ranks) = (strategy, ranks);
    (config.train.batch_size, config.train.fanout) = (50, vec![3, 3]);
    config
}

/// Checks that a run follows another one, and that it has the same scores of every class.
#[track_caller]
fn assert_equal(data: &Dataset, together: &Config, (alone, epochs): (&Summary, &[EpochRecord])) {
    let (summary, watch, _) = run(data, together);
    let what = format!("{} on {} ranks", together.train.strategy.name(), together.train.ranks);
    assert_follows(&watch.epochs, epochs, ROUNDING, &what);
    assert!(summary.classes.is_some(), "{what}");
    assert_eq!(summary.classes, alone.classes, "{what}");
    assert_eq!(summary.class_weights, alone.class_weights, "{what}");
    for (own, other) in watch.epochs.iter().zip(epochs) {
        let [own, other] = [own, other].map(|epoch| epoch.scores.expect("every epoch is evaluated"));
        assert_eq!((own.train, own.val, own.test), (other.train, other.val, other.test), "{what}");
        let [own, other] = [own.val_loss, other.val_loss].map(|loss| loss.expect("validation nodes"));
        assert!((own - other).abs() <= ROUNDING * other.abs(), "{what}: {own} and {other}");
    }
}

#[test]
fn weighted_losses_and_class_scores_follow_one_process() {
    for (multi_label, metric) in
        [(false, Metric::BalancedAccuracy), (false, Metric::MacroF1), (true, Metric::MacroF1)]
    {
        let temp = TempDir::new().unwrap();
        let data = data(&temp, multi_label);
        let given = ClassWeights::Given(vec![0.25, 7.0, 1.5]);
        let weights = if metric == Metric::BalancedAccuracy { ClassWeights::Balanced } else { given };
        let mut config = weighted(weights, metric == Metric::BalancedAccuracy);
        config.train.metric = Some(metric);
        let (alone, watch, _) = run(&data, &config);
        let single = (&alone, &watch.epochs[..]);
        assert_eq!((alone.metric, data.manifest.task == Task::MultiLabel), (metric, multi_label));
        let mut fresh = pipelined(&config, 2);
        fresh.train.staleness = 0;
        let exact = [on_ranks(&config, 3), fresh, layers(&config, 2, 1), hybrid(&config, (2, 2), 2)];
        exact.iter().for_each(|config| assert_equal(&data, config, single));

        let batches = sampled(&config, StrategyKind::Minibatch, 1);
        let (alone, watch, _) = run(&data, &batches);
        for strategy in [StrategyKind::Minibatch, StrategyKind::Split] {
            assert_equal(&data, &sampled(&config, strategy, 3), (&alone, &watch.epochs));
        }
    }
}

#[test]
fn class_weights_change_the_loss() {
    let temp = TempDir::new().unwrap();
    let data = data(&temp, false);
    let loss = |weights: Option<Vec<f64>>| {
        let mut config = weighted(ClassWeights::Balanced, false);
        config.train.class_weights = weights.map(ClassWeights::Given);
        run(&data, &config).0.loss_history
    };
    assert_eq!(loss(Some(vec![1.0; 3])), loss(None), "weights of 1 change no bit");
    let (plain, doubled, skewed) = (loss(None), loss(Some(vec![2.0; 3])), loss(Some(vec![1.0, 9.0, 1.0])));
    // The mean is divided by the sum of the weights, so that only their ratios count.
    assert!(plain.iter().zip(&doubled).all(|(a, b)| (a - b).abs() <= ROUNDING * a), "{plain:?} {doubled:?}");
    assert!((plain[0] - skewed[0]).abs() > 1e-3, "{plain:?} {skewed:?}");
}

#[test]
fn the_metric_decides_what_is_best() {
    let temp = TempDir::new().unwrap();
    let data = data(&temp, false);
    for metric in [Metric::Accuracy, Metric::BalancedAccuracy, Metric::MacroF1, Metric::MicroF1] {
        let mut config = weighted(ClassWeights::Balanced, false);
        (config.train.metric, config.train.epochs) = (Some(metric), 12);
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("run");
        let mut store = create(&path, &data, &config);
        let mut watch = Watch::default();
        let summary = train_run(&data, &mut store, None, &mut watch).unwrap();
        drop(store);
        let vals: Vec<f64> = watch.epochs.iter().filter_map(|epoch| epoch.scores?.val).collect();
        assert_eq!(summary.val, vals.iter().copied().reduce(f64::max), "{metric}");
        let classes = summary.classes.clone().expect("the run is complete");
        let [val, test] = [&classes.val, &classes.test].map(|scores| {
            let scores = scores.as_ref().expect("there are nodes");
            match metric {
                Metric::BalancedAccuracy => scores.balanced_accuracy,
                Metric::MacroF1 => Some(scores.macro_f1),
                _ => scores.accuracy,
            }
        });
        assert_eq!((summary.val, summary.test), (val, test), "{metric}");
        let trained = TrainedModel::open(&path).unwrap();
        let found = trained.evaluate_classes(&data).unwrap();
        assert_eq!((found.scores.val, found.classes), (summary.val, summary.classes), "{metric}");
    }
}

#[test]
fn shards_are_scored_like_the_dataset() {
    let temp = TempDir::new().unwrap();
    let data = data(&temp, false);
    let mut config = weighted(ClassWeights::Balanced, false);
    config.train.metric = Some(Metric::MacroF1);
    let path = temp.path().join("run");
    let mut store = create(&path, &data, &config);
    let summary = train_run(&data, &mut store, None, &mut Watch::default()).unwrap();
    drop(store);
    let mut partitioned = on_ranks(&config, 3);
    partitioned.train.partition = PartitionKind::Random;
    let spec: PartitionSpec = partition_spec(&partitioned);
    let assignment: Assignment = spec.assign(&data, &Silent).unwrap();
    let shards = temp.path().join("shards");
    let layout = Layout::of(&data, &assignment).unwrap();
    folder::write(&shards, false, &layout, &Origin::from(&spec), &Silent).unwrap();
    let trained = TrainedModel::open(&path).unwrap();
    let found = trained.evaluate_classes(DataSource::Shards(&shards)).unwrap();
    assert_eq!(found.classes, summary.classes);
    assert_eq!((found.scores.train, found.scores.val), (summary.train, summary.val));
}

#[test]
fn weighted_runs_on_ranks_resume_to_the_same_bits() {
    let temp = TempDir::new().unwrap();
    let data = data(&temp, false);
    let mut config = weighted(ClassWeights::Balanced, false);
    config.train.metric = Some(Metric::MacroF1);
    for config in
        [on_ranks(&config, 2), sampled(&config, StrategyKind::Minibatch, 2), hybrid(&config, (2, 2), 4)]
    {
        assert_resumes(&data, &config, 3);
    }
}

#[test]
fn weights_of_zero_for_all_training_nodes_are_refused() {
    let temp = TempDir::new().unwrap();
    let data = super::support::from_edges(&temp.path().join("data"), 6, &[(0, 1), (3, 4)]);
    // Training nodes 0 and 3 have the classes 0 and 1; none has class 2.
    let mut config = weighted(ClassWeights::Given(vec![0.0, 0.0, 1.0]), false);
    for config in [config.clone(), on_ranks(&config, 2)] {
        let folder = TempDir::new().unwrap();
        let mut store = create(&folder.path().join("run"), &data, &config);
        let error = train_run(&data, &mut store, None, &mut Watch::default()).unwrap_err().to_string();
        assert!(error.contains("all training nodes have weight 0"), "{error}");
    }
    config.train.class_weights = Some(ClassWeights::Given(vec![0.0; 3]));
    assert!(config.check().unwrap_err().to_string().contains("above 0 for one class or more"));
}
