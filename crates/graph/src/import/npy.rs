//! `npy`: a folder of plain arrays, as `numpy.save` writes them.
//!
//! | what | file | shape |
//! |---|---|---|
//! | edges | `indptr.npy` + `indices.npy` (row = destination), or `edge_index.npy` | N+1 and E; 2×E or E×2 |
//! | features | `feat.npy`, `x.npy` or `features.npy` | N×F |
//! | labels | `label.npy`, `y.npy` or `labels.npy` | N, N×1, or N×C flags |
//! | split | `split.npy`, or `train_mask.npy` + `val_mask.npy` + `test_mask.npy` | N |

use std::path::Path;

use super::arrays::{self, DenseFeatures, PairEdges};
use super::{RawGraph, name_of};
use crate::build::{EdgeInput, Rows};
use crate::error::{Error, IoContext, Result};
use crate::io::npy::Array;

/// Reads the folder `source`.
pub(super) fn read(source: &Path, split_index: usize) -> Result<RawGraph> {
    std::fs::read_dir(source).at(source, "open")?;
    let find = |names: &[&str]| first_of(source, names);
    let need = |names: &[&str], what: &str| {
        find(names)?.ok_or_else(|| {
            Error::input(source.display(), format!("no {what}: none of {} is there", names.join(", ")))
        })
    };
    let features = DenseFeatures::new(need(&["feat.npy", "x.npy", "features.npy"], "features")?)?;
    let nodes = features.rows();
    let edges = match (find(&["indptr.npy"])?, find(&["indices.npy"])?, find(&["edge_index.npy"])?) {
        (Some(indptr), Some(indices), _) => EdgeInput::Rows { indptr, indices, rows: Rows::AreDestinations },
        (_, _, Some(pairs)) => EdgeInput::Source(Box::new(PairEdges::new(pairs)?)),
        _ => {
            let problem = "no edges: neither indptr.npy and indices.npy nor edge_index.npy is there";
            return Err(Error::input(source.display(), problem));
        }
    };
    let label = need(&["label.npy", "y.npy", "labels.npy"], "labels")?;
    let masks =
        [find(&["train_mask.npy"])?, find(&["val_mask.npy", "valid_mask.npy"])?, find(&["test_mask.npy"])?];
    let split = match find(&["split.npy"])? {
        Some(split) => Some(arrays::parts(&split)?),
        None => arrays::masks(&masks, nodes, split_index)?,
    };
    Ok(RawGraph {
        name: name_of(source),
        nodes,
        edges,
        features: Box::new(features),
        labels_from: label.name.clone(),
        labels: arrays::labels(&label)?,
        class_names: Vec::new(),
        split,
        ids: None,
        notes: Vec::new(),
    })
}

/// The first of `names` that exists in `folder`.
fn first_of(folder: &Path, names: &[&str]) -> Result<Option<Array>> {
    names
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.exists())
        .map(|path| Array::open(&path))
        .transpose()
}
