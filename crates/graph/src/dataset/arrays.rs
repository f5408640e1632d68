//! Datasets in memory.
//!
//! ```
//! use halograph_graph::Dataset;
//! use halograph_graph::build::EdgeOptions;
//! use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
//!
//! // A path of three nodes with two features each; node 2 has no label.
//! let graph = GraphArrays::from_edges(3, &[(0, 1), (1, 2)], EdgeOptions::default())?;
//! let features = FeatureArray::f32(2, vec![0.0, 1.0, 1.0, 0.0, 0.5, 0.5]);
//! let arrays = DatasetArrays::new("path", graph, features, Labels::Single(vec![0, 1, -1]), vec![1, 2, 0]);
//! let dataset = Dataset::from_arrays(arrays)?;
//! assert_eq!((dataset.manifest.nodes, dataset.manifest.edges, dataset.manifest.classes), (3, 4, 2));
//! # Ok::<(), halograph_graph::Error>(())
//! ```

use std::sync::OnceLock;

use half::f16;

use super::check::{Arrays, DatasetFault};
use super::features::{SparseArrays, StoredFeatures};
use super::manifest::{Manifest, Metric, class_limit};
use super::write::{FeaturePlan, Labels, OwnedContents, lines};
use super::{
    Checked, Dataset, EDGE_WEIGHT, FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, IDS, INDICES, INDPTR, LABEL,
    SPLIT, SPLITS, is_weight, memory_place, wrong_weight,
};
use crate::build::{self, EdgeOptions};
use crate::csr::{Csr, Ids};
use crate::error::{Error, Result};
use crate::io::npy::{Array, FileRecord};
use crate::progress::{Progress, Silent};

/// The contents of a dataset as arrays in memory. [`Dataset::from_arrays`] checks them.
pub struct DatasetArrays {
    /// Name of the dataset.
    pub name: String,
    /// The edges.
    pub graph: GraphArrays,
    /// Input features, one row per node.
    pub features: FeatureArray,
    /// Labels of all nodes. They decide the task.
    pub labels: Labels,
    /// For each node 0 none, 1 train, 2 validation or 3 test.
    pub split: Vec<u8>,
    /// Number of classes; by default the largest label + 1, or the columns of multi-label flags.
    pub classes: Option<usize>,
    /// Names of the classes; may be empty.
    pub class_names: Vec<String>,
    /// The user's own node ids, if they are not 0, 1, 2….
    pub ids: Option<Vec<String>>,
    /// Metric; by default accuracy, or micro-F1 for multi-label data.
    pub metric: Option<Metric>,
}

/// Edges in compressed sparse rows: `indices[indptr[v]..indptr[v + 1]]` are the in-neighbours of node `v`, ascending and
/// without repeats.
pub struct GraphArrays {
    /// Row starts: one more than there are nodes.
    pub indptr: Vec<u64>,
    /// Neighbour ids.
    pub indices: Vec<u32>,
    /// Weights of the edges, if they have any: finite, at least 0, one for each of `indices`.
    pub weights: Option<Vec<f32>>,
    /// Whether edges have a direction; otherwise every edge must be stored both ways, with the same weight.
    pub directed: bool,
}

impl GraphArrays {
    /// Builds the rows of `nodes` nodes from `(source, destination)` pairs, which may repeat and come in any order.
    pub fn from_edges(nodes: usize, edges: &[(u32, u32)], options: EdgeOptions) -> Result<Self> {
        let (csr, _) = build::from_edges(nodes, edges, options)?;
        Ok(GraphArrays::of(csr, options))
    }

    /// As [`GraphArrays::from_edges`], of edges with weights. Repeated edges and opposite directions are combined as
    /// [`build`] describes.
    pub fn from_weighted_edges(
        nodes: usize,
        edges: &[(u32, u32, f32)],
        options: EdgeOptions,
    ) -> Result<Self> {
        if let Some(at) = edges.iter().position(|&(_, _, weight)| !is_weight(weight)) {
            return Err(Error::input(format!("edges, element {at}"), wrong_weight(edges[at].2.into())));
        }
        let (csr, _) = build::from_weighted_edges(nodes, edges, options)?;
        Ok(GraphArrays::of(csr, options))
    }

    fn of(csr: Csr, options: EdgeOptions) -> Self {
        let indices = match csr.indices {
            Ids::Owned(indices) => indices,
            Ids::Mapped(array) => super::view(&array).to_vec(),
        };
        GraphArrays { indptr: csr.indptr, indices, weights: csr.weights, directed: options.directed }
    }
}

/// A feature matrix: in row-major order, or in compressed sparse rows.
pub struct FeatureArray {
    columns: usize,
    /// Row starts and columns of sparse rows; `None`: every element is there.
    sparse: Option<(Vec<u64>, Vec<u32>)>,
    values: FeatureValues,
}

