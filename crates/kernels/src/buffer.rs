//! Pooled memory for large arrays.
//!
//! Training allocates the same matrices every epoch. Returning their memory to the system and allocating it again
//! costs a page fault per 4 KiB. Therefore the memory of a dropped [`Buffer`] goes to a process-wide pool, from which
//! the next buffer of about the same size takes it: after the first epoch no large memory is allocated. Memory is
//! aligned to cache lines; large memory requests huge pages (`madvise`).

pub mod trace;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use crate::work::{self, Cost};

/// A cache line: the unit of allocation, for its alignment.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

const LINE: usize = size_of::<Line>();
/// Minimum lines of a pooled buffer (256 KiB); smaller ones use the allocator only.
const MIN_POOLED: usize = (256 << 10) / LINE;
/// Bytes per task that fills or copies.
const CHUNK: usize = 1 << 18;
/// Minimum lines of a buffer that requests huge pages (4 MiB).
const MIN_HUGE: usize = (4 << 20) / LINE;

/// Memory of dropped buffers.
struct Pool {
    /// Free memory.
    free: Vec<Vec<Line>>,
    /// Allocated sizes, in lines. Slightly smaller requests are rounded up to one of them, so that their memory is
    /// interchangeable.
    sizes: Vec<usize>,
}

/// Returns the number of lines to allocate for a request of `count`: one of the known `sizes` if it fits, otherwise a new
/// one.
fn size_for(sizes: &mut Vec<usize>, count: usize) -> usize {
    let known = sizes.iter().copied().filter(|size| fitting(count).contains(size)).min();
    known.unwrap_or_else(|| {
        let size = rounded_up(count);
        sizes.push(size);
        size
    })
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), sizes: Vec::new() });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the sizes, in lines, that are used for a request of `count`: at most a quarter more.
fn fitting(count: usize) -> RangeInclusive<usize> {
    count..=count + count / 4
}

/// Rounds up by at most an eighth, so that sizes that differ a little, as those of mini-batches do, share memory.
fn rounded_up(count: usize) -> usize {
    let unit = count.checked_ilog2().map_or(1, |log| (1usize << log).div_ceil(8));
    count.next_multiple_of(unit)
}

/// Returns all memory in the pool to the system, e.g. before a phase that needs other sizes.
pub fn release() {
    trace::released();
    {
        let mut pool = pool();
        pool.free.clear();
        pool.sizes.clear();
    }
    trim();
}

/// Returns free memory of the allocator to the system, which glibc does not do for all sizes.
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it may be called at any time, from any thread, and frees only memory that nothing uses.
        unsafe { malloc_trim(0) };
    }
}

thread_local! {
    /// Bytes of buffers that this thread allocated, less those of buffers that it dropped.
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// Returns the bytes of buffers that this thread has allocated, less those of buffers that it has dropped: the difference of
/// two calls is what is still held of what was allocated in between.
pub fn held_by_thread() -> i64 {
    HELD.get()
}

fn count_held(lines: i64) {
    // Fails only while the thread ends.
    let _ = HELD.try_with(|held| held.set(held.get() + lines * LINE as i64));
}

/// An array of numbers of fixed length, in pooled memory.
pub struct Buffer<T> {
    lines: Vec<Line>,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// Allocates `len` numbers with unspecified values, for results that are written before they are read.
    pub fn unspecified(len: usize) -> Self {
        let count = (len * size_of::<T>()).div_ceil(LINE);
        let lines = take(count).unwrap_or_else(|| allocate(count));
        if count > 0 {
            trace::allocated(lines.as_ptr() as usize, count);
            count_held(count as i64);
        }
        let mut buffer = Buffer { lines, len, numbers: PhantomData };
        if cfg!(debug_assertions) {
            // NaN in every precision, so that reading before writing is noticed.
            bytemuck::cast_slice_mut::<T, u8>(&mut buffer).fill(0xFF);
        }
        buffer
    }

    /// Allocates `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::unspecified(len);
        let _work = work::begin("zero fill", || Cost::stream(0, len * size_of::<T>()));
        buffer.lines.par_chunks_mut(CHUNK / LINE).for_each(|lines| lines.fill(Line::zeroed()));
        buffer
    }
}

/// Removes the smallest memory that fits a request of `count` lines from the pool.
fn take(count: usize) -> Option<Vec<Line>> {
    if count < MIN_POOLED || trace::is_recording() {
        return None;
    }
    let mut pool = pool();
    let best = best_fit(pool.free.iter().map(Vec::capacity), count)?;
    let mut lines = pool.free.swap_remove(best);
    drop(pool);
    if lines.len() < count {
        extend(&mut lines, count);
    }
    Some(lines)
}

/// Returns the position of the smallest of `sizes` that fits a request of `count` lines.
fn best_fit(sizes: impl Iterator<Item = usize>, count: usize) -> Option<usize> {
    let fits = sizes.enumerate().filter(|(_, size)| fitting(count).contains(size));
    fits.min_by_key(|&(_, size)| size).map(|(at, _)| at)
}

