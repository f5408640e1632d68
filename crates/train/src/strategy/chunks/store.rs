//! The rows that one stage reads, of all chunks: the newest ones, and those of an earlier epoch; and gradients of rows that
//! other chunks have read.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::error::Result as InputResult;
use halograph_kernels::{Real, rows};
use halograph_nn::Matrix;
use halograph_nn::state::{State, Tensor};

use super::order::StepOrder;
use crate::data::StageChunks;

/// The stored rows of a stage.
pub struct StageStore<T: Real> {
    layout: Arc<StageChunks>,
    /// The newest version of every row.
    current: Matrix<T>,
    /// The version that chunks read of rows which the step has not computed; `None`: the newest.
    history: Option<Matrix<T>>,
    /// Whether history is a copy of the newest rows before the step.
    is_copy: bool,
    /// Gradients of rows, by chunks computed after them, until their own backward. Empty before the first backward.
    grads: Matrix<T>,
}

impl<T: Real> StageStore<T> {
    /// Creates a store of zeros for messages of `width` columns. `is_frozen`: whether history is older than the newest rows.
    pub fn new(layout: Arc<StageChunks>, width: usize, is_frozen: bool) -> Self {
        let zeros = || Matrix::zeros(layout.rows, width);
        let (current, history) = (zeros(), is_frozen.then(zeros));
        StageStore { layout, current, history, is_copy: false, grads: Matrix::default() }
    }

    /// Keeps the newest rows before a step until it ends, so that its reads can be repeated. [`StageStore::refresh`] must
    /// follow every step.
    #[must_use]
    pub fn with_copy(mut self) -> Self {
        self.is_copy = self.history.is_none();
        self.history.get_or_insert_with(|| Matrix::zeros(self.current.rows(), self.current.cols()));
        self
    }

    /// Replaces all rows, also those of history.
    pub fn set_all(&mut self, rows: Matrix<T>) {
        assert_eq!(rows.rows(), self.layout.rows, "every stored row");
        self.current = rows;
        self.refresh();
    }

    /// Makes the newest rows those of history.
    pub fn refresh(&mut self) {
        if let Some(history) = &mut self.history {
            history.data_mut().copy_from_slice(self.current.data());
        }
    }

    /// Writes the rows of a chunk: those of this rank, and those received from other ranks, one rank after the other.
    pub fn write(&mut self, chunk: usize, own: &Matrix<T>, received: &Matrix<T>) {
        let first = self.layout.own[chunk];
        self.current.run_mut(first..first + own.rows()).copy_from_slice(own.data());
        let mut at = 0;
        for run in &self.layout.remote[chunk] {
            let rows = received.run(at..at + run.len());
            self.current.run_mut(run.clone()).copy_from_slice(rows);
            at += run.len();
        }
    }

    /// Returns the halo rows of a chunk: those that this step has computed, and of all others those of history.
    pub fn read(&self, chunk: usize, order: &StepOrder) -> Matrix<T> {
        let reads = &self.layout.reads[chunk];
        let width = self.current.cols();
        let mut halo = Matrix::unspecified(reads.rows.len(), width);
        for (owner, run) in &reads.runs {
            let from = match &self.history {
                Some(history) if !order.is_fresh(*owner, chunk) => history,
                _ => &self.current,
            };
            rows::gather(from.data(), width, &reads.rows[run.clone()], halo.run_mut(run.clone()));
        }
        halo
    }

    /// Keeps the gradients of halo rows of a chunk which this step has computed, and drops those of history. Returns those
    /// of the rows of this chunk number of other ranks, one rank after the other; `scale`: factor of what chunks after this
    /// one have added to them.
    pub fn keep(&mut self, chunk: usize, order: &StepOrder, grad: &Matrix<T>, scale: T) -> Matrix<T> {
        let width = grad.cols();
        if self.grads.rows() != self.layout.rows || self.grads.cols() != width {
            self.grads = Matrix::zeros(self.layout.rows, width);
        }
        let layout = self.layout.clone();
        let mut returned = self.take_scaled(&layout.remote[chunk], scale);
        let reads = &layout.reads[chunk];
        for (owner, run) in reads.runs.iter().filter(|(owner, _)| order.is_fresh(*owner, chunk)) {
            let (rows, grad) = (&reads.rows[run.clone()], grad.run(run.clone()));
            if *owner == chunk {
                // Of another rank, computed at the same time: this gradient is exact.
                let (first, start) = place(&layout.remote[chunk], rows[0] as usize);
                let at: Vec<u32> = rows.iter().map(|&row| (row as usize - start + first) as u32).collect();
                rows::scatter_add(grad, width, &at, returned.data_mut());
            } else {
                rows::scatter_add(grad, width, rows, self.grads.data_mut());
            }
        }
        returned
    }

    /// Adds to the gradients of the rows of a chunk what chunks after it have added, times `scale`.
    pub fn add_kept(&mut self, chunk: usize, scale: T, grad: &mut Matrix<T>) {
        let own = self.layout.own[chunk]..self.layout.own[chunk + 1];
        let kept = self.take_scaled(&[own], scale);
        grad.add_at(0, T::one(), &kept);
    }

    /// Removes the gradients of these runs of rows and returns them, times `scale`.
    fn take_scaled(&mut self, runs: &[Range<usize>], scale: T) -> Matrix<T> {
        let mut taken = Matrix::unspecified(runs.iter().map(Range::len).sum(), self.grads.cols());
        let mut first = 0;
        for run in runs {
            let from = self.grads.run_mut(run.clone());
            taken.run_mut(first..first + run.len()).copy_from_slice(from);
            from.fill(T::zero());
            first += run.len();
        }
        rows::scale(scale, taken.data_mut());
        taken
    }

    /// Adds the rows to `state`, by names that begin with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let shape = [self.current.rows(), self.current.cols()];
        let history = self.history.as_ref().filter(|_| !self.is_copy);
        let versions = [("rows", Some(&self.current)), ("history", history)];
        for (name, rows) in versions.into_iter().filter_map(|(name, rows)| Some((name, rows?))) {
            state.0.insert(format!("{prefix}{name}"), Tensor::real(&shape, rows.data()));
        }
    }

    /// Restores what [`StageStore::save`] added; `place` names the checkpoint in errors.
    pub fn load(&mut self, place: &str, prefix: &str, state: &State) -> InputResult<()> {
        let shape = [self.current.rows(), self.current.cols()];
        let history = self.history.as_mut().filter(|_| !self.is_copy);
        for (name, rows) in [("rows", Some(&mut self.current)), ("history", history)] {
            let Some(rows) = rows else { continue };
            let read = state.real::<T>(place, &format!("{prefix}{name}"), &shape)?;
            rows.data_mut().copy_from_slice(&read);
        }
        if self.is_copy {
            self.refresh();
        }
        Ok(())
    }
}

/// Returns where the run that contains `row` begins among the rows of all `runs`, and its first row.
fn place(runs: &[Range<usize>], row: usize) -> (usize, usize) {
    let mut first = 0;
    for run in runs {
        if run.contains(&row) {
            return (first, run.start);
        }
        first += run.len();
    }
    unreachable!("rows of other ranks are in one of their runs")
}
