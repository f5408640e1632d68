//! Admission by memory: how much a run needs, predicted before it starts.
//!
//! Nothing is derived by hand: a few thousand nodes of the same average degree and widths are trained for two epochs under
//! an allocator that counts, with two numbers of nodes, and the line through both peaks is followed to the real number.
//! So the prediction stays true when layers change what they keep.

use std::sync::Arc;

use half::f16;
use halograph_graph::Dataset;
use halograph_graph::block::Block;
use halograph_graph::dataset::{FEAT, Manifest, Subset, Task};
use halograph_graph::error::Error as InputError;
use halograph_graph::partition::report::PartCounts;
use halograph_graph::partition::shard::manifest::ShardManifest;
use halograph_graph::partition::{PartitionInfo, Shard};
use halograph_kernels::keyed::Key;
use halograph_kernels::{Real, buffer};
use halograph_nn::state::State;
use halograph_nn::{Input, Matrix, Model};

use crate::config::{Config, Precision};
use crate::cost::{NumberBytes, RowBytes};
use crate::data::{Rows, View};
use crate::error::Result;
use crate::evaluation;
use crate::loss::loss;
use crate::memory::{allocated, available, is_counting, peak_of, rss};
use crate::pool::{in_pool, threads};
use crate::run::DataRef;
use crate::setup::{new_model, new_optimizer};
use crate::strategy::pipelined::Schedule;
use crate::strategy::single::Plan;
use crate::trainer::checkpoint_state;

/// Peak memory of training `config` on `dataset` in one process, in bytes; `None` where the program does not count.
pub fn predict(dataset: &Dataset, config: &Config) -> Result<Option<u64>> {
    let data = DataRef::new(dataset)?;
    let shape = Shape::of(dataset);
    let Some(lines) = in_pool(threads(&config.train), || Lines::new(&shape, &data, config))? else {
        return Ok(None);
    };
    // Only now, when threads have their stacks and buffers.
    Ok(Some(rss().unwrap_or(0) + lines.at(shape.nodes)))
}

/// How large one part of a graph is.
#[derive(Debug, Clone, Copy)]
pub struct PartSize {
    /// Owned vertices.
    pub owned: u64,
    /// Rows it reads of others.
    pub halo: u64,
    /// In-edges of owned vertices.
    pub edges: u64,
}

impl From<&PartCounts> for PartSize {
    fn from(size: &PartCounts) -> Self {
        PartSize { owned: size.nodes, halo: size.halo, edges: size.edges }
    }
}

impl From<&ShardManifest> for PartSize {
    fn from(part: &ShardManifest) -> Self {
        PartSize { owned: part.owned, halo: part.halo, edges: part.edges }
    }
}

impl From<&Shard> for PartSize {
    fn from(shard: &Shard) -> Self {
        let (owned, rows) = (shard.owned() as u64, shard.rows() as u64);
        PartSize { owned, halo: rows - owned, edges: shard.edges().indices.len() as u64 }
    }
}

/// Peak memory of training `config` in one process on all these parts of a graph, a rank each.
pub fn predict_parts(
    whole: &PartitionInfo,
    data: &DataRef,
    parts: &[PartSize],
    config: &Config,
) -> Result<Option<u64>> {
    let shape = Shape::of_part(whole);
    let Some(lines) = in_pool(threads(&config.train), || Lines::new(&shape, data, config))? else {
        return Ok(None);
    };
    let needed: u64 = parts.iter().map(|part| lines.of_part(part, whole, config)).sum();
    Ok(Some(rss().unwrap_or(0) + FACTS * whole.dataset.nodes + needed))
}

/// Peak memory of this process if it trains `config` on `shard`, which it has already, as one of several ranks.
pub fn predict_part(shard: &Shard, data: &DataRef, config: &Config) -> Result<Option<u64>> {
    let lines = Lines::new(&Shape::of_part(shard.partition()), data, config)?;
    Ok(lines.map(|lines| rss().unwrap_or(0) + lines.of_part(&shard.into(), shard.partition(), config)))
}

/// Refuses a run that needs more memory than is free, unless forced.
pub fn admit(predicted: u64, force: bool) -> Result<()> {
    let free = available().map(|bytes| bytes + rss().unwrap_or(0));
    match free {
        Some(free) if predicted > free && !force => {
            let problem =
                format!("training needs about {} MiB and {} MiB are free", predicted >> 20, free >> 20);
            let help = "a smaller model.hidden or fewer layers need less; --force tries all the same";
            Err(InputError::input("memory", problem).help(help).into())
        }
        _ => Ok(()),
    }
}

/// What of a dataset decides how much memory it takes.
struct Shape {
    nodes: u64,
    degree: f64,
    features: usize,
    classes: usize,
    task: Task,
    /// Shares of nodes that are trained on, and validated on.
    train: f64,
    val: f64,
    /// Bytes of a node's features on disk, mapped while they are read.
    row: f64,
    /// Whether features are kept in half precision.
    is_half: bool,
    is_directed: bool,
}

