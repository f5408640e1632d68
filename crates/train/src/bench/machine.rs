//! What this machine is.

use std::fs;
use std::time::Instant;

use halograph_kernels::simd::Level;
use serde::Serialize;

/// The machine a figure stands for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// What the CPU calls itself.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// The instructions kernels use.
    pub simd: &'static str,
    /// Bytes of the last cache, where the system tells.
    pub cache_bytes: Option<u64>,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        Machine {
            cpu: cpu().unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get()),
            simd: Level::best().name(),
            cache_bytes: last_cache(),
        }
    }
}

/// A look at who uses the CPUs, to be held against a later one.
pub(super) struct Usage {
    at: Instant,
    /// Ticks of all CPUs that were not idle, stolen ones included, and of this process.
    ticks: Option<(u64, u64)>,
}

/// Ticks a second in `/proc`: fixed by the kernel's interface, whatever its own clock.
const TICKS: f64 = 100.0;

impl Usage {
    pub(super) fn now() -> Self {
        Usage { at: Instant::now(), ticks: ticks() }
    }

    /// The share of all CPU time since then that went to others, where the system tells.
    pub(super) fn others(&self) -> Option<f64> {
        let ((busy, own), (busy_then, own_then)) = (ticks()?, self.ticks?);
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get()) as f64;
        let others = (busy - busy_then) as f64 - (own - own_then) as f64;
        let all = (self.at.elapsed().as_secs_f64() * TICKS * cores).max(1.0);
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
    // What follows the name, which may hold anything: the state is the first, user and system time the 12th and 13th.
    let own = numbers(own.rsplit_once(')')?.1);
    Some((busy, own.get(11)? + own.get(12)?))
}

fn cpu() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Bytes of the largest cache of the first core.
fn last_cache() -> Option<u64> {
    let folders = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = folders.flatten().filter_map(|folder| {
        let text = fs::read_to_string(folder.path().join("size")).ok()?;
        bytes(text.trim())
    });
    sizes.max()
}

/// A size as the kernel writes it: `49152K`.
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
    fn sizes_are_read_as_the_kernel_writes_them() {
        let sizes = ["49152K", "2M", "512", "", "K", "3X"].map(bytes);
        assert_eq!(sizes, [Some(48 << 20), Some(2 << 20), Some(512), None, None, None]);
    }
}
