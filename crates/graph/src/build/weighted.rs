//! Edges with weights.
//!
//! Weights of repeated edges are added. An undirected edge that is given in one direction has that weight both ways; if both
//! directions are given, it has the mean of their weights.

use rayon::prelude::*;

use super::split_rows;
use crate::csr::{CsrView, is_weight, wrong_weight};
use crate::error::{Error, Result};
use crate::io::npy::Array;

/// An entry of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    pub column: u32,
    pub weight: f32,
    /// Whether the edge was given in the opposite direction.
    pub is_reverse: bool,
}

/// What merging the entries of a row came to.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Merged {
    /// Entries that are left.
    pub kept: u32,
    /// Edges that repeat another one.
    pub repeated: u64,
    /// Neighbours with a smaller id whose edges have different weights in the two directions.
    pub unequal: u64,
}

/// Sorts each row and moves one entry for each column to its front.
pub(super) fn merge_rows(indptr: &[u64], entries: &mut [Entry]) -> Vec<Merged> {
    let rows = split_rows(indptr, entries);
    rows.into_par_iter().enumerate().map(|(v, row)| merge_row(v as u32, row)).collect()
}

fn merge_row(v: u32, row: &mut [Entry]) -> Merged {
    // Stable: both rows of an undirected edge add in the order of the input.
    row.sort_by_key(|entry| (entry.column, entry.is_reverse));
    let (mut merged, mut start) = (Merged::default(), 0);
    while start < row.len() {
        let column = row[start].column;
        let end = start + row[start..].partition_point(|entry| entry.column == column);
        let middle = start + row[start..end].partition_point(|entry| !entry.is_reverse);
        let sum = |run: &[Entry]| run.iter().map(|entry| f64::from(entry.weight)).sum::<f64>();
        let (forward, reverse) = (sum(&row[start..middle]), sum(&row[middle..end]));
        merged.repeated += (middle - start).saturating_sub(1) as u64;
        let weight = if middle == start {
            reverse
        } else if middle == end {
            forward
        } else {
            merged.unequal += u64::from(forward != reverse && column < v);
            (forward + reverse) / 2.0
        };
        row[merged.kept as usize] = Entry { column, weight: weight as f32, is_reverse: false };
        (merged.kept, start) = (merged.kept + 1, end);
    }
    merged
}

/// Refuses sums of weights that are too large.
pub(super) fn check_sums(graph: CsrView, weights: &[f32]) -> Result<()> {
    let Some(edge) = weights.par_iter().position_first(|weight| !weight.is_finite()) else { return Ok(()) };
    let v = graph.indptr.partition_point(|&start| start <= edge as u64) - 1;
    let place = format!("edges from node {} to node {v}", graph.indices[edge]);
    Err(Error::input(place, "their weights add up to more than a 32-bit float holds")
        .help("scale the weights down, or remove repeated edges"))
}

/// Returns the weight of the reverse of the edge from `u` to `v`, if it is stored. Rows must ascend.
pub(crate) fn reverse_weight(graph: CsrView, weights: &[f32], v: usize, u: u32) -> Option<f32> {
    let at = graph.row(u as usize).binary_search(&(v as u32)).ok()?;
    Some(weights[graph.indptr[u as usize] as usize + at])
}

/// Returns whether every edge has the weight of its reverse, if that is stored. Rows must ascend.
pub(super) fn are_symmetric(graph: CsrView, weights: &[f32]) -> bool {
    (0..graph.nodes()).into_par_iter().all(|v| {
        let first = graph.indptr[v] as usize;
        let mut edges = graph.row(v).iter().zip(&weights[first..]);
        edges.all(|(&u, &weight)| reverse_weight(graph, weights, v, u).is_none_or(|other| other == weight))
    })
}

