//! Stored features: a dense matrix, or rows without their zeros.

use std::ops::Range;

use half::f16;

use super::check::{DatasetFault, row_starts};
use super::{FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, view};
use crate::error::{Error, Result};
use crate::io::npy::{Array, DType, Element, FileRecord};

/// Features as a dataset or a shard stores them.
#[derive(Clone)]
pub enum StoredFeatures {
    /// `feat.npy`: every element, `f32` or `f16`.
    Dense(Array),
    /// `feat_indptr.npy`, `feat_indices.npy` and `feat_values.npy`: compressed sparse rows.
    Sparse(Box<SparseArrays>),
}

/// A feature matrix in compressed sparse rows: columns ascend within a row, and absent ones are 0.
#[derive(Clone)]
pub struct SparseArrays {
    indptr: Array,
    indices: Array,
    values: Array,
    columns: usize,
}

impl StoredFeatures {
    /// Opens the arrays of `columns` columns with `open`, which checks types and shapes; refuses wrong row starts.
    pub(crate) fn open(
        is_sparse: bool,
        columns: u64,
        mut open: impl FnMut(&'static str) -> Result<Array>,
    ) -> Result<Self> {
        if !is_sparse {
            return open(FEAT).map(StoredFeatures::Dense);
        }
        let arrays = SparseArrays {
            indptr: open(FEAT_INDPTR)?,
            indices: open(FEAT_INDICES)?,
            values: open(FEAT_VALUES)?,
            columns: columns as usize,
        };
        match arrays.wrong_row_start() {
            None => Ok(StoredFeatures::Sparse(Box::new(arrays))),
            Some(fault) => {
                let place = format!("{}, {}", arrays.indptr.name, fault.position);
                Err(Error::input(place, fault.problem))
            }
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match self {
            StoredFeatures::Dense(all) => all.rows(),
            StoredFeatures::Sparse(arrays) => arrays.indptr.len() - 1,
        }
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        match self {
            StoredFeatures::Dense(all) => all.cols(),
            StoredFeatures::Sparse(arrays) => arrays.columns,
        }
    }

    /// Returns whether values are 16-bit floats; else they are 32-bit floats.
    pub fn is_half(&self) -> bool {
        let values = match self {
            StoredFeatures::Dense(all) => all,
            StoredFeatures::Sparse(arrays) => &arrays.values,
        };
        values.header.dtype == DType::F16
    }

    /// Returns the elements of a dense matrix, if they are of type `T`.
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        match self {
            StoredFeatures::Dense(all) => all.as_slice(),
            StoredFeatures::Sparse(_) => None,
        }
    }

    /// Returns the size of all arrays in bytes.
    pub fn bytes(&self) -> usize {
        self.arrays().iter().map(|(_, array)| array.raw().len()).sum()
    }

    /// Releases the resident pages of mapped files; later accesses read them again.
    pub fn release(&self) {
        self.arrays().iter().for_each(|(_, array)| array.release());
    }

    /// Returns the arrays with the names of their files.
    pub(crate) fn arrays(&self) -> Vec<(&'static str, &Array)> {
        match self {
            StoredFeatures::Dense(all) => vec![(FEAT, all)],
            StoredFeatures::Sparse(arrays) => {
                let SparseArrays { indptr, indices, values, .. } = &**arrays;
                vec![(FEAT_INDPTR, indptr), (FEAT_INDICES, indices), (FEAT_VALUES, values)]
            }
        }
    }

    /// Returns lengths and digests of the files of these arrays in memory.
    pub(crate) fn file_records(&self) -> Vec<(&'static str, FileRecord)> {
        self.arrays().into_iter().map(|(file, array)| (file, array.file_record())).collect()
    }

    /// Reads a row, zeros included, as 32-bit floats. Refuses columns that are out of order or range; values are not checked.
    pub fn read_row(&self, row: usize, out: &mut [f32]) -> Result<()> {
        match self {
            StoredFeatures::Dense(all) => all.read_f32(row * all.cols(), out),
            StoredFeatures::Sparse(arrays) => {
                out.fill(0.0);
                let mut values = vec![0.0; arrays.row(row).len()];
                arrays.read_row(row, &mut values)?;
                let columns = &arrays.columns()[arrays.row(row)];
                columns.iter().zip(values).for_each(|(&column, x)| out[column as usize] = x);
                Ok(())
            }
        }
    }

    /// Returns how messages name an element.
    pub fn place(&self, row: usize, column: usize) -> String {
        let name = match self {
            StoredFeatures::Dense(all) => &all.name,
            StoredFeatures::Sparse(arrays) => &arrays.values.name,
        };
        format!("{name}, row {row}, column {column}")
    }
}

impl SparseArrays {
    /// Wraps arrays in memory, whose row starts must be checked.
    pub(super) fn new(indptr: Array, indices: Array, values: Array, columns: usize) -> Self {
        SparseArrays { indptr, indices, values, columns }
    }

    /// Returns the first fault of the row starts.
    pub(super) fn wrong_row_start(&self) -> Option<DatasetFault> {
        row_starts(FEAT_INDPTR, view(&self.indptr), self.indices.len() as u64).into_iter().next()
    }

    /// Returns the number of stored values.
    pub fn stored(&self) -> usize {
        self.indices.len()
    }

    /// Returns the stored values of a row, as a range.
    #[inline]
    pub fn row(&self, row: usize) -> Range<usize> {
        let starts: &[u64] = view(&self.indptr);
        starts[row] as usize..starts[row + 1] as usize
    }

    /// Returns the column of every stored value.
    pub fn columns(&self) -> &[u32] {
        view(&self.indices)
    }

    /// Returns the row starts.
    pub fn starts(&self) -> &[u64] {
        view(&self.indptr)
    }

    /// Returns the stored values, if they are of type `T`.
    pub fn values<T: Element>(&self) -> Option<&[T]> {
        self.values.as_slice()
    }

    /// Reads the stored values of a row as 32-bit floats. Refuses columns that are out of order or range.
    pub fn read_row(&self, row: usize, values: &mut [f32]) -> Result<()> {
        let stored = self.row(row);
        if let Some((at, problem)) = wrong_column(&self.columns()[stored.clone()], self.columns) {
            let place = format!("{}, element {} (row {row})", self.indices.name, stored.start + at);
            return Err(
                Error::input(place, problem).help("`halograph data check` lists every fault of a dataset")
            );
        }
        self.values.read_f32(stored.start, values)
    }

    /// Returns whether any of the stored values is a number of this kind: position and value of the first.
    pub(super) fn find(&self, bad: impl Fn(f32) -> bool) -> Option<(usize, f32)> {
        let of = |at: usize, x: f32| bad(x).then_some((at, x));
        match self.values.as_slice::<f16>() {
            Some(all) => all.iter().enumerate().find_map(|(at, x)| of(at, x.to_f32())),
            None => view::<f32>(&self.values).iter().enumerate().find_map(|(at, &x)| of(at, x)),
        }
    }
}

/// Returns position and problem of the first column of a row that is out of range or not above the one before.
pub(super) fn wrong_column(row: &[u32], columns: usize) -> Option<(usize, String)> {
    let wrong = |(at, &column): (usize, &u32)| {
        let before = at.checked_sub(1).map(|before| row[before]);
        let problem = match before {
            _ if column as usize >= columns => format!("out-of-range column {column} of {columns}"),
            Some(before) if column == before => format!("repeated column {column}"),
            Some(before) if column < before => {
                format!("unsorted columns: {column} after {before}")
            }
            _ => return None,
        };
        Some((at, problem))
    };
    row.iter().enumerate().find_map(wrong)
}
