//! Sampled mini-batches: equal to `single` where nothing is left out, the same bits on any number of threads, the same
//! results in any order of nodes, and exact resuming inside an epoch.

use std::cell::Cell;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use halograph_graph::Dataset;
use halograph_graph::dataset::write::FeatureType;
use halograph_graph::dataset::{Metric, ORDER};
use halograph_graph::io::npy::Writer;
use halograph_graph::sample::SamplerKind;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::config::{OptimizerKind, Precision, ScheduleKind, ScheduleUnit};
use halograph_train::event::Ending;
use halograph_train::run::{MemoryRun, Run, read_weights};
use halograph_train::trained::TrainedModel;
use halograph_train::{Config, Event, Observer};
use tempfile::TempDir;

use crate::batches::{
    Outcome, SAMPLERS, Traits, assert_close, assert_losses_close, assert_same_bits, config, every_other,
    from_edges, header, models, random_edges, random_graph, sampled, train, whole,
};
use crate::ranks::support::{self, Watch};
use crate::train_run;

/// Trains each configuration both ways.
fn assert_whole_batches_follow_single(prepare: impl Fn(&mut Config)) {
    for traits in [(false, false, true), (false, true, false), (true, false, false), (true, true, true)] {
        let traits = Traits { self_loops: traits.0, multi_label: traits.1, edge_weights: traits.2 };
        let data = random_graph(traits);
        for mut config in models(&[NormKind::None, NormKind::Layer]) {
            prepare(&mut config);
            for (inductive, input_dropout) in [(false, 0.2), (false, 0.0), (true, 0.2)] {
                (config.data.inductive, config.model.input_dropout) = (inductive, input_dropout);
                let [got, want] = [&whole(&config), &config].map(|config| train(&data, config));
                let what = format!("{:?}, {:?}, {traits:?}", config.model, config.data);
                assert_eq!(got.summary.batches.unwrap().batches, config.train.epochs);
                assert_close(&got, &want, &what);
            }
        }
    }
}

#[test]
fn one_batch_with_all_neighbours_follows_single() {
    assert_whole_batches_follow_single(|_| ());
}

#[test]
fn gradients_of_one_batch_with_all_neighbours_are_those_of_single() {
    // After one large step, weights are little else than the gradient.
    assert_whole_batches_follow_single(|config| {
        config.train.optimizer = OptimizerKind::Sgd;
        (config.train.momentum, config.train.weight_decay) = (0.0, 0.0);
        (config.train.lr, config.train.epochs) = (1e4, 1);
    });
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    // Enough rows of a batch that their sums are made by several tasks.
    let data = from_edges(
        5000,
        &random_edges(5000, 8),
        Traits { self_loops: true, edge_weights: true, ..Traits::default() },
        every_other,
    );
    for kind in Kind::ALL {
        for sampler in SAMPLERS {
            let mut config = sampled(&config(kind), 900, 3);
            (config.train.precision, config.train.sampler) = (Precision::F32, sampler);
            (config.train.epochs, config.train.eval_every) = (2, 2);
            if kind.uses("norm") {
                config.model.norm = NormKind::Batch;
            }
            let runs = [1, 2, 4].map(|threads| {
                config.train.threads = threads;
                train(&data, &config)
            });
            let batches = runs[0].summary.batches.unwrap();
            assert_eq!(batches.batches, 2 * 3);
            assert!(batches.input_nodes > 6 * 2 * 1024, "{} rows", batches.input_nodes);
            for other in &runs[1..] {
                let same = other.summary.batches.unwrap();
                assert_eq!(same.sampled_edges, batches.sampled_edges);
                assert_same_bits(other, &runs[0], &format!("{kind:?}, {sampler:?}"));
            }
        }
    }
}

/// Replaces the stored order of the nodes of a dataset.
fn store_order(data: &Path, order: &[u32]) {
    let _ = fs::remove_file(data.join(ORDER));
    let mut writer = Writer::create(&data.join(ORDER), &[order.len()]).unwrap();
    writer.write(order).unwrap();
    writer.finish().unwrap();
}

