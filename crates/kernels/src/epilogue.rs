//! Fused epilogue of a layer: norm, activation, and the dropout of the next layer's input, in one pass over the output.
//!
//! ```text
//! y = dropout(activation(norm(x)))        norm: none, or LayerNorm x̂ * w + b
//! ```
//!
//! The backward reads `y` and, with a norm, `x̂`. With ReLU it needs no mask: the derivative is 0 wherever `y` is 0.
//! Otherwise the mask is computed again.

use rayon::prelude::*;

use crate::Real;
use crate::activation::Activation;
use crate::dropout::Mask;
use crate::layer_norm::EPS;
use crate::rows::{RUN, add_in_order};
use crate::simd::{Isa, Level, dispatch};
use crate::work::{self, Cost};

/// Partial sums, kept in vector registers.
const LANES: usize = 16;

/// Activation and dropout.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a> {
    /// The activation.
    pub activation: Activation,
    /// The dropout mask; `None`: no dropout.
    pub mask: Option<Mask<'a>>,
}

/// The affine map of a norm.
#[derive(Debug, Clone, Copy)]
pub struct Affine<'a, T> {
    /// One per column.
    pub weight: &'a [T],
    /// One per column.
    pub bias: &'a [T],
}

impl Epilogue<'_> {
    /// Returns whether the input is not changed.
    pub fn is_identity(&self) -> bool {
        self.activation == Activation::Identity && self.mask.is_none()
    }

    /// Computes `x = dropout(activation(x))` in place; `x` is rows x `width`.
    pub fn forward<T: Real>(&self, x: &mut [T], width: usize) {
        if width == 0 || self.is_identity() {
            return;
        }
        let _work = work::begin("activation and dropout", || Cost::stream(size_of_val(x), size_of_val(x)));
        x.par_chunks_mut(RUN * width).enumerate().for_each(|(run, x)| {
            plain_forward::<T>(Level::best(), self.run(run), x, width);
        });
    }

    /// Computes the backward of [`Epilogue::forward`], whose output is `y`: turns the gradient of the output into that of
    /// the input, in place.
    pub fn backward<T: Real>(&self, y: &[T], grad: &mut [T], width: usize) {
        assert_eq!(y.len(), grad.len(), "length of the gradient");
        if width == 0 || self.is_identity() {
            return;
        }
        let size = size_of_val(y);
        let _work = work::begin("activation and dropout backward", || Cost::stream(2 * size, size));
        grad.par_chunks_mut(RUN * width).zip(y.par_chunks(RUN * width)).enumerate().for_each(
            |(run, (grad, y))| {
                plain_backward::<T>(Level::best(), self.run(run), y, grad, width);
            },
        );
    }

    /// Computes `y = dropout(activation(x̂ * weight + bias))`, where `x̂` is the LayerNorm of `x`. Replaces `x` by
    /// `x̂` and writes `1 / sqrt(var + eps)` of each row to `scales`.
    pub fn layer_norm<T: Real>(&self, affine: Affine<T>, x: &mut [T], scales: &mut [T], y: &mut [T]) {
        let width = affine.weight.len();
        assert!(x.len() == y.len() && x.len() == scales.len() * width, "matrices of equal size");
        if width == 0 {
            return;
        }
        let (size, more) = (size_of_val(x), size_of_val(scales));
        let _work = work::begin("norm, activation and dropout", || Cost::stream(size, 2 * size + more));
        let runs = x.par_chunks_mut(RUN * width).zip(y.par_chunks_mut(RUN * width));
        runs.zip(scales.par_chunks_mut(RUN)).enumerate().for_each(|(run, ((x, y), scales))| {
            norm_forward::<T>(Level::best(), self.run(run), affine, x, scales, y);
        });
    }

    /// Computes the backward of [`Epilogue::layer_norm`]: turns the gradient of `y` into that of the input, in place, and
    /// adds to the gradients of weight and bias.
    pub fn layer_norm_backward<T: Real>(
        &self,
        weight: &[T],
        [normal, scales, y]: [&[T]; 3],
        grad: &mut [T],
        [weight_grad, bias_grad]: [&mut [T]; 2],
    ) {
        let width = weight.len();
        assert!([normal.len(), y.len(), scales.len() * width] == [grad.len(); 3], "matrices of equal size");
        if width == 0 {
            return;
        }
        let (size, more) = (size_of_val(y), size_of_val(scales));
        let _work =
            work::begin("norm, activation and dropout backward", || Cost::stream(3 * size + more, size));
        let runs = grad.par_chunks_mut(RUN * width).zip(y.par_chunks(RUN * width));
        let runs = runs.zip(normal.par_chunks(RUN * width).zip(scales.par_chunks(RUN)));
        let sums = runs.enumerate().map(|(run, ((grad, y), (normal, scales)))| {
            let mut sums = vec![T::zero(); 2 * width];
            norm_backward::<T>(Level::best(), self.run(run), weight, [normal, scales, y], grad, &mut sums);
            sums
        });
        let sums: Vec<Vec<T>> = sums.collect();
        add_in_order(sums.iter().map(|s| &s[..width]), weight_grad);
        add_in_order(sums.iter().map(|s| &s[width..]), bias_grad);
    }

    /// Returns the run of rows with this index.
    fn run(&self, index: usize) -> Run<'_> {
        Run { epilogue: self, first: index * RUN }
    }
}

