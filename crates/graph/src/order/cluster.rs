//! A node order with nearby neighbours, by label propagation.
//!
//! Every node starts as its own cluster. In each round a node joins the cluster of most of its in-neighbours, up to a
//! maximum size. Then clusters are merged in the same way, with a larger maximum size, and so on: the rows of a
//! first-level cluster fit in a core's private cache, the other levels place related clusters side by side. Only a sample
//! of the edges is read, so the work hardly grows with the number of edges.
//!
//! A round consists of [`STRIDES`] interleaved passes. The vertices of one pass choose in parallel, by the clusters before
//! the pass, and move one after the other. So the result does not depend on the number of threads, and two neighbours
//! do not swap clusters for ever.

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use crate::csr::{Csr, CsrView, Ids};

/// Maximum size of a cluster and number of sampled edges, for each level.
const LEVELS: [(usize, usize); 3] = [(1024, 32), (8 * 1024, 4096), (64 * 1024, 4096)];
/// Maximum number of rounds per level. A level ends earlier when fewer than one in [`STILL`] vertices move.
const ROUNDS: usize = 4;
const STILL: usize = 20;
/// Passes per round.
const STRIDES: usize = 8;

/// Returns an order of the vertices of `graph` in which neighbours are near each other: `order[row]` is the vertex at
/// `row`. It does not depend on the number of threads.
///
/// # Panics
/// If an id is out of range.
pub fn cluster(graph: CsrView) -> Vec<u32> {
    let mut groups = Groups::single(graph.nodes());
    for (level, (room, sample)) in LEVELS.into_iter().enumerate() {
        let key = Key::new(level as u64, "order");
        // Clusters of the first level are single nodes.
        let between = (level > 0).then(|| groups.contract(graph, sample));
        let edges = between.as_ref().map_or(graph, Csr::view);
        let labels = Propagation::new(edges, groups.sizes(), room, sample).run(key);
        groups = groups.merge(&labels);
    }
    groups.members
}

/// Returns up to about `most` edges of a row, evenly spread; another sample for each `turn`.
#[inline]
fn sample(row: &[u32], most: usize, turn: usize) -> impl Iterator<Item = u32> {
    let step = row.len().div_ceil(most).max(1);
    row.iter().skip(turn % step).step_by(step).copied()
}

/// Groups of nodes.
struct Groups {
    members: Vec<u32>,
    /// First member of each group, and the end.
    starts: Vec<u32>,
}

impl Groups {
    /// Creates one group per node.
    fn single(nodes: usize) -> Groups {
        Groups { members: (0..nodes as u32).collect(), starts: (0..=nodes as u32).collect() }
    }

    fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, group: usize) -> &[u32] {
        &self.members[self.starts[group] as usize..self.starts[group + 1] as usize]
    }

    fn sizes(&self) -> Vec<u32> {
        self.starts.windows(2).map(|w| w[1] - w[0]).collect()
    }

    /// Returns the edges between groups, with repeats, among about `most` sampled edges into each group.
    fn contract(&self, graph: CsrView, most: usize) -> Csr {
        let mut home = vec![0; graph.nodes()];
        for group in 0..self.count() {
            self.of(group).iter().for_each(|&v| home[v as usize] = group as u32);
        }
        let row = |group: usize| -> Vec<u32> {
            let members = self.of(group);
            let each = most.div_ceil(members.len());
            let edges = members.iter().flat_map(|&v| sample(graph.row(v as usize), each, v as usize));
            edges.map(|u| home[u as usize]).filter(|&other| other != group as u32).collect()
        };
        let rows: Vec<Vec<u32>> = (0..self.count()).into_par_iter().map(row).collect();
        let mut indptr = vec![0];
        rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
        Csr { indptr, indices: Ids::Owned(rows.concat()), weights: None }
    }

    /// Merges groups with the same label, in the order of labels.
    fn merge(&self, labels: &[u32]) -> Groups {
        let mut order: Vec<u32> = (0..self.count() as u32).collect();
        order.par_sort_by_key(|&group| labels[group as usize]);
        let mut merged = Groups { members: Vec::with_capacity(self.members.len()), starts: vec![0] };
        for run in order.chunk_by(|&a, &b| labels[a as usize] == labels[b as usize]) {
            run.iter().for_each(|&group| merged.members.extend_from_slice(self.of(group as usize)));
            merged.starts.push(merged.members.len() as u32);
        }
        merged
    }
}

/// Label propagation over vertices, which are single nodes or groups.
struct Propagation<'a> {
    graph: CsrView<'a>,
    /// Number of nodes in each vertex.
    weight: Vec<u32>,
    /// Maximum number of nodes in a cluster.
    room: usize,
    /// Sampled edges per vertex.
    sample: usize,
    /// The cluster of each vertex, named by its first vertex.
    label: Vec<u32>,
    /// Nodes in each cluster.
    size: Vec<u32>,
}

