//! `layers` and `hybrid`: with one chunk per part exact; with several the same bits whenever they are run.

use halograph_graph::dataset::Metric;
use halograph_graph::dataset::write::FeatureType;
use halograph_graph::generate::Spec;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, NormKind};
use halograph_train::config::{
    ChunkOrder, GradientWeighting, HistoryInit, Normalize, Overlap, PartitionKind, Precision, TrainConfig,
};
use halograph_train::cost::{Boundary, NumberBytes, RowBytes, StepBytes, boundary_bytes};
use halograph_train::event::EpochRecord;
use halograph_train::{Config, Summary};
use tempfile::TempDir;

use super::support::{
    Watch, assert_ends_as, assert_follows, assert_resumes, assert_same_weights, assert_survives, config,
    create, dataset, from_edges, hybrid, layers, make, on_ranks, run,
};
use crate::train_run;

/// Deep enough for four groups of stages.
fn deep(kind: Kind) -> Config {
    let mut config = config(kind);
    config.model.layers = 4;
    config.train.precision = Precision::F64;
    config
}

/// With batch norm where the model has one.
fn with_batch_norm(kind: Kind) -> Vec<Config> {
    let config = deep(kind);
    let mut batch = config.clone();
    batch.model.norm = NormKind::Batch;
    [config, batch].into_iter().filter(|config| config.check().is_ok()).collect()
}

fn scores(epochs: &[EpochRecord]) -> Vec<(Option<f64>, Option<f64>, Option<f64>)> {
    epochs.iter().filter_map(|e| e.scores).map(|s| (s.train, s.val, s.test)).collect()
}

#[test]
fn one_chunk_follows_one_process() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        for config in with_batch_norm(kind) {
            let (_, alone, weights) = run(&data, &config);
            for ranks in 2..=4 {
                let what = format!("{} with norm {:?} on {ranks} ranks", kind.name(), config.model.norm);
                let (summary, together, own) = run(&data, &layers(&config, ranks, 1));
                assert_follows(&together.epochs, &alone.epochs, 1e-9, &what);
                assert_eq!(scores(&together.epochs), scores(&alone.epochs), "{what}");
                assert_eq!(summary.parts.len(), 1);
                assert_same_weights(&own, &weights, 1e-9, &what);
            }
        }
    }
}

#[test]
fn one_chunk_per_part_follows_one_process() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        for config in with_batch_norm(kind) {
            let (_, alone, weights) = run(&data, &config);
            let what = format!("{} with norm {:?}", kind.name(), config.model.norm);
            let (_, together, own) = run(&data, &hybrid(&config, (2, 2), 2));
            assert_follows(&together.epochs, &alone.epochs, 1e-9, &what);
            assert_same_weights(&own, &weights, 1e-9, &what);
            assert_eq!(scores(&together.epochs), scores(&alone.epochs), "{what}");
        }
    }
}

/// Depth of gcnii for which the first of so many groups is the initial stage alone.
fn initial_alone(stages: usize) -> Config {
    let mut config = deep(Kind::Gcnii);
    config.model.layers = stages - 1;
    config
}

/// The boundary right after the initial stage of gcnii, where rows and gradients have a form of their own.
#[test]
fn a_group_of_the_initial_stage_alone_follows_one_process() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (stages, ways) in [(3, 1), (4, 1), (3, 2)] {
        let config = initial_alone(stages);
        let (_, alone, weights) = run(&data, &config);
        let (summary, together, own) = run(&data, &hybrid(&config, (stages, ways), ways as u64));
        let what = format!("{stages} groups of {ways} ways");
        assert_eq!(stage_groups(&summary)[0], [0, 1], "{what}");
        assert_follows(&together.epochs, &alone.epochs, 1e-9, &what);
        assert_eq!(scores(&together.epochs), scores(&alone.epochs), "{what}");
        assert_same_weights(&own, &weights, 1e-9, &what);
    }
}

/// Several chunks, current and stale history, with or without several steps per epoch.
fn approximate(config: &Config) -> Vec<Config> {
    let mut stale = config.clone();
    (stale.layers.history_epochs, stale.layers.steps_per_epoch) = (2, 2);
    [config.clone(), stale]
        .map(|config| Config { train: TrainConfig { epochs: 8, ..config.train }, ..config })
        .into()
}

