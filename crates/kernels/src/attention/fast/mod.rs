//! Attention in single precision, in vector registers.
//!
//! A row's entries are taken in blocks. For each head, the exponentials of a block are made side by side; entries are
//! then sorted into those whose logit is on the upper side of the leaky ReLU and those on the lower, dropped ones left
//! out, and the rows of each side are summed with the sums in registers. Two sums serve for everything: with U and L
//! the weighted sums of either side, the output is U + L, and what the slope multiplies is L alone. The backward is
//! the same over the transposed pattern, as
//!
//! ```text
//! ds[u] = Σ_v k_e α_e (f_e G[v] · z[u] - D[v]) = z[u] · (U + slope L) - Σ_v k_e α_e D[v]
//! ```
//!
//! Tasks are runs of rows with about equally many entries. Rows longer than a segment are cut into segments, which are
//! attended side by side and merged in their order; of the backward the segments' sums are added up. All of this
//! follows from the pattern alone: bits do not depend on threads.

mod backward;
mod block;
mod forward;

use std::ops::Range;

use crate::simd::Level;
use crate::sparse::Pattern;

pub(super) use backward::backward;
pub(super) use forward::forward;

/// Entries and rows of a task.
const TASK: usize = 4096;

/// How it is done.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Instructions that this CPU has.
    pub level: Level,
    /// Entries in a segment of a long row.
    pub segment: usize,
}

impl Way {
    /// The one that is fastest here.
    pub(super) fn best() -> Self {
        Way { level: Level::best(), segment: 1 << 14 }
    }

    fn tasks(self, pattern: Pattern) -> Vec<Range<usize>> {
        pattern.tasks(TASK.min(self.segment))
    }

    /// The row of a task that is longer than a segment. It can only be the last: the next row would be in the next
    /// task.
    fn long_row(self, pattern: Pattern, rows: &Range<usize>) -> Option<usize> {
        rows.end.checked_sub(1).filter(|&r| pattern.row(r).len() > self.segment)
    }
}
