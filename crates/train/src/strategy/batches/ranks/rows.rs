//! Input rows: those that a rank owns, and those that it has fetched.

use std::sync::Arc;

use bytemuck::Pod;
use halograph_graph::block::{Block, InWeight};
use halograph_kernels::Real;
use halograph_kernels::rows::{self, Strided};
use halograph_nn::{Input, Matrix, Model, Sparse};
use rayon::prelude::*;

use crate::data::ShardData;
use crate::stage::ModelInput;

/// Marks rows that are not in the training graph.
const NOWHERE: u32 = u32::MAX;

/// The input rows of the vertices that a rank owns, with their dataset ids and degrees.
///
/// Between ranks, a row is a run of bytes: its features, if they are read, its aggregate, if that is cached, and the sum of
/// its in-weights, if edges have weights.
pub(super) struct InputRows<'s, T: Real> {
    /// `None`: the model reads their aggregate only.
    features: Option<Input<T>>,
    /// The first stage's aggregate of the features, if it is cached.
    aggregate: Option<Arc<Matrix<T>>>,
    /// Number of input rows.
    count: usize,
    /// Input row of each owned row of the shard; `None`: the same.
    places: Option<Vec<u32>>,
    graph: &'s Block<'s>,
}

/// Rows that were fetched from other ranks.
#[derive(Debug, Default)]
pub(super) struct FetchedRows {
    /// One row after the other.
    pub bytes: Vec<u8>,
    /// Dataset id and degree of each row.
    pub facts: Vec<(u32, u32)>,
}

impl<'s, T: Real> InputRows<'s, T> {
    /// Takes the rows of `data`, which was prepared, for `model`.
    pub(super) fn new(
        model: &Model<T>,
        data: &ShardData<'s, T>,
        graph: &'s Block<'s>,
        with_aggregate: bool,
    ) -> Self {
        let ModelInput { features, aggregate } = data.train().0.input();
        let order = data.shard_rows();
        let is_same =
            order.len() == graph.destinations().len() && order.iter().zip(0..).all(|(&row, at)| row == at);
        let places = (!is_same).then(|| {
            let mut places = vec![NOWHERE; graph.destinations().len()];
            order.iter().zip(0..).for_each(|(&row, at)| places[row as usize] = at);
            places
        });
        let aggregate = aggregate.filter(|_| with_aggregate);
        assert!(aggregate.is_some() || !with_aggregate, "an aggregate was prepared");
        let count = features.rows();
        let features = model.stages[0].reads_features_of(with_aggregate).then_some(features);
        InputRows { features, aggregate, count, places, graph }
    }

    /// Returns the number of owned rows in the training graph.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the place of an owned row of the shard among the input rows.
    #[inline]
    pub(super) fn place(&self, row: u32) -> u32 {
        self.places.as_ref().map_or(row, |places| places[row as usize])
    }

    /// Returns dataset id and degree of an owned row of the shard.
    #[inline]
    pub(super) fn facts(&self, row: u32) -> (u32, u32) {
        (self.graph.id(row as usize), self.graph.degrees()[row as usize])
    }

    /// Returns the bytes of the features of a row, and of a whole row.
    fn sizes(&self) -> (usize, usize) {
        let features = match &self.features {
            None => 0,
            Some(Input::Full(x)) => x.cols() * size_of::<T>(),
            Some(Input::Half(x)) => x.cols() * size_of::<half::f16>(),
            // Rows are sent with their zeros, so that all have one size.
            Some(Input::Sparse(x)) => x.cols() * size_of::<T>(),
        };
        let aggregate = self.aggregate.as_ref().map_or(0, |m| m.cols() * size_of::<T>());
        let sum = self.graph.in_weights().map_or(0, |_| size_of::<InWeight>());
        (features, features + aggregate + sum)
    }

    /// Returns the sum of in-weights of an owned row of the shard; `None`: edges have no weights.
    pub(super) fn in_weight(&self, row: u32) -> Option<InWeight> {
        self.graph.in_weights().map(|sums| sums[row as usize])
    }

    /// Returns the sum of in-weights in the bytes of a row; `None`: edges have no weights.
    pub(super) fn in_weight_of(&self, bytes: &[u8]) -> Option<InWeight> {
        let sum = bytes.len().checked_sub(size_of::<InWeight>())?;
        self.graph.in_weights().map(|_| bytemuck::pod_read_unaligned(&bytes[sum..]))
    }

