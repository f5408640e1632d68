//! Fetched rows that are kept for coming macrobatches.
//!
//! All policies see the rows of a macrobatch at once: of the rows kept so far and those just fetched, the best ones stay. The
//! coming macrobatches are sampled already, so the policy [`RowCache::Future`] knows which rows they need, and keeps those
//! that are needed soonest (Belady's rule). Rows that none of them needs are kept by degree.

use super::rows::FetchedRows;
use crate::config::RowCache;

/// Marks vertices whose rows are not kept.
const NOWHERE: u32 = u32::MAX;

/// Rows of remote vertices that are kept.
pub(super) struct KeptRows {
    policy: RowCache,
    /// Maximum number of rows.
    capacity: usize,
    row_bytes: usize,
    /// Slot of each vertex, by its number.
    slots: Vec<u32>,
    /// Vertex of each slot.
    vertices: Vec<u32>,
    /// Macrobatch that used each slot last.
    used: Vec<u64>,
    rows: FetchedRows,
    /// Slots of rows that were dropped.
    free: Vec<u32>,
    /// Number of the current macrobatch.
    now: u64,
}

impl KeptRows {
    /// Creates an empty cache of rows of `nodes` vertices. Allocates four bytes per vertex; memory for rows when needed.
    pub(super) fn new(policy: RowCache, nodes: usize, capacity: usize, row_bytes: usize) -> Self {
        let capacity = if policy == RowCache::None { 0 } else { capacity };
        KeptRows {
            policy,
            capacity,
            row_bytes,
            slots: vec![NOWHERE; if capacity > 0 { nodes } else { 0 }],
            vertices: Vec::new(),
            used: Vec::new(),
            rows: FetchedRows::default(),
            free: Vec::new(),
            now: 0,
        }
    }

    /// Returns the row of a vertex, if it is kept: its bytes and facts.
    pub(super) fn get(&mut self, vertex: u32) -> Option<(&[u8], (u32, u32))> {
        let slot = *self.slots.get(vertex as usize).filter(|&&slot| slot != NOWHERE)? as usize;
        self.used[slot] = self.now;
        Some((&self.rows.bytes[slot * self.row_bytes..][..self.row_bytes], self.rows.facts[slot]))
    }