enum FeatureValues {
    F32(Vec<f32>),
    F16(Vec<f16>),
    /// Nodes × columns of 32-bit floats in row order, in memory that others may read too.
    Shared(Array),
}

impl FeatureArray {
    /// Creates a matrix of 32-bit floats, `nodes × columns`.
    pub fn f32(columns: usize, values: Vec<f32>) -> Self {
        FeatureArray { columns, sparse: None, values: FeatureValues::F32(values) }
    }

    /// Creates a matrix of 16-bit floats, `nodes × columns`.
    pub fn f16(columns: usize, values: Vec<f16>) -> Self {
        FeatureArray { columns, sparse: None, values: FeatureValues::F16(values) }
    }

    /// Creates a matrix of 32-bit floats without its zeros: row `v` has `values[indptr[v]..indptr[v + 1]]` in the columns
    /// `indices[indptr[v]..indptr[v + 1]]`, which ascend.
    pub fn sparse_f32(columns: usize, indptr: Vec<u64>, indices: Vec<u32>, values: Vec<f32>) -> Self {
        FeatureArray { columns, sparse: Some((indptr, indices)), values: FeatureValues::F32(values) }
    }

    /// Creates a matrix of 16-bit floats without its zeros; see [`FeatureArray::sparse_f32`].
    pub fn sparse_f16(columns: usize, indptr: Vec<u64>, indices: Vec<u32>, values: Vec<f16>) -> Self {
        FeatureArray { columns, sparse: Some((indptr, indices)), values: FeatureValues::F16(values) }
    }

    /// Shares a matrix of 32-bit floats in row order.
    pub(super) fn shared(matrix: Array) -> Self {
        FeatureArray { columns: matrix.cols(), sparse: None, values: FeatureValues::Shared(matrix) }
    }

    /// Returns the number of elements, zeros of sparse rows included.
    fn dense_len(&self, nodes: usize) -> usize {
        match &self.sparse {
            None => self.len(),
            Some(_) => nodes.saturating_mul(self.columns),
        }
    }

    /// Returns the number of stored values.
    fn len(&self) -> usize {
        match &self.values {
            FeatureValues::F32(values) => values.len(),
            FeatureValues::F16(values) => values.len(),
            FeatureValues::Shared(matrix) => matrix.len(),
        }
    }
}

impl DatasetArrays {
    /// Creates arrays with default classes and metric.
    pub fn new(
        name: impl Into<String>,
        graph: GraphArrays,
        features: FeatureArray,
        labels: Labels,
        split: Vec<u8>,
    ) -> Self {
        DatasetArrays {
            name: name.into(),
            graph,
            features,
            labels,
            split,
            classes: None,
            class_names: Vec::new(),
            ids: None,
            metric: None,
        }
    }

    fn nodes(&self) -> usize {
        self.graph.indptr.len().saturating_sub(1)
    }

    /// Creates an error about the array that a directory would have in `file`.
    fn refuse(&self, file: &str, problem: String) -> Error {
        Error::input(memory_place(&self.name, file), problem)
    }

    /// Checks the length of every array.
    fn check_lengths(&self) -> Result<()> {
        let nodes = self.nodes();
        if nodes == 0 {
            let problem = format!("{} row starts where at least 2 are needed", self.graph.indptr.len());
            return Err(self.refuse(INDPTR, problem).help("a graph needs at least one node"));
        }
        if self.features.columns == 0 {
            return Err(self.refuse(FEAT, "no column".into()).help("give every node at least one feature"));
        }
        let (label_columns, labels) = match &self.labels {
            Labels::Single(labels) => (1, labels.len()),
            Labels::Multi { classes, flags } => (*classes, flags.len()),
        };
        if let Some((indptr, indices)) = &self.features.sparse {
            let (starts, columns, values) = (indptr.len(), indices.len(), self.features.len());
            if starts != nodes + 1 {
                return Err(self.refuse(FEAT_INDPTR, format!("{starts} elements for {nodes} nodes")));
            }
            if columns != values {
                return Err(self.refuse(FEAT_VALUES, format!("{values} elements for {columns} columns")));
            }
        }
        let lengths = [
            (FEAT, self.features.columns, self.features.dense_len(nodes)),
            (LABEL, label_columns, labels),
            (SPLIT, 1, self.split.len()),
            (IDS, 1, self.ids.as_ref().map_or(nodes, Vec::len)),
        ];
        if let Some(weights) = self.graph.weights.as_ref().filter(|w| w.len() != self.graph.indices.len()) {
            let problem = format!("{} weights for {} edges", weights.len(), self.graph.indices.len());
            return Err(self.refuse(EDGE_WEIGHT, problem).help("give one weight for each of indices"));
        }
        for (file, columns, length) in lengths {
            if nodes.checked_mul(columns) != Some(length) {
                let columns = if columns == 1 { String::new() } else { format!(" × {columns} columns") };
                return Err(self.refuse(file, format!("{length} elements for {nodes} nodes{columns}")));
            }
        }
        Ok(())
    }

