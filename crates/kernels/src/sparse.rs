//! Sparse matrices in CSR form: patterns, their transposes, and rows with values.

use std::ops::Range;

/// A borrowed sparse pattern in CSR form.
#[derive(Debug, Clone, Copy)]
pub struct Pattern<'a> {
    /// Start of each row in `columns`, ascending.
    pub starts: &'a [u64],
    /// End of each row in `columns`. May be less than the start of the next row: a pattern can omit the last entries of
    /// its rows.
    pub ends: &'a [u64],
    /// Column of each entry.
    pub columns: &'a [u32],
}

impl<'a> Pattern<'a> {
    /// Returns a pattern of contiguous rows: row `r` consists of entries `bounds[r]..bounds[r + 1]`.
    pub fn new(bounds: &'a [u64], columns: &'a [u32]) -> Self {
        let [starts @ .., end] = bounds else { panic!("bounds are empty") };
        assert_eq!(*end, columns.len() as u64, "last bound");
        Pattern { starts, ends: &bounds[1..], columns }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// Returns the number of entries, in time linear in the number of rows.
    pub fn entries(&self) -> usize {
        self.starts.iter().zip(self.ends).map(|(start, end)| (end - start) as usize).sum()
    }

    /// Returns the entries of row `r`, as a range of `columns`.
    #[inline]
    pub fn row(&self, r: usize) -> Range<usize> {
        self.starts[r] as usize..self.ends[r] as usize
    }

    /// Splits all rows into consecutive ranges for tasks, each with about `share` entries plus rows. Allocates.
    ///
    /// The ranges depend on the pattern only, not on the number of threads.
    pub(crate) fn tasks(&self, share: usize) -> Vec<Range<usize>> {
        let (Some(&first), Some(&last)) = (self.starts.first(), self.ends.last()) else { return Vec::new() };
        let rows = self.rows();
        let before = |r: usize| (self.starts[r] - first) as usize + r;
        let count = ((last - first) as usize + rows).div_ceil(share);
        let bound = |i: usize| partition_point(rows, |r| before(r) < i * share);
        let mut bounds: Vec<usize> = (0..count).map(bound).collect();
        bounds.push(rows);
        bounds.dedup();
        bounds.windows(2).map(|bounds| bounds[0]..bounds[1]).collect()
    }
}

/// A borrowed sparse matrix in CSR form. Columns ascend within a row.
#[derive(Debug, Clone, Copy)]
pub struct SparseRows<'a, T> {
    /// Start of each row in `columns` and `values`, and the end of the last one.
    starts: &'a [u64],
    columns: &'a [u32],
    values: &'a [T],
    cols: usize,
}

impl<'a, T> SparseRows<'a, T> {
    /// Returns a matrix of `cols` columns. The first row need not start at 0: `starts` may be those of some rows of a matrix.
    pub fn new(starts: &'a [u64], columns: &'a [u32], values: &'a [T], cols: usize) -> Self {
        assert_eq!(columns.len(), values.len(), "a column of every value");
        assert!(starts.last().is_some_and(|&end| end <= columns.len() as u64), "bounds of rows");
        SparseRows { starts, columns, values, cols }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Returns the number of stored values.
    pub fn stored(&self) -> usize {
        (self.starts[self.rows()] - self.starts[0]) as usize
    }

    /// Returns columns and values of row `r`.
    #[inline]
    pub fn row(&self, r: usize) -> (&'a [u32], &'a [T]) {
        let row = self.starts[r] as usize..self.starts[r + 1] as usize;
        (&self.columns[row.clone()], &self.values[row])
    }

    /// Returns some of the rows.
    pub fn some(self, rows: Range<usize>) -> Self {
        SparseRows { starts: &self.starts[rows.start..=rows.end], ..self }
    }

    /// Returns the values of the entries of [`SparseRows::pattern`].
    pub(crate) fn values(&self) -> &'a [T] {
        self.values
    }

    /// Returns the pattern.
    pub(crate) fn pattern(&self) -> Pattern<'a> {
        let [starts @ .., _] = self.starts else { panic!("bounds are empty") };
        Pattern { starts, ends: &self.starts[1..], columns: self.columns }
    }
}

