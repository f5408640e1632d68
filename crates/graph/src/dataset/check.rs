//! Checks of every element of a dataset.
//!
//! [`check()`] continues after a fault as far as possible, so that one run reports all faults. Faults of one kind in one
//! file are reported once: the position of the first, and their number.

use std::path::Path;

use rayon::prelude::*;

use super::features::{SparseArrays, StoredFeatures, wrong_column};
use super::manifest::{MANIFEST, Manifest, Task};
use super::{
    EDGE_WEIGHT, FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, IDS, INDICES, INDPTR, LABEL, SPLIT, SPLITS,
    Subset, is_weight, open_array, read_manifest, shapes, view, wrong_weight,
};
use crate::build::one_way_edge;
use crate::build::weighted::reverse_weight;
use crate::csr::CsrView;
use crate::error::{Error, Result};
use crate::io::npy::{self, Array, DType};
use crate::progress::{Progress, Unit};

/// One kind of fault in one file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DatasetFault {
    /// The file.
    pub file: String,
    /// Position of the first one: element, node or row; empty for a fault of the file as a whole.
    pub position: String,
    /// The problem at that position, with the value.
    pub problem: String,
    /// Number of faults of this kind.
    pub count: u64,
}

impl std::fmt::Display for DatasetFault {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if !self.position.is_empty() {
            write!(f, ", {}", self.position)?;
        }
        write!(f, ": {}", self.problem)?;
        if self.count > 1 {
            write!(f, " ({} more like this)", self.count - 1)?;
        }
        Ok(())
    }
}

/// Checks the dataset directory `path`; returns its manifest and all faults. An unreadable manifest is an error.
pub fn check(path: &Path, progress: &dyn Progress) -> Result<(Manifest, Vec<DatasetFault>)> {
    let manifest = read_manifest(path)?;
    let mut faults = digests(path, &manifest, progress)?;
    let mut open = |file: &str| {
        let (shape, types) = shapes(&manifest, file);
        open_array(path, MANIFEST, file, &shape, types).map_err(|e| faults.push(open_fault(file, e))).ok()
    };
    let [indptr, indices, label, split] = [INDPTR, INDICES, LABEL, SPLIT].map(&mut open);
    let edge_weight = if manifest.has_edge_weights() { open(EDGE_WEIGHT) } else { None };
    let splits = if manifest.splits > 1 { open(SPLITS) } else { None };
    let feat = check_features(&manifest, &mut open);
    let arrays = Arrays {
        indptr: indptr.as_ref(),
        indices: indices.as_ref(),
        edge_weight: edge_weight.as_ref(),
        feat: feat.as_ref().ok(),
        label: label.as_ref(),
        split: split.as_ref(),
        splits: splits.as_ref(),
    };
    let found = arrays.faults(&manifest, progress)?;
    faults.extend(feat.err().flatten());
    faults.extend(found);
    faults.extend(ids(path, &manifest)?);
    Ok((manifest, faults))
}

/// The arrays of a dataset; `None` for those with a wrong type or shape.
pub(super) struct Arrays<'a> {
    pub indptr: Option<&'a Array>,
    pub indices: Option<&'a Array>,
    pub edge_weight: Option<&'a Array>,
    pub feat: Option<&'a StoredFeatures>,
    pub label: Option<&'a Array>,
    pub split: Option<&'a Array>,
    pub splits: Option<&'a Array>,
}

impl Arrays<'_> {
    /// Checks every element; returns all faults.
    pub(super) fn faults(&self, manifest: &Manifest, progress: &dyn Progress) -> Result<Vec<DatasetFault>> {
        let mut faults = Vec::new();
        if let Some(indptr) = self.indptr {
            let broken = row_starts(INDPTR, view(indptr), manifest.edges);
            if let (Some(indices), true) = (self.indices, broken.is_empty()) {
                let graph = CsrView { indptr: view(indptr), indices: view(indices) };
                let signed = indices.header.dtype == DType::I32;
                let wrong_rows = rows(graph, signed, manifest, progress)?;
                if let (Some(weights), true) = (self.edge_weight, wrong_rows.is_empty()) {
                    faults.extend(weights_differ(graph, view(weights), manifest));
                }
                faults.extend(wrong_rows);
            }
            faults.extend(broken);
        }
        faults.extend(self.edge_weight.and_then(|weights| no_weights(view(weights))));
        if let Some(feat) = self.feat {
            faults.extend(match feat {
                StoredFeatures::Dense(all) => features(all, progress)?.into_iter().collect(),
                StoredFeatures::Sparse(arrays) => sparse_features(arrays, manifest, progress)?,
            });
        }
        faults.extend(self.label.and_then(|label| labels(label, manifest)));
        if let Some(split) = self.split {
            faults.extend(subsets(SPLIT, "", view(split), self.label, manifest));
            faults.extend(self.splits.and_then(|splits| first_split(view(splits), view(split))));
        }
        // The first was checked in `split.npy`.
        for (k, split) in self.splits.iter().flat_map(|splits| splits_of(splits)).enumerate().skip(1) {
            faults.extend(subsets(SPLITS, &format!("split {k}, "), split, self.label, manifest));
        }
        Ok(faults)
    }
}

