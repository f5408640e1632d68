//! Row-major matrices: a vector that knows its shape.

use std::ops::Range;

use halograph_kernels::Real;
use halograph_kernels::gemm::{Mat, gemm};
use halograph_kernels::rows;

/// `rows` x `cols` numbers, row by row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Matrix<T> {
    rows: usize,
    cols: usize,
    data: Vec<T>,
}

impl<T: Real> Matrix<T> {
    /// All zero.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Matrix { rows, cols, data: vec![T::zero(); rows * cols] }
    }

    /// `data` as `rows` x `cols`.
    pub fn new(rows: usize, cols: usize, data: Vec<T>) -> Self {
        assert_eq!(data.len(), rows * cols, "{rows} x {cols} matrix");
        Matrix { rows, cols, data }
    }

    /// `a * b`.
    pub fn product(a: Mat<T>, b: Mat<T>) -> Self {
        let mut product = Matrix::zeros(a.rows(), b.cols());
        gemm(T::one(), a, b, T::zero(), &mut product.data);
        product
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All numbers.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// All numbers.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// The numbers of a run of rows.
    pub fn run(&self, rows: Range<usize>) -> &[T] {
        &self.data[rows.start * self.cols..rows.end * self.cols]
    }

    /// The numbers of a run of rows.
    pub fn run_mut(&mut self, rows: Range<usize>) -> &mut [T] {
        &mut self.data[rows.start * self.cols..rows.end * self.cols]
    }

    /// As a factor of a product.
    pub fn mat(&self) -> Mat<'_, T> {
        Mat::new(&self.data, self.rows, self.cols)
    }

    /// A run of rows as a factor of a product.
    pub fn mat_of(&self, rows: Range<usize>) -> Mat<'_, T> {
        Mat::new(self.run(rows.clone()), rows.len(), self.cols)
    }

    /// Adds `other` to the rows from `first` on.
    pub fn add_at(&mut self, first: usize, other: &Matrix<T>) {
        assert_eq!(self.cols, other.cols, "rows of one width");
        rows::add_scaled(&other.data, other.cols, None, self.run_mut(first..first + other.rows));
    }

    /// Multiplies every number by `factor`.
    #[must_use]
    pub fn scaled(mut self, factor: T) -> Self {
        self.data.iter_mut().for_each(|x| *x *= factor);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_where_they_belong() {
        let mut m = Matrix::new(3, 1, vec![1.0, 2.0, 3.0]);
        m.add_at(1, &Matrix::new(2, 1, vec![10.0, 20.0]));
        assert_eq!(m.data(), [1.0, 12.0, 23.0]);
    }
}
