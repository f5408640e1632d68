//! A node order in which neighbours stand near each other, by label propagation.
//!
//! Every node starts as a cluster of its own. In each round a node joins the cluster that most of its in-neighbours are
//! in, as long as that one has room. Then whole clusters do the same among themselves, with more room: the first level
//! makes groups whose rows fit in a core's own cache, the second places groups that belong together side by side.
//!
//! A round goes through the nodes in [`STRIDES`] interleaved passes. Those of one pass choose at the same time, by the
//! clusters before it, and move one after the other: the result is the same for any number of threads, and two
//! neighbours do not swap places for ever.

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use crate::csr::CsrView;

/// Most nodes of a cluster, and rounds, level by level.
const LEVELS: [(usize, usize); 2] = [(1024, 6), (16 * 1024, 4)];
/// Passes of a round.
const STRIDES: usize = 8;
/// Edges that one member of a cluster is asked about: enough to know where most of them come from.
const SAMPLE: usize = 128;

/// An order of the vertices of `graph` in which neighbours stand near each other: `order[row]` is the vertex that comes
/// to stand at `row`. The same for any number of threads.
///
/// # Panics
/// If an id is out of range.
pub fn cluster(graph: CsrView) -> Vec<u32> {
    let nodes = graph.nodes();
    let mut groups = Groups { members: (0..nodes as u32).collect(), starts: (0..=nodes as u32).collect() };
    for (level, (room, rounds)) in LEVELS.into_iter().enumerate() {
        let key = Key::new(level as u64, "order");
        let labels = Propagation::new(graph, &groups, room).run(rounds, key);
        groups = groups.merge(&labels);
    }
    groups.members
}

/// Nodes in groups, one after the other.
struct Groups {
    members: Vec<u32>,
    /// First member of each group, and the end.
    starts: Vec<u32>,
}

impl Groups {
    fn count(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, group: usize) -> &[u32] {
        &self.members[self.starts[group] as usize..self.starts[group + 1] as usize]
    }

    /// Joins groups with the same label, in the order of their labels.
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

/// Groups on their way into clusters.
struct Propagation<'a> {
    graph: CsrView<'a>,
    groups: &'a Groups,
    /// Most nodes of a cluster.
    room: usize,
    /// The group of each node.
    began: Vec<u32>,
    /// The cluster of each node, by the number of a group that began it.
    label: Vec<u32>,
    /// Nodes in each cluster.
    size: Vec<u32>,
}

impl<'a> Propagation<'a> {
    fn new(graph: CsrView<'a>, groups: &'a Groups, room: usize) -> Self {
        let mut label = vec![0; graph.nodes()];
        for group in 0..groups.count() {
            groups.of(group).iter().for_each(|&v| label[v as usize] = group as u32);
        }
        let size = groups.starts.windows(2).map(|w| w[1] - w[0]).collect();
        Propagation { graph, groups, room, began: label.clone(), label, size }
    }

    /// The cluster of each group after so many rounds, or fewer if nothing moves any more.
    fn run(mut self, rounds: usize, key: Key) -> Vec<u32> {
        let count = self.groups.count();
        for round in 0..rounds {
            let key = key.with(round as u64);
            let moved: usize = (0..STRIDES).map(|first| self.pass(first, key)).sum();
            if moved * 100 < count {
                break;
            }
        }
        (0..count).map(|group| self.label[self.groups.of(group)[0] as usize]).collect()
    }

    /// Lets every [`STRIDES`]th group from `first` on move; how many did.
    fn pass(&mut self, first: usize, key: Key) -> usize {
        let groups: Vec<usize> = (first..self.groups.count()).step_by(STRIDES).collect();
        let chosen: Vec<u32> = groups
            .par_iter()
            .map_init(Votes::default, |votes, &group| self.choose(group, votes, key))
            .collect();
        groups.into_iter().zip(chosen).filter(|&(group, label)| self.shift(group, label)).count()
    }

    /// The cluster most neighbours of `group` are in, among those with room; of equals its own, else a random one.
    fn choose(&self, group: usize, votes: &mut Votes, key: Key) -> u32 {
        let members = self.groups.of(group);
        let own = self.label[members[0] as usize];
        votes.clear();
        for &v in members {
            let row = self.graph.row(v as usize);
            // Every so manieth edge of a hub.
            let step = row.len().div_ceil(SAMPLE).max(1);
            for &u in row.iter().step_by(step) {
                let label = self.label[u as usize];
                // A group has no say in where it belongs.
                if label != own || self.began[u as usize] != group as u32 {
                    votes.add(label);
                }
            }
        }
        let (mut best, mut most) = (own, votes.of(own));
        let mut rank = u64::MAX;
        for (label, count) in votes.all() {
            if count < most || label == own || self.size[label as usize] as usize + members.len() > self.room
            {
                continue;
            }
            let random = key.at(label as u64);
            if count > most || random > rank {
                (best, most, rank) = (label, count, random);
            }
        }
        best
    }