impl<'a> Propagation<'a> {
    fn new(graph: CsrView<'a>, weight: Vec<u32>, room: usize, sample: usize) -> Self {
        let label = (0..weight.len() as u32).collect();
        Propagation { graph, size: weight.clone(), weight, room, sample, label }
    }

    /// Runs all rounds; returns the cluster of each vertex.
    fn run(mut self, key: Key) -> Vec<u32> {
        for round in 0..ROUNDS {
            let moved: usize = (0..STRIDES).map(|first| self.pass(first, round, key)).sum();
            if moved * STILL < self.label.len() {
                break;
            }
        }
        self.label
    }

    /// Moves every [`STRIDES`]th vertex from `first` on; returns how many changed their cluster.
    fn pass(&mut self, first: usize, round: usize, key: Key) -> usize {
        let key = key.with(round as u64);
        let chosen: Vec<u32> = (first..self.label.len())
            .into_par_iter()
            .step_by(STRIDES)
            .map_init(Votes::default, |votes, v| self.choose(v, round, votes, key))
            .collect();
        let vertices = (first..).step_by(STRIDES);
        vertices.zip(chosen).filter(|&(v, label)| self.shift(v, label)).count()
    }

    /// Returns the cluster of most neighbours of `v` that is not full; among equals its own, else a random one.
    fn choose(&self, v: usize, round: usize, votes: &mut Votes, key: Key) -> u32 {
        let own = self.label[v];
        votes.clear();
        // Self-loops do not count.
        let others = sample(self.graph.row(v), self.sample, round).filter(|&u| u as usize != v);
        votes.add_all(others.map(|u| self.label[u as usize]));
        let (mut best, mut most) = (own, votes.of(own));
        let mut rank = u64::MAX;
        for (label, count) in votes.all() {
            if count < most || label == own {
                continue;
            }
            let random = key.at(label as u64);
            if (count > most || random > rank) && self.has_room(label, v) {
                (best, most, rank) = (label, count, random);
            }
        }
        best
    }

    fn has_room(&self, label: u32, v: usize) -> bool {
        self.size[label as usize] as usize + self.weight[v] as usize <= self.room
    }

    /// Moves `v` into the cluster `label` unless that is full by now; returns whether it moved.
    fn shift(&mut self, v: usize, label: u32) -> bool {
        let own = self.label[v];
        if label == own || !self.has_room(label, v) {
            return false;
        }
        self.size[own as usize] -= self.weight[v];
        self.size[label as usize] += self.weight[v];
        self.label[v] = label;
        true
    }
}

/// Counts of labels: a hash table that is cleared in time proportional to its entries.
struct Votes {
    /// Label and count; a count of 0 marks a free place. The length is a power of two.
    places: Vec<(u32, u32)>,
    used: Vec<u32>,
    /// Labels to be counted.
    seen: Vec<u32>,
}

impl Default for Votes {
    fn default() -> Self {
        Votes { places: vec![(0, 0); 256], used: Vec::new(), seen: Vec::new() }
    }
}

impl Votes {
    fn clear(&mut self) {
        self.used.drain(..).for_each(|at| self.places[at as usize].1 = 0);
    }

    /// Returns the place of `label`, or the free place for it.
    #[inline]
    fn place(&self, label: u32) -> usize {
        let mask = self.places.len() - 1;
        // Fibonacci hashing: neighbouring labels get distant places.
        let mut at = (label.wrapping_mul(0x9E37_79B1) >> 8) as usize & mask;
        while self.places[at].1 != 0 && self.places[at].0 != label {
            at = (at + 1) & mask;
        }
        at
    }

    /// Counts `labels`. Reads all of them first, so that cache misses overlap.
    fn add_all(&mut self, labels: impl Iterator<Item = u32>) {
        let mut seen = std::mem::take(&mut self.seen);
        seen.clear();
        seen.extend(labels);
        seen.iter().for_each(|&label| self.add(label));
        self.seen = seen;
    }

    #[inline]
    fn add(&mut self, label: u32) {
        let at = self.place(label);
        self.places[at].0 = label;
        self.places[at].1 += 1;
        if self.places[at].1 == 1 {
            self.used.push(at as u32);
            if self.used.len() * 2 > self.places.len() {
                self.grow();
            }
        }
    }

    fn grow(&mut self) {
        let old: Vec<(u32, u32)> = self.all().collect();
        self.places = vec![(0, 0); self.places.len() * 2];
        self.used.clear();
        for (label, count) in old {
            let at = self.place(label);
            self.places[at] = (label, count);
            self.used.push(at as u32);
        }
    }

    fn of(&self, label: u32) -> u32 {
        self.places[self.place(label)].1
    }

