//! Floating-point types of kernels.

use std::any::TypeId;
use std::fmt::{Debug, Display};
use std::iter::Sum;

use bytemuck::Pod;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use half::f16;
use half::slice::HalfFloatSliceExt;
use num_traits::{Float, NumAssign};

use crate::exp;

/// Floating-point type of a computation: `f32` for speed, `f64` to tell bugs from rounding errors.
pub trait Real: Float + NumAssign + Sum + Default + Debug + Display + Pod + Send + Sync {
    /// Returns the nearest value to `x`.
    fn of(x: f64) -> Self;

    /// Returns the value in double precision.
    fn wide(self) -> f64;

    /// Returns e^x - 1 for `x` up to 0, within 2 units in the last place; NaN for NaN. In `f32` without a branch or a call,
    /// so that loops over arrays are vectorised.
    fn expm1_negative(self) -> Self;

    /// Converts half-precision numbers.
    fn widen(half: &[f16], out: &mut [Self]);

    /// Computes `C = alpha * A * B`, or `C += alpha * A * B` with `accumulate`, on the calling thread. `shape` is
    /// `[m, k, n]`, where A is m x k and B is k x n; `strides` are the row and column strides of A, B and C.
    ///
    /// # Safety
    /// All elements given by shapes and strides must lie inside their allocations. Elements of C must be distinct from
    /// each other and from those of A and B.
    unsafe fn multiply(
        shape: [usize; 3],
        alpha: Self,
        factors: [*const Self; 2],
        accumulate: bool,
        product: *mut Self,
        strides: [[isize; 2]; 3],
    );
}

/// Casts `x` to `f32`, if `T` is `f32`: selects kernels that are written for `f32`.
pub(crate) fn single<T: Real>(x: &[T]) -> Option<&[f32]> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| bytemuck::cast_slice(x))
}

/// As [`single`], mutably.
pub(crate) fn single_mut<T: Real>(x: &mut [T]) -> Option<&mut [f32]> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| bytemuck::cast_slice_mut(x))
}

macro_rules! real {
    ($type:ty, $expm1:expr, $widen:expr) => {
        impl Real for $type {
            #[inline]
            fn of(x: f64) -> Self {
                x as $type
            }

            #[inline]
            fn wide(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn expm1_negative(self) -> Self {
                $expm1(self)
            }

            fn widen(half: &[f16], out: &mut [Self]) {
                $widen(half, out)
            }

            unsafe fn multiply(
                [m, k, n]: [usize; 3],
                alpha: Self,
                [a, b]: [*const Self; 2],
                accumulate: bool,
                c: *mut Self,
                [sa, sb, sc]: [[isize; 2]; 3],
            ) {
                // SAFETY: the caller guarantees the requirements of the library.
                let (a, b, c) = unsafe {
                    (
                        MatRef::from_raw_parts(a, m, k, sa[0], sa[1]),
                        MatRef::from_raw_parts(b, k, n, sb[0], sb[1]),
                        MatMut::from_raw_parts_mut(c, m, n, sc[0], sc[1]),
                    )
                };
                matmul(c, if accumulate { Accum::Add } else { Accum::Replace }, a, b, alpha, Par::Seq);
            }
        }
    };
}

real!(f32, exp::expm1_negative, |half: &[f16], out: &mut [f32]| half.convert_to_f32_slice(out));
real!(f64, f64::exp_m1, |half: &[f16], out: &mut [f64]| half.convert_to_f64_slice(out));