    /// Moves `group` into the cluster `label` unless it is full by now; whether it moved.
    fn shift(&mut self, group: usize, label: u32) -> bool {
        let members = self.groups.of(group);
        let own = self.label[members[0] as usize];
        if label == own || self.size[label as usize] as usize + members.len() > self.room {
            return false;
        }
        self.size[own as usize] -= members.len() as u32;
        self.size[label as usize] += members.len() as u32;
        members.iter().for_each(|&v| self.label[v as usize] = label);
        true
    }
}

/// How often each label was seen: a table that is emptied at the cost of what is in it.
struct Votes {
    /// Label and count; a count of 0 is an empty place. As many as a power of two.
    places: Vec<(u32, u32)>,
    used: Vec<u32>,
}

impl Default for Votes {
    fn default() -> Self {
        Votes { places: vec![(0, 0); 256], used: Vec::new() }
    }
}

impl Votes {
    fn clear(&mut self) {
        self.used.drain(..).for_each(|at| self.places[at as usize].1 = 0);
    }

    /// Where `label` is, or would be.
    #[inline]
    fn place(&self, label: u32) -> usize {
        let mask = self.places.len() - 1;
        // The upper bits of a product by an odd number close to 2^32 / golden ratio: neighbouring labels spread out.
        let mut at = (label.wrapping_mul(0x9E37_79B1) >> 8) as usize & mask;
        while self.places[at].1 != 0 && self.places[at].0 != label {
            at = (at + 1) & mask;
        }
        at
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
    use crate::csr::Csr;
    use crate::generate::{self, presets};
    use crate::order::{is_permutation, pays};
    use crate::progress::Silent;

    /// Communities of a few hundred nodes, numbered at random.
    fn communities() -> Csr {
        let small = presets::find("small").unwrap().spec.clone();
        let spec = generate::Spec { nodes: 20_000, edges: 400_000, classes: 64, mixing: 0.02, ..small };
        generate::graph(&spec, &Silent).unwrap()
    }

    /// Share of edges whose ends are at most `near` rows apart.
    fn near(graph: CsrView, order: &[u32], near: u32) -> f64 {
        let mut rank = vec![0u32; order.len()];
        order.iter().enumerate().for_each(|(row, &v)| rank[v as usize] = row as u32);
        let ends = (0..graph.nodes()).flat_map(|v| graph.row(v).iter().map(move |&u| (v, u as usize)));
        ends.filter(|&(v, u)| rank[v].abs_diff(rank[u]) <= near).count() as f64 / graph.indices.len() as f64
    }

    #[test]
    fn neighbours_come_near_and_it_pays() {
        let csr = communities();
        let (graph, given) = (csr.view(), (0..20_000).collect::<Vec<u32>>());
        let order = cluster(graph);
        assert!(is_permutation(&order));
        let (before, after) = (near(graph, &given, 1024), near(graph, &order, 1024));
        assert!(before < 0.2 && after > 0.6, "{before} before, {after} after");
        assert!(pays(graph, &order));
        assert!(!pays(graph, &given), "the order it has does not gain");
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
    fn clusters_do_not_outgrow_their_room() {
        // A star: everybody would join the centre.
        let leaves = 5000u32;
        let mut indptr: Vec<u64> = vec![0, leaves as u64];
        indptr.extend((1..=leaves as u64).map(|k| leaves as u64 + k));
        let mut indices: Vec<u32> = (1..=leaves).collect();
        indices.extend(vec![0; leaves as usize]);
        let graph = CsrView { indptr: &indptr, indices: &indices };
        let nodes = graph.nodes() as u32;
        let groups = Groups { members: (0..nodes).collect(), starts: (0..=nodes).collect() };
        let labels = Propagation::new(graph, &groups, 100).run(6, Key::new(0, "test"));
        let merged = groups.merge(&labels);
        let sizes: Vec<u32> = merged.starts.windows(2).map(|w| w[1] - w[0]).collect();
        assert_eq!(sizes.iter().max(), Some(&100));
    }

    #[test]
    fn votes_are_counted_and_forgotten() {
        let mut votes = Votes::default();
        for _ in 0..2 {
            (0..3000u32).for_each(|i| votes.add(i % 1000 * 7));
            assert!((0..1000).all(|label| votes.of(label * 7) == 3));
            assert_eq!((votes.of(3), votes.all().count()), (0, 1000));
            votes.clear();
        }
    }
}
