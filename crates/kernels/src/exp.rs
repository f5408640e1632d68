//! Vectorisable exponential functions.

use crate::simd::Isa;

/// Smallest x for which e^x is a normal number.
const SMALLEST: f32 = -87.336_54;
/// An x for which e^x is infinite.
const LARGEST: f32 = 89.0;

/// ln 2 as a sum of two numbers; the first has so few bits that its product with a small integer is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// 1.5 * 2^23: adding it rounds a float to an integer, which is then in the lowest bits.
const SHIFT: f32 = 12_582_912.0;

/// Returns e^x within 2 units in the last place; 0 where e^x is subnormal. Has no branch, so that loops over arrays are
/// vectorised.
#[inline(always)]
pub(crate) fn exp<I: Isa>(x: f32) -> f32 {
    // Comparisons with NaN are false, so NaN is propagated.
    let bounded = if x > LARGEST { LARGEST } else { x };
    // e^x = 2^n e^r, |r| <= ln 2 / 2.
    let shifted = I::mul_add(bounded, std::f32::consts::LOG2_E, SHIFT);
    let n = shifted - SHIFT;
    let r = I::mul_add(n, -LN_2[1], I::mul_add(n, -LN_2[0], bounded));
    // Taylor series with an error below 6e-9.
    let mut sum = 1.0 / 5040.0;
    for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = I::mul_add(sum, r, term);
    }
    let n = shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32;
    // In two factors: e^88.7 is finite, but 2^128 is not.
    let half = n >> 1;
    let result = sum * power_of_2(half) * power_of_2(n.wrapping_sub(half));
    if x < SMALLEST { 0.0 } else { result }
}

/// Returns e^x - 1 for `x` up to 0 within 2 units in the last place; 0 for -0. Has no branch, as [`exp`], and the same result on all
/// instruction sets.
#[inline(always)]
pub(crate) fn expm1_negative(x: f32) -> f32 {
    // Comparisons with NaN are false, so NaN is propagated.
    let bounded = if x < -87.0 { -87.0 } else { x };
    let shifted = bounded * std::f32::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = (bounded - n * LN_2[0]) - n * LN_2[1];
    // e^r - 1 by its Taylor series, without the cancellation of a subtraction.
    let mut sum = 1.0 / 5040.0;
    for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        sum = sum * r + term;
    }
    let small = r + r * r * sum;
    let power = power_of_2(shifted.to_bits().wrapping_sub(SHIFT.to_bits()) as i32);
    power * small + (power - 1.0)
}

/// Returns 2^n, for exponents of normal numbers.
#[inline(always)]
fn power_of_2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Level, dispatch};

    #[inline(always)]
    fn exps_body<I: Isa>(x: &[f32], out: &mut [f32]) {
        out.iter_mut().zip(x).for_each(|(o, &x)| *o = exp::<I>(x));
    }

    dispatch!(fn exps(x: &[f32], out: &mut [f32]) = exps_body);

    #[test]
    fn matches_double_precision_where_the_result_is_normal() {
        let x: Vec<f32> = (0..2_000_000).map(|i| SMALLEST + i as f32 * 8.8e-5).collect();
        for level in Level::available() {
            let mut got = vec![f32::NAN; x.len()];
            exps(level, &x, &mut got);
            for (&x, &got) in x.iter().zip(&got) {
                let want = (x as f64).exp();
                if want > f32::MAX as f64 {
                    assert_eq!(got, f32::INFINITY, "e^{x}");
                } else {
                    let error = (got as f64 / want - 1.0).abs();
                    assert!(error < 2.0 * f32::EPSILON as f64, "{level:?}: e^{x} is {got}, expected {want}");
                }
            }
        }
    }

    #[test]
    fn e_to_the_x_minus_1_matches_double_precision() {
        let even = (0..2_000_000).map(|i| i as f32 * -5e-5);
        let small = (0..400).map(|i| -(0.8f32.powi(i)));
        for x in even.chain(small).chain([-1e-30, -1e30, f32::NEG_INFINITY]) {
            let (got, want) = (expm1_negative(x) as f64, (x as f64).exp_m1());
            assert!((got - want).abs() <= f32::EPSILON as f64 * want.abs(), "{x}: {got}, expected {want}");
        }
        assert!(expm1_negative(f32::NAN).is_nan());
    }

    #[test]
    fn extreme_arguments_give_zero_infinity_and_nan() {
        let x = [0.0, -0.0, -88.0, -104.0, -1e30, f32::NEG_INFINITY, 1e30, f32::INFINITY, f32::NAN];
        for level in Level::available() {
            let mut got = [9.0; 9];
            exps(level, &x, &mut got);
            assert_eq!(got[..8], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, f32::INFINITY, f32::INFINITY]);
            assert!(got[8].is_nan());
        }
    }
}
