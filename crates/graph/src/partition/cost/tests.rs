use std::collections::HashSet;

use super::*;
use crate::partition::testing::{Toy, communities};
use crate::progress::Silent;
use crate::sample::{Fanout, SamplerKind};

fn presample(cached_input: bool, inductive: bool, sampler: SamplerKind) -> Presample {
    let fanouts = vec![Fanout::AtMost(4), Fanout::All, Fanout::AtMost(3)];
    Presample { epochs: 2, batch_size: 32, sampler, fanouts, reads_inputs: true, cached_input, inductive }
}

/// Counts one step with sets: destinations, edges and remote rows of each hop and part.
fn brute(
    graph: &Block,
    presample: &Presample,
    of: &[u32],
    parts: usize,
    sample: &Sample,
) -> Vec<Vec<PartCost>> {
    let mut hops = vec![vec![PartCost::default(); parts]; presample.hops()];
    for (hop, costs) in hops.iter_mut().enumerate() {
        let mut pairs = HashSet::new();
        for (row, &v) in sample.destination_rows(hop).iter().enumerate() {
            let (reader, degree) = (of[v as usize], graph.degrees()[v as usize] as usize);
            costs[reader as usize].destinations += 1.0;
            costs[reader as usize].edges += match hop {
                0 => degree.min(4),
                1 => degree,
                _ if presample.cached_input => 0,
                _ => degree.min(3),
            } as f64;
            if hop < sample.hops() {
                let block = sample.block(hop);
                let (starts, sources) = block.rows();
                for &source in &sources[starts[row] as usize..starts[row + 1] as usize] {
                    let u = sample.rows()[source as usize];
                    if of[u as usize] != reader {
                        pairs.insert((u, reader));
                    }
                }
            }
        }
        pairs.iter().for_each(|&(_, reader)| costs[reader as usize].remote_rows += 1.0);
    }
    hops
}

#[test]
fn costs_are_those_of_brute_force() {
    let (_folder, dataset) = communities(500, 6000);
    let of: Vec<u32> = (0..500).map(|v| v * 7 % 5).collect();
    let assignment = Assignment::new(5, of.clone()).unwrap();
    for (cached, inductive, sampler) in [
        (false, false, SamplerKind::Neighbor),
        (true, false, SamplerKind::Labor),
        (false, true, SamplerKind::Neighbor),
    ] {
        let presample = presample(cached, inductive, sampler);
        let batches = Batches::new(&dataset, &presample, 3);
        let visit = |found: &mut Vec<_>, sample: &Sample| {
            found.push(brute(batches.graph(), &presample, &of, 5, sample));
        };
        let steps: Vec<_> =
            batches.for_each(2..3, &Silent, Vec::new, visit).unwrap().into_iter().flatten().collect();
        let [cost, again] = split_costs(&dataset, &presample, 3, &[&assignment, &assignment], &Silent)
            .unwrap()
            .try_into()
            .unwrap();
        assert_eq!((cost.steps, &cost), (steps.len() as u64, &again));
        for hop in 0..3 {
            for part in 0..5 {
                let mean = |of: fn(&PartCost) -> f64| {
                    steps.iter().map(|step| of(&step[hop][part])).sum::<f64>() / steps.len() as f64
                };
                let expected = PartCost {
                    destinations: mean(|cost| cost.destinations),
                    edges: mean(|cost| cost.edges),
                    remote_rows: mean(|cost| cost.remote_rows),
                };
                assert_eq!(cost.hops[hop][part], expected);
            }
        }
        let rows = cost.remote_rows();
        assert!(rows[0] > 0.0 && rows[1] > rows[0] && rows[2] == 0.0, "{rows:?}");
        let work = |part: &PartCost| 16.0 * part.destinations + part.edges;
        let sum: f64 = cost.hops.iter().flatten().map(work).sum();
        assert!((cost.work.iter().sum::<f64>() - sum).abs() < 1e-6 * sum);
        assert!(1.0 <= cost.work_balance && cost.work_balance <= cost.step_balance);
    }
}

#[test]
fn one_part_exchanges_nothing_and_no_training_vertices_cost_nothing() {
    let (_folder, dataset) = communities(300, 3000);
    let presample = presample(false, false, SamplerKind::Neighbor);
    let cost = |dataset: &Dataset, parts: u32| {
        let assignment = Assignment::new(parts, vec![0; dataset.graph().nodes()]).unwrap();
        split_costs(dataset, &presample, 0, &[&assignment], &Silent).unwrap().remove(0)
    };
    let whole = cost(&dataset, 1);
    assert_eq!((whole.remote_rows(), whole.work_balance), (vec![0.0; 3], 1.0));
    let one_of_two = cost(&dataset, 2);
    assert_eq!((one_of_two.remote_rows(), one_of_two.work_balance), (vec![0.0; 3], 2.0));
    let nothing = cost(&Toy::new(1, &[]).dataset(), 3);
    assert_eq!((nothing.steps, nothing.work_balance, nothing.step_balance), (0, 1.0, 1.0));
}