    /// Refuses ids that `ids.txt` could not hold.
    fn check_ids(&self) -> Result<()> {
        let ids = self.ids.as_deref().unwrap_or_default();
        match ids.iter().position(|id| id.contains(['\n', '\r'])) {
            None => Ok(()),
            Some(v) => {
                let place = format!("{}, node {v}", memory_place(&self.name, IDS));
                Err(Error::input(place, format!("id {:?} holds a line break", ids[v])))
            }
        }
    }

    /// Returns the number of classes, given or counted.
    fn count_classes(&self) -> Result<usize> {
        let counted = match &self.labels {
            Labels::Single(labels) => {
                let limit = class_limit(self.nodes() as u64) as i64;
                if let Some(v) = labels.iter().position(|&label| label < -1 || label >= limit) {
                    let place = format!("{}, node {v}", memory_place(&self.name, LABEL));
                    let problem = format!("label {} where -1 to {} are possible", labels[v], limit - 1);
                    return Err(
                        Error::input(place, problem).help("classes count from 0, and -1 means no label")
                    );
                }
                (labels.iter().copied().max().unwrap_or(-1) + 1) as usize
            }
            Labels::Multi { classes, .. } => *classes,
        };
        match (self.classes, &self.labels) {
            (None, Labels::Single(_)) => Ok(counted.max(self.class_names.len())),
            (Some(classes), Labels::Multi { .. }) if classes != counted => {
                Err(self.refuse(LABEL, format!("{counted} columns for {classes} classes")))
            }
            (classes, _) => Ok(classes.unwrap_or(counted)),
        }
    }

    /// Returns the manifest, without files and fingerprint.
    fn manifest(&self) -> Result<Manifest> {
        let classes = self.count_classes()?;
        let in_dataset = |problem: String| Error::input(format!("dataset {:?}", self.name), problem);
        let task = self.labels.task();
        let metric = Metric::choose(self.metric, task, classes).map_err(in_dataset)?;
        let mut manifest = Manifest::new(self.name.clone(), task, metric);
        manifest.nodes = self.nodes() as u64;
        manifest.edges = self.graph.indices.len() as u64;
        manifest.features = self.features.columns as u64;
        manifest.feature_values = self.features.sparse.as_ref().map(|_| self.features.len() as u64);
        manifest.classes = classes as u64;
        manifest.directed = self.graph.directed;
        manifest.source = "arrays in memory".into();
        manifest.class_names = self.class_names.clone();
        manifest.check().map_err(in_dataset)?;
        Ok(manifest)
    }
}

impl Dataset {
    /// Makes a dataset of arrays in memory, without copying them. Nothing is written to disk.
    ///
    /// Every element is checked as [`check()`](super::check()) does; the first fault is the error. The fingerprint is
    /// that of a directory with the same contents.
    pub fn from_arrays(arrays: DatasetArrays) -> Result<Dataset> {
        arrays.check_lengths()?;
        arrays.check_ids()?;
        let manifest = arrays.manifest()?;
        let mut dataset = assemble(arrays, manifest)?;
        if let StoredFeatures::Sparse(sparse) = &dataset.feat
            && let Some(fault) = sparse.wrong_row_start()
        {
            return Err(dataset.refuse(fault));
        }
        if let Some(fault) = dataset.arrays().faults(&dataset.manifest, &Silent)?.into_iter().next() {
            return Err(dataset.refuse(fault));
        }
        dataset.record_files();
        Ok(dataset)
    }

    /// Makes a dataset in memory of checked contents. Fills in what a directory with these contents would have: layout of
    /// features, digests, fingerprint.
    pub(crate) fn from_contents(contents: OwnedContents, progress: &dyn Progress) -> Result<Dataset> {
        let borrowed = contents.borrowed();
        let plan = FeaturePlan::of(&borrowed, progress)?;
        let (manifest, features) = (borrowed.manifest(&plan), plan.collect(&borrowed, progress)?);
        let OwnedContents { name, csr, directed, labels, mut splits, ids, .. } = contents;
        let graph = GraphArrays::of(csr, EdgeOptions { directed, ..EdgeOptions::default() });
        let all = (splits.len() > 1).then(|| {
            let shape = vec![splits.len(), graph.indptr.len() - 1];
            Array::from_vec(memory_place(&name, SPLITS), shape, splits.concat())
        });
        let arrays =
            DatasetArrays { ids, ..DatasetArrays::new(name, graph, features, labels, splits.swap_remove(0)) };
        let mut dataset = assemble(arrays, manifest)?;
        dataset.splits = all.transpose()?;
        dataset.record_files();
        Ok(dataset)
    }