/// Splitting the model changes no number: the same parts are cut into the same chunks.
#[test]
fn more_groups_of_stages_follow_fewer() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let splits = [((1, 2), (2, 2)), ((2, 1), (4, 1))];
    let models = Kind::ALL.map(|kind| splits.map(|split| (deep(kind), split)));
    // The last ones have a group of the initial stage alone.
    let initial = [(initial_alone(4), ((2, 1), (4, 1))), (initial_alone(3), ((1, 2), (3, 2)))];
    for (config, (few, many)) in models.into_iter().flatten().chain(initial) {
        for config in approximate(&config) {
            let (_, one, weights) = run(&data, &hybrid(&config, few, 8));
            let (summary, split, own) = run(&data, &hybrid(&config, many, 8));
            let Config { model, layers, .. } = &config;
            let what =
                format!("{} of {} layers on {many:?} ranks, {layers:?}", model.kind.name(), model.layers);
            assert!(model.layers == 4 || stage_groups(&summary)[0] == [0, 1], "{what}");
            assert_follows(&split.epochs, &one.epochs, 1e-9, &what);
            assert_same_weights(&own, &weights, 1e-9, &what);
        }
    }
}

#[test]
fn few_training_nodes_fixed_sums_inductive_graphs_and_clipping_follow_too() {
    let temp = TempDir::new().unwrap();
    type Change = (&'static str, f64, fn(&mut Config));
    let all: [Change; 4] = [
        // Later stages compute fewer rows.
        ("few training nodes", 0.02, |c| c.model.input_dropout = 0.0),
        ("fixed sums and clipping", 0.5, |c| (c.model.input_dropout, c.train.clip) = (0.0, 0.1)),
        ("columns", 0.5, |c| c.data.normalize = Normalize::Columns),
        ("inductive", 0.5, |c| (c.data.inductive, c.model.input_dropout) = (true, 0.0)),
    ];
    for (name, train, change) in &all {
        let path = temp.path().join(name);
        let data = dataset(&path, |spec| Spec { nodes: 600, edges: 1200, train: *train, val: 0.2, ..spec });
        for kind in Kind::ALL {
            let mut config = deep(kind);
            change(&mut config);
            let (_, alone, _) = run(&data, &config);
            for split in [layers(&config, 3, 1), hybrid(&config, (2, 2), 2)] {
                let (_, together, _) = run(&data, &split);
                let what = format!("{} with {name}, {}", kind.name(), split.train.strategy.name());
                assert_follows(&together.epochs, &alone.epochs, 1e-9, &what);
            }
        }
    }
}

#[test]
fn directed_graphs_halves_several_labels_and_single_precision_follow_too() {
    let temp = TempDir::new().unwrap();
    let key = Key::new(2, "edges");
    let edges: Vec<(u32, u32)> =
        (0..600).map(|i| (key.below(2 * i, 90) as u32, key.below(2 * i + 1, 90) as u32)).collect();
    let directed = make(&temp.path().join("directed"), 90, &edges, true, FeatureType::F32, Metric::Auc);
    let halves = make(&temp.path().join("halves"), 90, &edges, false, FeatureType::F16, Metric::Accuracy);
    let several = dataset(&temp.path().join("several"), |spec| Spec { multi_label: true, ..spec });
    for (data, precision, tolerance) in [
        (&directed, Precision::F64, 1e-9),
        (&halves, Precision::F64, 1e-9),
        (&halves, Precision::F32, 1e-4),
        (&several, Precision::F64, 1e-9),
        (&several, Precision::F32, 1e-4),
    ] {
        for kind in Kind::ALL {
            let mut config = deep(kind);
            (config.train.precision, config.train.epochs) = (precision, 10);
            let mut frozen = frozen(&config);
            frozen.train.epochs = 2;
            let runs = [
                (&config, layers(&config, 3, 1)),
                (&config, hybrid(&config, (2, 2), 2)),
                // Several chunks, with features of each.
                (&frozen, layers(&frozen, 2, 6)),
                (&frozen, hybrid(&frozen, (2, 2), 8)),
            ];
            for (config, split) in runs {
                let (_, alone, _) = run(data, config);
                let (_, together, _) = run(data, &split);
                let what = format!(
                    "{} on {}, {} in {precision:?}",
                    kind.name(),
                    data.location(),
                    split.train.strategy.name()
                );
                assert_follows(&together.epochs, &alone.epochs, tolerance, &what);
            }
        }
    }
}

#[test]
fn one_stage_group_is_partition_to_the_bit() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { train: 0.05, ..spec });
    for kind in Kind::ALL {
        for mut config in with_batch_norm(kind) {
            config.train.precision = Precision::F32;
            config.train.partition = PartitionKind::Metis;
            let (one, watch, weights) = run(&data, &on_ranks(&config, 3));
            let (other, chunked, own) = run(&data, &hybrid(&config, (1, 3), 3));
            let what = format!("{} with norm {:?}", kind.name(), config.model.norm);
            assert_eq!(other.loss_history, one.loss_history, "{what}");
            assert_eq!(scores(&chunked.epochs), scores(&watch.epochs), "{what}");
            assert!(own == weights, "{what}: other weights");
            for tag in ["features", "gradients", "weights", "statistics"] {
                assert_eq!(other.bytes_by_tag[tag], one.bytes_by_tag[tag], "{what}: {tag}");
            }
        }
    }
}

