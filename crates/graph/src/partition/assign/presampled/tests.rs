use super::*;
use crate::partition::testing::{Kind, Toy, communities};
use crate::partition::{Assignment, Balance, Method, split_costs};
use crate::progress::Silent;
use crate::sample::{Fanout, SamplerKind};

fn presample(fanouts: &[u32]) -> Presample {
    Presample {
        epochs: 2,
        batch_size: 8,
        sampler: SamplerKind::Neighbor,
        fanouts: fanouts.iter().map(|&most| Fanout::AtMost(most)).collect(),
        reads_inputs: true,
        cached_input: false,
        inductive: false,
    }
}

fn spec(parts: u32, presample: Presample) -> PartitionSpec {
    PartitionSpec { parts, method: Method::Presampled(presample), balance: Balance::default(), seed: 1 }
}

#[test]
fn edges_weigh_the_reads_of_both_directions() {
    // 0 -> 1, 1 -> 0, 2 -> 1, a loop at 1, and 3 -> 4, which is never read.
    let toy = Toy::new(5, &[[0, 1], [1, 0], [2, 1], [1, 1], [3, 4]]);
    let dataset = toy.dataset();
    let kept = KeptGraph::of(dataset.graph(), &[2.0, 0.5, 7.0, 1.0, 0.0], &Silent).unwrap();
    let [read_by_0, read_by_1] = [128, 32];
    assert_eq!(kept.vertices, [0, 1, 2]);
    assert_eq!((kept.starts, kept.ids), (vec![0, 1, 3, 4], vec![1, 0, 2, 1]));
    assert_eq!(kept.edges, [read_by_0 + read_by_1, read_by_0 + read_by_1, read_by_1, read_by_1]);
}

#[test]
fn weights_are_symmetric() {
    let (_folder, dataset) = communities(300, 3000);
    let reads: Vec<f64> = (0..300).map(|v| f64::from(v % 7) / 3.0).collect();
    let kept = KeptGraph::of(dataset.graph(), &reads, &Silent).unwrap();
    let row = |v: usize| kept.starts[v] as usize..kept.starts[v + 1] as usize;
    let weight = |v: usize, u: Idx| row(v).find(|&at| kept.ids[at] == u).map(|at| kept.edges[at]);
    for v in 0..kept.vertices.len() {
        for at in row(v) {
            assert_eq!(weight(kept.ids[at] as usize, v as Idx), Some(kept.edges[at]));
        }
    }
}

#[test]
fn weights_fit_the_numbers_of_metis() {
    let (_folder, dataset) = communities(300, 3000);
    let total = |weights: &[Idx]| weights.iter().map(|&weight| weight as i64).sum::<i64>();
    for reads in [0.0, 1e-9, 1.0, 1e9, 1e300] {
        let kept = KeptGraph::of(dataset.graph(), &[reads; 300], &Silent).unwrap();
        assert!(total(&kept.edges) <= Idx::MAX as i64 && kept.edges.iter().all(|&weight| weight > 0));
        assert_eq!(kept.vertices.is_empty(), reads == 0.0);
    }
    for work in [0, 1, 1 << 30, 1 << 50] {
        let scaled = scaled_work(&[work, work, 0, 1, 5]);
        assert!(scaled.iter().map(|&work| u64::from(work)).sum::<u64>() <= MOST + 5);
        assert_eq!((scaled[2], scaled[3] > 0, scaled[0] > 0), (0, true, work > 0));
    }
}

