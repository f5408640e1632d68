//! An order in which each layer computes a prefix of the rows.
//!
//! The loss reads some rows. The last layer computes only those, the layer before it those and their in-neighbours, and so
//! on: nested sets, which [`Block::prefix`](crate::block::Block::prefix) turns into blocks.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use rayon::prelude::*;

use crate::csr::CsrView;

/// Sets that differ by less than this fraction of the nodes are merged: the work saved would not make up for the loss of
/// locality.
const MERGE: f64 = 0.03;
/// Marks a vertex that no layer reads.
pub(crate) const UNUSED: u8 = u8::MAX;

/// An order whose prefixes are the rows of each layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nested {
    /// `order[row]` is the vertex at `row`. Rows that no layer needs come last.
    pub order: Vec<u32>,
    /// Number of rows that each layer computes, from the first layer on; never increasing. The in-neighbours of the first
    /// `sizes[i]` rows are among the first `sizes[i - 1]` rows.
    pub sizes: Vec<usize>,
    /// Number of rows that the first layer reads.
    pub inputs: usize,
}

/// Returns the order for `layers` graph layers on `graph` of which the last computes the vertices `needed`. Vertices of the
/// same set keep their order in `base` (`None`: by number).
pub fn nested(graph: CsrView, base: Option<&[u32]>, needed: &[u32], layers: usize) -> Nested {
    let nodes = graph.nodes();
    // Larger distances than a byte holds count as the set of all vertices.
    let most = layers.min(UNUSED as usize - 2);
    let distance = distances(graph, needed, most + 1);
    let sets = Sets::new(&distance, most);
    let class: Vec<u8> = distance.par_iter().map(|&d| sets.class(d)).collect();
    let mut order: Vec<u32> = base.map_or_else(|| (0..nodes as u32).collect(), <[u32]>::to_vec);
    order.par_sort_by_key(|&v| class[v as usize]);
    // The set of each layer is one step larger than that of the layer after it.
    let within = |steps: usize| sets.sizes.get(steps).copied().unwrap_or(nodes);
    Nested { order, sizes: (0..layers).rev().map(within).collect(), inputs: within(layers) }
}

/// Returns the distance of each vertex from `needed`, against the direction of edges; [`UNUSED`] beyond `most`.
pub(crate) fn distances(graph: CsrView, needed: &[u32], most: usize) -> Vec<u8> {
    let distance: Vec<AtomicU8> = (0..graph.nodes()).map(|_| AtomicU8::new(UNUSED)).collect();
    needed.iter().for_each(|&v| distance[v as usize].store(0, Relaxed));
    for step in 0..most as u8 {
        let found = AtomicBool::new(false);
        // Several threads may reach a vertex at once; all write the same value.
        let reach = |u: &u32| {
            let place = &distance[*u as usize];
            if place.load(Relaxed) == UNUSED {
                place.store(step + 1, Relaxed);
                found.store(true, Relaxed);
            }
        };
        let all = (0..graph.nodes()).into_par_iter().with_min_len(256);
        all.filter(|&v| distance[v].load(Relaxed) == step).for_each(|v| graph.row(v).iter().for_each(reach));
        if !found.into_inner() {
            break;
        }
    }
    distance.into_iter().map(AtomicU8::into_inner).collect()
}

/// Nested sets of vertices, by their distance.
struct Sets {
    /// Vertices within 0, 1, 2 … steps, after merging.
    sizes: Vec<usize>,
    /// The same before merging, and one step more.
    reached: Vec<usize>,
    /// All vertices.
    nodes: usize,
}

impl Sets {
    fn new(distance: &[u8], layers: usize) -> Self {
        let nodes = distance.len();
        let mut counts = vec![0; layers + 2];
        distance.iter().filter(|&&d| d != UNUSED).for_each(|&d| counts[d as usize] += 1);
        let reached: Vec<usize> = counts
            .iter()
            .scan(0, |sum, n| {
                *sum += n;
                Some(*sum)
            })
            .collect();
        let mut sizes = reached[..=layers].to_vec();
        // A set may be merged into the next larger one only if that one contains its own neighbours, as the set of all does.
        let (mut around, mut closed) = (nodes, true);
        for (steps, size) in sizes.iter_mut().enumerate().rev() {
            if closed && ((around - *size) as f64) < MERGE * nodes as f64 {
                *size = around;
            } else {
                closed = reached[steps + 1] == reached[steps];
                around = *size;
            }
        }
        Sets { sizes, reached, nodes }
    }

