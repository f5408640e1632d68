//! Everything that is computed once for all parts: places, distances and degrees of vertices.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::assign::Assignment;
use crate::block::{InWeight, in_weights};
use crate::dataset::{Dataset, LabelView, Manifest, Subset};
use crate::error::{Error, Result};
use crate::order::{UNUSED, distances};

/// The graph that a step or a score sees. Transductive training uses one, inductive training three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subgraph {
    /// All vertices.
    All = 0,
    /// Training vertices and the edges between them.
    Train = 1,
    /// Training and validation vertices and the edges between them.
    TrainVal = 2,
}

impl Subgraph {
    /// Returns whether vertices of this [`Subset`] of the split, given as a number, belong to the graph.
    pub fn holds(self, split: u8) -> bool {
        match self {
            Subgraph::All => true,
            Subgraph::Train => split == Subset::Train as u8,
            Subgraph::TrainVal => split == Subset::Train as u8 || split == Subset::Val as u8,
        }
    }
}

/// What every rank knows about the partition; the same on all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionInfo {
    /// Manifest of the partitioned dataset.
    pub dataset: Manifest,
    /// Number of the split that the parts hold, of those of the dataset.
    #[serde(default, skip_serializing_if = "is_first")]
    pub split_index: u64,
    /// Number of parts.
    pub parts: u32,
    /// Digest of owner and row of every vertex. Ranks that train together have the same.
    pub layout: String,
    /// Number of labelled training vertices.
    pub training: u64,
    /// Number of vertices at each distance from the nearest labelled training vertex, 0 to 255; see
    /// [`Shard::distance`](super::Shard::distance).
    pub distances: Vec<u64>,
}

// Serde takes conditions from functions only.
fn is_first(split_index: &u64) -> bool {
    *split_index == 0
}

/// Places, degrees and distances of all vertices of a dataset under an assignment: about 25 bytes per vertex.
pub struct Layout<'d> {
    /// The partitioned dataset.
    pub dataset: &'d Dataset,
    /// The part of each vertex.
    pub assignment: &'d Assignment,
    /// What every rank knows about the partition.
    pub partition: PartitionInfo,
    /// The first place of each part, and the end.
    pub(super) starts: Vec<usize>,
    /// The vertex at each place.
    pub(super) order: Vec<u32>,
    /// The place of each vertex.
    pub(super) place: Vec<u32>,
    /// In-degrees without self-loops in each [`Subgraph`]; 0 for vertices outside it.
    pub(super) degrees: [Vec<u32>; 3],
    /// Sums of in-weights in each [`Subgraph`], if edges have weights.
    pub(super) in_weights: Option<[Vec<InWeight>; 3]>,
    /// Distance of each vertex from the nearest labelled training vertex.
    pub(super) distance: Vec<u8>,
}

impl<'d> Layout<'d> {
    /// Computes the layout of `dataset` under `assignment`.
    pub fn of(dataset: &'d Dataset, assignment: &'d Assignment) -> Result<Self> {
        let nodes = dataset.graph().nodes();
        if assignment.of().len() != nodes {
            let problem = format!("{} vertices for a graph of {nodes}", assignment.of().len());
            return Err(Error::input("assignment", problem).help("use an assignment of this dataset"));
        }
        dataset.check_edges()?;
        let (starts, order) = sort_by_part(assignment, dataset.order()?.as_deref());
        let mut place = vec![0; nodes];
        order.iter().enumerate().for_each(|(at, &v)| place[v as usize] = at as u32);
        let training = training(dataset);
        let distance = distances(dataset.graph(), &training, UNUSED as usize - 1);
        let mut histogram = vec![0; 256];
        distance.iter().for_each(|&d| histogram[d as usize] += 1);
        let partition = PartitionInfo {
            dataset: dataset.manifest.clone(),
            split_index: dataset.split_index() as u64,
            parts: assignment.parts(),
            layout: layout(&starts, &order),
            training: training.len() as u64,
            distances: histogram,
        };
        let degrees =
            [Subgraph::All, Subgraph::Train, Subgraph::TrainVal].map(|subgraph| degrees(dataset, subgraph));
        let in_weights = dataset.edge_weights().map(|weights| {
            let split = dataset.split();
            [Subgraph::All, Subgraph::Train, Subgraph::TrainVal]
                .map(|of| in_weights(dataset.graph(), weights, |v| of.holds(split[v as usize])))
        });
        Ok(Layout { dataset, assignment, partition, starts, order, place, degrees, in_weights, distance })
    }

    /// Returns the vertices that `part` owns, in the order of its rows.
    pub fn owned(&self, part: u32) -> &[u32] {
        &self.order[self.starts[part as usize]..self.starts[part as usize + 1]]
    }

    /// Returns the owner of `vertex` and its row there.
    pub fn home(&self, vertex: u32) -> (u32, usize) {
        let part = self.assignment.of()[vertex as usize];
        (part, self.place[vertex as usize] as usize - self.starts[part as usize])
    }
}

/// Sorts vertices by part and then by their position in `base` (`None`: by id); returns the start of each part and the
/// vertices.
fn sort_by_part(assignment: &Assignment, base: Option<&[u32]>) -> (Vec<usize>, Vec<u32>) {
    let mut starts = vec![0; assignment.parts() as usize + 1];
    assignment.of().iter().for_each(|&part| starts[part as usize + 1] += 1);
    for part in 1..starts.len() {
        starts[part] += starts[part - 1];
    }
    let (mut next, mut order) = (starts.clone(), vec![0; assignment.of().len()]);
    let mut put = |v: u32| {
        let at = &mut next[assignment.of()[v as usize] as usize];
        order[*at] = v;
        *at += 1;
    };
    match base {
        Some(base) => base.iter().for_each(|&v| put(v)),
        None => (0..assignment.of().len() as u32).for_each(put),
    }
    (starts, order)
}

fn layout(starts: &[usize], order: &[u32]) -> String {
    let mut hash = blake3::Hasher::new();
    hash.update(b"halograph-partition 1\n");
    hash.update(&(starts.len() as u64).to_le_bytes());
    for &start in starts {
        hash.update(&(start as u64).to_le_bytes());
    }
    hash.update(bytemuck::cast_slice(order));
    hash.finalize().to_hex()[..32].to_string()
}

/// Returns the labelled training vertices.
pub(super) fn training(dataset: &Dataset) -> Vec<u32> {
    let split = dataset.split();
    let labelled = |v: usize| match dataset.labels() {
        LabelView::Single(classes) => classes[v] >= 0,
        LabelView::Multi { .. } => true,
    };
    let all = (0..split.len()).filter(|&v| split[v] == Subset::Train as u8 && labelled(v));
    all.map(|v| v as u32).collect()
}

fn degrees(dataset: &Dataset, subgraph: Subgraph) -> Vec<u32> {
    let (graph, split) = (dataset.graph(), dataset.split());
    let degree = |v: usize| {
        let counts = |&&u: &&u32| u as usize != v && subgraph.holds(split[u as usize]);
        if subgraph.holds(split[v]) { graph.row(v).iter().filter(counts).count() as u32 } else { 0 }
    };
    (0..graph.nodes()).into_par_iter().with_min_len(256).map(degree).collect()
}
