//! Whether an order reduces cache misses, by a small model of caches.

use crate::csr::CsrView;

/// Rows in a core's private cache and in the shared cache, at about 1 KiB per row.
const CACHES: [usize; 2] = [2 * 1024, 16 * 1024];
/// Graphs with fewer rows fit in cache in any order.
const SMALL: usize = 4096;
/// Sampled runs of consecutive rows, and edges in each.
const RUNS: usize = 8;
const RUN: usize = 1 << 18;
/// Least relative reduction of misses.
const GAIN: f64 = 0.1;

/// Returns whether a graph of `nodes` nodes fits in cache in any order.
pub fn too_small(nodes: usize) -> bool {
    nodes < SMALL
}

/// Returns whether aggregation has clearly fewer cache misses if row `i` is vertex `order[i]` than if it is vertex `i`.
pub fn improves_locality(graph: CsrView, order: &[u32]) -> bool {
    if too_small(graph.nodes()) {
        return false;
    }
    let mut rank = vec![0u32; order.len()];
    order.iter().enumerate().for_each(|(row, &v)| rank[v as usize] = row as u32);
    let ((given, seen), (ordered, seen_ordered)) = rayon::join(
        || misses(graph, |row| row, |u| u),
        || misses(graph, |row| order[row] as usize, |u| rank[u as usize]),
    );
    // Misses per edge: the samples have different numbers of edges.
    ordered as f64 * (seen as f64) < (1.0 - GAIN) * given as f64 * seen_ordered as f64
}

/// Returns cache misses and edges of a sample of the rows, if row `i` is vertex `vertex(i)` and vertex `u` is row
/// `row(u)`.
fn misses(graph: CsrView, vertex: impl Fn(usize) -> usize, row: impl Fn(u32) -> u32) -> (usize, usize) {
    let nodes = graph.nodes();
    let mut caches = CACHES.map(Cache::new);
    let (mut missed, mut edges) = (0, 0);
    for run in 0..RUNS {
        let rows = run * nodes / RUNS..(run + 1) * nodes / RUNS;
        let mut left = RUN;
        for &u in rows.flat_map(|i| graph.row(vertex(i))).take_while(|_| {
            left -= 1;
            left > 0
        }) {
            edges += 1;
            let row = row(u);
            missed += caches.iter_mut().map(|cache| usize::from(!cache.hit(row))).sum::<usize>();
        }
    }
    (missed, edges)
}

/// A set-associative cache of rows with [`WAYS`] ways and LRU replacement.
struct Cache {
    sets: Vec<[u32; WAYS]>,
}

const WAYS: usize = 4;

impl Cache {
    fn new(rows: usize) -> Self {
        Cache { sets: vec![[u32::MAX; WAYS]; rows / WAYS] }
    }

    /// Returns whether `row` is in the cache, and makes it the most recently used.
    #[inline]
    fn hit(&mut self, row: u32) -> bool {
        let count = self.sets.len();
        let set = &mut self.sets[row as usize % count];
        let at = set.iter().position(|&other| other == row);
        set[..=at.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = row;
        at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_row_is_replaced() {
        let mut cache = Cache::new(8);
        // Rows 0, 2, 4 … share a set of four.
        assert!([0, 2, 4, 6].map(|row| cache.hit(row)) == [false; 4]);
        assert!(cache.hit(0));
        assert!(!cache.hit(8), "2 is replaced");
        assert!(cache.hit(0) && cache.hit(4) && !cache.hit(2));
    }

    /// A ring in which `v` is the `step * v`th vertex.
    fn ring(nodes: u32, step: u32) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
        let at = |k: u32| (k as u64 * step as u64 % nodes as u64) as u32;
        let order: Vec<u32> = (0..nodes).map(at).collect();
        let mut indices = vec![0; 2 * nodes as usize];
        for k in 0..nodes {
            let v = at(k) as usize;
            (indices[2 * v], indices[2 * v + 1]) = (at((k + 1) % nodes), at((k + nodes - 1) % nodes));
        }
        ((0..=nodes as u64).map(|v| 2 * v).collect(), indices, order)
    }

    #[test]
    fn sorting_a_shuffled_ring_improves_locality_unless_it_is_small() {
        for (nodes, expected) in [(100_003, true), (4001, false)] {
            let (indptr, indices, order) = ring(nodes, 31_337);
            let graph = CsrView { indptr: &indptr, indices: &indices };
            assert_eq!(improves_locality(graph, &order), expected, "{nodes}");
        }
    }

    #[test]
    fn an_order_of_a_graph_without_edges_improves_nothing() {
        let order: Vec<u32> = (0..5000).rev().collect();
        assert!(!improves_locality(CsrView { indptr: &[0; 5001], indices: &[] }, &order));
    }
}
