//! Which entries are dropped.

use crate::keyed::Key;

/// What is dropped: a function of the ids of an entry's two ends and the head, whatever part of a graph is at hand.
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    /// Names the mask.
    pub key: Key,
    /// Probability that an entry is dropped, in one head.
    pub p: f64,
    /// Id of each row; `None`: that of the column it is itself, or if it is none its number.
    pub rows: Option<&'a [u32]>,
    /// Id of each column; `None`: its number.
    pub columns: Option<&'a [u32]>,
}

impl Mask<'_> {
    #[inline]
    pub(super) fn column_id(&self, column: usize) -> u64 {
        self.columns.map_or(column as u64, |ids| ids[column] as u64)
    }

    /// What the streams of a row's entries have in common; row 0 is column `first`, if it is any.
    #[inline]
    pub(super) fn row(&self, row: usize, first: Option<usize>) -> Key {
        self.key.with(match (self.rows, first) {
            (Some(ids), _) => ids[row] as u64,
            (None, Some(first)) => self.column_id(first + row),
            (None, None) => row as u64,
        })
    }

    /// The stream of an entry; positions are heads.
    #[inline]
    pub(super) fn entry(&self, row: usize, first: Option<usize>, column: usize) -> Key {
        self.row(row, first).with(self.column_id(column))
    }
}