    /// Returns the bytes of a row.
    pub(super) fn row_bytes(&self) -> usize {
        self.sizes().1
    }

    /// Copies owned rows of the shard, one after the other.
    pub(super) fn copy(&self, rows: &[u32], out: &mut [u8]) {
        let (features, whole) = self.sizes();
        if whole == 0 {
            return;
        }
        out.par_chunks_mut(whole).zip(rows).with_min_len(64).for_each(|(out, &row)| {
            let place = self.place(row) as usize;
            let (x, m) = out.split_at_mut(features);
            let m = match self.in_weight(row) {
                None => m,
                Some(sum) => {
                    let (m, last) = m.split_at_mut(m.len() - size_of::<InWeight>());
                    last.copy_from_slice(bytemuck::bytes_of(&sum));
                    m
                }
            };
            match &self.features {
                None => {}
                Some(Input::Full(matrix)) => {
                    x.copy_from_slice(bytemuck::cast_slice(matrix.run(place..place + 1)));
                }
                Some(Input::Half(matrix)) => {
                    x.copy_from_slice(bytemuck::cast_slice(matrix.run(place..place + 1)));
                }
                Some(Input::Sparse(matrix)) => copy_sparse(matrix, place, x),
            }
            if let Some(aggregate) = &self.aggregate {
                m.copy_from_slice(bytemuck::cast_slice(aggregate.run(place..place + 1)));
            }
        });
    }

    /// Gathers input rows: places below [`InputRows::count`] are owned rows, the others are counted on into `fetched`.
    pub(super) fn gather(&self, places: &[u32], fetched: &[u8]) -> ModelInput<T> {
        let (offset, stride) = self.sizes();
        let from = |offset: usize| Strided { bytes: fetched, stride, offset };
        let aggregate = self.aggregate.as_ref().map(|m| Arc::new(gathered(m, from(offset), places)));
        let features = match &self.features {
            None => {
                return ModelInput::of_aggregate(aggregate.expect("features are read without an aggregate"));
            }
            Some(Input::Full(x)) => gathered(x, from(0), places).into(),
            Some(Input::Half(x)) => Input::Half(Arc::new(gathered(x, from(0), places))),
            Some(Input::Sparse(x)) => Input::Sparse(Arc::new(gathered_sparse(x, from(0), places))),
        };
        ModelInput { features, aggregate }
    }
}

fn gathered<E: Pod + Send + Sync>(own: &Matrix<E>, fetched: Strided, places: &[u32]) -> Matrix<E> {
    let mut out = Matrix::unspecified(places.len(), own.cols());
    rows::gather_from_two(own.data(), fetched, own.cols(), places, out.data_mut());
    out
}

/// Copies a row, zeros included, to bytes.
fn copy_sparse<T: Real>(from: &Sparse<T>, row: usize, out: &mut [u8]) {
    out.fill(0);
    let (columns, values) = from.row(row);
    for (&column, x) in columns.iter().zip(values) {
        out[column as usize * size_of::<T>()..][..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(x));
    }
}

/// Gathers rows without their zeros: own ones, and fetched ones, which have theirs.
fn gathered_sparse<T: Real>(own: &Sparse<T>, fetched: Strided, places: &[u32]) -> Sparse<T> {
    let fetched_row = |at: usize| {
        let bytes = &fetched.bytes[at * fetched.stride + fetched.offset..][..own.cols() * size_of::<T>()];
        let numbers = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
        (0u32..).zip(numbers).filter(|(_, x)| *x != T::zero())
    };
    let length = |&place: &u32| match (place as usize).checked_sub(own.rows()) {
        None => own.row(place as usize).0.len(),
        Some(at) => fetched_row(at).count(),
    };
    let lengths: Vec<usize> = places.par_iter().with_min_len(64).map(length).collect();
    let made = Sparse::build(own.cols(), lengths.into_iter(), |row, columns, values| {
        match (places[row] as usize).checked_sub(own.rows()) {
            None => {
                let (from_columns, from_values) = own.row(places[row] as usize);
                columns.copy_from_slice(from_columns);
                values.copy_from_slice(from_values);
            }
            Some(at) => {
                let to = columns.iter_mut().zip(values);
                to.zip(fetched_row(at)).for_each(|(to, (column, x))| (*to.0, *to.1) = (column, x));
            }
        }
        Ok::<(), std::convert::Infallible>(())
    });
    made.unwrap_or_else(|never| match never {})
}
