//! METIS k-way partitioning (Karypis and Kumar, 1998), through the library itself.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::metis::option::{NCuts, ObjType, Seed};
use ::metis::{Graph, Idx, Real};
use halograph_kernels::keyed::Key;
use rustix::process::{Signal, getpid, kill_process};

use super::weights::Weights;
use super::{Objective, PartitionSpec, announce, one_each, stream};
use crate::build::one_way_edge;
use crate::csr::CsrView;
use crate::dataset::{Dataset, Manifest};
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Attempts, of which METIS takes the best. A single one may be a fifth worse.
const ATTEMPTS: Idx = 4;
/// With fewer vertices per part, METIS may get empty bisections, which it reports on standard output.
pub(super) const LEAST: usize = 4;

/// METIS uses the global `rand` of the C library: concurrent calls would not be reproducible.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns the part of each vertex of `dataset`. METIS itself neither reports progress nor can be cancelled.
pub(super) fn assign(
    dataset: &Dataset,
    spec: &PartitionSpec,
    objective: Objective,
    progress: &dyn Progress,
) -> Result<Vec<u32>> {
    let (nodes, parts) = (dataset.graph().nodes(), spec.parts as usize);
    if parts >= nodes {
        return Ok(one_each(nodes));
    }
    let (starts, ids) = symmetrised(dataset, progress)?;
    if ids.is_empty() || nodes < LEAST * parts {
        return stream::assign(dataset, spec, progress);
    }
    let weights = metis_weights(dataset, spec)?;
    let graph = WeightedGraph { starts, ids, vertices: weights, edges: None };
    let search = Search { objective, attempts: ATTEMPTS, tolerances: None };
    graph.partition(spec, &search, progress)
}

/// A symmetric graph without self-loops, in the format of METIS.
pub(super) struct WeightedGraph {
    /// Row starts, one more than there are vertices.
    pub starts: Vec<Idx>,
    /// Neighbours.
    pub ids: Vec<Idx>,
    /// Weights of vertices, equally many for each.
    pub vertices: Vec<Idx>,
    /// Weights of edges, at least 1 and equal in both directions; `None`: 1.
    pub edges: Option<Vec<Idx>>,
}

/// How METIS searches for a partition.
pub(super) struct Search<'a> {
    pub objective: Objective,
    /// Attempts, of which METIS takes the best.
    pub attempts: Idx,
    /// Largest part relative to the mean, for each weight of a vertex; `None`: 1.03.
    pub tolerances: Option<&'a [Real]>,
}

impl WeightedGraph {
    /// Returns the part of each vertex. Blocks; METIS itself neither reports progress nor can be cancelled.
    pub fn partition(
        &self,
        spec: &PartitionSpec,
        search: &Search,
        progress: &dyn Progress,
    ) -> Result<Vec<u32>> {
        let nodes = self.starts.len() - 1;
        let each = self.vertices.len() / nodes;
        let seed = (Key::new(spec.seed, "partition metis").at(0) >> 33) as Idx;
        announce(progress, "METIS")?;
        let mut part = vec![0; nodes];
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        let mut graph = Graph::new(each as Idx, spec.parts as Idx, &self.starts, &self.ids)
            .map_err(|e| Error::input("METIS", e))?
            .set_vwgt(&self.vertices)
            .set_option(Seed(seed))
            .set_option(NCuts(search.attempts))
            .set_option(match search.objective {
                Objective::Volume => ObjType::Vol,
                Objective::Cut => ObjType::Cut,
            });
        if let Some(weights) = &self.edges {
            graph = graph.set_adjwgt(weights);
        }
        if let Some(tolerances) = search.tolerances {
            graph = graph.set_ubvec(tolerances);
        }
        graph.part_kway(&mut part).map_err(|error| metis_error(error, progress))?;
        drop(alone);
        progress.tick(0)?;
        Ok(part.into_iter().map(|part| part as u32).collect())
    }
}

/// Converts an error of METIS.
///
/// METIS replaces the handler of SIGTERM while it runs and returns an error if that signal arrives. Its input is
/// correct here, so every error but one of memory is such a signal: it is sent again, to the handler that METIS has put
/// back. Blocks until that handler has ended the process or `progress` reports the signal, at most a second.
fn metis_error(error: ::metis::Error, progress: &dyn Progress) -> Error {
    if let ::metis::Error::Memory = error {
        return Error::out_of_memory("METIS", "ran out of memory")
            .help("the method `stream` needs far less; or partition on a larger machine");
    }
    // Fails only without the right to signal oneself; then the work just ends.
    let _ = kill_process(getpid(), Signal::TERM);
    let end = Instant::now() + Duration::from_secs(1);
    while !progress.cancelled() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    Error::Cancelled
}

