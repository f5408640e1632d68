//! Describes the machine and its load.

use std::fs;
use std::time::Instant;

use halograph_kernels::simd::Level;
use serde::Serialize;

/// The machine that a measurement was made on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Model name of the CPU.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Instruction set of the kernels.
    pub simd: &'static str,
    /// Bytes of the last-level cache, if the system reports it.
    pub cache_bytes: Option<u64>,
}

impl Machine {
    /// Returns the machine that this process runs on. Reads `/proc` and `/sys`.
    pub fn here() -> Self {
        Machine {
            cpu: cpu().unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            simd: Level::best().name(),
            cache_bytes: last_level_cache(),
        }
    }
}

/// CPU time used up to a point in time, by all processes and by this one.
pub(super) struct CpuUsage {
    at: Instant,
    /// Busy ticks of all CPUs, including stolen ones, and ticks of this process.
    ticks: Option<(u64, u64)>,
}

/// Ticks per second in `/proc` (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

impl CpuUsage {
    pub(super) fn now() -> Self {
        CpuUsage { at: Instant::now(), ticks: ticks() }
    }

    /// Returns the fraction of CPU time that other processes have used since then, if the system reports it.
    pub(super) fn used_by_others(&self) -> Option<f64> {
        let ((busy, own), (busy_then, own_then)) = (ticks()?, self.ticks?);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        let others = (busy - busy_then) as f64 - (own - own_then) as f64;
        let all = (self.at.elapsed().as_secs_f64() * TICKS_PER_SECOND * cores).max(1.0);
        Some((others / all).clamp(0.0, 1.0))
    }
}

fn ticks() -> Option<(u64, u64)> {
    let numbers = |text: &str| text.split_whitespace().map(|n| n.parse().unwrap_or(0)).collect::<Vec<u64>>();
    let all = fs::read_to_string("/proc/stat").ok()?;
    let all = numbers(all.lines().next()?.strip_prefix("cpu ")?);
    // user nice system idle iowait irq softirq steal
    let busy = [0, 1, 2, 5, 6, 7].iter().map(|&i| all.get(i)).sum::<Option<u64>>()?;
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain anything. After it, user and system time are fields 12 and 13.
    let own = numbers(own.rsplit_once(')')?.1);
    Some((busy, own.get(11)? + own.get(12)?))
}

fn cpu() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Returns the bytes of the largest cache of the first core.
fn last_level_cache() -> Option<u64> {
    let folders = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = folders.flatten().filter_map(|folder| {
        let text = fs::read_to_string(folder.path().join("size")).ok()?;
        bytes(text.trim())
    });
    sizes.max()
}

/// Parses a size as the kernel writes it: `49152K`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_cache_sizes_of_the_kernel() {
        let sizes = ["49152K", "2M", "512", "", "K", "3X"].map(bytes);
        assert_eq!(sizes, [Some(48 << 20), Some(2 << 20), Some(512), None, None, None]);
    }
}