/// Allocates zeroed memory for a request of `count` lines, with room for slightly larger ones. Pages in that room are not
/// touched, so they take no memory until they are needed.
fn allocate(count: usize) -> Vec<Line> {
    let is_pooled = count >= MIN_POOLED && !trace::is_recording();
    let size = if is_pooled { size_for(&mut pool().sizes, count) } else { count };
    let mut lines = Vec::with_capacity(size);
    if size >= MIN_HUGE {
        advise(&lines);
    }
    extend(&mut lines, count);
    lines
}

/// Appends zeros up to `count` lines, for which there must be room.
fn extend(lines: &mut Vec<Line>, count: usize) {
    let more = count - lines.len();
    // In parallel: NUMA systems place a page near the thread that touches it first.
    let zero = |part: &mut [MaybeUninit<Line>]| part.fill(MaybeUninit::new(Line::zeroed()));
    lines.spare_capacity_mut()[..more].par_chunks_mut(CHUNK / LINE).for_each(zero);
    // SAFETY: all elements were just written, and there is room for them.
    unsafe { lines.set_len(count) };
}

/// Requests huge pages, before any page is touched. Failure is ignored.
fn advise(lines: &Vec<Line>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let page = rustix::param::page_size();
        let start = (lines.as_ptr() as usize).next_multiple_of(page);
        let end = (lines.as_ptr() as usize + lines.capacity() * LINE) / page * page;
        if start < end {
            // SAFETY: the pages lie within this allocation, and the advice does not change their content.
            let _ = unsafe { madvise(start as *mut _, end - start, Advice::LinuxHugepage) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = lines;
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if !self.lines.is_empty() {
            trace::dropped(self.lines.as_ptr() as usize);
            count_held(-(self.lines.len() as i64));
        }
        if self.lines.len() >= MIN_POOLED && !trace::is_recording() {
            pool().free.push(std::mem::take(&mut self.lines));
        }
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl<T: Pod> From<&[T]> for Buffer<T> {
    fn from(numbers: &[T]) -> Self {
        let mut buffer = Buffer::unspecified(numbers.len());
        let bytes: &[u8] = bytemuck::cast_slice(numbers);
        let chunks = bytemuck::cast_slice_mut(&mut buffer).par_chunks_mut(CHUNK).zip(bytes.par_chunks(CHUNK));
        chunks.for_each(|(to, from): (&mut [u8], &[u8])| to.copy_from_slice(from));
        buffer
    }
}

impl<T: Pod> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Buffer::from(&**self)
    }
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Buffer { lines: Vec::new(), len: 0, numbers: PhantomData }
    }
}

impl<T: Pod + PartialEq> PartialEq for Buffer<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_a_thread_holds_are_counted() {
        let before = held_by_thread();
        let kept = Buffer::<f32>::zeros(1000);
        drop(Buffer::<f64>::zeros(100_000));
        assert_eq!(held_by_thread() - before, 4032);
        drop(kept);
        assert_eq!(held_by_thread(), before);
    }

    #[test]
    fn buffers_hold_their_numbers_and_are_aligned_to_cache_lines() {
        for len in [0, 1, 15, 16, 17, 100_000] {
            let numbers: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let buffer = Buffer::from(&numbers[..]);
            assert_eq!(&*buffer, &numbers[..]);
            assert_eq!(buffer.as_ptr() as usize % LINE, 0);
            assert_eq!(buffer.clone(), buffer);
        }
        assert!(Buffer::<f64>::zeros(1000).iter().all(|&x| x == 0.0));
    }

    #[test]
    fn memory_is_reused_for_buffers_of_about_the_same_size() {
        // A size that no other test of this crate uses.
        let lines = MIN_POOLED + 12_345;
        let free = |lines: usize| pool().free.iter().filter(|b| b.len() == lines).count();
        drop(Buffer::<u64>::zeros(lines * 8));
        assert_eq!(free(lines), 1);
        let smaller = Buffer::<u64>::unspecified(lines * 4);
        assert_eq!(free(lines), 1, "half of the memory would be wasted");
        let same = Buffer::<f32>::unspecified(lines * 16 - 5);
        assert_eq!((same.len(), free(lines)), (lines * 16 - 5, 0));
        drop((same, smaller));
        assert_eq!(free(lines), 1);
    }

    #[test]
    fn slightly_smaller_requests_are_rounded_up_to_a_known_size() {
        let lines = MIN_POOLED + 54_321;
        let (first, less) = (Buffer::<u64>::zeros(lines * 8), Buffer::<u64>::zeros(lines * 7));
        assert_eq!((less.len(), less.lines.capacity()), (lines * 7, first.lines.capacity()));
        drop((first, less));
    }

    #[test]
    fn slightly_larger_requests_share_memory() {
        let lines = MIN_POOLED + 23_456;
        let address = |buffer: &Buffer<u64>| buffer.as_ptr();
        let mut one = Buffer::<u64>::zeros(lines * 8);
        one.fill(7);
        let first = address(&one);
        drop(one);
        let larger = Buffer::<u64>::zeros(lines * 8 + 800);
        assert_eq!(address(&larger), first);
        assert_eq!(larger.len(), lines * 8 + 800);
        assert!(larger.iter().all(|&x| x == 0));
        assert!((lines..=lines + lines / 8).contains(&rounded_up(lines)));
        assert_eq!([1, 2, 8, 9, 17, 1000].map(rounded_up), [1, 2, 8, 9, 18, 1024]);
    }
}
