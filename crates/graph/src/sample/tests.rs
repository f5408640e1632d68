mod ranks;
mod split;

use halograph_kernels::keyed::Key;
use proptest::prelude::*;

use super::*;
use crate::csr::CsrView;

const KINDS: [SamplerKind; 2] = [SamplerKind::Neighbor, SamplerKind::Labor];

fn key(batch: u64) -> Key {
    Key::new(5, "test").with(batch)
}

/// A graph in memory.
struct Csr {
    indptr: Vec<u64>,
    indices: Vec<u32>,
}

/// Stores the in-neighbours of each vertex.
fn csr(lists: &[Vec<u32>]) -> Csr {
    let mut indptr = vec![0];
    lists.iter().for_each(|list| indptr.push(indptr[indptr.len() - 1] + list.len() as u64));
    Csr { indptr, indices: lists.concat() }
}

/// A random graph with a hub that is linked to every vertex, isolated vertices and, if asked for, self-loops.
fn graph(nodes: u32, loops: bool) -> Csr {
    let key = Key::new(1, "graph");
    let mut lists = vec![Vec::new(); nodes as usize];
    for v in 1..nodes - 3 {
        for i in 0..key.below(v as u64, 12) {
            let u = 1 + key.with(v as u64).below(i, nodes as u64 - 4) as u32;
            if u != v {
                lists[v as usize].push(u);
                lists[u as usize].push(v);
            }
        }
        lists[v as usize].push(0);
        lists[0].push(v);
        if loops && v % 3 == 0 {
            lists[v as usize].push(v);
        }
    }
    lists.iter_mut().for_each(|list| {
        list.sort_unstable();
        list.dedup();
    });
    csr(&lists)
}

fn spec(kind: SamplerKind, fanouts: &[i64]) -> SampleSpec {
    let fanout = |&f: &i64| if f < 0 { Fanout::All } else { Fanout::AtMost(f as u32) };
    SampleSpec { kind, fanouts: fanouts.iter().map(fanout).collect() }
}

fn sampled(block: &Block, spec: &SampleSpec, key: Key, seeds: &[u32]) -> Sample {
    let neighbors = Neighbors::of(block);
    let mut sample = Sample::default();
    Sampler::new(&neighbors, spec).sample(key, seeds, &mut sample);
    sample
}

/// For every hop, the dataset ids of the drawn neighbours of each destination, by dataset id.
fn lists(sample: &Sample) -> Vec<Vec<(u32, Vec<u32>)>> {
    let hop = |hop| {
        let block = sample.block(hop);
        let pattern = block.pattern();
        let list = |r: usize| {
            let ids = pattern.columns[pattern.row(r)].iter().map(|&c| block.id(c as usize)).collect();
            (block.id(r), ids)
        };
        let mut lists: Vec<(u32, Vec<u32>)> = (0..pattern.rows()).map(list).collect();
        lists.sort();
        lists
    };
    (0..sample.hops()).map(hop).collect()
}

fn view(csr: &Csr) -> CsrView<'_> {
    CsrView { indptr: &csr.indptr, indices: &csr.indices }
}

#[test]
fn neighbours_are_distinct_and_as_many_as_the_fanout_allows() {
    for loops in [false, true] {
        let csr = graph(300, loops);
        let block = Block::whole(view(&csr));
        for kind in KINDS {
            let sample = sampled(&block, &spec(kind, &[4, 7, -1]), key(0), &[0, 17, 120, 299, 298]);
            for (hop, fanout) in [4, 7, usize::MAX].into_iter().enumerate() {
                let edges = sample.block(hop);
                assert!(edges.is_sampled());
                for (v, list) in &lists(&sample)[hop] {
                    let all =
                        &csr.indices[csr.indptr[*v as usize] as usize..csr.indptr[*v as usize + 1] as usize];
                    let mut distinct = list.clone();
                    distinct.sort_unstable();
                    distinct.dedup();
                    assert_eq!(distinct.len(), list.len(), "drawn without replacement");
                    assert!(list.iter().all(|u| all.contains(u)));
                    let others = |list: &[u32]| list.iter().filter(|&u| u != v).count();
                    assert_eq!(others(list), others(all).min(fanout));
                    assert_eq!(list.contains(v), all.contains(v), "a self-loop is always kept");
                }
            }
        }
    }
}

