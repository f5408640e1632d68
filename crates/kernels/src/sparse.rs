//! The pattern of a sparse matrix, by rows, and its transpose.

use std::ops::Range;

/// Which columns each row holds, in compressed rows.
#[derive(Debug, Clone, Copy)]
pub struct Pattern<'a> {
    /// Where the entries of each row begin, rising.
    pub starts: &'a [u64],
    /// Where they end. Rows need not fill the space up to the next one: a pattern may leave out the last entries of its
    /// rows without moving the others.
    pub ends: &'a [u64],
    /// Column of each entry.
    pub columns: &'a [u32],
    /// Where the value of each entry is kept; `None`: in the order of the entries. A transposed pattern reads
    /// values through this, so that they never move.
    pub slots: Option<&'a [u64]>,
}

impl<'a> Pattern<'a> {
    /// A pattern of rows one after the other: entries `bounds[r]..bounds[r + 1]` are those of row `r`. Values are kept
    /// in the order of the entries.
    pub fn new(bounds: &'a [u64], columns: &'a [u32]) -> Self {
        let [starts @ .., end] = bounds else { panic!("there is a bound more than rows") };
        assert_eq!(*end, columns.len() as u64, "the last bound is the entry count");
        Pattern { starts, ends: &bounds[1..], columns, slots: None }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// The entries of row `r`.
    #[inline]
    pub fn row(&self, r: usize) -> Range<usize> {
        self.starts[r] as usize..self.ends[r] as usize
    }

    /// Where the value of entry `e` is kept.
    #[inline]
    pub fn slot(&self, e: usize) -> usize {
        self.slots.map_or(e, |slots| slots[e] as usize)
    }
}

/// An owned pattern, read the other way round.
#[derive(Debug, Clone)]
pub struct Transpose {
    starts: Vec<u64>,
    columns: Vec<u32>,
    slots: Option<Vec<u64>>,
}

impl Transpose {
    /// The transpose of `pattern`, a matrix with `cols` columns; each of its rows keeps the order of the
    /// original rows. `slots`: remember where values are kept (8 bytes an entry more), for weighted entries.
    pub fn of(pattern: Pattern, cols: usize, slots: bool) -> Self {
        let mut starts = vec![0u64; cols + 1];
        pattern.columns.iter().for_each(|&c| starts[c as usize + 1] += 1);
        (0..cols).for_each(|c| starts[c + 1] += starts[c]);
        let mut next = starts.clone();
        let mut columns = vec![0u32; pattern.columns.len()];
        let mut from = slots.then(|| vec![0u64; columns.len()]);
        for r in 0..pattern.rows() {
            for e in pattern.row(r) {
                let place = &mut next[pattern.columns[e] as usize];
                columns[*place as usize] = r as u32;
                if let Some(from) = &mut from {
                    from[*place as usize] = pattern.slot(e) as u64;
                }
                *place += 1;
            }
        }
        Transpose { starts, columns, slots: from }
    }

    /// The transposed pattern.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern { slots: self.slots.as_deref(), ..Pattern::new(&self.starts, &self.columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pattern;

    #[test]
    fn transposing_keeps_every_entry_and_its_slot() {
        let (starts, columns) = pattern(1, 30, 20);
        let forward = Pattern::new(&starts, &columns);
        let transpose = Transpose::of(forward, 20, true);
        let back = transpose.pattern();
        assert_eq!(back.rows(), 20);
        let mut seen = vec![false; columns.len()];
        for c in 0..20 {
            let rows: Vec<u32> = back.row(c).map(|e| back.columns[e]).collect();
            assert!(rows.is_sorted());
            for e in back.row(c) {
                let original = back.slot(e);
                assert_eq!(columns[original], c as u32);
                assert!(forward.row(back.columns[e] as usize).contains(&original));
                assert!(!std::mem::replace(&mut seen[original], true));
            }
        }
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn slots_are_left_out_unless_asked_for() {
        let (starts, columns) = pattern(2, 5, 5);
        assert!(Transpose::of(Pattern::new(&starts, &columns), 5, false).pattern().slots.is_none());
    }
}
