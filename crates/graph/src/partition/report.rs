//! Quality of a partition: sizes, balance, edge cut and communication volume.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::layout::Layout;
use crate::dataset::Subset;

/// Quality of a partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionReport {
    /// Counts of each part.
    pub sizes: Vec<PartCounts>,
    /// Edge cut: edges whose ends have different owners.
    pub cut_edges: u64,
    /// Fraction of edges that are cut.
    pub cut_share: f64,
    /// Communication volume: halo rows of all parts.
    pub halo: u64,
    /// Halo rows per vertex.
    pub alpha: f64,
    /// Imbalance: the largest part relative to the mean.
    pub balance: BalanceRatios,
    /// Halo rows of each pair of parts that has any, by reader and then by owner.
    pub pairs: Vec<PairRows>,
}

/// Counts of one part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartCounts {
    /// Owned vertices.
    pub nodes: u64,
    /// In-edges of owned vertices.
    pub edges: u64,
    /// Owned training vertices.
    pub training: u64,
    /// Halo rows.
    pub halo: u64,
    /// Rows sent to other parts, counted once per reader.
    pub send: u64,
}

/// Largest value relative to the mean; 1 if all are 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceRatios {
    /// Owned vertices.
    pub nodes: f64,
    /// In-edges of owned vertices.
    pub edges: f64,
    /// Training vertices.
    pub training: f64,
    /// Halo rows.
    pub halo: f64,
}

/// Halo rows that one part reads from another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairRows {
    /// The owner.
    pub from: u32,
    /// The reader.
    pub to: u32,
    /// Rows.
    pub rows: u64,
}

impl PartitionReport {
    /// Computes the report of a partition.
    pub fn of(layout: &Layout) -> PartitionReport {
        let parts: Vec<(PartCounts, u64, Vec<PairRows>)> =
            (0..layout.partition.parts).into_par_iter().map(|part| measure(layout, part)).collect();
        let mut sizes = Vec::with_capacity(parts.len());
        let (mut cut_edges, mut pairs) = (0, Vec::new());
        for (size, cut, read) in parts {
            sizes.push(size);
            cut_edges += cut;
            pairs.extend(read);
        }
        pairs.iter().for_each(|pair| sizes[pair.from as usize].send += pair.rows);
        let halo = sizes.iter().map(|size| size.halo).sum::<u64>();
        let data = &layout.partition.dataset;
        PartitionReport {
            cut_edges,
            cut_share: cut_edges as f64 / data.edges.max(1) as f64,
            halo,
            alpha: halo as f64 / data.nodes.max(1) as f64,
            balance: BalanceRatios {
                nodes: ratio(&sizes, |size| size.nodes),
                edges: ratio(&sizes, |size| size.edges),
                training: ratio(&sizes, |size| size.training),
                halo: ratio(&sizes, |size| size.halo),
            },
            sizes,
            pairs,
        }
    }
}

/// Returns the counts of one part (without `send`), its cut in-edges, and its halo rows by owner.
fn measure(layout: &Layout, part: u32) -> (PartCounts, u64, Vec<PairRows>) {
    let (graph, split) = (layout.dataset.graph(), layout.dataset.split());
    let (owner, owned) = (layout.assignment.of(), layout.owned(part));
    let sources = owned.iter().flat_map(|&v| graph.row(v as usize)).copied();
    let outside = |&u: &u32| owner[u as usize] != part;
    let mut halo: Vec<u32> = sources.filter(outside).map(|u| layout.place[u as usize]).collect();
    let cut = halo.len() as u64;
    halo.sort_unstable();
    halo.dedup();
    let owner_at = |at: u32| owner[layout.order[at as usize] as usize];
    let pairs = halo.chunk_by(|&a, &b| owner_at(a) == owner_at(b));
    let pairs = pairs.map(|run| PairRows { from: owner_at(run[0]), to: part, rows: run.len() as u64 });
    let size = PartCounts {
        nodes: owned.len() as u64,
        edges: owned.iter().map(|&v| graph.degree(v as usize)).sum(),
        training: owned.iter().filter(|&&v| split[v as usize] == Subset::Train as u8).count() as u64,
        halo: halo.len() as u64,
        send: 0,
    };
    (size, cut, pairs.collect())
}

fn ratio(sizes: &[PartCounts], of: impl Fn(&PartCounts) -> u64) -> f64 {
    let (most, sum) = sizes.iter().map(of).fold((0, 0), |(most, sum), x| (most.max(x), sum + x));
    if sum == 0 { 1.0 } else { most as f64 * sizes.len() as f64 / sum as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::assign::Assignment;
    use crate::partition::testing::Toy;

    #[test]
    fn sent_rows_are_counted_once_per_reader() {
        // A triangle 0-1-2, and 3 that reads 2; the parts are {0, 1}, {2, 3} and nothing.
        let toy = Toy::new(4, &[[1, 0], [2, 0], [0, 1], [2, 1], [0, 2], [1, 2], [2, 3]]);
        let (dataset, parts) = (toy.dataset(), Assignment::new(3, vec![0, 0, 1, 1]).unwrap());
        let report = PartitionReport::of(&Layout::of(&dataset, &parts).unwrap());
        let size = |nodes, edges, training, halo, send| PartCounts { nodes, edges, training, halo, send };
        assert_eq!(report.sizes, [size(2, 4, 1, 1, 2), size(2, 3, 0, 2, 1), PartCounts::default()]);
        assert_eq!((report.cut_edges, report.halo, report.alpha), (4, 3, 0.75));
        assert!((report.cut_share - 4.0 / 7.0).abs() < 1e-12);
        let balance = BalanceRatios { nodes: 1.5, edges: 12.0 / 7.0, training: 3.0, halo: 2.0 };
        assert_eq!(report.balance, balance);
        let pair = |from, to, rows| PairRows { from, to, rows };
        assert_eq!(report.pairs, [pair(1, 0, 1), pair(0, 1, 2)]);
    }

    #[test]
    fn an_empty_graph_is_balanced() {
        let (dataset, parts) = (Toy::new(0, &[]).dataset(), Assignment::new(2, vec![]).unwrap());
        let report = PartitionReport::of(&Layout::of(&dataset, &parts).unwrap());
        assert_eq!((report.cut_share, report.alpha, report.balance.nodes), (0.0, 0.0, 1.0));
    }
}
