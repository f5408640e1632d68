//! One optimiser step: forward, loss, backward, clipping and update.

use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::Model;
use halograph_nn::optimizer::{Optimizer, clip_gradients, squared_gradient_norm};

use super::diverged;
use crate::config::TrainConfig;
use crate::error::Result;
use crate::requests::Requests;
use crate::schedule::learning_rate;
use crate::strategy::{Step, StepOutcome, Strategy};

/// A model and the optimiser that updates it: the stages that this rank owns.
pub(crate) struct Learner<T: Real> {
    pub model: Model<T>,
    pub optimizer: Optimizer<T>,
}

impl<T: Real> Learner<T> {
    /// Runs a step: epochs count from 1, steps of an epoch from 0. Returns what the strategy found, and the learning rate.
    pub(crate) fn step(
        &mut self,
        strategy: &mut dyn Strategy<T>,
        train: &TrainConfig,
        (epoch, step): (u64, u64),
        requests: &dyn Fn() -> Requests,
    ) -> Result<(StepOutcome, f64)> {
        let steps = strategy.steps();
        let key = Key::new(train.seed, "dropout").with(epoch).with(step);
        let outcome = strategy.step(&mut self.model, &Step { epoch, step, key }, requests)?;
        let diverged = || diverged(epoch, (steps > 1).then_some(step), outcome.loss);
        if !outcome.loss.is_finite() {
            return Err(diverged());
        }
        if train.clip > 0.0 {
            let mut square = [squared_gradient_norm(&self.model)];
            strategy.sum_over_stages(&mut square)?;
            clip_gradients(&mut self.model, square[0].sqrt(), train.clip);
        }
        let lr = learning_rate(train, epoch, step as f64 / steps as f64);
        self.optimizer.step(&mut self.model, lr);
        let is_finite = self.model.params().all(|p| p.value.iter().all(|x| x.is_finite()));
        let mut broken = [!is_finite as u8 as f64];
        strategy.sum_over_stages(&mut broken)?;
        if broken[0] > 0.0 { Err(diverged()) } else { Ok((outcome, lr)) }
    }
}
