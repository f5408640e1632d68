//! How much memory a run will need, before it begins.
//!
//! Nothing is derived by hand: a few thousand nodes of the same average degree and widths are trained for two epochs
//! under an allocator that counts, twice with different numbers of nodes, and the line through the two peaks is
//! followed to the real number. So the prediction stays true when layers change what they keep.
//!
//! The counting allocator is the program's to install:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: halograph_train::memory::Counting = halograph_train::memory::Counting;
//! # fn main() { assert!(halograph_train::memory::is_counting()) }
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use half::f16;
use halograph_graph::Dataset;
use halograph_graph::block::Block;
use halograph_graph::dataset::{FEAT, Manifest, Part, Task};
use halograph_graph::error::Error as InputError;
use halograph_kernels::keyed::Key;
use halograph_kernels::{Real, buffer};
use halograph_nn::state::State;
use halograph_nn::{Input, Matrix, Model};

use crate::config::{Config, Precision};
use crate::data::{Rows, View};
use crate::error::Result;
use crate::evaluation::new_model;
use crate::loss::loss;
use crate::run::DataRef;
use crate::strategy::single::{self, Plan};
use crate::trainer::{checkpoint_state, in_pool, new_optimizer, threads};

/// Bytes allocated now, and most at once since last asked.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting.
pub struct Counting;

impl Counting {
    fn add(&self, bytes: usize) {
        let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
        PEAK.fetch_max(live, Relaxed);
    }

    fn remove(&self, bytes: usize) {
        LIVE.fetch_sub(bytes, Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches two numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.remove(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.add(size);
        self.remove(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Whether the program installed [`Counting`].
pub fn is_counting() -> bool {
    PEAK.load(Relaxed) > 0
}

/// Bytes allocated now; 0 where the program does not count.
pub fn allocated() -> usize {
    LIVE.load(Relaxed)
}

/// Most bytes allocated at once while `work` runs. Nothing else may run meanwhile.
fn peak_of<R>(work: impl FnOnce() -> R) -> (u64, R) {
    PEAK.store(allocated(), Relaxed);
    let result = work();
    (PEAK.load(Relaxed) as u64, result)
}

/// Peak memory of training `config` on `dataset`, in bytes; `None` where the program does not count.
pub fn predict(dataset: &Dataset, config: &Config) -> Result<Option<u64>> {
    if !is_counting() {
        return Ok(None);
    }
    // Refuses what is too large to be rehearsed.
    drop(new_model::<f32>(&DataRef::new(dataset, &dataset.path)?, config)?);
    let needed = in_pool(threads(&config.train), || {
        buffer::without_keeping(|| match config.train.precision {
            Precision::F32 => extrapolate::<f32>(&Shape::of(dataset), config),
            Precision::F64 => extrapolate::<f64>(&Shape::of(dataset), config),
        })
    })?;
    // Only now, when threads have their stacks and buffers.
    Ok(Some(rss().unwrap_or(0) + needed))
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
    /// Bytes of features on disk, mapped while they are read.
    mapped: u64,
    /// Whether features are kept in half precision.
    is_half: bool,
    is_directed: bool,
}

impl Shape {
    fn of(dataset: &Dataset) -> Self {
        let m: &Manifest = &dataset.manifest;
        let nodes = m.nodes.max(1);
        let share =
            |part: Part| dataset.split().iter().filter(|&&p| p == part as u8).count() as f64 / nodes as f64;
        Shape {
            nodes,
            degree: m.edges as f64 / nodes as f64,
            features: m.features as usize,
            classes: m.classes as usize,
            task: m.task,
            train: share(Part::Train),
            val: share(Part::Val),
            mapped: m.files.get(FEAT).map_or(0, |file| file.bytes),
            is_half: dataset.features().as_slice::<f16>().is_some(),
            is_directed: m.directed,
        }
    }
}

/// Most nodes of the smaller rehearsal, and most numbers in its widest matrix. Enough for every thread to have its task,
/// so that what tasks need for themselves is the same in both.
const MOST_NODES: usize = 2048;
const MOST_NUMBERS: usize = 1 << 21;

/// Peak bytes at the real number of nodes. What a phase needs lies on a line, the most of all phases does not: each is
/// followed by itself.
fn extrapolate<T: Real>(shape: &Shape, config: &Config) -> Result<u64> {
    let spec = &config.model;
    let heads = spec.heads.max(spec.output_heads);
    let widest = shape.features.max(spec.hidden).max(heads * shape.classes).max(1);
    let few = MOST_NODES.min(MOST_NUMBERS / widest).min(shape.nodes as usize / 2).max(4);
    // The first time fills buffers that threads keep.
    rehearse::<T>(shape, config, few)?;
    let (one, two) = (rehearse::<T>(shape, config, few)?, rehearse::<T>(shape, config, 2 * few)?);
    let width = if shape.is_half { size_of::<f16>() } else { size_of::<T>() };
    let reading = shape.mapped + shape.nodes * (shape.features * width) as u64;
    let phases = one.into_iter().zip(two).map(|(one, two)| {
        let slope = two.saturating_sub(one) as f64 / few as f64;
        (one as f64 + slope * (shape.nodes as f64 - few as f64)).max(0.0) as u64
    });
    Ok(phases.fold(reading, u64::max))
}

/// Does all that a run does, with `nodes` nodes: trains two epochs, gathers features, evaluates, saves and takes up
/// again. Gives the peak bytes of these four.
fn rehearse<T: Real>(shape: &Shape, config: &Config, nodes: usize) -> Result<[u64; 4]> {
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
    let plan = Plan::new(&model, &train, &rows);
    let best = model.state();
    let (training, ()) = peak_of(|| {
        for epoch in 0..2 {
            single::epoch(&mut model, &plan, &rows, Key::new(0, "rehearsal").with(epoch));
            optimizer.step(&mut model, config.train.lr);
        }
    });
    // An inductive run gathers features anew; while it does, those in the file are in memory as well.
    let (reading, features) = peak_of(|| {
        let _mapped = vec![0u8; if inductive { (shape.mapped / shape.nodes) as usize * nodes } else { 0 }];
        if inductive { features(nodes) } else { train.features.clone() }
    });
    let (evaluation, best) = peak_of(|| {
        let larger = larger.map(|[_, whole]| View::new(whole, features));
        loss(&single::evaluate(&model, larger.as_ref().unwrap_or(&train)).logits, &rows, rows.count());
        (best, model.state()).1
    });
    let (saving, restored) = peak_of(|| {
        let bytes = checkpoint_state(&model, &optimizer, &best).to_bytes();
        State::from_bytes("rehearsal", &bytes).map(drop)
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

/// Bytes of memory this process has now.
fn rss() -> Option<u64> {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// Most bytes of memory this process has had at once.
pub fn peak_rss() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// Bytes that could still be had: of the machine's, and of what this process may use of it.
pub fn available() -> Option<u64> {
    let machine = kibibytes("/proc/meminfo", "MemAvailable:")?;
    Some(group_limit().map_or(machine, |limit| machine.min(limit)))
}

/// Bytes that the control group of this process (version 2) leaves it, if it sets a limit.
fn group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let (max, used) = number("memory.max").zip(number("memory.current"))?;
    // Files the kernel merely remembers are given up when memory is asked for.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let cached = cached("inactive_file ").unwrap_or(0) + cached("active_file ").unwrap_or(0);
    Some(max.saturating_sub(used.saturating_sub(cached)))
}

fn kibibytes(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
