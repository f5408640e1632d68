//! What strategies share whose ranks own vertices: a step over the owned rows, with halo rows from a [`HaloSource`].

use halograph_kernels::Real;
use halograph_nn::Model;

use super::{Step, StepOutcome};
use crate::boundary::{HaloSource, Peers, RankLink};
use crate::data::ShardData;
use crate::error::Result;
use crate::evaluation;
use crate::event::Scores;
use crate::loss::loss;
use crate::requests::Requests;
use crate::stage::{StageBlock, StageRunner};
use crate::traffic::StepMeter;

/// The shard of a rank and the blocks of its stages.
pub struct VertexParallel<'s, T: Real> {
    data: &'s ShardData<'s, T>,
    pub(super) blocks: Vec<StageBlock<'static>>,
    pub(super) link: &'s RankLink,
    meter: &'s StepMeter,
}

impl<'s, T: Real> VertexParallel<'s, T> {
    /// Plans the training of `model` on a prepared shard. Collective; blocks.
    pub fn new(
        model: &Model<T>,
        data: &'s ShardData<'s, T>,
        link: &'s RankLink,
        meter: &'s StepMeter,
    ) -> Result<Self> {
        Ok(VertexParallel { data, blocks: data.stage_blocks(link, model)?, link, meter })
    }

    /// Runs forward, loss and backward over the owned rows; weight gradients of a stage are summed over ranks behind the
    /// backward of the stages below. Collective; blocks.
    pub(super) fn step(
        &self,
        model: &mut Model<T>,
        step: &Step,
        halo: &mut dyn HaloSource<T>,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let _measured = self.meter.start(self.link, step.epoch, step.step)?;
        let (view, _) = self.data.train();
        let (rows, count) = (&self.data.rows[0], self.data.counts[0]);
        let peers = Peers::training(self.link, step.epoch, step.step);
        let mut runner = StageRunner::new(Some(step.key), view.block.ids(), Some(peers), halo);
        let (tape, logits) = runner.forward_model(model, &self.blocks, view.input())?;
        let (own_loss, grad) = peers.timed("loss", || loss(&logits, rows, count));
        drop(logits);
        let total = peers.start_loss_sum(model.depth(), own_loss, requests());
        let mut sums = peers.gradient_sums();
        runner.backward_model(model, &self.blocks, tape, grad, |index, stage| sums.start(index, stage))?;
        sums.finish(model)?;
        let (loss, requests) = total.wait()?;
        Ok(StepOutcome { loss, rows: count, requests })
    }

    /// Scores `model` over the rows of all ranks; `None` if its outputs are not finite. Collective; blocks.
    pub(super) fn evaluate(&self, model: &Model<T>, epoch: u64) -> Result<Option<Scores>> {
        evaluation::scores_on_ranks(model, self.data, self.link, epoch)
    }
}
