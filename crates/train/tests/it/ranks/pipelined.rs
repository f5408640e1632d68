//! `pipelined`: staleness is its only error.

use halograph_graph::generate::Spec;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::Config;
use halograph_train::config::{OptimizerKind, PartitionKind, Precision, ScheduleKind, Smooth};
use tempfile::TempDir;

use super::support::{
    assert_resumes, assert_survives, config, dataset, from_edges, on_ranks, pipelined, run,
};

/// Weights that do not move for so many epochs, then take one step; nothing is dropped.
fn frozen(kind: Kind, epochs: u64) -> Config {
    let mut config = config(kind);
    config.model.dropout = 0.0;
    config.model.input_dropout = 0.0;
    config.model.attention_dropout = 0.0;
    config.model.layers = 3;
    let train = &mut config.train;
    (train.epochs, train.eval_every) = (epochs + 1, epochs + 1);
    (train.optimizer, train.momentum, train.weight_decay) = (OptimizerKind::Sgd, 0.0, 0.0);
    // Nothing in single precision.
    (train.lr, train.schedule, train.step_epochs) = (1e-60, ScheduleKind::Step, epochs);
    train.step_factor = 1e58;
    config
}

#[test]
fn with_frozen_weights_it_is_exact_after_as_many_epochs_as_there_are_layers() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (kind, staleness) in Kind::ALL.into_iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
        // All epochs of the forward, as many of the backward.
        let layers = 3 * staleness;
        let config = frozen(kind, 2 * layers);
        let (_, exact, weights) = run(&data, &on_ranks(&config, 3));
        let mut config = pipelined(&config, 3);
        (config.train.staleness, config.train.warmup_epochs) = (staleness, 0);
        let (_, stale, end) = run(&data, &config);
        let losses = |epochs: &[halograph_train::event::EpochRecord]| -> Vec<f64> {
            epochs.iter().map(|epoch| epoch.loss).collect()
        };
        let (exact, stale) = (losses(&exact.epochs), losses(&stale.epochs));
        assert_eq!(exact[layers as usize..], stale[layers as usize..], "{} {staleness}", kind.name());
        assert_ne!(exact[0], stale[0], "{}: nothing is read in the first epoch", kind.name());
        // The last step was the first that moved anything.
        assert!(weights == end, "{} {staleness}", kind.name());
    }
}

#[test]
fn gradients_of_frozen_weights_are_not_right_before_that() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let config = frozen(Kind::Sage, 2);
    let (_, _, weights) = run(&data, &on_ranks(&config, 3));
    let mut config = pipelined(&config, 3);
    config.train.warmup_epochs = 0;
    assert!(run(&data, &config).2 != weights);
}

#[test]
fn without_staleness_it_is_partition_to_the_bit() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        let mut config = config(kind);
        config.train.epochs = 6;
        let mut never = pipelined(&config, 3);
        never.train.staleness = 0;
        let mut warm = pipelined(&config, 3);
        warm.train.warmup_epochs = 6;
        let mut cool = pipelined(&config, 3);
        (cool.train.cooldown_epochs, cool.train.smooth) = (6, Smooth::Gf);
        for config in [never, warm, cool, pipelined(&config, 1)] {
            let (exact, _, weights) = run(&data, &on_ranks(&config, config.train.ranks));
            let (found, _, end) = run(&data, &config);
            assert_eq!(found.loss_history, exact.loss_history, "{}", kind.name());
            assert!(end == weights, "{}", kind.name());
        }
    }
}

#[test]
fn it_sends_what_partition_sends() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { train: 0.1, ..spec });
    for kind in Kind::ALL {
        let mut config = config(kind);
        config.train.epochs = 3;
        let (exact, ..) = run(&data, &on_ranks(&config, 4));
        let mut config = pipelined(&config, 4);
        config.train.smooth = Smooth::Gf;
        let (stale, ..) = run(&data, &config);
        assert!(exact.bytes_per_epoch > 0);
        assert_eq!(stale.bytes_by_tag, exact.bytes_by_tag, "{}", kind.name());
        assert_eq!(stale.messages_per_epoch, exact.messages_per_epoch, "{}", kind.name());
        assert_ne!(stale.loss_history, exact.loss_history, "{}", kind.name());
    }
}

/// Epochs of all kinds, and all that can be averaged.
fn eventful(kind: Kind) -> Config {
    let mut config = pipelined(&config(kind), 3);
    if kind != Kind::Resgcn {
        config.model.norm = NormKind::Batch;
    }
    config.train.epochs = 14;
    (config.train.staleness, config.train.smooth) = (2, Smooth::Gf);
    (config.train.warmup_epochs, config.train.cooldown_epochs) = (2, 2);
    config
}

