//! Training that diverges ends on all ranks alike, and what was good is kept.

use halograph_graph::Dataset;
use halograph_graph::generate::Spec;
use halograph_nn::model::Kind;
use halograph_nn::state::State;
use halograph_train::config::ScheduleKind;
use halograph_train::run::{Header, Run, read_weights};
use halograph_train::trained::TrainedModel;
use halograph_train::{Config, Error, Result, Summary};
use tempfile::TempDir;

use super::support::{Watch, config, create, dataset, on_ranks, pipelined, resume, train_each, watches};
use crate::train_run;

const RANKS: usize = 3;

/// On ranks that read fresh rows, and on ranks that read stale ones.
fn strategies(kind: Kind) -> [Config; 2] {
    let config = config(kind);
    [on_ranks(&config, RANKS), pipelined(&config, RANKS)]
}

/// Epochs before the learning rate grows beyond all bounds.
const GOOD: u64 = 4;

/// Where divergence shows, and the learning rate and epochs between evaluations that lead to it.
const CAUSES: [(&str, f64, u64); 3] = [
    // Beyond single precision.
    ("weights", 1e40, GOOD),
    // Weights that are finite, and whose products are not.
    ("outputs", 1e30, 1),
    ("loss", 1e30, GOOD),
];

/// Trains `GOOD` epochs, then with this learning rate.
fn runaway(mut config: Config, lr: f64) -> Config {
    (config.train.lr, config.train.schedule) = (1e-2, ScheduleKind::Step);
    (config.train.step_epochs, config.train.step_factor) = (GOOD, lr / config.train.lr);
    config
}

/// The epoch in which a run diverged: the same on every rank.
#[track_caller]
fn diverged(results: Vec<Result<Option<Summary>>>) -> u64 {
    let epoch = |(rank, result): (usize, Result<Option<Summary>>)| match result {
        Err(Error::Diverged { epoch, step: None, .. }) => epoch,
        Err(error) => panic!("rank {rank}: {error}"),
        Ok(_) => panic!("rank {rank} did not diverge"),
    };
    let epochs: Vec<u64> = results.into_iter().enumerate().map(epoch).collect();
    assert_eq!(epochs, [epochs[0]; RANKS]);
    epochs[0]
}

fn is_finite(state: &State) -> bool {
    state.0.values().all(|tensor| tensor.to_real::<f64>().is_none_or(|all| all.iter().all(|x| x.is_finite())))
}

#[test]
fn the_last_checkpoint_and_the_best_weights_are_kept() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (cause, lr, eval_every) in CAUSES {
        for config in strategies(Kind::Gcn) {
            let mut config = runaway(config, lr);
            (config.train.checkpoint_seconds, config.train.eval_every) = (0.0, eval_every);
            let path = temp.path().join(format!("{cause}-{:?}", config.train.strategy));
            let mut seen = watches(RANKS);
            let epoch = diverged(train_each(&data, &mut create(&path, &data, &config), None, &mut seen));
            assert_eq!(epoch, if cause == "loss" { GOOD + 2 } else { GOOD + 1 }, "{cause}");
            assert!(seen.iter().all(|watch| watch.epochs.len() as u64 == epoch - 1), "{cause}");

            let resumed = Run::resume(&path).unwrap();
            let saved = resumed.checkpoint.unwrap();
            assert_eq!(saved.epoch, epoch - 1, "{cause}");
            assert_eq!(resumed.history, seen[0].epochs, "{cause}");
            let weights = read_weights(&path).unwrap();
            assert!(is_finite(&saved.state) && weights == saved.state.part("best."), "{cause}");
            let best = saved.best.unwrap();
            assert!(best.epoch <= GOOD);
            assert_eq!(resumed.history[best.epoch as usize - 1].scores, Some(best.scores), "{cause}");
            let scores = TrainedModel::open(&path).unwrap().evaluate(&data).unwrap();
            assert_eq!((scores.val, scores.test), (best.scores.val, best.scores.test), "{cause}");
        }
    }
}

