//! Datasets: a directory of plain files that numpy can open, memory-mapped, or arrays in memory
//! ([`Dataset::from_arrays`]).
//!
//! A dataset directory holds:
//!
//! | file | type | meaning |
//! |---|---|---|
//! | `dataset.json` | [`Manifest`] | version, counts, task, metric, fingerprint |
//! | `indptr.npy` | u64 or i64, N+1 | row starts |
//! | `indices.npy` | u32 or i32, E | `indices[indptr[v]..indptr[v+1]]` are the in-neighbours of v |
//! | `edge_weight.npy` | f32, E | weights of the edges in the order of `indices.npy`, if there are any |
//! | `feat.npy` | f32 or f16, N×F | input features |
//! | `feat_indptr.npy`, `feat_indices.npy`, `feat_values.npy` | u64 or i64, N+1; u32 or i32; f32 or f16 | sparse input features, instead of `feat.npy`: row starts, columns (ascending in each row) and values |
//! | `label.npy` | i64 N (−1 = none), or u8 N×C | labels |
//! | `split.npy` | u8 N | 0 none, 1 train, 2 validation, 3 test |
//! | `splits.npy` | u8 S×N | all splits, if there are several; the first is that of `split.npy` |
//! | `ids.txt` | text, one line per node | the user's own ids, if there are any |
//! | `order.npy` | u32 N, or empty | a cached node order for locality; not part of the data |
//! | `partition-….npy`, `.json` | u32 N, text | a cached partition and what it was computed for; not part of the data |
//!
//! [`Dataset::open`] checks types, shapes and lengths; [`check()`] checks every element. Do not write into a directory
//! while it is open.

pub mod arrays;
pub mod check;
mod copy;
pub mod features;
mod hint;
pub mod info;
pub mod manifest;
mod order;
pub mod write;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rayon::prelude::*;

pub use arrays::{DatasetArrays, FeatureArray, GraphArrays};
pub use check::check;
pub use features::{SparseArrays, StoredFeatures};
pub use manifest::{MANIFEST, Manifest, Metric, Task};
pub use write::Labels;

use crate::block::{Block, weights_of};
use crate::csr::CsrView;
pub(crate) use crate::csr::{is_weight, wrong_weight};
use crate::error::{Error, IoContext, Result};
use crate::io::npy::{Array, DType};
use crate::partition::{self, cache};

/// Row starts.
pub const INDPTR: &str = "indptr.npy";
/// Neighbour ids.
pub const INDICES: &str = "indices.npy";
/// Edge weights.
pub const EDGE_WEIGHT: &str = "edge_weight.npy";
/// Features.
pub const FEAT: &str = "feat.npy";
/// Row starts of sparse features.
pub const FEAT_INDPTR: &str = "feat_indptr.npy";
/// Columns of the stored values of sparse features.
pub const FEAT_INDICES: &str = "feat_indices.npy";
/// Stored values of sparse features.
pub const FEAT_VALUES: &str = "feat_values.npy";
/// Labels.
pub const LABEL: &str = "label.npy";
/// Split.
pub const SPLIT: &str = "split.npy";
/// All splits, if there are several.
pub const SPLITS: &str = "splits.npy";
/// The user's own ids.
pub const IDS: &str = "ids.txt";
/// Cached node order; not in the manifest.
pub const ORDER: &str = "order.npy";

/// File names of a dataset directory, caches of partitions excepted.
pub const FILES: [&str; 13] = [
    MANIFEST,
    INDPTR,
    INDICES,
    EDGE_WEIGHT,
    FEAT,
    FEAT_INDPTR,
    FEAT_INDICES,
    FEAT_VALUES,
    LABEL,
    SPLIT,
    SPLITS,
    IDS,
    ORDER,
];

/// Returns whether a file of this name belongs to a dataset directory: data, or a cache.
pub fn is_part(name: &str) -> bool {
    FILES.contains(&name) || order::is_leftover(name) || cache::is_ours(name)
}

