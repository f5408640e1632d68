//! Losses over a subset of rows, and their gradients.
//!
//! A loss is the sum over the listed rows divided by a *global* total, so the losses of ranks add up to the global
//! loss. Sums are in double precision, in the order of the listed rows. Classes may have weights, with the meaning that
//! they have in PyTorch.

use rayon::prelude::*;

use crate::Real;
use crate::buffer::Buffer;
use crate::work::{self, Cost};

/// Returns the softmax cross-entropy `Σ_i w[y_i] (log Σ_c exp(z[r_i, c]) - z[r_i, y_i]) / total` and writes its gradient.
///
/// `logits` and `grad` are nodes x `width`. `rows` lists the rows of the sum, each at most once, and `targets` the
/// class of each of them. `weights` has the weight of each class; `None`: 1. For the mean that PyTorch computes, `total` is
/// the sum of `w[y_i]` over all ranks; a total of 0 gives a loss of 0. `grad` is overwritten; it is 0 in rows that are not
/// listed.
pub fn cross_entropy<T: Real>(
    logits: &[T],
    width: usize,
    rows: &[u32],
    targets: &[u32],
    (weights, total): (Option<&[f64]>, f64),
    grad: &mut [T],
) -> f64 {
    assert_eq!(rows.len(), targets.len(), "one class per row");
    let scale = inverse(total);
    let row_loss = |(z, g): (&[T], &mut [T]), target: usize| {
        let weight = weights.map_or(1.0, |weights| weights[target]);
        let top = z.iter().copied().fold(T::neg_infinity(), T::max);
        g.iter_mut().zip(z).for_each(|(g, &z)| *g = (z - top).exp());
        let sum: T = g.iter().copied().sum();
        let scale = T::of(scale * weight);
        g.iter_mut().for_each(|g| *g *= scale / sum);
        g[target] -= scale;
        weight * (sum.ln() + top - z[target]).wide()
    };
    over_rows(logits, width, rows, grad, |i, pair| row_loss(pair, targets[i] as usize)) * scale
}

/// Returns the binary cross-entropy with logits `Σ_i Σ_c p_c (log(1 + exp(z)) - y z) / total` and writes its gradient, where
/// p_c is the weight of class c if y is 1, and 1 if y is 0: PyTorch's `pos_weight`.
///
/// `targets` (`rows.len()` x `width`) is 0 or 1 for each listed row and class. For the mean that PyTorch computes,
/// `total` is rows times classes over all ranks. The other arguments are as in [`cross_entropy`].
pub fn bce_with_logits<T: Real>(
    logits: &[T],
    width: usize,
    rows: &[u32],
    targets: &[u8],
    (weights, total): (Option<&[f64]>, f64),
    grad: &mut [T],
) -> f64 {
    assert_eq!(targets.len(), rows.len() * width, "one target per row and class");
    let scale = inverse(total);
    let row_loss = |(z, g): (&[T], &mut [T]), targets: &[u8]| {
        let mut loss = 0.0;
        for (c, (&z, g)) in z.iter().zip(g).enumerate() {
            let y = T::of(targets[c] as f64);
            let weight = weights.filter(|_| targets[c] != 0).map_or(1.0, |weights| weights[c]);
            // log(1 + exp(z)) = max(z, 0) + log(1 + exp(-|z|)), which cannot overflow.
            loss += weight * (z.max(T::zero()) - y * z + (-z.abs()).exp().ln_1p()).wide();
            *g = ((T::one() + (-z).exp()).recip() - y) * T::of(scale * weight);
        }
        loss
    };
    over_rows(logits, width, rows, grad, |i, pair| row_loss(pair, &targets[i * width..(i + 1) * width]))
        * scale
}

/// Returns 1 / `total`; 0 for a total of 0.
fn inverse(total: f64) -> f64 {
    if total > 0.0 { 1.0 / total } else { 0.0 }
}