impl Shape {
    fn of(dataset: &Dataset) -> Self {
        let nodes = dataset.manifest.nodes.max(1) as f64;
        let share =
            |part: Subset| dataset.split().iter().filter(|&&p| p == part as u8).count() as f64 / nodes;
        Shape::new(&dataset.manifest, share(Subset::Train), share(Subset::Val))
    }

    /// Of parts of a graph, but for their number of nodes: the same for all of them.
    fn of_part(whole: &PartitionInfo) -> Self {
        let m = &whole.dataset;
        let train = whole.training as f64 / m.nodes.max(1) as f64;
        // Nobody has counted validation nodes: at most the rest.
        let shape = Shape::new(m, train, 1.0 - train);
        Shape { nodes: (m.nodes / u64::from(whole.parts.max(1))).max(1), ..shape }
    }

    fn new(m: &Manifest, train: f64, val: f64) -> Self {
        let nodes = m.nodes.max(1);
        let on_disk = m.files.get(FEAT).map_or(0, |file| file.bytes);
        let row = on_disk as f64 / nodes as f64;
        Shape {
            nodes,
            degree: m.edges as f64 / nodes as f64,
            features: m.features as usize,
            classes: m.classes as usize,
            task: m.task,
            train,
            val,
            row,
            // A header does not make up for a byte of each number.
            is_half: m.nodes > 100 && on_disk > 0 && row < 3.0 * m.features as f64,
            is_directed: m.directed,
        }
    }
}

/// Most nodes of the smaller dry run, and most numbers in its widest matrix. Enough for every thread to have its task,
/// so that what tasks need for themselves is the same in both.
const MOST_NODES: usize = 2048;
const MOST_NUMBERS: usize = 1 << 21;

/// Bytes that are known of every node of a graph that is cut in memory: see `Layout`, and the assignment.
const FACTS: u64 = 29;
/// Bytes of a row of a part, and of an owned one besides: ids, degrees, places, starts of rows.
const ROW: u64 = 30;
const OWNED: u64 = 48;

/// Peak bytes by the number of nodes. What a phase needs lies on a line, the most of all phases does not: each is
/// followed by itself.
struct Lines {
    /// Nodes of the smaller dry run; the other had twice as many.
    few: usize,
    one: [u64; 4],
    two: [u64; 4],
    /// Bytes of a node's features while they are read.
    reading: f64,
    /// Bytes of a number.
    width: u64,
}

impl Lines {
    /// Measures dry runs; `None` where the program does not count.
    fn new(shape: &Shape, data: &DataRef, config: &Config) -> Result<Option<Self>> {
        if !is_counting() {
            return Ok(None);
        }
        // Refuses what is too large for a dry run.
        drop(new_model::<f32>(data, config)?);
        buffer::without_pool(|| match config.train.precision {
            Precision::F32 => Lines::measured::<f32>(shape, config).map(Some),
            Precision::F64 => Lines::measured::<f64>(shape, config).map(Some),
        })
    }

    fn measured<T: Real>(shape: &Shape, config: &Config) -> Result<Self> {
        let spec = &config.model;
        let heads = spec.heads.max(spec.output_heads);
        let widest = shape.features.max(spec.hidden).max(heads * shape.classes).max(1);
        let few = MOST_NODES.min(MOST_NUMBERS / widest).min(shape.nodes as usize / 2).max(4);
        // The first time fills buffers that threads keep.
        dry_run::<T>(shape, config, few)?;
        let (one, two) = (dry_run::<T>(shape, config, few)?, dry_run::<T>(shape, config, 2 * few)?);
        let width = if shape.is_half { size_of::<f16>() } else { size_of::<T>() };
        let reading = shape.row + (shape.features * width) as f64;
        Ok(Lines { few, one, two, reading, width: size_of::<T>() as u64 })
    }

    /// Peak bytes of training so many nodes.
    fn at(&self, nodes: u64) -> u64 {
        let phases = self.one.into_iter().zip(self.two).map(|(one, two)| {
            let slope = two.saturating_sub(one) as f64 / self.few as f64;
            (one as f64 + slope * (nodes as f64 - self.few as f64)).max(0.0) as u64
        });
        phases.fold((self.reading * nodes as f64) as u64, u64::max)
    }

