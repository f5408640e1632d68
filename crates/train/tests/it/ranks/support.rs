//! Small graphs, and runs on them that are watched.

use std::path::Path;
use std::sync::Mutex;

use halograph_comm::{Error as CommError, Options, threads};
use halograph_graph::Dataset;
use halograph_graph::build::{EdgeInput, EdgeList, EdgeOptions, build};
use halograph_graph::dataset::Metric;
use halograph_graph::dataset::write::{Contents, FeatureSource, FeatureType, Labels, write};
use halograph_graph::generate::{self, Spec, presets};
use halograph_graph::progress::Silent;
use halograph_kernels::keyed::Key;
use halograph_nn::model::Kind;
use halograph_nn::state::State;
use halograph_train::config::{Smooth, StrategyKind};
use halograph_train::event::{Ending, EpochRecord};
use halograph_train::launch::{Extras, Fault, Follower, Leader, train, train_as_follower};
use halograph_train::run::{DataRef, Header, Run, read_weights};
use halograph_train::trainer::ResumePoint;
use halograph_train::{Config, Event, Observer, Result, Summary};
use tempfile::TempDir;

use crate::train_run;

pub fn dataset(folder: &Path, change: impl FnOnce(Spec) -> Spec) -> Dataset {
    let demo = presets::find("demo").unwrap().spec.clone();
    let spec = change(Spec { nodes: 300, edges: 2400, features: 8, classes: 3, ..demo });
    let path = folder.join("data");
    generate::make(&spec, "tiny", &path, false, &Silent).unwrap();
    Dataset::open(&path).unwrap()
}

struct Noise(usize);

impl FeatureSource for Noise {
    fn cols(&self) -> usize {
        8
    }
    fn stream(
        &self,
        sink: &mut dyn FnMut(&[f32]) -> std::result::Result<(), halograph_graph::Error>,
    ) -> std::result::Result<(), halograph_graph::Error> {
        let key = Key::new(1, "noise");
        (0..self.0 as u64)
            .try_for_each(|v| sink(&[0, 1, 2, 3, 4, 5, 6, 7].map(|c| key.approx_normal(8 * v + c))))
    }
    fn place(&self, row: usize, column: usize) -> String {
        format!("row {row}, column {column}")
    }
}

/// An undirected graph of these edges with three classes; every third node is trained on.
pub fn from_edges(path: &Path, nodes: usize, edges: &[(u32, u32)]) -> Dataset {
    make(path, nodes, edges, false, FeatureType::F32, Metric::Accuracy)
}

/// The same, of any kind; edges with a direction may be self-loops.
pub fn make(
    path: &Path,
    nodes: usize,
    edges: &[(u32, u32)],
    directed: bool,
    feature_type: FeatureType,
    metric: Metric,
) -> Dataset {
    let edges = edges.iter().map(|&(u, v)| [u as i64, v as i64]).collect();
    let source = EdgeInput::Source(Box::new(EdgeList { name: "edges".into(), edges }));
    let options = EdgeOptions { directed, keep_self_loops: directed };
    let (csr, _) = build(nodes, source, options, &Silent).unwrap();
    let split: Vec<u8> = (0..nodes).map(|v| 1 + v as u8 % 3).collect();
    let contents = Contents {
        name: "edges".into(),
        csr: &csr,
        directed,
        features: &Noise(nodes),
        feature_type,
        labels: &Labels::Single((0..nodes as i64).map(|v| v / 3 % 3).collect()),
        classes: 3,
        class_names: Vec::new(),
        split: &split,
        ids: None,
        metric,
        source: "test".into(),
    };
    write(path, false, &contents, &Silent).unwrap();
    Dataset::open(path).unwrap()
}

/// Everything on that can differ between ranks.
pub fn config(kind: Kind) -> Config {
    let mut config = Config::new(kind);
    config.model.hidden = 8;
    config.model.dropout = 0.4;
    config.model.input_dropout = 0.2;
    config.model.attention_dropout = 0.2;
    config.train.epochs = 20;
    config.train.threads = 1;
    config.train.weight_decay = 1e-3;
    config
}

pub fn on_ranks(config: &Config, ranks: usize) -> Config {
    let mut config = config.clone();
    config.train.strategy = StrategyKind::Partition;
    config.train.ranks = ranks;
    config
}

/// One rank per group of stages.
pub fn layers(config: &Config, ranks: usize, chunks: u64) -> Config {
    let mut config = on_ranks(config, ranks);
    config.train.strategy = StrategyKind::Layers;
    config.layers.chunks = Some(chunks);
    config
}

