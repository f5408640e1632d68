//! Like `partition`, but halo rows and returned gradients are some epochs stale (PipeGCN), so that their transfer
//! overlaps with the computation of whole epochs.
//!
//! ```text
//! epoch t, stage l, forward     send the boundary rows of t; aggregate own rows; add halo rows of t − 1
//!                   backward    gradients of halo rows; send them back; gradients of own rows; add those returned in t − 1
//! ```
//!
//! Own rows, weights, norms and evaluations are always fresh. A stale row carries its owner's dropout mask of its own
//! epoch. The first and the last epochs may read fresh rows.

mod schedule;
mod stale;

use halograph_kernels::Real;
use halograph_nn::Model;
use halograph_nn::state::State;

use super::vertex_parallel::VertexParallel;
use super::{Step, StepOutcome, Strategy};
use crate::boundary::Deviation;
use crate::config::TrainConfig;
use crate::error::Result;
use crate::evaluation::{Detail, Evaluated};
use crate::event::Staleness;
use crate::requests::Requests;
use crate::tags::Control;

pub use schedule::Schedule;
use stale::StaleHalo;

/// Training on a shard with stale halo rows.
pub struct Pipelined<'s, T: Real> {
    shard: VertexParallel<'s, T>,
    halo: StaleHalo<T>,
}

impl<'s, T: Real> Pipelined<'s, T> {
    /// Creates the strategy with the configured staleness and smoothing.
    pub fn new(shard: VertexParallel<'s, T>, config: &TrainConfig) -> Self {
        let halo = StaleHalo::new(Schedule::of(config), shard.blocks.len(), config.measure_staleness);
        Pipelined { shard, halo }
    }
}

impl<T: Real> Strategy<T> for Pipelined<'_, T> {
    fn steps(&self) -> u64 {
        1
    }

    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        self.halo.start_epoch(step.epoch);
        self.shard.step(model, step, &mut self.halo, requests)
    }

    fn evaluate(&mut self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>> {
        self.shard.evaluate(model, epoch, detail)
    }

    fn agree(&mut self, requests: Requests) -> Result<Requests> {
        self.shard.link.agree(requests)
    }

    fn staleness(&mut self) -> Result<Option<Staleness>> {
        let found = self.halo.deviations();
        if found.iter().flatten().all(Option::is_none) {
            return Ok(None);
        }
        let measured = found.iter().flatten().flatten();
        let mut sums: Vec<f64> = measured.flat_map(|found| [found.difference, found.whole]).collect();
        self.shard.link.comm.all_reduce(Control::Staleness.tag(), &mut sums)?;
        let mut pairs = sums.chunks_exact(2);
        let mut relative = |found: Option<Deviation>| {
            let pair = found.and_then(|_| pairs.next())?;
            (pair[1] > 0.0).then(|| (pair[0] / pair[1]).sqrt())
        };
        let (features, gradients) = found.into_iter().map(|[f, g]| (relative(f), relative(g))).unzip();
        Ok(Some(Staleness { features, gradients }))
    }

    fn save(&mut self) -> Result<State> {
        self.halo.save()
    }

    fn load(&mut self, place: &str, state: &State) -> Result<()> {
        Ok(self.halo.load(place, state, &self.shard.blocks)?)
    }
}
