//! Vector registers of the instruction sets behind one trait.
//!
//! Fixed-size arrays would suffice for whole vectors of `f32`. Half precision, and the partial last vector of a row,
//! need instructions that compilers do not generate from arrays.

use half::f16;

use crate::simd::{Isa, PortableIsa};

/// Operations on the vector registers of an instruction set.
///
/// # Safety
/// The CPU must have the instruction set, and the caller must be compiled for it (all functions are inlined into bodies
/// of `dispatch!`). Pointers must be valid for the elements that are read or written; any alignment is allowed. `count`
/// must be from 1 to [`Lanes::LANES`]; elements after it are neither read nor written, and are 0 in the vector.
pub(super) trait Lanes {
    /// A register.
    type Vector: Copy;
    /// Elements of a register.
    const LANES: usize;
    /// Registers available for sums, beside those for weights and loaded values.
    const SUMS: usize;

    /// Returns a vector with all elements equal to `x`.
    unsafe fn splat(x: f32) -> Self::Vector;
    /// Returns `a + b`.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns `a * b`.
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Returns `a * b + c`.
    unsafe fn mul_add(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// Loads a whole vector.
    unsafe fn load(at: *const f32) -> Self::Vector;
    /// Loads the first `count` elements.
    unsafe fn load_first(at: *const f32, count: usize) -> Self::Vector;
    /// Loads a whole vector and converts it to `f32`.
    unsafe fn load_half(at: *const f16) -> Self::Vector;
    /// Loads the first `count` elements and converts them to `f32`.
    unsafe fn load_half_first(at: *const f16, count: usize) -> Self::Vector;
    /// Stores a whole vector.
    unsafe fn store(x: Self::Vector, at: *mut f32);
    /// Stores the first `count` elements.
    unsafe fn store_first(x: Self::Vector, at: *mut f32, count: usize);
}

/// Storage type of input rows.
pub(super) trait Stored: Copy + Send + Sync {
    /// Loads a whole vector.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn load<I: Lanes>(at: *const Self) -> I::Vector;
    /// Loads the first `count` elements.
    ///
    /// # Safety
    /// As [`Lanes`].
    unsafe fn load_first<I: Lanes>(at: *const Self, count: usize) -> I::Vector;
    /// Returns the value as `f32`.
    fn single(self) -> f32;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<I: Lanes>(at: *const Self) -> I::Vector {
        // SAFETY: the requirements are those of this function.
        unsafe { I::load(at) }
    }

    #[inline(always)]
    unsafe fn load_first<I: Lanes>(at: *const Self, count: usize) -> I::Vector {
        // SAFETY: the requirements are those of this function.
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
        // SAFETY: the requirements are those of this function.
        unsafe { I::load_half(at) }
    }

    #[inline(always)]
    unsafe fn load_first<I: Lanes>(at: *const Self, count: usize) -> I::Vector {
        // SAFETY: the requirements are those of this function.
        unsafe { I::load_half_first(at, count) }
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self.to_f32()
    }
}

/// Elements of a portable vector.
const PORTABLE_LANES: usize = 8;

impl Lanes for PortableIsa {
    type Vector = [f32; PORTABLE_LANES];
    const LANES: usize = PORTABLE_LANES;
    const SUMS: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::Vector {
        [x; PORTABLE_LANES]
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
        std::array::from_fn(|i| <PortableIsa as Isa>::mul_add(a[i], b[i], c[i]))
    }

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self::Vector {
        // SAFETY: the caller guarantees that these elements may be read.
        unsafe { at.cast::<Self::Vector>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_first(at: *const f32, count: usize) -> Self::Vector {
        let mut vector = [0.0; PORTABLE_LANES];
        for (i, v) in vector.iter_mut().take(count).enumerate() {
            // SAFETY: the caller guarantees that these elements may be read.
            *v = unsafe { at.add(i).read() };
        }
        vector
    }

    #[inline(always)]
    unsafe fn load_half(at: *const f16) -> Self::Vector {
        // SAFETY: the caller guarantees that these elements may be read.
        unsafe { Self::load_half_first(at, PORTABLE_LANES) }
    }

    #[inline(always)]
    unsafe fn load_half_first(at: *const f16, count: usize) -> Self::Vector {
        let mut vector = [0.0; PORTABLE_LANES];
        for (i, v) in vector.iter_mut().take(count).enumerate() {
            // SAFETY: the caller guarantees that these elements may be read.
            *v = unsafe { at.add(i).read() }.to_f32();
        }
        vector
    }

    #[inline(always)]
    unsafe fn store(x: Self::Vector, at: *mut f32) {
        // SAFETY: the caller guarantees that these elements may be written.
        unsafe { at.cast::<Self::Vector>().write_unaligned(x) }
    }

    #[inline(always)]
    unsafe fn store_first(x: Self::Vector, at: *mut f32, count: usize) {
        // SAFETY: the caller guarantees that these elements may be written.
        x.iter().take(count).enumerate().for_each(|(i, &x)| unsafe { at.add(i).write(x) });
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;
    use crate::simd::{Avx2Isa, Avx512Isa};

    /// Returns a mask of 8 lanes with all bits set in the first `count`.
    #[inline(always)]
    unsafe fn lanes(count: usize) -> __m256i {
        // SAFETY: as the trait.
        unsafe {
            _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
        }
    }

    /// Loads the first `count` of 8 half-precision numbers. AVX2 has no masked loads of 16 bits, so loads of 4, 2 or 1
    /// elements overlap.
    #[inline(always)]
    unsafe fn load_first_halves(at: *const f16, count: usize) -> __m128i {
        // SAFETY: every read lies within the first `count` elements, by the condition before it; intrinsics as the
        // trait.
        unsafe {
            if count >= 4 {
                let low = at.cast::<u64>().read_unaligned();
                let last = at.add(count - 4).cast::<u64>().read_unaligned();
                // The `count - 4` elements of the last four that are not among the first four.
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

    // SAFETY of all functions below: as the trait, which requires the instruction set and valid pointers.
    impl Lanes for Avx2Isa {
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
            unsafe { _mm256_cvtph_ps(load_first_halves(at, count)) }
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

    /// Returns a mask of 16 lanes with the bits of the first `count` set.
    #[inline(always)]
    fn mask(count: usize) -> __mmask16 {
        ((1u32 << count) - 1) as u16
    }

    impl Lanes for Avx512Isa {
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