/// Consecutive rows of a task.
#[derive(Clone, Copy)]
struct Run<'a> {
    epilogue: &'a Epilogue<'a>,
    /// Index of the first row, for the mask.
    first: usize,
}

/// Applies activation and dropout to a row. The activation is selected outside of the loop, which is then vectorised.
#[inline(always)]
fn forward_row<T: Real>(epilogue: &Epilogue, row: usize, y: &mut [T]) {
    match epilogue.activation {
        Activation::Relu => forward_row_with(epilogue.mask, row, y, |y| Activation::Relu.at(y)),
        Activation::Elu => forward_row_with(epilogue.mask, row, y, |y| Activation::Elu.at(y)),
        activation => forward_row_with(epilogue.mask, row, y, |y| activation.at(y)),
    }
}

/// Applies `activation` and dropout to a row.
#[inline(always)]
fn forward_row_with<T: Real>(mask: Option<Mask>, row: usize, y: &mut [T], activation: impl Fn(T) -> T) {
    let Some(mask) = mask else {
        return y.iter_mut().for_each(|y| *y = activation(*y));
    };
    let scale: T = mask.scale();
    mask.row(row).for_each_run(y.len(), |first, keeps| {
        let run = y[first..].iter_mut().zip(keeps);
        run.for_each(|(y, &keep)| *y = if keep { activation(*y) * scale } else { T::zero() });
    });
}

/// Multiplies a row of gradients by the derivative of activation and dropout, whose output is `y`.
#[inline(always)]
fn backward_row<T: Real>(epilogue: &Epilogue, row: usize, y: &[T], grad: &mut [T]) {
    let scale = epilogue.mask.map_or(T::one(), |mask| mask.scale());
    if epilogue.activation == Activation::Relu {
        // The output of a dropped or negative element is 0, and so is its derivative.
        grad.iter_mut().zip(y).for_each(|(g, &y)| *g = if y > T::zero() { *g * scale } else { T::zero() });
        return;
    }
    let Some(mask) = epilogue.mask else {
        return grad.iter_mut().zip(y).for_each(|(g, &y)| *g *= epilogue.activation.derivative_at_output(y));
    };
    let unscale = scale.recip();
    mask.row(row).for_each_run(y.len(), |first, keeps| {
        let run = grad[first..].iter_mut().zip(&y[first..]).zip(keeps);
        run.for_each(|((g, &y), &keep)| {
            let slope = epilogue.activation.derivative_at_output(y * unscale);
            *g = if keep { *g * scale * slope } else { T::zero() };
        });
    });
}

/// Applies activation and dropout to rows without a norm.
#[inline(always)]
fn plain_forward_body<I: Isa, T: Real>(run: Run, x: &mut [T], width: usize) {
    for (r, x) in x.chunks_exact_mut(width).enumerate() {
        forward_row(run.epilogue, run.first + r, x);
    }
}
dispatch!(fn plain_forward[T: Real](run: Run, x: &mut [T], width: usize) = plain_forward_body);

#[inline(always)]
fn plain_backward_body<I: Isa, T: Real>(run: Run, y: &[T], grad: &mut [T], width: usize) {
    for (r, (y, grad)) in y.chunks_exact(width).zip(grad.chunks_exact_mut(width)).enumerate() {
        backward_row(run.epilogue, run.first + r, y, grad);
    }
}
dispatch!(fn plain_backward[T: Real](run: Run, y: &[T], grad: &mut [T], width: usize) = plain_backward_body);