/// Returns the peak memory in bytes: our copy of the graph, and the coarser graphs and buffers of METIS.
///
/// Measured and rounded up; see `docs/partition.md`. Objective and number of parts have little influence.
pub(super) fn peak_bytes(manifest: &Manifest, weights: u64) -> u64 {
    // A symmetrised directed graph may have twice the edges.
    let both = if manifest.directed { 2 } else { 1 };
    let edges = manifest.edges.saturating_mul(40 * both);
    edges.saturating_add(manifest.nodes.saturating_mul(200 + 12 * weights))
}

/// Returns the weights in the format of METIS, without those whose total is 0.
fn metis_weights(dataset: &Dataset, spec: &PartitionSpec) -> Result<Vec<Idx>> {
    let weights = Weights::new(dataset, spec.balance);
    let totals = weights.totals();
    if let Some(total) = totals.iter().find(|&&total| Idx::try_from(total).is_err()) {
        return Err(too_large(format!("a total weight of {total}")));
    }
    let used: Vec<usize> = (0..weights.each).filter(|&which| totals[which] > 0).collect();
    let (weights, used) = (&weights, &used);
    let row = |v: usize| used.iter().map(move |&which| weights.row(v)[which] as Idx);
    Ok((0..dataset.graph().nodes()).flat_map(row).collect())
}

pub(super) fn too_large(what: String) -> Error {
    Error::input("METIS", format!("{what}, more than the {} that METIS can count", Idx::MAX))
        .help("the method `stream` has no such limit")
}

/// Returns row starts and neighbours as METIS needs them: symmetric, without self-loops.
fn symmetrised(dataset: &Dataset, progress: &dyn Progress) -> Result<(Vec<Idx>, Vec<Idx>)> {
    let graph = dataset.graph();
    if Idx::try_from(graph.nodes() + 1).is_err() || Idx::try_from(graph.indices.len()).is_err() {
        return Err(too_large(format!("{} nodes and {} edges", graph.nodes(), graph.indices.len())));
    }
    // Checked even for undirected graphs: METIS accesses memory out of bounds on an asymmetric graph.
    let rows = one_way_edge(graph, progress)?.map(|_| merged(graph));
    let graph = rows.as_ref().map_or(graph, |(starts, ids)| CsrView { indptr: starts, indices: ids });
    let mut starts = Vec::with_capacity(graph.nodes() + 1);
    let mut ids = Vec::with_capacity(graph.indices.len());
    starts.push(0);
    for v in 0..graph.nodes() {
        ids.extend(graph.row(v).iter().filter(|&&u| u as usize != v).map(|&u| u as Idx));
        let end = Idx::try_from(ids.len());
        starts.push(end.map_err(|_| too_large(format!("more than {} edges both ways", Idx::MAX)))?);
    }
    Ok((starts, ids))
}

/// Returns every edge of `graph` both ways, without repeats, rows ascending.
pub(super) fn merged(graph: CsrView) -> (Vec<u64>, Vec<u32>) {
    let nodes = graph.nodes();
    let mut ends = vec![0u64; nodes + 1];
    for v in 0..nodes {
        ends[v] += graph.degree(v);
        graph.row(v).iter().for_each(|&u| ends[u as usize] += 1);
    }
    // Turn lengths into row starts, which move to the row ends while rows are filled.
    let mut sum = 0;
    for end in &mut ends {
        sum += std::mem::replace(end, sum);
    }
    let mut ids = vec![0u32; sum as usize];
    for v in 0..nodes {
        for &u in graph.row(v) {
            for (row, id) in [(v, u), (u as usize, v as u32)] {
                ids[ends[row] as usize] = id;
                ends[row] += 1;
            }
        }
    }
    let (mut starts, mut kept, mut from) = (vec![0u64], 0, 0);
    for &end in &ends[..nodes] {
        ids[from..end as usize].sort_unstable();
        for at in from..end as usize {
            if at == from || ids[at] != ids[at - 1] {
                // `kept` <= `at`: nothing is overwritten before it is read.
                ids[kept] = ids[at];
                kept += 1;
            }
        }
        from = end as usize;
        starts.push(kept as u64);
    }
    ids.truncate(kept);
    (starts, ids)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::Toy;
    use crate::progress::Silent;

    #[test]
    fn directed_edges_are_symmetrised_and_self_loops_dropped() {
        let toy = Toy::new(4, &[[0, 1], [1, 0], [1, 2], [2, 2], [3, 1]]);
        let (starts, ids) = symmetrised(&toy.dataset(), &Silent).unwrap();
        assert_eq!((starts, ids), (vec![0, 1, 4, 5, 6], vec![1, 0, 2, 3, 1, 1]));
    }

    #[test]
    fn memory_grows_with_edges_and_direction() {
        let manifest = Toy::new(4, &[[0, 1]]).dataset().manifest;
        let bytes = |edges, directed| peak_bytes(&Manifest { edges, directed, ..manifest.clone() }, 1);
        assert_eq!(bytes(2000, false) - bytes(1000, false), 40_000);
        assert!(bytes(1000, true) > bytes(1000, false));
        assert_eq!(bytes(u64::MAX, true), u64::MAX);
    }
}
