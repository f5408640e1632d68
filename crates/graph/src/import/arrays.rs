//! Edges, features, labels and splits from [`Array`]s, for all array-based formats.

use crate::build::weighted::read_weights;
use crate::build::{self, EdgeSource, WeightedSink};
use crate::dataset::Subset;
use crate::dataset::manifest::MAX_SPLITS;
use crate::dataset::write::{FeatureSource, Labels};
use crate::error::{Error, Result};
use crate::io::npy::{Array, DType};

/// Elements decoded at a time.
const CHUNK: usize = 1 << 16;
/// Columns that any sparse matrix may have. Rows are read with their zeros: more columns need as many stored values, so that
/// memory stays in proportion to the files.
const FREE_COLUMNS: usize = 1 << 20;
/// Columns that a sparse matrix may have beyond twice those that are used.
const UNUSED_COLUMNS: usize = 1 << 16;

/// An `edge_index`: 2×E as PyG has it, or E×2.
pub(super) struct PairEdges {
    pairs: Array,
    count: usize,
    /// 2×E: sources first, then destinations.
    split_rows: bool,
}

impl PairEdges {
    pub(super) fn new(pairs: Array) -> Result<Self> {
        match pairs.header.shape[..] {
            [2, count] => Ok(PairEdges { pairs, count, split_rows: true }),
            [count, 2] => Ok(PairEdges { pairs, count, split_rows: false }),
            _ => {
                let problem = format!("shape {:?} where edges need 2×E or E×2", pairs.header.shape);
                Err(Error::input(&pairs.name, problem))
            }
        }
    }

    /// Requires E×2, so that two edges are not mistaken for 2×E.
    pub(super) fn tall(pairs: Array) -> Result<Self> {
        match pairs.header.shape[..] {
            [count, 2] => Ok(PairEdges { pairs, count, split_rows: false }),
            _ => {
                let problem = format!("shape {:?} where edges need E×2", pairs.header.shape);
                Err(Error::input(&pairs.name, problem))
            }
        }
    }
}

impl EdgeSource for PairEdges {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        let mut ids = vec![0i64; 2 * CHUNK];
        let mut batch = Vec::with_capacity(CHUNK);
        for start in (0..self.count).step_by(CHUNK) {
            let n = CHUNK.min(self.count - start);
            batch.clear();
            if self.split_rows {
                let (from, to) = ids.split_at_mut(CHUNK);
                self.pairs.read_i64(start, &mut from[..n])?;
                self.pairs.read_i64(self.count + start, &mut to[..n])?;
                batch.extend(from[..n].iter().zip(&to[..n]).map(|(&u, &v)| [u, v]));
            } else {
                self.pairs.read_i64(2 * start, &mut ids[..2 * n])?;
                batch.extend(ids[..2 * n].chunks_exact(2).map(|pair| [pair[0], pair[1]]));
            }
            sink(&batch)?;
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        format!("{}, edge {index}", self.pairs.name)
    }

    fn len(&self) -> Option<u64> {
        Some(self.count as u64)
    }
}

/// Edges with an array of weights.
pub(super) struct WeightedEdges {
    edges: PairEdges,
    weights: Vec<f32>,
}

impl WeightedEdges {
    /// Reads and checks the weights.
    pub(super) fn new(edges: PairEdges, weights: &Array) -> Result<Self> {
        let weights = read_weights(weights, edges.count)?;
        Ok(WeightedEdges { edges, weights })
    }
}

impl EdgeSource for WeightedEdges {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        self.edges.visit(sink)
    }

    fn has_weights(&self) -> bool {
        true
    }

    fn visit_weighted(&self, sink: &mut WeightedSink<'_>) -> Result<()> {
        let mut at = 0;
        self.visit(&mut |batch| {
            at += batch.len();
            sink(batch, &self.weights[at - batch.len()..at])
        })
    }

    fn place(&self, index: u64) -> String {
        self.edges.place(index)
    }

    fn len(&self) -> Option<u64> {
        self.edges.len()
    }
}

