//! Vectorised attention for `f32`.
//!
//! The entries of a row are processed in blocks. For each head, the exponentials of a block are computed in vector
//! registers. Entries that are not dropped are then partitioned by the sign of `s + t`, and the rows of each side are
//! summed, with the sums in registers. Let P and N be the weighted sums over positive and non-positive entries. The
//! output is P + N, and only N is multiplied by the slope in derivatives. The backward is the same over the
//! transposed pattern:
//!
//! ```text
//! ds[u] = Σ_v k_e α_e (f_e G[v] · z[u] - D[v]) = z[u] · (P + slope N) - Σ_v k_e α_e D[v]
//! ```
//!
//! Tasks are runs of rows with about equally many entries. A row longer than a segment is split into segments, which
//! are computed in parallel; their results are merged in order (in the backward: added in order). Tasks and segments
//! depend on the pattern only, so the number of threads does not change the result.

mod backward;
mod block;
mod forward;

use std::ops::Range;

use crate::simd::Level;
use crate::sparse::Pattern;

pub(super) use backward::backward;
pub(super) use forward::forward;

/// Entries plus rows per task.
const TASK: usize = 4096;

/// Configuration of the fast implementation.
#[derive(Clone, Copy)]
pub(super) struct Config {
    /// Instruction set; must be available on this CPU.
    pub level: Level,
    /// Entries per segment of a long row.
    pub segment: usize,
}

impl Config {
    /// Returns the fastest configuration on this CPU.
    pub(super) fn best() -> Self {
        Config { level: Level::best(), segment: 1 << 14 }
    }

    /// Splits the rows of a pattern into tasks.
    fn tasks(self, pattern: Pattern) -> Vec<Range<usize>> {
        pattern.tasks(TASK.min(self.segment))
    }

    /// Returns the row of a task that is longer than a segment, if there is one. Only the last row can be: a task ends
    /// after it.
    fn long_row(self, pattern: Pattern, rows: &Range<usize>) -> Option<usize> {
        rows.end.checked_sub(1).filter(|&r| pattern.row(r).len() > self.segment)
    }
}
