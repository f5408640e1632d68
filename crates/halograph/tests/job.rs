//! The job API as a program uses it: datasets in memory, runs with and without a directory, resume, notes.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use halograph::config::Setting;
use halograph::graph::build::EdgeOptions;
use halograph::graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph::graph::generate::{self, Spec};
use halograph::graph::partition::{Balance, Layout, Method, Origin, Presample, folder};
use halograph::graph::progress::Silent;
use halograph::graph::sample::Fanout;
use halograph::graph::{Dataset, Error as InputError};
use halograph::job::{Job, JobOptions, NoObserver, Note, OutOption, World, open_trained};
use halograph::nn::Matrix;
use halograph::nn::model::{self, Kind};
use halograph::train::config::{PartitionKind, StrategyKind};
use halograph::train::event::{Ending, Event, Observer};
use halograph::train::{Prediction, Summary, launch};
use halograph::{Error, Result};

/// Memory is predicted only with this allocator.
#[global_allocator]
static ALLOCATOR: halograph::train::memory::Counting = halograph::train::memory::Counting;

const NODES: usize = 240;
const CLASSES: usize = 3;

/// Rings of one class each, with some edges between them; `label` and `split` by node.
fn arrays(label: impl Fn(usize) -> i64, split: impl Fn(usize) -> u8) -> Arc<Dataset> {
    let size = NODES / CLASSES;
    let ring = (0..NODES).map(|v| (v as u32, (v / size * size + (v + 1) % size) as u32));
    let edges: Vec<(u32, u32)> = ring.chain((0..10).map(|v| (v, (NODES as u32) - 1 - v))).collect();
    let graph = GraphArrays::from_edges(NODES, &edges, EdgeOptions::default()).unwrap();
    let features = (0..NODES).flat_map(|v| [(v % 7) as f32 * 0.1 + (v / size) as f32, (v % 5) as f32]);
    let features = FeatureArray::f32(2, features.collect());
    let labels = Labels::Single((0..NODES).map(label).collect());
    let split = (0..NODES).map(split).collect();
    Arc::new(Dataset::from_arrays(DatasetArrays::new("rings", graph, features, labels, split)).unwrap())
}

fn by_ring(v: usize) -> i64 {
    (v / (NODES / CLASSES)) as i64
}

fn thirds(v: usize) -> u8 {
    1 + v as u8 % 3
}

fn rings() -> Arc<Dataset> {
    arrays(by_ring, thirds)
}

fn quick(options: JobOptions, ranks: usize) -> JobOptions {
    let options = options.set("model.hidden", 8).set("model.layers", 2).set("train.epochs", 6);
    options.set("train.threads", 1).set("train.ranks", ranks)
}

fn open(options: &JobOptions) -> Result<Job> {
    Job::open(options, &World::alone(), &Silent)
}

fn train(options: &JobOptions) -> (Job, Summary) {
    let mut job = open(options).unwrap();
    let summary = job.train(&mut NoObserver).unwrap().expect("a summary on rank 0");
    (job, summary)
}

fn logits(job: &Job) -> Matrix<f32> {
    job.trained().unwrap().predict(job.data().source(), Prediction::Logits).unwrap()
}

fn bits(rows: &Matrix<f32>) -> Vec<u32> {
    rows.data().iter().map(|x| x.to_bits()).collect()
}

