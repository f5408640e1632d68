//! Numbers of the rows of a sample: the order in which hops add them.

use super::Hop;

/// Numbers the rows of samples, one sample after the other. Holds four and a quarter bytes per node.
pub(super) struct Numbering {
    /// Rows that are in the sample.
    seen: RowSet,
    /// Rows that the current hop added.
    fresh: RowSet,
    /// Position in the sample of each row that is in it.
    position: Vec<u32>,
}

impl Numbering {
    /// Creates a numbering of rows below `nodes`. Allocates.
    pub(super) fn new(nodes: usize) -> Self {
        Numbering { seen: RowSet::new(nodes), fresh: RowSet::new(nodes), position: vec![0; nodes] }
    }

    /// Starts a sample with these rows.
    ///
    /// # Panics
    /// If a seed is listed twice or is not a row.
    pub(super) fn start(&mut self, seeds: &[u32]) {
        for (at, &row) in seeds.iter().enumerate() {
            assert!(self.seen.insert(row), "seed {row} is listed twice");
            self.position[row as usize] = at as u32;
        }
    }

    /// Appends the new neighbours of a hop, and those of `others` that are new, to `rows`, ascending; replaces the neighbours in
    /// `hop` by their positions.
    pub(super) fn add_hop<'o>(
        &mut self,
        rows: &mut Vec<u32>,
        hop: &mut Hop,
        others: impl IntoIterator<Item = &'o u32>,
    ) {
        for row in hop.drawn.sources.iter().copied().chain(others.into_iter().copied()) {
            if self.seen.insert(row) {
                self.fresh.insert(row);
            }
        }
        let position = &mut self.position;
        self.fresh.drain(|row| {
            position[row as usize] = rows.len() as u32;
            rows.push(row);
        });
        hop.drawn.sources.iter_mut().for_each(|row| *row = position[*row as usize]);
        hop.sources = rows.len();
    }

    /// Returns the position of a row that is in the sample.
    pub(super) fn position(&self, row: u32) -> u32 {
        self.position[row as usize]
    }

    /// Forgets the rows of the sample.
    pub(super) fn clear(&mut self, rows: &[u32]) {
        rows.iter().for_each(|&row| self.seen.remove(row));
    }
}

/// A set of row numbers: one bit for each that there may be.
#[derive(Debug)]
pub struct RowSet(Vec<u64>);

impl RowSet {
    /// Creates an empty set of rows below `rows`. Allocates.
    pub fn new(rows: usize) -> Self {
        RowSet(vec![0; rows.div_ceil(64)])
    }

    /// Adds a row; returns whether it is new.
    #[inline]
    pub fn insert(&mut self, row: u32) -> bool {
        let (word, bit) = (&mut self.0[row as usize / 64], 1 << (row % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    #[inline]
    fn remove(&mut self, row: u32) {
        self.0[row as usize / 64] &= !(1 << (row % 64));
    }

    /// Removes all rows, and calls `each` with them in ascending order.
    pub fn drain(&mut self, mut each: impl FnMut(u32)) {
        for (i, word) in self.0.iter_mut().enumerate().filter(|(_, word)| **word != 0) {
            let mut rest = std::mem::take(word);
            while rest != 0 {
                each(i as u32 * 64 + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
    }
}