/// Everything on: stale rows of three epochs, two steps per epoch.
fn stale(kind: Kind) -> Config {
    let mut config = config(kind);
    config.model.layers = 4;
    config.train.epochs = 12;
    config.layers.history_epochs = 3;
    config.layers.steps_per_epoch = 2;
    config
}

#[test]
fn several_chunks_give_the_same_bits_with_any_overlap_and_threads() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        // `layers` is the hybrid of one way.
        let stale = stale(kind);
        for (config, split) in [(layers(&stale, 3, 8), (3, 1)), (hybrid(&stale, (2, 2), 8), (2, 2))] {
            let mut other = hybrid(&stale, split, 8);
            (other.train.overlap, other.train.threads) = (Overlap::Off, 3);
            let (one, two) = (run(&data, &config), run(&data, &other));
            assert_eq!(one.0.loss_history, two.0.loss_history, "{}", kind.name());
            assert!(one.2 == two.2, "{}: other weights", kind.name());
            assert!(one.0.loss.unwrap() < one.0.loss_history[0], "{} learns", kind.name());
        }
    }
}

#[test]
fn recomputed_activations_change_no_bit_and_send_nothing() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        for history_epochs in [1, 3] {
            let mut config = stale(kind);
            (config.train.epochs, config.layers.history_epochs) = (4, history_epochs);
            for config in [layers(&config, 3, 8), hybrid(&config, (2, 2), 8)] {
                let (kept, _, weights) = run(&data, &config);
                // None of the activations, and those of some chunks.
                for bytes in [0, 30_000] {
                    let mut config = config.clone();
                    config.layers.activation_memory = Some(bytes);
                    let (summary, _, own) = run(&data, &config);
                    let what = format!("{} with {bytes} bytes, {history_epochs}", kind.name());
                    assert_eq!(summary.loss_history, kept.loss_history, "{what}");
                    assert!(own == weights, "{what}: other weights");
                    assert_eq!(summary.bytes_by_tag, kept.bytes_by_tag, "{what}");
                    assert_eq!(summary.messages_per_epoch, kept.messages_per_epoch, "{what}");
                }
            }
        }
    }
}

#[test]
fn every_option_changes_what_is_computed() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let base = layers(&deep(Kind::Resgcn), 2, 4);
    let losses = |config: &Config| run(&data, config).0.loss_history;
    let usual = losses(&base);
    type Change = (&'static str, fn(&mut Config));
    let changes: [Change; 7] = [
        ("history_epochs", |c| c.layers.history_epochs = 4),
        ("history_init", |c| c.layers.history_init = HistoryInit::Zero),
        ("fixed chunk_order", |c| c.layers.chunk_order = ChunkOrder::Fixed),
        ("random chunk_order", |c| c.layers.chunk_order = ChunkOrder::Random),
        ("doubled gradient_weights", |c| c.layers.gradient_weights = GradientWeighting::Doubled),
        ("unscaled gradient_weights", |c| c.layers.gradient_weights = GradientWeighting::Unscaled),
        ("steps_per_epoch", |c| c.layers.steps_per_epoch = 2),
    ];
    for (name, change) in changes {
        let mut config = base.clone();
        change(&mut config);
        assert_ne!(losses(&config), usual, "{name}");
    }
}