    /// Returns the innermost merged set that a vertex at `distance` is in.
    fn class(&self, distance: u8) -> u8 {
        let sum = self.reached.get(distance as usize).copied().unwrap_or(self.nodes);
        self.sizes.iter().position(|&size| sum <= size).map_or(UNUSED, |class| class as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Block;
    use halograph_kernels::sparse::{Pattern, Transpose};
    use proptest::prelude::*;

    /// A path 0 - 1 - … - 99.
    fn path() -> (Vec<u64>, Vec<u32>) {
        let rows = (0..100u32).map(|v| (v.saturating_sub(1)..=(v + 1).min(99)).filter(move |&u| u != v));
        let rows: Vec<Vec<u32>> = rows.map(Iterator::collect).collect();
        let mut indptr = vec![0];
        rows.iter().for_each(|row| indptr.push(indptr.last().unwrap() + row.len() as u64));
        (indptr, rows.concat())
    }

    #[test]
    fn each_layer_reads_one_step_further() {
        let (indptr, indices) = path();
        let graph = CsrView { indptr: &indptr, indices: &indices };
        let found = nested(graph, None, &[50, 10], 2);
        assert_eq!((&found.sizes[..], found.inputs), (&[6, 2][..], 10));
        assert_eq!(found.order[..10], [10, 50, 9, 11, 49, 51, 8, 12, 48, 52]);
        assert_eq!(found.order[10..13], [0, 1, 2], "the rest stay as they are");
    }

    #[test]
    fn each_set_keeps_the_base_order() {
        let (indptr, indices) = path();
        let graph = CsrView { indptr: &indptr, indices: &indices };
        let base: Vec<u32> = (0..100).rev().collect();
        let found = nested(graph, Some(&base), &[50, 10], 1);
        assert_eq!(found.order[..8], [50, 10, 51, 49, 11, 9, 99, 98]);
    }

    #[test]
    fn sets_of_nearly_all_vertices_become_all() {
        let (indptr, indices) = path();
        let graph = CsrView { indptr: &indptr, indices: &indices };
        let needed: Vec<u32> = (1..99).rev().collect();
        let found = nested(graph, None, &needed, 2);
        assert_eq!((&found.sizes[..], found.inputs), (&[100, 100][..], 100));
        assert!(found.order.is_sorted(), "no vertex moves");
    }

    #[test]
    fn no_needed_vertices_and_no_layers_are_allowed() {
        let (indptr, indices) = path();
        let graph = CsrView { indptr: &indptr, indices: &indices };
        let found = nested(graph, None, &[], 2);
        assert_eq!((&found.sizes[..], found.inputs, found.order.len()), (&[0, 0][..], 0, 100));
        assert_eq!(nested(graph, None, &[3, 50, 97, 98], 0).inputs, 4);
        assert_eq!(nested(graph, None, &[50, 51, 52, 53], 300).sizes.len(), 300);
        let empty = nested(CsrView { indptr: &[0], indices: &[] }, None, &[], 3);
        assert_eq!((empty.sizes, empty.order), (vec![0; 3], vec![]));
    }

    proptest! {
        #[test]
        fn prefixes_are_closed(
            edges in proptest::collection::vec((0u32..60, 0u32..60), 0..150),
            both_ways: bool,
            needed in proptest::collection::btree_set(0u32..60, 0..60),
            layers in 0usize..5,
        ) {
            let back = edges.iter().filter(|_| both_ways).map(|&(u, v)| (v, u));
            let edges: Vec<(u32, u32)> = edges.iter().copied().chain(back).collect();
            let rows = |v: u32| edges.iter().filter(move |e| e.1 == v).map(|e| e.0);
            let indices: Vec<u32> = (0..60).flat_map(rows).collect();
            let mut indptr = vec![0u64];
            (0..60).for_each(|v| indptr.push(indptr[v as usize] + rows(v).count() as u64));
            let needed: Vec<u32> = needed.into_iter().collect();
            let graph = CsrView { indptr: &indptr, indices: &indices };
            let found = nested(graph, None, &needed, layers);
            let last = found.sizes.last().copied().unwrap_or(found.inputs);
            prop_assert!(needed.iter().all(|v| found.order[..last].contains(v)));
            let block = Block::ordered(graph, &found.order);
            let mut sources = found.inputs;
            for &size in &found.sizes {
                // Panics if an edge comes from further out.
                let part = block.prefix(size, sources);
                let (back, built) = (part.transpose(), Transpose::of(part.pattern(), sources));
                let row = |pattern: Pattern, r: usize| pattern.columns[pattern.row(r)].to_vec();
                prop_assert!((0..sources).all(|r| row(back, r) == row(built.pattern(), r)));
                sources = size;
            }
        }
    }
}
