//! Sparse matrices: rows of features without their zeros.

use std::ops::Range;
use std::sync::Arc;

use halograph_kernels::Real;
use halograph_kernels::buffer::Buffer;
use halograph_kernels::dropout::{Mask, dropout_sparse};
use halograph_kernels::sparse::SparseRows;
use rayon::prelude::*;

use crate::matrix::Matrix;

/// Rows of a task that copies rows.
const TASK_ROWS: usize = 64;

/// A sparse matrix in CSR form. Matrices that differ in their values only share the rest.
#[derive(Debug, Clone)]
pub struct Sparse<T: Real> {
    pattern: Arc<SparsePattern>,
    values: Buffer<T>,
}

#[derive(Debug)]
struct SparsePattern {
    /// Start of each row, and the end.
    starts: Buffer<u64>,
    columns: Buffer<u32>,
    cols: usize,
}

impl<T: Real> Sparse<T> {
    /// Creates a matrix of `cols` columns with rows of these `lengths`; `fill` writes columns and values of a row. Runs in
    /// parallel; the first error ends it.
    pub fn build<E: Send>(
        cols: usize,
        lengths: impl ExactSizeIterator<Item = usize>,
        fill: impl Fn(usize, &mut [u32], &mut [T]) -> Result<(), E> + Sync,
    ) -> Result<Self, E> {
        let mut starts = Buffer::unspecified(lengths.len() + 1);
        starts[0] = 0;
        for (row, length) in lengths.enumerate() {
            starts[row + 1] = starts[row] + length as u64;
        }
        let stored = starts[starts.len() - 1] as usize;
        let (mut columns, mut values) = (Buffer::unspecified(stored), Buffer::unspecified(stored));
        let tasks = tasks(&starts, &mut columns, &mut values);
        tasks.into_par_iter().try_for_each(|(rows, mut columns, mut values): (Range<usize>, _, _)| {
            for row in rows {
                let length = (starts[row + 1] - starts[row]) as usize;
                let (row_columns, after_columns) = std::mem::take(&mut columns).split_at_mut(length);
                let (row_values, after_values) = std::mem::take(&mut values).split_at_mut(length);
                (columns, values) = (after_columns, after_values);
                fill(row, row_columns, row_values)?;
            }
            Ok(())
        })?;
        Ok(Sparse { pattern: Arc::new(SparsePattern { starts, columns, cols }), values })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.pattern.starts.len() - 1
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.pattern.cols
    }

    /// Returns the rows as kernels read them.
    pub fn view(&self) -> SparseRows<'_, T> {
        let SparsePattern { starts, columns, cols } = &*self.pattern;
        SparseRows::new(starts, columns, &self.values, *cols)
    }

    /// Returns columns and values of a row.
    pub fn row(&self, row: usize) -> (&[u32], &[T]) {
        self.view().row(row)
    }

    /// Writes a row, zeros included.
    pub fn copy_row(&self, row: usize, out: &mut [T]) {
        out.fill(T::zero());
        let (columns, values) = self.row(row);
        columns.iter().zip(values).for_each(|(&column, &x)| out[column as usize] = x);
    }

    /// Returns these rows, in this order. Copies them.
    #[must_use]
    pub fn gathered(&self, rows: &[u32]) -> Self {
        let lengths = rows.iter().map(|&row| self.row(row as usize).0.len());
        let made = Sparse::build(self.cols(), lengths, |at, columns, values| {
            let (from_columns, from_values) = self.row(rows[at] as usize);
            columns.copy_from_slice(from_columns);
            values.copy_from_slice(from_values);
            Ok::<(), std::convert::Infallible>(())
        });
        made.unwrap_or_else(|never| match never {})
    }

    /// Returns a copy with dropout applied: dropped values are stored as 0.
    #[must_use]
    pub fn dropped(&self, mask: Mask) -> Self {
        let mut values = Buffer::unspecified(self.values.len());
        dropout_sparse(self.view(), mask, &mut values);
        Sparse { pattern: self.pattern.clone(), values }
    }

    /// Returns a range of rows, zeros included. Allocates.
    pub fn dense(&self, rows: Range<usize>) -> Matrix<T> {
        let mut out = Matrix::unspecified(rows.len(), self.cols());
        let to = out.data_mut().par_chunks_mut(self.cols().max(1)).enumerate();
        to.for_each(|(row, out)| self.copy_row(rows.start + row, out));
        out
    }
}

/// Rows of a task, with their columns and values.
type Task<'a, T> = (Range<usize>, &'a mut [u32], &'a mut [T]);

/// Splits rows into tasks.
fn tasks<'a, T>(starts: &[u64], mut columns: &'a mut [u32], mut values: &'a mut [T]) -> Vec<Task<'a, T>> {
    let rows = starts.len() - 1;
    let task = |first: usize| {
        let rows = first..(first + TASK_ROWS).min(rows);
        let length = (starts[rows.end] - starts[rows.start]) as usize;
        let (own_columns, after_columns) = std::mem::take(&mut columns).split_at_mut(length);
        let (own_values, after_values) = std::mem::take(&mut values).split_at_mut(length);
        (columns, values) = (after_columns, after_values);
        (rows, own_columns, own_values)
    };
    (0..rows).step_by(TASK_ROWS).map(task).collect()
}

#[cfg(test)]
mod tests {
    use halograph_kernels::keyed::Key;

    use super::*;

    fn example() -> Sparse<f64> {
        let rows: [&[(u32, f64)]; 4] =
            [&[(0, 1.0), (3, 2.0)], &[], &[(1, 3.0)], &[(0, 4.0), (1, 5.0), (4, 6.0)]];
        Sparse::build(5, rows.iter().map(|row| row.len()), |row, columns, values| {
            for (at, &(column, x)) in rows[row].iter().enumerate() {
                (columns[at], values[at]) = (column, x);
            }
            Ok::<(), ()>(())
        })
        .unwrap()
    }

    #[test]
    fn rows_are_gathered_and_densified() {
        let x = example();
        assert_eq!((x.rows(), x.cols()), (4, 5));
        assert_eq!(x.dense(0..2).data(), [1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let some = x.gathered(&[3, 1, 3]);
        let last = [4.0, 5.0, 0.0, 0.0, 6.0];
        assert_eq!(some.dense(0..3).data(), [&last[..], &[0.0; 5], &last].concat());
    }

    #[test]
    fn dropout_is_that_of_a_dense_matrix() {
        let (x, ids) = (example(), [9, 3, 7, 1]);
        let mask = Mask::new(Key::new(1, "dropout"), 0.5, Some(&ids)).unwrap();
        let mut want = x.dense(0..4);
        halograph_kernels::dropout::dropout_in_place(want.data_mut(), 5, mask);
        assert_eq!(x.dropped(mask).dense(0..4), want);
    }

    #[test]
    fn errors_of_rows_are_returned() {
        let refuse = |row: usize, _: &mut [u32], _: &mut [f32]| if row == 2 { Err(row) } else { Ok(()) };
        assert_eq!(Sparse::build(3, [1, 0, 2].into_iter(), refuse).err(), Some(2));
    }
}