/// Without dropout, at a learning rate below the precision of any weight: a current history is exact.
fn frozen(config: &Config) -> Config {
    let mut config = config.clone();
    (config.model.dropout, config.model.input_dropout, config.model.attention_dropout) = (0.0, 0.0, 0.0);
    (config.train.lr, config.train.weight_decay) = (1e-30, 0.0);
    config
}

/// While weights do not change, every epoch computes one more layer from current rows.
#[test]
fn history_becomes_current_while_weights_are_frozen() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        let mut config = frozen(&deep(kind));
        config.train.epochs = 16;
        let exact = run(&data, &config).0.loss_history[0];
        let first_exact = |history_init, history_epochs, split: Config| {
            let mut config = split;
            (config.layers.history_init, config.layers.history_epochs) = (history_init, history_epochs);
            let losses = run(&data, &config).0.loss_history;
            let is_exact = |loss: &f64| (loss - exact).abs() < 1e-9 * exact;
            let first = losses.iter().position(is_exact).expect("an epoch that reads current rows only");
            assert!(losses[first..].iter().all(is_exact), "{kind:?}: {losses:?}");
            first
        };
        for split in [layers(&config, 2, 6), hybrid(&config, (2, 2), 6)] {
            assert_eq!(first_exact(HistoryInit::Forward, 1, split.clone()), 0, "{kind:?}");
            assert_eq!(first_exact(HistoryInit::Forward, 5, split.clone()), 0, "{kind:?}");
            let newest = first_exact(HistoryInit::Zero, 1, split.clone());
            assert!((1..=4).contains(&newest), "{kind:?}: {newest}");
            let frozen = first_exact(HistoryInit::Zero, 3, split);
            assert!((3..=12).contains(&frozen) && frozen % 3 == 0, "{kind:?}: {frozen}");
        }
    }
}

#[test]
fn an_interrupted_run_ends_as_if_it_had_not_been() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut initial = layers(&stale(Kind::Gcnii), 3, 8);
    initial.model.layers = 2;
    assert_eq!(stage_groups(&run(&data, &initial).0)[0], [0, 1]);
    let mut recomputed = layers(&stale(Kind::Resgcn), 3, 8);
    (recomputed.layers.history_epochs, recomputed.layers.activation_memory) = (1, Some(0));
    let hybrid = hybrid(&stale(Kind::Gcnii), (2, 2), 8);
    for config in [layers(&stale(Kind::Gat), 3, 8), hybrid, initial, recomputed] {
        for epoch in [4, 6] {
            assert_resumes(&data, &config, epoch);
        }
        // Between the four steps of epoch 5.
        let mut config = config;
        config.layers.steps_per_epoch = 4;
        let (whole, _, weights) = run(&data, &config);
        let path = temp.path().join(format!("{}-{}", config.train.strategy.name(), config.model.kind.name()));
        let mut first = create(&path, &data, &config);
        let mut watch = Watch { stop_after_steps: Some(17), ..Watch::default() };
        let half = train_run(&data, &mut first, None, &mut watch).unwrap();
        assert_eq!((half.epochs, half.step), (4, 2));
        drop(first);
        assert_ends_as(&data, &path, &whole, &weights);
    }
}

#[test]
fn empty_chunks_and_more_chunks_than_nodes_train() {
    let temp = TempDir::new().unwrap();
    // A star around node 0, a pair apart, and nodes without any edge.
    let mut edges: Vec<(u32, u32)> = (1..20).map(|v| (0, v)).collect();
    edges.push((20, 21));
    let data = from_edges(&temp.path().join("star"), 26, &edges);
    for kind in Kind::ALL {
        let mut config = deep(kind);
        config.train.epochs = 5;
        let frozen = frozen(&config);
        let (_, alone, _) = run(&data, &frozen);
        // Several steps per epoch: some have no training node.
        for (chunks, steps) in [(4, 1), (26, 1), (64, 1), (64, 16)] {
            for mut split in [layers(&frozen, 2, chunks), hybrid(&frozen, (2, 2), chunks)] {
                split.layers.steps_per_epoch = steps;
                let (_, together, _) = run(&data, &split);
                let what = format!("{} with {chunks} chunks in {steps} steps", kind.name());
                assert_follows(&together.epochs, &alone.epochs, 1e-9, &what);
            }
        }
        // More ranks than nodes in some parts, exact.
        config.train.partition = PartitionKind::Random;
        let (_, alone, _) = run(&data, &config);
        let (_, together, _) = run(&data, &hybrid(&config, (2, 9), 9));
        assert_follows(&together.epochs, &alone.epochs, 1e-9, kind.name());
    }
}

