//! Losses over a subset of rows, and their gradients.
//!
//! A loss is the sum over the listed rows divided by a *global* count, so the losses of ranks add up to the global
//! loss. Sums are in double precision, in the order of the listed rows.

use rayon::prelude::*;

use crate::Real;
use crate::buffer::Buffer;
use crate::work::{self, Cost};

/// Returns the softmax cross-entropy `Σ_i (log Σ_c exp(z[r_i, c]) - z[r_i, y_i]) / count` and writes its gradient.
///
/// `logits` and `grad` are nodes x `width`. `rows` lists the rows of the sum, each at most once, and `targets` the
/// class of each of them. `grad` is overwritten; it is 0 in rows that are not listed.
pub fn cross_entropy<T: Real>(
    logits: &[T],
    width: usize,
    rows: &[u32],
    targets: &[u32],
    count: u64,
    grad: &mut [T],
) -> f64 {
    assert_eq!(rows.len(), targets.len(), "one class per row");
    let scale = 1.0 / count.max(1) as f64;
    let row_loss = |(z, g): (&[T], &mut [T]), target: usize| {
        let top = z.iter().copied().fold(T::neg_infinity(), T::max);
        g.iter_mut().zip(z).for_each(|(g, &z)| *g = (z - top).exp());
        let sum: T = g.iter().copied().sum();
        g.iter_mut().for_each(|g| *g *= T::of(scale) / sum);
        g[target] -= T::of(scale);
        (sum.ln() + top - z[target]).wide()
    };
    over_rows(logits, width, rows, grad, |i, pair| row_loss(pair, targets[i] as usize)) * scale
}

/// Returns the binary cross-entropy with logits `Σ_i Σ_c (log(1 + exp(z)) - y z) / count` and writes its gradient.
///
/// `targets` (`rows.len()` x `width`) is 0 or 1 for each listed row and class. For the mean that PyTorch computes,
/// `count` is rows times classes over all ranks. The other arguments are as in [`cross_entropy`].
pub fn bce_with_logits<T: Real>(
    logits: &[T],
    width: usize,
    rows: &[u32],
    targets: &[u8],
    count: u64,
    grad: &mut [T],
) -> f64 {
    assert_eq!(targets.len(), rows.len() * width, "one target per row and class");
    let scale = 1.0 / count.max(1) as f64;
    let row_loss = |(z, g): (&[T], &mut [T]), targets: &[u8]| {
        let mut loss = 0.0;
        for (c, (&z, g)) in z.iter().zip(g).enumerate() {
            let y = T::of(targets[c] as f64);
            // log(1 + exp(z)) = max(z, 0) + log(1 + exp(-|z|)), which cannot overflow.
            loss += (z.max(T::zero()) - y * z + (-z.abs()).exp().ln_1p()).wide();
            *g = ((T::one() + (-z).exp()).recip() - y) * T::of(scale);
        }
        loss
    };
    over_rows(logits, width, rows, grad, |i, pair| row_loss(pair, &targets[i * width..(i + 1) * width]))
        * scale
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
    const COUNT: u64 = 5;

    #[test]
    fn cross_entropy_is_minus_log_softmax() {
        let z = noise::<f64>(1, NODES * WIDTH);
        let targets = [2, 0, 3];
        let slow = |z: &[f64]| {
            let of_row = |(&r, &y): (&u32, &u32)| {
                let z = &z[r as usize * WIDTH..][..WIDTH];
                -(z[y as usize].exp() / z.iter().map(|z| z.exp()).sum::<f64>()).ln()
            };
            ROWS.iter().zip(&targets).map(of_row).sum::<f64>() / COUNT as f64
        };
        let mut grad = vec![f64::NAN; z.len()];
        let loss = cross_entropy(&z, WIDTH, &ROWS, &targets, COUNT, &mut grad);
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
            targets.iter().enumerate().map(of).sum::<f64>() / COUNT as f64
        };
        let mut grad = vec![f64::NAN; z.len()];
        let loss = bce_with_logits(&z, WIDTH, &ROWS, &targets, COUNT, &mut grad);
        assert_close(&[loss], &[slow(&z)], 1e-14);
        assert_gradient(&z, &grad, slow);
    }

    #[test]
    fn extreme_logits_stay_finite() {
        let z = [1000.0f32, -1000.0];
        let mut grad = [f32::NAN; 2];
        assert_eq!(cross_entropy(&z, 2, &[0], &[1], 1, &mut grad), 2000.0);
        assert_eq!(grad, [1.0, -1.0]);
        assert_eq!(bce_with_logits(&z, 2, &[0], &[0, 1], 1, &mut grad), 2000.0);
        assert_eq!(grad, [1.0, -1.0]);
    }

    #[test]
    fn the_loss_of_no_rows_is_zero() {
        let mut grad = [f64::NAN; 2];
        assert_eq!(cross_entropy(&[1.0, 2.0], 2, &[], &[], 0, &mut grad), 0.0);
        assert_eq!(grad, [0.0, 0.0]);
    }
}
