//! Random edges: exactly the requested number, without repeats and self-loops.

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::Spec;
use super::blocks::Blocks;
use crate::csr::{Csr, Ids};
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};

/// Largest number of pairs per round if fewer are missing.
const ROUND: u64 = 1 << 16;
/// Pairs between two reports to the observer.
const CHUNK: usize = 1 << 20;
/// Marks a pair of a node with itself; sorts after every other pair.
const SELF: u64 = u64::MAX;

/// Generates the graph of `spec`.
pub(super) fn draw(spec: &Spec, blocks: &Blocks, progress: &dyn Progress) -> Result<Csr> {
    let pairs = Pairs::new(spec, blocks).distinct(spec.edges / 2, progress)?;
    rows(spec.nodes, &pairs, progress)
}

/// The stream of candidate pairs.
struct Pairs<'a> {
    blocks: &'a Blocks,
    /// For each level of the tree, the fraction of pairs that leave the communities below it.
    reach: Vec<f64>,
    key: Key,
}

impl<'a> Pairs<'a> {
    fn new(spec: &Spec, blocks: &'a Blocks) -> Self {
        let mut share = spec.mixing;
        let mut sum = 0.0;
        let reach = (0..blocks.depth())
            .map(|_| {
                sum += share;
                share *= spec.nesting;
                sum
            })
            .collect();
        Pairs { blocks, reach, key: Key::new(spec.seed, "edge") }
    }

    /// Returns candidate number `i`, with the smaller id in the upper half.
    #[inline]
    fn at(&self, i: u64) -> u64 {
        let from = self.blocks.locate(self.key.below(3 * i, self.blocks.total()));
        let far = self.key.unit(3 * i + 1);
        let depth = self.reach.iter().position(|&reach| far < reach).unwrap_or(self.reach.len());
        let scope = self.blocks.scope(from, depth);
        let to = self.blocks.locate(scope.start + self.key.below(3 * i + 2, scope.end - scope.start));
        if from == to {
            return SELF;
        }
        let (u, v) = (self.blocks.node(from), self.blocks.node(to));
        (u.min(v) as u64) << 32 | u.max(v) as u64
    }

    /// Returns `wanted` distinct pairs of the stream, sorted: the first ones, up to the size of rounds.
    ///
    /// A round draws as many pairs as are missing, or a multiple if most are repeats. A round that finds too many is
    /// repeated with fewer: dropping some from a sorted list would favour some nodes.
    fn distinct(&self, wanted: u64, progress: &dyn Progress) -> Result<Vec<u64>> {
        progress.begin("drawing edges", Some(wanted), Unit::Items);
        let most = wanted.max(ROUND);
        let (mut pairs, mut drawn, mut multiple) = (Vec::new(), 0, 1);
        while (pairs.len() as u64) < wanted {
            let missing = wanted - pairs.len() as u64;
            let n = most.min(missing * multiple);
            let union = merge(&pairs, self.round(drawn, n, progress)?);
            if union.len() as u64 > wanted {
                multiple /= 2;
                continue;
            }
            let found = (union.len() - pairs.len()) as u64;
            if n == most && found * 10 < missing {
                return Err(no_room(wanted, union.len()));
            }
            if n < most && found * 2 < missing {
                multiple *= 2;
            }
            pairs = union;
            drawn += n;
        }
        Ok(pairs)
    }

    /// Returns the candidates `first..first + n`, sorted, without repeats and self-pairs.
    fn round(&self, first: u64, n: u64, progress: &dyn Progress) -> Result<Vec<u64>> {
        let mut pairs = Vec::with_capacity(n as usize);
        while (pairs.len() as u64) < n {
            let len = CHUNK.min(n as usize - pairs.len());
            let from = first + pairs.len() as u64;
            pairs.par_extend((0..len).into_par_iter().map(|i| self.at(from + i as u64)));
            // Later rounds replace repeats, which the first round has counted.
            progress.tick(if first == 0 { len as u64 } else { 0 })?;
        }
        pairs.par_sort_unstable();
        pairs.dedup();
        pairs.pop_if(|&mut last| last == SELF);
        Ok(pairs)
    }
}