/// Returns the sum of `row_loss(i, (logits, gradient))` over the listed rows, and sets the gradient of other rows to 0.
fn over_rows<T: Real>(
    logits: &[T],
    width: usize,
    rows: &[u32],
    grad: &mut [T],
    row_loss: impl Fn(usize, (&[T], &mut [T])) -> f64 + Sync,
) -> f64 {
    assert_eq!(logits.len(), grad.len(), "length of the gradient");
    assert!(width > 0, "at least one class");
    let read = rows.len() * (width * size_of::<T>() + 2 * size_of::<u32>());
    let _work = work::begin("loss", || Cost::stream(read, size_of_val(grad)));
    const UNLISTED: u32 = u32::MAX;
    let mut index = Buffer::unspecified(logits.len() / width);
    index.fill(UNLISTED);
    rows.iter().enumerate().for_each(|(i, &r)| index[r as usize] = i as u32);
    let mut losses = Buffer::unspecified(index.len());
    let of_rows = grad.par_chunks_mut(width).zip(logits.par_chunks(width)).zip(&index[..]);
    losses.par_iter_mut().zip(of_rows).for_each(|(loss, ((grad, logits), &i))| {
        *loss = if i == UNLISTED {
            grad.fill(T::zero());
            0.0
        } else {
            row_loss(i as usize, (logits, grad))
        };
    });
    rows.iter().map(|&r| losses[r as usize]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, assert_gradient, noise};

    const NODES: usize = 6;
    const WIDTH: usize = 4;
    const ROWS: [u32; 3] = [4, 0, 3];
    const TOTAL: f64 = 5.0;

    #[test]
    fn cross_entropy_is_minus_log_softmax() {
        let z = noise::<f64>(1, NODES * WIDTH);
        let targets = [2, 0, 3];
        let slow = |z: &[f64]| {
            let of_row = |(&r, &y): (&u32, &u32)| {
                let z = &z[r as usize * WIDTH..][..WIDTH];
                -(z[y as usize].exp() / z.iter().map(|z| z.exp()).sum::<f64>()).ln()
            };
            ROWS.iter().zip(&targets).map(of_row).sum::<f64>() / TOTAL
        };
        let mut grad = vec![f64::NAN; z.len()];
        let loss = cross_entropy(&z, WIDTH, &ROWS, &targets, (None, TOTAL), &mut grad);
        assert_close(&[loss], &[slow(&z)], 1e-14);
        assert_gradient(&z, &grad, slow);
    }

    #[test]
    fn binary_cross_entropy_is_minus_log_sigmoid() {
        let z = noise::<f64>(2, NODES * WIDTH);
        let targets = [1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1];
        let slow = |z: &[f64]| {
            let of = |(i, &y): (usize, &u8)| {
                let z = z[ROWS[i / WIDTH] as usize * WIDTH + i % WIDTH];
                let p = 1.0 / (1.0 + (-z).exp());
                -if y == 1 { p.ln() } else { (1.0 - p).ln() }
            };
            targets.iter().enumerate().map(of).sum::<f64>() / TOTAL
        };
        let mut grad = vec![f64::NAN; z.len()];
        let loss = bce_with_logits(&z, WIDTH, &ROWS, &targets, (None, TOTAL), &mut grad);
        assert_close(&[loss], &[slow(&z)], 1e-14);
        assert_gradient(&z, &grad, slow);
    }

    #[test]
    fn weights_scale_rows_of_a_class_and_positive_targets() {
        let (z, weights) = (noise::<f64>(3, NODES * WIDTH), [0.5, 1.0, 0.0, 3.0]);
        let (classes, flags) = ([3, 0, 2], [1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
        let (mut grad, mut one) = (vec![f64::NAN; z.len()], vec![f64::NAN; z.len()]);
        let mut sum = 0.0;
        for (row, class) in ROWS.iter().zip(&classes) {
            sum += weights[*class as usize]
                * cross_entropy(&z, WIDTH, &[*row], &[*class], (None, TOTAL), &mut one);
        }
        let given = (Some(&weights[..]), TOTAL);
        assert_close(&[cross_entropy(&z, WIDTH, &ROWS, &classes, given, &mut grad)], &[sum], 1e-14);
        let again = |z: &[f64]| cross_entropy(z, WIDTH, &ROWS, &classes, given, &mut vec![0.0; z.len()]);
        assert_gradient(&z, &grad, again);

        let slow = |z: &[f64]| {
            let of = |(i, &y): (usize, &u8)| {
                let p = 1.0 / (1.0 + (-z[ROWS[i / WIDTH] as usize * WIDTH + i % WIDTH]).exp());
                -if y == 1 { weights[i % WIDTH] * p.ln() } else { (1.0 - p).ln() }
            };
            flags.iter().enumerate().map(of).sum::<f64>() / TOTAL
        };
        let loss = bce_with_logits(&z, WIDTH, &ROWS, &flags, given, &mut grad);
        assert_close(&[loss], &[slow(&z)], 1e-14);
        assert_gradient(&z, &grad, slow);
    }

    #[test]
    fn weights_of_one_change_no_bit() {
        let (z, ones) = (noise::<f32>(4, NODES * WIDTH), [1.0; WIDTH]);
        let (mut plain, mut weighted) = (vec![f32::NAN; z.len()], vec![f32::NAN; z.len()]);
        let a = cross_entropy(&z, WIDTH, &ROWS, &[2, 0, 3], (None, 3.0), &mut plain);
        let b = cross_entropy(&z, WIDTH, &ROWS, &[2, 0, 3], (Some(&ones), 3.0), &mut weighted);
        assert_eq!((a, &plain), (b, &weighted));
    }

    #[test]
    fn extreme_logits_stay_finite() {
        let z = [1000.0f32, -1000.0];
        let mut grad = [f32::NAN; 2];
        assert_eq!(cross_entropy(&z, 2, &[0], &[1], (None, 1.0), &mut grad), 2000.0);
        assert_eq!(grad, [1.0, -1.0]);
        assert_eq!(bce_with_logits(&z, 2, &[0], &[0, 1], (None, 1.0), &mut grad), 2000.0);
        assert_eq!(grad, [1.0, -1.0]);
    }

    #[test]
    fn the_loss_of_no_rows_is_zero() {
        let mut grad = [f64::NAN; 2];
        assert_eq!(cross_entropy(&[1.0, 2.0], 2, &[], &[], (None, 0.0), &mut grad), 0.0);
        assert_eq!(grad, [0.0, 0.0]);
    }
}
