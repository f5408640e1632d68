//! Optimisers: steps over all parameters of a model, and their state for checkpoints.

use halograph_graph::error::Result;
use halograph_kernels::Real;
use halograph_kernels::optim::{Adam, Sgd, clip_norm, squared_norm};

use crate::model::Model;
use crate::param::Param;
use crate::state::{State, Tensor};

/// The update rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Adam; weight decay is added to gradients.
    Adam,
    /// AdamW: decoupled weight decay.
    AdamW,
    /// Stochastic gradient descent.
    Sgd {
        /// Momentum; 0 for none.
        momentum: f64,
    },
}

/// An optimiser with its state for one model.
pub struct Optimizer<T> {
    method: Method,
    /// Number of steps so far.
    steps: u64,
    slots: Vec<Slot<T>>,
}

/// State of one parameter.
struct Slot<T> {
    name: String,
    shape: Vec<usize>,
    weight_decay: f64,
    /// Adam's first moment, or the momentum buffer of SGD.
    first: Vec<T>,
    /// Adam's second moment; empty for SGD.
    second: Vec<T>,
}

impl<T: Real> Optimizer<T> {
    /// Creates an optimiser before its first step. `weight_decay` returns the decay of a parameter, given its name.
    pub fn new(method: Method, model: &Model<T>, weight_decay: impl Fn(&str) -> f64) -> Self {
        let slot = |p: &Param<T>| {
            let zeros = vec![T::zero(); p.value.len()];
            let second = if let Method::Sgd { .. } = method { Vec::new() } else { zeros.clone() };
            let weight_decay = weight_decay(&p.name);
            Slot { name: p.name.clone(), shape: p.shape.clone(), weight_decay, first: zeros, second }
        };
        Optimizer { method, steps: 0, slots: model.params().map(slot).collect() }
    }

    /// Updates all parameters by their gradients, and zeroes the gradients.
    pub fn step(&mut self, model: &mut Model<T>, lr: f64) {
        self.steps += 1;
        for (p, slot) in model.params_mut().zip(&mut self.slots) {
            slot.step(self.method, self.steps, lr, p);
            p.grad.fill(T::zero());
        }
    }

    /// Returns the state that the next step depends on, without the parameters.
    pub fn state(&self) -> State {
        let mut state = State::default();
        state.0.insert("steps".into(), Tensor::count(self.steps));
        for slot in &self.slots {
            for (kind, values) in slot.arrays() {
                state.0.insert(format!("{kind}.{}", slot.name), Tensor::real(&slot.shape, values));
            }
        }
        state
    }

    /// Loads the state of an optimiser with the same method for the same model. `place` names its file in errors.
    pub fn load(&mut self, place: &str, state: &State) -> Result<()> {
        self.steps = state.count(place, "steps")?;
        for slot in &mut self.slots {
            slot.first = state.real(place, &format!("first.{}", slot.name), &slot.shape)?;
            if !slot.second.is_empty() {
                slot.second = state.real(place, &format!("second.{}", slot.name), &slot.shape)?;
            }
        }
        Ok(())
    }
}

impl<T: Real> Slot<T> {
    fn arrays(&self) -> impl Iterator<Item = (&'static str, &[T])> {
        let second = (!self.second.is_empty()).then_some(("second", self.second.as_slice()));
        std::iter::once(("first", self.first.as_slice())).chain(second)
    }

    fn step(&mut self, method: Method, step: u64, lr: f64, p: &mut Param<T>) {
        let weight_decay = self.weight_decay;
        if let Method::Sgd { momentum } = method {
            return Sgd { lr, momentum, weight_decay }.step(&mut p.value, &p.grad, &mut self.first);
        }
        let decoupled = method == Method::AdamW;
        let adam = Adam { lr, weight_decay, decoupled, ..Adam::default() };
        adam.step(step, &mut p.value, &p.grad, &mut self.first, &mut self.second);
    }
}

/// Returns the squared 2-norm of all gradients of `model`.
pub fn squared_gradient_norm<T: Real>(model: &Model<T>) -> f64 {
    let grads: Vec<&[T]> = model.params().map(|p| p.grad.as_slice()).collect();
    squared_norm(&grads)
}

/// Scales all gradients of `model` so that their joint 2-norm, which is `norm`, is at most `max`.
pub fn clip_gradients<T: Real>(model: &mut Model<T>, norm: f64, max: f64) {
    let mut grads: Vec<&mut [T]> = model.params_mut().map(|p| p.grad.as_mut_slice()).collect();
    clip_norm(&mut grads, norm, max);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Kind, Spec};

    fn model() -> Model<f64> {
        Model::new(&Spec { layers: 1, ..Spec::new(Kind::Gcn) }, 2, 2, 1)
    }

    /// Steps along a gradient that depends on step and place.
    fn steps(optimizer: &mut Optimizer<f64>, model: &mut Model<f64>, which: std::ops::Range<u64>) {
        for step in which {
            for p in model.params_mut() {
                p.grad.iter_mut().enumerate().for_each(|(i, g)| *g = (step as f64 + i as f64).sin());
            }
            optimizer.step(model, 0.1);
        }
    }

    #[test]
    fn a_saved_optimiser_goes_on_as_if_nothing_had_happened() {
        for method in [Method::Adam, Method::AdamW, Method::Sgd { momentum: 0.9 }] {
            let new = |model: &Model<f64>| Optimizer::new(method, model, |_| 0.01);
            let (mut straight, mut broken) = (model(), model());
            let mut optimizer = new(&straight);
            steps(&mut optimizer, &mut straight, 0..6);

            let mut before = new(&broken);
            steps(&mut before, &mut broken, 0..3);
            let mut after = new(&broken);
            after.load("checkpoint", &before.state()).unwrap();
            steps(&mut after, &mut broken, 3..6);
            assert_eq!((after.steps, broken.state()), (6, straight.state()), "{method:?}");
        }
    }

    #[test]
    fn weight_decay_is_by_name_and_gradients_are_cleared() {
        let mut m = model();
        let before: Vec<Vec<f64>> = m.params().map(|p| p.value.clone()).collect();
        let decay = |name: &str| if name.ends_with("weight") { 0.5 } else { 0.0 };
        Optimizer::new(Method::Sgd { momentum: 0.0 }, &m, decay).step(&mut m, 0.1);
        for (p, before) in m.params().zip(before) {
            let factor = if p.name.ends_with("weight") { 0.95 } else { 1.0 };
            p.value.iter().zip(before).for_each(|(a, b)| assert!((a - factor * b).abs() < 1e-15));
        }
        m.params_mut().for_each(|p| p.grad.fill(3.0));
        Optimizer::new(Method::Adam, &m, |_| 0.0).step(&mut m, 0.1);
        assert!(m.params().all(|p| p.grad.iter().all(|&g| g == 0.0)));
    }

    #[test]
    fn the_state_of_another_model_is_refused() {
        let small = Optimizer::new(Method::Adam, &model(), |_| 0.0).state();
        let wide = Model::<f64>::new(&Spec { layers: 1, ..Spec::new(Kind::Gcn) }, 3, 2, 1);
        let error = Optimizer::new(Method::Adam, &wide, |_| 0.0).load("ckpt", &small).unwrap_err();
        assert!(error.to_string().contains("shape"), "{error}");
    }
}
