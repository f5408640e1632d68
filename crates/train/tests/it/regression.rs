//! One test for each bug of the past, with the commit that fixed it, and for edge cases next to them.

use std::path::Path;

use halograph_comm::{Error as CommError, Options, Priority, Purpose, Tag, threads};
use halograph_graph::Dataset;
use halograph_graph::generate::Spec;
use halograph_graph::partition::Assignment;
use halograph_nn::model::{Kind, NormKind};
use halograph_nn::{Input, Matrix};
use halograph_train::boundary::{Exchange, Transfer};
use halograph_train::config::{Normalize, PartitionKind, Precision, RowEncoding, Smooth, StrategyKind};
use halograph_train::data::Scaling;
use halograph_train::event::Ending;
use halograph_train::launch::{Extras, Fault, Leader, train};
use halograph_train::run::{Header, Run, read_scaling, read_summary, read_weights};
use halograph_train::trained::TrainedModel;
use halograph_train::{Config, Error, Summary};
use serde_json::Value;
use tempfile::TempDir;

use crate::ranks::support::{
    Watch, assert_follows, assert_resumes, config, create, dataset, from_edges, on_ranks, pipelined, resume,
    run, train_each, train_each_with, watches,
};
use crate::train_run;

const RANKS: usize = 3;

/// Both strategies on ranks, with everything that `pipelined` keeps from epoch to epoch.
fn strategies(kind: Kind) -> [Config; 2] {
    let mut stale = pipelined(&config(kind), RANKS);
    (stale.train.staleness, stale.train.smooth) = (2, Smooth::Gf);
    [on_ranks(&config(kind), RANKS), stale]
}

fn name(config: &Config) -> &'static str {
    if config.train.strategy == StrategyKind::Pipelined { "pipelined" } else { "partition" }
}

/// Trains with a given part of each vertex.
fn train_in_parts(path: &Path, data: &Dataset, config: &Config, parts: Vec<u32>) -> (Summary, Watch) {
    let assignment = Assignment::new(config.train.ranks as u32, parts).unwrap();
    let (mut run, mut watch) = (create(path, data, config), Watch::default());
    let leader = Leader { world: None, run: &mut run, from: None, observer: &mut watch };
    let extras = Extras { assignment: Some(&assignment), ..Extras::default() };
    let summary = train(data.into(), leader, extras).unwrap();
    (summary, watch)
}

/// Bug (c9c89ff): followers have no history, so they did not see that patience had ended and went on alone: a deadlock.
#[test]
fn a_resumed_run_without_patience_left_stops_at_once_on_all_ranks() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { label_noise: 0.3, ..spec });
    for mut config in strategies(Kind::Sage) {
        (config.train.epochs, config.train.patience, config.train.lr) = (200, 3, 0.05);
        let path = temp.path().join(name(&config));
        let results = train_each(&data, &mut create(&path, &data, &config), None, &mut watches(RANKS));
        let first = results.into_iter().next().unwrap().unwrap().unwrap();
        assert_eq!(first.ending, Ending::StoppedEarly);
        assert!(first.epochs < 200, "patience ended");
        let weights = read_weights(&path).unwrap();

        let (mut run, from) = resume(&path);
        let mut seen = watches(RANKS);
        // A follower that trains another epoch fails the test instead of waiting for rank 0.
        let fault = Some(Fault { rank: 1, epoch: first.epochs + 1, stalls: false });
        let results = train_each_with(&data, &mut run, from, &mut seen, fault);
        for (rank, (result, watch)) in results.into_iter().zip(&seen).enumerate() {
            let summary = result.unwrap();
            assert_eq!(watch.epochs.len(), 0, "rank {rank} went on");
            assert_eq!(summary.is_some(), rank == 0);
            if let Some(summary) = summary {
                assert_eq!((summary.ending, summary.epochs), (Ending::StoppedEarly, first.epochs));
                assert_eq!(summary.loss_history, first.loss_history);
            }
        }
        assert!(read_weights(&path).unwrap() == weights);
    }
}

