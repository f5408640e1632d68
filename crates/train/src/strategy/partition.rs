//! Every rank computes the rows that it owns and reads halo rows fresh: exact, like `single`.
//!
//! ```text
//! forward    for each stage: prepare; send boundary rows; aggregate own rows; add halo rows; finish, norm, activation
//! loss       over the training rows of all ranks
//! backward   for each stage, last first: gradients of halo rows; send them back; gradients of own rows and weights;
//!            add returned gradients; sum the stage's weight gradients over ranks behind the stages below
//! ```
//!
//! Without `overlap`, a rank waits for what it needs before it computes anything: the baseline that overlap is measured
//! against. Both give the same bits. Ranks end a step with the same gradients to the bit.

use halograph_kernels::Real;
use halograph_nn::Model;

use super::vertex_parallel::VertexParallel;
use super::{Step, StepOutcome, Strategy};
use crate::boundary::Fresh;
use crate::error::Result;
use crate::evaluation::{Detail, Evaluated};
use crate::requests::Requests;

/// Training on a shard with fresh halo rows.
pub struct Partition<'s, T: Real>(pub VertexParallel<'s, T>);

impl<T: Real> Strategy<T> for Partition<'_, T> {
    fn steps(&self) -> u64 {
        1
    }

    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        self.0.step(model, step, &mut Fresh, requests)
    }

    fn evaluate(&mut self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>> {
        self.0.evaluate(model, epoch, detail)
    }

    fn agree(&mut self, requests: Requests) -> Result<Requests> {
        self.0.link.agree(requests)
    }
}