fn stage_groups(summary: &Summary) -> Vec<[usize; 2]> {
    summary.pipeline.as_ref().unwrap().groups.iter().map(|group| group.stages).collect()
}

#[test]
fn every_byte_of_an_epoch_is_explained() {
    let temp = TempDir::new().unwrap();
    // Every node is needed in all stages but the last.
    let data = dataset(temp.path(), |spec| Spec { train: 0.9, val: 0.05, ..spec });
    let training = data.split().iter().filter(|&&part| part == 1).count() as u64;
    let (nodes, hidden, classes) = (data.graph().nodes() as u64, 8, 3);
    for kind in Kind::ALL {
        let splits = [(3, 1, 1), (3, 1, 6), (2, 1, 3), (2, 2, 4), (2, 3, 3), (1, 2, 6)];
        // The first group of gcnii is then its initial stage.
        let initial = (kind == Kind::Gcnii).then_some([(5, 1, 5), (5, 1, 1)]);
        for (stages, ways, chunks) in splits.into_iter().chain(initial.into_iter().flatten()) {
            let mut config = deep(kind);
            config.train.epochs = 2;
            config.model.norm = if kind == Kind::Resgcn { NormKind::Layer } else { NormKind::None };
            let (summary, ..) = run(&data, &hybrid(&config, (stages, ways), chunks));
            let what = format!("{} with {stages} stages, {ways} ways, {chunks} chunks", kind.name());
            let tag = |tag: &str| summary.bytes_by_tag[tag];
            let sizes = config.model.stage_sizes(8, classes as usize);
            let initial = sizes.iter().position(|size| size.is_initial);
            // Only rows that a later stage needs are computed: of dense ones, training nodes.
            let messages = config.model.messages(8, classes as usize);
            let rows =
                |end: usize| if messages[end..].iter().all(|m| m.width == 0) { training } else { nodes };
            let boundary = |group: &[usize; 2]| {
                let last = group[1] - 1;
                let besides = initial.filter(|&stage| stage < last).map_or(0, |_| hidden);
                Boundary { rows: rows(group[1]), width: sizes[last].outputs as u64 + besides }
            };
            let groups = stage_groups(&summary);
            assert!(stages < 5 || groups[0] == [0, 1], "{what}: {groups:?}");
            let boundaries: Vec<Boundary> = groups[..groups.len() - 1].iter().map(boundary).collect();
            let expected = boundary_bytes(&boundaries, 8);
            assert_eq!(tag("activations"), expected, "{what}");
            assert_eq!(tag("activation_gradients"), expected, "{what}");
            let (mut plain, mut whole) = (on_ranks(&config, ways), 0);
            plain.train.partition = PartitionKind::Metis;
            // Ways exchange what the ranks of `partition` do, in any number of chunks.
            if ways > 1 {
                let (partition, ..) = run(&data, &plain);
                for name in ["features", "gradients", "weights"] {
                    assert_eq!(tag(name), partition.bytes_by_tag[name], "{what}: {name}");
                    whole += tag(name);
                }
                assert!(whole > 0);
                let rows = RowBytes::of_stages(
                    &config.model.messages(8, 3),
                    NumberBytes { features: 8, activations: 8 },
                );
                let none = StepBytes::new(&rows, &[], 8 * summary.parameters, ways as u64);
                assert_eq!(tag("weights"), none.weights, "{what}");
            } else {
                assert_eq!((tag("features"), tag("gradients"), tag("weights")), (0, 0, 0), "{what}");
            }
            // The loss.
            assert_eq!(tag("statistics"), 2 * (stages * ways - 1) as u64 * 8, "{what}");
        }
    }
}

#[test]
fn a_rank_that_panics_or_falls_silent_ends_all_and_loses_nothing() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let sage = config(Kind::Sage);
    for mut config in [layers(&sage, 3, 6), hybrid(&sage, (2, 2), 8)] {
        config.layers.history_epochs = 4;
        assert_survives(&data, &config);
    }
}
