//! Rows that go into a layer: a matrix, or features kept in half precision or without their zeros.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use half::f16;
use halograph_kernels::Real;
use halograph_kernels::dropout::{Mask, dropout, dropout_in_place};
use halograph_kernels::gemm::Tall;
use halograph_kernels::rows::add_scaled;
use halograph_kernels::work::{self, Cost};
use rayon::prelude::*;

use crate::matrix::Matrix;
use crate::sparse::Sparse;

/// Rows of a layer's input, shared without copying.
#[derive(Debug, Clone)]
pub enum Input<T: Real> {
    /// In the working precision.
    Full(Arc<Matrix<T>>),
    /// In half precision: features of a dataset that stores f16.
    Half(Arc<Matrix<f16>>),
    /// Without zeros: features of a dataset that stores them so.
    Sparse(Arc<Sparse<T>>),
}

impl<T: Real> Default for Input<T> {
    fn default() -> Self {
        Input::Full(Arc::default())
    }
}

impl<T: Real> From<Matrix<T>> for Input<T> {
    fn from(matrix: Matrix<T>) -> Self {
        Input::Full(Arc::new(matrix))
    }
}

impl<T: Real> From<Arc<Matrix<T>>> for Input<T> {
    fn from(matrix: Arc<Matrix<T>>) -> Self {
        Input::Full(matrix)
    }
}

impl<T: Real> Input<T> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Input::Full(x) => x.rows(),
            Input::Half(x) => x.rows(),
            Input::Sparse(x) => x.rows(),
        }
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        match self {
            Input::Full(x) => x.cols(),
            Input::Half(x) => x.cols(),
            Input::Sparse(x) => x.cols(),
        }
    }

    /// Returns the rows as a factor of a matrix product.
    pub fn tall(&self) -> Tall<'_, T> {
        self.tall_of(0..self.rows())
    }

    /// Returns a range of rows as a factor of a matrix product.
    pub fn tall_of(&self, rows: Range<usize>) -> Tall<'_, T> {
        match self {
            Input::Full(x) => x.tall_of(rows),
            Input::Half(x) => Tall::half(x.run(rows.clone()), rows.len(), x.cols()),
            Input::Sparse(x) => Tall::sparse(x.view().some(rows)),
        }
    }

    /// Returns the rows in the working precision, zeros included. Allocates if they are stored in another way.
    pub fn full(&self) -> Arc<Matrix<T>> {
        match self {
            Input::Full(x) => x.clone(),
            Input::Half(x) => Arc::new(widened(x)),
            Input::Sparse(x) => Arc::new(x.dense(0..x.rows())),
        }
    }

    /// Returns the numbers of a range of rows in the working precision, zeros included. Allocates if they are stored in another
    /// way.
    pub(crate) fn run(&self, rows: Range<usize>) -> Cow<'_, [T]> {
        match self {
            Input::Full(x) => Cow::Borrowed(x.run(rows)),
            Input::Half(x) => {
                let mut full = vec![T::zero(); rows.len() * x.cols()];
                T::widen(x.run(rows), &mut full);
                Cow::Owned(full)
            }
            Input::Sparse(x) => {
                let mut full = vec![T::zero(); rows.len() * x.cols()];
                let out = full.chunks_exact_mut(x.cols().max(1));
                rows.zip(out).for_each(|(row, out)| x.copy_row(row, out));
                Cow::Owned(full)
            }
        }
    }

    /// Adds `scale` times a range of rows to `out`.
    pub(crate) fn add_scaled_to(&self, scale: T, rows: Range<usize>, out: &mut Matrix<T>) {
        const RUN: usize = 256;
        if let Input::Full(x) = self {
            return add_scaled(scale, x.run(rows), out.data_mut());
        }
        let width = out.cols().max(1);
        let read = rows.len() * width * size_of::<f16>() + size_of_val(out.data());
        let _work = work::begin("sum of matrices", || Cost::stream(read, size_of_val(out.data())));
        out.data_mut().par_chunks_mut(RUN * width).enumerate().for_each(|(run, out)| {
            let first = rows.start + run * RUN;
            let x = self.run(first..first + out.len() / width);
            out.iter_mut().zip(x.iter()).for_each(|(out, &x)| *out += scale * x);
        });
    }

    /// Returns a copy with dropout applied.
    #[must_use]
    pub fn dropped(&self, mask: Mask) -> Self {
        match self {
            Input::Full(x) => {
                let mut out = Matrix::unspecified(x.rows(), x.cols());
                dropout(x.data(), x.cols(), mask, out.data_mut());
                out.into()
            }
            Input::Half(x) => {
                let mut out = widened(x);
                dropout_in_place(out.data_mut(), x.cols(), mask);
                out.into()
            }
            Input::Sparse(x) => Input::Sparse(Arc::new(x.dropped(mask))),
        }
    }
}

fn widened<T: Real>(x: &Matrix<f16>) -> Matrix<T> {
    const CHUNK: usize = 1 << 14;
    let mut full = Matrix::unspecified(x.rows(), x.cols());
    let _work = work::begin("widening", || Cost::stream(size_of_val(x.data()), size_of_val(full.data())));
    let chunks = full.data_mut().par_chunks_mut(CHUNK).zip(x.data().par_chunks(CHUNK));
    chunks.for_each(|(full, half)| T::widen(half, full));
    full
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_widened_when_asked() {
        let half: Vec<f16> = [1.0, -0.5, 3.25, 0.0].map(f16::from_f32).to_vec();
        let input = Input::<f32>::Half(Arc::new(Matrix::new(2, 2, half)));
        assert_eq!((input.rows(), input.cols()), (2, 2));
        assert_eq!(input.full().data(), [1.0, -0.5, 3.25, 0.0]);
        assert_eq!(*input.run(1..2), [3.25, 0.0]);
    }

    #[test]
    fn rows_are_added_alike_in_both_precisions() {
        let x: Vec<f32> = (0..1000).map(|i| (i % 9) as f32).collect();
        let half = Matrix::new(500, 2, x.iter().map(|&x| f16::from_f32(x)).collect());
        let inputs = [Input::Half(Arc::new(half)), Input::from(Matrix::new(500, 2, x.clone()))];
        for input in inputs {
            let mut out = Matrix::new(400, 2, vec![1.0; 800]);
            input.add_scaled_to(0.5, 50..450, &mut out);
            assert!(out.data().iter().zip(&x[100..]).all(|(&out, &x)| out == 1.0 + 0.5 * x));
        }
    }
}
