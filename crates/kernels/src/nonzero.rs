//! Rows without their zeros: a bitmap of the entries other than 0, and these entries.
//!
//! Bit `c % 64` of word `c / 64` stands for column `c`. Entries that are not a number count as other than 0; a negative zero
//! is a zero.

use crate::Real;
use crate::simd::Level;

/// Columns described by one word of a bitmap.
pub const WORD: usize = u64::BITS as usize;

/// Writes the bitmap of a row to `words`; returns the number of its entries other than 0.
pub fn bitmap<T: Real>(row: &[T], words: &mut [u64]) -> usize {
    assert_eq!(words.len(), row.len().div_ceil(WORD), "a bit of every column");
    #[cfg(target_arch = "x86_64")]
    if let Some(row) = avx512::row(row) {
        // SAFETY: `row` is `Some` only if the CPU supports AVX-512.
        unsafe { avx512::bitmap(row, words) };
        return count(words);
    }
    for (word, row) in words.iter_mut().zip(row.chunks(WORD)) {
        *word = row.iter().enumerate().fold(0, |word, (bit, &x)| word | ((x != T::zero()) as u64) << bit);
    }
    count(words)
}

/// Returns the number of bits that are set.
pub fn count(words: &[u64]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

/// Copies the entries of `row` whose bits are set to `entries`.
pub fn pack<T: Real>(row: &[T], words: &[u64], entries: &mut [T]) {
    check(row, words, entries.len());
    #[cfg(target_arch = "x86_64")]
    if let Some(row) = avx512::row(row) {
        // SAFETY: the CPU supports AVX-512; lengths were checked.
        unsafe { avx512::pack(row, words, bytemuck::cast_slice_mut(entries)) };
        return;
    }
    entries.iter_mut().zip(columns(words)).for_each(|(entry, column)| *entry = row[column]);
}

/// Sets the entries of `row` whose bits are set to `entries`, and all others to 0.
pub fn unpack<T: Real>(entries: &[T], words: &[u64], row: &mut [T]) {
    check(row, words, entries.len());
    row.fill(T::zero());
    add(entries, words, row);
}

/// Adds `entries` to those of `row` whose bits are set.
pub fn add<T: Real>(entries: &[T], words: &[u64], row: &mut [T]) {
    check(row, words, entries.len());
    #[cfg(target_arch = "x86_64")]
    if let Some(entries) = avx512::row(entries) {
        // SAFETY: the CPU supports AVX-512; lengths were checked.
        unsafe { avx512::add(entries, words, bytemuck::cast_slice_mut(row)) };
        return;
    }
    entries.iter().zip(columns(words)).for_each(|(&entry, column)| row[column] += entry);
}

fn check<T>(row: &[T], words: &[u64], entries: usize) {
    assert_eq!(words.len(), row.len().div_ceil(WORD), "a bit of every column");
    let beyond =
        words.last().filter(|_| !row.len().is_multiple_of(WORD)).map_or(0, |word| word >> (row.len() % WORD));
    assert!(count(words) == entries && beyond == 0, "an entry of every bit");
}

/// Returns the columns whose bits are set, ascending.
fn columns(words: &[u64]) -> impl Iterator<Item = usize> {
    words.iter().enumerate().flat_map(|(at, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(at * WORD + bit)
        })
    })
}

