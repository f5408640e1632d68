//! One optimiser step: the chunks of the step forward and, in reverse order, backward.

use halograph_comm::Purpose;
use halograph_kernels::Real;
use halograph_nn::{Matrix, Model};

use super::handover::Tags;
use super::pass::ChunkPass;
use super::recompute::{ActivationBudget, Kept};
use super::{Chunked, Step, StepOrder, StepOutcome, bubble_at};
use crate::boundary::{GradientSums, Peers};
use crate::error::Result;
use crate::loss::loss;
use crate::requests::Requests;
use crate::stage::{Gradients, StageRunner, Tape};

/// What a chunk keeps of its forward.
struct Forwarded<T: Real> {
    chunk: usize,
    kept: Kept<T>,
    /// Gradient of the loss, in the last group.
    grad: Option<Matrix<T>>,
    /// Rows of the initial stage that this rank has.
    initial_rows: usize,
}

impl<T: Real> Chunked<'_, T> {
    /// Runs forward, loss and backward of a step over the chunks of `order`. Collective; blocks.
    pub(super) fn run_step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        order: &StepOrder,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let links = self.links;
        let _measured = self.meter.start(links.world, step.epoch, step.step)?;
        let count = order.chunks.iter().map(|&chunk| self.rows[chunk].count).sum();
        let divisor = order.chunks.iter().map(|&chunk| self.rows[chunk].divisor).sum();
        let mut budget = ActivationBudget::new(self.config.activation_memory);
        let (mut own_loss, mut done) = (0.0, Vec::new());
        for &chunk in &order.chunks {
            let (forwarded, loss) = self.forward(model, step, order, (chunk, divisor), &mut budget)?;
            own_loss += loss;
            done.push(forwarded);
        }
        let world = Peers::training(links.world, step.epoch, step.step);
        let total = world.start_loss_sum(model.depth(), own_loss, requests());
        let mut sums = Peers::training(&links.grid.link, step.epoch, step.step).gradient_sums();
        while let Some(forwarded) = done.pop() {
            // Gradients of weights are complete with those of the last chunk.
            let complete = done.is_empty() && links.grid.ways > 1;
            self.backward(model, step, order, forwarded, complete.then_some(&mut sums))?;
        }
        sums.finish(model)?;
        let (loss, requests) = total.wait()?;
        Ok(StepOutcome { loss, rows: count, requests })
    }

    /// Runs this rank's stages on a chunk. Returns the share of the chunk in the loss of the step, which is divided by
    /// `divisor`, too. Blocks for rows of the group before and of other ways.
    fn forward(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        order: &StepOrder,
        (chunk, divisor): (usize, f64),
        budget: &mut ActivationBudget,
    ) -> Result<(Forwarded<T>, f64)> {
        let (links, meter, own) = (self.links, self.meter, model.indices());
        let weights = self.data.objective.weights();
        let at = bubble_at((step.epoch, step.step)).chunk(chunk as u16);
        let tags = Tags::training(Purpose::Activations, (step.epoch, step.step), chunk);
        let ChunkPass { handover, peers, view, rows, ids, labelled, stages, mut halo } =
            self.pass(own.start, step, order, chunk);
        let mut runner = StageRunner::new(Some(step.key), ids, Some(peers), &mut halo);
        peers.enter(own.start, "forward");
        let mut activations = match links.grid.is_first() {
            true => runner.input(model, view.input_run(model, rows)),
            false => {
                let receive = || handover.receive_forward(tags, stages[0].sources(chunk), &runner, model);
                match order.chunks.first() == Some(&chunk) {
                    true => meter.bubble(links.world, ("the first chunk", at), receive)?,
                    false => receive()?,
                }
            }
        };
        let is_next = order.chunks.last() == Some(&chunk);
        let measured = budget.measure(is_next, &activations, links.grid.is_first());
        let mut tape = Tape::default();
        for (index, stage) in own.zip(stages) {
            runner.forward(model, index, &stage.blocks[chunk], &mut activations, &mut tape)?;
        }
        let kept = budget.keep(tape, measured);
        let computed = stages[stages.len() - 1].destinations(chunk);
        handover.send_forward(tags, computed, &activations)?;
        let initial_rows = activations.initial.as_ref().map_or(0, |initial| initial.rows());
        let mut forwarded = Forwarded { chunk, kept, grad: None, initial_rows };
        if !links.grid.is_last() {
            return Ok((forwarded, 0.0));
        }
        let logits = &activations.output;
        let (loss, grad) = peers.timed("loss", || loss(logits, labelled, weights, divisor));
        forwarded.grad = Some(grad);
        Ok((forwarded, loss))
    }

    /// Runs this rank's stages backwards on a chunk. `sums`: where to sum the gradients of a stage over ways, if they are
    /// complete with this chunk. Blocks for gradients of the next group and of other ways.
    fn backward(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        order: &StepOrder,
        forwarded: Forwarded<T>,
        mut sums: Option<&mut GradientSums<T>>,
    ) -> Result<()> {
        let Forwarded { chunk, kept, grad, initial_rows } = forwarded;
        let mut tape = match kept {
            Kept::Tape(tape) => tape,
            Kept::Input(input) => self.recompute(model, step, order, (chunk, input))?,
        };
        let (links, meter, own) = (self.links, self.meter, model.indices());
        let at = bubble_at((step.epoch, step.step)).chunk(chunk as u16);
        let tags = Tags::training(Purpose::ActivationGradients, (step.epoch, step.step), chunk);
        let ChunkPass { handover, peers, ids, stages, mut halo, .. } =
            self.pass(own.start, step, order, chunk);
        let mut runner = StageRunner::new(Some(step.key), ids, Some(peers), &mut halo);
        peers.enter(own.end - 1, "backward");
        let computed = stages[stages.len() - 1].destinations(chunk);
        let mut grads = match grad {
            Some(grad) => Gradients::of_loss(grad),
            None => {
                let receive = || handover.receive_backward(tags, computed, initial_rows);
                match order.chunks.last() == Some(&chunk) {
                    true => meter.bubble(links.world, ("the first gradients", at), receive)?,
                    false => receive()?,
                }
            }
        };
        for (index, stage) in own.zip(stages).rev() {
            let goes_on = runner.backward(model, index, &stage.blocks[chunk], &mut tape, &mut grads)?;
            if let Some(sums) = &mut sums {
                sums.start(index, model.stage(index));
            }
            if !goes_on {
                return Ok(());
            }
        }
        match links.grid.is_first() {
            true => Ok(()),
            false => handover.send_backward(tags, &runner, model, grads),
        }
    }
}
