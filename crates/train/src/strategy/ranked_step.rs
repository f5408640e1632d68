//! One optimiser step on ranks: every rank computes some rows; loss and gradients are summed over ranks.

use halograph_kernels::Real;
use halograph_nn::Model;

use super::StepOutcome;
use crate::boundary::Peers;
use crate::data::Rows;
use crate::error::Result;
use crate::loss::loss;
use crate::requests::Requests;
use crate::stage::{ModelInput, StageBlock, StageRunner};

/// What a rank computes in a step.
pub(super) struct RankedStep<'a> {
    pub peers: Peers<'a>,
    pub blocks: &'a [StageBlock<'a>],
    pub rows: StepRows<'a>,
    /// Weight of each class in the loss, if there are any.
    pub weights: Option<&'a [f64]>,
}

/// The rows that the loss of a step is computed from.
pub(super) struct StepRows<'a> {
    /// Those of this rank.
    pub own: &'a Rows,
    /// Number of those of all ranks.
    pub count: u64,
    /// What the loss of all ranks is divided by.
    pub divisor: f64,
}

impl RankedStep<'_> {
    /// Runs forward, loss and backward; weight gradients of a stage are summed over ranks behind the backward of the stages
    /// below, those of the last one behind `meanwhile`. Collective; blocks.
    pub(super) fn run<T: Real>(
        self,
        runner: &mut StageRunner<T>,
        model: &mut Model<T>,
        input: ModelInput<T>,
        requests: &dyn Fn() -> Requests,
        meanwhile: impl FnOnce(),
    ) -> Result<StepOutcome> {
        let RankedStep { peers, blocks, rows: StepRows { own, count, divisor }, weights } = self;
        let (tape, logits) = runner.forward_model(model, blocks, input)?;
        let (own_loss, grad) = peers.timed("loss", || loss(&logits, own, weights, divisor));
        drop(logits);
        let total = peers.start_loss_sum(model.depth(), own_loss, requests());
        let mut sums = peers.gradient_sums();
        runner.backward_model(model, blocks, tape, grad, |index, stage| sums.start(index, stage))?;
        meanwhile();
        sums.finish(model)?;
        let (loss, requests) = total.wait()?;
        Ok(StepOutcome { loss, rows: count, requests })
    }
}