#[test]
fn any_graph_and_number_of_parts_is_partitioned() {
    let line = |nodes: i64| (0..nodes - 1).map(|v| [v, v + 1]).collect::<Vec<_>>();
    let star: Vec<[i64; 2]> = (1..40).flat_map(|v| [[0, v], [v, 0]]).collect();
    let none = Kind { directed: true, multi_label: false, half: false, sparse: false, weighted: false };
    let odd = [
        Toy::new(0, &[]),
        Toy::new(1, &[[0, 0]]),
        Toy::new(50, &[]),
        Toy::new(6, &[[0, 1], [1, 2], [3, 3], [5, 0], [0, 5]]),
        Toy::new(40, &line(40)),
        Toy::new(40, &star),
        // No training vertices.
        Toy::like(40, &line(40), &[0; 40], none),
    ];
    for toy in &odd {
        let dataset = toy.dataset();
        for fanouts in [&[][..], &[3], &[3, 2], &[2, 2, 2]] {
            for parts in [1, 2, 3, 8, 39, 40, 1000] {
                for (cached_input, inductive) in [(false, false), (true, false), (false, true)] {
                    let presample = Presample { cached_input, inductive, ..presample(fanouts) };
                    let found = spec(parts, presample).assign(&dataset, &Silent).unwrap();
                    assert_eq!(found.of().len(), toy.nodes());
                    assert!(found.of().iter().all(|&part| part < parts));
                }
            }
        }
    }
}

#[test]
fn vertices_that_are_never_sampled_are_spread() {
    // Training vertices are in a clique of 40 of 400 vertices; the others form a ring.
    let clique = (0..40).flat_map(|v| (0..40).filter(move |&u| u != v).map(move |u| [v, u]));
    let ring = (40..400).map(|v| [v, if v == 399 { 40 } else { v + 1 }]);
    let split: Vec<u8> = (0..400).map(|v| u8::from(v < 40)).collect();
    let kind = Kind { directed: false, multi_label: true, half: false, sparse: false, weighted: false };
    let dataset = Toy::like(400, &clique.chain(ring).collect::<Vec<_>>(), &split, kind).dataset();
    let found = spec(4, presample(&[5, 5])).assign(&dataset, &Silent).unwrap();
    let size = |part: u32, of: &[u32]| of.iter().filter(|&&p| p == part).count();
    for part in 0..4 {
        assert!((90..=106).contains(&size(part, found.of())), "{}", size(part, found.of()));
        assert!((7..=13).contains(&size(part, &found.of()[..40])));
    }
    let cut = (40..399).filter(|&v| found.of()[v] != found.of()[v + 1]).count();
    assert!(cut < 120, "neighbours stay together: {cut} of 360 edges are cut");
}

#[test]
fn presampling_is_reproducible_and_exchanges_less_than_other_methods() {
    let (_folder, dataset) = communities(4000, 60_000);
    let presample = Presample { batch_size: 128, ..presample(&[5, 4, 3]) };
    let make = |seed| PartitionSpec { seed, ..spec(4, presample.clone()) }.assign(&dataset, &Silent).unwrap();
    let found = make(1);
    assert!(found == make(1) && found != make(2));
    let other = |method| PartitionSpec { method, ..spec(4, presample.clone()) };
    let others = [Method::Stream, Method::Random].map(|m| other(m).assign(&dataset, &Silent).unwrap());
    let all: Vec<&Assignment> = std::iter::once(&found).chain(&others).collect();
    let costs = split_costs(&dataset, &presample, 1, &all, &Silent).unwrap();
    let rows: Vec<f64> = costs.iter().map(|cost| cost.remote_rows().iter().sum()).collect();
    assert!(rows[0] < rows[1] && rows[1] < rows[2], "{rows:?}");
    assert!(costs[0].work_balance < 1.1, "{}", costs[0].work_balance);
}

#[test]
fn memory_grows_with_the_graph_and_with_samples() {
    let manifest = Toy::new(4, &[[0, 1]]).dataset().manifest;
    let bytes = |edges, presample: &Presample| {
        peak_bytes(&Manifest { nodes: 1000, edges, directed: false, ..manifest.clone() }, presample)
    };
    let some = presample(&[5, 5]);
    assert!(bytes(2_000_000, &some) >= bytes(1_000_000, &some) + 40_000_000);
    let inductive = Presample { inductive: true, ..some.clone() };
    assert!(bytes(1_000_000, &inductive) > bytes(1_000_000, &some));
    let all = Presample { fanouts: vec![Fanout::All; 50], ..some };
    assert!(bytes(1_000_000, &all) > 49 * 4_000_000);
    assert!(bytes(u64::MAX, &all) == u64::MAX);
}