fn whole_file(file: &str, problem: impl Into<String>) -> DatasetFault {
    DatasetFault { file: file.into(), position: String::new(), problem: problem.into(), count: 1 }
}

/// Turns an error of [`open_array`] into a fault.
fn open_fault(file: &str, error: Error) -> DatasetFault {
    match error {
        Error::Input { problem, .. } => whole_file(file, problem),
        Error::Io { action, source, .. } => whole_file(file, format!("cannot {action}: {source}")),
        other => whole_file(file, other.to_string()),
    }
}

/// Returns one fault for all the elements `found`; `describe` returns position and problem of the first.
fn first_of(
    file: &str,
    found: impl ParallelIterator<Item = usize>,
    describe: impl Fn(usize) -> (String, String),
) -> Option<DatasetFault> {
    let (first, count) =
        found.map(|at| (at, 1u64)).reduce(|| (usize::MAX, 0), |a, b| (a.0.min(b.0), a.1 + b.1));
    (count > 0).then(|| {
        let (position, problem) = describe(first);
        DatasetFault { file: file.into(), position, problem, count }
    })
}

/// Compares length and digest of every file with the manifest.
fn digests(path: &Path, manifest: &Manifest, progress: &dyn Progress) -> Result<Vec<DatasetFault>> {
    let mut faults = Vec::new();
    if manifest.fingerprint != manifest.compute_fingerprint() {
        faults
            .push(whole_file(MANIFEST, "the fingerprint does not match the counts and digests in the file"));
    }
    progress.begin("hashing files", Some(manifest.bytes()), Unit::Bytes);
    for (file, record) in &manifest.files {
        // A missing or unreadable file is reported when it is opened.
        let Ok(map) = npy::map(&path.join(file)) else { continue };
        let mut hash = blake3::Hasher::new();
        for chunk in map.chunks(1 << 24) {
            hash.update(chunk);
            progress.tick(chunk.len() as u64)?;
        }
        if hash.finalize().to_hex().as_str() != record.blake3 {
            faults
                .push(whole_file(file, format!("the contents do not match the BLAKE3 digest in {MANIFEST}")));
        }
    }
    Ok(faults)
}

/// Returns the faults of row starts in `file`, which begin at 0, never decrease and end at `end`.
pub(crate) fn row_starts(file: &str, starts: &[u64], end: u64) -> Vec<DatasetFault> {
    let fault = |at: usize, problem: String, count: u64| DatasetFault {
        file: file.into(),
        position: format!("element {at}"),
        problem,
        count,
    };
    let mut faults = Vec::new();
    if starts[0] != 0 {
        faults.push(fault(0, format!("{} where the first row start must be 0", starts[0]), 1));
    }
    let falls = (1..starts.len()).into_par_iter().filter(|&v| starts[v] < starts[v - 1]);
    faults.extend(first_of(file, falls, |v| {
        (
            format!("element {v}"),
            format!("{} after {}: row starts may not decrease", starts[v], starts[v - 1]),
        )
    }));
    let last = starts.len() - 1;
    if starts[last] != end {
        faults.push(fault(last, format!("{} where the last row must end at {end}", starts[last]), 1));
    }
    faults
}

