//! All stages of a model, one after the other.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_nn::model::Stage;
use halograph_nn::{Input, Matrix, Model};

use super::runner::{Activations, Gradients, StageRunner};
use super::tape::Tape;
use super::{ModelInput, StageBlock};
use crate::error::Result;

/// What an evaluation computes.
pub struct Outputs<T: Real> {
    /// Output of the last stage.
    pub logits: Matrix<T>,
}

impl<T: Real> StageRunner<'_, T> {
    /// Runs the forward of every stage of `model`, each on its block; returns what the backward needs, and the logits.
    pub fn forward_model(
        &mut self,
        model: &mut Model<T>,
        blocks: &[StageBlock],
        input: ModelInput<T>,
    ) -> Result<(Tape<T>, Arc<Matrix<T>>)> {
        let mut tape = Tape::default();
        let mut rows = self.input(model, input);
        for (index, block) in blocks.iter().enumerate() {
            self.forward(model, index, block, &mut rows, &mut tape)?;
        }
        Ok((tape, rows.output))
    }

    /// Runs the backward of every stage, last first, down to the first that has a gradient below it. Calls `done` when
    /// the parameter gradients of a stage are complete.
    pub fn backward_model(
        &mut self,
        model: &mut Model<T>,
        blocks: &[StageBlock],
        mut tape: Tape<T>,
        grad: Matrix<T>,
        mut done: impl FnMut(usize, &Stage<T>),
    ) -> Result<()> {
        let mut grads = Gradients::of_loss(grad);
        for (index, block) in blocks.iter().enumerate().rev() {
            let goes_on = self.backward(model, index, block, &mut tape, &mut grads)?;
            done(index, model.stage(index));
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Evaluates the stages of `model` that are in memory, all on the same `block`. `rows`: before and after.
    pub fn evaluate_stages(
        &mut self,
        model: &Model<T>,
        block: &StageBlock,
        rows: &mut Activations<T>,
    ) -> Result<()> {
        for index in model.indices() {
            rows.output = Arc::new(self.evaluate(model, index, block, rows)?);
            if model.stage(index).is_initial {
                rows.initial = Some(rows.output.clone());
            }
            rows.input = rows.output.clone().into();
        }
        Ok(())
    }

    /// Evaluates `model`, every stage on the same `block`.
    pub fn evaluate_model(
        &mut self,
        model: &Model<T>,
        block: &StageBlock,
        input: ModelInput<T>,
    ) -> Result<Outputs<T>> {
        let mut rows = self.input(model, input);
        let last = model.stages.len() - 1;
        self.evaluate_first(model, block, &mut rows, last)?;
        Ok(Outputs { logits: self.evaluate(model, last, block, &mut rows)? })
    }

    /// Evaluates the first `count` stages of `model`, all on the same `block`; returns the output of the last of them, of
    /// no stage the input of the model.
    pub fn evaluate_prefix(
        &mut self,
        model: &Model<T>,
        block: &StageBlock,
        input: ModelInput<T>,
        count: usize,
    ) -> Result<Input<T>> {
        let mut rows = self.input(model, input);
        self.evaluate_first(model, block, &mut rows, count)?;
        Ok(rows.input)
    }

    fn evaluate_first(
        &mut self,
        model: &Model<T>,
        block: &StageBlock,
        rows: &mut Activations<T>,
        count: usize,
    ) -> Result<()> {
        for index in 0..count {
            let output = Arc::new(self.evaluate(model, index, block, rows)?);
            if model.stages[index].is_initial {
                rows.initial = Some(output.clone());
            }
            rows.input = output.into();
        }
        Ok(())
    }
}