#[test]
fn rows_are_numbered_by_hop() {
    let csr = graph(300, true);
    let block = Block::whole(view(&csr));
    let seeds = [40, 3, 250];
    let sample = sampled(&block, &spec(SamplerKind::Neighbor, &[3, 3]), key(1), &seeds);
    assert_eq!(sample.rows()[..3], seeds);
    let [first, second] = [0, 1].map(|hop| sample.block(hop));
    assert_eq!(first.destinations(), 0..3);
    assert_eq!(second.destinations(), 0..first.sources(), "sources of a hop are destinations of the next");
    assert_eq!(second.sources(), sample.rows().len());
    let mut distinct = sample.rows().to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), sample.rows().len());
    assert!(sample.rows().iter().zip(second.degrees()).all(|(&v, &d)| d == block.degrees()[v as usize]));
    let loops = |block: &Block| block.loops().iter().map(|&r| block.id(r as usize)).collect::<Vec<_>>();
    assert_eq!(
        loops(&second),
        sample.rows()[..first.sources()]
            .iter()
            .copied()
            .filter(|v| { block.loops().contains(v) })
            .collect::<Vec<_>>()
    );
}

#[test]
fn the_order_in_which_rows_are_stored_changes_no_list() {
    let csr = graph(300, true);
    let identity = Block::whole(view(&csr));
    let mut order: Vec<u32> = (0..300).collect();
    order.sort_by_key(|&v| Key::new(3, "order").at(v as u64));
    let ordered = Block::ordered(view(&csr), &order);
    let row_of = |id: u32| order.iter().position(|&v| v == id).unwrap() as u32;
    for kind in KINDS {
        let spec = spec(kind, &[5, 4, 3]);
        let seeds = [7, 100, 0, 299];
        let one = sampled(&identity, &spec, key(2), &seeds);
        let other = sampled(&ordered, &spec, key(2), &seeds.map(row_of));
        assert_eq!(lists(&one), lists(&other), "{kind:?}");
    }
}

#[test]
fn a_sampler_gives_the_same_sample_again_and_keeps_its_memory() {
    let csr = graph(500, false);
    let block = Block::whole(view(&csr));
    let neighbors = Neighbors::of(&block);
    let seeds: Vec<u32> = (0..50).collect();
    for kind in KINDS {
        let spec = spec(kind, &[5, 5]);
        let (mut sampler, mut sample) = (Sampler::new(&neighbors, &spec), Sample::default());
        sampler.sample(key(0), &seeds, &mut sample);
        let first = lists(&sample);
        for batch in 0..100 {
            sampler.sample(key(batch), &seeds, &mut sample);
        }
        let size = |sample: &Sample| {
            let hops = sample.hops.iter().map(|hop| hop.drawn.bytes() + hop.indptr.capacity());
            sample.rows.capacity() + hops.sum::<usize>()
        };
        let before = size(&sample);
        for batch in 100..1000 {
            sampler.sample(key(batch), &seeds, &mut sample);
        }
        assert!(size(&sample) <= 2 * before, "memory grows");
        sampler.sample(key(0), &seeds, &mut sample);
        assert_eq!(lists(&sample), first);
    }
}

#[test]
fn inclusion_counts_are_those_of_uniform_samples_without_replacement() {
    // 99.9 % quantiles of chi-squared with d - 1 degrees of freedom.
    for (degree, fanout, limit) in [(8, 3, 24.3), (40, 5, 72.1), (40, 25, 72.1), (101, 10, 149.4)] {
        // Vertex 0 with its neighbours; a second destination shares them, as in most batches.
        let hub: Vec<u32> = (2..degree as u32 + 2).collect();
        let mut lists = vec![hub.clone(), hub];
        lists.extend((0..degree).map(|_| vec![0, 1]));
        let csr = csr(&lists);
        let block = Block::whole(view(&csr));
        let neighbors = Neighbors::of(&block);
        for kind in KINDS {
            let spec = spec(kind, &[fanout]);
            let (mut sampler, mut sample) = (Sampler::new(&neighbors, &spec), Sample::default());
            let mut counts = vec![0u32; degree];
            const DRAWS: u64 = 2000;
            for batch in 0..DRAWS {
                sampler.sample(key(batch), &[0, 1], &mut sample);
                let block = sample.block(0);
                let pattern = block.pattern();
                pattern.columns[pattern.row(0)]
                    .iter()
                    .for_each(|&c| counts[block.id(c as usize) as usize - 2] += 1);
            }
            let (d, f) = (degree as f64, fanout as f64);
            let expected = DRAWS as f64 * f / d;
            let squares: f64 = counts.iter().map(|&n| (n as f64 - expected).powi(2)).sum();
            let chi2 = (d - 1.0) / d * squares / (expected * (1.0 - f / d));
            assert!(chi2 < limit, "{kind:?}, {fanout} of {degree}: {chi2}");
        }
    }
}