/// Returns the first index in `0..len` for which `below` is false, by binary search; `len` if there is none.
fn partition_point(len: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Splits `data` (rows x `width`) into the rows of each task.
pub(crate) fn split_by_task<'a, T>(
    tasks: &[Range<usize>],
    width: usize,
    mut data: &'a mut [T],
) -> Vec<&'a mut [T]> {
    let next = |rows: &Range<usize>| {
        let (share, rest) = std::mem::take(&mut data).split_at_mut(rows.len() * width);
        data = rest;
        share
    };
    tasks.iter().map(next).collect()
}

/// A transposed pattern in memory of its own.
#[derive(Debug, Clone)]
pub struct Transpose {
    starts: Vec<u64>,
    columns: Vec<u32>,
}

impl Transpose {
    /// Transposes `pattern`, which has `cols` columns. Entries of each row of the result are in the order of the
    /// original rows. Allocates.
    pub fn of(pattern: Pattern, cols: usize) -> Self {
        let entries = |r: usize| &pattern.columns[pattern.row(r)];
        let mut starts = vec![0u64; cols + 1];
        (0..pattern.rows()).flat_map(entries).for_each(|&c| starts[c as usize + 1] += 1);
        (0..cols).for_each(|c| starts[c + 1] += starts[c]);
        let mut next = starts.clone();
        let mut columns = vec![0u32; starts[cols] as usize];
        for r in 0..pattern.rows() {
            for &c in entries(r) {
                let place = &mut next[c as usize];
                columns[*place as usize] = r as u32;
                *place += 1;
            }
        }
        Transpose { starts, columns }
    }

    /// Returns the `values` of the entries of `pattern`, which has `cols` columns, in the order of its transpose. Allocates.
    pub fn values(pattern: Pattern, cols: usize, values: &[f32]) -> Vec<f32> {
        assert_eq!(values.len(), pattern.columns.len(), "a value of every entry");
        let entries = |r: usize| pattern.row(r).map(|e| (pattern.columns[e] as usize, values[e]));
        let mut next = vec![0u64; cols + 1];
        (0..pattern.rows()).flat_map(entries).for_each(|(c, _)| next[c + 1] += 1);
        (0..cols).for_each(|c| next[c + 1] += next[c]);
        let mut out = vec![0.0; next[cols] as usize];
        for (c, value) in (0..pattern.rows()).flat_map(entries) {
            out[next[c] as usize] = value;
            next[c] += 1;
        }
        out
    }

    /// Returns the transposed pattern.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.starts, &self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pattern;

    #[test]
    fn transpose_contains_every_entry() {
        let (starts, columns) = pattern(1, 30, 20);
        let forward = Pattern::new(&starts, &columns);
        let transpose = Transpose::of(forward, 20);
        let back = transpose.pattern();
        assert_eq!(back.rows(), 20);
        let count = |p: Pattern, r: usize, c: usize| {
            p.columns[p.row(r)].iter().filter(|&&column| column as usize == c).count()
        };
        for c in 0..20 {
            assert!(back.columns[back.row(c)].is_sorted());
            (0..30).for_each(|r| assert_eq!(count(forward, r, c), count(back, c, r)));
        }
    }

    #[test]
    fn transpose_omits_entries_after_the_end_of_a_row() {
        let pattern = Pattern { starts: &[0, 3], ends: &[2, 4], columns: &[1, 0, 2, 1] };
        let transpose = Transpose::of(pattern, 3);
        assert_eq!((&transpose.starts[..], &transpose.columns[..]), (&[0, 1, 3, 3][..], &[0, 0, 1][..]));
        assert_eq!(Transpose::values(pattern, 3, &[1.0, 2.0, 3.0, 4.0]), [2.0, 1.0, 4.0]);
    }

    #[test]
    fn tasks_contain_every_row_once_and_balance_entries() {
        // One hub; all other rows have three entries.
        let lengths = (0..30_000u64).map(|r| if r == 20_000 { 50_000 } else { 3 });
        let mut bounds = vec![0];
        lengths.for_each(|length| bounds.push(bounds[bounds.len() - 1] + length));
        let columns = vec![0; bounds[30_000] as usize];
        let pattern = Pattern::new(&bounds, &columns);
        let tasks = pattern.tasks(4096);
        assert_eq!(tasks.iter().cloned().flatten().collect::<Vec<_>>(), (0..30_000).collect::<Vec<_>>());
        assert!(tasks.len() > 8);
        for rows in tasks.iter().filter(|rows| !rows.contains(&20_000)) {
            assert!(rows.len() * 4 <= 2 * 4096, "task {rows:?} is too large");
        }
        assert!(Pattern::new(&[0], &[]).tasks(1).is_empty());
    }
}
