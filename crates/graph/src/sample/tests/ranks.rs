//! Samples assembled from lists that the owners of vertices draw.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::*;

pub(super) const NODES: u32 = 200;

/// The vertices that a rank owns, with the edges into them.
pub(super) struct Part {
    pub owned: Vec<u32>,
    /// Owned rows first, then those of the other ranks, by number.
    pub block: Block<'static>,
    /// Number of each row of the block.
    pub numbers: Vec<u32>,
    /// Rows of the block that each rank owns.
    pub runs: Vec<Range<usize>>,
}

/// A graph whose vertices are owned by ranks.
pub(super) struct Parts {
    pub ranks: Vec<Part>,
    pub numbers: RankNumbers,
    /// Number of each vertex.
    pub number_of: Vec<u32>,
    /// Dataset id and degree by number.
    pub facts: Vec<(u32, u32)>,
}

impl Parts {
    /// Stores the vertices of each of `owners` in a random order. `of`: the owner of each vertex.
    pub fn new(csr: &Csr, owners: usize, of: impl Fn(u32) -> usize) -> Self {
        let whole = Block::whole(view(csr));
        let mut owned = vec![Vec::new(); owners];
        let mut order: Vec<u32> = (0..NODES).collect();
        order.sort_by_key(|&v| Key::new(8, "stored").at(v as u64));
        order.iter().for_each(|&v| owned[of(v)].push(v));
        let counts: Vec<u64> = owned.iter().map(|rows| rows.len() as u64).collect();
        let numbers = RankNumbers::new(&counts);
        let (mut number_of, mut facts) = (vec![0; NODES as usize], Vec::new());
        for (owner, rows) in owned.iter().enumerate() {
            for (row, &v) in rows.iter().enumerate() {
                number_of[v as usize] = numbers.number(owner, row as u32);
                facts.push((v, whole.degrees()[v as usize]));
            }
        }
        let part = |(rank, owned): (usize, Vec<u32>)| {
            let row = |v: u32| view(csr).row(v as usize).iter().copied();
            let mut halo: Vec<u32> = owned.iter().flat_map(|&v| row(v)).filter(|&u| of(u) != rank).collect();
            halo.sort_unstable_by_key(|&u| number_of[u as usize]);
            halo.dedup();
            let before = |owner: usize| owned.len() + halo.partition_point(|&u| of(u) < owner);
            let run = |owner| if owner == rank { 0..owned.len() } else { before(owner)..before(owner + 1) };
            let runs = (0..owners).map(run).collect();
            let rows = [&owned[..], &halo].concat();
            let row_of: HashMap<u32, u32> = rows.iter().copied().zip(0..).collect();
            let (mut indptr, mut indices) = (vec![0], Vec::new());
            for &v in &owned {
                let start = indices.len();
                indices.extend(row(v).map(|u| row_of[&u]));
                indices[start..].sort_unstable();
                indptr.push(indices.len() as u64);
            }
            let degrees = rows.iter().map(|&v| whole.degrees()[v as usize]).collect();
            let numbers = rows.iter().map(|&v| number_of[v as usize]).collect();
            let block = Block::new(indptr, indices, 0..owned.len(), degrees, Some(rows));
            Part { owned, block, numbers, runs }
        };
        let ranks = owned.into_iter().enumerate().map(part).collect();
        Parts { ranks, numbers, number_of, facts }
    }

    /// Returns the sample of each rank: of those seeds that it owns.
    fn samples(&self, spec: &SampleSpec, key: Key, seeds: &[u32]) -> Vec<Sample> {
        let neighbors: Vec<Neighbors> = self.ranks.iter().map(|part| Neighbors::of(&part.block)).collect();
        let mut samplers: Vec<OwnedSampler> = neighbors
            .iter()
            .zip(&self.ranks)
            .map(|(neighbors, part)| OwnedSampler::new(neighbors, spec, Some(&part.numbers)))
            .collect();
        let mut assembler = Assembler::new(self.numbers.nodes());
        let of_rank = |part: &Part| {
            let own = seeds.iter().filter(|v| part.owned.contains(v)).map(|&v| self.number_of[v as usize]);
            let mut sample = Sample::of_seeds(own.collect());
            for hop in 0..spec.fanouts.len() {
                let mut drawn: HashMap<u32, DrawnEdges> = HashMap::new();
                for (owner, sampler) in samplers.iter_mut().enumerate() {
                    let asked: Vec<u32> =
                        sample.rows().iter().copied().filter(|&n| self.numbers.owns(owner, n)).collect();
                    assert!(asked.iter().all(|&n| self.numbers.owner(n) == owner));
                    let rows: Vec<u32> = asked.iter().map(|&n| self.numbers.row(owner, n)).collect();
                    sampler.start(key, hop, &rows);
                    for (at, &number) in asked.iter().enumerate() {
                        // Lists are appended.
                        let mut list = DrawnEdges::default();
                        list.sources.push(u32::MAX);
                        sampler.draw(&rows, at, &mut list);
                        assert_eq!(list.sources.remove(0), u32::MAX);
                        drawn.insert(number, list);
                    }
                }
                assembler.add_hop(&mut sample, |number, list| {
                    let DrawnEdges { sources, weights } = &drawn[&number];
                    list.append(sources, weights.iter().copied());
                });
            }
            sample.describe(|number| self.facts[number as usize]);
            sample
        };
        self.ranks.iter().map(of_rank).collect()
    }
}