#[inline(always)]
fn norm_forward_body<I: Isa, T: Real>(
    run: Run,
    affine: Affine<T>,
    x: &mut [T],
    scales: &mut [T],
    y: &mut [T],
) {
    let Affine { weight, bias } = affine;
    let width = weight.len();
    let n = T::of(width as f64);
    let rows = x.chunks_exact_mut(width).zip(y.chunks_exact_mut(width)).zip(scales);
    for (r, ((x, y), scale)) in rows.enumerate() {
        let mean = lane_sum(x, |_, x| x) / n;
        let variance = lane_sum(x, |_, x| (x - mean) * (x - mean)) / n;
        *scale = (variance + T::of(EPS)).sqrt().recip();
        let affine = weight.iter().zip(bias);
        x.iter_mut().zip(y.iter_mut()).zip(affine).for_each(|((x, y), (&weight, &bias))| {
            *x = (*x - mean) * *scale;
            *y = *x * weight + bias;
        });
        forward_row(run.epilogue, run.first + r, y);
    }
}
dispatch!(fn norm_forward[T: Real](run: Run, affine: Affine<T>, x: &mut [T], scales: &mut [T], y: &mut [T]) = norm_forward_body);

#[inline(always)]
fn norm_backward_body<I: Isa, T: Real>(
    run: Run,
    weight: &[T],
    [normal, scales, y]: [&[T]; 3],
    grad: &mut [T],
    sums: &mut [T],
) {
    let width = weight.len();
    let n = T::of(width as f64);
    let (weight_sums, bias_sums) = sums.split_at_mut(width);
    let rows = grad.chunks_exact_mut(width).zip(y.chunks_exact(width)).zip(normal.chunks_exact(width));
    for (r, (((grad, y), normal), &scale)) in rows.zip(scales).enumerate() {
        backward_row(run.epilogue, run.first + r, y, grad);
        for c in 0..width {
            weight_sums[c] += grad[c] * normal[c];
            bias_sums[c] += grad[c];
            grad[c] *= weight[c];
        }
        let mean = lane_sum(grad, |_, g| g) / n;
        let mean_gx = lane_sum(grad, |c, g| g * normal[c]) / n;
        grad.iter_mut().zip(normal).for_each(|(g, &x)| *g = scale * (*g - mean - x * mean_gx));
    }
}
dispatch!(fn norm_backward[T: Real](run: Run, weight: &[T], saved: [&[T]; 3], grad: &mut [T], sums: &mut [T]) = norm_backward_body);

