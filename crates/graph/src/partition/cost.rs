//! Expected communication and work of split-parallel training on a partition, by sampling.

use serde::Serialize;

use super::assign::Assignment;
use super::presample::{Batches, Presample};
use crate::block::Block;
use crate::dataset::Dataset;
use crate::error::Result;
use crate::progress::Progress;
use crate::sample::Sample;

/// Cost of a step of split-parallel training, expected over the batches of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SplitCost {
    /// Steps that were sampled.
    pub steps: u64,
    /// Costs of each hop and part; hop 1, of the seeds, first.
    pub hops: Vec<Vec<PartCost>>,
    /// Work of each part, in units of aggregating one edge.
    pub work: Vec<f64>,
    /// Work of the part with most, relative to the mean.
    pub work_balance: f64,
    /// The same for single steps: the expected work of the slowest part of a step, relative to the mean.
    pub step_balance: f64,
}

/// Cost of one hop of a step for one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PartCost {
    /// Destination rows that the part computes.
    pub destinations: f64,
    /// Sampled edges into them, self-loops not counted.
    pub edges: f64,
    /// Distinct hidden rows that the part reads from others; 0 in a last hop that reads input rows, which are cached.
    pub remote_rows: f64,
}

impl SplitCost {
    /// Returns the hidden rows of each hop that parts read from others.
    pub fn remote_rows(&self) -> Vec<f64> {
        self.hops.iter().map(|parts| parts.iter().map(|part| part.remote_rows).sum()).collect()
    }
}

/// Returns the cost of each assignment of `dataset`. The samples are those of an epoch that a partition with the same
/// `seed` was not computed from. Blocks; can be cancelled.
pub fn split_costs(
    dataset: &Dataset,
    presample: &Presample,
    seed: u64,
    assignments: &[&Assignment],
    progress: &dyn Progress,
) -> Result<Vec<SplitCost>> {
    dataset.check_edges()?;
    let batches = Batches::new(dataset, presample, seed);
    let start = || assignments.iter().map(|a| Totals::new(presample.hops(), a.parts())).collect::<Vec<_>>();
    let visit = |totals: &mut Vec<Totals>, sample: &Sample| {
        for (totals, assignment) in totals.iter_mut().zip(assignments) {
            totals.add_step(batches.graph(), presample, assignment, sample);
        }
    };
    let epoch = u64::from(presample.epochs);
    let mut sums = start();
    for totals in batches.for_each(epoch..epoch + 1, progress, start, visit)? {
        sums.iter_mut().zip(&totals).for_each(|(sum, totals)| sum.add(totals));
    }
    Ok(sums.iter().map(Totals::cost).collect())
}

/// Counts of steps: integers, so that sums do not depend on the order of threads.
struct Totals {
    steps: u64,
    /// Counts of each hop and part.
    hops: Vec<Vec<Count>>,
    /// Sum over steps of the work of the slowest part.
    slowest: u64,
}

#[derive(Clone, Copy, Default)]
struct Count {
    destinations: u64,
    edges: u64,
    remote_rows: u64,
    work: u64,
}

impl Totals {
    fn new(hops: usize, parts: u32) -> Self {
        Totals { steps: 0, hops: vec![vec![Count::default(); parts as usize]; hops], slowest: 0 }
    }

    fn add_step(&mut self, graph: &Block, presample: &Presample, assignment: &Assignment, sample: &Sample) {
        let mut work = vec![0; assignment.parts() as usize];
        for hop in 0..presample.hops() {
            for &v in sample.destination_rows(hop) {
                let (part, degree) = (assignment.of()[v as usize] as usize, graph.degrees()[v as usize]);
                let count = &mut self.hops[hop][part];
                count.destinations += 1;
                count.edges += presample.edges(hop, degree);
                count.work += presample.work(hop, degree);
                work[part] += presample.work(hop, degree);
            }
            if hop < sample.hops() {
                self.add_remote_rows(hop, assignment.of(), sample);
            }
        }
        self.slowest += work.into_iter().max().unwrap_or(0);
        self.steps += 1;
    }

    /// Counts the distinct sources of each part in a hop that another part owns.
    fn add_remote_rows(&mut self, hop: usize, part_of: &[u32], sample: &Sample) {
        const NONE: u32 = u32::MAX;
        let (block, rows) = (sample.block(hop), sample.rows());
        let (starts, sources) = block.rows();
        let part = |row: u32| part_of[rows[row as usize] as usize];
        let mut destinations: Vec<u32> = (0..block.destinations().len() as u32).collect();
        // All destinations of a part together, so that one mark per source is enough.
        destinations.sort_by_key(|&row| part(row));
        let mut last_reader = vec![NONE; block.sources()];
        for &row in &destinations {
            let reader = part(row);
            for &source in &sources[starts[row as usize] as usize..starts[row as usize + 1] as usize] {
                let last = std::mem::replace(&mut last_reader[source as usize], reader);
                let is_remote = part(source) != reader;
                self.hops[hop][reader as usize].remote_rows += u64::from(is_remote && last != reader);
            }
        }
    }

    fn add(&mut self, other: &Totals) {
        self.steps += other.steps;
        self.slowest += other.slowest;
        for (count, other) in self.hops.iter_mut().flatten().zip(other.hops.iter().flatten()) {
            count.destinations += other.destinations;
            count.edges += other.edges;
            count.remote_rows += other.remote_rows;
            count.work += other.work;
        }
    }

    fn cost(&self) -> SplitCost {
        let steps = self.steps.max(1) as f64;
        let mean = |count: &Count| PartCost {
            destinations: count.destinations as f64 / steps,
            edges: count.edges as f64 / steps,
            remote_rows: count.remote_rows as f64 / steps,
        };
        let parts = self.hops.first().map_or(0, Vec::len);
        let work = |part: usize| self.hops.iter().map(|hop| hop[part].work).sum::<u64>();
        let work: Vec<f64> = (0..parts).map(|part| work(part) as f64 / steps).collect();
        let average = work.iter().sum::<f64>() / parts.max(1) as f64;
        let relative = |work: f64| if average > 0.0 { work / average } else { 1.0 };
        SplitCost {
            steps: self.steps,
            hops: self.hops.iter().map(|hop| hop.iter().map(mean).collect()).collect(),
            work_balance: relative(work.iter().copied().fold(0.0, f64::max)),
            step_balance: relative(self.slowest as f64 / steps),
            work,
        }
    }
}

#[cfg(test)]
mod tests;
