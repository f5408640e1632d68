//! `minibatch` and `split` on several ranks follow `minibatch` on one process. Neither the size of macrobatches nor cached rows
//! change a bit.

use halograph_graph::Dataset;
use halograph_graph::partition::{Assignment, Layout};
use halograph_graph::progress::Silent;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, NormKind};
use halograph_nn::state::State;
use halograph_train::config::{OptimizerKind, PartitionKind, Precision, RowCache, RowEncoding, StrategyKind};
use halograph_train::launch::{self, Extras};
use halograph_train::run::read_weights;
use halograph_train::{Config, Summary};
use tempfile::TempDir;

use super::support::{create, train_each, watches};
use crate::batches::{
    Outcome, ROUNDING, SAMPLERS, Traits, assert_same_bits, config, every_other, from_edges, models,
    random_edges, random_graph, sampled, train, train_with,
};

/// 45 training nodes: 5 steps per epoch.
const BATCH: u64 = 9;
const STEPS: u64 = 5;
/// 20 steps.
const EPOCHS: u64 = 4;
/// Sizes of macrobatches: each batch alone, some that do not divide an epoch, and by memory.
const MACROBATCHES: [Option<u64>; 3] = [Some(1), Some(3), None];

const STRATEGIES: [StrategyKind; 2] = [StrategyKind::Minibatch, StrategyKind::Split];

/// The models that can cache the aggregate of their inputs.
const CACHED: [Kind; 3] = [Kind::Sage, Kind::Gcn, Kind::Gin];

/// 20 steps on small samples.
fn steps(mut config: Config) -> Config {
    (config.train.epochs, config.train.eval_every) = (EPOCHS, EPOCHS);
    sampled(&config, BATCH, 3)
}

/// The same in single precision with plain gradient descent.
fn descent(mut config: Config, lr: f64) -> Config {
    (config.train.precision, config.train.optimizer) = (Precision::F32, OptimizerKind::Sgd);
    (config.train.momentum, config.train.weight_decay, config.train.lr) = (0.0, 0.0, lr);
    config
}

fn on_ranks(config: &Config, strategy: StrategyKind, ranks: usize, macrobatch: Option<u64>) -> Config {
    let mut config = config.clone();
    (config.train.strategy, config.train.ranks) = (strategy, ranks);
    config.train.macrobatch = macrobatch;
    config
}

/// All models without a norm and with norms that are exact, and those that cache the aggregate of their inputs; on 2 to 4
/// ranks, with settings that are chosen at random, but always alike.
fn cases(strategy: StrategyKind) -> impl Iterator<Item = (Traits, Config, Config)> {
    // With `minibatch`, a batch norm counts a vertex as often as ranks compute it.
    let plain = models(match strategy {
        StrategyKind::Split => &[NormKind::None, NormKind::Layer, NormKind::Batch],
        _ => &[NormKind::None, NormKind::Layer],
    });
    let cached = CACHED.into_iter().flat_map(|kind| {
        [1, 3].map(|layers| {
            let mut config = config(kind);
            (config.model.layers, config.model.input_dropout) = (layers, 0.0);
            config.train.cache_input_aggregate = true;
            config
        })
    });
    let key = Key::new(7, "cases");
    let all =
        plain.into_iter().chain(cached).flat_map(|config| [2, 3, 4].map(|ranks| (config.clone(), ranks)));
    all.zip(0..).map(move |((mut config, ranks), case)| {
        let choose = |what, among| key.with(case).below(what, among) as usize;
        let traits = Traits {
            self_loops: choose(0, 2) == 0,
            multi_label: choose(1, 2) == 0,
            edge_weights: choose(7, 2) == 0,
        };
        config.data.inductive = choose(2, 2) == 0;
        config.train.sampler = SAMPLERS[choose(3, 2)];
        config.train.partition =
            [PartitionKind::Metis, PartitionKind::Random, PartitionKind::Presampled][choose(4, 3)];
        let config = steps(config);
        let mut together = on_ranks(&config, strategy, ranks, MACROBATCHES[choose(5, 3)]);
        together.train.row_encoding = [RowEncoding::Dense, RowEncoding::Nonzero][choose(6, 2)];
        (traits, config, together)
    })
}