/// Groups of stages × parts of the graph.
pub fn hybrid(config: &Config, (stages, ways): (usize, usize), chunks: u64) -> Config {
    let mut config = on_ranks(config, stages * ways);
    config.train.strategy = StrategyKind::Hybrid;
    (config.layers.stages, config.layers.chunks) = (Some(stages as u64), Some(chunks));
    config
}

#[derive(Default)]
pub struct Watch {
    pub epochs: Vec<EpochRecord>,
    /// Requests to stop after this epoch; 0: before the first step.
    pub stop_after: Option<u64>,
    /// Steps of epochs with several.
    pub steps: u64,
    /// Requests to stop in the step after so many.
    pub stop_after_steps: Option<u64>,
}

impl Observer for Watch {
    fn on(&mut self, event: &Event) {
        match event {
            Event::Epoch { record, .. } => self.epochs.push((*record).clone()),
            Event::Step { .. } => self.steps += 1,
            _ => (),
        }
    }

    fn interrupted(&self) -> bool {
        self.stop_after.is_some_and(|stop| self.epochs.last().map_or(0, |e| e.epoch) >= stop)
            || self.stop_after_steps.is_some_and(|stop| self.steps >= stop)
    }
}

/// A run in a folder of its own, with all its epochs.
pub fn run(data: &Dataset, config: &Config) -> (Summary, Watch, Vec<u8>) {
    let temp = TempDir::new().unwrap();
    let header = Header { data: DataRef::new(data).unwrap(), config: config.clone() };
    let mut run = Run::create(&temp.path().join("run"), header, false).unwrap();
    let mut watch = Watch::default();
    let summary = train_run(data, &mut run, None, &mut watch).unwrap();
    let weights = read_weights(run.path()).unwrap().to_bytes();
    (summary, watch, weights)
}

/// Stale from the second epoch on, as it is read.
pub fn pipelined(config: &Config, ranks: usize) -> Config {
    let mut config = on_ranks(config, ranks);
    config.train.strategy = StrategyKind::Pipelined;
    (config.train.warmup_epochs, config.train.smooth) = (1, Smooth::None);
    config
}

/// A new run in the folder `path`.
pub fn create(path: &Path, data: &Dataset, config: &Config) -> Run {
    let header = Header { data: DataRef::new(data).unwrap(), config: config.clone() };
    Run::create(path, header, false).unwrap()
}

/// The run in the folder `path`, and where it continues.
pub fn resume(path: &Path) -> (Run, Option<ResumePoint>) {
    let resumed = Run::resume(path).unwrap();
    let from = resumed.checkpoint.map(|checkpoint| ResumePoint::new(checkpoint, resumed.history));
    (resumed.run, from)
}

/// Trains on ranks that are threads; returns what each of them returns. An error ends the rank it comes from, not the
/// others. `watches`: the observer of each rank.
pub fn train_each(
    data: &Dataset,
    run: &mut Run,
    from: Option<ResumePoint>,
    watches: &mut [Watch],
) -> Vec<Result<Option<Summary>>> {
    train_each_with(data, run, from, watches, None)
}

/// The same with a fault, which ends all ranks.
pub fn train_each_with(
    data: &Dataset,
    run: &mut Run,
    from: Option<ResumePoint>,
    watches: &mut [Watch],
    fault: Option<Fault>,
) -> Vec<Result<Option<Summary>>> {
    let (header, path) = (run.header().clone(), run.path().to_path_buf());
    let extras = Extras { fault, ..Extras::default() };
    let ranks = watches.len();
    let lead = Mutex::new(Some((run, from)));
    let watches: Vec<_> = watches.iter_mut().map(Mutex::new).collect();
    let results = threads::run(ranks, &Options::default(), |comm| {
        let mut watch = watches[comm.rank()].lock().unwrap();
        let observer: &mut dyn Observer = &mut **watch;
        Ok::<_, CommError>(match comm.rank() {
            0 => {
                let (run, from) = lead.lock().unwrap().take().unwrap();
                train(data.into(), Leader { world: Some(comm), run, from, observer }, extras).map(Some)
            }
            _ => {
                let follower = Follower { world: comm, header: &header, directory: Some(&path), observer };
                train_as_follower(data.into(), follower, extras).map(|()| None)
            }
        })
    });
    results.into_iter().map(|result| result.unwrap_or_else(|error| Err(error.into()))).collect()
}