/// Expects bad input; returns its message.
fn refused<T>(result: Result<T>) -> String {
    match result.err().expect("refused") {
        Error::Input(error) => {
            assert!(!error.is_environment(), "{error}");
            error.to_string()
        }
        other => panic!("not bad input: {other}"),
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_run_in_memory_equals_a_run_with_a_directory() {
    let (temp, dataset) = (tempfile::tempdir().unwrap(), rings());
    for ranks in [1, 2] {
        let options = quick(JobOptions::new(dataset.clone()), ranks);
        let (memory, in_memory) = train(&options.clone().in_memory());
        let (directory, on_disk) = train(&options.out(temp.path().join(ranks.to_string())));
        assert_eq!(in_memory.loss_history, on_disk.loss_history, "{ranks} ranks");
        let scores = |s: &Summary| [s.train, s.val, s.test].map(|score| score.unwrap().to_bits());
        assert_eq!(scores(&in_memory), scores(&on_disk), "{ranks} ranks");
        assert_eq!(bits(&logits(&memory)), bits(&logits(&directory)), "{ranks} ranks");
        assert_eq!((memory.directory(), memory.is_removed()), (None, false));
        assert!(directory.directory().unwrap().join("model.safetensors").exists());
        let scores = memory.trained().unwrap().evaluate(memory.data().source()).unwrap();
        assert_eq!(scores.test, in_memory.test, "{ranks} ranks");
    }
}

/// Sampled mini-batches, several of them per epoch.
fn minibatch(options: JobOptions) -> JobOptions {
    let options = quick(options, 1).set("train.strategy", "minibatch").set("train.batch_size", 16);
    options.set("train.fanout", "3,-1")
}

#[test]
fn mini_batches_train_from_arrays_in_memory() {
    let (temp, dataset) = (tempfile::tempdir().unwrap(), rings());
    let options = minibatch(JobOptions::new(dataset.clone()).set("train.sampler", "labor"));
    let (memory, summary) = train(&options.clone().in_memory());
    // 80 training nodes in batches of 16.
    let batches = summary.batches.expect("totals of the batches");
    assert_eq!(batches.batches, 6 * 5);
    assert!(batches.sampled_edges > 0 && batches.input_nodes > 6 * 80, "{batches:?}");
    assert_eq!(memory.config().train.fanout, [3, -1]);
    assert!(summary.loss.unwrap() < summary.loss_history[0], "{:?}", summary.loss_history);
    // Interrupted and resumed in a directory, from equal arrays.
    let out = temp.path().join("r");
    drop(interrupt(&options.out(&out), 2));
    let resume = JobOptions { resume: true, data: rings().into(), ..JobOptions::default() }.out(&out);
    let (directory, resumed) = train(&resume);
    assert_eq!((resumed.epochs, directory.epochs_before()), (6, 2));
    assert_eq!(resumed.loss_history, summary.loss_history);
    assert_eq!(bits(&logits(&directory)), bits(&logits(&memory)));
    let scores = memory.trained().unwrap().evaluate(memory.data().source()).unwrap();
    assert_eq!(scores.test, summary.test);
    // Bad settings are refused before anything is written.
    let refusals = [
        ("train.fanout", "3", "1 fanout for a model of 2 graph layers"),
        ("train.batch_size", "0", "at least 1"),
    ];
    for (key, value, words) in refusals {
        let options =
            minibatch(JobOptions::new(dataset.clone())).set(key, value).out(temp.path().join("none"));
        let message = refused(open(&options));
        assert!(message.contains(key) && message.contains(words), "{message}");
    }
    assert_eq!(entries(temp.path()), 1);
}

/// Set for processes that tests start.
const CHILD: &str = "HALOGRAPH_TEST_CHILD";

/// Runs an ignored test of this file as a process of its own; expects success.
fn run_child(test: &str, folder: &Path, variables: &[(&str, &str)]) {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let command = command.args(["--exact", test, "--ignored"]).env(CHILD, "1").current_dir(folder);
    let out = command.envs(variables.iter().copied()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn train_in_memory() {
    if std::env::var_os(CHILD).is_some() {
        for ranks in [1, 2] {
            train(&quick(JobOptions::new(rings()), ranks).in_memory());
        }
        // The built-in graph.
        train(&quick(JobOptions::default(), 1).in_memory());
    }
}

/// In a process of its own, because the current folder belongs to the process.
#[test]
fn a_run_in_memory_writes_nothing() {
    let (current, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run_child("train_in_memory", current.path(), &[("TMPDIR", temporary.path().to_str().unwrap())]);
    assert_eq!((entries(current.path()), entries(temporary.path())), (0, 0));
}

#[test]
#[ignore = "started by another test as a process of its own"]
fn refuse_a_model_larger_than_memory() {
    if std::env::var_os(CHILD).is_some() {
        let options =
            quick(JobOptions::new(rings()), 1).set("model.hidden", 1_000_000).set("model.layers", 3);
        assert!(refused(open(&options.in_memory())).contains("MiB are free"));
    }
}

/// Bug: the memory of the only process under a launcher was not predicted.
#[test]
fn memory_is_predicted_for_one_process_under_a_launcher() {
    let folder = tempfile::tempdir().unwrap();
    run_child("refuse_a_model_larger_than_memory", folder.path(), &[("OMPI_COMM_WORLD_SIZE", "1")]);
}

#[test]
fn a_job_has_no_model_before_training() {
    let temp = tempfile::tempdir().unwrap();
    let options = quick(JobOptions::new(rings()), 1);
    for options in [options.clone().in_memory(), options.out(temp.path().join("r"))] {
        let job = open(&options).unwrap();
        assert!(refused(job.trained()).contains("there are no weights yet"));
    }
}

#[test]
fn a_job_that_is_not_trained_leaves_no_run() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("a/b/r");
    let job = open(&quick(JobOptions::new(rings()), 1).out(&out)).unwrap();
    assert!(out.join("run.json").exists());
    drop(job);
    assert_eq!(entries(temp.path()), 0);
}

#[test]
fn a_job_is_trained_once() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("r");
    let (mut job, _) = train(&quick(JobOptions::new(rings()), 1).out(&out));
    let before = fs::read(out.join("metrics.jsonl")).unwrap();
    assert!(refused(job.train(&mut NoObserver)).contains("was trained already"));
    assert_eq!(fs::read(out.join("metrics.jsonl")).unwrap(), before);
    assert!(job.trained().is_ok());
}

/// Requests to stop after an epoch; 0: before the first one.
struct StopAfter {
    epoch: u64,
    done: u64,
}

impl Observer for StopAfter {
    fn on(&mut self, event: &Event) {
        if let Event::Epoch { record, .. } = event {
            self.done = record.epoch;
        }
    }

    fn interrupted(&self) -> bool {
        self.done >= self.epoch
    }
}

/// Trains until `epoch` and stops.
fn interrupt(options: &JobOptions, epoch: u64) -> (Job, Summary) {
    let mut job = open(options).unwrap();
    let summary = job.train(&mut StopAfter { epoch, done: 0 }).unwrap().unwrap();
    assert_eq!(summary.ending, Ending::Interrupted);
    (job, summary)
}

#[test]
fn a_run_that_is_stopped_before_its_first_epoch_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    for ranks in [1, 2] {
        let options = quick(JobOptions::new(rings()), ranks).out(temp.path().join("runs/r"));
        let (job, summary) = interrupt(&options, 0);
        assert_eq!((summary.epochs, job.is_removed()), (0, true));
        drop(job);
        assert_eq!(entries(temp.path()), 0);
    }
}

#[test]
fn an_interrupted_run_resumes_with_the_same_results() {
    let temp = tempfile::tempdir().unwrap();
    generate::make(&Spec { nodes: 300, edges: 2400, ..demo() }, "g", &temp.path().join("g"), false, &Silent)
        .unwrap();
    for ranks in [1, 2] {
        let [run, whole] = ["run", "whole"].map(|name| temp.path().join(format!("{name}-{ranks}")));
        let options = quick(JobOptions::new(temp.path().join("g")), ranks);
        let (job, summary) = interrupt(&options.clone().out(&run), 3);
        assert_eq!((summary.epochs, job.epochs_before()), (3, 0));
        // Before the run is opened again: a job holds its lock.
        drop(job);
        // The data and all settings come from the run.
        let resume = JobOptions { resume: true, ..JobOptions::default() }.out(&run);
        let (resumed, summary) = train(&resume);
        let (uninterrupted, expected) = train(&options.out(&whole));
        assert_eq!((summary.epochs, resumed.epochs_before()), (6, 3));
        assert_eq!(summary.loss_history, expected.loss_history, "{ranks} ranks");
        assert_eq!(bits(&logits(&resumed)), bits(&logits(&uninterrupted)), "{ranks} ranks");
        assert_eq!(resumed.config(), uninterrupted.config());
    }
}

fn demo() -> Spec {
    generate::presets::find("demo").expect("a preset").spec.clone()
}

#[test]
fn a_run_on_a_dataset_in_memory_resumes_only_with_that_dataset() {
    let (temp, dataset) = (tempfile::tempdir().unwrap(), rings());
    let out = temp.path().join("r");
    let options = quick(JobOptions::new(dataset.clone()), 1).out(&out);
    drop(interrupt(&options, 2));
    let resume = JobOptions { resume: true, ..JobOptions::default() }.out(&out);
    let message = refused(open(&resume));
    assert!(
        message.contains("dataset in memory (rings)") && message.contains("give the dataset"),
        "{message}"
    );
    let message = refused(open_trained(&out, None, None).map(drop));
    assert!(message.contains("dataset in memory (rings)"), "{message}");
    let other = JobOptions { data: arrays(|v| (v % 3) as i64, thirds).into(), ..resume.clone() };
    assert!(refused(open(&other)).contains("not the dataset that"));
    // Equal arrays, built again.
    let (job, summary) = train(&JobOptions { data: rings().into(), ..resume });
    assert_eq!((summary.epochs, job.epochs_before()), (6, 2));
    let (_, expected) = train(&quick(JobOptions::new(dataset), 1).in_memory());
    assert_eq!(summary.loss_history, expected.loss_history);
}

#[test]
fn resume_needs_a_run_directory() {
    let options = quick(JobOptions::new(rings()), 1);
    for out in [OutOption::Memory, OutOption::Default] {
        let message = refused(open(&JobOptions { resume: true, out, ..options.clone() }));
        assert!(message.contains("no run directory is given"), "{message}");
    }
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("r");
    let message = refused(open(&JobOptions { resume: true, ..JobOptions::default() }.out(&out)));
    assert!(message.contains("there is no run to resume"), "{message}");
    // With data, a new run is started.
    let (job, _) = train(&JobOptions { resume: true, ..options.out(&out) });
    assert_eq!(job.epochs_before(), 0);
}

#[test]
fn an_existing_run_is_replaced_only_with_overwrite() {
    let temp = tempfile::tempdir().unwrap();
    let options = quick(JobOptions::new(rings()), 1).out(temp.path().join("r"));
    drop(train(&options));
    assert!(refused(open(&options)).contains("contains a run already"));
    train(&JobOptions { overwrite: true, ..options });
}

/// Writes the shards of `dataset`.
fn write_shards(dataset: &Dataset, parts: usize, to: &Path) {
    let mut config = halograph::config::resolve(&[]).unwrap();
    config.train.ranks = parts;
    let spec = launch::partition_spec(&config);
    let assignment = spec.assign(dataset, &Silent).unwrap();
    let layout = Layout::of(dataset, &assignment).unwrap();
    folder::write(to, false, &layout, &Origin::from(&spec), &Silent).unwrap();
}

#[test]
fn shards_train_like_the_dataset() {
    let (temp, dataset) = (tempfile::tempdir().unwrap(), rings());
    let shards = temp.path().join("shards");
    write_shards(&dataset, 2, &shards);
    let (whole, expected) = train(&quick(JobOptions::new(dataset), 2).in_memory());
    // The number of ranks follows from the shards.
    let mut options = quick(JobOptions::new(shards.clone()), 2).out(temp.path().join("r"));
    options.settings.retain(|setting| setting.name() != "train.ranks");
    let (job, summary) = interrupt(&options, 3);
    assert_eq!((job.data().parts(), summary.ranks), (Some(2), 2));
    drop(job);
    let resume = JobOptions { resume: true, ..JobOptions::default() }.out(temp.path().join("r"));
    let (job, summary) = train(&resume);
    assert_eq!(summary.loss_history, expected.loss_history);
    assert_eq!(job.trained().unwrap().weights(), whole.trained().unwrap().weights());
    let three = quick(JobOptions::new(shards.clone()), 3).in_memory();
    assert!(refused(open(&three)).contains("2 parts for 3 ranks"));
    let single = JobOptions::new(shards).set("train.strategy", "single").in_memory();
    assert!(refused(open(&single)).contains("train.strategy"));
}

#[test]
fn mini_batches_are_for_shards_and_ranks() {
    let (temp, dataset) = (tempfile::tempdir().unwrap(), rings());
    let minibatch = |options: JobOptions| options.set("train.strategy", "minibatch").in_memory();
    for parts in [1, 2] {
        let shards = temp.path().join(parts.to_string());
        write_shards(&dataset, parts, &shards);
        let job = open(&minibatch(JobOptions::new(shards))).unwrap();
        assert_eq!(job.config().train.strategy, StrategyKind::Minibatch);
        assert_eq!(job.config().train.ranks, parts);
    }
    let options = minibatch(quick(JobOptions::new(dataset), 2)).set("train.macrobatch", 8);
    let job = open(&options.set("train.batch_memory", "64MiB")).unwrap();
    let train = &job.config().train;
    assert_eq!((train.ranks, train.macrobatch, train.batch_memory), (2, Some(8), 64 << 20));
    assert_eq!(job.notes(), []);
}

#[test]
fn only_mini_batches_balance_training_nodes_and_edges() {
    let mut config = halograph::config::resolve(&[]).unwrap();
    config.train.ranks = 2;
    for (strategy, balanced) in [
        (StrategyKind::Partition, false),
        (StrategyKind::Pipelined, false),
        (StrategyKind::Minibatch, true),
        (StrategyKind::Split, true),
    ] {
        config.train.strategy = strategy;
        let balance = Balance { edges: balanced, train: balanced };
        assert_eq!(launch::partition_spec(&config).balance, balance, "{strategy:?}");
    }
}

#[test]
fn presampled_partitions_take_the_sampling_of_the_run() {
    let mut config = halograph::config::resolve(&[]).unwrap();
    (config.train.strategy, config.train.ranks) = (StrategyKind::Minibatch, 2);
    config.train.partition = PartitionKind::Presampled;
    (config.train.batch_size, config.train.seed, config.data.inductive) = (77, 5, true);
    (config.train.fanout, config.train.cache_input_aggregate) = (vec![4, -1, 2], true);
    let spec = launch::partition_spec(&config);
    let expected = Presample {
        epochs: 2,
        batch_size: 77,
        sampler: config.train.sampler,
        fanouts: vec![Fanout::AtMost(4), Fanout::All, Fanout::AtMost(2)],
        reads_inputs: true,
        cached_input: true,
        inductive: true,
    };
    assert_eq!((spec.method, spec.seed, spec.parts), (Method::Presampled(expected), 0, 2));
    // The first stage of these models reads no edges: rows of the last hop are its output, and exchanged.
    for (kind, reads_inputs) in [(Kind::Gat, true), (Kind::Gcnii, false), (Kind::Resgcn, false)] {
        config.model = model::Spec::new(kind);
        let Method::Presampled(found) = launch::partition_spec(&config).method else { panic!("presampled") };
        assert_eq!((found.reads_inputs, found.exchanged().len()), (reads_inputs, 3 - reads_inputs as usize));
    }
}

#[test]
fn a_presampled_partition_is_computed_once_and_stored() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("demo");
    let preset = generate::presets::find("demo").unwrap();
    generate::make(&preset.spec, "demo", &path, false, &Silent).unwrap();
    let stored = || {
        let names =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("partition-presampled-")).collect();
        names.sort();
        names
    };
    let run = |batch_size: u64| {
        let options = quick(JobOptions::new(path.clone()), 2).set("train.strategy", "minibatch").in_memory();
        let options = options.set("train.partition", "presampled").set("train.batch_size", batch_size);
        train(&options).1.loss_history
    };
    let first = run(500);
    assert_eq!(stored().len(), 2);
    assert_eq!(run(500), first);
    assert_eq!(stored().len(), 2);
    run(400);
    assert_eq!(stored().len(), 4, "another sampling has another name: {:?}", stored());
    let options = quick(JobOptions::new(path.clone()), 2).set("train.partition", "presampled").in_memory();
    assert!(refused(open(&options)).contains("train.partition"));
}