fn describe(traits: Traits, config: &Config) -> String {
    let (model, train) = (&config.model, &config.train);
    format!(
        "{:?} of {:?} with norm {:?}, {:?}, {} ranks, macrobatch {:?}, aggregate cached {}, inductive {}, {traits:?}",
        train.strategy,
        model.kind,
        model.norm,
        train.sampler,
        train.ranks,
        train.macrobatch,
        train.cache_input_aggregate,
        config.data.inductive
    )
}

/// Compares the loss of every step.
#[track_caller]
fn assert_follows(together: &Outcome, alone: &Outcome, what: &str) {
    assert_eq!(together.steps.len(), alone.steps.len(), "{what}");
    for (step, (got, want)) in together.steps.iter().zip(&alone.steps).enumerate() {
        assert!(
            (got - want).abs() <= ROUNDING * want.abs(),
            "{what}, step {step}: loss {got} where one process has {want}"
        );
    }
}

/// Returns the norm of the difference of two lists of weights, relative to the norm of the second.
fn relative_difference(got: &State, want: &State) -> f64 {
    let (mut difference, mut norm) = (0.0, 0.0);
    for (name, want) in &want.0 {
        let Some(want) = want.to_real::<f64>() else { continue };
        for (g, w) in got.0[name].to_real::<f64>().unwrap().iter().zip(want) {
            difference += (g - w).powi(2);
            norm += w * w;
        }
    }
    (difference / norm).sqrt()
}

/// Losses of all models, and what is computed for them.
fn assert_every_model_follows(strategy: StrategyKind) {
    for (traits, alone, together) in cases(strategy) {
        let data = random_graph(traits);
        let what = describe(traits, &together);
        let [alone, together] = [alone, together].map(|config| train(&data, &config));
        assert_eq!(alone.steps.len() as u64, EPOCHS * STEPS);
        assert_follows(&together, &alone, &what);
        let scores =
            |outcome: &Outcome| outcome.epochs.iter().map(|e| e.scores.map(|s| s.test)).collect::<Vec<_>>();
        assert_eq!(scores(&together), scores(&alone), "{what}");
        if strategy == StrategyKind::Split {
            // Every vertex of every layer is computed by one rank.
            let [want, got] = [&alone, &together].map(|outcome| outcome.summary.batches.unwrap());
            assert_eq!(got.computed_nodes, want.computed_nodes, "{what}");
            assert_eq!(got.sampled_edges, want.sampled_edges, "{what}");
        }
    }
}

#[test]
fn every_model_follows_one_process_for_20_steps() {
    assert_every_model_follows(StrategyKind::Minibatch);
}

#[test]
fn every_split_model_follows_one_process_for_20_steps() {
    assert_every_model_follows(StrategyKind::Split);
}

#[test]
fn gradients_in_single_precision_are_those_of_one_process() {
    for (traits, alone, together) in STRATEGIES.into_iter().flat_map(|strategy| cases(strategy).step_by(2)) {
        let data = random_graph(traits);
        let what = describe(traits, &together);
        // After one large step, weights are little else than the gradient.
        let [alone, together] = [alone, together].map(|config| {
            let mut config = descent(config, 1e4);
            (config.train.batch_size, config.train.epochs) = (1000, 1);
            train(&data, &config)
        });
        assert_eq!(alone.summary.batches.unwrap().batches, 1);
        let difference = relative_difference(&together.weights, &alone.weights);
        assert!(difference <= 1e-5, "{what}: {difference}");
    }
}