fn no_room(wanted: u64, found: usize) -> Error {
    let problem = format!("only {} distinct edges were found", 2 * found);
    Error::input(format!("--edges {}", 2 * wanted), problem)
        .help("give fewer edges, more nodes, fewer classes or a larger --mixing")
}

/// Returns the union of two sorted lists.
fn merge(a: &[u64], b: Vec<u64>) -> Vec<u64> {
    if a.is_empty() {
        return b;
    }
    let mut union = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        union.push(x.min(y));
        i += (x <= y) as usize;
        j += (y <= x) as usize;
    }
    union.extend_from_slice(&a[i..]);
    union.extend_from_slice(&b[j..]);
    union
}

/// Builds compressed rows from sorted pairs.
///
/// Row `w` gets its smaller neighbours from the pairs that start below `w`, in order, and its larger ones from the pairs
/// that start at `w`, which come later: one scan yields sorted rows.
fn rows(nodes: usize, pairs: &[u64], progress: &dyn Progress) -> Result<Csr> {
    progress.begin("building rows", Some(2 * pairs.len() as u64), Unit::Items);
    let ends = |pair: u64| [(pair >> 32) as usize, pair as u32 as usize];
    let mut indptr = vec![0u64; nodes + 1];
    for chunk in pairs.chunks(CHUNK) {
        chunk.iter().flat_map(|&pair| ends(pair)).for_each(|v| indptr[v + 1] += 1);
        progress.tick(chunk.len() as u64)?;
    }
    for v in 0..nodes {
        indptr[v + 1] += indptr[v];
    }
    let mut next = indptr[..nodes].to_vec();
    let mut indices = vec![0u32; 2 * pairs.len()];
    for chunk in pairs.chunks(CHUNK) {
        for [u, v] in chunk.iter().map(|&pair| ends(pair)) {
            indices[next[u] as usize] = v as u32;
            indices[next[v] as usize] = u as u32;
            next[u] += 1;
            next[v] += 1;
        }
        progress.tick(chunk.len() as u64)?;
    }
    Ok(Csr { indptr, indices: Ids::Owned(indices), weights: None })
}

#[cfg(test)]
mod tests {
    use super::super::{graph, presets};
    use super::*;
    use crate::progress::Silent;

    fn spec(nodes: usize, edges: u64, classes: usize) -> Spec {
        Spec { nodes, edges, classes, ..presets::find("small").unwrap().spec.clone() }
    }

    #[test]
    fn edges_are_exactly_as_many_as_asked_sorted_and_stored_both_ways() {
        for (nodes, edges, classes) in [(1, 0, 1), (2, 2, 1), (500, 3000, 5), (60, 60 * 40, 3), (40, 100, 40)]
        {
            let csr = graph(&spec(nodes, edges, classes), &Silent).unwrap();
            assert_eq!((csr.nodes(), csr.edges()), (nodes, edges));
            let csr = csr.view();
            for v in 0..nodes {
                assert!(csr.row(v).windows(2).all(|w| w[0] < w[1]), "row {v} is not sorted");
                for &u in csr.row(v) {
                    assert!(u as usize != v && csr.row(u as usize).binary_search(&(v as u32)).is_ok());
                }
            }
        }
    }

    #[test]
    fn too_many_edges_for_the_blocks_are_refused_with_advice() {
        let crowded = Spec { mixing: 0.0, ..spec(100, 100 * 60, 20) };
        let message = graph(&crowded, &Silent).err().expect("no room").to_string();
        assert!(message.contains("--edges 6000") && message.contains("help: give fewer edges"), "{message}");
    }

    #[test]
    fn lists_merge() {
        assert_eq!(merge(&[1, 3, 5], vec![0, 3, 9]), [0, 1, 3, 5, 9]);
        assert_eq!(merge(&[], vec![2]), [2]);
        assert_eq!(merge(&[2], vec![]), [2]);
    }
}