/// Returns a note if the values of an adjacency matrix, which are not read as weights, are not all 1.
pub(super) fn ignored_weights(values: Option<Array>) -> Result<Option<String>> {
    let Some(values) = values.filter(|values| values.header.dtype.size().is_some()) else { return Ok(None) };
    let mut buffer = vec![0.0; CHUNK.min(values.len())];
    for start in (0..values.len()).step_by(CHUNK) {
        let part = &mut buffer[..CHUNK.min(values.len() - start)];
        values.read_f32(start, part)?;
        if let Some(value) = part.iter().find(|&&value| value != 1.0) {
            let note =
                format!("{}: edge weights such as {value} are not imported from this format", values.name);
            return Ok(Some(note));
        }
    }
    Ok(None)
}

/// An N×F matrix.
pub(super) struct DenseFeatures {
    matrix: Array,
    /// Names of the columns; may be empty.
    names: Vec<String>,
}

impl DenseFeatures {
    pub(super) fn new(matrix: Array) -> Result<Self> {
        if matrix.header.shape.len() != 2 || matrix.header.dtype.size().is_none() {
            let problem = format!(
                "{} of shape {:?} where features need numbers, nodes × columns",
                matrix.header.dtype.descr(),
                matrix.header.shape
            );
            return Err(Error::input(&matrix.name, problem));
        }
        Ok(DenseFeatures { matrix, names: Vec::new() })
    }

    /// Requires one row for each of `nodes` nodes.
    pub(super) fn for_nodes(matrix: Array, nodes: usize) -> Result<Self> {
        let features = DenseFeatures::new(matrix)?;
        if features.rows() != nodes {
            let problem = format!("{} feature rows for {nodes} nodes", features.rows());
            return Err(Error::input(&features.matrix.name, problem));
        }
        Ok(features)
    }

    /// Names the columns; `names` has one for each, or is empty.
    pub(super) fn named(self, names: Vec<String>) -> Self {
        DenseFeatures { names, ..self }
    }

    pub(super) fn rows(&self) -> usize {
        self.matrix.rows()
    }
}

impl FeatureSource for DenseFeatures {
    fn cols(&self) -> usize {
        self.matrix.cols()
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn in_memory(&self) -> Option<Array> {
        let is_plain = self.matrix.header.dtype == DType::F32 && self.matrix.as_slice::<f32>().is_some();
        (is_plain && self.matrix.is_owned()).then(|| self.matrix.clone())
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let (rows, cols) = (self.rows(), self.cols());
        // If one dimension is 0, the file size does not verify the other.
        if self.matrix.is_empty() {
            return Ok(());
        }
        let step = (CHUNK / cols).max(1);
        let mut buffer = vec![0f32; step * cols];
        for start in (0..rows).step_by(step) {
            let values = &mut buffer[..step.min(rows - start) * cols];
            self.matrix.read_f32(start * cols, values)?;
            sink(values)?;
        }
        Ok(())
    }

    fn place(&self, row: usize, column: usize) -> String {
        format!("{}, row {row}, column {column}", self.matrix.name)
    }
}

/// A sparse N×F matrix in compressed rows.
pub(super) struct SparseFeatures {
    /// Row starts, checked.
    indptr: Vec<u64>,
    indices: Array,
    data: Array,
    cols: usize,
    names: Vec<String>,
}

impl SparseFeatures {
    /// Names the columns; `names` has one for each, or is empty.
    pub(super) fn named(self, names: Vec<String>) -> Self {
        SparseFeatures { names, ..self }
    }

    /// As [`SparseFeatures::new`], of a matrix in memory, which may have columns that are not used.
    pub(super) fn of_matrix(
        indptr: &Array,
        indices: Array,
        data: Array,
        [rows, cols]: [usize; 2],
    ) -> Result<Self> {
        check_value_count(&data, &indices)?;
        columns_used(&indices, cols)?;
        let indptr = build::row_starts(rows, indptr, indices.len(), "feature values")?;
        Ok(SparseFeatures { indptr, indices, data, cols, names: Vec::new() })
    }