/// Returns `Σ term(c, x[c])`, summed in [`LANES`] partial sums.
#[inline(always)]
fn lane_sum<T: Real>(x: &[T], term: impl Fn(usize, T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let whole = x.len() / LANES * LANES;
    for (i, chunk) in x[..whole].chunks_exact(LANES).enumerate() {
        for (l, lane) in lanes.iter_mut().enumerate() {
            *lane += term(i * LANES + l, chunk[l]);
        }
    }
    for (l, &x) in x[whole..].iter().enumerate() {
        lanes[l] += term(whole + l, x);
    }
    lanes.into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dropout::{dropout, dropout_in_place};
    use crate::keyed::Key;
    use crate::layer_norm;
    use crate::testing::{assert_close, noise};

    const ACTIVATIONS: [Activation; 4] =
        [Activation::Identity, Activation::Relu, Activation::Elu, Activation::LeakyRelu(0.2)];

    /// Calls `check` for all activations, with and without dropout, and matrices of several sizes.
    fn each_case(check: impl Fn(Epilogue, usize, usize)) {
        let ids: Vec<u32> = (0..2100).map(|i| 7 * i + 3).collect();
        for (rows, width) in [(1, 1), (3, 7), (5, 41), (2100, 16), (2, 257), (0, 4)] {
            for activation in ACTIVATIONS {
                for p in [0.0, 0.4] {
                    let mask = Mask::new(Key::new(5, "tail"), p, Some(&ids));
                    check(Epilogue { activation, mask }, rows, width);
                }
            }
        }
    }

    /// Applies activation and dropout by the unfused kernels. Returns the outputs of both.
    fn unfused(epilogue: &Epilogue, mut x: Vec<f64>, width: usize) -> (Vec<f64>, Vec<f64>) {
        x.iter_mut().for_each(|x| *x = epilogue.activation.at(*x));
        let mut y = x.clone();
        if let Some(mask) = epilogue.mask {
            dropout(&x, width, mask, &mut y);
        }
        (x, y)
    }

    /// Computes the backward of [`unfused`].
    fn unfused_backward(epilogue: &Epilogue, active: &[f64], grad: &mut [f64], width: usize) {
        if let Some(mask) = epilogue.mask {
            dropout_in_place(grad, width, mask);
        }
        grad.iter_mut().zip(active).for_each(|(g, &y)| *g *= epilogue.activation.derivative_at_output(y));
    }

    #[test]
    fn activation_and_dropout_match_unfused_kernels() {
        each_case(|epilogue, rows, width| {
            let (x, g) = (noise::<f64>(1, rows * width), noise::<f64>(2, rows * width));
            let (active, want) = unfused(&epilogue, x.clone(), width);
            let mut y = x;
            epilogue.forward(&mut y, width);
            assert_close(&y, &want, 1e-15);
            let (mut got, mut want) = (g.clone(), g);
            epilogue.backward(&y, &mut got, width);
            unfused_backward(&epilogue, &active, &mut want, width);
            assert_close(&got, &want, 1e-12);
        });
    }

    #[test]
    fn layer_norm_activation_and_dropout_match_unfused_kernels() {
        each_case(|epilogue, rows, width| {
            let (x, g) = (noise::<f64>(1, rows * width), noise::<f64>(2, rows * width));
            let (weight, bias) = (noise::<f64>(3, width), noise::<f64>(4, width));
            let mut normal = x.clone();
            let want_scales = layer_norm::reference::normalize(&mut normal, width);
            let mut out = vec![0.0; x.len()];
            layer_norm::affine(&normal, &weight, &bias, &mut out);
            let (active, want) = unfused(&epilogue, out, width);

            let (mut got_normal, mut scales, mut y) = (x.clone(), vec![0.0; rows], vec![f64::NAN; x.len()]);
            let affine = Affine { weight: &weight, bias: &bias };
            epilogue.layer_norm(affine, &mut got_normal, &mut scales, &mut y);
            assert_close(&got_normal, &normal, 1e-9);
            assert_close(&scales, &want_scales, 1e-9);
            assert_close(&y, &want, 1e-9);

            let (mut want, mut want_weight, mut want_bias) = (g.clone(), vec![1.0; width], vec![2.0; width]);
            unfused_backward(&epilogue, &active, &mut want, width);
            layer_norm::affine_backward(&normal, &want, &mut want_weight, &mut want_bias);
            layer_norm::reference::backward(&normal, &want_scales, &weight, &mut want);
            let (mut got, mut dw, mut db) = (g, vec![1.0; width], vec![2.0; width]);
            let saved = [&got_normal[..], &scales, &y];
            epilogue.layer_norm_backward(&weight, saved, &mut got, [&mut dw, &mut db]);
            assert_close(&got, &want, 1e-8);
            assert_close(&dw, &want_weight, 1e-9);
            assert_close(&db, &want_bias, 1e-9);
        });
    }

    #[test]
    fn all_levels_match_the_portable_one() {
        let (rows, width) = (40, 100);
        let mask = Mask::new(Key::new(5, "tail"), 0.5, None);
        let epilogue = Epilogue { activation: Activation::Relu, mask };
        let (weight, bias) = (noise::<f32>(3, width), noise::<f32>(4, width));
        let run = |level| {
            let (mut x, mut scales, mut y) =
                (noise::<f32>(1, rows * width), vec![0.0; rows], vec![0.0; rows * width]);
            let affine = Affine { weight: &weight, bias: &bias };
            norm_forward::<f32>(level, epilogue.run(0), affine, &mut x, &mut scales, &mut y);
            let (mut grad, mut sums) = (noise::<f32>(2, rows * width), vec![0.0; 2 * width]);
            norm_backward::<f32>(level, epilogue.run(0), &weight, [&x, &scales, &y], &mut grad, &mut sums);
            [y, grad, sums].concat().into_iter().map(f64::from).collect::<Vec<_>>()
        };
        let want = run(Level::Portable);
        Level::available().into_iter().for_each(|level| assert_close(&run(level), &want, 1e-5));
    }

    #[test]
    fn nan_is_propagated() {
        for activation in ACTIVATIONS {
            let mut x = [f32::NAN, 1.0];
            Epilogue { activation, mask: None }.forward(&mut x, 2);
            assert!(x[0].is_nan());
            assert_eq!(x[1], 1.0);
        }
    }
}
