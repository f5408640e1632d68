//! What memory can do: streams with next to no arithmetic, to hold other kernels against.

use rayon::prelude::*;

use crate::simd::{Isa, Level, dispatch};

/// Numbers of a task, at least.
const CHUNK: usize = 1 << 13;
/// Tasks a thread, at most.
const TASKS: usize = 8;
/// Numbers taken at once.
const LANES: usize = 64;

/// The length of the pieces that threads share.
fn piece(len: usize) -> usize {
    len.div_ceil(rayon::current_num_threads() * TASKS).max(CHUNK)
}

/// Reads both and writes one: `x += share * y`.
pub fn update(x: &mut [f32], share: f32, y: &[f32]) {
    assert_eq!(x.len(), y.len(), "arrays of one length");
    let piece = piece(x.len());
    x.par_chunks_mut(piece).zip(y.par_chunks(piece)).for_each(|(x, y)| add(Level::best(), x, share, y));
}

/// Reads all: `Σ x`.
pub fn read(x: &[f32]) -> f32 {
    x.par_chunks(piece(x.len())).map(|x| sum(Level::best(), x)).sum()
}

#[inline(always)]
fn add_body<I: Isa>(x: &mut [f32], share: f32, y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, &y)| *x = I::mul_add(share, y, *x));
}
dispatch!(fn add(x: &mut [f32], share: f32, y: &[f32]) = add_body);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_read_and_written() {
        let y: Vec<f32> = (0..100_003).map(|i| (i % 7) as f32).collect();
        let mut x = vec![1.0; y.len()];
        update(&mut x, 2.0, &y);
        assert!(x.iter().zip(&y).all(|(&x, &y)| x == 1.0 + 2.0 * y));
        let ones = vec![1.0; y.len()];
        assert_eq!(read(&ones), y.len() as f32);
    }
}
