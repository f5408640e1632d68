//! The numbers kernels compute with.

use std::any::TypeId;
use std::fmt::{Debug, Display};
use std::iter::Sum;

use bytemuck::Pod;
use num_traits::{Float, NumAssign};

/// `f32` for speed or `f64` for telling a bug from rounding.
pub trait Real: Float + NumAssign + Sum + Default + Debug + Display + Pod + Send + Sync {
    /// The nearest value to `x`.
    fn of(x: f64) -> Self;

    /// The same value in double precision.
    fn wide(self) -> f64;

    /// `C = alpha * A * B + beta * C` for an `m x k` matrix A and a `k x n` matrix B; `strides` are the row and
    /// column strides of A, B and C.
    ///
    /// # Safety
    /// Every element these shapes and strides reach must lie inside its allocation, and C's elements must be
    /// distinct from one another and from those of A and B.
    unsafe fn multiply(
        shape: [usize; 3],
        scale: [Self; 2],
        factors: [*const Self; 2],
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
    ($type:ty, $gemm:path) => {
        impl Real for $type {
            #[inline]
            fn of(x: f64) -> Self {
                x as $type
            }

            #[inline]
            fn wide(self) -> f64 {
                self as f64
            }

            unsafe fn multiply(
                [m, k, n]: [usize; 3],
                [alpha, beta]: [Self; 2],
                [a, b]: [*const Self; 2],
                c: *mut Self,
                [sa, sb, sc]: [[isize; 2]; 3],
            ) {
                // SAFETY: the caller promises what the library asks for.
                unsafe {
                    $gemm(m, k, n, alpha, a, sa[0], sa[1], b, sb[0], sb[1], beta, c, sc[0], sc[1]);
                }
            }
        }
    };
}

real!(f32, matrixmultiply::sgemm);
real!(f64, matrixmultiply::dgemm);