    fn all(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.used.iter().map(|&at| self.places[at as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{self, presets};
    use crate::order::{improves_locality, is_permutation};
    use crate::progress::Silent;

    /// Communities of a few hundred nodes, numbered at random.
    fn communities() -> Csr {
        let small = presets::find("small").unwrap().spec.clone();
        let spec = generate::Spec { nodes: 20_000, edges: 400_000, classes: 64, mixing: 0.02, ..small };
        generate::graph(&spec, &Silent).unwrap()
    }

    /// Returns the share of edges whose ends are at most `near` rows apart.
    fn near(graph: CsrView, order: &[u32], near: u32) -> f64 {
        let mut rank = vec![0u32; order.len()];
        order.iter().enumerate().for_each(|(row, &v)| rank[v as usize] = row as u32);
        let ends = (0..graph.nodes()).flat_map(|v| graph.row(v).iter().map(move |&u| (v, u as usize)));
        ends.filter(|&(v, u)| rank[v].abs_diff(rank[u]) <= near).count() as f64 / graph.indices.len() as f64
    }

    #[test]
    fn neighbours_get_near_rows() {
        let csr = communities();
        let (graph, given) = (csr.view(), (0..20_000).collect::<Vec<u32>>());
        let order = cluster(graph);
        assert!(is_permutation(&order));
        let (before, after) = (near(graph, &given, 1024), near(graph, &order, 1024));
        assert!(before < 0.2 && after > 0.6, "{before} before, {after} after");
        assert!(improves_locality(graph, &order));
        assert!(!improves_locality(graph, &given), "the given order improves nothing");
    }

    #[test]
    fn threads_do_not_change_the_order() {
        let csr = communities();
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| cluster(csr.view()))
        };
        assert_eq!(with(1), with(2));
    }

    #[test]
    fn any_graph_has_an_order() {
        let graphs: [(&[u64], &[u32]); 5] = [
            (&[0], &[]),
            (&[0, 0], &[]),
            (&[0, 1], &[0]),
            // A directed path, repeated edges, a self-loop and a node alone.
            (&[0, 0, 3, 4, 4], &[0, 0, 0, 2]),
            (&[0, 0, 0, 0], &[]),
        ];
        for (indptr, indices) in graphs {
            let order = cluster(CsrView { indptr, indices });
            assert!(order.len() == indptr.len() - 1 && is_permutation(&order), "{order:?}");
        }
    }

    #[test]
    fn clusters_keep_their_maximum_size() {
        // A star: every leaf would join the centre.
        let leaves = 5000u32;
        let mut indptr: Vec<u64> = vec![0, leaves as u64];
        indptr.extend((1..=leaves as u64).map(|k| leaves as u64 + k));
        let mut indices: Vec<u32> = (1..=leaves).collect();
        indices.extend(vec![0; leaves as usize]);
        let graph = CsrView { indptr: &indptr, indices: &indices };
        let groups = Groups::single(graph.nodes());
        let labels = Propagation::new(graph, groups.sizes(), 100, 32).run(Key::new(0, "test"));
        assert_eq!(groups.merge(&labels).sizes().iter().max(), Some(&100));
    }

    #[test]
    fn groups_keep_the_edges_between_them() {
        // Two pairs on a path 0 - 1 - 2 - 3.
        let graph = CsrView { indptr: &[0, 1, 3, 5, 6], indices: &[1, 0, 2, 1, 3, 2] };
        let pairs = Groups::single(4).merge(&[0, 0, 2, 2]);
        assert_eq!((&pairs.members[..], pairs.sizes()), (&[0, 1, 2, 3][..], vec![2, 2]));
        let edges = pairs.contract(graph, 100);
        assert_eq!((&edges.indptr[..], edges.indices.as_slice()), (&[0, 1, 2][..], &[1, 0][..]));
    }

    #[test]
    fn a_sample_is_spread_out_and_takes_turns() {
        let row: Vec<u32> = (0..100).collect();
        assert_eq!(sample(&row, 100, 7).count(), 100, "all there are");
        assert_eq!(sample(&row, 4, 0).collect::<Vec<_>>(), [0, 25, 50, 75]);
        assert_eq!(sample(&row, 4, 26).collect::<Vec<_>>(), [1, 26, 51, 76]);
        assert_eq!(sample(&[], 4, 3).count(), 0);
    }

    #[test]
    fn votes_are_counted_and_forgotten() {
        let mut votes = Votes::default();
        for _ in 0..2 {
            votes.add_all((0..3000).map(|i| i % 1000 * 7));
            assert!((0..1000).all(|label| votes.of(label * 7) == 3));
            assert_eq!((votes.of(3), votes.all().count()), (0, 1000));
            votes.clear();
        }
    }
}
