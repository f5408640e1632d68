//! An allocator that tracks current and peak memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub struct Counting {
    live: AtomicUsize,
    peak: AtomicUsize,
}

impl Counting {
    pub const fn new() -> Self {
        Counting { live: AtomicUsize::new(0), peak: AtomicUsize::new(0) }
    }

    /// Resets the peak; returns the current memory in bytes.
    pub fn start(&self) -> usize {
        let live = self.live.load(Relaxed);
        self.peak.store(live, Relaxed);
        live
    }

    /// Returns the peak memory since [`Counting::start`] in bytes.
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }
}

// SAFETY: every call is forwarded to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = self.live.fetch_add(layout.size(), Relaxed) + layout.size();
        self.peak.fetch_max(live, Relaxed);
        // SAFETY: the caller guarantees what `System` requires of `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `ptr` came from `System.alloc` with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}
