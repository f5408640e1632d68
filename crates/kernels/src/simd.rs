//! Run-time selection of the instruction set.
//!
//! The inner loops of a kernel are written once, over fixed-size arrays that the compiler keeps in vector registers,
//! as a function that is generic over `Isa` and `#[inline(always)]`. `dispatch!` compiles the function once per
//! [`Level`] and calls the version for the level that is passed, normally [`Level::best`].
//!
//! A dispatched function must be the body of one task: closures passed to other threads are not inlined into it.

use std::ops::AddAssign;
use std::sync::OnceLock;

/// Instruction sets that kernels are compiled for; each includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Baseline of the architecture.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// Returns the highest level that this CPU supports.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| *Self::available().last().expect("the portable level is always available"))
    }

    /// Returns all levels that this CPU supports, lowest first. Allocates.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Level::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") && has!("f16c") {
                levels.push(Level::Avx2);
                if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    levels.push(Level::Avx512);
                }
            }
        }
        levels
    }

    /// Returns the name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "AVX2",
            Level::Avx512 => "AVX-512",
        }
    }
}

/// Operations of an instruction set that dispatched functions use.
pub(crate) trait Isa {
    /// Returns `a * b + c`, rounded once if the instruction set has FMA, else twice.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// [`Level::Portable`], without FMA.
pub(crate) struct PortableIsa;

impl Isa for PortableIsa {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// [`Level::Avx2`].
pub(crate) struct Avx2Isa;

impl Isa for Avx2Isa {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// [`Level::Avx512`].
pub(crate) struct Avx512Isa;

impl Isa for Avx512Isa {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Returns the sum of 16 partial sums, in a tree: far fewer dependent additions than one after the other.
#[inline(always)]
pub(crate) fn sum_lanes<T: Copy + AddAssign>(mut lanes: [T; 16]) -> T {
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|i| lanes[i] += lanes[i + half]);
    }
    lanes[0]
}

/// Prefetches the cache line of `data[index]`. The index may be out of bounds.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not access memory; any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(index).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, index);
}

/// Defines a dispatched function. `dispatch!(fn name(args) -> R = body)` defines `name(level, args)`, which calls
/// `body::<I>(args)` compiled for `level`. Generic parameters are in brackets: `fn name[T: Bound](…)`.
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident$([$($generic:ident: $bound:path),*])?($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        $vis fn $name$(<$($generic: $bound),*>)?(level: $crate::simd::Level, $($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2$(<$($generic: $bound),*>)?($($arg: $type),*) $(-> $ret)? {
                $body::<$crate::simd::Avx2Isa, $($($generic),*)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            fn avx512$(<$($generic: $bound),*>)?($($arg: $type),*) $(-> $ret)? {
                $body::<$crate::simd::Avx512Isa, $($($generic),*)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            {
                assert!(level <= $crate::simd::Level::best(), "instruction set not supported by this CPU");
                match level {
                    // SAFETY: the CPU supports the level, by the assertion.
                    $crate::simd::Level::Avx512 => return unsafe { avx512$(::<$($generic),*>)?($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2$(::<$($generic),*>)?($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            let _ = level;
            $body::<$crate::simd::PortableIsa, $($($generic),*)?>($($arg),*)
        }
    };
}
pub(crate) use dispatch;

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(always)]
    fn axpy_body<I: Isa>(a: f32, x: &[f32], y: &mut [f32]) {
        x.iter().zip(y).for_each(|(&x, y)| *y = I::mul_add(a, x, *y));
    }

    dispatch!(fn axpy(a: f32, x: &[f32], y: &mut [f32]) = axpy_body);

    #[test]
    fn all_levels_give_the_same_result() {
        for level in Level::available() {
            let mut y = vec![1.0; 37];
            axpy(level, 2.0, &[3.0; 37], &mut y);
            assert!(y.iter().all(|&y| y == 7.0), "{level:?}");
        }
    }

    #[test]
    fn the_best_level_is_available() {
        assert!(Level::available().contains(&Level::best()));
    }
}