#[test]
fn a_run_that_diverged_is_resumed() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in [Kind::Sage, Kind::Gat] {
        for config in strategies(kind) {
            let mut config = runaway(config, 1e40);
            config.train.checkpoint_seconds = 0.0;
            let path = temp.path().join(format!("{}-{:?}", kind.name(), config.train.strategy));
            let mut run = create(&path, &data, &config);
            assert_eq!(diverged(train_each(&data, &mut run, None, &mut watches(RANKS))), GOOD + 1);
            drop(run);
            // It ends the same way, unless the learning rate changes.
            let (mut run, from) = resume(&path);
            assert_eq!(diverged(train_each(&data, &mut run, from, &mut watches(RANKS))), GOOD + 1);
            drop(run);
            let (mut run, from) = resume(&path);
            config.train.step_factor = 1.0;
            run.update_header(Header { config: config.clone(), ..run.header().clone() }).unwrap();
            for result in train_each(&data, &mut run, from, &mut watches(RANKS)) {
                let summary = result.unwrap();
                assert!(summary.is_none_or(|summary| summary.epochs == config.train.epochs));
            }
            drop(run);
            // As if it had had that learning rate from the start.
            let whole = temp.path().join("whole");
            let mut run = create(&whole, &data, &config);
            train_run(&data, &mut run, None, &mut Watch::default()).unwrap();
            assert!(read_weights(&whole).unwrap() == read_weights(&path).unwrap(), "{kind:?}");
            std::fs::remove_dir_all(&whole).unwrap();
        }
    }
}

#[test]
fn without_a_checkpoint_the_best_weights_are_kept_and_the_run_starts_again() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for config in strategies(Kind::Sage) {
        let config = runaway(config, 1e40);
        let path = temp.path().join(format!("{:?}", config.train.strategy));
        let mut run = create(&path, &data, &config);
        assert_eq!(diverged(train_each(&data, &mut run, None, &mut watches(RANKS))), GOOD + 1);
        drop(run);
        assert!(is_finite(&read_weights(&path).unwrap()));
        let (mut run, from) = resume(&path);
        assert!(from.is_none());
        assert_eq!(diverged(train_each(&data, &mut run, from, &mut watches(RANKS))), GOOD + 1);
    }
}

#[test]
fn divergence_in_the_first_epoch_leaves_nothing_to_keep() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for mut config in strategies(Kind::Gcn) {
        config.train.lr = 1e30;
        let path = temp.path().join(format!("{:?}", config.train.strategy));
        let mut run = create(&path, &data, &config);
        assert_eq!(diverged(train_each(&data, &mut run, None, &mut watches(RANKS))), 1);
        drop(run);
        let (mut run, from) = resume(&path);
        assert!(from.is_none() && read_weights(&path).is_err());
        // The cause, not that another rank has failed.
        let error = train_run(&data, &mut run, None, &mut Watch::default()).unwrap_err();
        assert!(matches!(error, Error::Diverged { epoch: 1, .. }), "{error}");
    }
}

/// Features of one test node that overflow in the first layer.
fn with_one_huge_row(data: &Dataset) -> Dataset {
    let file = data.path().unwrap().join("feat.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let (nodes, width) = (data.split().len(), data.features().cols() * 4);
    let start = bytes.len() - nodes * width;
    let test = data.split().iter().position(|&part| part == 3).unwrap();
    for number in bytes[start + test * width..][..width].chunks_exact_mut(4) {
        number.copy_from_slice(&f32::MAX.to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    Dataset::open(data.path().unwrap()).unwrap()
}

#[test]
fn outputs_that_overflow_on_one_rank_end_all_ranks() {
    let temp = TempDir::new().unwrap();
    let data = with_one_huge_row(&dataset(temp.path(), |spec| Spec { edges: 200, ..spec }));
    for mut config in strategies(Kind::Sage) {
        config.data.inductive = true;
        config.train.eval_every = 4;
        let path = temp.path().join(format!("{:?}", config.train.strategy));
        let mut seen = watches(RANKS);
        let mut run = create(&path, &data, &config);
        assert_eq!(diverged(train_each(&data, &mut run, None, &mut seen)), 4);
        let losses: Vec<f64> = seen[0].epochs.iter().map(|epoch| epoch.loss).collect();
        assert!(losses.len() == 3 && losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    }
}