/// 32-bit numbers, 16 at a time.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::any::TypeId;
    use std::arch::x86_64::{
        __m512, _CMP_NEQ_UQ, _mm512_cmp_ps_mask, _mm512_mask_add_ps, _mm512_mask_storeu_ps,
        _mm512_maskz_compress_ps, _mm512_maskz_expand_ps, _mm512_maskz_loadu_ps, _mm512_setzero_ps,
    };

    use super::{Level, Real, WORD};

    const LANES: usize = 16;

    /// Returns the numbers if they are `f32` and the CPU supports AVX-512.
    pub fn row<T: Real>(numbers: &[T]) -> Option<&[f32]> {
        let fits = TypeId::of::<T>() == TypeId::of::<f32>() && Level::best() == Level::Avx512;
        fits.then(|| bytemuck::cast_slice(numbers))
    }

    /// Returns a mask of the first `count` lanes, at most all.
    fn first(count: usize) -> u16 {
        if count >= LANES { u16::MAX } else { (1 << count) - 1 }
    }

    #[target_feature(enable = "avx512f")]
    fn load(numbers: &[f32]) -> __m512 {
        // SAFETY: reads at most the numbers of the slice.
        unsafe { _mm512_maskz_loadu_ps(first(numbers.len()), numbers.as_ptr()) }
    }

    #[target_feature(enable = "avx512f")]
    fn store(numbers: &mut [f32], values: __m512) {
        // SAFETY: writes at most the numbers of the slice.
        unsafe { _mm512_mask_storeu_ps(numbers.as_mut_ptr(), first(numbers.len()), values) }
    }

    #[target_feature(enable = "avx512f")]
    pub fn bitmap(row: &[f32], words: &mut [u64]) {
        for (word, row) in words.iter_mut().zip(row.chunks(WORD)) {
            *word = 0;
            for (lane, numbers) in row.chunks(LANES).enumerate() {
                let mask = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(load(numbers), _mm512_setzero_ps());
                *word |= u64::from(mask) << (lane * LANES);
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn pack(row: &[f32], words: &[u64], mut entries: &mut [f32]) {
        for (&word, row) in words.iter().zip(row.chunks(WORD)) {
            for (lane, numbers) in row.chunks(LANES).enumerate() {
                let mask = (word >> (lane * LANES)) as u16;
                let (now, rest) = entries.split_at_mut(mask.count_ones() as usize);
                store(now, _mm512_maskz_compress_ps(mask, load(numbers)));
                entries = rest;
            }
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn add(mut entries: &[f32], words: &[u64], row: &mut [f32]) {
        for (&word, row) in words.iter().zip(row.chunks_mut(WORD)) {
            for (lane, numbers) in row.chunks_mut(LANES).enumerate() {
                let mask = (word >> (lane * LANES)) as u16;
                let (now, rest) = entries.split_at(mask.count_ones() as usize);
                let (old, more) = (load(numbers), _mm512_maskz_expand_ps(mask, load(now)));
                store(numbers, _mm512_mask_add_ps(old, mask, old, more));
                entries = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyed::Key;

    fn row<T: Real>(width: usize, case: u64) -> Vec<T> {
        let key = Key::new(case, "row");
        let x = |c: u64| match key.below(c, 5) {
            0 => T::of(key.at(c) as f64 / u64::MAX as f64 - 0.5),
            1 => T::of(-0.0),
            2 if case == 3 => T::nan(),
            _ => T::zero(),
        };
        (0..width as u64).map(x).collect()
    }

    fn rows_survive<T: Real>() {
        for width in [0, 1, 15, 16, 17, 63, 64, 65, 200, 256] {
            for case in 0..4 {
                let x: Vec<T> = row(width, case);
                let mut words = vec![u64::MAX; width.div_ceil(WORD)];
                let entries = bitmap(&x, &mut words);
                let nonzero = |x: &T| *x != T::zero();
                assert_eq!(entries, x.iter().filter(|x| nonzero(x)).count());
                let mut packed = vec![T::one(); entries];
                pack(&x, &words, &mut packed);
                let bits = |x: &T| x.wide().to_bits();
                let expected: Vec<u64> = x.iter().filter(|x| nonzero(x)).map(bits).collect();
                assert_eq!(packed.iter().map(bits).collect::<Vec<_>>(), expected);
                let mut unpacked = vec![T::one(); width];
                unpack(&packed, &words, &mut unpacked);
                let expected: Vec<u64> =
                    x.iter().map(|x| if nonzero(x) { bits(x) } else { 0.0f64.to_bits() }).collect();
                assert_eq!(unpacked.iter().map(bits).collect::<Vec<_>>(), expected);
                if case < 3 {
                    let mut sum = vec![T::one(); width];
                    add(&packed, &words, &mut sum);
                    assert!(sum.iter().zip(&x).all(|(&sum, &x)| sum == T::one() + x));
                }
            }
        }
    }

    #[test]
    fn rows_survive_packing() {
        rows_survive::<f32>();
        rows_survive::<f64>();
    }

    #[test]
    #[should_panic(expected = "an entry of every bit")]
    fn a_bit_beyond_the_row_is_refused() {
        unpack(&[1.0f32], &[1 << 3], &mut [0.0; 3]);
    }
}
