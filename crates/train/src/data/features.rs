//! Features: read from the mapped files, converted to the working precision and scaled.

use std::sync::Arc;

use bytemuck::Pod;
use half::f16;
use halograph_graph::dataset::{Dataset, SparseArrays, StoredFeatures, Subset};
use halograph_graph::error::{Error, Result};
use halograph_kernels::Real;
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::buffer::trace;
use halograph_nn::state::{State, Tensor};
use halograph_nn::{Input, Matrix, Sparse};
use rayon::prelude::*;

use super::columns::Preprocessing;
use super::view::InputSource;
use crate::config::Normalize;

/// Numbers converted at a time.
const CHUNK: usize = 512;

/// The features of a dataset or shard, read in the working precision and scaled.
pub(super) struct Features<'d> {
    stored: &'d StoredFeatures,
    /// The stored column of each column that is read; `None`: the same.
    columns: Option<Arc<[u32]>>,
    scaling: Scaling,
}

/// How features are scaled before they are used. It is fitted to the training data and then applied to all data.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// Nothing.
    None,
    /// Each row is divided by the sum of its absolute values.
    Rows,
    /// For each column, a number that is subtracted, and then a factor.
    Columns(Vec<[f64; 2]>),
}

const MEAN: &str = "mean";
const SCALE: &str = "scale";

impl Scaling {
    /// Computes the scaling for `normalize` from the training rows of `dataset`. Reads them for columns.
    pub fn fit(dataset: &Dataset, normalize: Normalize) -> Result<Self> {
        Ok(match normalize {
            Normalize::None => Scaling::None,
            Normalize::Rows => Scaling::Rows,
            Normalize::Columns => {
                let training: Vec<u32> = (0..)
                    .zip(dataset.split())
                    .filter(|(_, part)| **part == Subset::Train as u8)
                    .map(|(v, _)| v)
                    .collect();
                column_scaling(&Features::new(dataset, Scaling::None).moments(&training)?)
            }
        })
    }

    /// Returns the numbers of the scaling to be stored; `None` if it has none.
    pub fn to_state(&self) -> Option<State> {
        let Scaling::Columns(columns) = self else { return None };
        let tensor = |which: usize| {
            let values: Vec<f64> = columns.iter().map(|column| column[which]).collect();
            Tensor::real(&[values.len()], &values)
        };
        Some(State([(MEAN.into(), tensor(0)), (SCALE.into(), tensor(1))].into()))
    }

    /// Creates the scaling of `columns` columns from numbers of [`Scaling::to_state`]; `place` names these in errors.
    pub fn from_state(place: &str, state: &State, columns: usize) -> Result<Self> {
        let read = |name: &str| state.real::<f64>(place, name, &[columns]);
        let pairs = read(MEAN)?.into_iter().zip(read(SCALE)?);
        Ok(Scaling::Columns(pairs.map(|(mean, scale)| [mean, scale]).collect()))
    }
}

impl<'d> Features<'d> {
    pub(super) fn new(dataset: &'d Dataset, preprocessing: impl Into<Preprocessing>) -> Self {
        Features::of(dataset.features(), preprocessing)
    }

    pub(super) fn of(stored: &'d StoredFeatures, preprocessing: impl Into<Preprocessing>) -> Self {
        let Preprocessing { columns, scaling } = preprocessing.into();
        Features { stored, columns, scaling }
    }

    /// Returns the moments of the unscaled columns of these rows. Reads the file.
    pub(super) fn moments(&self, rows: &[u32]) -> Result<Moments<f64>> {
        let cols = self.stored.cols();
        let (mut shift, mut row) = (vec![0.0; cols], vec![0.0; cols]);
        let mut sums = vec![[0.0f64; 2]; cols];
        if let Some(&first) = rows.first() {
            self.read(first as usize, &mut shift)?;
        }
        // Differences from the first row: exactly 0 in a constant column, and small where the mean is far from 0.
        for &at in rows {
            self.read(at as usize, &mut row)?;
            for ((sum, x), shift) in sums.iter_mut().zip(&row).zip(&shift) {
                let x = x - shift;
                *sum = [sum[0] + x, sum[1] + x * x];
            }
        }
        let count = rows.len().max(1) as f64;
        let mean = sums.iter().zip(&shift).map(|([sum, _], shift)| shift + sum / count).collect();
        let squares = sums.iter().map(|[sum, squares]| (squares - sum * sum / count).max(0.0)).collect();
        Ok(Moments { count: rows.len() as u64, mean, squares })
    }