    /// Checks everything, column ids included.
    pub(super) fn new(indptr: &Array, indices: Array, data: Array, [rows, cols]: [usize; 2]) -> Result<Self> {
        check_value_count(&data, &indices)?;
        // The number of columns is unverified, and every row will be that wide.
        let used = columns_used(&indices, cols)?;
        if cols > used.saturating_mul(2).saturating_add(UNUSED_COLUMNS) {
            let problem = format!("the shape has {cols} columns, but only the first {used} are used");
            return Err(Error::input(&indices.name, problem));
        }
        let indptr = build::row_starts(rows, indptr, indices.len(), "feature values")?;
        Ok(SparseFeatures { indptr, indices, data, cols, names: Vec::new() })
    }

    pub(super) fn rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Adds row `row` to `out`. Repeated entries add up, as in scipy.
    pub(super) fn add_row(&self, row: usize, out: &mut [f32], entries: &mut Entries) -> Result<()> {
        let from = self.indptr[row] as usize;
        let count = self.indptr[row + 1] as usize - from;
        entries.ids.resize(count, 0);
        entries.values.resize(count, 0.0);
        self.indices.read_i64(from, &mut entries.ids)?;
        self.data.read_f32(from, &mut entries.values)?;
        for (k, (&id, &x)) in entries.ids.iter().zip(&entries.values).enumerate() {
            let place = || format!("{}, element {}", self.indices.name, from + k);
            let column = usize::try_from(id).ok().and_then(|id| out.get_mut(id));
            *column
                .ok_or_else(|| Error::input(place(), format!("feature column {id} of {}", self.cols)))? += x;
        }
        Ok(())
    }
}

/// Refuses another number of values than of column ids.
fn check_value_count(values: &Array, indices: &Array) -> Result<()> {
    if values.len() == indices.len() {
        return Ok(());
    }
    let problem = format!("{} values for {} column ids", values.len(), indices.len());
    Err(Error::input(&values.name, problem))
}

/// Returns the largest column id + 1. Refuses ids that are not below `cols`, and more columns than there can be.
pub(super) fn columns_used(indices: &Array, cols: usize) -> Result<usize> {
    let most = indices.len().max(FREE_COLUMNS);
    let mut used = 0;
    let mut ids = vec![0i64; CHUNK.min(indices.len())];
    for start in (0..indices.len()).step_by(CHUNK) {
        let ids = &mut ids[..CHUNK.min(indices.len() - start)];
        indices.read_i64(start, ids)?;
        for (k, &id) in ids.iter().enumerate() {
            let column = usize::try_from(id).ok().filter(|&id| id < cols.min(most)).ok_or_else(|| {
                let place = format!("{}, element {}", indices.name, start + k);
                let column = format!("feature column {id} of {}", cols.min(most));
                if cols <= most {
                    return Error::input(place, column);
                }
                Error::input(place, format!("{column} that {} values may have", indices.len()))
                    .help("columns count from 0; correct the index, or number the used columns without gaps")
            })?;
            used = used.max(column + 1);
        }
    }
    Ok(used)
}

/// Buffers for the entries of one sparse row.
#[derive(Default)]
pub(super) struct Entries {
    ids: Vec<i64>,
    values: Vec<f32>,
}

impl FeatureSource for SparseFeatures {
    fn cols(&self) -> usize {
        self.cols
    }

    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        stream_rows(self.rows(), self.cols, sink, |row, out, entries| self.add_row(row, out, entries))
    }

    fn place(&self, row: usize, column: usize) -> String {
        format!("{}, row {row}, column {column}", self.data.name)
    }
}

