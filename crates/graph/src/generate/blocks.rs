//! Blocks and the tree above them.
//!
//! Nodes have positions on a line. A block is a run of positions, and so is every larger community: halving the sequence
//! of blocks recursively gives a binary tree whose leaves are the blocks. Node ids are a random permutation of positions,
//! so that they do not reveal the tree.

use std::ops::Range;

use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use super::Spec;

/// Node weights follow a power law with this exponent …
const EXPONENT: f64 = 2.5;
/// … and this is the ratio of the largest to the smallest weight.
const HEAVIEST: f64 = 300.0;
/// Weights are integers, so that their sums are exact; this is the smallest one.
const UNIT: f64 = 65_536.0;

/// Positions and weights of all nodes.
pub(super) struct Blocks {
    /// First position of each block, and the end.
    starts: Vec<u32>,
    /// Sum of the weights before each position, and of all.
    cumulative: Vec<u64>,
    /// For each run of `1 << shift` units of weight, the position of its first unit.
    guide: Vec<u32>,
    shift: u32,
    /// Node id at each position.
    node: Vec<u32>,
}

impl Blocks {
    pub(super) fn new(spec: &Spec) -> Blocks {
        let cumulative = cumulative_weights(spec.nodes, Key::new(spec.seed, "weight"));
        let total = cumulative[spec.nodes];
        let shift = (total / spec.nodes as u64).ilog2();
        let guide = guide(&cumulative, shift);
        let starts = starts(spec.nodes, spec.blocks(), Key::new(spec.seed, "block"));
        let node = permutation(spec.nodes, Key::new(spec.seed, "node"));
        Blocks { starts, cumulative, guide, shift, node }
    }

    /// Returns the number of blocks.
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the number of levels of the tree above the blocks.
    pub(super) fn depth(&self) -> usize {
        self.count().next_power_of_two().ilog2() as usize
    }

    /// Returns the total weight of all nodes.
    pub(super) fn total(&self) -> u64 {
        self.cumulative[self.node.len()]
    }

    /// Returns the id of the node at `position`.
    pub(super) fn node(&self, position: usize) -> u32 {
        self.node[position]
    }

    /// Returns the nodes of a block.
    pub(super) fn members(&self, block: usize) -> &[u32] {
        &self.node[self.starts[block] as usize..self.starts[block + 1] as usize]
    }

    /// Returns the position of the node that holds unit `x` of the total weight.
    #[inline]
    pub(super) fn locate(&self, x: u64) -> usize {
        let mut position = self.guide[(x >> self.shift) as usize] as usize;
        while self.cumulative[position + 1] <= x {
            position += 1;
        }
        position
    }

    /// Returns the range of units of weight of the community of `position` at `depth` (0: all nodes), or of its block if
    /// the tree is less deep.
    #[inline]
    pub(super) fn scope(&self, position: usize, depth: usize) -> Range<u64> {
        let (mut low, mut high) = (0, self.count());
        for _ in 0..depth {
            if high - low == 1 {
                break;
            }
            let middle = low + (high - low) / 2;
            if position < self.starts[middle] as usize { high = middle } else { low = middle }
        }
        self.cumulative[self.starts[low] as usize]..self.cumulative[self.starts[high] as usize]
    }
}

fn cumulative_weights(nodes: usize, key: Key) -> Vec<u64> {
    let mut sums: Vec<u64> = vec![0; nodes + 1];
    sums[1..].par_iter_mut().enumerate().for_each(|(p, w)| *w = weight(key.unit(p as u64)));
    let mut sum = 0;
    for w in &mut sums {
        sum += *w;
        *w = sum;
    }
    sums
}

/// Returns the `x`-quantile of weights.
fn weight(x: f64) -> u64 {
    let power = EXPONENT - 1.0;
    let tail = libm::pow(HEAVIEST, -power);
    (UNIT * libm::pow(1.0 - x * (1.0 - tail), -1.0 / power)) as u64
}

fn guide(cumulative: &[u64], shift: u32) -> Vec<u32> {
    let total = cumulative[cumulative.len() - 1];
    let mut position = 0;
    let first = |run: u64| {
        while cumulative[position + 1] <= run << shift {
            position += 1;
        }
        position as u32
    };
    (0..=(total - 1) >> shift).map(first).collect()
}

/// Returns the block starts: the largest block is about three times the smallest, none is empty.
fn starts(nodes: usize, blocks: usize, key: Key) -> Vec<u32> {
    let sizes = (0..blocks as u64).map(|b| (1 << 20) + key.below(b, 1 << 21));
    let mut ends: Vec<u64> = sizes
        .scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        })
        .collect();
    ends.insert(0, 0);
    let (total, spare) = (ends[blocks] as u128, (nodes - blocks) as u128);
    ends.iter().enumerate().map(|(b, &end)| (end as u128 * spare / total) as u32 + b as u32).collect()
}

/// Returns the numbers `0..n` in random order.
fn permutation(n: usize, key: Key) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = (0..n as u32).into_par_iter().map(|v| (key.at(v as u64), v)).collect();
    order.par_sort_unstable();
    order.into_par_iter().map(|(_, v)| v).collect()
}

#[cfg(test)]
mod tests {
    use super::super::presets;
    use super::*;

    fn blocks(nodes: usize, classes: usize) -> Blocks {
        let small = &presets::find("small").unwrap().spec;
        Blocks::new(&Spec { nodes, classes, edges: nodes as u64 * 4, ..small.clone() })
    }

    #[test]
    fn every_unit_of_weight_belongs_to_its_node() {
        let blocks = blocks(500, 3);
        for position in 0..500 {
            let (first, end) = (blocks.cumulative[position], blocks.cumulative[position + 1]);
            assert!(first + UNIT as u64 <= end && end - first <= (HEAVIEST * UNIT) as u64);
            assert_eq!(
                [first, (first + end) / 2, end - 1].map(|x| blocks.locate(x)),
                [position; 3],
                "position {position}"
            );
        }
    }

    #[test]
    fn communities_nest_down_to_the_block() {
        for classes in [1, 2, 7, 64, 500] {
            let blocks = blocks(500, classes);
            for position in [0, 77, 250, 499] {
                assert_eq!(blocks.scope(position, 0), 0..blocks.total());
                for depth in 0..=blocks.depth() {
                    let (outer, inner) = (blocks.scope(position, depth), blocks.scope(position, depth + 1));
                    assert!(outer.start <= inner.start && inner.end <= outer.end);
                    assert!(inner.contains(&blocks.cumulative[position]));
                }
                let block = blocks.starts.partition_point(|&s| s as usize <= position) - 1;
                let start = blocks.cumulative[blocks.starts[block] as usize];
                assert_eq!(blocks.scope(position, blocks.depth()).start, start);
            }
        }
    }

    #[test]
    fn blocks_hold_every_node_once_and_vary_in_size() {
        let blocks = blocks(1000, 20);
        let mut nodes: Vec<u32> = (0..blocks.count()).flat_map(|b| blocks.members(b).to_vec()).collect();
        assert_ne!(nodes, (0..1000).collect::<Vec<_>>());
        nodes.sort_unstable();
        assert_eq!(nodes, (0..1000).collect::<Vec<_>>());
        let sizes: Vec<usize> = (0..blocks.count()).map(|b| blocks.members(b).len()).collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*least > 0 && most > least && *most <= 4 * least, "{sizes:?}");
    }
}
