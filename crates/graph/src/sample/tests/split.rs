//! Samples split over the owners of vertices.

use std::collections::BTreeMap;

use super::ranks::{Case, Parts, each_case};
use super::*;

/// What a hop computes of one destination.
#[derive(Debug, Clone, PartialEq)]
struct Destination {
    /// Dataset ids of the drawn neighbours, ascending.
    sources: Vec<u32>,
    degree: u32,
    has_loop: bool,
    edge_scale: f64,
}

/// The destinations of a hop, by dataset id.
type Destinations = BTreeMap<u32, Destination>;

fn destinations(block: &Block) -> Destinations {
    let pattern = block.pattern();
    let of_row = |r: usize| {
        let mut sources: Vec<u32> =
            pattern.columns[pattern.row(r)].iter().map(|&c| block.id(c as usize)).collect();
        if let Some(halo) = block.halo() {
            let edges = halo.pattern();
            sources.extend(edges.columns[edges.row(r)].iter().map(|&c| halo.ids()[c as usize]));
        }
        sources.sort_unstable();
        let has_loop = block.loops().contains(&(r as u32));
        let (degree, edge_scale) = (block.degrees()[r], block.edge_scale(r));
        (block.id(r), Destination { sources, degree, has_loop, edge_scale })
    };
    let found: Vec<_> = (0..block.destinations().len()).map(of_row).collect();
    let count = found.len();
    let found: Destinations = found.into_iter().collect();
    assert_eq!(found.len(), count, "destinations are distinct");
    found
}

/// The sample of one rank, with the rows that ranks read of each other in each hop.
struct Split {
    sample: Sample,
    exchanged: Vec<Option<ExchangedRows>>,
}

impl Parts {
    /// Samples a batch that is split over ranks. `fetches`: remote rows of the deepest hop are rows of the samples.
    fn split(&self, spec: &SampleSpec, key: Key, seeds: &[u32], fetches: bool) -> Vec<Split> {
        let neighbors: Vec<Neighbors> = self.ranks.iter().map(|part| Neighbors::of(&part.block)).collect();
        let mut samplers: Vec<OwnedSampler> =
            neighbors.iter().map(|neighbors| OwnedSampler::new(neighbors, spec, None)).collect();
        let assembler =
            |(rank, numbers): (usize, usize)| SplitAssembler::new(numbers, self.ranks[rank].owned.len());
        let sizes = self.ranks.iter().map(|part| part.numbers.len()).enumerate();
        let mut assemblers: Vec<SplitAssembler> = sizes.map(assembler).collect();
        let own_seeds = |rank: usize| {
            let own =
                seeds.iter().map(|&v| self.number_of[v as usize]).filter(|&n| self.numbers.owns(rank, n));
            own.map(|n| self.numbers.row(rank, n)).collect()
        };
        let mut samples: Vec<Sample> =
            (0..self.ranks.len()).map(|rank| Sample::of_seeds(own_seeds(rank))).collect();
        let exchanged = spec.fanouts.len() - fetches as usize;
        for _ in 0..exchanged {
            let mut drawn = Vec::new();
            for (rank, sample) in samples.iter().enumerate() {
                drawn.push(assemblers[rank].draw(&mut samplers[rank], key, sample));
            }
            // requested[owner][reader]
            let mut requested = vec![vec![Vec::new(); samples.len()]; samples.len()];
            for (reader, drawn) in drawn.iter().enumerate() {
                assert!(drawn.halo_rows().is_sorted());
                for &row in drawn.halo_rows() {
                    let number = self.ranks[reader].numbers[row as usize];
                    let owner = self.numbers.owner(number);
                    assert_ne!(owner, reader);
                    requested[owner][reader].push(self.numbers.row(owner, number));
                }
            }
            for (rank, drawn) in drawn.into_iter().enumerate() {
                let requested: Vec<&[u32]> = requested[rank].iter().map(Vec::as_slice).collect();
                let runs = &self.ranks[rank].runs;
                assemblers[rank].finish(&mut samples[rank], drawn, &neighbors[rank], &requested, runs);
            }
        }
        let finish = |(rank, mut sample): (usize, Sample)| {
            if fetches {
                assemblers[rank].add_inputs(&mut samplers[rank], key, &mut sample);
            }
            sample.renumber(|row| self.ranks[rank].numbers[row as usize]);
            sample.describe(|number| self.facts[number as usize]);
            let exchanged = sample.take_exchanged_rows();
            assert_eq!(exchanged.len(), spec.fanouts.len());
            assert!(sample.take_exchanged_rows().iter().all(Option::is_none), "taken once");
            Split { sample, exchanged }
        };
        samples.into_iter().enumerate().map(finish).collect()
    }
}

/// Calls `check` for all cases, with and without fetched inputs.
fn each_split(mut check: impl FnMut(&Case, &[Split], bool, &str)) {
    each_case(|case| {
        for fetches in [false, true] {
            let ranks = case.parts.split(case.spec, case.key, case.seeds, fetches);
            check(&case, &ranks, fetches, &format!("{}, inputs are fetched: {fetches}", case.what));
        }
    });
}

