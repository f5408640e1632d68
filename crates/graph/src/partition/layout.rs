//! What is computed once for all parts: places of vertices, distances, degrees.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::assign::Assignment;
use crate::dataset::{Dataset, LabelView, Manifest, Subset};
use crate::error::{Error, Result};
use crate::order::{UNUSED, distances};

/// A graph that is trained or scored on. Inductive training knows three, each a graph of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subgraph {
    /// Every vertex.
    All = 0,
    /// Training vertices and the edges between them.
    Train = 1,
    /// Training and validation vertices and the edges between them.
    TrainVal = 2,
}

impl Subgraph {
    /// Whether vertices of this part of the split (a number of [`Subset`]) belong to it.
    pub fn holds(self, split: u8) -> bool {
        match self {
            Subgraph::All => true,
            Subgraph::Train => split == Subset::Train as u8,
            Subgraph::TrainVal => split == Subset::Train as u8 || split == Subset::Val as u8,
        }
    }
}

/// What every rank knows of the whole, the same everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionInfo {
    /// The dataset that was cut.
    pub dataset: Manifest,
    /// Number of parts.
    pub parts: u32,
    /// Digest of which part owns which vertex at which row: ranks with equal ones belong together.
    pub layout: String,
    /// Labelled training vertices.
    pub training: u64,
    /// How many vertices are so many edges from the nearest labelled training vertex; see [`Layout::distance`]. 256
    /// numbers.
    pub distances: Vec<u64>,
}

/// Layout about all vertices of a dataset under an assignment: about 25 bytes a vertex.
pub struct Layout<'d> {
    /// What was cut.
    pub dataset: &'d Dataset,
    /// The part of each vertex.
    pub assignment: &'d Assignment,
    /// What every rank knows.
    pub partition: PartitionInfo,
    /// The first place of each part, and the end.
    pub(super) starts: Vec<usize>,
    /// The vertex at each place.
    pub(super) order: Vec<u32>,
    /// The place of each vertex.
    pub(super) place: Vec<u32>,
    /// In-degrees without self-loops, by [`Subgraph`]; 0 for a vertex that does not belong to it.
    pub(super) degrees: [Vec<u32>; 3],
    /// Distances.
    pub(super) distance: Vec<u8>,
}

impl<'d> Layout<'d> {
    /// Computes them.
    pub fn of(dataset: &'d Dataset, assignment: &'d Assignment) -> Result<Self> {
        let nodes = dataset.graph().nodes();
        if assignment.of().len() != nodes {
            let problem = format!("parts of {} vertices for a graph of {nodes}", assignment.of().len());
            return Err(Error::input("assignment", problem).help("it was made for another dataset"));
        }
        dataset.check_edges()?;
        let (starts, order) = line_up(assignment, dataset.order()?.as_deref());
        let mut place = vec![0; nodes];
        order.iter().enumerate().for_each(|(at, &v)| place[v as usize] = at as u32);
        let training = training(dataset);
        let distance = distances(dataset.graph(), &training, UNUSED as usize - 1);
        let mut histogram = vec![0; 256];
        distance.iter().for_each(|&d| histogram[d as usize] += 1);
        let partition = PartitionInfo {
            dataset: dataset.manifest.clone(),
            parts: assignment.parts(),
            layout: layout(&starts, &order),
            training: training.len() as u64,
            distances: histogram,
        };
        let degrees =
            [Subgraph::All, Subgraph::Train, Subgraph::TrainVal].map(|stage| degrees(dataset, stage));
        Ok(Layout { dataset, assignment, partition, starts, order, place, degrees, distance })
    }

    /// The vertices that `part` owns, row by row.
    pub fn owned(&self, part: u32) -> &[u32] {
        &self.order[self.starts[part as usize]..self.starts[part as usize + 1]]
    }

    /// The part that owns `vertex`, and its row there.
    pub fn home(&self, vertex: u32) -> (u32, usize) {
        let part = self.assignment.of()[vertex as usize];
        (part, self.place[vertex as usize] as usize - self.starts[part as usize])
    }

    /// How many edges each vertex is from the nearest labelled training vertex, following what is read: such a vertex is
    /// at 0, an in-neighbour of one at distance d is at d + 1 or nearer. 255 is 255 or more, or never.
    pub fn distance(&self) -> &[u8] {
        &self.distance
    }

    /// In-degrees without self-loops in the graph of `stage`; 0 for a vertex that does not belong to it.
    pub fn degrees(&self, stage: Subgraph) -> &[u32] {
        &self.degrees[stage as usize]
    }
}

/// Vertices by part and, inside a part, in this order (`None`: ascending): where each part begins, and the vertices.
fn line_up(assignment: &Assignment, base: Option<&[u32]>) -> (Vec<usize>, Vec<u32>) {
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

/// Training vertices whose labels count.
fn training(dataset: &Dataset) -> Vec<u32> {
    let split = dataset.split();
    let labelled = |v: usize| match dataset.labels() {
        LabelView::Single(classes) => classes[v] >= 0,
        LabelView::Multi { .. } => true,
    };
    let all = (0..split.len()).filter(|&v| split[v] == Subset::Train as u8 && labelled(v));
    all.map(|v| v as u32).collect()
}

fn degrees(dataset: &Dataset, stage: Subgraph) -> Vec<u32> {
    let (graph, split) = (dataset.graph(), dataset.split());
    let degree = |v: usize| {
        let counts = |&&u: &&u32| u as usize != v && stage.holds(split[u as usize]);
        if stage.holds(split[v]) { graph.row(v).iter().filter(counts).count() as u32 } else { 0 }
    };
    (0..graph.nodes()).into_par_iter().with_min_len(256).map(degree).collect()
}
