//! `npy`: a folder of plain arrays, as `numpy.save` writes them.
//!
//! | what | file | shape |
//! |---|---|---|
//! | edges | `indptr.npy` + `indices.npy` (row = destination), or `edge_index.npy` | N+1 and E; 2×E or E×2 |
//! | edge weights, if any | `edge_weight.npy`, in the order of the edges | E |
//! | features | `feat.npy`, `x.npy` or `features.npy` | N×F |
//! | or sparse features | `feat_indptr.npy` + `feat_indices.npy` + `feat_values.npy` | N+1 and the number of values |
//! | labels | `label.npy`, `y.npy` or `labels.npy`; without one, no node has a label | N, N×1, or N×C flags |
//! | split | `splits.npy` (S×N), `split.npy`, or `train_mask.npy` + `val_mask.npy` + `test_mask.npy` | N |
//!
//! For a folder that is a dataset already, perhaps with changed arrays, direction, self-loops, task, metric and names are
//! those of its manifest.

use std::path::Path;

use super::arrays::{self, DenseFeatures, PairEdges, SparseFeatures, WeightedEdges};
use super::npz::row_count;
use super::{RawGraph, name_of, no_columns};
use crate::build::{EdgeInput, Rows};
use crate::dataset::write::{FeatureSource, Labels};
use crate::dataset::{
    EDGE_WEIGHT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, IDS, MANIFEST, Manifest, SPLIT, SPLITS, Task,
    read_ids, read_manifest,
};
use crate::error::{Error, IoContext, Result};
use crate::io::npy::Array;

/// Names of the file of labels.
const LABELS: [&str; 3] = ["label.npy", "y.npy", "labels.npy"];

/// Names of the file of dense features.
const FEATURES: [&str; 3] = ["feat.npy", "x.npy", "features.npy"];

/// Reads the folder `source`.
pub(super) fn read(source: &Path, split_index: Option<usize>) -> Result<RawGraph> {
    std::fs::read_dir(source).at(source, "open")?;
    let find = |names: &[&str]| first_of(source, names);
    let need = |names: &[&str], what: &str| {
        find(names)?.ok_or_else(|| {
            Error::input(source.display(), format!("no {what}: none of {} is there", names.join(", ")))
        })
    };
    let manifest = manifest(source)?;
    let names = manifest.as_ref().map_or(Vec::new(), |m| m.feature_names.clone());
    let mut notes = unread(source);
    let mut names_of = |columns: usize| {
        let fit = names.is_empty() || names.len() == columns;
        notes.extend((!fit).then(|| lost_names(&names, columns)));
        if fit { names.clone() } else { Vec::new() }
    };
    let (features, nodes): (Box<dyn FeatureSource>, usize) = match find(&[FEAT_INDPTR])? {
        Some(indptr) => {
            if let Some(dense) = find(&FEATURES)? {
                let problem = format!("dense features beside sparse ones ({FEAT_INDPTR})");
                return Err(Error::input(dense.name, problem).help("leave only one of them in the folder"));
            }
            let array = |file: &str| need(&[file], "sparse features");
            let columns = manifest.as_ref().map(|m| m.features as usize);
            let sparse = sparse(indptr, array(FEAT_INDICES)?, array(FEAT_VALUES)?, columns)?;
            let nodes = sparse.rows();
            let names = names_of(sparse.cols());
            (Box::new(sparse.named(names)), nodes)
        }
        None => {
            let dense = DenseFeatures::new(need(&FEATURES, "features")?)?;
            let nodes = dense.rows();
            let names = names_of(dense.cols());
            (Box::new(dense.named(names)), nodes)
        }
    };
    let weights = find(&[EDGE_WEIGHT])?;
    let edges = match (find(&["indptr.npy"])?, find(&["indices.npy"])?, find(&["edge_index.npy"])?) {
        (Some(indptr), Some(indices), _) => {
            EdgeInput::Rows { indptr, indices, weights, rows: Rows::AreDestinations }
        }
        (_, _, Some(pairs)) => match (PairEdges::new(pairs)?, weights) {
            (pairs, None) => EdgeInput::Source(Box::new(pairs)),
            (pairs, Some(weights)) => EdgeInput::Source(Box::new(WeightedEdges::new(pairs, &weights)?)),
        },
        _ => {
            let problem = "no edges: neither indptr.npy and indices.npy nor edge_index.npy is there";
            return Err(Error::input(source.display(), problem));
        }
    };
    let label = find(&LABELS)?;
    let masks =
        [find(&["train_mask.npy"])?, find(&["val_mask.npy", "valid_mask.npy"])?, find(&["test_mask.npy"])?];
    let splits = match (find(&[SPLITS])?, find(&[SPLIT])?, split_index) {
        (Some(all), first, index) => several(&all, first.as_ref(), nodes, index)?,
        (None, Some(split), Some(_)) => {
            return Err(Error::input(&split.name, "is a single split: --split-index has no effect")
                .help("leave the flag out, or remove split.npy to use the masks"));
        }
        (None, Some(split), None) => vec![arrays::subsets(&split)?],
        (None, None, _) => arrays::masks(&masks, nodes, split_index)?,
    };
    let multi = manifest.as_ref().is_some_and(|m| m.task == Task::MultiLabel);
    let labels = match &label {
        Some(label) if multi => arrays::flags(label)?,
        Some(label) => arrays::labels(label)?,
        None => {
            notes.push(format!("{}: no labels: none of {} is there", source.display(), LABELS.join(", ")));
            unlabelled(&*features, nodes)?
        }
    };
    Ok(RawGraph {
        name: manifest.as_ref().map_or_else(|| name_of(source), |m| m.name.clone()),
        nodes,
        edges,
        features,
        labels_from: label.map_or_else(|| source.display().to_string(), |label| label.name),
        labels,
        ids: ids(source, manifest.as_ref(), nodes)?,
        class_names: manifest.map(|m| m.class_names).unwrap_or_default(),
        splits,
        notes,
    })
}

