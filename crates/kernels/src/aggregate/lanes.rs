//! Vectors of the instruction sets, behind one face.
//!
//! Arrays of fixed size would do for whole vectors of `f32`; halves of 16 bits and the last, partly filled vector of a
//! row need instructions that compilers do not find by themselves.

use half::f16;

use crate::simd::{Isa, Plain};

/// Vector registers of an instruction set.
///
/// # Safety
/// All functions: the CPU has the instruction set, and the caller is compiled for it (all is inlined into bodies of
/// `dispatch!`). Those with a pointer: that many elements there may be read or written, whatever their alignment; a
/// `count` is from 1 to [`Lanes::LANES`], and elements past it are neither read nor written, and 0 in the vector.
pub(super) trait Lanes {
    /// A register.
    type Vector: Copy;
    /// Elements of a register.
    const LANES: usize;
    /// Registers that can hold sums while others hold weights and what is read.
    const SUMS: usize;

    unsafe fn splat(x: f32) -> Self::Vector;
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b + c`.
    unsafe fn mul_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    unsafe fn load(at: *const f32) -> Self::Vector;
    unsafe fn load_first(at: *const f32, count: usize) -> Self::Vector;
    unsafe fn load_half(at: *const f16) -> Self::Vector;
    unsafe fn load_half_first(at: *const f16, count: usize) -> Self::Vector;
    unsafe fn store(x: Self::Vector, at: *mut f32);
    unsafe fn store_first(x: Self::Vector, at: *mut f32, count: usize);
}

/// How the rows that are read are stored.
pub(super) trait Stored: Copy + Send + Sync {
    /// # Safety
    /// As [`Lanes`].
    unsafe fn load<I: Lanes>(at: *const Self) -> I::Vector;
    /// # Safety
    /// As [`Lanes`].
    unsafe fn load_first<I: Lanes>(at: *const Self, count: usize) -> I::Vector;
    /// The value in single precision.
    fn single(self) -> f32;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<I: Lanes>(at: *const Self) -> I::Vector {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { I::load(at) }
    }

    #[inline(always)]
    unsafe fn load_first<I: Lanes>(at: *const Self, count: usize) -> I::Vector {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { I::load_first(at, count) }
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self
    }
}

impl Stored for f16 {
    #[inline(always)]
    unsafe fn load<I: Lanes>(at: *const Self) -> I::Vector {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { I::load_half(at) }
    }

    #[inline(always)]
    unsafe fn load_first<I: Lanes>(at: *const Self, count: usize) -> I::Vector {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { I::load_half_first(at, count) }
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self.to_f32()
    }
}

const PLAIN: usize = 8;

impl Lanes for Plain {
    type Vector = [f32; PLAIN];
    const LANES: usize = PLAIN;
    const SUMS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Vector {
        [x; PLAIN]
    }

    #[inline(always)]
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        std::array::from_fn(|i| <Plain as Isa>::mul_add(a[i], b[i], c[i]))
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::Vector {
        // SAFETY: the caller lets these elements be read.
        unsafe { at.cast::<Self::Vector>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> Self::Vector {
        let mut vector = [0.0; PLAIN];
        for (i, v) in vector.iter_mut().take(count).enumerate() {
            // SAFETY: the caller lets these elements be read.
            *v = unsafe { at.add(i).read() };
        }
        vector
    }

    #[inline(always)]
    unsafe fn load_half(at: *const f16) -> Self::Vector {
        // SAFETY: the caller lets these elements be read.
        unsafe { Self::load_half_first(at, PLAIN) }
    }

    #[inline(always)]
    unsafe fn load_half_first(at: *const f16, count: usize) -> Self::Vector {
        let mut vector = [0.0; PLAIN];
        for (i, v) in vector.iter_mut().take(count).enumerate() {
            // SAFETY: the caller lets these elements be read.
            *v = unsafe { at.add(i).read() }.to_f32();
        }
        vector
    }

    #[inline(always)]
    unsafe fn store(x: Self::Vector, at: *mut f32) {
        // SAFETY: the caller lets these elements be written.
        unsafe { at.cast::<Self::Vector>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn store_first(x: Self::Vector, at: *mut f32, count: usize) {
        // SAFETY: the caller lets these elements be written.
        x.iter().take(count).enumerate().for_each(|(i, &x)| unsafe { at.add(i).write(x) });
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::simd::{Fused, Wide};

    /// All bits set in the first `count` of 8 lanes.
    #[inline(always)]
    unsafe fn lanes(count: usize) -> __m256i {
        // SAFETY: as the trait's.
        unsafe {
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
        }
    }

    /// The first `count` of 8 halves. AVX2 has no masked loads of 16 bits; overlapping loads of 4, 2 or 1 read nothing
    /// else.
    #[inline(always)]
    unsafe fn halves(at: *const f16, count: usize) -> __m128i {
        // SAFETY: every read begins and ends within the first `count` elements, by the condition before it; intrinsics
        // as the trait's.
        unsafe {
            if count >= 4 {
                let low = at.cast::<u64>().read_unaligned();
                let last = at.add(count - 4).cast::<u64>().read_unaligned();
                // What of the last four is not in the first four: count - 4 of them, none of which need a shift of 64.
                let high = if count > 4 { last >> (16 * (8 - count)) } else { 0 };
                _mm_set_epi64x(high as i64, low as i64)
            } else if count >= 2 {
                let low = at.cast::<u32>().read_unaligned() as u64;
                let last = at.add(count - 1).cast::<u16>().read_unaligned() as u64;
                _mm_set_epi64x(0, (low | last << (16 * (count - 1))) as i64)
            } else {
                _mm_set_epi64x(0, at.cast::<u16>().read_unaligned() as i64)
            }
        }
    }

    // SAFETY of all that follows: as the trait's, which asks for the instruction set and for the memory.
    impl Lanes for Fused {
        type Vector = __m256;
        const LANES: usize = 8;
        const SUMS: usize = 12;

        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn mul(a: __m256, b: __m256) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_mul_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        unsafe fn load(at: *const f32) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_loadu_ps(at) }
        }

        #[inline(always)]
        unsafe fn load_first(at: *const f32, count: usize) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_maskload_ps(at, lanes(count)) }
        }

        #[inline(always)]
        unsafe fn load_half(at: *const f16) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
        }

        #[inline(always)]
        unsafe fn load_half_first(at: *const f16, count: usize) -> __m256 {
            // SAFETY: see above.
            unsafe { _mm256_cvtph_ps(halves(at, count)) }
        }

        #[inline(always)]
        unsafe fn store(x: __m256, at: *mut f32) {
            // SAFETY: see above.
            unsafe { _mm256_storeu_ps(at, x) }
        }

        #[inline(always)]
        unsafe fn store_first(x: __m256, at: *mut f32, count: usize) {
            // SAFETY: see above.
            unsafe { _mm256_maskstore_ps(at, lanes(count), x) }
        }
    }

    /// Bits of the first `count` of 16 lanes.
    #[inline(always)]
    fn mask(count: usize) -> __mmask16 {
        ((1u32 << count) - 1) as u16
    }

    impl Lanes for Wide {
        type Vector = __m512;
        const LANES: usize = 16;
        const SUMS: usize = 16;

        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_set1_ps(x) }
        }

        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_mul_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }

        #[inline(always)]
        unsafe fn load(at: *const f32) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_loadu_ps(at) }
        }

        #[inline(always)]
        unsafe fn load_first(at: *const f32, count: usize) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_maskz_loadu_ps(mask(count), at) }
        }

        #[inline(always)]
        unsafe fn load_half(at: *const f16) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
        }

        #[inline(always)]
        unsafe fn load_half_first(at: *const f16, count: usize) -> __m512 {
            // SAFETY: see above.
            unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask(count), at.cast())) }
        }

        #[inline(always)]
        unsafe fn store(x: __m512, at: *mut f32) {
            // SAFETY: see above.
            unsafe { _mm512_storeu_ps(at, x) }
        }

        #[inline(always)]
        unsafe fn store_first(x: __m512, at: *mut f32, count: usize) {
            // SAFETY: see above.
            unsafe { _mm512_mask_storeu_ps(at, mask(count), x) }
        }
    }
}