/// Streams rows that `fill` writes into zeros, one by one.
pub(super) fn stream_rows(
    rows: usize,
    cols: usize,
    sink: &mut dyn FnMut(&[f32]) -> Result<()>,
    mut fill: impl FnMut(usize, &mut [f32], &mut Entries) -> Result<()>,
) -> Result<()> {
    if cols == 0 {
        return Ok(());
    }
    let step = (CHUNK / cols).max(1);
    let mut dense = vec![0f32; step * cols];
    let mut entries = Entries::default();
    for start in (0..rows).step_by(step) {
        let n = step.min(rows - start);
        dense.fill(0.0);
        for (k, out) in dense.chunks_exact_mut(cols).take(n).enumerate() {
            fill(start + k, out, &mut entries)?;
        }
        sink(&dense[..n * cols])?;
    }
    Ok(())
}

/// Reads labels: N or N×1 (classes; NaN or −1 is none), or N×C (flags).
pub(super) fn labels(array: &Array) -> Result<Labels> {
    let classes = array.cols();
    if array.header.shape.len() == 2 && classes > 1 {
        return flags(array);
    }
    let plain = array.header.shape.len() == 1 || (array.header.shape.len() == 2 && classes == 1);
    if !plain {
        let problem = format!("shape {:?} where labels need N, N×1 or N×C", array.header.shape);
        return Err(Error::input(&array.name, problem));
    }
    let mut values = vec![0f64; array.len()];
    array.read_f64(0, &mut values)?;
    let class = |(v, &x): (usize, &f64)| match x {
        x if x.is_nan() => Ok(-1),
        x if x.fract() == 0.0 && x.abs() < 1e15 => Ok(x as i64),
        x => {
            Err(Error::input(format!("{}, node {v}", array.name), format!("class {x} is not a whole number")))
        }
    };
    Ok(Labels::Single(values.iter().enumerate().map(class).collect::<Result<_>>()?))
}

/// Reads labels from N×C flags.
pub(super) fn flags(array: &Array) -> Result<Labels> {
    let classes = array.cols();
    if array.header.shape.len() != 2 {
        let problem = format!("shape {:?} where flags need N×C", array.header.shape);
        return Err(Error::input(&array.name, problem));
    }
    let flag = |(at, &x): (usize, &i64)| match x {
        0 | 1 => Ok(x as u8),
        _ => {
            let place = format!("{}, row {}, column {}", array.name, at / classes, at % classes);
            Err(Error::input(place, format!("{x} where a multi-label table has 0 or 1")))
        }
    };
    let flags = array.to_i64()?.iter().enumerate().map(flag).collect::<Result<_>>()?;
    Ok(Labels::Multi { classes, flags })
}

/// Reads a split: a number of [`Subset`] per node.
pub(super) fn subsets(array: &Array) -> Result<Vec<u8>> {
    let part = |(v, &x): (usize, &i64)| {
        u8::try_from(x)
            .map_err(|_| Error::input(format!("{}, node {v}", array.name), format!("{x} is no subset")))
    };
    array.to_i64()?.iter().enumerate().map(part).collect()
}

/// Reads several splits: an S×N array of numbers of [`Subset`]. With `index`, only that one is returned.
pub(super) fn all_subsets(array: &Array, nodes: usize, index: Option<usize>) -> Result<Vec<Vec<u8>>> {
    let count = match array.header.shape[..] {
        [count, n] if n == nodes && nodes > 0 && (1..=MAX_SPLITS).contains(&count) => count,
        _ => {
            let shape = &array.header.shape;
            let problem =
                format!("shape {shape:?} where 1 to {MAX_SPLITS} splits × {nodes} nodes are needed");
            return Err(Error::input(&array.name, problem));
        }
    };
    let all = subsets(array)?;
    let mut splits = all.chunks_exact(nodes).map(<[u8]>::to_vec);
    match index {
        None => Ok(splits.collect()),
        Some(index) => splits.nth(index).map(|split| vec![split]).ok_or_else(|| {
            let problem = format!("no split {index}: there are {count}, counted from 0");
            Error::input(&array.name, problem).help("choose one with --split-index")
        }),
    }
}