/// Reads the weights of `edges` edges and checks them.
pub(crate) fn read_weights(array: &Array, edges: usize) -> Result<Vec<f32>> {
    let shape = &array.header.shape;
    if array.header.count() != Some(edges) || shape.iter().filter(|&&n| n != 1).count() > 1 {
        let problem = format!("shape {shape:?} where {edges} edges need one weight each");
        return Err(Error::input(&array.name, problem)
            .help("save one weight for each edge, in the order of the edges"));
    }
    let mut weights = vec![0.0; edges];
    array.read_f32(0, &mut weights)?;
    match weights.iter().position(|&weight| !is_weight(weight)) {
        None => Ok(weights),
        Some(at) => {
            Err(Error::input(format!("{}, element {at}", array.name), wrong_weight(weights[at].into()))
                .help("correct or remove such edges; without the file, edges have no weights"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::*;

    fn pairs(csr: &Csr) -> BTreeMap<(u32, u32), f32> {
        let (view, weights) = (csr.view(), csr.weights.as_ref().expect("weights"));
        let edges = (0..view.nodes()).flat_map(|v| view.row(v).iter().map(move |&u| (u, v as u32)));
        edges.zip(weights.iter().copied()).collect()
    }

    fn options(directed: bool) -> EdgeOptions {
        EdgeOptions { directed, keep_self_loops: true }
    }

    #[test]
    fn repeated_edges_add_up_and_opposite_ones_are_averaged() {
        let edges =
            [(0, 1, 1.0), (0, 1, 2.0), (1, 2, 4.0), (2, 1, 8.0), (3, 0, 0.5), (2, 2, 3.0), (2, 2, 1.0)];
        let (csr, counts) = from_weighted_edges(4, &edges, options(true)).unwrap();
        let directed = [((0, 1), 3.0), ((1, 2), 4.0), ((2, 1), 8.0), ((3, 0), 0.5), ((2, 2), 4.0)];
        assert_eq!(pairs(&csr), directed.into());
        assert_eq!((counts.stored, counts.repeated, counts.unequal), (5, 2, 0));
        let (csr, counts) = from_weighted_edges(4, &edges, options(false)).unwrap();
        let both = [((0, 1), 3.0), ((1, 2), 6.0), ((3, 0), 0.5)];
        let both = both.into_iter().flat_map(|((u, v), w)| [((u, v), w), ((v, u), w)]);
        assert_eq!(pairs(&csr), both.chain([((2, 2), 4.0)]).collect());
        assert_eq!((counts.stored, counts.repeated, counts.unequal), (7, 2, 1));
    }

    #[test]
    fn sums_that_are_too_large_are_refused() {
        let error =
            from_weighted_edges(3, &[(0, 2, f32::MAX), (0, 2, f32::MAX)], options(true)).err().unwrap();
        let error = error.to_string();
        assert!(error.contains("node 0 to node 2") && error.contains("32-bit"), "{error}");
    }

    proptest! {
        #[test]
        fn importing_the_result_again_changes_nothing(
            edges in prop::collection::vec((0u32..9, 0u32..9, 0u8..5), 0..60), directed: bool,
        ) {
            let edges: Vec<_> = edges.into_iter().map(|(u, v, w)| (u, v, f32::from(w) / 3.0)).collect();
            let (first, _) = from_weighted_edges(9, &edges, options(directed)).unwrap();
            let again: Vec<_> = pairs(&first).into_iter().map(|((u, v), w)| (u, v, w)).collect();
            let (second, counts) = from_weighted_edges(9, &again, options(directed)).unwrap();
            prop_assert_eq!(pairs(&first), pairs(&second));
            prop_assert_eq!((counts.repeated, counts.unequal), (0, 0));
            let weights = first.weights.as_ref().unwrap();
            prop_assert!(directed || weighted::are_symmetric(first.view(), weights));
            let plain: Vec<_> = edges.iter().map(|&(u, v, _)| (u, v)).collect();
            let (plain, _) = from_edges(9, &plain, options(directed)).unwrap();
            prop_assert_eq!(plain.indices.as_slice(), first.indices.as_slice());
        }
    }
}