#[test]
fn the_order_in_which_nodes_are_stored_changes_only_rounding() {
    // Smaller graphs have no order.
    const NODES: u32 = 4200;
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("data");
    let loops = (0..NODES).step_by(3).map(|v| (v, v));
    let edges: Vec<(u32, u32)> = random_edges(NODES, 8).into_iter().chain(loops).collect();
    support::make(&path, NODES as usize, &edges, true, FeatureType::F32, Metric::Accuracy);
    let mut shuffled: Vec<u32> = (0..NODES).collect();
    shuffled.sort_by_key(|&v| Key::new(4, "order").at(v as u64));
    for (i, kind) in Kind::ALL.into_iter().enumerate() {
        let mut config = sampled(&config(kind), 500, 3);
        config.train.sampler = SAMPLERS[i % 2];
        (config.train.epochs, config.train.eval_every) = (2, 2);
        for inductive in [false, true] {
            config.data.inductive = inductive;
            let runs = [&[][..], &shuffled].map(|order| {
                store_order(&path, order);
                let data = Dataset::open(&path).unwrap();
                assert_eq!(data.order().unwrap().unwrap_or_default(), order);
                train(&data, &config)
            });
            let edges = |run: &Outcome| run.summary.batches.unwrap().sampled_edges;
            assert_eq!(edges(&runs[0]), edges(&runs[1]), "{kind:?}");
            assert_losses_close(&runs[1], &runs[0], &format!("{kind:?}, inductive: {inductive}"));
        }
    }
}

/// A model whose aggregated features can be cached.
fn cached(kind: Kind, layers: usize) -> Config {
    let mut config = config(kind);
    (config.model.layers, config.model.input_dropout) = (layers, 0.0);
    config.train.cache_input_aggregate = true;
    config
}

#[test]
fn cached_aggregates_follow_single() {
    for self_loops in [false, true] {
        let data = random_graph(Traits { self_loops, ..Traits::default() });
        for kind in [Kind::Gcn, Kind::Sage, Kind::Gin] {
            for inductive in [false, true] {
                let mut config = cached(kind, 3);
                config.data.inductive = inductive;
                assert_close(&train(&data, &whole(&config)), &train(&data, &config), &format!("{kind:?}"));
            }
        }
    }
}

#[test]
fn a_first_layer_with_a_cached_aggregate_is_exact_for_any_fanout() {
    for self_loops in [false, true] {
        let data = random_graph(Traits { self_loops, ..Traits::default() });
        for kind in [Kind::Gcn, Kind::Sage, Kind::Gin] {
            let config = cached(kind, 1);
            let want = train(&data, &config);
            for fanout in [1, 3, -1] {
                let got = train(&data, &sampled(&config, 1000, fanout));
                assert_eq!(got.summary.batches.unwrap().sampled_edges, 0, "the only hop is cached");
                assert_close(&got, &want, &format!("{kind:?}, fanout {fanout}"));
            }
        }
    }
}

#[test]
fn small_fanouts_learn_with_and_without_cached_aggregates() {
    let temp = TempDir::new().unwrap();
    let data = support::dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        for sampler in SAMPLERS {
            let mut plain = sampled(&config(kind), 32, 3);
            (plain.train.sampler, plain.model.input_dropout, plain.model.dropout) = (sampler, 0.0, 0.2);
            (plain.train.epochs, plain.train.eval_every) = (20, 20);
            let mut runs = vec![train(&data, &plain)];
            if matches!(kind, Kind::Gcn | Kind::Sage | Kind::Gin) {
                plain.train.cache_input_aggregate = true;
                runs.push(train(&data, &plain));
                let edges = |run: &Outcome| run.summary.batches.unwrap().sampled_edges;
                assert!(edges(&runs[1]) < edges(&runs[0]), "the deepest hop is not sampled");
            }
            for Outcome { summary, .. } in runs {
                let [first, last] = [summary.loss_history[0], summary.loss.unwrap()];
                assert!(last < 0.8 * first, "{kind:?}, {sampler:?}: from {first} to {last}");
            }
        }
    }
}