/// Reads the splits in three masks, all of them or none. A mask has shape N, or holds several splits as S×N or N×S. With
/// `index`, only that one is returned. A mask of shape N beside others is used for every split, as in WikiCS.
pub(super) fn masks(masks: &[Option<Array>; 3], nodes: usize, index: Option<usize>) -> Result<Vec<Vec<u8>>> {
    if masks.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    // Decoded before anything of their length is allocated: until then the number of nodes is unverified.
    let mut found = Vec::new();
    for (mask, (part, what)) in
        masks.iter().zip([(Subset::Train, "training"), (Subset::Val, "validation"), (Subset::Test, "test")])
    {
        let mask = mask.as_ref().ok_or_else(|| {
            let there = masks.iter().flatten().next().map_or("", |m| &m.name);
            Error::input(there, format!("there is no {what} mask beside it"))
        })?;
        found.push((Mask::read(mask, nodes)?, part));
    }
    let count = split_count(&found)?;
    let chosen = match index {
        Some(index) if index >= count => {
            let problem = format!("no split {index}: there are {count}, counted from 0");
            return Err(Error::input(&found[0].0.name, problem).help("choose one with --split-index"));
        }
        Some(index) => index..index + 1,
        None => 0..count,
    };
    chosen.map(|k| split_of_masks(&found, nodes, k)).collect()
}

/// Returns the number of splits in masks; refuses masks that hold different numbers.
fn split_count(masks: &[(Mask, Subset)]) -> Result<usize> {
    let count = masks.iter().map(|(mask, _)| mask.count).max().unwrap_or(1);
    for (mask, _) in masks {
        if mask.count != count && mask.count != 1 {
            let problem = format!("{} splits where another mask has {count}", mask.count);
            return Err(Error::input(&mask.name, problem));
        }
    }
    if count > MAX_SPLITS {
        let problem = format!("{count} splits where at most {MAX_SPLITS} are possible");
        return Err(Error::input(&masks[0].0.name, problem));
    }
    Ok(count)
}

/// Returns split number `k` of masks.
fn split_of_masks(masks: &[(Mask, Subset)], nodes: usize, k: usize) -> Result<Vec<u8>> {
    let mut split = vec![Subset::None as u8; nodes];
    for (mask, part) in masks {
        for v in (0..nodes).filter(|&v| mask.holds(v, k)) {
            if split[v] != Subset::None as u8 {
                let problem = "a node in two subsets of the split";
                return Err(Error::input(format!("{}, node {v}", mask.name), problem));
            }
            split[v] = *part as u8;
        }
    }
    Ok(split)
}

/// The members of one subset in one or several splits.
struct Mask {
    name: String,
    flags: Vec<bool>,
    /// Number of splits.
    count: usize,
    /// Distance between the flags of adjacent nodes, and of adjacent splits.
    steps: [usize; 2],
}

impl Mask {
    fn read(array: &Array, nodes: usize) -> Result<Mask> {
        let (count, steps) = match array.header.shape[..] {
            [n] if n == nodes => (1, [1, 0]),
            [k, n] if n == nodes => (k, [1, n]),
            [n, k] if n == nodes => (k, [k, 1]),
            _ => {
                let problem =
                    format!("shape {:?} where a mask of {nodes} nodes is needed", array.header.shape);
                return Err(Error::input(&array.name, problem));
            }
        };
        if count == 0 {
            return Err(Error::input(&array.name, "a mask without a split"));
        }
        let flags = array.to_i64()?.iter().map(|&flag| flag != 0).collect();
        Ok(Mask { name: array.name.clone(), flags, count, steps })
    }

    /// Returns whether node `v` is a member in split `k`; a mask with one split has the same members in all.
    fn holds(&self, v: usize, k: usize) -> bool {
        let k = if self.count == 1 { 0 } else { k };
        self.flags[v * self.steps[0] + k * self.steps[1]]
    }
}