/// Returns labels of nodes that have none. A row of features, which the file really holds, is needed for each.
fn unlabelled(features: &dyn FeatureSource, nodes: usize) -> Result<Labels> {
    if features.cols() == 0 {
        return Err(no_columns(features));
    }
    Ok(Labels::Single(vec![-1; nodes]))
}

/// Reads `splits.npy`; refuses one that does not begin with `split.npy`, if that is there too.
fn several(all: &Array, first: Option<&Array>, nodes: usize, index: Option<usize>) -> Result<Vec<Vec<u8>>> {
    let splits = arrays::all_subsets(all, nodes, index)?;
    if let (Some(first), Some(0) | None) = (first, index) {
        let stated = arrays::subsets(first)?;
        if let Some(v) = (0..nodes).find(|&v| stated.get(v) != Some(&splits[0][v])) {
            let problem = format!("its first split is not that of {SPLIT}");
            return Err(Error::input(format!("{}, node {v}", all.name), problem)
                .help(format!("change both arrays, or remove {SPLITS} to import only {SPLIT}")));
        }
    }
    Ok(splits)
}

fn lost_names(names: &[String], columns: usize) -> String {
    format!(
        "the features have {columns} columns, and {MANIFEST} names {}: the names are dropped",
        names.len()
    )
}

/// Opens sparse features of `columns` columns; by default those that are used.
fn sparse(indptr: Array, indices: Array, values: Array, columns: Option<usize>) -> Result<SparseFeatures> {
    let rows = row_count(&indptr)?;
    let columns = match columns {
        Some(columns) => columns,
        None => arrays::columns_used(&indices, usize::MAX)?,
    };
    SparseFeatures::new(&indptr, indices, values, [rows, columns])
}

/// Returns the manifest of a folder that is a dataset already.
pub(super) fn manifest(source: &Path) -> Result<Option<Manifest>> {
    source.join(MANIFEST).exists().then(|| read_manifest(source)).transpose()
}

/// Returns a note about a file of edge attributes.
fn unread(source: &Path) -> Vec<String> {
    let is_there = source.join(EDGE_ATTRIBUTES).exists();
    let note = || format!("{EDGE_ATTRIBUTES} is not imported; weights of edges are read from {EDGE_WEIGHT}");
    is_there.then(note).into_iter().collect()
}

/// Features of edges, as PyG names them.
const EDGE_ATTRIBUTES: &str = "edge_attr.npy";

fn ids(source: &Path, manifest: Option<&Manifest>, nodes: usize) -> Result<Option<Vec<String>>> {
    manifest.filter(|m| m.files.contains_key(IDS)).map(|_| read_ids(source, nodes)).transpose()
}

/// Returns the first of `names` that exists in `folder`.
fn first_of(folder: &Path, names: &[&str]) -> Result<Option<Array>> {
    names
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
        .map(|path| Array::open(&path))
        .transpose()
}