/// Bug (39e203d): patience ended between two evaluations.
#[test]
fn patience_of_a_resumed_run_is_judged_after_evaluations_only() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let mut config = on_ranks(&config(Kind::Gcn), RANKS);
    (config.train.epochs, config.train.eval_every, config.train.patience) = (18, 6, 3);
    let (whole, ..) = run(&data, &config);
    assert!(whole.epochs > 12, "{}", whole.epochs);
    // Four epochs after the evaluation of epoch 6, two before the next.
    assert_resumes(&data, &config, 10);
}

/// Edge case: a rank other than 0 requests to stop.
#[test]
fn a_request_to_stop_on_a_follower_stops_all_ranks_in_the_same_epoch() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for config in strategies(Kind::Gcn) {
        for follower in 1..RANKS {
            let path = temp.path().join(format!("{}-{follower}", name(&config)));
            let (mut run, mut seen) = (create(&path, &data, &config), watches(RANKS));
            seen[follower].stop_after = Some(5);
            let results = train_each(&data, &mut run, None, &mut seen);
            let summary = results.into_iter().map(|result| result.unwrap()).next().unwrap().unwrap();
            assert_eq!((summary.ending, summary.epochs), (Ending::Interrupted, 5));
            assert!(seen.iter().all(|watch| watch.epochs.len() == 5));
            drop(run);
            assert_eq!(Run::resume(&path).unwrap().checkpoint.unwrap().epoch, 5);
        }
    }
}

/// Bug (fe01580): a request to stop before the first step saved a checkpoint of epoch 0.
#[test]
fn a_request_to_stop_before_the_first_step_leaves_no_epoch() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for config in strategies(Kind::Sage) {
        let path = temp.path().join(name(&config));
        let (mut run, mut seen) = (create(&path, &data, &config), watches(RANKS));
        seen[RANKS - 1].stop_after = Some(0);
        let results = train_each(&data, &mut run, None, &mut seen);
        let summary = results.into_iter().next().unwrap().unwrap().unwrap();
        assert_eq!((summary.ending, summary.epochs), (Ending::Interrupted, 0));
        assert!(seen.iter().all(|watch| watch.epochs.is_empty()));
        drop(run);
        let (_, from) = resume(&path);
        assert!(from.is_none());
    }
}

/// Bug (b5682d9): a run whose last epochs were fresh kept no rows for epochs added by a resume.
#[test]
fn more_epochs_after_fresh_ones_read_what_they_would_have_read() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for (kind, smooth, warmup, first) in
        [(Kind::Sage, Smooth::None, 4, 4), (Kind::Gat, Smooth::Gf, 3, 2), (Kind::Gcn, Smooth::F, 2, 6)]
    {
        let mut config = pipelined(&config(kind), RANKS);
        (config.train.staleness, config.train.smooth, config.train.warmup_epochs) = (3, smooth, warmup);
        config.train.epochs = 12;
        let (whole, _, weights) = run(&data, &config);
        let path = temp.path().join(kind.name());
        let mut short = config.clone();
        short.train.epochs = first;
        train_run(&data, &mut create(&path, &data, &short), None, &mut Watch::default()).unwrap();
        let (mut run, from) = resume(&path);
        run.update_header(Header { config, ..run.header().clone() }).unwrap();
        let summary = train_run(&data, &mut run, from, &mut Watch::default()).unwrap();
        assert_eq!(summary.loss_history, whole.loss_history, "{kind:?}");
        assert!(read_weights(&path).unwrap().to_bytes() == weights, "{kind:?}");
    }
}

