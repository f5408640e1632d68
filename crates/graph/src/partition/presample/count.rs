//! How often vertices are computed, and how often edges are expected to be read.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::{Batches, Presample};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::sample::Sample;

/// Counts of the batches of some epochs.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::partition) struct Counts {
    /// How often each vertex is a destination of each hop.
    destinations: Vec<Vec<u32>>,
}

impl Counts {
    /// Samples epochs and counts. Blocks; can be cancelled.
    pub fn of(batches: &Batches, presample: &Presample, progress: &dyn Progress) -> Result<Counts> {
        let epochs = u64::from(presample.epochs);
        // A vertex is a destination of a hop at most once in each batch.
        if u32::try_from(epochs.saturating_mul(batches.per_epoch() as u64)).is_err() {
            let problem = format!("{epochs} epochs of {} batches are too many", batches.per_epoch());
            return Err(Error::input("presampling", problem).help("sample fewer epochs or larger batches"));
        }
        let nodes = batches.graph().sources();
        let zeros = || (0..nodes).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        let counts: Vec<_> = (0..presample.hops()).map(|_| zeros()).collect();
        let visit = |_: &mut (), sample: &Sample| {
            for (hop, counts) in counts.iter().enumerate() {
                // Sums do not depend on the order of threads.
                sample.destination_rows(hop).iter().for_each(|&v| {
                    counts[v as usize].fetch_add(1, Relaxed);
                });
            }
        };
        batches.for_each(0..epochs, progress, || (), visit)?;
        let plain = |counts: Vec<AtomicU32>| counts.into_iter().map(AtomicU32::into_inner).collect();
        Ok(Counts { destinations: counts.into_iter().map(plain).collect() })
    }

    /// Returns the work of each vertex.
    pub fn work(&self, presample: &Presample, degrees: &[u32]) -> Vec<u64> {
        let of_hop =
            |hop: usize, v: usize| u64::from(self.destinations[hop][v]) * presample.work(hop, degrees[v]);
        let of = |v| (0..presample.hops()).map(|hop| of_hop(hop, v)).sum();
        (0..degrees.len()).map(of).collect()
    }

    /// Returns, for each vertex, how often any one of its in-edges is expected to be sampled in an exchanged hop.
    ///
    /// A destination draws its in-neighbours uniformly, so the expectation follows from how often it is a destination. It
    /// varies less than counts of sampled edges: partitions by it are better than partitions by such counts, the more the
    /// smaller the fanouts.
    pub fn reads(&self, presample: &Presample, degrees: &[u32]) -> Vec<f64> {
        let of_hop = |hop: usize, v: usize| {
            let share = presample.edges(hop, degrees[v]) as f64 / f64::from(degrees[v].max(1));
            f64::from(self.destinations[hop][v]) * share
        };
        let of = |v| (0..presample.exchanged().len()).map(|hop| of_hop(hop, v)).sum();
        (0..degrees.len()).map(of).collect()
    }

