//! Attention dropout.

use crate::keyed::Key;

/// Attention dropout mask. Whether an entry is dropped in a head is a function of the ids of its row and column and the
/// head, so it does not depend on the partition of the graph.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// Random stream of the mask.
    pub key: Key,
    /// Probability that an entry is dropped in a head.
    pub p: f64,
    /// Id of each row; `None`: that of its self-loop's column, or without self-loops its index.
    pub rows: Option<&'a [u32]>,
    /// Id of each column; `None`: its index.
    pub columns: Option<&'a [u32]>,
}

impl Mask<'_> {
    /// Returns the id of a column.
    #[inline]
    pub(super) fn column_id(&self, column: usize) -> u64 {
        self.columns.map_or(column as u64, |ids| ids[column] as u64)
    }

    /// Returns the common prefix of the streams of a row's entries. `first`: as in [`Attention`](super::Attention).
    #[inline]
    pub(super) fn row(&self, row: usize, first: Option<usize>) -> Key {
        self.key.with(match (self.rows, first) {
            (Some(ids), _) => ids[row] as u64,
            (None, Some(first)) => self.column_id(first + row),
            (None, None) => row as u64,
        })
    }

    /// Returns the stream of an entry; counters are heads.
    #[inline]
    pub(super) fn entry(&self, row: usize, first: Option<usize>, column: usize) -> Key {
        self.row(row, first).with(self.column_id(column))
    }
}
