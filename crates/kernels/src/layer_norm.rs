//! Layer normalisation: normalises every row to mean 0 and variance 1, then applies an affine map.
//! [`crate::epilogue`] computes it; this module has its parameters and the affine map, which batch norm uses too.
//!
//! Ba, Kiros, Hinton, *Layer Normalization* (2016):
//! `y = (x - mean(x)) / sqrt(var(x) + eps) * w + b`, with the biased variance over the columns of a row.

use rayon::prelude::*;

use crate::Real;
use crate::rows::sum_over_rows;
use crate::work::{self, Cost};

/// Added to the variance, as in PyTorch.
pub const EPS: f64 = 1e-5;

/// Computes `out = x̂ * weight + bias`, with `x̂` in `normal`.
pub fn affine<T: Real>(normal: &[T], weight: &[T], bias: &[T], out: &mut [T]) {
    assert_eq!(normal.len(), out.len(), "length of the output");
    let width = weight.len();
    if width == 0 {
        return;
    }
    let _work = work::begin("affine", || Cost::stream(size_of_val(normal), size_of_val(normal)));
    out.par_chunks_mut(width).zip(normal.par_chunks(width)).for_each(|(out, normal)| {
        for (c, o) in out.iter_mut().enumerate() {
            *o = normal[c] * weight[c] + bias[c];
        }
    });
}

/// Computes the backward of [`affine`] with respect to its parameters: `weight_grad += Σ_r g * x̂`,
/// `bias_grad += Σ_r g`.
pub fn affine_backward<T: Real>(normal: &[T], grad: &[T], weight_grad: &mut [T], bias_grad: &mut [T]) {
    assert_eq!(normal.len(), grad.len(), "length of the gradient");
    let width = weight_grad.len();
    if width == 0 {
        return;
    }
    let _work = work::begin("affine backward", || Cost::stream(2 * size_of_val(normal), 0));
    let mut sums = vec![T::zero(); 2 * width];
    sum_over_rows(grad.len() / width, &mut sums, |run, sums| {
        let run = run.start * width..run.end * width;
        let (weight_sums, bias_sums) = sums.split_at_mut(width);
        for (i, &g) in run.clone().zip(&grad[run]) {
            weight_sums[i % width] += g * normal[i];
            bias_sums[i % width] += g;
        }
    });
    weight_grad.iter_mut().zip(&sums[..width]).for_each(|(g, &s)| *g += s);
    bias_grad.iter_mut().zip(&sums[width..]).for_each(|(g, &s)| *g += s);
}

/// Unfused layer norm, the reference for tests.
#[cfg(test)]
pub(crate) mod reference {
    use super::EPS;

    /// Normalises `x` (rows x `width`) to `x̂` in place. Returns `1 / sqrt(var + eps)` of each row.
    pub(crate) fn normalize(x: &mut [f64], width: usize) -> Vec<f64> {
        let n = width as f64;
        let normalize_row = |x: &mut [f64]| {
            let mean = x.iter().sum::<f64>() / n;
            x.iter_mut().for_each(|x| *x -= mean);
            let variance = x.iter().map(|x| x * x).sum::<f64>() / n;
            let scale = (variance + EPS).sqrt().recip();
            x.iter_mut().for_each(|x| *x *= scale);
            scale
        };
        x.chunks_mut(width).map(normalize_row).collect()
    }

    /// Turns the gradient of the output of norm and affine map into that of the input, in place.
    ///
    /// With `u = g * w`: `dx = scale * (u - mean(u) - x̂ * mean(u * x̂))`, means over the columns of a row.
    pub(crate) fn backward(normal: &[f64], scales: &[f64], weight: &[f64], grad: &mut [f64]) {
        let n = weight.len() as f64;
        let rows = grad.chunks_mut(weight.len()).zip(normal.chunks(weight.len())).zip(scales);
        for ((grad, normal), scale) in rows {
            grad.iter_mut().zip(weight).for_each(|(g, w)| *g *= w);
            let mean = grad.iter().sum::<f64>() / n;
            let mean_gx = grad.iter().zip(normal).map(|(g, x)| g * x).sum::<f64>() / n;
            grad.iter_mut().zip(normal).for_each(|(g, x)| *g = scale * (*g - mean - x * mean_gx));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reference::{backward, normalize};
    use super::*;
    use crate::testing::{assert_close, assert_gradient, dot, noise};

    const WIDTH: usize = 6;
    const ROWS: usize = 4;

    fn forward(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let mut normal = x.to_vec();
        normalize(&mut normal, WIDTH);
        let mut out = vec![0.0; x.len()];
        affine(&normal, weight, bias, &mut out);
        out
    }

    #[test]
    fn a_row_of_two_matches_the_closed_form() {
        let mut x = [1.0f64, 5.0];
        let scales = normalize(&mut x, 2);
        let scale = 1.0 / (4.0 + EPS).sqrt();
        assert_close(&x, &[-2.0 * scale, 2.0 * scale], 1e-15);
        assert_close(&scales, &[scale], 1e-15);
        let mut out = [0.0; 2];
        affine(&x, &[10.0, 3.0], &[1.0, -1.0], &mut out);
        assert_close(&out, &[1.0 - 20.0 * scale, 6.0 * scale - 1.0], 1e-14);
    }

    #[test]
    fn gradients_match_finite_differences() {
        let (x, g) = (noise::<f64>(1, ROWS * WIDTH), noise::<f64>(2, ROWS * WIDTH));
        let (weight, bias) = (noise::<f64>(3, WIDTH), noise::<f64>(4, WIDTH));
        let mut normal = x.clone();
        let scales = normalize(&mut normal, WIDTH);
        let (mut dw, mut db) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);
        affine_backward(&normal, &g, &mut dw, &mut db);
        let mut dx = g.clone();
        backward(&normal, &scales, &weight, &mut dx);
        assert_gradient(&x, &dx, |x| dot(&g, &forward(x, &weight, &bias)));
        assert_gradient(&weight, &dw, |weight| dot(&g, &forward(&x, weight, &bias)));
        assert_gradient(&bias, &db, |bias| dot(&g, &forward(&x, &weight, bias)));
    }
}
