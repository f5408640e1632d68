//! What of a graph decides how much memory its training takes.

use halograph_graph::Dataset;
use halograph_graph::dataset::{FEAT, Manifest, Subset, Task};
use halograph_graph::order::nested;
use halograph_graph::partition::PartitionInfo;
use rayon::prelude::*;

use crate::config::{Config, Normalize};

/// Sizes of a graph, of its split and of its rows.
pub(super) struct Shape {
    pub nodes: u64,
    pub features: usize,
    pub classes: usize,
    pub task: Task,
    /// Shares of nodes that are trained on, and validated on.
    pub train: f64,
    pub val: f64,
    /// Shares of nodes that are at most 0, 1, 2… hops away from a training node.
    pub within: Vec<f64>,
    /// Edges of all blocks that a run stores, and of their transposes.
    pub stored_edges: u64,
    /// Whether features are kept in half precision.
    pub is_half: bool,
    /// Stored values per node of features that are kept sparse; `None`: they are dense.
    pub stored_values: Option<f64>,
    pub is_directed: bool,
}

impl Shape {
    /// Returns the shape of `dataset` for a model of `hops` graph layers.
    pub fn of(dataset: &Dataset, config: &Config) -> Self {
        let (hops, inductive) = (config.model.hops(), config.data.inductive);
        let split = dataset.split();
        let nodes = split.len().max(1) as f64;
        let training: Vec<u32> =
            (0..).zip(split).filter(|(_, s)| **s == Subset::Train as u8).map(|(v, _)| v).collect();
        let val = split.iter().filter(|&&s| s == Subset::Val as u8).count() as f64;
        let rows = nested(dataset.graph(), None, &training, hops);
        let counts = rows.sizes.iter().rev().chain([&rows.inputs]);
        Shape {
            within: counts.map(|&count| count as f64 / nodes).collect(),
            stored_edges: stored_edges(dataset, inductive, true),
            ..Shape::new(&dataset.manifest, config, training.len() as f64 / nodes, val / nodes)
        }
    }

    /// Returns the shape of a part, with an equal share of the nodes and without edges.
    pub fn of_part(whole: &PartitionInfo, config: &Config) -> Self {
        let m = &whole.dataset;
        let nodes = m.nodes.max(1) as f64;
        let train = whole.training as f64 / nodes;
        let hops = config.model.hops().min(whole.distances.len() - 1);
        let within = |level: usize| whole.distances[..=level].iter().sum::<u64>() as f64 / nodes;
        Shape {
            nodes: (m.nodes / u64::from(whole.parts.max(1))).max(1),
            within: (0..=hops).map(within).collect(),
            // Validation nodes are not counted: at most the rest.
            ..Shape::new(m, config, train, 1.0 - train)
        }
    }

    fn new(m: &Manifest, config: &Config, train: f64, val: f64) -> Self {
        let nodes = m.nodes.max(1);
        let on_disk = m.files.get(FEAT).map_or(0, |file| file.bytes);
        let row = on_disk as f64 / nodes as f64;
        Shape {
            nodes,
            features: (m.features as usize).max(1),
            classes: (m.classes as usize).max(1),
            task: m.task,
            train,
            val,
            within: Vec::new(),
            stored_edges: 0,
            // A header does not make up for a byte of each number.
            is_half: m.nodes > 100 && on_disk > 0 && row < 3.0 * m.features as f64,
            stored_values: m
                .feature_values
                .filter(|_| config.data.normalize != Normalize::Columns)
                .map(|values| values as f64 / nodes as f64),
            is_directed: m.directed,
        }
    }

    /// Returns the bytes of the features of a row in memory.
    /// `number`: bytes of a number in the working precision.
    pub fn feature_bytes(&self, number: u64) -> u64 {
        match self.stored_values {
            None => self.sent_feature_bytes(number),
            // A column and a value; and the start of the row.
            Some(values) => 8 + (values * (4 + number) as f64).ceil() as u64,
        }
    }

    /// Returns the bytes of the features of a row as ranks fetch it: with its zeros.
    pub fn sent_feature_bytes(&self, number: u64) -> u64 {
        self.features as u64 * if self.is_half { 2 } else { number }
    }

    /// Returns how many nodes a model reads at this distance from training nodes.
    pub fn nodes_within(&self, level: usize) -> u64 {
        let share = self.within.get(level).or(self.within.last()).copied().unwrap_or(1.0);
        (share * self.nodes as f64) as u64
    }
}

/// Returns the number of edges of the blocks of a run on the whole of `dataset`, and of the transpose that training needs
/// if edges have a direction. `copies_all`: whether an inductive run copies the whole graph, to order its nodes.
pub(super) fn stored_edges(dataset: &Dataset, inductive: bool, copies_all: bool) -> u64 {
    let m = &dataset.manifest;
    let directions = 1 + u64::from(m.directed);
    if !inductive {
        return directions * m.edges;
    }
    let train = edges_within(dataset, &[Subset::Train]);
    let val = edges_within(dataset, &[Subset::Train, Subset::Val]);
    directions * train + val + if copies_all { m.edges } else { 0 }
}

/// Counts the edges between nodes of these subsets.
fn edges_within(dataset: &Dataset, subsets: &[Subset]) -> u64 {
    let (graph, split) = (dataset.graph(), dataset.split());
    let is_in = |v: usize| subsets.iter().any(|&subset| split[v] == subset as u8);
    let count = |v: usize| graph.row(v).iter().filter(|&&u| is_in(u as usize)).count() as u64;
    (0..graph.nodes()).into_par_iter().with_min_len(256).filter(|&v| is_in(v)).map(count).sum()
}