    #[cfg(test)]
    pub fn destinations(&self) -> &[Vec<u32>] {
        &self.destinations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Dataset;
    use crate::partition::testing::communities;
    use crate::progress::Silent;
    use crate::sample::{Fanout, SamplerKind};

    fn presample(epochs: u32) -> Presample {
        Presample {
            epochs,
            batch_size: 50,
            sampler: SamplerKind::Neighbor,
            fanouts: vec![Fanout::AtMost(3), Fanout::AtMost(2), Fanout::AtMost(5)],
            reads_inputs: true,
            cached_input: false,
            inductive: false,
        }
    }

    fn counts(dataset: &Dataset, presample: &Presample) -> Counts {
        Counts::of(&Batches::new(dataset, presample, 7), presample, &Silent).unwrap()
    }

    /// Returns destinations of each hop, and sampled edges `(source, destination)` of the exchanged hops, one by one.
    fn brute(dataset: &Dataset, presample: &Presample) -> (Vec<Vec<u32>>, Vec<(u32, u32)>) {
        let batches = Batches::new(dataset, presample, 7);
        let (mut destinations, mut edges) = (vec![vec![0; dataset.graph().nodes()]; 3], Vec::new());
        let visit = |seen: &mut Vec<_>, sample: &Sample| {
            for hop in 0..sample.hops() {
                let block = sample.block(hop);
                let (starts, sources) = block.rows();
                for row in 0..block.destinations().len() {
                    let v = sample.rows()[row];
                    let drawn = &sources[starts[row] as usize..starts[row + 1] as usize];
                    seen.push((hop, v, drawn.iter().map(|&s| sample.rows()[s as usize]).collect::<Vec<_>>()));
                }
            }
            seen.extend(sample.rows().iter().map(|&v| (2, v, Vec::new())));
        };
        let epochs = 0..u64::from(presample.epochs);
        for (hop, v, drawn) in
            batches.for_each(epochs, &Silent, Vec::new, visit).unwrap().into_iter().flatten()
        {
            destinations[hop][v as usize] += 1;
            edges.extend(drawn.into_iter().filter(|&u| u != v).map(|u| (u, v)));
        }
        (destinations, edges)
    }

    #[test]
    fn destinations_are_counted_per_hop() {
        let (_folder, dataset) = communities(400, 4000);
        let presample = presample(2);
        let (expected, _) = brute(&dataset, &presample);
        let found = counts(&dataset, &presample);
        assert_eq!(found.destinations(), expected);
        let training = dataset.split().iter().map(|&split| 2 * u32::from(split == 1));
        assert_eq!(
            found.destinations()[0],
            training.collect::<Vec<_>>(),
            "each is a seed once in each epoch"
        );
    }

    #[test]
    fn expected_reads_are_those_of_many_epochs() {
        let (_folder, dataset) = communities(200, 2000);
        let presample = presample(200);
        let (_, edges) = brute(&dataset, &presample);
        let batches = Batches::new(&dataset, &presample, 7);
        let degrees = batches.graph().degrees();
        let reads = counts(&dataset, &presample).reads(&presample, degrees);
        let sum: f64 = reads.iter().zip(degrees).map(|(reads, &degree)| reads * f64::from(degree)).sum();
        assert!((sum - edges.len() as f64).abs() < 1e-6 * sum, "every sampled edge is one read");
        let mut sampled = std::collections::HashMap::new();
        edges.iter().for_each(|edge| *sampled.entry(*edge).or_insert(0u32) += 1);
        for (&(u, v), &count) in &sampled {
            let expected = reads[v as usize];
            let error = (f64::from(count) - expected).abs();
            assert!(error < 6.0 * expected.sqrt() + 1.0, "edge {u} -> {v}: {count} of {expected}");
        }
    }

    #[test]
    fn work_grows_with_edges_unless_the_input_is_cached() {
        let (_folder, dataset) = communities(400, 4000);
        let presample = presample(1);
        let found = counts(&dataset, &presample);
        let (batches, sum) =
            (Batches::new(&dataset, &presample, 7), |work: Vec<u64>| work.iter().sum::<u64>());
        let degrees = batches.graph().degrees();
        let cached = Presample { cached_input: true, ..presample.clone() };
        let inputs = (0..400).map(|v| u64::from(found.destinations()[2][v]) * u64::from(degrees[v].min(5)));
        let whole = sum(found.work(&presample, degrees));
        assert_eq!(whole - inputs.sum::<u64>(), sum(found.work(&cached, degrees)));
    }

    #[test]
    fn too_many_batches_are_refused() {
        let (_folder, dataset) = communities(400, 4000);
        let presample = Presample { batch_size: 1, epochs: u32::MAX, ..presample(1) };
        let found = Counts::of(&Batches::new(&dataset, &presample, 7), &presample, &Silent);
        assert!(found.unwrap_err().to_string().contains("too many"));
    }
}
