//! Optimiser steps on one parameter, with PyTorch's semantics, and clipping of gradients.

use rayon::prelude::*;

use crate::Real;
use crate::simd::{Isa, Level, dispatch};
use crate::work::{self, Cost};

/// Numbers per task.
const CHUNK: usize = 1 << 13;

/// Adam and AdamW (Kingma, Ba 2015; Loshchilov, Hutter 2019).
#[derive(Debug, Clone, Copy)]
pub struct Adam {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the two moments.
    pub betas: [f64; 2],
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// Whether the decay decay_factors the parameter directly (AdamW) or is added to its gradient (Adam).
    pub decoupled: bool,
}

impl Default for Adam {
    fn default() -> Self {
        Adam { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, decoupled: false }
    }
}

impl Adam {
    /// Makes step number `step`, counted from 1. `first` and `second` are the moments, zero before the first step.
    ///
    /// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`,
    /// `p -= lr / (1 - β₁ᵗ) * m / (√v / √(1 - β₂ᵗ) + eps)`.
    pub fn step<T: Real>(&self, step: u64, value: &mut [T], grad: &[T], first: &mut [T], second: &mut [T]) {
        assert!(step > 0, "steps count from 1");
        assert!([grad.len(), first.len(), second.len()] == [value.len(); 3], "state of the parameter's size");
        let _work = work::begin("optimiser", || Cost::stream(4 * size_of_val(grad), 3 * size_of_val(grad)));
        let correction = self.betas.map(|b| 1.0 - b.powf(step as f64));
        let [beta1, beta2] = self.betas.map(T::of);
        // Not from the rounded betas: in f32, 1 - 0.999 would be off by 1.3e-5 of itself.
        let one_minus_betas = self.betas.map(|b| T::of(1.0 - b));
        let rate = T::of(self.lr / correction[0]);
        let root = T::of(correction[1].sqrt());
        let decay_factor = if self.decoupled { T::of(1.0 - self.lr * self.weight_decay) } else { T::one() };
        let l2 = if self.decoupled { T::zero() } else { T::of(self.weight_decay) };
        let numbers = AdamStep {
            betas: [beta1, beta2],
            one_minus_betas,
            rate,
            root,
            eps: T::of(self.eps),
            decay_factor,
            l2,
        };
        let moments = first.par_chunks_mut(CHUNK).zip(second.par_chunks_mut(CHUNK));
        let chunks = value.par_chunks_mut(CHUNK).zip(grad.par_chunks(CHUNK)).zip(moments);
        chunks.for_each(|((value, grad), (first, second))| {
            adam::<T>(Level::best(), numbers, value, grad, [first, second]);
        });
    }
}

/// The numbers of a step of [`Adam`].
#[derive(Clone, Copy)]
struct AdamStep<T> {
    betas: [T; 2],
    one_minus_betas: [T; 2],
    /// Learning rate, divided by the correction of the first moment.
    rate: T,
    /// Root of the correction of the second moment.
    root: T,
    eps: T,
    /// Factor of the parameter (AdamW).
    decay_factor: T,
    /// Weight of the parameter in its gradient (Adam).
    l2: T,
}

#[inline(always)]
fn adam_body<I: Isa, T: Real>(
    step: AdamStep<T>,
    value: &mut [T],
    grad: &[T],
    [first, second]: [&mut [T]; 2],
) {
    let AdamStep { betas, one_minus_betas, rate, root, eps, decay_factor, l2 } = step;
    for ((p, &g), (m, v)) in value.iter_mut().zip(grad).zip(first.iter_mut().zip(second)) {
        let g = g + l2 * *p;
        *m = betas[0] * *m + one_minus_betas[0] * g;
        *v = betas[1] * *v + one_minus_betas[1] * g * g;
        *p = *p * decay_factor - rate * *m / (v.sqrt() / root + eps);
    }
}
dispatch!(fn adam[T: Real](step: AdamStep<T>, value: &mut [T], grad: &[T], moments: [&mut [T]; 2]) = adam_body);

/// Stochastic gradient descent with momentum.
#[derive(Debug, Clone, Copy)]
pub struct Sgd {
    /// Learning rate.
    pub lr: f64,
    /// Share of the last step's direction that is kept.
    pub momentum: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
}

impl Sgd {
    /// Makes a step: `b = momentum * b + g`, `p -= lr * b`. The buffer `b` is zero before the first step.
    pub fn step<T: Real>(&self, value: &mut [T], grad: &[T], buffer: &mut [T]) {
        assert!([grad.len(), buffer.len()] == [value.len(); 2], "state of the parameter's size");
        let _work = work::begin("optimiser", || Cost::stream(3 * size_of_val(grad), 2 * size_of_val(grad)));
        let [lr, momentum, decay] = [self.lr, self.momentum, self.weight_decay].map(T::of);
        value.par_iter_mut().zip(grad).zip(buffer).for_each(|((p, &g), b)| {
            *b = momentum * *b + g + decay * *p;
            *p -= lr * *b;
        });
    }
}

