//! Arrays of another program in this process, such as those of numpy: a dataset in memory.

use super::arrays::{self, DenseFeatures, PairEdges, SparseFeatures, WeightedEdges};
use super::{ImportOptions, Prepared, RawGraph, prepare};
use crate::build::EdgeInput;
use crate::dataset::write::{FeatureSource, Labels};
use crate::dataset::{Dataset, Subset, Task};
use crate::error::{Error, Result};
use crate::io::npy::Array;
use crate::progress::Progress;

/// A dataset as arrays of any type and shape, unchecked. Their names are those in messages.
pub struct ImportArrays {
    /// Name of the dataset.
    pub name: String,
    /// Sources and destinations: 2×E or E×2.
    pub edges: Array,
    /// Weights of the edges, if they have any.
    pub edge_weights: Option<Array>,
    /// Features, one row per node.
    pub features: MatrixArrays,
    /// Names of the feature columns; may be empty.
    pub feature_names: Vec<String>,
    /// Labels: N or N×1 (classes; NaN or -1 is none), or N×C (flags).
    pub labels: Option<Array>,
    /// Task of the labels; by default by their shape.
    pub task: Option<Task>,
    /// Names of the classes; may be empty.
    pub class_names: Vec<String>,
    /// Masks of training, validation and test nodes: N, or one column or row per split.
    pub masks: [Option<Array>; 3],
    /// The user's own ids.
    pub ids: Option<Vec<String>>,
}

/// A matrix in arrays.
pub enum MatrixArrays {
    /// All elements. A matrix of 32-bit floats in row order is shared, not copied, and must not change.
    Dense(Array),
    /// Compressed sparse rows.
    Sparse {
        /// Row starts.
        indptr: Array,
        /// Columns.
        indices: Array,
        /// Values.
        values: Array,
        /// Rows and columns.
        shape: [usize; 2],
    },
}

/// Makes a dataset in memory of `given`, as [`import`](super::import()) makes one on disk; returns notes for the user too.
/// Without masks
/// and with [`SplitRule::Given`](super::SplitRule), no node is in a subset.
pub fn import_arrays(
    given: ImportArrays,
    options: &ImportOptions,
    progress: &dyn Progress,
) -> Result<(Dataset, Vec<String>)> {
    let Prepared { contents, notes, .. } = prepare(
        read(given, options)?,
        options,
        |split| format!("arrays in memory; split: {split}"),
        progress,
    )?;
    Ok((Dataset::from_contents(contents, progress)?, notes))
}

fn read(given: ImportArrays, options: &ImportOptions) -> Result<RawGraph> {
    let ImportArrays {
        name, edges, edge_weights, feature_names, labels, task, class_names, masks, ids, ..
    } = given;
    let (features, nodes) = features(given.features, feature_names)?;
    let edges = PairEdges::new(edges)?;
    let edges: EdgeInput = match edge_weights {
        None => EdgeInput::Source(Box::new(edges)),
        Some(weights) => EdgeInput::Source(Box::new(WeightedEdges::new(edges, &weights)?)),
    };
    let mut splits = splits(&masks, nodes)?;
    if splits.is_empty() && !options.split.draws() {
        splits = vec![vec![Subset::None as u8; nodes]];
    }
    let labels_from = labels.as_ref().map_or("y", |labels| &labels.name).to_string();
    let labels = match (&labels, task) {
        (None, _) => Labels::Single(vec![-1; nodes]),
        (Some(labels), Some(Task::MultiLabel)) => arrays::flags(labels)?,
        (Some(labels), task) => {
            let read = arrays::labels(labels)?;
            if task.is_some_and(|task| task != read.task()) {
                let problem = format!("shape {:?} where one class per node is needed", labels.header.shape);
                return Err(Error::input(&labels.name, problem));
            }
            read
        }
    };
    check_class_names(&class_names, &labels)?;
    check_ids(ids.as_deref(), nodes)?;
    Ok(RawGraph {
        name,
        nodes,
        edges,
        features,
        labels,
        labels_from,
        class_names,
        splits,
        ids,
        notes: Vec::new(),
    })
}

/// Returns the features and the number of nodes.
fn features(given: MatrixArrays, names: Vec<String>) -> Result<(Box<dyn FeatureSource>, usize)> {
    let check = |columns: usize| {
        if names.is_empty() || names.len() == columns {
            return Ok(());
        }
        let problem = format!("{} names for {columns} feature columns", names.len());
        Err(Error::input("feature_names", problem).help("give one name for each column of the features"))
    };
    match given {
        MatrixArrays::Dense(matrix) => {
            let dense = DenseFeatures::new(matrix)?;
            check(dense.cols())?;
            let nodes = dense.rows();
            Ok((Box::new(dense.named(names)), nodes))
        }
        MatrixArrays::Sparse { indptr, indices, values, shape } => {
            check(shape[1])?;
            let sparse = SparseFeatures::of_matrix(&indptr, indices, values, shape)?;
            let nodes = sparse.rows();
            Ok((Box::new(sparse.named(names)), nodes))
        }
    }
}

/// Reads the splits in the masks that are given; a missing mask has no node.
fn splits(masks: &[Option<Array>; 3], nodes: usize) -> Result<Vec<Vec<u8>>> {
    if masks.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let none = Array::from_vec("empty mask".into(), vec![nodes], vec![0u8; nodes])?;
    arrays::masks(&masks.clone().map(|mask| Some(mask.unwrap_or_else(|| none.clone()))), nodes, None)
}

/// Refuses names for fewer classes than there are.
fn check_class_names(names: &[String], labels: &Labels) -> Result<()> {
    let classes = match labels {
        Labels::Single(labels) => {
            labels.iter().copied().max().unwrap_or(-1).saturating_add(1).max(0) as usize
        }
        Labels::Multi { classes, .. } => *classes,
    };
    if names.is_empty() || names.len() >= classes {
        return Ok(());
    }
    let problem = format!("{} names for {classes} classes", names.len());
    Err(Error::input("class_names", problem).help("give one name for each class, that of class 0 first"))
}

fn check_ids(ids: Option<&[String]>, nodes: usize) -> Result<()> {
    let Some(ids) = ids else { return Ok(()) };
    if ids.len() != nodes {
        return Err(Error::input("ids", format!("{} ids for {nodes} nodes", ids.len())));
    }
    match ids.iter().position(|id| id.contains(['\n', '\r'])) {
        None => Ok(()),
        Some(v) => Err(Error::input(format!("ids, node {v}"), format!("id {:?} holds a line break", ids[v]))),
    }
}