    fn stays_half<T: Real>(&self) -> bool {
        self.scaling == Scaling::None && size_of::<T>() == size_of::<f32>()
    }

    /// Returns a matrix of the rows `ids`, or of all rows; `read` reads one. Reads in parallel.
    fn fill<E: Pod + Send + Sync>(
        &self,
        ids: Option<&[u32]>,
        read: impl Fn(usize, &mut [E]) -> Result<()> + Sync,
    ) -> Result<Matrix<E>> {
        let cols = self.stored.cols();
        let mut out = Matrix::unspecified(ids.map_or(self.stored.rows(), <[u32]>::len), cols);
        let rows = out.data_mut().par_chunks_mut(cols.max(1)).enumerate();
        rows.try_for_each(|(row, out)| read(ids.map_or(row, |ids| ids[row] as usize), out))?;
        Ok(out)
    }

    fn read_half(&self, half: &[f16], id: usize, out: &mut [f16]) -> Result<()> {
        let row = &half[id * out.len()..(id + 1) * out.len()];
        match &self.columns {
            None => out.copy_from_slice(row),
            Some(columns) => gather(row, columns, out),
        }
        match out.iter().position(|x| !x.is_finite()) {
            Some(column) => {
                let stored = self.columns.as_ref().map_or(column, |columns| columns[column] as usize);
                Err(self.not_finite((id, stored), out[column].to_f32()))
            }
            None => Ok(()),
        }
    }

    /// Reads the row of a node, zeros included, and scales it.
    fn read<T: Real>(&self, id: usize, out: &mut [T]) -> Result<()> {
        match &self.columns {
            None => self.read_row(id, out)?,
            Some(columns) => {
                let mut stored = vec![T::zero(); out.len()];
                self.read_row(id, &mut stored)?;
                gather(&stored, columns, out);
            }
        }
        self.scaling.apply(out);
        Ok(())
    }

    /// Reads the row of a node as it is stored, zeros included.
    fn read_row<T: Real>(&self, id: usize, out: &mut [T]) -> Result<()> {
        match self.stored {
            StoredFeatures::Dense(array) => {
                let mut chunk = [0.0f32; CHUNK];
                for (k, part) in out.chunks_mut(CHUNK).enumerate() {
                    let values = &mut chunk[..part.len()];
                    array.read_f32(id * array.cols() + k * CHUNK, values)?;
                    self.convert(values, part, |at| (id, k * CHUNK + at))?;
                }
            }
            StoredFeatures::Sparse(arrays) => {
                out.fill(T::zero());
                let mut values = vec![T::zero(); arrays.row(id).len()];
                self.read_stored(arrays, id, &mut values)?;
                let columns = &arrays.columns()[arrays.row(id)];
                columns.iter().zip(values).for_each(|(&column, x)| out[column as usize] = x);
            }
        }
        Ok(())
    }

    /// Reads the stored values of a row, unscaled.
    fn read_stored<T: Real>(&self, arrays: &SparseArrays, id: usize, out: &mut [T]) -> Result<()> {
        let mut values = vec![0.0f32; out.len()];
        arrays.read_row(id, &mut values)?;
        self.convert(&values, out, |at| (id, arrays.columns()[arrays.row(id)][at] as usize))
    }

    /// Converts numbers to the working precision; `place` returns row and column of one.
    fn convert<T: Real>(
        &self,
        values: &[f32],
        out: &mut [T],
        place: impl Fn(usize) -> (usize, usize),
    ) -> Result<()> {
        if let Some(at) = values.iter().position(|x| !x.is_finite()) {
            return Err(self.not_finite(place(at), values[at]));
        }
        out.iter_mut().zip(values).for_each(|(out, x)| *out = T::of(*x as f64));
        Ok(())
    }