/// Returns the squared 2-norm of all gradients together.
pub fn squared_norm<T: Real>(grads: &[&[T]]) -> f64 {
    let read = grads.iter().map(|grad| size_of_val(*grad)).sum();
    let _work = work::begin("clipping", || Cost::stream(read, 0));
    grads.iter().flat_map(|g| g.iter()).map(|g| g.wide() * g.wide()).sum()
}

/// Scales all gradients together, whose 2-norm is `norm`, so that this is at most `max`.
pub fn clip_norm<T: Real>(grads: &mut [&mut [T]], norm: f64, max: f64) {
    // PyTorch's guard against division by zero.
    let scale = max / (norm + 1e-6);
    if scale < 1.0 {
        grads.iter_mut().for_each(|g| g.par_iter_mut().for_each(|g| *g *= T::of(scale)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_close;

    const GRADS: [f64; 3] = [0.5, -1.0, 2.0];

    /// Three steps of one number by the textbook, with bias-corrected moments.
    fn textbook(adam: Adam) -> f64 {
        let (mut p, mut m, mut v) = (1.0, 0.0, 0.0);
        for (t, g) in (1..).zip(GRADS) {
            let mut g = g;
            if adam.decoupled {
                p -= adam.lr * adam.weight_decay * p;
            } else {
                g += adam.weight_decay * p;
            }
            m = adam.betas[0] * m + (1.0 - adam.betas[0]) * g;
            v = adam.betas[1] * v + (1.0 - adam.betas[1]) * g * g;
            let (m_hat, v_hat) = (m / (1.0 - adam.betas[0].powi(t)), v / (1.0 - adam.betas[1].powi(t)));
            p -= adam.lr * m_hat / (v_hat.sqrt() + adam.eps);
        }
        p
    }

    #[test]
    fn adam_and_adamw_follow_the_textbook() {
        for decoupled in [false, true] {
            let adam = Adam { lr: 0.1, weight_decay: 0.3, decoupled, ..Adam::default() };
            let (mut p, mut m, mut v) = ([1.0], [0.0], [0.0]);
            for (t, g) in (1..).zip(GRADS) {
                adam.step(t, &mut p, &[g], &mut m, &mut v);
            }
            assert_close(&p, &[textbook(adam)], 1e-14);
        }
    }

    #[test]
    fn adam_in_single_precision_takes_steps_of_the_right_length() {
        fn steps<T: Real>() -> f64 {
            let (mut p, mut m, mut v) = ([T::zero()], [T::zero()], [T::zero()]);
            for t in 1..=10 {
                let grad = [T::of(1.0 + 0.1 * (t % 3) as f64)];
                Adam { lr: 0.01, ..Adam::default() }.step(t, &mut p, &grad, &mut m, &mut v);
            }
            p[0].wide()
        }
        let (single, double) = (steps::<f32>(), steps::<f64>());
        assert!((single / double - 1.0).abs() < 1e-6, "{single} where {double} was expected");
    }

    #[test]
    fn adams_first_step_is_the_learning_rate() {
        let adam = Adam { lr: 0.1, ..Adam::default() };
        let (mut p, mut m, mut v) = ([0.0, 0.0], [0.0; 2], [0.0; 2]);
        adam.step(1, &mut p, &[3.0, -0.02], &mut m, &mut v);
        assert_close(&p, &[-0.1, 0.1], 1e-6);
    }

    #[test]
    fn momentum_accumulates() {
        let sgd = Sgd { lr: 0.1, momentum: 0.9, weight_decay: 0.0 };
        let (mut p, mut b) = ([0.0], [0.0]);
        (0..3).for_each(|_| sgd.step(&mut p, &[1.0], &mut b));
        assert_close(&p, &[-0.1 * (1.0 + 1.9 + 2.71)], 1e-14);

        let sgd = Sgd { lr: 0.1, momentum: 0.0, weight_decay: 0.5 };
        let (mut p, mut b) = ([2.0], [0.0]);
        sgd.step(&mut p, &[1.0], &mut b);
        assert_close(&p, &[1.8], 1e-14);
    }

    #[test]
    fn clipping_scales_all_gradients_together_or_not_at_all() {
        let (mut a, mut b) = ([3.0f64], [0.0, 4.0]);
        assert_eq!(squared_norm(&[&a, &b]), 25.0);
        clip_norm(&mut [&mut a, &mut b], 5.0, 10.0);
        assert_eq!((a, b), ([3.0], [0.0, 4.0]));
        clip_norm(&mut [&mut a, &mut b], 5.0, 1.0);
        assert_close(&[a[0], b[1]], &[0.6, 0.8], 1e-6);
    }
}
