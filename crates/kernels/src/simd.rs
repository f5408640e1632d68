//! One body, compiled for several instruction sets, and the choice between them at run time.
//!
//! A kernel's inner loops are written once, in plain Rust over arrays of fixed size that the compiler keeps in
//! vector registers, as a function generic over `Isa` and marked `#[inline(always)]`. `dispatch!` compiles it
//! once for each [`Level`] and calls the best one this CPU has. One binary serves all.
//!
//! Closures handed to other threads are not inlined, so a dispatched function is what one task does, not the whole.

use std::sync::OnceLock;

/// Instruction sets that kernels are compiled for, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every CPU of the architecture has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 (F, BW, DQ, VL) on top.
    Avx512,
}

impl Level {
    /// The best this CPU has.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| *Self::available().last().expect("there is always the portable one"))
    }

    /// All that this CPU has, least first.
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

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "AVX2",
            Level::Avx512 => "AVX-512",
        }
    }
}

/// What bodies need to know of the instruction set they are compiled for.
pub(crate) trait Isa {
    /// `a * b + c`, rounded once where that is one instruction.
    fn mul_add(a: f32, b: f32, c: f32) -> f32;
}

/// Separate multiplication and addition.
pub(crate) struct Plain;

impl Isa for Plain {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a * b + c
    }
}

/// Fused multiplication and addition, on the registers of AVX2.
pub(crate) struct Fused;

impl Isa for Fused {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// As [`Fused`], on the registers of AVX-512.
pub(crate) struct Wide;

impl Isa for Wide {
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
}

/// Asks for the cache line at `index` of `data`, which need not be there.
#[inline(always)]
pub(crate) fn prefetch<T>(data: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(index).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, index);
}

/// `dispatch!(fn name(args) -> R = body)`: a function `name(level, args)` that runs `body::<I>(args)` compiled for
/// `level`. Arguments are passed on as they are; generic parameters, if any, stand in brackets: `fn name[T](…)`.
macro_rules! dispatch {
    ($(#[$meta:meta])* $vis:vis fn $name:ident$([$($generic:ident: $bound:path),*])?($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? = $body:ident) => {
        $(#[$meta])*
        $vis fn $name$(<$($generic: $bound),*>)?(level: $crate::simd::Level, $($arg: $type),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2$(<$($generic: $bound),*>)?($($arg: $type),*) $(-> $ret)? {
                $body::<$crate::simd::Fused, $($($generic),*)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
            fn avx512$(<$($generic: $bound),*>)?($($arg: $type),*) $(-> $ret)? {
                $body::<$crate::simd::Wide, $($($generic),*)?>($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            {
                assert!(level <= $crate::simd::Level::best(), "an instruction set of this CPU");
                match level {
                    // SAFETY: this CPU has what the function is compiled for, as just asserted.
                    $crate::simd::Level::Avx512 => return unsafe { avx512$(::<$($generic),*>)?($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2$(::<$($generic),*>)?($($arg),*) },
                    $crate::simd::Level::Portable => {}
                }
            }
            let _ = level;
            $body::<$crate::simd::Plain, $($($generic),*)?>($($arg),*)
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
    fn every_level_computes_the_same() {
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