    /// Reads rows without their zeros. Columns must not be scaled: that turns zeros into other numbers.
    fn sparse<T: Real>(&self, arrays: &SparseArrays, numbers: Option<&[u32]>) -> Result<Sparse<T>> {
        let id = |row: usize| numbers.map_or(row, |ids| ids[row] as usize);
        let count = numbers.map_or(self.stored.rows(), <[u32]>::len);
        let lengths = (0..count).map(|row| arrays.row(id(row)).len());
        let inputs = self.columns.as_deref().map(inverse);
        Sparse::build(self.stored.cols(), lengths, |row, columns, values| {
            let id = id(row);
            columns.copy_from_slice(&arrays.columns()[arrays.row(id)]);
            self.read_stored(arrays, id, values)?;
            if let Some(inputs) = &inputs {
                rename(inputs, columns, values);
            }
            self.scaling.apply(values);
            Ok(())
        })
    }

    fn not_finite(&self, (row, column): (usize, usize), value: f32) -> Error {
        let place = self.stored.place(row, column);
        Error::input(place, format!("{value} is not a finite number"))
            .help("`halograph data check` lists every fault of a dataset")
    }
}

/// Copies the `columns` of `row`, in this order.
fn gather<T: Copy>(row: &[T], columns: &[u32], out: &mut [T]) {
    out.iter_mut().zip(columns).for_each(|(out, &column)| *out = row[column as usize]);
}

/// Returns for each stored column its place among `columns`.
fn inverse(columns: &[u32]) -> Vec<u32> {
    let mut places = vec![0; columns.len()];
    columns.iter().zip(0..).for_each(|(&column, place)| places[column as usize] = place);
    places
}

/// Replaces stored columns of a sparse row by their places in `inputs`, in ascending order.
fn rename<T: Copy>(inputs: &[u32], columns: &mut [u32], values: &mut [T]) {
    let mut entries: Vec<(u32, T)> =
        columns.iter().zip(&*values).map(|(&column, &x)| (inputs[column as usize], x)).collect();
    entries.sort_unstable_by_key(|entry| entry.0);
    for ((column, value), entry) in columns.iter_mut().zip(values).zip(entries) {
        (*column, *value) = entry;
    }
}

impl<T: Real> InputSource<T> for Features<'_> {
    /// Reads from the mapped files. Features in half precision stay so unless they are scaled; sparse ones stay sparse unless
    /// their columns are scaled.
    fn rows(&self, numbers: Option<&[u32]>) -> Result<Input<T>> {
        let files = self.stored.bytes() as i64;
        trace::mapped(files);
        let half = self.stored.as_slice::<f16>().filter(|_| self.stays_half::<T>());
        let rows = match (self.stored, half) {
            (StoredFeatures::Sparse(arrays), _) if !matches!(self.scaling, Scaling::Columns(_)) => {
                Input::Sparse(Arc::new(self.sparse(arrays, numbers)?))
            }
            (_, Some(half)) => {
                Input::Half(Arc::new(self.fill(numbers, |id, out| self.read_half(half, id, out))?))
            }
            _ => self.fill(numbers, |id, out| self.read(id, out))?.into(),
        };
        self.stored.release();
        trace::mapped(-files);
        Ok(rows)
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

/// Returns the scaling of columns with these moments to mean 0 and variance 1; constant columns are only centred.
pub(super) fn column_scaling(moments: &Moments<f64>) -> Scaling {
    let column = |(&mean, &squares): (&f64, &f64)| {
        let deviation = (squares / moments.count.max(1) as f64).max(0.0).sqrt();
        // A column that single precision cannot tell from a constant counts as one.
        let varies = deviation > f32::EPSILON as f64 * mean.abs();
        [mean, if varies { deviation.recip() } else { 1.0 }]
    };
    Scaling::Columns(moments.mean.iter().zip(&moments.squares).map(column).collect())
}