/// Bug (ccc2f8d): messages of the setup appeared as layer 65535 in traces.
#[test]
fn traces_name_only_layers_of_the_model() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for mut config in strategies(Kind::Gcn) {
        config.train.epochs = 3;
        let (mut run, file) = (create(&temp.path().join(name(&config)), &data, &config), "trace.json");
        let file = temp.path().join(format!("{}-{file}", name(&config)));
        let leader = Leader { world: None, run: &mut run, from: None, observer: &mut Watch::default() };
        let extras = Extras { trace: Some(&file), ..Extras::default() };
        train((&data).into(), leader, extras).unwrap();
        let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let spans = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
        let number = |span: &Value, key: &str| span["args"][key].as_u64().unwrap();
        // The loss comes after the last layer.
        let layers = config.model.layers as u64;
        let mut statistics = 0;
        for span in spans {
            assert!(span["args"]["layer"].as_u64().is_none_or(|layer| layer <= layers), "{span}");
            assert!(number(span, "epoch") <= config.train.epochs, "{span}");
            statistics += (span["cat"] == "statistics") as u64;
        }
        assert!(statistics > 0, "the sum of the loss is there");
    }
}

/// Edge case: two ranks disagree on the number of boundary rows.
#[test]
fn a_message_of_unexpected_length_is_an_error_that_names_it() {
    const FEATURES: Tag = Tag::new(Purpose::Features).epoch(7).layer(2);
    const GRADIENTS: Tag = Tag::new(Purpose::Gradients).epoch(7).layer(2);
    // Rank 1 sends two rows of rank 0's three, and rank 0 returns three gradients for these two rows.
    let results = threads::run(2, &Options::default(), |comm| {
        let exchange = match comm.rank() {
            0 => Exchange::new(vec![vec![]; 2], vec![0, 3]),
            _ => Exchange::new(vec![vec![0, 1], vec![]], vec![0; 2]),
        };
        let input: Input<f32> = Matrix::zeros(2, 4).into();
        let features =
            exchange.start_features(comm, FEATURES, (Priority::Urgent, RowEncoding::Dense), &input)?;
        let halo = Matrix::<f32>::zeros(exchange.halo_rows(), 4);
        let gradients = exchange.start_gradients(comm, GRADIENTS, Priority::Background, &halo, None)?;
        let added = gradients
            .finish()
            .and_then(|(returned, _)| exchange.add_gradients(&returned, &mut Matrix::zeros(2, 4), None));
        Ok::<_, Error>((features.finish().map(|_| ()), added))
    });
    let results: Vec<_> = results.into_iter().map(|result| result.unwrap()).collect();
    let told = |result: &Result<(), Error>, words: [&str; 3]| {
        let Err(Error::Ranks(error @ CommError::Size { .. })) = result else { panic!("{result:?}") };
        let error = error.to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    told(&results[0].0, ["rank 1", "features (epoch 7, layer 2)", "12 numbers"]);
    told(&results[1].1, ["rank 0", "gradients (epoch 7, layer 2)", "8 numbers"]);
    assert!(results[0].1.is_ok() && results[1].0.is_ok());
}

/// Edge case: a rank asks for a vertex of another part.
#[test]
fn a_vertex_that_a_rank_does_not_compute_is_named_on_all_ranks() {
    let results = threads::run(2, &Options::default(), |comm| {
        let wanted = if comm.rank() == 0 { [vec![], vec![3, 17]] } else { [vec![], vec![]] };
        let row_of = |id: u32| (id < 10).then_some(id);
        Exchange::negotiate(comm, Tag::new(Purpose::Setup), &wanted, row_of)?;
        comm.barrier(Tag::new(Purpose::Control))?;
        Ok::<_, Error>(())
    });
    for result in results {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("rank 0 asks for vertex 17, which rank 1 does not compute"), "{error}");
    }
}

