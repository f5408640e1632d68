//! Memory of this process: a counting allocator, and what the system reports.
//!
//! The counting allocator is the program's to install:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: halograph_train::memory::Counting = halograph_train::memory::Counting;
//! # fn main() { assert!(halograph_train::memory::is_counting()) }
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rustix::process::{Resource, getrlimit};

/// Bytes allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Whether anything was counted.
static COUNTS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Bytes that this thread allocated, less those that it freed.
    static OWN: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which also counts allocated bytes.
pub struct Counting;

impl Counting {
    fn add(&self, bytes: usize) {
        LIVE.fetch_add(bytes, Relaxed);
        COUNTS.store(true, Relaxed);
        count_own(bytes as isize);
    }

    fn remove(&self, bytes: usize) {
        LIVE.fetch_sub(bytes, Relaxed);
        count_own(-(bytes as isize));
    }
}

fn count_own(bytes: isize) {
    // Fails only while the thread ends.
    let _ = OWN.try_with(|own| own.set(own.get() + bytes));
}

// SAFETY: every call goes to the system's allocator as it came; counting touches two numbers.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        self.remove(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.add(size);
        self.remove(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Returns whether the program installed [`Counting`].
pub fn is_counting() -> bool {
    COUNTS.load(Relaxed)
}

/// Bytes allocated now; 0 where the program does not count.
pub fn allocated() -> usize {
    LIVE.load(Relaxed)
}

/// Returns the bytes that this thread allocated, less those that it freed; 0 where the program does not count.
pub(crate) fn allocated_by_thread() -> isize {
    OWN.get()
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn rss() -> Option<u64> {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// Returns the peak resident memory of this process, in bytes.
pub fn peak_rss() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// Bytes that this process can still allocate: free memory of the host, within the limits of its control group and of its
/// address space.
pub fn available() -> Option<u64> {
    let machine = kibibytes("/proc/meminfo", "MemAvailable:")?;
    Some([group_limit(), address_space()].into_iter().flatten().fold(machine, u64::min))
}

/// Bytes that the limit of the address space (`ulimit -v`) leaves this process, if there is one.
fn address_space() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    Some(limit.saturating_sub(kibibytes("/proc/self/status", "VmSize:")?))
}

/// Bytes that the control group of this process (version 2) leaves it, if it sets a limit.
fn group_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = Path::new("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let number = |file: &str| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    let (max, used) = number("memory.max").zip(number("memory.current"))?;
    // Files the kernel merely remembers are given up when memory is asked for.
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cached = |key: &str| stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let cached = cached("inactive_file ").unwrap_or(0) + cached("active_file ").unwrap_or(0);
    Some(max.saturating_sub(used.saturating_sub(cached)))
}

fn kibibytes(file: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}
