//! Partition of the graph that presampling weighs, for split-parallel training.
//!
//! - **Edges** weigh how often they are expected to be sampled in an exchanged hop, both directions together: the edge cut
//!   approximates the hidden rows that are exchanged. Edges that are never read are left out.
//! - **Vertices** weigh the work of computing them in all layers. Their number is balanced too, with a larger tolerance,
//!   because all vertices need memory and are evaluated.
//! - Vertices without such an edge are placed afterwards, where most of their neighbours are.

use ::metis::{Idx, Real};

use super::metis::{LEAST, Search, WeightedGraph, merged, too_large};
use super::stream::NOWHERE;
use super::weights::Weights;
use super::{Objective, PartitionSpec, metis, one_each, stream};
use crate::build::one_way_edge;
use crate::csr::CsrView;
use crate::dataset::{Dataset, Manifest};
use crate::error::Result;
use crate::partition::presample::{Batches, Counts, Presample};
use crate::progress::Progress;

/// Attempts of METIS. With four, a result may need a fifth more exchanged rows than the best.
const ATTEMPTS: Idx = 8;
/// Largest part relative to the mean: work, and vertices. Single steps differ by 5 % even if the sum of all is even.
const TOLERANCES: [Real; 2] = [1.05, 1.1];
/// Weight of an edge that is read once; fractions are rounded.
const EDGE_UNIT: f64 = 64.0;
/// Largest total weight of vertices and of edges, half of what METIS can count.
const MOST: u64 = Idx::MAX as u64 / 2;

/// Returns the part of each vertex of `dataset`. Sampling can be cancelled, METIS cannot.
pub(super) fn assign(
    dataset: &Dataset,
    spec: &PartitionSpec,
    presample: &Presample,
    progress: &dyn Progress,
) -> Result<Vec<u32>> {
    let (nodes, parts) = (dataset.graph().nodes(), spec.parts as usize);
    if parts >= nodes {
        return Ok(one_each(nodes));
    }
    let batches = Batches::new(dataset, presample, spec.seed);
    let counts = Counts::of(&batches, presample, progress)?;
    let degrees = batches.graph().degrees();
    let work = scaled_work(&counts.work(presample, degrees));
    let (indptr, indices) = batches.graph().rows();
    let reads = counts.reads(presample, degrees);
    drop(counts);
    let kept = KeptGraph::of(CsrView { indptr, indices }, &reads, progress)?;
    let mut part_of = vec![NOWHERE; nodes];
    if kept.vertices.len() >= LEAST * parts {
        let KeptGraph { vertices, starts, ids, edges } = kept;
        let weights = vertices.iter().flat_map(|&v| [work[v as usize] as Idx, 1]).collect();
        let graph = WeightedGraph { starts, ids, vertices: weights, edges: Some(edges) };
        let search = Search { objective: Objective::Cut, attempts: ATTEMPTS, tolerances: Some(&TOLERANCES) };
        let found = graph.partition(spec, &search, progress)?;
        vertices.iter().zip(found).for_each(|(&v, part)| part_of[v as usize] = part);
    }
    let weights = Weights { each: 2, of: work.iter().flat_map(|&work| [1, work]).collect() };
    stream::place_rest(dataset.graph(), spec, weights, &mut part_of, progress)?;
    Ok(part_of)
}

/// Returns the peak memory in bytes.
pub(super) fn peak_bytes(manifest: &Manifest, presample: &Presample) -> u64 {
    // Work, reads, and the numbers of kept vertices.
    let own = manifest.nodes.saturating_mul(20);
    let induced = if presample.inductive { manifest.edges.saturating_mul(4) } else { 0 };
    let partition = metis::peak_bytes(manifest, 2).saturating_add(own).saturating_add(induced);
    partition.max(presample.peak_bytes(manifest))
}

/// Returns the work of vertices, divided by a number such that METIS can count the total; 0 stays 0, and no other becomes 0.
fn scaled_work(work: &[u64]) -> Vec<u32> {
    let divisor = work.iter().sum::<u64>().div_ceil(MOST).max(1);
    work.iter().map(|work| work.div_ceil(divisor) as u32).collect()
}

/// The edges that are read, in both directions, and the vertices that have any; in the format of METIS.
#[derive(Debug, PartialEq)]
struct KeptGraph {
    /// Vertex of the dataset of each vertex of this graph.
    vertices: Vec<u32>,
    starts: Vec<Idx>,
    ids: Vec<Idx>,
    /// Weights of edges.
    edges: Vec<Idx>,
}

impl KeptGraph {
    /// Returns the graph of the edges that are read. `reads[v]`: how often any one in-edge of `v` is.
    fn of(graph: CsrView, reads: &[f64], progress: &dyn Progress) -> Result<Self> {
        let union = one_way_edge(graph, progress)?.map(|_| merged(graph));
        let is_symmetric = union.is_none();
        let all = union.as_ref().map_or(graph, |(starts, ids)| CsrView { indptr: starts, indices: ids });
        let reads = scaled_reads(graph, all.indices.len(), reads)?;
        let read = |v: usize, u: usize| {
            let has_edge = is_symmetric || graph.row(v).binary_search(&(u as u32)).is_ok();
            if has_edge { reads[v] } else { 0 }
        };
        let weight = |v: usize, u: usize| if u == v { 0 } else { read(v, u) + read(u, v) };
        let has_edges = |v: usize| all.row(v).iter().any(|&u| weight(v, u as usize) > 0);
        let vertices: Vec<u32> = (0..all.nodes() as u32).filter(|&v| has_edges(v as usize)).collect();
        let mut number = vec![Idx::MAX; all.nodes()];
        vertices.iter().zip(0..).for_each(|(&v, at)| number[v as usize] = at);
        let mut kept = KeptGraph { starts: vec![0], ids: Vec::new(), edges: Vec::new(), vertices };
        for &v in &kept.vertices {
            for &u in all.row(v as usize) {
                let weight = weight(v as usize, u as usize);
                if weight > 0 {
                    kept.ids.push(number[u as usize]);
                    kept.edges.push(weight);
                }
            }
            kept.starts.push(kept.ids.len() as Idx);
        }
        progress.tick(0)?;
        Ok(kept)
    }
}

/// Returns the weight of any one in-edge of each vertex, at least 1 if it is read at all. `entries`: edges, both ways.
fn scaled_reads(graph: CsrView, entries: usize, reads: &[f64]) -> Result<Vec<Idx>> {
    // A weight of 1 both ways must be possible for every edge.
    if entries as u64 > MOST {
        return Err(too_large(format!("{entries} edges both ways, with weights")));
    }
    let total: f64 = reads.iter().enumerate().map(|(v, reads)| 2.0 * reads * graph.degree(v) as f64).sum();
    // What rounding adds is at most 1 for each direction of each entry.
    let most = (Idx::MAX as u64 - 2 * entries as u64) as f64 / 2.0;
    let unit = EDGE_UNIT.min(most / total.max(1.0));
    let scaled = |&reads: &f64| if reads > 0.0 { (reads * unit).round().max(1.0) as Idx } else { 0 };
    Ok(reads.iter().map(scaled).collect())
}

#[cfg(test)]
mod tests;
