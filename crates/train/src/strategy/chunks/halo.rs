//! Halo rows of a chunk: rows of other chunks, from the stores, and rows of the same chunk number of other ranks.

use std::time::Duration;

use halograph_comm::Priority;
use halograph_kernels::Real;
use halograph_nn::{Input, Matrix};

use super::order::StepOrder;
use super::store::StageStore;
use crate::boundary::{FeatureTransfer, GradientTransfer, HaloSource, ReturnedGradients, Transfer};
use crate::config::GradientWeighting;
use crate::error::Result;

/// The halo rows of one chunk in one step.
pub struct ChunkHalo<'c, T: Real> {
    /// The stores of this rank's stages; `None`: the stage reads only rows of this step, or no edges.
    pub stores: &'c mut [Option<StageStore<T>>],
    /// Index of the first of these stages.
    pub first: usize,
    pub chunk: usize,
    pub order: &'c StepOrder,
    pub weights: GradientWeighting,
    /// Whether the chunk reads what it has read before: nothing is received and written.
    pub is_repeated: bool,
}

impl<T: Real> ChunkHalo<'_, T> {
    fn store(&mut self, stage: usize) -> Option<&mut StageStore<T>> {
        self.stores[stage - self.first].as_mut()
    }

    /// Returns the factor of gradients that chunks after this one have contributed; 0 if there are none.
    fn scale(&self) -> T {
        T::of(self.order.factor(self.chunk, self.weights))
    }
}

impl<T: Real> HaloSource<T> for ChunkHalo<'_, T> {
    fn priority(&self) -> Priority {
        Priority::Urgent
    }

    fn features(
        &mut self,
        stage: usize,
        own: &Input<T>,
        started: FeatureTransfer<T>,
    ) -> Result<(Input<T>, Duration)> {
        let (received, hidden) = started.finish()?;
        let (chunk, order, is_repeated) = (self.chunk, self.order, self.is_repeated);
        let Some(store) = self.store(stage) else { return Ok((received, hidden)) };
        if !is_repeated {
            store.write(chunk, &own.full(), &received.full());
        }
        Ok((store.read(chunk, order).into(), hidden))
    }

    fn returned(&mut self, stage: usize, halo_grad: Matrix<T>) -> Matrix<T> {
        let (chunk, order, scale) = (self.chunk, self.order, self.scale());
        match self.store(stage) {
            Some(store) => store.keep(chunk, order, &halo_grad, scale),
            None => halo_grad,
        }
    }

    fn gradients(
        &mut self,
        _: usize,
        started: GradientTransfer<T>,
    ) -> Result<(Option<ReturnedGradients<T>>, Duration)> {
        let (rows, hidden) = started.finish()?;
        Ok((Some(rows), hidden))
    }

    fn add_kept(&mut self, stage: usize, grad: &mut Matrix<T>) {
        let (chunk, scale) = (self.chunk, self.scale());
        if let Some(store) = self.store(stage).filter(|_| scale != T::zero()) {
            store.add_kept(chunk, scale, grad);
        }
    }
}
