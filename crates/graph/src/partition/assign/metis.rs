//! METIS k-way partitioning (Karypis and Kumar, 1998), through the library itself.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use ::metis::option::{NCuts, ObjType, Seed};
use ::metis::{Graph, Idx};
use halograph_kernels::keyed::Key;
use rustix::process::{Signal, getpid, kill_process};

use super::weights::Weights;
use super::{Objective, PartitionSpec, announce, one_each, stream};
use crate::build::one_way_edge;
use crate::csr::CsrView;
use crate::dataset::{Dataset, Manifest};
use crate::error::{Error, Result};
use crate::progress::Progress;

/// Attempts of which the best is taken. A single one may end in a local optimum a fifth worse.
const ATTEMPTS: Idx = 4;
/// With fewer vertices a part, halves of halves may be left without any, which METIS complains of on standard output.
const LEAST: usize = 4;

/// METIS draws from the C library's one random sequence: two calls at once would disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The part of each vertex of `dataset`. While METIS works it neither reports nor asks whether to stop.
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
    if parts == 1 {
        return Ok(vec![0; nodes]);
    }
    let (starts, ids) = two_way(dataset, progress)?;
    if ids.is_empty() || nodes < LEAST * parts {
        return stream::assign(dataset, spec, progress);
    }
    let weights = whole_weights(dataset, spec)?;
    let each = weights.len() / nodes;
    let seed = (Key::new(spec.seed, "partition metis").at(0) >> 33) as Idx;
    announce(progress, "METIS")?;
    let mut part = vec![0; nodes];
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    Graph::new(each as Idx, parts as Idx, &starts, &ids)
        .map_err(|e| Error::input("METIS", e))?
        .set_vwgt(&weights)
        .set_option(Seed(seed))
        .set_option(NCuts(ATTEMPTS))
        .set_option(match objective {
            Objective::Volume => ObjType::Vol,
            Objective::Cut => ObjType::Cut,
        })
        .part_kway(&mut part)
        .map_err(|error| give_up(error, progress))?;
    drop(alone);
    progress.tick(0)?;
    Ok(part.into_iter().map(|part| part as u32).collect())
}

/// Why METIS returned without a partition.
///
/// METIS replaces the handler of SIGTERM while it runs and returns an error if that signal arrives. Its input is
/// correct here, so every error but one of memory is such a signal: it is sent again, to the handler that METIS has put
/// back. Blocks until that handler has ended the process or `progress` tells of the signal, a second at most.
fn give_up(error: ::metis::Error, progress: &dyn Progress) -> Error {
    if let ::metis::Error::Memory = error {
        return Error::input("METIS", "ran out of memory")
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

/// Bytes METIS needs at its peak: our copy of the graph, its coarser graphs and what it keeps of them.
///
/// Measured and rounded up; see `docs/partition.md`. Objective and number of parts matter little.
pub(super) fn peak_bytes(manifest: &Manifest, weights: u64) -> u64 {
    // Made two-way, a directed graph may have twice the edges.
    let both = if manifest.directed { 2 } else { 1 };
    let edges = manifest.edges.saturating_mul(40 * both);
    edges.saturating_add(manifest.nodes.saturating_mul(200 + 12 * weights))
}

/// The weights as METIS takes them; what nobody has any of is left out.
fn whole_weights(dataset: &Dataset, spec: &PartitionSpec) -> Result<Vec<Idx>> {
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

fn too_large(what: String) -> Error {
    Error::input("METIS", format!("{what}, beyond the {} it can count", Idx::MAX))
        .help("the method `stream` has no such limit")
}

/// Row starts and neighbours as METIS needs them: every edge both ways, none from a vertex to itself.
fn two_way(dataset: &Dataset, progress: &dyn Progress) -> Result<(Vec<Idx>, Vec<Idx>)> {
    let graph = dataset.graph();
    if Idx::try_from(graph.nodes() + 1).is_err() || Idx::try_from(graph.indices.len()).is_err() {
        return Err(too_large(format!("{} nodes and {} edges", graph.nodes(), graph.indices.len())));
    }
    // Looked at, not believed: METIS reads and writes where a wrong graph sends it.
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

/// Every edge of `graph` both ways, each once, rows ascending.
fn merged(graph: CsrView) -> (Vec<u64>, Vec<u32>) {
    let nodes = graph.nodes();
    let mut ends = vec![0u64; nodes + 1];
    for v in 0..nodes {
        ends[v] += graph.degree(v);
        graph.row(v).iter().for_each(|&u| ends[u as usize] += 1);
    }
    // From lengths to the start of each row, which moves to its end while it is filled.
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
                // `kept` never passes `at`: nothing is overwritten before it was read.
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
    fn directed_edges_are_made_two_way_and_loops_dropped() {
        let toy = Toy::new(4, &[[0, 1], [1, 0], [1, 2], [2, 2], [3, 1]]);
        let (starts, ids) = two_way(&toy.dataset(), &Silent).unwrap();
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