/// The subset of the split that a node belongs to, as stored in `split.npy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Subset {
    /// In no subset.
    None = 0,
    /// For training.
    Train = 1,
    /// For model selection.
    Val = 2,
    /// For the final score.
    Test = 3,
}

/// Remedy for an incomplete dataset.
const AGAIN: &str = "copy the dataset again, or import or generate it again with `halograph data`";

/// A dataset: a directory whose arrays are mapped, not read ([`Dataset::open`]; opening a large one is instant), or arrays
/// in memory ([`Dataset::from_arrays`]). A clone shares them.
#[derive(Clone)]
pub struct Dataset {
    /// Name, counts, task, metric and fingerprint.
    pub manifest: Manifest,
    /// The directory; `None`: arrays in memory.
    pub(crate) path: Option<PathBuf>,
    indptr: Array,
    indices: Array,
    edge_weight: Option<Array>,
    feat: StoredFeatures,
    label: Array,
    split: Array,
    /// All splits; `None`: there is one.
    splits: Option<Array>,
    /// Number of the chosen split.
    split_index: usize,
    /// The user's own ids of a dataset in memory.
    ids: Option<Vec<String>>,
    /// Cached locality order of a dataset in memory; empty: none improves locality.
    order: OnceLock<Vec<u32>>,
    checked: Checked,
}

/// Checks of all elements that a dataset has passed: none is repeated.
#[derive(Clone, Default)]
struct Checked {
    edges: OnceLock<()>,
    labels: OnceLock<()>,
}

/// Runs `check` unless it was passed before.
fn once(passed: &OnceLock<()>, check: impl FnOnce() -> Result<()>) -> Result<()> {
    if passed.get().is_none() {
        check()?;
        let _ = passed.set(());
    }
    Ok(())
}

impl Dataset {
    /// Opens a directory and checks the type, shape and length of every array.
    pub fn open(path: &Path) -> Result<Dataset> {
        let manifest = read_manifest(path)?;
        let open = |file| {
            let (shape, types) = shapes(&manifest, file);
            open_array(path, MANIFEST, file, &shape, types).map_err(|e| e.if_missing(AGAIN))
        };
        let [indptr, indices] = [open(INDPTR)?, open(INDICES)?];
        let edge_weight = manifest.has_edge_weights().then(|| open(EDGE_WEIGHT)).transpose()?;
        let feat = StoredFeatures::open(manifest.is_sparse(), manifest.features, open)?;
        let [label, split] = [open(LABEL)?, open(SPLIT)?];
        let splits = if manifest.splits > 1 { Some(open(SPLITS)?) } else { None };
        let dataset = Dataset {
            manifest,
            path: Some(path.to_path_buf()),
            indptr,
            indices,
            edge_weight,
            feat,
            label,
            split,
            splits,
            split_index: 0,
            ids: None,
            order: OnceLock::new(),
            checked: Checked::default(),
        };
        dataset.check_row_starts()?;
        Ok(dataset)
    }

    /// Refuses wrong row starts, which no row could be read by.
    fn check_row_starts(&self) -> Result<()> {
        let fault = check::row_starts(INDPTR, view(&self.indptr), self.manifest.edges).into_iter().next();
        fault.map_or(Ok(()), |fault| Err(self.refuse(fault)))
    }

    /// Returns the directory; `None` for arrays in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns how messages name the dataset: its directory or, in memory, its name.
    pub fn location(&self) -> String {
        match &self.path {
            Some(path) => path.display().to_string(),
            None => format!("dataset {:?}", self.manifest.name),
        }
    }

    /// Returns how messages name the array in `file`: by the file or, in memory, by the name of the array.
    pub fn place(&self, file: &str) -> String {
        match &self.path {
            Some(path) => path.join(file).display().to_string(),
            None => memory_place(&self.manifest.name, file),
        }
    }