/// Bug (39e203d): rounding gave constant columns a tiny deviation, by whose inverse they were scaled.
#[test]
fn columns_that_are_constant_on_all_ranks_are_only_centred() {
    const CONSTANTS: [f32; 4] = [0.1, -0.7, 1234.567, -3.3e5];
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    let file = data.path().unwrap().join("feat.npy");
    let mut bytes = std::fs::read(&file).unwrap();
    let (nodes, width) = (data.split().len(), data.features().cols() * 4);
    let start = bytes.len() - nodes * width;
    for (v, &part) in data.split().iter().enumerate() {
        for (c, value) in CONSTANTS.into_iter().enumerate() {
            let value = if part == 1 { value } else { 2.0 * value };
            bytes[start + v * width + 4 * c..][..4].copy_from_slice(&value.to_le_bytes());
        }
    }
    std::fs::write(&file, bytes).unwrap();
    let data = Dataset::open(data.path().unwrap()).unwrap();
    let Scaling::Columns(alone) = Scaling::fit(&data, Normalize::Columns).unwrap() else { panic!() };
    let mut config = on_ranks(&config(Kind::Sage), 4);
    config.train.epochs = 1;
    config.data.normalize = Normalize::Columns;
    // Rank 0 has no training node, and rank 2 has one.
    let mut training = data.split().iter().map(|&part| part == 1);
    let first = training.position(|is| is).unwrap();
    let part = |v: usize| match data.split()[v] {
        1 if v == first => 2,
        1 => [1, 3][v % 2],
        _ => v as u32 % 4,
    };
    let path = temp.path().join("run");
    train_in_parts(&path, &data, &config, (0..nodes).map(part).collect());
    let saved = read_scaling(&path).unwrap().unwrap();
    let Scaling::Columns(together) = Scaling::from_state("run", &saved, alone.len()).unwrap() else {
        panic!()
    };
    assert_eq!(together[..4], CONSTANTS.map(|value| [value as f64, 1.0]));
    for (a, b) in together.iter().flatten().zip(alone.iter().flatten()) {
        assert!((a - b).abs() < 1e-12 * b.abs().max(1.0), "{a} {b}");
    }
}

/// Edge case: blocks of stages that read edges, and have none.
#[test]
fn a_graph_without_edges_trains_on_any_ranks() {
    let temp = TempDir::new().unwrap();
    let data = from_edges(&temp.path().join("none"), 24, &[]);
    for kind in Kind::ALL {
        let mut config = config(kind);
        config.model.layers = 3;
        (config.train.epochs, config.train.precision) = (5, Precision::F64);
        config.train.partition = PartitionKind::Random;
        let (_, alone, _) = run(&data, &config);
        for config in [on_ranks(&config, RANKS), pipelined(&config, RANKS)] {
            let (summary, together, _) = run(&data, &config);
            assert_follows(&together.epochs, &alone.epochs, 1e-12, kind.name());
            assert_eq!(summary.bytes_by_tag["features"] + summary.bytes_by_tag["gradients"], 0);
        }
    }
}

/// Bug (b5682d9): staleness of layers that read no halo rows was reported as 0.
#[test]
fn staleness_is_absent_where_nothing_is_read_of_others() {
    let temp = TempDir::new().unwrap();
    // Two rings, each on a rank of its own; a third rank owns nothing.
    let edges: Vec<(u32, u32)> =
        (0..2).flat_map(|ring| (0..12).map(move |v| (12 * ring + v, 12 * ring + (v + 1) % 12))).collect();
    let data = from_edges(&temp.path().join("rings"), 24, &edges);
    for kind in Kind::ALL {
        let mut config = pipelined(&config(kind), RANKS);
        (config.train.epochs, config.train.measure_staleness) = (4, true);
        config.train.smooth = Smooth::Gf;
        let path = temp.path().join(kind.name());
        let (_, watch) = train_in_parts(&path, &data, &config, (0..24).map(|v| v / 12).collect());
        for epoch in &watch.epochs[1..] {
            let found = epoch.staleness.as_ref().expect("it was measured");
            let mut all = found.features.iter().chain(&found.gradients);
            assert!(all.all(Option::is_none), "{kind:?}: {found:?}");
        }
        assert_eq!(Run::resume(&path).unwrap().history, watch.epochs, "{kind:?}");
    }
}