#[test]
fn labor_gives_equal_samples_to_equal_lists_and_fewer_rows() {
    let list: Vec<u32> = (50..150).collect();
    let mut all = vec![list; 50];
    all.extend((0..100).map(|_| (0..50).collect()));
    let csr = csr(&all);
    let block = Block::whole(view(&csr));
    let seeds: Vec<u32> = (0..50).collect();
    let sample = sampled(&block, &spec(SamplerKind::Labor, &[7]), key(3), &seeds);
    let drawn = &lists(&sample)[0];
    assert!(drawn.iter().all(|(_, list)| list == &drawn[0].1));
    assert_eq!(sample.rows().len(), 50 + 7);
    let independent = sampled(&block, &spec(SamplerKind::Neighbor, &[7]), key(3), &seeds);
    assert!(independent.rows().len() > 50 + 90);
    // Few destinations: variates are not computed for all rows, and are the same.
    let few = sampled(&block, &spec(SamplerKind::Labor, &[7]), key(3), &seeds[..1]);
    assert_eq!(lists(&few)[0][0].1, drawn[0].1);
}

#[test]
fn a_star_an_isolated_vertex_and_one_vertex_are_sampled() {
    let mut star = vec![(1..1000).collect::<Vec<u32>>()];
    star.extend((1..1000).map(|_| vec![0]));
    star.push(vec![]);
    let star = csr(&star);
    let one = csr(&[vec![]]);
    for kind in KINDS {
        let spec = spec(kind, &[10, 10]);
        let sample = sampled(&Block::whole(view(&star)), &spec, key(0), &[0, 1000, 5]);
        assert_eq!(sample.block(0).edges(), 11);
        assert_eq!(lists(&sample)[0][2], (1000, vec![]));
        let sample = sampled(&Block::whole(view(&one)), &spec, key(0), &[0]);
        assert_eq!((sample.rows(), sample.edges()), (&[0][..], 0));
        let none = sampled(&Block::whole(view(&star)), &spec, key(0), &[]);
        assert_eq!((none.rows().len(), none.block(1).destinations()), (0, 0..0));
    }
}

#[test]
#[should_panic(expected = "listed twice")]
fn a_repeated_seed_is_refused() {
    let csr = graph(20, false);
    sampled(&Block::whole(view(&csr)), &spec(SamplerKind::Neighbor, &[2]), key(0), &[3, 3]);
}

#[test]
fn edge_scales_make_up_for_edges_left_out() {
    let csr = graph(300, true);
    let block = Block::whole(view(&csr));
    let sample = sampled(&block, &spec(SamplerKind::Labor, &[3]), key(0), &[0, 3, 7, 299]);
    let edges = sample.block(0);
    for r in 0..4 {
        let others = edges.in_edges(r) - edges.loops().contains(&(r as u32)) as usize;
        let want = if others == 0 { 1.0 } else { edges.degrees()[r] as f64 / others as f64 };
        assert_eq!(edges.edge_scale(r), want);
    }
    assert_eq!(block.edge_scale(0), 1.0);
    // Six neighbours and a self-loop, of which three are drawn.
    let mut lists = vec![(0..7).collect::<Vec<u32>>()];
    lists.extend((1..7).map(|_| vec![0]));
    let star = self::csr(&lists);
    let sample = sampled(&Block::whole(view(&star)), &spec(SamplerKind::Neighbor, &[3]), key(0), &[0]);
    assert_eq!((sample.block(0).in_edges(0), sample.block(0).edge_scale(0)), (4, 2.0));
}

proptest! {
    #[test]
    fn positions_are_distinct_and_in_range(degree in 1usize..200, share in 0.0f64..1.0, seed: u64) {
        let count = ((degree as f64 * share) as usize).max(1);
        let mut draw = Draw::default();
        draw.positions(Key::new(seed, "draw"), degree, count);
        let mut chosen = draw.chosen().to_vec();
        chosen.sort_unstable();
        chosen.dedup();
        prop_assert_eq!(chosen.len(), count);
        prop_assert!(chosen.iter().all(|&at| (at as usize) < degree));
    }
}