#[test]
fn weights_in_single_precision_follow_one_process_for_20_steps() {
    for (traits, alone, together) in STRATEGIES.into_iter().flat_map(|strategy| cases(strategy).step_by(2)) {
        let data = random_graph(traits);
        let what = describe(traits, &together);
        let [alone, together] = [alone, together].map(|config| train(&data, &descent(config, 0.01)));
        let difference = relative_difference(&together.weights, &alone.weights);
        // A larger rate magnifies rounding: in some of these runs, single precision then differs from double by 7 %.
        assert!(difference <= 1e-4, "{what}: {difference}");
    }
}

#[test]
fn the_encoding_of_rows_changes_no_bit() {
    for (traits, _, config) in cases(StrategyKind::Split).step_by(3) {
        let data = random_graph(traits);
        let [dense, nonzero] = [RowEncoding::Dense, RowEncoding::Nonzero].map(|row_encoding| {
            let mut config = config.clone();
            (config.train.row_encoding, config.train.epochs) = (row_encoding, 2);
            train(&data, &config)
        });
        assert_same_bits(&nonzero, &dense, &describe(traits, &config));
    }
}

/// Rows that the next test keeps, of about 200 remote ones.
const KEPT: u64 = 60;

/// Returns the least memory for batches that is not refused.
fn least_memory(data: &Dataset, config: &Config) -> u64 {
    let assignment = launch::partition_spec(config).assign(data, &Silent).unwrap();
    let layout = Layout::of(data, &assignment).unwrap();
    let suffices = |batch_memory: u64| {
        let mut config = config.clone();
        config.train.batch_memory = batch_memory;
        launch::check_batch_memory(&config, &layout.partition, |part| layout.cut(part)).is_ok()
    };
    let (mut too_little, mut enough) = (0, 1 << 20);
    assert!(suffices(enough) && !suffices(1));
    while enough - too_little > 1 {
        let middle = (too_little + enough) / 2;
        *if suffices(middle) { &mut enough } else { &mut too_little } = middle;
    }
    enough
}

#[test]
fn neither_macrobatches_nor_cached_rows_change_a_bit() {
    let data =
        from_edges(300, &random_edges(300, 8), Traits { self_loops: true, ..Traits::default() }, every_other);
    let kinds = [(Kind::Sage, SAMPLERS[0]), (Kind::Gat, SAMPLERS[1])];
    for (strategy, (kind, sampler)) in STRATEGIES.into_iter().flat_map(|s| kinds.map(|kind| (s, kind))) {
        let mut config = sampled(&config(kind), 10, 3);
        (config.train.precision, config.train.sampler) = (Precision::F32, sampler);
        (config.train.partition, config.train.ranks) = (PartitionKind::Random, 3);
        let with = |macrobatch: Option<u64>, row_cache: RowCache, batch_memory: u64| {
            let mut config = on_ranks(&config, strategy, 3, macrobatch);
            (config.train.row_cache, config.train.batch_memory) = (row_cache, batch_memory);
            train(&data, &config)
        };
        let memory = config.train.batch_memory;
        let first = with(Some(1), RowCache::None, memory);
        for macrobatch in [Some(1), Some(2), Some(4), Some(1 << 40), None] {
            let other = with(macrobatch, RowCache::None, memory);
            assert_same_bits(&other, &first, &format!("{strategy:?}, {kind:?}, {macrobatch:?}"));
        }
        let all = with(Some(2), RowCache::Lru, memory);
        let fetches = |outcome: &Outcome| outcome.summary.fetches.unwrap();
        // All memory that macrobatches do not need is for rows.
        let little =
            least_memory(&data, &on_ranks(&config, strategy, 3, Some(2))) + KEPT * fetches(&all).row_bytes;
        let none = fetches(&with(Some(2), RowCache::None, little));
        assert_eq!(none.fetched_rows, none.remote_rows);
        for row_cache in [RowCache::Lru, RowCache::Degree, RowCache::Future] {
            let other = with(Some(2), row_cache, little);
            let found = fetches(&other);
            assert_same_bits(&other, &first, &format!("{strategy:?}, {kind:?}, {row_cache:?}"));
            assert!(
                found.fetched_rows < none.fetched_rows && (1..=KEPT).contains(&found.kept_rows),
                "{row_cache:?}: {found:?}"
            );
        }
        assert_same_bits(&all, &first, "all rows are kept");
        assert!(fetches(&all).fetched_rows < none.fetched_rows);
    }
}

