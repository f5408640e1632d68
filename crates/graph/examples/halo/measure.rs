//! Partitioning with METIS, and what a partition costs.

use std::sync::Mutex;

use halograph_graph::CsrView;

/// What a partition costs.
#[derive(Debug)]
pub struct Measure {
    /// Share of edges whose ends lie in different parts.
    pub cut: f64,
    /// For each part, the distinct outside neighbours of its nodes; summed, over the number of nodes.
    pub halo: f64,
    /// Nodes of the largest part over the mean.
    pub balance: f64,
}

/// METIS draws from the C library's one random sequence: two calls at once would disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The part of each node under METIS k-way: of four attempts, the one with the fewest cut edges. A single attempt
/// may end in a local optimum a fifth worse.
pub fn partition(graph: CsrView, parts: usize) -> Result<Vec<usize>, Box<dyn std::error::Error>> {
    let starts = graph.indptr.iter().map(|&s| s.try_into()).collect::<Result<Vec<metis::Idx>, _>>()?;
    let ids = graph.indices.iter().map(|&v| v.try_into()).collect::<Result<Vec<metis::Idx>, _>>()?;
    let mut part = vec![0; graph.nodes()];
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    if parts > 1 {
        metis::Graph::new(1, parts.try_into()?, &starts, &ids)?
            .set_option(metis::option::Seed(1))
            .set_option(metis::option::NCuts(4))
            .part_kway(&mut part)?;
    }
    Ok(part.into_iter().map(|p| p as usize).collect())
}

/// Measures a partition into `parts` parts.
pub fn measure(graph: CsrView, part: &[usize], parts: usize) -> Measure {
    let (mut cut, mut halo, mut sizes) = (0u64, 0u64, vec![0u64; parts]);
    // The last node that counted for each part, so that a node counts once however many edges lead there.
    let mut seen = vec![usize::MAX; parts];
    for v in 0..graph.nodes() {
        sizes[part[v]] += 1;
        for &u in graph.row(v) {
            let p = part[u as usize];
            cut += (p != part[v]) as u64;
            if p != part[v] && seen[p] != v {
                seen[p] = v;
                halo += 1;
            }
        }
    }
    let nodes = graph.nodes() as f64;
    let largest = sizes.into_iter().max().unwrap_or(0) as f64;
    Measure {
        cut: cut as f64 / graph.indices.len() as f64,
        halo: halo as f64 / nodes,
        balance: largest * parts as f64 / nodes,
    }
}
