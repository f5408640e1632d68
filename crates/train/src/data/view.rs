//! A graph with the features of its rows.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use halograph_graph::block::Block;
use halograph_graph::error::Result as InputResult;
use halograph_kernels::{Real, rows};
use halograph_nn::{Input, Matrix, Model};

use crate::boundary::{Fresh, Peers};
use crate::error::Result;
use crate::stage::{ModelInput, StageBlock, StageRunner};

/// Where input rows come from: a file, memory, or later a sample or a disk cache.
pub trait InputSource<T: Real> {
    /// Returns the rows with these numbers, in this order; `None`: all rows.
    fn rows(&self, numbers: Option<&[u32]>) -> InputResult<Input<T>>;
}

/// A graph and the features of its rows, in memory.
pub struct View<'d, T: Real> {
    /// Its edges.
    pub block: Arc<Block<'d>>,
    /// One row of features per source row.
    pub features: Input<T>,
    /// The first stage's aggregate of the features, if it is the same in every step.
    aggregate: OnceLock<Arc<Matrix<T>>>,
}

impl<'d, T: Real> View<'d, T> {
    /// Creates a view of `block` with these features.
    pub fn new(block: impl Into<Arc<Block<'d>>>, features: impl Into<Input<T>>) -> Self {
        View { block: block.into(), features: features.into(), aggregate: OnceLock::new() }
    }

    /// Computes the first stage's aggregate of the features, unless that was done, changes with every step, or is that of
    /// another rank. With
    /// `peers`: collective; blocks for halo rows.
    pub(crate) fn prepare(&self, model: &Model<T>, block: &StageBlock, peers: Option<Peers>) -> Result<()> {
        if self.aggregate.get().is_some() || model.indices().start > 0 {
            return Ok(());
        }
        let mut halo = Fresh;
        let mut runner = StageRunner::new(None, None, peers, &mut halo);
        if let Some(aggregate) = runner.static_aggregate(&model.stages[0], block, &self.features)? {
            let _ = self.aggregate.set(aggregate);
        }
        Ok(())
    }

    /// Returns the rows as input of the model that the view was prepared for.
    pub fn input(&self) -> ModelInput<T> {
        ModelInput { features: self.features.clone(), aggregate: self.aggregate.get().cloned() }
    }

    /// Returns a run of rows as input of the model that the view was prepared for. Copies them, unless they are all rows.
    pub(crate) fn input_run(&self, model: &Model<T>, rows: Range<usize>) -> ModelInput<T> {
        let aggregate = self.aggregate.get().map(|aggregate| run_of(aggregate, &rows));
        match aggregate {
            Some(aggregate) if !model.stages[0].reads_features_of(true) => {
                ModelInput::of_aggregate(aggregate)
            }
            aggregate => {
                let features = match &self.features {
                    Input::Full(x) => Input::Full(run_of(x, &rows)),
                    Input::Half(x) => Input::Half(run_of(x, &rows)),
                    Input::Sparse(x) => {
                        let rows: Vec<u32> = (rows.start as u32..rows.end as u32).collect();
                        Input::Sparse(Arc::new(x.gathered(&rows)))
                    }
                };
                ModelInput { features, aggregate }
            }
        }
    }

    /// Gathers these rows as input of `model`, with the first stage's aggregate if asked for: it must have been prepared.
    pub(crate) fn input_of(
        &self,
        model: &Model<T>,
        rows: &[u32],
        with_aggregate: bool,
    ) -> Result<ModelInput<T>> {
        let prepared = || self.aggregate.get().expect("an aggregate was prepared");
        let aggregate = with_aggregate.then(|| Arc::new(gathered(prepared(), rows)));
        let reads_features = model.stages[0].reads_features_of(with_aggregate);
        Ok(match aggregate {
            Some(aggregate) if !reads_features => ModelInput::of_aggregate(aggregate),
            aggregate => ModelInput { features: self.rows(Some(rows))?, aggregate },
        })
    }
}

impl<T: Real> InputSource<T> for View<'_, T> {
    fn rows(&self, numbers: Option<&[u32]>) -> InputResult<Input<T>> {
        Ok(match (numbers, &self.features) {
            (None, all) => all.clone(),
            (Some(numbers), Input::Full(x)) => gathered(x, numbers).into(),
            (Some(numbers), Input::Half(x)) => Input::Half(Arc::new(gathered(x, numbers))),
            (Some(numbers), Input::Sparse(x)) => Input::Sparse(Arc::new(x.gathered(numbers))),
        })
    }
}

/// Returns a run of rows; copies them, unless they are all rows.
fn run_of<E: Pod + Send + Sync>(x: &Arc<Matrix<E>>, rows: &Range<usize>) -> Arc<Matrix<E>> {
    if *rows == (0..x.rows()) {
        return x.clone();
    }
    let mut out = Matrix::unspecified(rows.len(), x.cols());
    out.data_mut().copy_from_slice(x.run(rows.clone()));
    Arc::new(out)
}

fn gathered<E: Pod + Send + Sync>(from: &Matrix<E>, numbers: &[u32]) -> Matrix<E> {
    let mut out = Matrix::unspecified(numbers.len(), from.cols());
    rows::gather(from.data(), from.cols(), numbers, out.data_mut());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn rows_come_in_the_order_they_are_asked_for() {
        let block = || Block::new(vec![0; 4], vec![], 0..3, vec![0; 3], None);
        let full = View::<f32>::new(block(), Matrix::new(3, 2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        let wanted = [4.0, 5.0, 0.0, 1.0, 4.0, 5.0];
        assert_eq!(full.rows(Some(&[2, 0, 2])).unwrap().full().data(), wanted);
        assert_eq!(full.rows(None).unwrap().rows(), 3);
        let half = Matrix::new(3, 2, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0].map(f16::from_f32).to_vec());
        let half = View::<f32>::new(block(), Input::Half(Arc::new(half)));
        assert!(matches!(half.rows(Some(&[1])).unwrap(), Input::Half(_)));
        assert_eq!(half.rows(Some(&[2, 0, 2])).unwrap().full().data(), wanted);
    }
}
