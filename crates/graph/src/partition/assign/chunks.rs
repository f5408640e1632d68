//! Chunks of the rows of one part, for ranks that compute a part chunk by chunk.

use ::metis::Idx;

use super::metis::{LEAST, Search, WeightedGraph, merged, too_large};
use super::{Balance, Method, Objective, PartitionSpec};
use crate::csr::CsrView;
use crate::error::Result;
use crate::partition::{Shard, Subgraph};
use crate::progress::Silent;

/// Work of a row besides that of its edges, in edges.
const ROW_WORK: u64 = 50;

/// What helps if METIS cannot cut a part into chunks.
const REMEDY: &str = "one chunk per part needs no METIS: give --chunks the number of parts (1 for layers); or cut smaller \
                      parts with --strategy hybrid on more ranks per group of stages";

/// Returns the chunk of each owned row of `shard`, from 0 to `count` - 1. Chunks are cut by METIS along few edges of
/// `subgraph` and are even in work: edges, and a constant per row. Rows outside of `subgraph` are in chunk 0. Chunks may be
/// empty, and there may be more of them than rows. Blocks. Equal shards give equal chunks, for the same `rand` of the C
/// library.
pub fn chunk_rows(shard: &Shard, subgraph: Subgraph, count: u32) -> Result<Vec<u32>> {
    let mut chunk_of = vec![0; shard.owned()];
    let rows: Vec<u32> =
        (0..shard.owned() as u32).filter(|&row| subgraph.holds(shard.split()[row as usize])).collect();
    if count <= 1 {
        return Ok(chunk_of);
    }
    let found = assign(shard, &rows, count).map_err(|error| error.help(REMEDY))?;
    rows.iter().zip(found).for_each(|(&row, chunk)| chunk_of[row as usize] = chunk);
    Ok(chunk_of)
}

/// Returns the peak memory of [`chunk_rows`] in bytes, for a part with so many rows and edges.
pub fn chunks_peak_bytes(rows: u64, edges: u64) -> u64 {
    // The graph between the rows twice, then METIS: see `metis::peak_bytes`.
    (12 + 40) * edges + 212 * rows
}

/// Returns the chunk of each of these owned rows.
fn assign(shard: &Shard, rows: &[u32], count: u32) -> Result<Vec<u32>> {
    let runs = || (0..rows.len() as u64).map(|at| (at * count as u64 / rows.len() as u64) as u32).collect();
    if rows.len() < LEAST * count as usize {
        return Ok(runs());
    }
    let (starts, ids) = among(shard, rows)?;
    if ids.is_empty() {
        return Ok(runs());
    }
    let graph = WeightedGraph { starts, ids, vertices: work(shard, rows), edges: None };
    let search = Search { objective: Objective::Cut, attempts: 1, tolerances: None };
    let method = Method::Metis(Objective::Cut);
    let spec = PartitionSpec { parts: count, method, balance: Balance::default(), seed: 0 };
    graph.partition(&spec, &search, &Silent)
}

/// Returns the work of each of these rows; the total fits METIS.
fn work(shard: &Shard, rows: &[u32]) -> Vec<Idx> {
    let of = |&row: &u32| shard.edges().degree(row as usize) + ROW_WORK;
    let total: u64 = rows.iter().map(of).sum();
    let unit = total / (Idx::MAX as u64 / 2) + 1;
    rows.iter().map(|row| (of(row) / unit).max(1) as Idx).collect()
}

/// Returns row starts and neighbours of the graph between these rows: symmetric, without self-loops.
fn among(shard: &Shard, rows: &[u32]) -> Result<(Vec<Idx>, Vec<Idx>)> {
    const OUTSIDE: u32 = u32::MAX;
    let mut place = vec![OUTSIDE; shard.rows()];
    rows.iter().zip(0..).for_each(|(&row, at)| place[row as usize] = at);
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for (&row, own) in rows.iter().zip(0..) {
        let sources = shard.edges().row(row as usize).iter().map(|&column| place[column as usize]);
        indices.extend(sources.filter(|&at| at != OUTSIDE && at != own));
        indptr.push(indices.len() as u64);
    }
    let (starts, ids) = merged(CsrView { indptr: &indptr, indices: &indices });
    if Idx::try_from(ids.len()).is_err() {
        return Err(too_large(format!("{} edges both ways", ids.len())));
    }
    Ok((
        starts.into_iter().map(|start| start as Idx).collect(),
        ids.into_iter().map(|id| id as Idx).collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::{Toy, communities};
    use crate::partition::{Assignment, Layout};

    #[test]
    fn chunks_are_even_in_work_and_cut_few_edges() {
        let (_folder, dataset) = communities(4000, 60_000);
        let whole = Assignment::new(1, vec![0; 4000]).unwrap();
        let shard = Layout::of(&dataset, &whole).unwrap().cut(0).unwrap();
        let found = chunk_rows(&shard, Subgraph::All, 8).unwrap();
        assert_eq!(found, chunk_rows(&shard, Subgraph::All, 8).unwrap());
        let (mut work, mut cut) = ([0u64; 8], 0);
        for row in 0..4000 {
            work[found[row] as usize] += shard.edges().degree(row) + ROW_WORK;
            cut += shard.edges().row(row).iter().filter(|&&c| found[c as usize] != found[row]).count();
        }
        let (most, mean) = (*work.iter().max().unwrap() as f64, work.iter().sum::<u64>() as f64 / 8.0);
        assert!(most < 1.1 * mean, "{work:?}");
        // At random, 7 of 8 edges would be cut.
        assert!(cut * 10 < shard.edges().indices.len() * 6, "{cut}");
    }

    #[test]
    fn any_graph_has_any_number_of_chunks() {
        for toy in
            [Toy::new(0, &[]), Toy::new(1, &[[0, 0]]), Toy::new(9, &[]), Toy::new(40, &[[0, 1], [3, 2]])]
        {
            let dataset = toy.dataset();
            let nodes = dataset.graph().nodes();
            let whole = Assignment::new(1, vec![0; nodes]).unwrap();
            let shard = Layout::of(&dataset, &whole).unwrap().cut(0).unwrap();
            for count in [1, 2, 7, 100] {
                for subgraph in [Subgraph::All, Subgraph::Train] {
                    let found = chunk_rows(&shard, subgraph, count).unwrap();
                    assert_eq!(found.len(), nodes);
                    assert!(found.iter().all(|&chunk| chunk < count), "{count} of {nodes}");
                }
            }
        }
    }
}
