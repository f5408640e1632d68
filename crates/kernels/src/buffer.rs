//! Memory for large arrays, used again and again.
//!
//! Training makes and drops the same matrices every epoch. Giving their memory back and asking for it anew costs a page
//! fault for every 4 KiB, so a dropped [`Buffer`] is kept, and the next one of about its size takes it over: after the
//! first epoch nothing is allocated any more. Memory begins at a cache line and, where it is large, asks for huge
//! pages.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, RangeInclusive};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use crate::work::{self, Cost};

/// A cache line: what makes the allocator align.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

const LINE: usize = size_of::<Line>();
/// Buffers of fewer lines are left to the allocator: 256 KiB.
const LEAST: usize = (256 << 10) / LINE;
/// Bytes of one task that fills or copies.
const CHUNK: usize = 1 << 18;
/// Buffers of fewer lines do not ask for huge pages: 4 MiB.
const HUGE: usize = (4 << 20) / LINE;

/// What is known of memory that was used before.
struct Pool {
    /// Memory that was dropped, for the next to take.
    kept: Vec<Vec<Line>>,
    /// Sizes in lines that were made. A little less is made as large, so that both can take the place of the other.
    sizes: Vec<usize>,
}

impl Pool {
    /// How many lines to make where `count` are asked for.
    fn size_for(&mut self, count: usize) -> usize {
        let known = self.sizes.iter().copied().filter(|size| enough(count).contains(size)).min();
        known.unwrap_or_else(|| {
            self.sizes.push(count);
            count
        })
    }
}

static POOL: Mutex<Pool> = Mutex::new(Pool { kept: Vec::new(), sizes: Vec::new() });

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sizes in lines that serve for `count` without wasting much.
fn enough(count: usize) -> RangeInclusive<usize> {
    count..=count + count / 4
}

/// Whether dropped memory is kept.
static KEEPING: AtomicBool = AtomicBool::new(true);

/// Runs `work` with memory given back as soon as it is dropped: for measuring what is needed. Nothing else should run
/// meanwhile.
pub fn without_keeping<R>(work: impl FnOnce() -> R) -> R {
    /// Keeps again, whatever happens, and forgets the sizes that were made.
    struct Again;
    impl Drop for Again {
        fn drop(&mut self) {
            KEEPING.store(true, Ordering::Relaxed);
            release();
        }
    }
    release();
    KEEPING.store(false, Ordering::Relaxed);
    let _again = Again;
    work()
}

/// Frees all memory that is kept for later: before a phase that needs other sizes.
pub fn release() {
    let mut pool = pool();
    pool.kept.clear();
    pool.sizes.clear();
}

/// A fixed number of plain numbers.
pub struct Buffer<T> {
    lines: Vec<Line>,
    len: usize,
    numbers: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    /// `len` numbers, nobody knows which: for results that are written before they are read.
    pub fn unspecified(len: usize) -> Self {
        let count = (len * size_of::<T>()).div_ceil(LINE);
        let lines = take(count).unwrap_or_else(|| make(count));
        let mut buffer = Buffer { lines, len, numbers: PhantomData };
        if cfg!(debug_assertions) {
            // Not a number in any precision: whoever reads before writing will notice.
            bytemuck::cast_slice_mut::<T, u8>(&mut buffer).fill(0xFF);
        }
        buffer
    }

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut buffer = Self::unspecified(len);
        let _work = work::begin("zeros", || Cost::stream(0, len * size_of::<T>()));
        buffer.lines.par_chunks_mut(CHUNK / LINE).for_each(|lines| lines.fill(Line::zeroed()));
        buffer
    }
}

/// The smallest kept buffer of at least `count` lines that would not waste much.
fn take(count: usize) -> Option<Vec<Line>> {
    if count < LEAST {
        return None;
    }
    let mut pool = pool();
    let fits = pool.kept.iter().enumerate().filter(|(_, b)| enough(count).contains(&b.len()));
    let best = fits.min_by_key(|(_, b)| b.len()).map(|(i, _)| i)?;
    Some(pool.kept.swap_remove(best))
}

fn make(count: usize) -> Vec<Line> {
    let count = if count < LEAST { count } else { pool().size_for(count) };
    let mut lines = Vec::with_capacity(count);
    if count >= HUGE {
        advise(&lines);
    }
    // By all threads: on large machines memory lies where it was first touched.
    let zero = |part: &mut [MaybeUninit<Line>]| part.fill(MaybeUninit::new(Line::zeroed()));
    lines.spare_capacity_mut()[..count].par_chunks_mut(CHUNK / LINE).for_each(zero);
    // SAFETY: all of them have just been written.
    unsafe { lines.set_len(count) };
    lines
}

/// Asks for huge pages, before any page is touched. The answer does not matter.
fn advise(lines: &Vec<Line>) {
    #[cfg(target_os = "linux")]
    {
        use rustix::mm::{Advice, madvise};
        let page = rustix::param::page_size();
        let start = (lines.as_ptr() as usize).next_multiple_of(page);
        let end = (lines.as_ptr() as usize + lines.capacity() * LINE) / page * page;
        if start < end {
            // SAFETY: these pages lie within this allocation, and the advice changes no content.
            let _ = unsafe { madvise(start as *mut _, end - start, Advice::LinuxHugepage) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = lines;
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.lines.len() >= LEAST && KEEPING.load(Ordering::Relaxed) {
            pool().kept.push(std::mem::take(&mut self.lines));
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
    fn numbers_are_what_was_put_in_and_begin_at_a_cache_line() {
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
    fn memory_is_taken_over_by_the_next_of_its_size_only() {
        // Sizes that no other test of this crate uses.
        let lines = LEAST + 12_345;
        let kept_now = |lines: usize| pool().kept.iter().filter(|b| b.len() == lines).count();
        drop(Buffer::<u64>::zeros(lines * 8));
        assert_eq!(kept_now(lines), 1);
        let smaller = Buffer::<u64>::unspecified(lines * 4);
        assert_eq!(kept_now(lines), 1, "half the size would waste the rest");
        let same = Buffer::<f32>::unspecified(lines * 16 - 5);
        assert_eq!((same.len(), kept_now(lines)), (lines * 16 - 5, 0));
        drop((same, smaller));
        assert_eq!(kept_now(lines), 1);
    }

    #[test]
    fn a_little_less_is_made_as_large() {
        let lines = LEAST + 54_321;
        let (first, less) = (Buffer::<u64>::zeros(lines * 8), Buffer::<u64>::zeros(lines * 7));
        assert_eq!((less.len(), less.lines.len()), (lines * 7, lines));
        drop((first, less));
    }
}