/// Graphs with little structure, or too much of it.
fn odd_graphs() -> Vec<(&'static str, Dataset)> {
    let star: Vec<(u32, u32)> = (1..40).map(|v| (0, v)).collect();
    // As many edges of node 0 as between all others.
    let hub: Vec<(u32, u32)> = star.iter().copied().chain((1..40).map(|v| (v, v % 39 + 1))).collect();
    let plain = Traits::default();
    let only = |node: usize| move |v: usize| if v == node { 1 } else { 3 };
    vec![
        ("a star", from_edges(40, &star, plain, every_other)),
        ("a hub", from_edges(40, &hub, Traits { self_loops: true, ..plain }, every_other)),
        ("no edges", from_edges(20, &[], plain, every_other)),
        ("self-loops alone", from_edges(20, &[], Traits { self_loops: true, ..plain }, every_other)),
        ("isolated training nodes", from_edges(50, &star, plain, |v| if v < 40 { 3 } else { 1 })),
        ("one training node", from_edges(40, &hub, plain, only(7))),
        ("one isolated training node", from_edges(41, &star, plain, only(40))),
        ("one node", from_edges(1, &[], plain, |_| 1)),
        ("one node with a self-loop", from_edges(1, &[], Traits { self_loops: true, ..plain }, |_| 1)),
    ]
}

#[test]
fn odd_graphs_train() {
    for (name, data) in odd_graphs() {
        for config in models(&[NormKind::None]) {
            let what = format!("{name}, {:?}", config.model.kind);
            let exact = train(&data, &whole(&config));
            assert_close(&exact, &train(&data, &config), &what);
            // No degree is as large: every neighbour is drawn.
            assert_same_bits(&train(&data, &sampled(&config, 1000, 1000)), &exact, &what);
            for sampler in SAMPLERS {
                for batch_size in [1, 7, 1000] {
                    let mut config = sampled(&config, batch_size, 2);
                    config.train.sampler = sampler;
                    let batches = train(&data, &config).summary.batches.unwrap().batches;
                    let training = data.split().iter().filter(|&&part| part == 1).count() as u64;
                    assert_eq!(batches, config.train.epochs * training.div_ceil(batch_size), "{what}");
                }
            }
        }
    }
}

/// Batches of one row have no variance.
#[test]
fn odd_graphs_train_with_batch_norm() {
    for (name, data) in odd_graphs() {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("norm")) {
            let mut config = sampled(&config(kind), 1, 2);
            config.model.norm = NormKind::Batch;
            assert_eq!(train(&data, &config).summary.ending, Ending::Finished, "{name}, {kind:?}");
        }
    }
}

#[test]
fn a_graph_without_training_nodes_is_refused() {
    let data = from_edges(20, &[(0, 1)], Traits::default(), |_| 3);
    let mut run = MemoryRun::new(header(&data, &sampled(&config(Kind::Sage), 8, 2)));
    let error = train_run(&data, &mut run, None, &mut Watch::default()).unwrap_err().to_string();
    assert!(error.contains("no training node") && error.contains("--split"), "{error}");
}

#[test]
fn a_schedule_by_step_changes_the_rate_within_an_epoch() {
    let data = random_graph(Traits::default());
    // 45 training nodes: 5 steps.
    let mut config = sampled(&config(Kind::Sage), 10, 3);
    (config.train.schedule, config.train.epochs) = (ScheduleKind::Cosine, 4);
    let [by_epoch, by_step] = [ScheduleUnit::Epoch, ScheduleUnit::Step].map(|unit| {
        config.train.schedule_unit = unit;
        train(&data, &config)
    });
    assert_eq!(by_step.summary.batches.unwrap().batches, 20);
    let rate = |done: f64| config.train.lr * 0.5 * (1.0 + (std::f64::consts::PI * done / 4.0).cos());
    for (e, (epoch, step)) in by_epoch.epochs.iter().zip(&by_step.epochs).enumerate() {
        // A record holds the rate of the last step.
        assert!((epoch.lr - rate(e as f64)).abs() < 1e-15, "{}", epoch.lr);
        assert!((step.lr - rate(e as f64 + 0.8)).abs() < 1e-15, "{}", step.lr);
    }
    assert_ne!(by_step.epochs[0].loss, by_epoch.epochs[0].loss, "steps of the first epoch differ");
}

#[test]
fn batch_norm_trains_on_batches_and_evaluation_is_exact() {
    let temp = TempDir::new().unwrap();
    let data = support::dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("norm")) {
        for inductive in [false, true] {
            let mut config = sampled(&config(kind), 32, 4);
            (config.model.norm, config.data.inductive) = (NormKind::Batch, inductive);
            (config.model.dropout, config.train.epochs) = (0.2, 15);
            let outcome = train(&data, &config);
            let summary = &outcome.summary;
            let [first, last] = [summary.loss_history[0], summary.loss.unwrap()];
            assert!(last < 0.8 * first, "{kind:?}: from {first} to {last}");
            // Scores depend on the weights alone: those of a run of `single` with the same weights.
            let scores = TrainedModel::of(&outcome.run).unwrap().evaluate(&data).unwrap();
            assert_eq!((scores.train, scores.val, scores.test), (summary.train, summary.val, summary.test));
            let best = outcome.epochs[summary.best_epoch.unwrap() as usize - 1].scores.unwrap();
            assert_eq!(scores, best, "{kind:?}");
            assert!(scores.test.unwrap() > 0.5, "{kind:?}: {:?}", scores.test);
        }
    }
}