#[test]
fn threads_and_repetition_change_no_bit() {
    // Enough rows of a batch that their sums are made by several tasks.
    let data = from_edges(5000, &random_edges(5000, 8), Traits::default(), every_other);
    let kinds = [(Kind::Sage, SAMPLERS[1]), (Kind::Gat, SAMPLERS[0])];
    for (strategy, (kind, sampler)) in STRATEGIES.into_iter().flat_map(|s| kinds.map(|kind| (s, kind))) {
        let mut config = on_ranks(&sampled(&config(kind), 1200, 4), strategy, 2, None);
        (config.train.precision, config.train.sampler) = (Precision::F32, sampler);
        (config.train.epochs, config.train.eval_every) = (2, 2);
        let [one, again, two] = [1, 1, 2].map(|threads| {
            config.train.threads = threads;
            train(&data, &config)
        });
        let batches = one.summary.batches.unwrap();
        assert!(batches.input_nodes > 2 * batches.batches * 1024, "{batches:?}");
        assert_same_bits(&again, &one, &format!("{strategy:?}, {kind:?}, repeated"));
        assert_same_bits(&two, &one, &format!("{strategy:?}, {kind:?}, two threads"));
    }
}

/// Trains on ranks as a launcher starts them; returns the losses that each rank saw, the summary and the weights.
fn launched(data: &Dataset, config: &Config) -> (Vec<Vec<f64>>, Summary, State) {
    let temp = TempDir::new().unwrap();
    let mut run = create(&temp.path().join("run"), data, config);
    let mut watches = watches(config.train.ranks);
    let results = train_each(data, &mut run, None, &mut watches);
    let summaries: Vec<Option<Summary>> = results.into_iter().map(|result| result.unwrap()).collect();
    let losses = watches.iter().map(|watch| watch.epochs.iter().map(|epoch| epoch.loss).collect());
    let weights = read_weights(run.path()).unwrap();
    (losses.collect(), summaries.into_iter().flatten().next().unwrap(), weights)
}

#[test]
fn one_rank_with_a_part_follows_one_process_and_macrobatches_change_no_bit() {
    let data = random_graph(Traits { self_loops: true, ..Traits::default() });
    for (strategy, kind) in STRATEGIES.into_iter().flat_map(|s| Kind::ALL.map(|kind| (s, kind))) {
        let config = steps(config(kind));
        let alone = train(&data, &config);
        assert!(alone.summary.fetches.is_none());
        let [one, seven] = [1, 7].map(|size| launched(&data, &on_ranks(&config, strategy, 1, Some(size))));
        assert_eq!(one.0, seven.0, "{kind:?}");
        assert!(one.2 == seven.2, "{kind:?}: other weights");
        // An epoch has five batches.
        assert_eq!(seven.1.fetches.unwrap().macrobatch, 5);
        assert_eq!(one.1.fetches.unwrap().remote_rows, 0);
        for (got, want) in one.0[0].iter().zip(&alone.summary.loss_history) {
            assert!((got - want).abs() <= ROUNDING * want.abs(), "{kind:?}: {got} where {want} was expected");
        }
    }
}