/// Returns the faults inside rows: ids out of range, unsorted or repeated; an undirected edge stored one way only.
fn rows(
    graph: CsrView,
    signed: bool,
    manifest: &Manifest,
    progress: &dyn Progress,
) -> Result<Vec<DatasetFault>> {
    let (n, ids) = (graph.nodes(), graph.indices);
    progress.begin("checking edges", None, Unit::Items);
    let node_of = |element: usize| graph.indptr.partition_point(|&start| start <= element as u64) - 1;
    let position = |element: usize| format!("element {element} (node {})", node_of(element));
    let outside = (0..ids.len()).into_par_iter().filter(|&i| ids[i] as usize >= n);
    let outside = first_of(INDICES, outside, |i| {
        let id = if signed { i64::from(ids[i] as i32) } else { i64::from(ids[i]) };
        (position(i), format!("out-of-range id {id} in a graph of {n} nodes"))
    });
    progress.tick(0)?;
    // Positions of adjacent elements of one row for which `bad` holds.
    let pairs = |bad: fn(u32, u32) -> bool| {
        (0..n).into_par_iter().flat_map_iter(move |v| {
            let start = graph.indptr[v] as usize;
            let pairs = graph.row(v).windows(2).enumerate();
            pairs.filter(move |(_, w)| bad(w[0], w[1])).map(move |(k, _)| start + k + 1)
        })
    };
    let unsorted = first_of(INDICES, pairs(|a, b| a > b), |i| {
        (position(i), format!("unsorted neighbours: {} after {}", ids[i], ids[i - 1]))
    });
    let repeated =
        first_of(INDICES, pairs(|a, b| a == b), |i| (position(i), format!("repeated neighbour {}", ids[i])));
    progress.tick(0)?;
    let mut faults: Vec<DatasetFault> = [outside, unsorted, repeated].into_iter().flatten().collect();
    if faults.is_empty() && !manifest.directed {
        faults.extend(one_way_edge(graph, progress)?.map(|(v, u)| DatasetFault {
            position: format!("node {v}"),
            ..whole_file(
                INDICES,
                format!("no reverse edge in the row of neighbour {u}, although the graph is undirected"),
            )
        }));
    }
    Ok(faults)
}

/// Returns the fault of edge weights that are negative or not finite.
fn no_weights(weights: &[f32]) -> Option<DatasetFault> {
    let bad = (0..weights.len()).into_par_iter().filter(|&e| !is_weight(weights[e]));
    first_of(EDGE_WEIGHT, bad, |e| (format!("element {e}"), wrong_weight(weights[e].into())))
}

/// Returns the fault of undirected edges with other weights than their reverse edges. The edges have no fault.
fn weights_differ(graph: CsrView, weights: &[f32], manifest: &Manifest) -> Option<DatasetFault> {
    if manifest.directed {
        return None;
    }
    let differ = |v: usize, e: usize| {
        reverse_weight(graph, weights, v, graph.indices[e]).filter(|&weight| weight < weights[e])
    };
    let edges = |v: usize| graph.indptr[v] as usize..graph.indptr[v + 1] as usize;
    // Of two different weights, the larger one.
    let bad = (0..graph.nodes())
        .into_par_iter()
        .flat_map_iter(|v| edges(v).filter(move |&e| differ(v, e).is_some()));
    first_of(EDGE_WEIGHT, bad, |e| {
        let v = graph.indptr.partition_point(|&start| start <= e as u64) - 1;
        let (weight, other) = (weights[e], differ(v, e).unwrap_or(weights[e]));
        let problem = format!(
            "weight {weight}, and {other} of the reverse edge in the row of neighbour {}, although the graph is undirected",
            graph.indices[e]
        );
        (format!("element {e} (node {v})"), problem)
    })
}