    /// Returns the graph.
    pub fn graph(&self) -> CsrView<'_> {
        CsrView { indptr: view(&self.indptr), indices: view(&self.indices) }
    }

    /// Returns the weights of the edges of [`Dataset::graph`]; `None`: the dataset has none.
    pub fn edge_weights(&self) -> Option<&[f32]> {
        self.edge_weight.as_ref().map(view)
    }

    /// Returns `block`, which holds all edges of the graph or of an induced subgraph, with the weights of its edges, if the
    /// dataset has any.
    pub fn weighted<'d>(&'d self, block: Block<'d>) -> Block<'d> {
        let Some(weights) = self.edge_weights() else { return block };
        if block.ids().is_none() {
            return block.weighted(weights);
        }
        let id = |row: u32| block.id(row as usize);
        let of_block = weights_of(block.pattern(), self.graph(), weights, |r| id(r as u32), id);
        block.weighted(of_block)
    }

    /// Returns the features.
    pub fn features(&self) -> &StoredFeatures {
        &self.feat
    }

    /// Returns the labels as they are stored.
    pub(crate) fn label_array(&self) -> &Array {
        &self.label
    }

    /// Returns the labels.
    pub fn labels(&self) -> LabelView<'_> {
        match self.manifest.task {
            Task::SingleLabel => LabelView::Single(view(&self.label)),
            Task::MultiLabel => {
                LabelView::Multi { classes: self.manifest.classes as usize, flags: view(&self.label) }
            }
        }
    }

    /// Returns the [`Subset`] of each node in the chosen split, as a number.
    pub fn split(&self) -> &[u8] {
        match &self.splits {
            Some(splits) if self.split_index > 0 => {
                let nodes = self.manifest.nodes as usize;
                &view(splits)[self.split_index * nodes..][..nodes]
            }
            _ => view(&self.split),
        }
    }

    /// Returns the number of the chosen split; the first, 0, unless [`Dataset::with_split`] chose another.
    pub fn split_index(&self) -> usize {
        self.split_index
    }

    /// Returns how messages name the chosen split.
    pub fn split_place(&self) -> String {
        match self.split_index {
            0 => self.place(SPLIT),
            index => format!("{}, split {index}", self.place(SPLITS)),
        }
    }

    /// Returns the dataset with split number `index`, counted from 0. Shares all arrays. Refuses an index out of range.
    pub fn with_split(&self, index: usize) -> Result<Dataset> {
        let splits = self.manifest.splits;
        if index as u64 >= splits {
            let problem = match splits {
                1 => format!("no split {index}: there is one, number 0"),
                _ => format!("no split {index}: there are {splits}, counted from 0"),
            };
            return Err(Error::input(self.location(), problem)
                .help("choose another with --split-index; `halograph data info` says how many there are"));
        }
        Ok(Dataset { split_index: index, ..self.clone() })
    }

    /// Returns a single-label dataset with the classes `names`: every node keeps the name of its class. Shares all arrays but the
    /// labels. Refuses nodes of a class that is not listed.
    pub fn with_classes(&self, names: &[String]) -> Result<Dataset> {
        let LabelView::Single(labels) = self.labels() else { panic!("multi-label data") };
        let own = &self.manifest.class_names;
        let number = |name: &String| names.iter().position(|known| known == name).map(|at| at as i64);
        let numbers: Vec<Option<i64>> = own.iter().map(number).collect();
        let renumbered = labels.iter().map(|&label| match usize::try_from(label) {
            Err(_) => Ok(label),
            Ok(class) => numbers.get(class).copied().flatten().ok_or(class),
        });
        let labels = renumbered.collect::<Result<Vec<i64>, usize>>().map_err(|class| {
            let name = own.get(class).cloned().unwrap_or_else(|| class.to_string());
            Error::input(self.place(LABEL), format!("class {name:?} is not one of {}", names.join(", ")))
        })?;
        let label = Array::from_vec(self.place(LABEL), vec![labels.len()], labels)?;
        let manifest =
            Manifest { classes: names.len() as u64, class_names: names.to_vec(), ..self.manifest.clone() };
        let checked = Checked { labels: OnceLock::new(), ..self.checked.clone() };
        Ok(Dataset { manifest, label, checked, ..self.clone() })
    }

    /// Refuses neighbour ids that are out of range and impossible edge weights. Reads all edges at the first call.
    pub fn check_edges(&self) -> Result<()> {
        once(&self.checked.edges, || self.find_wrong_edge().and_then(|()| self.find_wrong_weight()))
    }

    fn find_wrong_weight(&self) -> Result<()> {
        let weights = self.edge_weights().unwrap_or_default();
        let Some(edge) = weights.par_iter().position_any(|&weight| !is_weight(weight)) else { return Ok(()) };
        let place = format!("{}, element {edge}", self.place(EDGE_WEIGHT));
        Err(Error::input(place, wrong_weight(weights[edge].into()))
            .help("`halograph data check` lists every fault of a dataset"))
    }

    fn find_wrong_edge(&self) -> Result<()> {
        let graph = self.graph();
        let nodes = graph.nodes();
        let Some(edge) = graph.indices.par_iter().position_any(|&u| u as usize >= nodes) else {
            return Ok(());
        };
        let place = format!("{}, element {edge}", self.place(INDICES));
        let problem = format!("out-of-range id {} in a graph of {nodes} nodes", graph.indices[edge]);
        Err(Error::input(place, problem).help("`halograph data check` lists every fault of a dataset"))
    }

    /// Refuses classes that are out of range. Reads all labels at the first call.
    pub fn check_labels(&self) -> Result<()> {
        once(&self.checked.labels, || self.find_wrong_label())
    }

    fn find_wrong_label(&self) -> Result<()> {
        let LabelView::Single(classes) = self.labels() else { return Ok(()) };
        let count = self.manifest.classes as i64;
        let Some(v) = classes.iter().position(|&c| c < -1 || c >= count) else { return Ok(()) };
        let place = format!("{}, element {v}", self.place(LABEL));
        Err(Error::input(place, format!("{} is not one of {count} classes", classes[v]))
            .help("`halograph data check` lists every fault of a dataset"))
    }

    /// Returns the user's own node ids, if there are any. Reads `ids.txt`.
    pub fn ids(&self) -> Result<Option<Vec<String>>> {
        match &self.path {
            Some(path) if self.manifest.files.contains_key(IDS) => {
                read_ids(path, self.manifest.nodes as usize).map(Some)
            }
            _ => Ok(self.ids.clone()),
        }
    }
}

