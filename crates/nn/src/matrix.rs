//! Row-major matrices.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use halograph_kernels::Real;
use halograph_kernels::buffer::Buffer;
use halograph_kernels::gemm::Tall;
use halograph_kernels::rows;

/// `rows` x `cols` numbers, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix<T: Pod> {
    rows: usize,
    cols: usize,
    data: Buffer<T>,
}

impl<T: Pod> Default for Matrix<T> {
    fn default() -> Self {
        Matrix { rows: 0, cols: 0, data: Buffer::default() }
    }
}

impl<T: Pod> Matrix<T> {
    /// Creates a matrix with unspecified contents, which must be written before they are read.
    pub fn unspecified(rows: usize, cols: usize) -> Self {
        Matrix { rows, cols, data: Buffer::unspecified(rows * cols) }
    }

    /// Creates a matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Matrix { rows, cols, data: Buffer::zeros(rows * cols) }
    }

    /// Creates a matrix from `data`, row by row.
    pub fn new(rows: usize, cols: usize, data: Vec<T>) -> Self {
        assert_eq!(data.len(), rows * cols, "{rows} x {cols} matrix");
        Matrix { rows, cols, data: Buffer::from(&data[..]) }
    }

    /// Returns the first `rows` rows of `matrix`. Copies them unless they are all rows and the matrix is not shared.
    pub fn first_rows(matrix: Arc<Self>, rows: usize) -> Self {
        if rows == matrix.rows {
            return Arc::unwrap_or_clone(matrix);
        }
        Matrix { rows, cols: matrix.cols, data: Buffer::from(matrix.run(0..rows)) }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns all numbers, row by row.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// Returns all numbers, row by row.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Returns the numbers of a range of rows.
    pub fn run(&self, rows: Range<usize>) -> &[T] {
        &self.data[rows.start * self.cols..rows.end * self.cols]
    }

    /// Returns the numbers of a range of rows.
    pub fn run_mut(&mut self, rows: Range<usize>) -> &mut [T] {
        &mut self.data[rows.start * self.cols..rows.end * self.cols]
    }
}

impl<T: Real> Matrix<T> {
    /// Returns the matrix as a factor of a product.
    pub fn tall(&self) -> Tall<'_, T> {
        self.tall_of(0..self.rows)
    }

    /// Returns a range of rows as a factor of a product.
    pub fn tall_of(&self, rows: Range<usize>) -> Tall<'_, T> {
        Tall::new(self.run(rows.clone()), rows.len(), self.cols)
    }

    /// Adds `scale * other` to the rows from `first` on.
    pub fn add_at(&mut self, first: usize, scale: T, other: &Matrix<T>) {
        assert_eq!(self.cols, other.cols, "rows of one width");
        rows::add_scaled(scale, &other.data, self.run_mut(first..first + other.rows));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_from_the_given_row_on() {
        let mut m = Matrix::new(3, 1, vec![1.0, 2.0, 3.0]);
        m.add_at(1, 0.5, &Matrix::new(2, 1, vec![10.0, 20.0]));
        assert_eq!(m.data(), [1.0, 7.0, 13.0]);
    }
}