fn notes(options: JobOptions) -> Vec<Note> {
    open(&options).unwrap().notes().to_vec()
}

#[test]
fn notes_are_data() {
    let options = quick(JobOptions::new(rings()), 1).in_memory();
    assert_eq!(notes(options.clone()), []);
    let unused = options.clone().set("model.heads", 4);
    let expected = Note::Unused { place: "set".into(), key: "model.heads".into(), requires: "model gat" };
    assert_eq!(notes(unused), [expected]);
    // Nodes of class 2 are in the test split only, and no node is in the validation split.
    let split = |v: usize| if by_ring(v) == 2 { 3 } else { 1 };
    let data = arrays(by_ring, split).into();
    let expected = [
        Note::NoValidationNodes,
        Note::ClassesWithoutTrainingNodes { classes: vec!["2".into()] },
        Note::ClassesWithoutNodes { subset: "test", classes: vec!["0".into(), "1".into()] },
    ];
    assert_eq!(notes(JobOptions { data, ..options.clone() }.set("train.patience", 3)), expected);
    let temp = tempfile::tempdir().unwrap();
    let trace = Some(temp.path().join("t.json"));
    assert_eq!(notes(JobOptions { trace, ..options }), [Note::NothingToTrace]);
}

/// Bug: the note was missing on resume.
#[test]
fn a_resumed_run_notes_missing_validation_nodes() {
    let temp = tempfile::tempdir().unwrap();
    let data = arrays(by_ring, |_| 1);
    let options = quick(JobOptions::new(data), 1).set("train.patience", 3).out(temp.path().join("r"));
    drop(train(&options));
    assert_eq!(notes(JobOptions { resume: true, ..options }), [Note::NoValidationNodes]);
}

