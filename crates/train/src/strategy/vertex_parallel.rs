//! What strategies share whose ranks own vertices: a step over the owned rows, with halo rows from a [`HaloSource`].

use halograph_kernels::Real;
use halograph_nn::Model;

use super::ranked_step::{RankedStep, StepRows};
use super::{Step, StepOutcome};
use crate::boundary::{HaloSource, Peers, RankLink};
use crate::data::ShardData;
use crate::error::Result;
use crate::evaluation::{self, Detail, Evaluated};
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

    /// Runs a step over the owned rows. Collective; blocks.
    pub(super) fn step(
        &self,
        model: &mut Model<T>,
        step: &Step,
        halo: &mut dyn HaloSource<T>,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let _measured = self.meter.start(self.link, step.epoch, step.step)?;
        let (view, _) = self.data.train();
        let data = self.data;
        let rows = StepRows { own: &data.rows[0], count: data.counts[0], divisor: data.divisors[0] };
        let peers = Peers::training(self.link, step.epoch, step.step);
        let mut runner = StageRunner::new(Some(step.key), view.block.ids(), Some(peers), halo);
        let ranked = RankedStep { peers, blocks: &self.blocks, rows, weights: data.objective.weights() };
        ranked.run(&mut runner, model, view.input(), requests, || ())
    }

    /// Scores `model` over the rows of all ranks; `None` if its outputs are not finite. Collective; blocks.
    pub(super) fn evaluate(&self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>> {
        evaluation::scores_on_ranks(model, self.data, self.link, epoch, detail)
    }
}
