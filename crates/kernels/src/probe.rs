//! Memory bandwidth microbenchmarks: streams and gathers with minimal arithmetic, as limits for bandwidth-bound
//! kernels.

use rayon::prelude::*;

use crate::simd::{Isa, Level, dispatch, prefetch};

/// Minimum numbers per task.
const CHUNK: usize = 1 << 13;
/// Maximum tasks per thread.
const TASKS: usize = 8;
/// Partial sums, kept in vector registers.
const LANES: usize = 64;
/// Prefetch distance, in rows.
const AHEAD: usize = 4;
/// Numbers per cache line.
const LINE: usize = 16;

/// Returns the numbers per task of an array of length `len`.
fn piece(len: usize) -> usize {
    len.div_ceil(rayon::current_num_threads() * TASKS).max(CHUNK)
}

/// Computes `x += factor * y`: reads two arrays and writes one.
pub fn update(x: &mut [f32], factor: f32, y: &[f32]) {
    assert_eq!(x.len(), y.len(), "arrays of equal length");
    let piece = piece(x.len());
    x.par_chunks_mut(piece).zip(y.par_chunks(piece)).for_each(|(x, y)| add(Level::best(), x, factor, y));
}

/// Returns `Σ x`: reads one array.
pub fn read(x: &[f32]) -> f32 {
    x.par_chunks(piece(x.len())).map(|x| sum(Level::best(), x)).sum()
}

/// Returns the sum of all numbers in the listed rows of `x` (rows x `width`).
pub fn gather(x: &[f32], width: usize, rows: &[u32]) -> f32 {
    let tasks = rows.len().div_ceil(rayon::current_num_threads() * TASKS).max(1);
    rows.par_chunks(tasks).map(|rows| sum_rows(Level::best(), x, width, rows)).sum()
}

#[inline(always)]
fn add_body<I: Isa>(x: &mut [f32], factor: f32, y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, &y)| *x = I::mul_add(factor, y, *x));
}
dispatch!(fn add(x: &mut [f32], factor: f32, y: &[f32]) = add_body);

#[inline(always)]
fn sum_body<I: Isa>(x: &[f32]) -> f32 {
    let (whole, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for x in whole {
        (0..LANES).for_each(|i| lanes[i] += x[i]);
    }
    lanes.iter().chain(rest).sum()
}
dispatch!(fn sum(x: &[f32]) -> f32 = sum_body);

#[inline(always)]
fn sum_rows_body<I: Isa>(x: &[f32], width: usize, rows: &[u32]) -> f32 {
    let mut lanes = [0.0; LANES];
    for (i, &row) in rows.iter().enumerate() {
        if let Some(&later) = rows.get(i + AHEAD) {
            (0..width).step_by(LINE).for_each(|c| prefetch(x, later as usize * width + c));
        }
        let (whole, tail) = x[row as usize * width..][..width].as_chunks::<LANES>();
        for x in whole {
            (0..LANES).for_each(|i| lanes[i] += x[i]);
        }
        lanes.iter_mut().zip(tail).for_each(|(lane, x)| *lane += x);
    }
    lanes.iter().sum()
}
dispatch!(fn sum_rows(x: &[f32], width: usize, rows: &[u32]) -> f32 = sum_rows_body);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_are_read_and_written() {
        let y: Vec<f32> = (0..100_003).map(|i| (i % 7) as f32).collect();
        let mut x = vec![1.0; y.len()];
        update(&mut x, 2.0, &y);
        assert!(x.iter().zip(&y).all(|(&x, &y)| x == 1.0 + 2.0 * y));
        let ones = vec![1.0; y.len()];
        assert_eq!(read(&ones), y.len() as f32);
        for width in [1, 7, 64, 100, 257] {
            let rows = [3, 0, 3, 100_000 / width as u32 - 1, 9, 2];
            let expected: f32 =
                rows.iter().map(|&r| y[r as usize * width..][..width].iter().sum::<f32>()).sum();
            assert_eq!(gather(&y, width, &rows), expected, "{width}");
        }
    }
}