    /// Ends a macrobatch that used `rows` of the distinct `vertices`: keeps the best of them and of the rows kept so far.
    /// `coming`: the vertices of the coming macrobatches that are sampled already, the next one first.
    pub(super) fn update<'v>(
        &mut self,
        vertices: &[u32],
        rows: &FetchedRows,
        coming: impl DoubleEndedIterator<Item = &'v [u32]> + ExactSizeIterator,
    ) {
        if self.capacity == 0 {
            return;
        }
        let fetched = vertices.iter().zip(0..).filter(|(vertex, _)| self.slots[**vertex as usize] == NOWHERE);
        let fetched: Vec<(u32, u32)> = fetched.map(|(&vertex, at)| (vertex, at)).collect();
        let kept = self.vertices.len() - self.free.len();
        if kept + fetched.len() <= self.capacity {
            fetched.iter().for_each(|&(vertex, at)| self.insert(vertex, rows, at as usize));
        } else {
            self.choose(&fetched, rows, coming);
        }
        self.now += 1;
    }

    /// Replaces kept rows by fetched ones that are worth more.
    fn choose<'v>(
        &mut self,
        fetched: &[(u32, u32)],
        rows: &FetchedRows,
        coming: impl DoubleEndedIterator<Item = &'v [u32]> + ExactSizeIterator,
    ) {
        let next_use = self.next_uses(coming);
        let worth = |vertex: u32, used: u64, (_, degree): (u32, u32)| match self.policy {
            RowCache::Lru => used,
            RowCache::Degree => degree.into(),
            RowCache::Future | RowCache::None => (next_use[vertex as usize] as u64) << 32 | degree as u64,
        };
        // Worth, and the slot of a kept row or, above all slots, the place of a fetched one.
        let kept = self.vertices.iter().zip(0u64..).filter(|(vertex, _)| **vertex != NOWHERE);
        let kept = kept.map(|(&vertex, slot)| {
            (worth(vertex, self.used[slot as usize], self.rows.facts[slot as usize]), slot)
        });
        let first = self.vertices.len() as u64;
        let new = fetched.iter().zip(first..);
        let new = new.map(|(&(vertex, at), i)| (worth(vertex, self.now, rows.facts[at as usize]), i));
        let mut all: Vec<(u64, u64)> = kept.chain(new).collect();
        let dropped = all.len() - self.capacity;
        all.select_nth_unstable(dropped);
        for &(_, slot) in all[..dropped].iter().filter(|(_, slot)| *slot < first) {
            let vertex = std::mem::replace(&mut self.vertices[slot as usize], NOWHERE);
            self.slots[vertex as usize] = NOWHERE;
            self.free.push(slot as u32);
        }
        for &(_, i) in all[dropped..].iter().filter(|(_, i)| *i >= first) {
            let (vertex, at) = fetched[(i - first) as usize];
            self.insert(vertex, rows, at as usize);
        }
    }

    /// Returns how soon each vertex is needed: 0 if no coming macrobatch needs it, most if the next one does. Empty unless
    /// the policy asks for it.
    fn next_uses<'v>(
        &self,
        coming: impl DoubleEndedIterator<Item = &'v [u32]> + ExactSizeIterator,
    ) -> Vec<u8> {
        if self.policy != RowCache::Future {
            return Vec::new();
        }
        let mut next_use = vec![0; self.slots.len()];
        for (vertices, soon) in coming.rev().zip(1u8..) {
            vertices.iter().for_each(|&vertex| next_use[vertex as usize] = soon);
        }
        next_use
    }

    fn insert(&mut self, vertex: u32, rows: &FetchedRows, at: usize) {
        let row = &rows.bytes[at * self.row_bytes..][..self.row_bytes];
        let slot = self.free.pop().unwrap_or_else(|| {
            self.vertices.push(NOWHERE);
            self.used.push(0);
            self.rows.bytes.extend_from_slice(row);
            self.rows.facts.push((0, 0));
            (self.vertices.len() - 1) as u32
        });
        let place = slot as usize;
        self.slots[vertex as usize] = slot;
        (self.vertices[place], self.used[place]) = (vertex, self.now);
        self.rows.bytes[place * self.row_bytes..][..self.row_bytes].copy_from_slice(row);
        self.rows.facts[place] = rows.facts[at];
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    const NODES: u32 = 40;
    const ROW_BYTES: usize = 3;
    const POLICIES: [RowCache; 4] = [RowCache::None, RowCache::Lru, RowCache::Degree, RowCache::Future];

    /// Dataset id and degree of a vertex; degrees repeat.
    fn facts(vertex: u32) -> (u32, u32) {
        (vertex + 1000, vertex * 7 % 11)
    }

    fn row(vertex: u32) -> [u8; ROW_BYTES] {
        [vertex as u8, 2 * vertex as u8, 5]
    }

    fn rows(vertices: &[u32]) -> FetchedRows {
        FetchedRows {
            bytes: vertices.iter().flat_map(|&vertex| row(vertex)).collect(),
            facts: vertices.iter().map(|&vertex| facts(vertex)).collect(),
        }
    }

    fn kept(cache: &KeptRows) -> BTreeSet<u32> {
        (0..cache.slots.len() as u32).filter(|&vertex| cache.slots[vertex as usize] != NOWHERE).collect()
    }

    /// Reads the rows of a macrobatch and keeps what the policy keeps; returns the vertices that had to be fetched.
    fn use_rows(cache: &mut KeptRows, vertices: &[u32], coming: &[Vec<u32>]) -> Vec<u32> {
        let mut missing = Vec::new();
        for &vertex in vertices {
            match cache.get(vertex) {
                Some((bytes, found)) => assert_eq!((bytes, found), (&row(vertex)[..], facts(vertex))),
                None => missing.push(vertex),
            }
        }
        cache.update(vertices, &rows(vertices), coming.iter().map(Vec::as_slice));
        missing
    }

    /// Fetched rows of macrobatches that are known `ahead` macrobatches before they are needed.
    fn fetched(policy: RowCache, capacity: usize, macrobatches: &[Vec<u32>], ahead: usize) -> usize {
        let mut cache = KeptRows::new(policy, NODES as usize, capacity, ROW_BYTES);
        let fetch = |(i, vertices): (usize, &Vec<u32>)| {
            let end = (i + 1 + ahead).min(macrobatches.len());
            use_rows(&mut cache, vertices, &macrobatches[i + 1..end]).len()
        };
        macrobatches.iter().enumerate().map(fetch).sum()
    }

    #[test]
    fn rows_needed_soon_are_kept_where_the_least_recently_used_ones_are() {
        // Three groups in turn, of which two fit: the group used least recently is the one needed next.
        let groups: Vec<Vec<u32>> = [0, 10, 20].map(|first| (first..first + 10).collect()).to_vec();
        let turns: Vec<Vec<u32>> = groups.into_iter().cycle().take(12).collect();
        assert_eq!(fetched(RowCache::None, 20, &turns, 2), 120);
        assert_eq!(fetched(RowCache::Lru, 20, &turns, 2), 120);
        // Two groups stay, and the third is fetched in each of four rounds.
        assert_eq!(fetched(RowCache::Future, 20, &turns, 2), 20 + 4 * 10);
        assert_eq!(fetched(RowCache::Future, 30, &turns, 2), 30);
        // Without knowledge of coming macrobatches it keeps rows by degree.
        assert_eq!(fetched(RowCache::Future, 20, &turns, 0), fetched(RowCache::Degree, 20, &turns, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Against a model that sorts: kept rows are correct, never too many, and the most valuable of those seen.
        #[test]
        fn the_most_valuable_rows_are_kept(
            policy in proptest::sample::select(&POLICIES[..]),
            capacity in 0usize..30,
            ahead in 0usize..4,
            macrobatches in vec(btree_set(0..NODES, 0..25), 1..12),
        ) {
            let macrobatches: Vec<Vec<u32>> = macrobatches.into_iter().map(|set| set.into_iter().collect()).collect();
            let mut cache = KeptRows::new(policy, NODES as usize, capacity, ROW_BYTES);
            let mut used: HashMap<u32, u64> = HashMap::new();
            for (now, vertices) in macrobatches.iter().enumerate() {
                let before = kept(&cache);
                let coming = &macrobatches[now + 1..(now + 1 + ahead).min(macrobatches.len())];
                let missing = use_rows(&mut cache, vertices, coming);
                prop_assert!(vertices.iter().all(|vertex| missing.contains(vertex) != before.contains(vertex)));
                used.extend(vertices.iter().map(|&vertex| (vertex, now as u64)));
                let worth = |vertex: &u32| match policy {
                    RowCache::None => (0, 0),
                    RowCache::Lru => (used[vertex], 0),
                    RowCache::Degree => (facts(*vertex).1 as u64, 0),
                    RowCache::Future => {
                        let distance = coming.iter().position(|vertices| vertices.contains(vertex));
                        (distance.map_or(0, |distance| 100 - distance as u64), facts(*vertex).1)
                    }
                };
                let seen: BTreeSet<u32> = before.iter().chain(vertices).copied().collect();
                let after = kept(&cache);
                let capacity = if policy == RowCache::None { 0 } else { capacity };
                prop_assert_eq!(after.len(), seen.len().min(capacity));
                prop_assert!(cache.vertices.len() <= capacity && after.is_subset(&seen));
                // Of equally valuable rows, any may stay.
                let sorted = |set: &BTreeSet<u32>| {
                    let mut all: Vec<_> = set.iter().map(worth).collect();
                    all.sort_unstable_by(|a, b| b.cmp(a));
                    all
                };
                prop_assert_eq!(&sorted(&after)[..], &sorted(&seen)[..after.len()]);
            }
        }
    }
}