#[test]
fn an_interrupted_run_ends_as_if_it_had_not_been() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        // In the warm-up, at its end, amid stale epochs, and after the last of them.
        for epoch in [1, 2, 3, 7, 12, 13] {
            assert_resumes(&data, &eventful(kind), epoch);
        }
        let mut plain = pipelined(&config(kind), 3);
        (plain.train.epochs, plain.train.warmup_epochs) = (8, 0);
        assert_resumes(&data, &plain, 1);
        assert_resumes(&data, &plain, 5);
    }
}

#[test]
fn overlap_and_threads_change_no_bit() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let config = eventful(Kind::Gat);
    let mut other = config.clone();
    other.train.overlap = halograph_train::config::Overlap::Off;
    other.train.threads = 2;
    let (one, two) = (run(&data, &config), run(&data, &other));
    assert!((one.0.loss_history, one.2) == (two.0.loss_history, two.2));
}

#[test]
fn more_staleness_than_epochs_reads_the_first_one_for_ever() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (kind, precision) in [(Kind::Sage, Precision::F64), (Kind::Gcn, Precision::F32)] {
        let mut config = pipelined(&config(kind), 3);
        config.data.inductive = true;
        (config.train.epochs, config.train.precision) = (5, precision);
        let losses = [1, 4, 5, 100].map(|staleness| {
            config.train.staleness = staleness;
            run(&data, &config).0.loss_history
        });
        losses[1..].iter().for_each(|found| assert_eq!(*found, losses[1], "{}", kind.name()));
        assert_ne!(losses[0], losses[1], "{}", kind.name());
        config.train.staleness = 100;
        assert_resumes(&data, &config, 3);
    }
}

#[test]
fn a_rank_that_panics_or_falls_silent_ends_all_and_loses_nothing() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    assert_survives(&data, &eventful(Kind::Sage));
}

#[test]
fn odd_parts_train() {
    let temp = TempDir::new().unwrap();
    let few = dataset(&temp.path().join("few"), |spec| Spec { nodes: 6, edges: 12, ..spec });
    let mut edges: Vec<(u32, u32)> = (1..20).map(|v| (0, v)).collect();
    edges.push((20, 21));
    let star = from_edges(&temp.path().join("star"), 26, &edges);
    for (data, ranks) in [(&few, 9), (&star, 5)] {
        for kind in Kind::ALL {
            let mut config = eventful(kind);
            (config.train.ranks, config.train.partition) = (ranks, PartitionKind::Random);
            let (summary, ..) = run(data, &config);
            assert_eq!(summary.epochs, 14);
            assert!(summary.loss.unwrap().is_finite());
        }
    }
}

#[test]
fn what_is_measured_is_what_is_read_and_changes_nothing() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let config = eventful(Kind::Gcn);
    let mut measured = config.clone();
    measured.train.measure_staleness = true;
    let (plain, _, weights) = run(&data, &config);
    let (summary, watch, end) = run(&data, &measured);
    assert!((summary.loss_history, end) == (plain.loss_history, weights));
    for epoch in &watch.epochs {
        let is_stale = (3..=12).contains(&epoch.epoch);
        assert_eq!(epoch.staleness.is_some(), is_stale, "epoch {}", epoch.epoch);
        let Some(found) = &epoch.staleness else { continue };
        let layers = config.model.layers;
        assert_eq!((found.features.len(), found.gradients.len()), (layers, layers));
        let all = found.features.iter().chain(&found.gradients).flatten();
        assert!(all.clone().count() > 0 && all.clone().all(|&x| x > 0.0 && x < 10.0), "{found:?}");
    }
    // Nothing moves, so nothing is stale once it has gone through all layers.
    let mut still = pipelined(&frozen(Kind::Gcn, 8), 3);
    (still.train.warmup_epochs, still.train.measure_staleness) = (0, true);
    let epochs = run(&data, &still).1.epochs;
    let of = |epoch: usize| epochs[epoch - 1].staleness.clone().unwrap();
    let all = |epoch: usize| -> Vec<f64> {
        let found = of(epoch);
        found.features.into_iter().chain(found.gradients).flatten().collect()
    };
    assert!(all(1).iter().all(|&x| x == 1.0), "nothing at all is as far away as that: {:?}", all(1));
    assert!(all(8).iter().all(|&x| x == 0.0), "{:?}", all(8));
}
