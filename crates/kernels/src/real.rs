//! The numbers kernels compute with.

use std::any::TypeId;
use std::fmt::{Debug, Display};
use std::iter::Sum;

use bytemuck::Pod;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use half::f16;
use half::slice::HalfFloatSliceExt;
use num_traits::{Float, NumAssign};

/// `f32` for speed or `f64` for telling a bug from rounding.
pub trait Real: Float + NumAssign + Sum + Default + Debug + Display + Pod + Send + Sync {
    /// The nearest value to `x`.
    fn of(x: f64) -> Self;

    /// The same value in double precision.
    fn wide(self) -> f64;

    /// Values kept in half precision.
    fn widen(half: &[f16], out: &mut [Self]);

    /// `C = alpha * A * B`, or with `keep` added to what C holds, on the calling thread, for an `m x k` matrix A and a `k x n` matrix B; `strides` are the
    /// row and column strides of A, B and C.
    ///
    /// # Safety
    /// Every element these shapes and strides reach must lie inside its allocation, and C's elements must be
    /// distinct from one another and from those of A and B.
    unsafe fn multiply(
        shape: [usize; 3],
        alpha: Self,
        factors: [*const Self; 2],
        keep: bool,
        product: *mut Self,
        strides: [[isize; 2]; 3],
    );
}

/// `x` itself if its numbers are `f32`: the way to kernels written for them.
pub(crate) fn single<T: Real>(x: &[T]) -> Option<&[f32]> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| bytemuck::cast_slice(x))
}

/// As [`single`], mutably.
pub(crate) fn single_mut<T: Real>(x: &mut [T]) -> Option<&mut [f32]> {
    (TypeId::of::<T>() == TypeId::of::<f32>()).then(|| bytemuck::cast_slice_mut(x))
}

macro_rules! real {
    ($type:ty, $widen:expr) => {
        impl Real for $type {
            #[inline]
            fn of(x: f64) -> Self {
                x as $type
            }

            #[inline]
            fn wide(self) -> f64 {
                self as f64
            }

            fn widen(half: &[f16], out: &mut [Self]) {
                $widen(half, out)
            }

            unsafe fn multiply(
                [m, k, n]: [usize; 3],
                alpha: Self,
                [a, b]: [*const Self; 2],
                keep: bool,
                c: *mut Self,
                [sa, sb, sc]: [[isize; 2]; 3],
            ) {
                // SAFETY: the caller promises what the library asks for.
                let (a, b, c) = unsafe {
                    (
                        MatRef::from_raw_parts(a, m, k, sa[0], sa[1]),
                        MatRef::from_raw_parts(b, k, n, sb[0], sb[1]),
                        MatMut::from_raw_parts_mut(c, m, n, sc[0], sc[1]),
                    )
                };
                matmul(c, if keep { Accum::Add } else { Accum::Replace }, a, b, alpha, Par::Seq);
            }
        }
    };
}

real!(f32, |half: &[f16], out: &mut [f32]| half.convert_to_f32_slice(out));
real!(f64, |half: &[f16], out: &mut [f64]| half.convert_to_f64_slice(out));
