//! Which version of remote rows a stage reads.

use std::time::Duration;

use halograph_comm::Priority;
use halograph_kernels::Real;
use halograph_nn::{Input, Matrix};

use super::transfer::{FeatureTransfer, GradientTransfer, ReturnedGradients};
use super::versions::Transfer;
use crate::error::Result;

/// Decides which version of halo rows, and of gradients returned by other ranks, each stage reads.
///
/// A stage starts a transfer in every step and passes it to this trait. [`HaloSource::features`] and
/// [`HaloSource::gradients`] may block until rows arrive. They return the rows to read, and the transfer time that
/// overlapped with computation.
pub trait HaloSource<T: Real> {
    /// Returns the priority of the transfers that this step starts.
    fn priority(&self) -> Priority;

    /// Returns the halo rows that `stage` reads. `own`: the messages of the rows that the stage owns.
    fn features(
        &mut self,
        stage: usize,
        own: &Input<T>,
        started: FeatureTransfer<T>,
    ) -> Result<(Input<T>, Duration)>;

    /// Returns the rows of gradients that are returned to other ranks, given those of the halo rows of `stage`: all of them,
    /// unless some halo rows are other rows of this rank.
    fn returned(&mut self, _stage: usize, halo_grad: Matrix<T>) -> Matrix<T> {
        halo_grad
    }

    /// Adds the gradients of owned rows that this rank itself has computed as gradients of halo rows.
    fn add_kept(&mut self, _stage: usize, _grad: &mut Matrix<T>) {}

    /// Returns the gradients of owned rows that `stage` adds; `None`: there are none yet.
    fn gradients(
        &mut self,
        stage: usize,
        started: GradientTransfer<T>,
    ) -> Result<(Option<ReturnedGradients<T>>, Duration)>;
}

/// Reads what was just started: nothing is stale.
pub struct Fresh;

impl<T: Real> HaloSource<T> for Fresh {
    fn priority(&self) -> Priority {
        Priority::Urgent
    }

    fn features(
        &mut self,
        _: usize,
        _: &Input<T>,
        started: FeatureTransfer<T>,
    ) -> Result<(Input<T>, Duration)> {
        started.finish()
    }

    fn gradients(
        &mut self,
        _: usize,
        started: GradientTransfer<T>,
    ) -> Result<(Option<ReturnedGradients<T>>, Duration)> {
        let (rows, hidden) = started.finish()?;
        Ok((Some(rows), hidden))
    }
}