#[test]
fn odd_parts_follow_too() {
    let plain = Traits::default();
    let loops = Traits { self_loops: true, ..plain };
    let edges = random_edges(30, 5);
    let star: Vec<(u32, u32)> = (1..20).map(|leaf| (0, leaf)).collect();
    // Every vertex but the last ones has an edge to vertex 1, and as many edges link others.
    let hub: Vec<(u32, u32)> = (2..36).flat_map(|v| [(1, v), (v, 2 + v * 7 % 34)]).collect();
    let few = |v: usize| if v.is_multiple_of(10) { 1 } else { 3 };
    let graphs = [
        // Parts of random graphs with more ranks than seeds.
        ("more ranks than seeds", from_edges(30, &edges, plain, few), 5, (|v| v % 5) as fn(u32) -> u32),
        ("a rank without vertices", from_edges(30, &edges, plain, every_other), 4, |v| v % 3),
        ("the first rank without vertices", from_edges(30, &edges, plain, every_other), 3, |v| 1 + v / 15),
        ("all seeds on one rank", from_edges(30, &edges, plain, every_other), 2, |v| v % 2),
        ("all vertices on one rank", from_edges(30, &edges, plain, every_other), 3, |_| 1),
        ("one node", from_edges(1, &[], plain, |_| 1), 3, |_| 2),
        ("no edges", from_edges(20, &[], plain, every_other), 3, |v| v % 3),
        ("a star", from_edges(24, &star, plain, every_other), 3, |v| v % 3),
        (
            "a star whose leaves are trained on",
            from_edges(24, &star, plain, |v| 1 + 2 * (v == 0) as u8),
            2,
            |v| (v > 0) as u32,
        ),
        ("self-loops alone", from_edges(20, &[], loops, every_other), 3, |v| v % 3),
        ("a hub with half of all edges", from_edges(40, &hub, loops, every_other), 3, |v| v % 3),
    ];
    for (name, data, ranks, part) in graphs {
        let of = (0..data.graph().nodes() as u32).map(part).collect();
        let assignment = Assignment::new(ranks as u32, of).unwrap();
        // One seed, some seeds, and more than there are; one hop, and all neighbours.
        let sizes = [(1, Some(4), 3, 2), (4, Some(3), 1, 2), (100, None, 2, -1)];
        let kinds = [Kind::Sage, Kind::Gat, Kind::Gcnii];
        for (kind, (batch_size, macrobatch, layers, fanout)) in
            kinds.into_iter().flat_map(|kind| sizes.map(|size| (kind, size)))
        {
            let mut config = config(kind);
            config.model.layers = layers;
            let config = sampled(&config, batch_size, fanout);
            let alone = train(&data, &config);
            for strategy in STRATEGIES {
                let extras = Extras { assignment: Some(&assignment), ..Extras::default() };
                let together = train_with(&data, &on_ranks(&config, strategy, ranks, macrobatch), extras);
                let what = format!("{name}, {strategy:?}, {kind:?}, batches of {batch_size}");
                assert_follows(&together, &alone, &what);
                for (got, want) in together.summary.loss_history.iter().zip(&alone.summary.loss_history) {
                    assert!((got - want).abs() <= ROUNDING * want.abs(), "{what}: {got} and {want}");
                }
            }
        }
    }
}

/// A vertex that several ranks compute counts as often, so losses are not those of one process.
#[test]
fn batch_norm_trains_and_all_ranks_see_the_same_losses() {
    let data = random_graph(Traits::default());
    for kind in Kind::ALL.into_iter().filter(|kind| kind.uses("norm")) {
        let mut config = steps(config(kind));
        config.model.norm = NormKind::Batch;
        for (batch_size, macrobatch) in [(1, Some(8)), (BATCH, Some(2))] {
            config.train.batch_size = batch_size;
            let (losses, summary, _) =
                launched(&data, &on_ranks(&config, StrategyKind::Minibatch, 3, macrobatch));
            assert!(losses[0].iter().all(|loss| loss.is_finite()), "{kind:?}: {losses:?}");
            assert!(losses.iter().all(|of_rank| *of_rank == losses[0]), "{kind:?}: {losses:?}");
            assert_eq!(summary.loss_history, losses[0], "{kind:?}");
        }
    }
}
