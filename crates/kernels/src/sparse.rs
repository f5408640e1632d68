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
}

impl<'a> Pattern<'a> {
    /// A pattern of rows one after the other: entries `bounds[r]..bounds[r + 1]` are those of row `r`.
    pub fn new(bounds: &'a [u64], columns: &'a [u32]) -> Self {
        let [starts @ .., end] = bounds else { panic!("there is a bound more than rows") };
        assert_eq!(*end, columns.len() as u64, "the last bound is the entry count");
        Pattern { starts, ends: &bounds[1..], columns }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len()
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        self.starts.iter().zip(self.ends).map(|(start, end)| (end - start) as usize).sum()
    }

    /// The entries of row `r`.
    #[inline]
    pub fn row(&self, r: usize) -> Range<usize> {
        self.starts[r] as usize..self.ends[r] as usize
    }

    /// Runs of rows for tasks: together all rows, each of about `share` entries and rows.
    ///
    /// They follow from the pattern alone, so that the number of threads changes nothing.
    pub(crate) fn tasks(&self, share: usize) -> Vec<Range<usize>> {
        let (Some(&first), Some(&last)) = (self.starts.first(), self.ends.last()) else { return Vec::new() };
        let rows = self.rows();
        let before = |r: usize| (self.starts[r] - first) as usize + r;
        let count = ((last - first) as usize + rows).div_ceil(share);
        let cut = |i: usize| partition(rows, |r| before(r) < i * share);
        let mut cuts: Vec<usize> = (0..count).map(cut).collect();
        cuts.push(rows);
        cuts.dedup();
        cuts.windows(2).map(|cut| cut[0]..cut[1]).collect()
    }
}

/// The first of `0..len` for which `below`, true up to somewhere, is false.
fn partition(len: usize, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low.midpoint(high);
        if below(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Cuts `data`, rows of `width`, into the rows of each task.
pub(crate) fn cut<'a, T>(tasks: &[Range<usize>], width: usize, mut data: &'a mut [T]) -> Vec<&'a mut [T]> {
    let next = |rows: &Range<usize>| {
        let (share, rest) = std::mem::take(&mut data).split_at_mut(rows.len() * width);
        data = rest;
        share
    };
    tasks.iter().map(next).collect()
}

/// An owned pattern, read the other way round.
#[derive(Debug, Clone)]
pub struct Transpose {
    starts: Vec<u64>,
    columns: Vec<u32>,
}

impl Transpose {
    /// The transpose of `pattern`, a matrix with `cols` columns; each of its rows keeps the order of the
    /// original rows.
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

    /// The transposed pattern.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern::new(&self.starts, &self.columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pattern;

    #[test]
    fn transposing_keeps_every_entry() {
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
    fn transposing_leaves_out_what_rows_that_end_early_leave_out() {
        let pattern = Pattern { starts: &[0, 3], ends: &[2, 4], columns: &[1, 0, 2, 1] };
        let transpose = Transpose::of(pattern, 3);
        assert_eq!((&transpose.starts[..], &transpose.columns[..]), (&[0, 1, 3, 3][..], &[0, 0, 1][..]));
    }

    #[test]
    fn tasks_cover_all_rows_once_and_share_the_entries() {
        // A hub among rows of three.
        let lengths = (0..30_000u64).map(|r| if r == 20_000 { 50_000 } else { 3 });
        let mut bounds = vec![0];
        lengths.for_each(|length| bounds.push(bounds[bounds.len() - 1] + length));
        let columns = vec![0; bounds[30_000] as usize];
        let pattern = Pattern::new(&bounds, &columns);
        let tasks = pattern.tasks(4096);
        assert_eq!(tasks.iter().cloned().flatten().collect::<Vec<_>>(), (0..30_000).collect::<Vec<_>>());
        assert!(tasks.len() > 8);
        for rows in tasks.iter().filter(|rows| !rows.contains(&20_000)) {
            assert!(rows.len() * 4 <= 2 * 4096, "{rows:?} is more than its share");
        }
        assert!(Pattern::new(&[0], &[]).tasks(1).is_empty());
    }
}