/// Opens the features. The error is what to report besides the faults of `open`: wrong row starts.
fn check_features(
    manifest: &Manifest,
    mut open: impl FnMut(&'static str) -> Option<Array>,
) -> Result<StoredFeatures, Option<DatasetFault>> {
    if !manifest.is_sparse() {
        return open(FEAT).map(StoredFeatures::Dense).ok_or(None);
    }
    let arrays = [FEAT_INDPTR, FEAT_INDICES, FEAT_VALUES].map(&mut open);
    let [Some(indptr), Some(indices), Some(values)] = arrays else { return Err(None) };
    let arrays = SparseArrays::new(indptr, indices, values, manifest.features as usize);
    match arrays.wrong_row_start() {
        None => Ok(StoredFeatures::Sparse(Box::new(arrays))),
        fault => Err(fault),
    }
}

/// Returns the faults inside rows of sparse features: columns out of range, unsorted or repeated; values that are not finite.
fn sparse_features(
    arrays: &SparseArrays,
    manifest: &Manifest,
    progress: &dyn Progress,
) -> Result<Vec<DatasetFault>> {
    progress.begin("checking features", Some(arrays.stored() as u64), Unit::Items);
    let columns = manifest.features as usize;
    let row = |v: usize| &arrays.columns()[arrays.row(v)];
    let rows = 0..manifest.nodes as usize;
    let wrong = rows.into_par_iter().filter(|&v| wrong_column(row(v), columns).is_some());
    let wrong = first_of(FEAT_INDICES, wrong, |v| {
        let (at, problem) = wrong_column(row(v), columns).expect("the row was found to be wrong");
        (format!("element {} (row {v})", arrays.row(v).start + at), problem)
    });
    progress.tick(0)?;
    let not_finite = arrays.find(|x| !x.is_finite()).map(|(at, x)| {
        let row = arrays.starts().partition_point(|&start| start <= at as u64) - 1;
        DatasetFault {
            position: format!("element {at} (row {row})"),
            ..whole_file(FEAT_VALUES, format!("{x} where features must be finite"))
        }
    });
    progress.tick(arrays.stored() as u64)?;
    Ok(wrong.into_iter().chain(not_finite).collect())
}

fn features(feat: &Array, progress: &dyn Progress) -> Result<Option<DatasetFault>> {
    match feat.header.dtype {
        DType::F16 => non_finite(view::<half::f16>(feat), half::f16::to_f32, feat.cols(), progress),
        _ => non_finite(view::<f32>(feat), |x| x, feat.cols(), progress),
    }
}

fn non_finite<T: Copy + Sync>(
    x: &[T],
    number: fn(T) -> f32,
    cols: usize,
    progress: &dyn Progress,
) -> Result<Option<DatasetFault>> {
    const STEP: usize = 1 << 24;
    progress.begin("checking features", Some(x.len() as u64), Unit::Items);
    let mut found: Option<DatasetFault> = None;
    for (start, chunk) in x.chunks(STEP).enumerate().map(|(k, chunk)| (k * STEP, chunk)) {
        let bad = (0..chunk.len()).into_par_iter().filter(|&i| !number(chunk[i]).is_finite());
        let bad = first_of(FEAT, bad, |i| {
            let at = start + i;
            let position = format!("row {}, column {}", at / cols, at % cols);
            (position, format!("{} where features must be finite", number(chunk[i])))
        });
        found = match (found, bad) {
            (Some(first), Some(more)) => Some(DatasetFault { count: first.count + more.count, ..first }),
            (first, more) => first.or(more),
        };
        progress.tick(chunk.len() as u64)?;
    }
    Ok(found)
}

fn labels(label: &Array, manifest: &Manifest) -> Option<DatasetFault> {
    let classes = manifest.classes;
    match manifest.task {
        Task::SingleLabel => {
            let classes = classes as i64;
            let y: &[i64] = view(label);
            let bad = (0..y.len()).into_par_iter().filter(|&v| y[v] < -1 || y[v] >= classes);
            first_of(LABEL, bad, |v| {
                (format!("node {v}"), format!("label {} outside {classes} classes", y[v]))
            })
        }
        Task::MultiLabel => {
            let y: &[u8] = view(label);
            let bad = (0..y.len()).into_par_iter().filter(|&i| y[i] > 1);
            first_of(LABEL, bad, |i| {
                let (row, column) = (i / classes as usize, i % classes as usize);
                (format!("node {row}, class {column}"), format!("{} where 0 or 1 is needed", y[i]))
            })
        }
    }
}

/// Returns each split of `splits.npy`.
fn splits_of(splits: &Array) -> impl Iterator<Item = &[u8]> {
    view(splits).chunks_exact(splits.cols().max(1))
}

/// Returns the fault of `splits.npy` if its first split is not that of `split.npy`.
fn first_split(splits: &[u8], split: &[u8]) -> Option<DatasetFault> {
    let differ = (0..split.len()).into_par_iter().filter(|&v| splits[v] != split[v]);
    first_of(SPLITS, differ, |v| {
        (format!("split 0, node {v}"), format!("{} where {SPLIT} has {}", splits[v], split[v]))
    })
}

/// Returns the faults of one split, in `file`. `which` begins their positions.
fn subsets(
    file: &str,
    which: &str,
    split: &[u8],
    label: Option<&Array>,
    manifest: &Manifest,
) -> Vec<DatasetFault> {
    let all = || (0..split.len()).into_par_iter();
    let node = |v: usize| format!("{which}node {v}");
    let unknown = first_of(file, all().filter(|&v| split[v] > Subset::Test as u8), |v| {
        (node(v), format!("{} is none of 0 (none), 1 (train), 2 (validation), 3 (test)", split[v]))
    });
    let unlabelled = label.filter(|_| manifest.task == Task::SingleLabel).and_then(|label| {
        let y: &[i64] = view(label);
        let bad = all().filter(|&v| split[v] != Subset::None as u8 && y[v] < 0);
        first_of(file, bad, |v| (node(v), format!("subset {} for a node without a label", split[v])))
    });
    unknown.into_iter().chain(unlabelled).collect()
}

fn ids(path: &Path, manifest: &Manifest) -> Result<Option<DatasetFault>> {
    if !manifest.files.contains_key(IDS) {
        return Ok(None);
    }
    let map = match npy::map(&path.join(IDS)) {
        Ok(map) => map,
        Err(error) => return Ok(Some(open_fault(IDS, error))),
    };
    let lines = map.par_iter().filter(|&&byte| byte == b'\n').count() as u64;
    Ok((lines != manifest.nodes)
        .then(|| whole_file(IDS, format!("{lines} lines for {} nodes", manifest.nodes))))
}
