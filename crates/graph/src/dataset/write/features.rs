//! Feature files: dense, or sparse rows.

use std::path::PathBuf;

use half::f16;

use super::super::arrays::FeatureArray;
use super::super::{FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES};
use super::{Contents, FeatureLayout, FeatureSource, FeatureType, SPARSE_COLUMNS, SPARSE_DENSITY};
use crate::error::{Error, Result};
use crate::io::npy::{Element, FileRecord, Writer};
use crate::progress::{Progress, Unit};
use crate::staging::{Staging, array};

/// How the features of a dataset are going to be stored.
pub(in super::super) enum FeaturePlan {
    Dense,
    /// Rows without their zeros: so many values.
    Sparse(u64),
}

impl FeaturePlan {
    /// Chooses how to store the features of `contents`. Unless they are dense for certain, reads them to count the elements
    /// that are not 0, until there are too many.
    pub fn of(contents: &Contents, progress: &dyn Progress) -> Result<Self> {
        let (nodes, cols) = (contents.csr.nodes(), contents.features.cols());
        let most = match contents.feature_layout {
            FeatureLayout::Dense => return Ok(FeaturePlan::Dense),
            FeatureLayout::Auto if cols < SPARSE_COLUMNS => return Ok(FeaturePlan::Dense),
            FeatureLayout::Auto => (SPARSE_DENSITY * nodes as f64 * cols as f64) as u64,
            FeatureLayout::Sparse => u64::MAX,
        };
        progress.begin("counting feature values", Some(nodes as u64), Unit::Items);
        let mut stored = 0;
        let counted = stream(contents, progress, &mut |_, rows| {
            stored += rows.iter().filter(|&&x| x != 0.0).count() as u64;
            // Reading on would not change the choice.
            if stored > most { Err(Error::input("features", "too many values")) } else { Ok(()) }
        });
        if stored > most {
            return Ok(FeaturePlan::Dense);
        }
        counted.map(|()| FeaturePlan::Sparse(stored))
    }

    /// Returns the number of stored values of sparse features.
    pub fn stored_values(&self) -> Option<u64> {
        match self {
            FeaturePlan::Dense => None,
            FeaturePlan::Sparse(stored) => Some(*stored),
        }
    }

    /// Returns the size of the files in bytes.
    pub fn bytes(&self, contents: &Contents) -> u64 {
        let (nodes, cols) = (contents.csr.nodes() as u64, contents.features.cols() as u64);
        let value = match contents.feature_type {
            FeatureType::F32 => 4,
            FeatureType::F16 => 2,
        };
        match self {
            FeaturePlan::Dense => nodes.saturating_mul(cols.saturating_mul(value)),
            FeaturePlan::Sparse(stored) => stored.saturating_mul(4 + value).saturating_add(8 * nodes),
        }
    }

    /// Writes the files; returns their names and records.
    pub fn write(
        &self,
        staging: &Staging,
        contents: &Contents,
        progress: &dyn Progress,
    ) -> Result<Vec<(String, FileRecord)>> {
        progress.begin("writing features", Some(contents.csr.nodes() as u64), Unit::Items);
        match contents.feature_type {
            FeatureType::F32 => self.write_as(staging, contents, progress, |x: f32| x),
            FeatureType::F16 => self.write_as(staging, contents, progress, f16::from_f32),
        }
    }

    /// Returns the features as arrays of 32-bit floats in memory; a dense matrix that is there already is shared.
    pub fn collect(&self, contents: &Contents, progress: &dyn Progress) -> Result<FeatureArray> {
        progress.begin("reading features", Some(contents.csr.nodes() as u64), Unit::Items);
        let (nodes, cols) = (contents.csr.nodes(), contents.features.cols());
        match self {
            FeaturePlan::Dense => {
                if let Some(matrix) = contents.features.in_memory() {
                    // Checks the values.
                    stream(contents, progress, &mut |_, _| Ok(()))?;
                    return Ok(FeatureArray::shared(matrix));
                }
                let mut values = Vec::with_capacity(nodes.saturating_mul(cols));
                stream(contents, progress, &mut |_, rows| {
                    values.extend_from_slice(rows);
                    Ok(())
                })?;
                Ok(FeatureArray::f32(cols, values))
            }
            FeaturePlan::Sparse(stored) => {
                let stored = *stored as usize;
                let (mut indices, mut values) = (Vec::with_capacity(stored), Vec::with_capacity(stored));
                let starts = sparse_rows(contents, progress, |x| x, &mut |columns, numbers| {
                    indices.extend_from_slice(columns);
                    values.extend_from_slice(numbers);
                    Ok(())
                })?;
                Ok(FeatureArray::sparse_f32(cols, starts, indices, values))
            }
        }
    }