/// How messages name an array of a dataset in memory: that which a directory would keep in `file`.
fn memory_place(dataset: &str, file: &str) -> String {
    let array = match file {
        INDPTR => "indptr",
        INDICES => "indices",
        EDGE_WEIGHT => "edge weights",
        FEAT => "features",
        FEAT_INDPTR => "row starts of the features",
        FEAT_INDICES => "columns of the features",
        FEAT_VALUES => "values of the features",
        LABEL => "labels",
        SPLIT => "split",
        SPLITS => "splits",
        IDS => "ids",
        other => other,
    };
    format!("dataset {dataset:?}, {array}")
}

/// Borrowed labels.
#[derive(Clone, Copy)]
pub enum LabelView<'a> {
    /// One class per node, −1 for none.
    Single(&'a [i64]),
    /// `nodes × classes` flags.
    Multi {
        /// Columns.
        classes: usize,
        /// 0 or 1 each.
        flags: &'a [u8],
    },
}

/// Reads `dataset.json` of the directory `path`.
pub fn read_manifest(path: &Path) -> Result<Manifest> {
    let file = path.join(MANIFEST);
    if path.is_file() {
        let error = Error::input(path.display(), "is a file, not a dataset directory");
        return Err(error.help(hint::for_file(path)));
    }
    if path.is_dir() && !file.exists() {
        refuse_shards(path)?;
        let error = Error::input(path.display(), format!("no {MANIFEST}: this is not a dataset directory"));
        return Err(error.help(hint::for_folder(path)));
    }
    if !path.exists() {
        let help = "check the path; `halograph data make` and `halograph data import` write datasets";
        return Err(Error::input(path.display(), "does not exist").help(help));
    }
    let text = fs::read_to_string(&file).at(&file, "read")?;
    Manifest::parse(&file, &text)
}

