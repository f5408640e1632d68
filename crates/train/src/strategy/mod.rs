//! Strategies: how the work of an epoch is spread and in which order it is done. One file or folder each; siblings do not
//! import each other.
//!
//! | strategy | a rank owns | remote rows |
//! |---|---|---|
//! | [`single`] | everything | none |
//! | [`partition`] | vertices | fresh |
//! | [`pipelined`] | vertices | some epochs stale |
//! | [`minibatch`] | everything, or vertices; computes a sample per step | fresh (inputs only) |
//! | [`split`] | vertices; computes those of a sample per step that it owns | fresh |
//! | [`chunks`] | stages of the model; of everything (`layers`), or of vertices (`hybrid`) | fresh, or some epochs stale |
//!
//! An optimiser step goes trainer → strategy → stage runner → layer → kernel, plus the exchange of remote rows.

pub mod batches;
pub mod chunks;
pub mod minibatch;
pub mod partition;
pub mod pipelined;
mod ranked_step;
pub mod single;
pub mod split;
pub mod vertex_parallel;

use std::borrow::Cow;

use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::Model;
use halograph_nn::state::State;

use crate::error::Result;
use crate::evaluation::{Detail, Evaluated};
use crate::event::Staleness;
use crate::requests::Requests;

/// One optimiser step.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Epoch, counted from 1.
    pub epoch: u64,
    /// Step of the epoch, counted from 0.
    pub step: u64,
    /// Names the random masks of the step.
    pub key: Key,
}

/// What a step found.
#[derive(Debug, Clone, Copy)]
pub struct StepOutcome {
    /// Mean loss over the rows of the step, of all ranks; with class weights, the weighted mean.
    pub loss: f64,
    /// Number of these rows.
    pub rows: u64,
    /// Requests of all ranks.
    pub requests: Requests,
}

/// How the work is spread. On several ranks, all ranks call the same methods in the same order; methods that return
/// something about the whole run return the same on all of them.
pub trait Strategy<T: Real> {
    /// Returns the number of optimiser steps of an epoch.
    fn steps(&self) -> u64;

    /// Runs forward, loss and backward of one step: leaves the gradient of the global loss in the parameters of the
    /// stages that this rank owns. `requests` is asked as late as it can still be shared with the other ranks.
    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome>;

    /// Scores `model`, exactly; `None` if its outputs are not finite.
    fn evaluate(&mut self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>>;

    /// Combines the requests of all ranks outside of a step: before the first one and after each epoch.
    fn agree(&mut self, requests: Requests) -> Result<Requests> {
        Ok(requests)
    }

    /// Returns the relative error of the stale rows that the last step read, if it was measured.
    fn staleness(&mut self) -> Result<Option<Staleness>> {
        Ok(None)
    }

    /// Returns whether this rank owns all stages of the model. If not, the next two methods communicate.
    fn owns_all_stages(&self) -> bool {
        true
    }

    /// Sums numbers over ranks that own different stages.
    fn sum_over_stages(&mut self, _numbers: &mut [f64]) -> Result<()> {
        Ok(())
    }

    /// Completes the weights of the stages that this rank owns by those of the others; rank 0 writes them.
    fn gather_weights<'w>(&mut self, own: &'w State) -> Result<Cow<'w, State>> {
        Ok(Cow::Borrowed(own))
    }

    /// Returns what the next steps need besides model and optimiser. Blocks until it has arrived.
    fn save(&mut self) -> Result<State> {
        Ok(State::default())
    }

    /// Restores what [`Strategy::save`] returned; `place` names the checkpoint in errors.
    fn load(&mut self, _place: &str, _state: &State) -> Result<()> {
        Ok(())
    }
}