/// Owners of vertices: at random among all of `owners`, or all but the first.
fn owner(owners: usize, leaves_first_empty: bool) -> impl Fn(u32) -> usize {
    let first = (leaves_first_empty && owners > 1) as usize;
    move |v| first + Key::new(9, "owners").below(v as u64, (owners - first) as u64) as usize
}

/// A batch whose sample one process has drawn.
pub(super) struct Case<'c> {
    pub parts: &'c Parts,
    pub spec: &'c SampleSpec,
    pub key: Key,
    pub seeds: &'c [u32],
    pub one: Sample,
    pub what: String,
}

pub(super) fn each_case(mut check: impl FnMut(Case)) {
    let csr = graph(NODES, true);
    let whole = Block::whole(view(&csr));
    // The hub, isolated vertices, one with a self-loop, and others.
    let seeds: Vec<u32> = [0, NODES - 1, NODES - 2, 3].into_iter().chain((10..150).step_by(7)).collect();
    for owners in 1..=4 {
        for leaves_first_empty in [false, true] {
            let parts = Parts::new(&csr, owners, owner(owners, leaves_first_empty));
            for kind in KINDS {
                for fanouts in [&[4, 3, 2][..], &[-1, -1], &[2, -1, 5], &[1]] {
                    let spec = spec(kind, fanouts);
                    for batch in 0..3 {
                        let one = sampled(&whole, &spec, key(batch), &seeds);
                        let what = format!("{kind:?}, {fanouts:?}, {owners} owners, batch {batch}");
                        let (parts, spec, key, seeds) = (&parts, &spec, key(batch), &seeds[..]);
                        check(Case { parts, spec, key, seeds, one, what });
                    }
                }
            }
        }
    }
}

#[test]
fn owners_draw_the_lists_of_one_process() {
    each_case(|Case { parts, spec, key, seeds, one, what }| {
        let ranks = parts.samples(spec, key, seeds);
        assert_eq!(ranks.len(), parts.ranks.len());
        for (hop, want) in lists(&one).into_iter().enumerate() {
            let want: BTreeMap<u32, Vec<u32>> = want.into_iter().collect();
            let mut union = BTreeMap::new();
            for sample in &ranks {
                assert_eq!(sample.hops(), spec.fanouts.len());
                for (id, list) in lists(sample).swap_remove(hop) {
                    assert_eq!(Some(&list), want.get(&id), "{what}, hop {hop}, vertex {id}");
                    union.insert(id, list);
                }
            }
            assert_eq!(union, want, "{what}, hop {hop}");
        }
    });
}

#[test]
fn assembled_samples_have_rows_degrees_and_loops_of_one_process() {
    each_case(|Case { parts, spec, key, seeds, one, what }| {
        let ranks = parts.samples(spec, key, seeds);
        let facts = |sample: &Sample| -> BTreeMap<u32, u32> {
            sample.ids.iter().copied().zip(sample.degrees.iter().copied()).collect()
        };
        let want = facts(&one);
        let mut union = BTreeMap::new();
        for sample in &ranks {
            let found = facts(sample);
            assert_eq!(found.len(), sample.rows().len(), "{what}: rows are distinct");
            union.extend(found);
            for hop in 0..sample.hops() {
                let block = sample.block(hop);
                let (destinations, sources) = (block.destinations().len(), block.sources());
                assert!(destinations <= sources && sources <= sample.rows().len(), "{what}");
                if hop + 1 < sample.hops() {
                    assert_eq!(sample.block(hop + 1).destinations(), 0..sources, "{what}");
                }
                let loops: Vec<u32> = block.loops().iter().map(|&r| block.id(r as usize)).collect();
                let ids = &sample.ids()[..destinations];
                let want: Vec<u32> =
                    ids.iter().copied().filter(|v| *v != 0 && v % 3 == 0 && *v < NODES - 3).collect();
                assert_eq!(loops, want, "{what}");
            }
        }
        assert_eq!(union, want, "{what}");
    });
}

#[test]
fn numbers_follow_the_ranks_and_skip_those_without_vertices() {
    let numbers = RankNumbers::new(&[0, 3, 0, 0, 2, 0]);
    assert_eq!(numbers.nodes(), 5);
    for (number, (owner, row)) in [(1, 0), (1, 1), (1, 2), (4, 0), (4, 1)].into_iter().enumerate() {
        let number = number as u32;
        assert_eq!((numbers.owner(number), numbers.row(owner, number)), (owner, row));
        assert_eq!(numbers.number(owner, row), number);
        let owners: Vec<usize> = (0..6).filter(|&rank| numbers.owns(rank, number)).collect();
        assert_eq!(owners, [owner]);
    }
    assert_eq!(RankNumbers::new(&[0, 0]).nodes(), 0);
}
