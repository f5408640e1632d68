//! Streaming partition: linear deterministic greedy (Stanton and Kliot, 2012), several passes.
//!
//! Vertices are placed in random order. Each goes to the part with most of its in-neighbours, weighted by the free
//! capacity of the part; a full part gets none. Later passes remove each vertex and place it again, when the parts of all
//! its neighbours are known.

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::weights::Weights;
use super::{PartitionSpec, one_each};
use crate::csr::CsrView;
use crate::dataset::{Dataset, Manifest};
use crate::error::Result;
use crate::progress::{Progress, Unit};

/// Passes. Further ones change the edge cut by less than 1 %.
const PASSES: u64 = 5;
/// Capacity of a part, relative to the mean.
const SLACK: f64 = 1.05;
/// Marks a vertex that is not yet placed.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Returns the part of each vertex of `dataset`.
pub(super) fn assign(dataset: &Dataset, spec: &PartitionSpec, progress: &dyn Progress) -> Result<Vec<u32>> {
    let nodes = dataset.graph().nodes();
    if spec.parts as usize >= nodes {
        return Ok(one_each(nodes));
    }
    let mut part_of = vec![NOWHERE; nodes];
    place_rest(dataset.graph(), spec, Weights::new(dataset, spec.balance), &mut part_of, progress)?;
    Ok(part_of)
}

/// Places the vertices of `graph` whose part is [`NOWHERE`]; the others stay where they are.
pub(super) fn place_rest(
    graph: CsrView,
    spec: &PartitionSpec,
    weights: Weights,
    part_of: &mut [u32],
    progress: &dyn Progress,
) -> Result<()> {
    let key = Key::new(spec.seed, "partition stream");
    let mut order: Vec<u32> = (0..part_of.len() as u32).filter(|&v| part_of[v as usize] == NOWHERE).collect();
    order.par_sort_unstable_by_key(|&v| (key.at(v.into()), v));
    let mut parts = Parts::new(spec.parts as usize, weights);
    let placed = part_of.iter().enumerate().filter(|(_, part)| **part != NOWHERE);
    placed.for_each(|(v, &part)| parts.add(v, part, 1.0));
    progress.begin("placing vertices", Some(PASSES * order.len() as u64), Unit::Items);
    for _ in 0..PASSES {
        for chunk in order.chunks(4096) {
            for &v in chunk {
                let v = v as usize;
                parts.remove(v, part_of[v]);
                let others = graph.row(v).iter().filter(|&&u| u as usize != v);
                let neighbours = others.map(|&u| part_of[u as usize]);
                part_of[v] = parts.place(v, neighbours);
            }
            progress.tick(chunk.len() as u64)?;
        }
    }
    Ok(())
}

/// Returns the peak memory in bytes: order, parts and weights.
pub(super) fn peak_bytes(manifest: &Manifest, weights: u64) -> u64 {
    // Sort keys are recomputed at each comparison and not stored.
    manifest.nodes.saturating_mul(8 + 4 * weights)
}

/// Loads of all parts.
struct Parts {
    weights: Weights,
    /// Capacity of a part for each weight.
    capacity: Vec<f64>,
    /// Load of each part by each weight.
    loads: Vec<f64>,
    /// Neighbours of the vertex being placed in each part; 0 between vertices.
    neighbours: Vec<u32>,
}

impl Parts {
    fn new(parts: usize, weights: Weights) -> Self {
        let capacity = weights.totals().iter().map(|&total| SLACK * total as f64 / parts as f64).collect();
        let loads = vec![0.0; parts * weights.each];
        Parts { weights, capacity, loads, neighbours: vec![0; parts] }
    }

    /// Adds the weights of `v`, times `sign`, to the loads of `part`.
    fn add(&mut self, v: usize, part: u32, sign: f64) {
        let loads = &mut self.loads[part as usize * self.weights.each..];
        loads
            .iter_mut()
            .zip(self.weights.row(v))
            .for_each(|(load, &weight)| *load += sign * f64::from(weight));
    }

    /// Removes `v` from the loads of its part, if it has one.
    fn remove(&mut self, v: usize, part: u32) {
        if part != NOWHERE {
            self.add(v, part, -1.0);
        }
    }

    /// Returns the largest relative load of `part`; 1 is its capacity.
    fn fill(&self, part: u32) -> f64 {
        let loads = &self.loads[part as usize * self.weights.each..];
        // A weight whose total is 0 does not count.
        let shares = loads.iter().zip(&self.capacity).filter(|(_, capacity)| **capacity > 0.0);
        shares.map(|(load, capacity)| load / capacity).fold(0.0, f64::max)
    }

    /// Returns whether `part` can take vertex `v`.
    fn fits(&self, v: usize, part: u32) -> bool {
        let loads = &self.loads[part as usize * self.weights.each..];
        let after = loads.iter().zip(self.weights.row(v)).map(|(load, &weight)| load + f64::from(weight));
        after.zip(&self.capacity).all(|(after, &capacity)| after <= capacity)
    }

    /// Places `v`, given the parts of its neighbours; returns its part.
    fn place(&mut self, v: usize, parts_of_neighbours: impl Iterator<Item = u32>) -> u32 {
        let mut candidates = Vec::new();
        for part in parts_of_neighbours.filter(|&part| part != NOWHERE) {
            let count = &mut self.neighbours[part as usize];
            if *count == 0 {
                candidates.push(part);
            }
            *count += 1;
        }
        let gain = |part: u32| f64::from(self.neighbours[part as usize]) * (1.0 - self.fill(part));
        let best = candidates.iter().copied().filter(|&part| self.fits(v, part));
        let best = best.max_by(|&a, &b| gain(a).total_cmp(&gain(b)).then(b.cmp(&a)));
        let part = best.unwrap_or_else(|| self.emptiest());
        candidates.iter().for_each(|&part| self.neighbours[part as usize] = 0);
        self.add(v, part, 1.0);
        part
    }

    /// Returns the part with the lowest load, the first among equals.
    fn emptiest(&self) -> u32 {
        let all = 0..self.neighbours.len() as u32;
        all.min_by(|&a, &b| self.fill(a).total_cmp(&self.fill(b))).expect("there is at least one part")
    }
}