    fn arrays(&self) -> Arrays<'_> {
        Arrays {
            indptr: Some(&self.indptr),
            indices: Some(&self.indices),
            edge_weight: self.edge_weight.as_ref(),
            feat: Some(&self.feat),
            label: Some(&self.label),
            split: Some(&self.split),
            splits: self.splits.as_ref(),
        }
    }

    /// Turns a fault into an error.
    pub(super) fn refuse(&self, fault: DatasetFault) -> Error {
        let place = format!("{}, {}", self.place(&fault.file), fault.position);
        let error = Error::input(place, fault.problem);
        match (&self.path, fault.file.as_str()) {
            (None, EDGE_WEIGHT) => error.help(
                "GraphArrays::from_weighted_edges combines the weights of opposite directions; set directed to keep both",
            ),
            (None, INDPTR | INDICES) => {
                error.help("GraphArrays::from_edges builds sorted, symmetric rows from any list of edges")
            }
            _ => error,
        }
    }

    /// Fills in the lengths and digests that files of these arrays would have, and the fingerprint.
    fn record_files(&mut self) {
        let arrays =
            [(INDPTR, &self.indptr), (INDICES, &self.indices), (LABEL, &self.label), (SPLIT, &self.split)];
        let mut files: Vec<(&str, FileRecord)> =
            arrays.map(|(file, array)| (file, array.file_record())).into();
        files.extend(self.edge_weight.as_ref().map(|array| (EDGE_WEIGHT, array.file_record())));
        files.extend(self.splits.as_ref().map(|array| (SPLITS, array.file_record())));
        files.extend(self.feat.file_records());
        files.extend(self.ids.as_ref().map(|ids| (IDS, FileRecord::of(lines(ids).as_bytes()))));
        self.manifest.files = files.into_iter().map(|(file, record)| (file.into(), record)).collect();
        self.manifest.fingerprint = self.manifest.compute_fingerprint();
    }
}

fn assemble(arrays: DatasetArrays, manifest: Manifest) -> Result<Dataset> {
    let DatasetArrays { name, graph, features, labels, split, ids, .. } = arrays;
    let nodes = graph.indptr.len() - 1;
    let place = |file: &str| memory_place(&name, file);
    let feat = store(features, nodes, place);
    let label = match labels {
        Labels::Single(labels) => Array::from_vec(place(LABEL), vec![nodes], labels),
        Labels::Multi { classes, flags } => Array::from_vec(place(LABEL), vec![nodes, classes], flags),
    };
    let edges = graph.indices.len();
    let edge_weight =
        graph.weights.map(|weights| Array::from_vec(place(EDGE_WEIGHT), vec![edges], weights)).transpose()?;
    Ok(Dataset {
        path: None,
        manifest,
        indptr: Array::from_vec(place(INDPTR), vec![graph.indptr.len()], graph.indptr)?,
        indices: Array::from_vec(place(INDICES), vec![edges], graph.indices)?,
        edge_weight,
        feat: feat?,
        label: label?,
        split: Array::from_vec(place(SPLIT), vec![nodes], split)?,
        splits: None,
        split_index: 0,
        ids,
        order: Default::default(),
        // The caller has checked every element.
        checked: Checked { edges: OnceLock::from(()), labels: OnceLock::from(()) },
    })
}

/// Turns a feature matrix, whose lengths have been checked, into arrays.
fn store(features: FeatureArray, nodes: usize, place: impl Fn(&str) -> String) -> Result<StoredFeatures> {
    let FeatureArray { columns, sparse, values } = features;
    let (file, shape) = match &sparse {
        None => (FEAT, vec![nodes, columns]),
        Some((_, indices)) => (FEAT_VALUES, vec![indices.len()]),
    };
    let values = match values {
        FeatureValues::F32(values) => Array::from_vec(place(file), shape, values),
        FeatureValues::F16(values) => Array::from_vec(place(file), shape, values),
        FeatureValues::Shared(matrix) => Ok(matrix.named(place(file))),
    }?;
    let Some((indptr, indices)) = sparse else { return Ok(StoredFeatures::Dense(values)) };
    let indptr = Array::from_vec(place(FEAT_INDPTR), vec![indptr.len()], indptr)?;
    let indices = Array::from_vec(place(FEAT_INDICES), vec![indices.len()], indices)?;
    Ok(StoredFeatures::Sparse(Box::new(SparseArrays::new(indptr, indices, values, columns))))
}

#[cfg(test)]
pub(crate) mod tests;