/// Edge case: checkpoints of ranks that neither send nor read rows.
#[test]
fn empty_parts_are_resumed() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| Spec { nodes: 6, edges: 12, ..spec });
    for kind in [Kind::Sage, Kind::Gat, Kind::Resgcn] {
        let mut config = pipelined(&config(kind), 9);
        (config.train.epochs, config.train.staleness, config.train.smooth) = (8, 2, Smooth::Gf);
        config.train.partition = PartitionKind::Random;
        assert_resumes(&data, &config, 1);
        assert_resumes(&data, &config, 4);
    }
}

/// Edge case: all ranks but one are without rows.
#[test]
fn one_rank_may_own_everything() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for kind in Kind::ALL {
        let mut config = config(kind);
        config.train.precision = Precision::F64;
        if kind != Kind::Resgcn {
            config.model.norm = NormKind::Batch;
        }
        config.train.epochs = 4;
        let (_, alone, _) = run(&data, &config);
        for config in [on_ranks(&config, RANKS), pipelined(&config, RANKS)] {
            let path = temp.path().join(format!("{}-{}", kind.name(), name(&config)));
            let (_, watch) = train_in_parts(&path, &data, &config, vec![1; data.split().len()]);
            assert_follows(&watch.epochs, &alone.epochs, 1e-9, kind.name());
        }
    }
}

/// Bug (b1a1cdc): resuming a finished run replaced its summary by one of zero epochs.
#[test]
fn a_finished_run_that_is_resumed_stays_what_it_was() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for mut config in strategies(Kind::Gcn) {
        config.train.epochs = 4;
        let path = temp.path().join(name(&config));
        train_run(&data, &mut create(&path, &data, &config), None, &mut Watch::default()).unwrap();
        let before = (read_summary(&path).unwrap().unwrap(), read_weights(&path).unwrap());
        let (mut run, from) = resume(&path);
        let mut watch = Watch::default();
        let summary = train_run(&data, &mut run, from, &mut watch).unwrap();
        assert_eq!((summary.ending, summary.epochs, watch.epochs.len()), (Ending::Finished, 4, 0));
        assert!((read_summary(&path).unwrap().unwrap(), read_weights(&path).unwrap()) == before);
    }
}

/// Edge case: a run stops before its first evaluation.
#[test]
fn weights_before_the_first_evaluation_are_the_newest() {
    let temp = TempDir::new().unwrap();
    let data = dataset(temp.path(), |spec| spec);
    for mut config in strategies(Kind::Sage) {
        config.train.eval_every = 10;
        let path = temp.path().join(name(&config));
        let mut watch = Watch { stop_after: Some(4), ..Watch::default() };
        let summary = train_run(&data, &mut create(&path, &data, &config), None, &mut watch).unwrap();
        assert_eq!((summary.epochs, summary.best_epoch), (4, None));
        let saved = Run::resume(&path).unwrap().checkpoint.unwrap();
        assert!(read_weights(&path).unwrap() == saved.state.part("model."));
        assert!(TrainedModel::open(&path).unwrap().evaluate(&data).unwrap().test.is_some());
    }
}

/// Bug (b5682d9): run.json of versions without `pipelined` could not be read.
#[test]
fn configurations_without_the_settings_of_pipelined_are_read() {
    let config = on_ranks(&config(Kind::Gcn), RANKS);
    let mut text = serde_json::to_value(&config).unwrap();
    let train = text["train"].as_object_mut().unwrap();
    for key in [
        "staleness",
        "warmup_epochs",
        "cooldown_epochs",
        "smooth",
        "gamma",
        "smooth_correction",
        "measure_staleness",
        "schedule_unit",
    ] {
        assert!(train.remove(key).is_some(), "{key}");
    }
    assert_eq!(serde_json::from_value::<Config>(text).unwrap(), config);
}
