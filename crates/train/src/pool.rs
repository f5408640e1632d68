//! Threads of a rank.

use crate::config::TrainConfig;
use crate::error::{Error, Result};

/// Returns the number of threads of a rank: as configured, or an equal share of the cores of this host among `ranks`.
pub fn threads_among(config: &TrainConfig, ranks: usize) -> usize {
    match config.threads {
        0 => (std::thread::available_parallelism().map_or(1, |n| n.get()) / ranks.max(1)).max(1),
        threads => threads,
    }
}

/// Returns the number of threads of a rank, if all ranks are on this host.
pub fn threads(config: &TrainConfig) -> usize {
    threads_among(config, config.ranks)
}

/// Runs `work` in a thread pool of this size.
pub(crate) fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| Error::Threads { threads, cause: e.to_string() })?.install(work)
}