/// Steps per epoch, and epochs, of runs that are killed.
const STEPS: u64 = 17;
const EPOCHS: u64 = 3;

fn killed_data() -> Dataset {
    from_edges(2 * STEPS as usize * 4, &random_edges(136, 6), Traits::default(), every_other)
}

fn killed_config(sampler: SamplerKind, checkpoint_seconds: f64) -> Config {
    let mut config = sampled(&config(Kind::Sage), 4, 3);
    (config.train.epochs, config.train.sampler) = (EPOCHS, sampler);
    (config.train.checkpoint_seconds, config.train.threads) = (checkpoint_seconds, 2);
    config
}

/// Kills the process when it is asked for the n-th time whether to stop: once before the first step, in each step
/// between backward and update, and after an epoch.
struct KillAt {
    times: Option<u64>,
    asked: Cell<u64>,
}

impl Observer for KillAt {
    fn on(&mut self, _: &Event) {}

    fn interrupted(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        if self.times == Some(self.asked.get()) {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        false
    }
}

/// Starts or resumes the run at `path`; returns its loss history.
fn train_until_killed(path: &Path, config: &Config, times: Option<u64>) -> Vec<f64> {
    let data = killed_data();
    let (mut run, from) = match path.join("run.json").exists() {
        false => (support::create(path, &data, config), None),
        true => support::resume(path),
    };
    let mut observer = KillAt { times, asked: Cell::new(0) };
    train_run(&data, &mut run, from, &mut observer).unwrap().loss_history
}

const RUN: &str = "HALOGRAPH_TEST_RUN";
const KILL: &str = "HALOGRAPH_TEST_KILL";
const SECONDS: &str = "HALOGRAPH_TEST_SECONDS";
const SAMPLER: &str = "HALOGRAPH_TEST_SAMPLER";

/// The process that is killed by the test after it.
#[test]
#[ignore = "started by another test as a process of its own"]
fn batches_until_killed() {
    let Some(path) = std::env::var_os(RUN) else { return };
    let number = |name: &str| std::env::var(name).unwrap();
    let sampler = SAMPLERS[number(SAMPLER).parse::<usize>().unwrap()];
    let config = killed_config(sampler, number(SECONDS).parse().unwrap());
    train_until_killed(Path::new(&path), &config, Some(number(KILL).parse().unwrap()));
}

#[test]
fn a_run_killed_at_20_random_steps_resumes_bit_identically() {
    let temp = TempDir::new().unwrap();
    let key = Key::new(1, "kills");
    // A checkpoint after every step, or after some.
    for (run, seconds) in [(0, "0"), (1, "0.002")] {
        let [whole, killed] = ["whole", "killed"].map(|name| temp.path().join(format!("{name}-{run}")));
        let config = killed_config(SAMPLERS[run], 1e6);
        let losses = train_until_killed(&whole, &config, None);
        for kill in 0..10 {
            // 10 kills do not reach the end, even if every step is saved.
            let times = 2 + key.below(10 * run as u64 + kill, EPOCHS * STEPS / 10 - 1);
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "minibatch::batches_until_killed", "--ignored"])
                .env(RUN, &killed)
                .env(KILL, times.to_string())
                .env(SECONDS, seconds)
                .env(SAMPLER, run.to_string())
                .output()
                .unwrap()
                .status;
            assert_eq!(status.signal(), Some(9), "kill {kill}: {status}");
        }
        let checkpoint = Run::resume(&killed).unwrap().checkpoint;
        if seconds == "0" {
            assert!(checkpoint.is_some_and(|c| c.partial.is_some()), "killed inside an epoch");
        }
        assert_eq!(train_until_killed(&killed, &config, None), losses);
        let weights = |path: &Path| read_weights(path).unwrap().to_bytes();
        assert!(weights(&killed) == weights(&whole), "other weights");
    }
}
