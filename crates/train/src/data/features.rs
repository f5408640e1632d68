//! Features: from the mapped file to rows in the working precision, scaled as asked.

use halograph_graph::dataset::{Dataset, Part};
use halograph_graph::error::{Error, Result};
use halograph_graph::io::npy::Array;
use halograph_kernels::Real;
use halograph_nn::Matrix;

use crate::config::Normalize;

/// Rows read at a time.
const CHUNK: usize = 4096;

/// Where rows of features come from.
pub(super) struct Features<'d> {
    array: &'d Array,
    scaling: Scaling,
}

enum Scaling {
    None,
    Rows,
    /// What to subtract from each column and then to multiply it by.
    Columns(Vec<[f64; 2]>),
}

impl<'d> Features<'d> {
    pub(super) fn new(dataset: &'d Dataset, normalize: Normalize) -> Result<Self> {
        let array = dataset.features();
        let scaling = match normalize {
            Normalize::None => Scaling::None,
            Normalize::Rows => Scaling::Rows,
            Normalize::Columns => Scaling::Columns(column_moments(dataset)?),
        };
        Ok(Features { array, scaling })
    }

    /// Every row, in the dataset's order.
    pub(super) fn all<T: Real>(&self) -> Result<Matrix<T>> {
        let (rows, cols) = (self.array.rows(), self.array.cols());
        let mut out = Matrix::zeros(rows, cols);
        for first in (0..rows).step_by(CHUNK) {
            let end = rows.min(first + CHUNK);
            self.read(first, out.run_mut(first..end))?;
        }
        self.array.release();
        Ok(out)
    }

    /// The rows of these vertices, in this order.
    pub(super) fn rows<T: Real>(&self, ids: &[u32]) -> Result<Matrix<T>> {
        let mut out = Matrix::zeros(ids.len(), self.array.cols());
        for (row, &id) in ids.iter().enumerate() {
            self.read(id as usize, out.run_mut(row..row + 1))?;
        }
        Ok(out)
    }

    /// Whole rows from row `first` on.
    fn read<T: Real>(&self, first: usize, out: &mut [T]) -> Result<()> {
        let cols = self.array.cols();
        let mut values = vec![0.0; out.len()];
        self.array.read_f32(first * cols, &mut values)?;
        if let Some(at) = values.iter().position(|x: &f32| !x.is_finite()) {
            return Err(Error::input(
                format!("{}, row {}, column {}", self.array.name, first + at / cols, at % cols),
                format!("{} is not a finite number", values[at]),
            )
            .help("`halograph data check` lists every fault of a dataset"));
        }
        out.iter_mut().zip(&values).for_each(|(out, &x)| *out = T::of(x as f64));
        out.chunks_exact_mut(cols.max(1)).for_each(|row| self.scaling.apply(row));
        Ok(())
    }
}

impl Scaling {
    fn apply<T: Real>(&self, row: &mut [T]) {
        match self {
            Scaling::None => {}
            Scaling::Rows => {
                let sum: f64 = row.iter().map(|x| x.wide().abs()).sum();
                if sum > 0.0 {
                    row.iter_mut().for_each(|x| *x = T::of(x.wide() / sum));
                }
            }
            Scaling::Columns(moments) => {
                row.iter_mut()
                    .zip(moments)
                    .for_each(|(x, [mean, scale])| *x = T::of((x.wide() - mean) * scale));
            }
        }
    }
}

/// Mean and inverse deviation of each column over the training rows; a constant column is only centred.
fn column_moments(dataset: &Dataset) -> Result<Vec<[f64; 2]>> {
    let features = Features { array: dataset.features(), scaling: Scaling::None };
    let cols = features.array.cols();
    let training = |v: &usize| dataset.split()[*v] == Part::Train as u8;
    let mut row = vec![0.0f64; cols];
    let mut sums = vec![[0.0f64; 2]; cols];
    let count = dataset.split().iter().filter(|&&part| part == Part::Train as u8).count().max(1) as f64;
    // Two passes: the variance of a column far from 0 would drown in the difference of two large sums.
    for pass in 0..2 {
        for v in (0..dataset.split().len()).filter(training) {
            features.read(v, &mut row)?;
            for (sum, x) in sums.iter_mut().zip(&row) {
                sum[pass] += if pass == 0 { x / count } else { (x - sum[0]).powi(2) / count };
            }
        }
    }
    Ok(sums.into_iter().map(|[mean, var]| [mean, if var > 0.0 { var.sqrt().recip() } else { 1.0 }]).collect())
}