    fn write_as<T: Element + Value>(
        &self,
        staging: &Staging,
        contents: &Contents,
        progress: &dyn Progress,
        value: impl Fn(f32) -> T,
    ) -> Result<Vec<(String, FileRecord)>> {
        let path = |file: &str| staging.path(file);
        match self {
            FeaturePlan::Dense => {
                let shape = [contents.csr.nodes(), contents.features.cols()];
                let mut writer = Writer::<T>::create(&path(FEAT), &shape)?;
                let mut values = Vec::new();
                stream(contents, progress, &mut |row, rows| {
                    values.clear();
                    values.extend(rows.iter().map(|&x| value(x)));
                    match values.iter().position(Value::is_too_large) {
                        None => writer.write(&values),
                        Some(at) => Err(too_large(contents.features, row, at, rows[at])),
                    }
                })?;
                Ok(vec![(FEAT.into(), writer.finish()?)])
            }
            FeaturePlan::Sparse(stored) => write_sparse(&path, contents, progress, *stored as usize, value),
        }
    }
}

/// A number as it is stored.
trait Value {
    /// Returns whether the number was too large for its type.
    fn is_too_large(&self) -> bool;
}

impl Value for f32 {
    fn is_too_large(&self) -> bool {
        false
    }
}

impl Value for f16 {
    fn is_too_large(&self) -> bool {
        self.is_infinite()
    }
}

fn write_sparse<T: Element + Value>(
    path: &dyn Fn(&str) -> PathBuf,
    contents: &Contents,
    progress: &dyn Progress,
    stored: usize,
    value: impl Fn(f32) -> T,
) -> Result<Vec<(String, FileRecord)>> {
    let mut indices = Writer::<u32>::create(&path(FEAT_INDICES), &[stored])?;
    let mut values = Writer::<T>::create(&path(FEAT_VALUES), &[stored])?;
    let starts = sparse_rows(contents, progress, value, &mut |columns, numbers| {
        indices.write(columns)?;
        values.write(numbers)
    })?;
    Ok(vec![
        (FEAT_INDPTR.into(), array(&path(FEAT_INDPTR), &[starts.len()], &starts)?),
        (FEAT_INDICES.into(), indices.finish()?),
        (FEAT_VALUES.into(), values.finish()?),
    ])
}

/// Takes columns and values of some rows without their zeros.
type SparseSink<'s, T> = dyn FnMut(&[u32], &[T]) -> Result<()> + 's;

/// Passes columns and values of all elements that are not 0 to `sink`, several rows at a time; returns the row starts.
fn sparse_rows<T: Value>(
    contents: &Contents,
    progress: &dyn Progress,
    value: impl Fn(f32) -> T,
    sink: &mut SparseSink<T>,
) -> Result<Vec<u64>> {
    let cols = contents.features.cols();
    let mut starts = vec![0u64];
    let (mut columns, mut numbers) = (Vec::new(), Vec::new());
    stream(contents, progress, &mut |first, rows| {
        columns.clear();
        numbers.clear();
        let before = starts[starts.len() - 1];
        for (k, row) in rows.chunks_exact(cols.max(1)).enumerate() {
            for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                let number = value(x);
                if number.is_too_large() {
                    return Err(too_large(contents.features, first, k * cols + column, x));
                }
                columns.push(column as u32);
                numbers.push(number);
            }
            starts.push(before + columns.len() as u64);
        }
        sink(&columns, &numbers)
    })?;
    Ok(starts)
}

/// Passes all feature rows to `sink`, with the number of the first one. Refuses values that are not finite and a wrong
/// number of rows.
fn stream(
    contents: &Contents,
    progress: &dyn Progress,
    sink: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    let (nodes, cols) = (contents.csr.nodes(), contents.features.cols());
    let mut row = 0;
    contents.features.stream(&mut |rows| {
        if let Some(at) = rows.iter().position(|x| !x.is_finite()) {
            return Err(bad_feature(contents.features, row, at, format!("{}", rows[at])).help(
                "features must be finite and fit 32-bit floats; replace or drop such values before importing",
            ));
        }
        let n = rows.len().checked_div(cols).unwrap_or(0);
        if row + n > nodes {
            let place = contents.features.place(nodes, 0);
            return Err(Error::input(
                place,
                format!("more feature rows than the {nodes} nodes of the graph"),
            ));
        }
        sink(row, rows)?;
        row += n;
        progress.tick(n as u64)
    })?;
    if row != nodes && cols > 0 {
        let place = contents.features.place(row, 0);
        return Err(Error::input(place, format!("{row} feature rows for {nodes} nodes")));
    }
    Ok(())
}

/// Creates the error for element `at`, counted from row `row`.
fn bad_feature(features: &dyn FeatureSource, row: usize, at: usize, what: String) -> Error {
    let (row, column) = (row + at / features.cols(), at % features.cols());
    Error::input(features.place(row, column), format!("feature {column} of node {row} is {what}"))
}

fn too_large(features: &dyn FeatureSource, row: usize, at: usize, value: f32) -> Error {
    bad_feature(features, row, at, format!("{value}, more than {}, the largest 16-bit float", f16::MAX))
        .help("import with --feature-type f32, or scale the features down")
}