    /// The same for a part of a graph: its rows, the part itself with the edges of each stage, and what travels: halo rows
    /// of each layer, and their gradients.
    fn of_part(&self, part: &PartSize, whole: &PartitionInfo, config: &Config) -> u64 {
        let &PartSize { owned, halo, edges } = part;
        let hops = config.model.layers.min(whole.distances.len());
        let near = |level: usize| whole.distances[..=level].iter().sum::<u64>() as f64;
        let stages = (0..hops).map(|level| near(level) / whole.dataset.nodes.max(1) as f64).sum::<f64>();
        let structure = 4 * edges + ROW * (owned + halo) + OWNED * owned;
        let [inputs, outputs] = [whole.dataset.features, whole.dataset.classes].map(|n| n as usize);
        let numbers = NumberBytes { features: self.width, activations: self.width };
        let rows = RowBytes::of_stages(&config.model.messages(inputs, outputs), numbers);
        // A message is in memory where it is sent from and where it arrives.
        let travelling: u64 = rows.iter().map(|row| row.setup + row.features.max(row.gradients)).sum();
        let travelling = 2 * halo * travelling;
        // What is kept from epoch to epoch is copied twice when it is saved.
        let recurring: u64 = rows.iter().map(|row| row.features + row.gradients).sum();
        let kept = 3 * Schedule::of(&config.train).kept_versions() * halo * recurring;
        self.at(owned) + structure + (stages * (4 * edges) as f64) as u64 + travelling + kept
    }
}

/// Does all that a run does, with `nodes` nodes: trains two epochs, gathers features, evaluates, saves and takes up
/// again. Gives the peak bytes of these four.
fn dry_run<T: Real>(shape: &Shape, config: &Config, nodes: usize) -> Result<[u64; 4]> {
    let before = allocated() as u64;
    let features = |nodes: usize| -> Input<T> {
        if shape.is_half && size_of::<T>() == size_of::<f32>() {
            return Input::Half(Arc::new(Matrix::zeros(nodes, shape.features)));
        }
        Matrix::zeros(nodes, shape.features).into()
    };
    let view = |nodes: usize| View::new(ring(nodes, shape.degree, shape.is_directed), features(nodes));
    let part = |share: f64| ((share * nodes as f64) as usize).clamp(1, nodes);
    let trained = part(shape.train);
    let inductive = config.data.inductive;
    // The last row is trained on: then every row is needed, as it is in most graphs for all layers but the last.
    let seen = if inductive { trained } else { nodes };
    let rows = Rows::blank((seen - trained) as u32..seen as u32, shape.task, shape.classes);
    let train = view(seen);
    let larger = inductive
        .then(|| [part(shape.train + shape.val), nodes].map(|n| ring(n, shape.degree, shape.is_directed)));
    let mut model: Model<T> = Model::new(&config.model, shape.features, shape.classes, config.train.seed);
    let mut optimizer = new_optimizer(&config.train, &model)?;
    let plan = Plan::new(&model, &train, &rows)?;
    let best = model.state();
    let (training, trained) = peak_of(|| {
        for epoch in 0..2 {
            plan.step(&mut model, &rows, Key::new(0, "dry run").with(epoch))?;
            optimizer.step(&mut model, config.train.lr);
        }
        Ok::<_, crate::Error>(())
    });
    trained?;
    // An inductive run gathers features anew; while it does, those in the file are in memory as well.
    let (reading, features) = peak_of(|| {
        let _mapped = vec![0u8; if inductive { shape.row as usize * nodes } else { 0 }];
        if inductive { features(nodes) } else { train.features.clone() }
    });
    let (evaluation, best) = peak_of(|| {
        let larger = larger.map(|[_, whole]| View::new(whole, features));
        let outputs = evaluation::outputs(&model, larger.as_ref().unwrap_or(&train))?;
        loss(&outputs.logits, &rows, rows.count());
        Ok::<_, crate::Error>((best, model.state()).1)
    });
    let best = best?;
    let (saving, restored) = peak_of(|| {
        let bytes = checkpoint_state(&model, &optimizer, &best).to_bytes();
        State::from_bytes("dry run", &bytes).map(drop)
    });
    restored?;
    Ok([training, reading, evaluation, saving].map(|peak| peak.saturating_sub(before)))
}

/// A graph in which every node has `degree` neighbours, rounded up: its successors, or half as many of them and of its
/// predecessors.
fn ring(nodes: usize, degree: f64, is_directed: bool) -> Block<'static> {
    let half = (degree / 2.0).ceil() as usize;
    let (before, after) = if is_directed { (0, degree.ceil() as usize) } else { (half, half) };
    let row = |v: usize| {
        let away = (0..=before + after).filter(|&i| i != before);
        let mut row: Vec<u32> = away.map(|i| ((v + i + nodes * before - before) % nodes) as u32).collect();
        row.sort_unstable();
        row
    };
    let indptr: Vec<u64> = (0..=nodes as u64).map(|v| v * (before + after) as u64).collect();
    let indices: Vec<u32> = (0..nodes).flat_map(row).collect();
    Block::new(indptr, indices, 0..nodes, vec![degree as u32; nodes], None)
}