/// One for each rank.
pub fn watches(ranks: usize) -> Vec<Watch> {
    (0..ranks).map(|_| Watch::default()).collect()
}

#[track_caller]
pub fn assert_follows(ranks: &[EpochRecord], alone: &[EpochRecord], tolerance: f64, what: &str) {
    assert_eq!(ranks.len(), alone.len());
    for (a, b) in ranks.iter().zip(alone) {
        let apart = (a.loss - b.loss).abs() / b.loss.abs().max(1e-3);
        assert!(
            apart <= tolerance,
            "{what}, epoch {}: loss {} where one process has {}",
            a.epoch,
            a.loss,
            b.loss
        );
    }
}

/// Weights of both files, of the same names: by the norm of their difference, relative to that of the second.
#[track_caller]
pub fn assert_same_weights(one: &[u8], other: &[u8], tolerance: f64, what: &str) {
    let [one, other] = [one, other].map(|bytes| State::from_bytes("weights", bytes).unwrap());
    assert!(one.0.keys().eq(other.0.keys()), "{what}: complete weights");
    let (mut apart, mut norm) = (0.0, 0.0);
    for (own, tensor) in one.0.values().zip(other.0.values()) {
        assert_eq!(own.shape, tensor.shape, "{what}");
        // Without counts of batches.
        let Some(numbers) = tensor.to_real::<f64>() else { continue };
        let pairs = own.to_real::<f64>().unwrap().into_iter().zip(numbers);
        pairs.for_each(|(a, b)| (apart, norm) = (apart + (a - b) * (a - b), norm + b * b));
    }
    let apart: f64 = (apart / norm).sqrt();
    assert!(norm > 0.0 && apart <= tolerance, "{what}: weights differ by {apart}");
}

/// A run of these settings that somebody stops after an epoch, and then takes up again: it must end as if that had not
/// been.
#[track_caller]
pub fn assert_resumes(data: &Dataset, config: &Config, epoch: u64) {
    let (whole, _, weights) = run(data, config);
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("run");
    let header = Header { data: DataRef::new(data).unwrap(), config: config.clone() };
    let mut first = Run::create(&path, header, false).unwrap();
    let mut watch = Watch { stop_after: Some(epoch), ..Watch::default() };
    let half = train_run(data, &mut first, None, &mut watch).unwrap();
    assert_eq!((half.ending, half.epochs), (Ending::Interrupted, epoch));
    for rank in 0..config.train.ranks {
        assert!(path.join(format!("ckpt-{epoch}/rank-{rank}.safetensors")).exists());
    }
    drop(first);
    assert_ends_as(data, &path, &whole, &weights);
}

/// Takes up the run at `path`, which must then end like another one.
#[track_caller]
pub fn assert_ends_as(data: &Dataset, path: &Path, whole: &Summary, weights: &[u8]) {
    let mut resumed = Run::resume(path).unwrap();
    let from = resumed.checkpoint.map(|c| ResumePoint::new(c, resumed.history));
    let summary = train_run(data, &mut resumed.run, from, &mut Watch::default()).unwrap();
    assert_eq!(summary.loss_history, whole.loss_history);
    assert!(read_weights(path).unwrap().to_bytes() == weights, "other weights");
}

/// A rank that panics, or falls silent, in epoch 6 ends all by name, and the run can be taken up again.
#[track_caller]
pub fn assert_survives(data: &Dataset, config: &Config) {
    let mut config = config.clone();
    config.train.checkpoint_seconds = 0.0;
    config.train.deadline = 1.0;
    let (whole, _, weights) = run(data, &config);
    for (rank, stalls) in [(0, false), (2, false), (0, true), (1, true)] {
        let temp = TempDir::new().unwrap();
        let path = temp.path().join("run");
        let header = Header { data: DataRef::new(data).unwrap(), config: config.clone() };
        let mut first = Run::create(&path, header, false).unwrap();
        let mut watch = Watch::default();
        let leader = Leader { world: None, run: &mut first, from: None, observer: &mut watch };
        let extras = Extras { fault: Some(Fault { rank, epoch: 6, stalls }), ..Extras::default() };
        let error = train(data.into(), leader, extras).unwrap_err().to_string();
        let cause = if stalls { "sent nothing for" } else { "a panic was requested" };
        assert!(error.contains(&format!("rank {rank}")) && error.contains(cause), "{error}");
        drop(first);
        assert_eq!(Run::resume(&path).unwrap().checkpoint.unwrap().epoch, 5);
        assert_ends_as(data, &path, &whole, &weights);
    }
}