#[test]
fn keys_may_have_quoted_parts_and_values_may_be_tables() {
    let options = quick(JobOptions::new(rings()), 1).in_memory();
    let one = options.clone().set("train.weight_decay_for.\"convs.0\"", 0.5);
    let table = options.clone().set("train.weight_decay_for", "{ \"convs.0\" = 0.5 }");
    for options in [one, table] {
        let job = open(&options).unwrap();
        assert_eq!(job.config().train.weight_decay_for["convs.0"], 0.5);
    }
    let message = refused(open(&options.set("train.\"lr", 1)));
    assert!(message.contains("set: unknown key train.\"lr"), "{message}");
}

#[test]
fn a_trace_file_is_checked_before_training() {
    let temp = tempfile::tempdir().unwrap();
    let options = quick(JobOptions::new(rings()), 2).out(temp.path().join("r"));
    let with = |name: &str| JobOptions { trace: Some(temp.path().join(name)), ..options.clone() };
    assert!(refused(open(&with("missing/t.json"))).contains("a trace cannot be written there"));
    fs::write(temp.path().join("mine.txt"), "mine").unwrap();
    assert!(refused(open(&with("mine.txt"))).contains("exists already"));
    let overwrite = JobOptions { overwrite: true, ..with("mine.txt") };
    assert!(refused(open(&overwrite)).contains("is not a trace"));
    assert_eq!(entries(temp.path()), 1);
    // The run directory is created later.
    drop(train(&with("r/trace.json")));
    assert!(temp.path().join("r/trace.json").exists());
}

#[test]
fn settings_keep_their_place_in_errors() {
    let mut options = quick(JobOptions::new(rings()), 1).in_memory();
    options.settings.push(Setting::new("my program", "train.lr", "-1"));
    let message = refused(open(&options));
    assert!(message.starts_with("my program: train.lr"), "{message}");
    let error: InputError = halograph::config::resolve(&options.settings).unwrap_err();
    assert_eq!(error.to_string(), message);
}
