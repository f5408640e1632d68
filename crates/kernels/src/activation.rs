//! Element-wise activations and their derivatives.

use crate::Real;

/// An activation function.
///
/// The derivative is computed from the *output*, which has the sign of the input, so the input need not be stored. At 0
/// it is that of the negative side, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Activation {
    /// `x`.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `x` above 0, `exp(x) - 1` below.
    Elu,
    /// `x` above 0, `slope * x` below; the slope must be positive.
    LeakyRelu(f64),
}

impl Activation {
    /// Returns the value at `x`.
    #[inline(always)]
    pub fn at<T: Real>(self, x: T) -> T {
        match self {
            Activation::Identity => x,
            _ if x > T::zero() => x,
            // `max` would turn NaN into 0.
            Activation::Relu => x * T::zero(),
            Activation::Elu => x.expm1_negative(),
            Activation::LeakyRelu(slope) => x * T::of(slope),
        }
    }

    /// Returns the derivative at the input whose output is `y`.
    #[inline(always)]
    pub fn derivative_at_output<T: Real>(self, y: T) -> T {
        match self {
            Activation::Identity => T::one(),
            _ if y > T::zero() => T::one(),
            Activation::Relu => T::zero(),
            Activation::Elu => y + T::one(),
            Activation::LeakyRelu(slope) => T::of(slope),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_gradient, dot, noise};

    const ALL: [Activation; 4] =
        [Activation::Identity, Activation::Relu, Activation::Elu, Activation::LeakyRelu(0.2)];

    #[test]
    fn values_match_closed_forms() {
        let x = [-2.0f64, -0.5, 0.0, 3.0];
        let want = [
            x,
            [0.0, 0.0, 0.0, 3.0],
            [(-2.0f64).exp() - 1.0, (-0.5f64).exp() - 1.0, 0.0, 3.0],
            [-0.4, -0.1, 0.0, 3.0],
        ];
        for (activation, want) in ALL.into_iter().zip(want) {
            assert_close(&x.map(|x| activation.at(x)), &want, 1e-15);
        }
    }

    #[test]
    fn derivatives_match_finite_differences() {
        let (x, g) = (noise(1, 40), noise(2, 40));
        for activation in ALL {
            let value = |x: &[f64]| x.iter().map(|&x| activation.at(x)).collect::<Vec<_>>();
            let grad = value(&x)
                .iter()
                .zip(&g)
                .map(|(&y, g)| g * activation.derivative_at_output(y))
                .collect::<Vec<_>>();
            assert_gradient(&x, &grad, |x| dot(&g, &value(x)));
        }
    }

    #[test]
    fn nan_is_propagated() {
        for activation in ALL {
            assert!(activation.at(f32::NAN).is_nan(), "{activation:?}");
        }
    }
}
