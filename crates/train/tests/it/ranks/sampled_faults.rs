//! Mini-batches on ranks that are interrupted or fail: no step is lost or repeated.

use std::path::Path;

use halograph_graph::Dataset;
use halograph_graph::sample::SamplerKind;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::config::{RowCache, RowEncoding, StrategyKind};
use halograph_train::event::{Ending, EpochRecord, Scores};
use halograph_train::launch::Fault;
use halograph_train::run::{Header, Run, read_weights};
use halograph_train::trainer::ResumePoint;
use halograph_train::{Config, Summary};
use tempfile::TempDir;

use super::support::{self, assert_survives, create, dataset, resume, train_each, train_each_with, watches};
use crate::batches::sampled;

const RANKS: usize = 3;
const MACROBATCH: u64 = 4;

/// Epochs of about ten steps, in macrobatches that do not divide them.
fn config(strategy: StrategyKind, kind: Kind, batch_size: u64) -> Config {
    let mut config = sampled(&support::config(kind), batch_size, 3);
    config.train.strategy = strategy;
    (config.train.ranks, config.train.epochs) = (RANKS, 3);
    config.train.macrobatch = Some(MACROBATCH);
    config
}

/// Trains until rank `stop.0` has seen `stop.1` steps and one more, if it is to stop.
fn train_until(
    data: &Dataset,
    run: &mut Run,
    from: Option<ResumePoint>,
    stop: Option<(usize, u64)>,
) -> Summary {
    let mut watches = watches(RANKS);
    if let Some((rank, steps)) = stop {
        watches[rank].stop_after_steps = Some(steps);
    }
    let results = train_each(data, run, from, &mut watches);
    results.into_iter().find_map(|result| result.unwrap()).unwrap()
}

/// Returns what must not depend on interruptions.
fn results(path: &Path) -> (Vec<(f64, Option<Scores>)>, Vec<u8>) {
    let epoch = |epoch: EpochRecord| (epoch.loss, epoch.scores);
    let epochs = Run::resume(path).unwrap().history.into_iter().map(epoch).collect();
    (epochs, read_weights(path).unwrap().to_bytes())
}

#[test]
fn a_run_stopped_inside_epochs_and_macrobatches_resumes_bit_identically() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (strategy, kind) in [
        (StrategyKind::Minibatch, Kind::Sage),
        (StrategyKind::Minibatch, Kind::Gat),
        (StrategyKind::Split, Kind::Sage),
        (StrategyKind::Split, Kind::Gat),
    ] {
        let mut config = config(strategy, kind, 16);
        config.model.norm = NormKind::Batch;
        if kind == Kind::Gat {
            config.train.sampler = SamplerKind::Labor;
        }
        let [whole, parts] =
            ["whole", "parts"].map(|name| temp.path().join(format!("{name}-{strategy:?}-{}", kind.name())));
        let summary = train_until(&data, &mut create(&whole, &data, &config), None, None);
        let steps = summary.batches.unwrap().per_epoch;
        assert!(steps > 2 * MACROBATCH && !steps.is_multiple_of(MACROBATCH), "{steps} steps");
        let want = results(&whole);

        // In the first macrobatch, at the end of one, in the last one of an epoch, and in another epoch.
        let stops = [(0, 1, 2), (2, 1, MACROBATCH), (1, steps - MACROBATCH - 2, steps - 1), (0, 3, 3)];
        let mut run = create(&parts, &data, &config);
        let mut from = None;
        for (rank, more, step) in stops {
            let summary = train_until(&data, &mut run, from, Some((rank, more)));
            assert_eq!((summary.ending, summary.step), (Ending::Interrupted, step), "{kind:?}");
            drop(run);
            (run, from) = resume(&parts);
            assert!(from.is_some());
        }
        // Another size of macrobatches, cache or encoding is no other run.
        (config.train.macrobatch, config.train.row_cache) = (Some(3), RowCache::Lru);
        config.train.row_encoding = RowEncoding::Dense;
        run.update_header(Header { config, ..run.header().clone() }).unwrap();
        assert_eq!(train_until(&data, &mut run, from, None).ending, Ending::Finished);
        drop(run);
        let found = results(&parts);
        assert_eq!(found.0, want.0, "{strategy:?}, {kind:?}");
        assert!(found.1 == want.1, "{strategy:?}, {kind:?}: other weights");
    }
}

fn assert_nothing_is_lost(strategy: StrategyKind) {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = config(strategy, Kind::Sage, 64);
    config.train.epochs = 8;
    assert_survives(&data, &config);
}

#[test]
fn a_rank_that_panics_or_falls_silent_ends_all_and_loses_nothing() {
    assert_nothing_is_lost(StrategyKind::Minibatch);
}

#[test]
fn a_rank_of_a_split_run_that_panics_or_falls_silent_ends_all_and_loses_nothing() {
    assert_nothing_is_lost(StrategyKind::Split);
}

#[test]
fn every_rank_names_the_one_that_failed() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let strategies = [StrategyKind::Minibatch, StrategyKind::Split];
    for (strategy, (rank, epoch)) in
        strategies.into_iter().flat_map(|s| [(0, 1), (1, 2), (2, 3)].map(|at| (s, at)))
    {
        let path = temp.path().join(format!("run-{strategy:?}-{rank}"));
        let mut run = create(&path, &data, &config(strategy, Kind::Gcn, 16));
        let fault = Some(Fault { rank, epoch, stalls: false });
        let results = train_each_with(&data, &mut run, None, &mut watches(RANKS), fault);
        for (of, result) in results.into_iter().enumerate() {
            let Err(error) = result else { panic!("rank {of} does not fail") };
            let error = error.to_string();
            assert!(error.contains(&format!("rank {rank}")), "rank {of}: {error}");
            assert!(error.contains("a panic was requested"), "rank {of}: {error}");
        }
    }
}