/// Refuses a folder of shards, or a single shard.
fn refuse_shards(path: &Path) -> Result<()> {
    if path.join(partition::folder::MANIFEST).exists() {
        return Err(Error::input(path.display(), "is a folder of shards, not a dataset directory")
            .help("train, eval and predict take shards; here, give the dataset that was partitioned"));
    }
    if path.join(partition::shard::manifest::MANIFEST).exists() {
        let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
        return Err(Error::input(path.display(), "is a single shard, not a dataset directory")
            .help(format!("give train, eval and predict the folder above: {}", above.display())));
    }
    Ok(())
}

/// Reads the ids of `nodes` nodes from the folder `path`.
pub(crate) fn read_ids(path: &Path, nodes: usize) -> Result<Vec<String>> {
    let file = path.join(IDS);
    let text = fs::read_to_string(&file).at(&file, "read")?;
    let ids: Vec<String> = text.lines().map(String::from).collect();
    if ids.len() != nodes {
        return Err(Error::input(file.display(), format!("{} lines for {nodes} nodes", ids.len())));
    }
    Ok(ids)
}

/// Returns the shape and the possible types of the array in `file`.
fn shapes(manifest: &Manifest, file: &str) -> (Vec<usize>, &'static [DType]) {
    let n = manifest.nodes as usize;
    match (file, manifest.task) {
        (INDPTR, _) => (vec![n.saturating_add(1)], &[DType::U64, DType::I64]),
        (INDICES, _) => (vec![manifest.edges as usize], &[DType::U32, DType::I32]),
        (EDGE_WEIGHT, _) => (vec![manifest.edges as usize], &[DType::F32]),
        (FEAT, _) => (vec![n, manifest.features as usize], &[DType::F32, DType::F16]),
        (FEAT_INDPTR, _) => (vec![n.saturating_add(1)], &[DType::U64, DType::I64]),
        (FEAT_INDICES, _) => (vec![manifest.stored_values()], &[DType::U32, DType::I32]),
        (FEAT_VALUES, _) => (vec![manifest.stored_values()], &[DType::F32, DType::F16]),
        (LABEL, Task::SingleLabel) => (vec![n], &[DType::I64]),
        (LABEL, Task::MultiLabel) => (vec![n, manifest.classes as usize], &[DType::U8]),
        (SPLITS, _) => (vec![manifest.splits as usize, n], &[DType::U8]),
        _ => (vec![n], &[DType::U8]),
    }
}

/// Opens the array in `file` and checks its type and shape. `manifest`: the file that states the shape.
pub(crate) fn open_array(
    folder: &Path,
    manifest: &str,
    file: &str,
    shape: &[usize],
    types: &[DType],
) -> Result<Array> {
    let array = Array::open(&folder.join(file))?;
    let names: Vec<&str> = types.iter().map(DType::descr).collect();
    if !types.contains(&array.header.dtype) || array.header.big_endian {
        let order = if array.header.big_endian { "big-endian " } else { "" };
        let problem = format!(
            "wrong dtype: {order}{} where {} is needed",
            array.header.dtype.descr(),
            names.join(" or ")
        );
        return Err(Error::input(&array.name, problem));
    }
    if array.header.shape != shape {
        let problem =
            format!("wrong length: shape {:?} instead of {shape:?} as in {manifest}", array.header.shape);
        return Err(Error::input(&array.name, problem));
    }
    if array.header.fortran && shape.len() > 1 {
        return Err(Error::input(&array.name, "Fortran order where row order is needed"));
    }
    if !array.raw().as_ptr().cast::<u64>().is_aligned() {
        return Err(Error::input(&array.name, "elements are not aligned to 8 bytes")
            .help("save it again with numpy.save"));
    }
    Ok(array)
}

/// Returns the elements of an array whose type [`open_array`] has checked.
pub(crate) fn view<T: crate::io::npy::Element>(array: &Array) -> &[T] {
    array.as_slice().expect("type, order and alignment were checked when it was opened")
}