#[test]
fn the_union_of_split_blocks_is_the_sample_of_one_process() {
    each_split(|case, ranks, _, what| {
        for hop in 0..case.spec.fanouts.len() {
            let want = destinations(&case.one.block(hop));
            let mut union = Destinations::new();
            for (rank, Split { sample, .. }) in ranks.iter().enumerate() {
                for (id, found) in destinations(&sample.block(hop)) {
                    let owner = case.parts.numbers.owner(case.parts.number_of[id as usize]);
                    assert_eq!(owner, rank, "{what}, hop {hop}: vertex {id} is computed by its owner");
                    assert!(union.insert(id, found).is_none(), "{what}, hop {hop}: vertex {id} twice");
                }
            }
            assert_eq!(union, want, "{what}, hop {hop}");
        }
        let sum = |of: fn(&Sample) -> usize| ranks.iter().map(|rank| of(&rank.sample)).sum::<usize>();
        assert_eq!(sum(Sample::edges), case.one.edges(), "{what}");
        assert_eq!(sum(Sample::destinations), case.one.destinations(), "{what}");
    });
}

#[test]
fn rows_of_a_split_sample_are_own_ones_and_fetched_inputs() {
    each_split(|case, ranks, fetches, what| {
        let (numbers, mut own) = (&case.parts.numbers, Vec::new());
        for (rank, Split { sample, .. }) in ranks.iter().enumerate() {
            let mut distinct = sample.rows().to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), sample.rows().len(), "{what}: rows are distinct");
            let last = sample.block(sample.hops() - 1);
            let destinations = last.destinations().len();
            let is_own = |number: &&u32| numbers.owns(rank, **number);
            assert!(sample.rows()[..destinations].iter().all(|number| is_own(&number)), "{what}");
            if !fetches {
                assert!(sample.rows().iter().all(|number| is_own(&number)), "{what}");
            }
            own.extend(
                sample.rows().iter().filter(is_own).map(|&number| case.parts.facts[number as usize].0),
            );
            // Destinations of a hop are the sources of the one before.
            for hop in 1..sample.hops() {
                let sources = sample.block(hop - 1).sources();
                assert_eq!(sample.block(hop).destinations(), 0..sources, "{what}");
            }
            assert!(sample.bytes() >= 4 * 3 * sample.rows().len());
        }
        own.sort_unstable();
        if !fetches {
            let mut want = case.one.ids().to_vec();
            want.sort_unstable();
            assert_eq!(own, want, "{what}: each vertex has one owner");
        }
    });
}

#[test]
fn what_a_rank_sends_is_the_halo_of_its_reader() {
    each_split(|case, ranks, fetches, what| {
        let hops = case.spec.fanouts.len();
        for hop in 0..hops {
            let has_boundary = hop + 1 < hops || !fetches;
            for (reader, Split { sample, exchanged }) in ranks.iter().enumerate() {
                let block = sample.block(hop);
                assert_eq!(exchanged[hop].is_some(), has_boundary, "{what}, hop {hop}");
                assert_eq!(block.halo().is_some(), has_boundary, "{what}, hop {hop}");
                let (Some(read), Some(halo)) = (&exchanged[hop], block.halo()) else { continue };
                assert_eq!(read.halo_counts.iter().sum::<usize>(), halo.sources(), "{what}");
                let mut rest = halo.ids();
                for (owner, &count) in read.halo_counts.iter().enumerate() {
                    let (received, more) = rest.split_at(count);
                    rest = more;
                    let Split { sample, exchanged } = &ranks[owner];
                    let rows = &exchanged[hop].as_ref().unwrap().send_rows[reader];
                    let sent: Vec<u32> = rows.iter().map(|&row| sample.ids()[row as usize]).collect();
                    assert_eq!(sent, received, "{what}, hop {hop}: rank {owner} to rank {reader}");
                    // Only rows that the owner has computed by then.
                    assert!(rows.iter().all(|&row| (row as usize) < sample.block(hop).sources()), "{what}");
                }
                let facts = |&id: &u32| case.parts.facts[case.parts.number_of[id as usize] as usize].1;
                assert!(halo.degrees().iter().copied().eq(halo.ids().iter().map(facts)), "{what}");
                let distinct: std::collections::BTreeSet<&u32> = halo.ids().iter().collect();
                assert_eq!(distinct.len(), halo.sources(), "{what}: a row is sent once to a reader");
            }
        }
    });
}

#[test]
fn the_same_workers_sample_batch_after_batch() {
    // Working memory is left clean: a second batch is that of new assemblers.
    let csr = graph(super::ranks::NODES, true);
    let parts = Parts::new(&csr, 3, |v| v as usize % 3);
    let spec = spec(SamplerKind::Labor, &[4, 3]);
    let neighbors = Neighbors::of(&parts.ranks[0].block);
    let part = &parts.ranks[0];
    let mut sampler = OwnedSampler::new(&neighbors, &spec, None);
    let mut sampled = |assembler: &mut SplitAssembler, batch: u64| {
        let mut sample = Sample::of_seeds((0..20).collect());
        let drawn = assembler.draw(&mut sampler, key(batch), &sample);
        let requested: [&[u32]; 3] = [&[], &[3, 30, 40], &[50]];
        assembler.finish(&mut sample, drawn, &neighbors, &requested, &part.runs);
        assembler.add_inputs(&mut sampler, key(batch), &mut sample);
        sample.renumber(|row| part.numbers[row as usize]);
        sample.describe(|number| parts.facts[number as usize]);
        let exchanged = sample.take_exchanged_rows();
        let hops: Vec<Destinations> = (0..2).map(|hop| destinations(&sample.block(hop))).collect();
        (sample.rows().to_vec(), exchanged, hops)
    };
    let new = || SplitAssembler::new(part.numbers.len(), part.owned.len());
    let mut used = new();
    for batch in 0..4 {
        assert_eq!(sampled(&mut used, batch), sampled(&mut new(), batch));
    }
}
