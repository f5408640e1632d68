//! What one rank trains on: the rows that it owns, in one graph or in three.
//!
//! Owned rows are ordered by how far they are from the training rows, then as the shard has them: a stage computes a
//! prefix of them, as in one process. Which rows are needed follows from distances in the whole graph, so that owners
//! and readers of a row decide alike.

use std::collections::HashMap;
use std::sync::Arc;

use halograph_comm::{Message, Purpose, Tag};
use halograph_graph::block::{Block, Halo};
use halograph_graph::dataset::LabelView;
use halograph_graph::partition::{Shard, Stage as Graph};
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::{Real, buffer};
use halograph_nn::Model;
use rayon::prelude::*;

use super::features::{Features, Scaling, column_scaling};
use super::{Labels, PARTS, Rows, View};
use crate::boundary::Exchange;
use crate::config::Normalize;
use crate::error::Result;
use crate::strategy::partition::{Plan, Rank, Shared, make_fixed_sums};
use crate::strategy::single::{reads_edges, sums_are_fixed};

/// A rank's rows, ready for training.
pub(crate) struct Part<'s, T: Real> {
    shard: &'s Shard,
    features: Features<'s>,
    /// What is trained on.
    train: Seen<'s, T>,
    /// Larger graphs to validate and to test on, if training does not see all; their features are gathered when needed.
    larger: Option<[Cut; 2]>,
    /// Owned training, validation and test rows, each in the graph it is scored in.
    pub rows: [Rows; 3],
    /// How many of each all ranks have.
    pub counts: [u64; 3],
    /// How far from training rows a row can be and matter.
    hops: usize,
}

/// A graph with features.
struct Seen<'s, T: Real> {
    view: View<'s, T>,
    cut: Cut,
}

/// The rows of a graph that a rank owns, and what it reads of others for all of them.
struct Cut {
    graph: Graph,
    /// Rows of the shard, in the order of rows here.
    rows: Vec<u32>,
    shared: Shared<'static>,
}

/// Returns the slot of tags that belong to a graph.
fn slot(graph: Graph) -> u8 {
    graph as u8
}

impl<'s, T: Real> Part<'s, T> {
    /// Loads a shard. `hops`: graph layers of the model that will be trained.
    pub fn load(
        shard: &'s Shard,
        rank: &Rank,
        inductive: bool,
        scaling: Scaling,
        hops: usize,
    ) -> Result<Self> {
        let features = Features::of(shard.features(), scaling);
        let graphs = if inductive { [Graph::Train, Graph::Val, Graph::All] } else { [Graph::All; 3] };
        let cut = Cut::new(shard, rank, graphs[0], hops)?;
        let larger = match inductive {
            false => None,
            true => Some([Cut::new(shard, rank, graphs[1], hops)?, Cut::new(shard, rank, graphs[2], hops)?]),
        };
        let scored = match &larger {
            None => [&cut; 3],
            Some([val, all]) => [&cut, val, all],
        };
        let rows = [0, 1, 2].map(|i| labelled(shard, &scored[i].rows, PARTS[i] as u8));
        let counts = total(rank, rows.each_ref().map(Rows::count))?;
        let view = View::new(cut.shared.block.clone(), features.rows(Some(&stored(shard, &cut.rows)))?);
        Ok(Part { shard, features, train: Seen { view, cut }, larger, rows, counts, hops })
    }

    /// Makes what the first layer of `model` sums up of features that never change.
    pub fn make_sums(&self, rank: &Rank, model: &Model<T>) -> Result<()> {
        keep_sums(rank, model, &self.train.view, &self.train.cut, Purpose::Setup)
    }

    /// Dataset ids of the rows that training sees, the graph and its features.
    pub fn seen(&self) -> (Vec<u32>, &View<'s, T>, &Shared<'static>) {
        let Seen { view, cut } = &self.train;
        (ids(self.shard, &cut.rows), view, &cut.shared)
    }

    /// What each stage of `model` computes of the owned rows.
    pub fn plan(&self, rank: &Rank, model: &Model<T>) -> Result<Plan<'_, T>> {
        let cut = &self.train.cut;
        let levels = self.levels(model);
        let mut known: HashMap<_, Shared> = HashMap::from([((None, None, true), cut.shared.clone())]);
        let mut stages = Vec::new();
        for (l, stage) in model.stages.iter().enumerate() {
            let (to, from) = (levels[l], l.checked_sub(1).and_then(|below| levels[below]));
            let key = (to, from, reads_edges(stage));
            if let Some(shared) = known.get(&key) {
                stages.push(shared.clone());
                continue;
            }
            let count = |level: Option<u8>| self.within(cut, level);
            let shared = if reads_edges(stage) {
                let tag = Tag::new(Purpose::Setup).layer(l as u16).slot(slot(cut.graph));
                share(self.shard, rank, cut.graph, self.hops, &cut.rows[..count(from)], count(to), tag)?
            } else {
                without_edges(count(to), count(from))
            };
            known.insert(key, shared.clone());
            stages.push(shared);
        }
        Ok(Plan { view: &self.train.view, stages })
    }

    /// For each stage, how far from a training row the rows are that it computes; `None`: all there are.
    fn levels(&self, model: &Model<T>) -> Vec<Option<u8>> {
        if self.larger.is_some() {
            return vec![None; model.stages.len()];
        }
        let whole = self.shard.whole();
        let all = whole.dataset.nodes;
        // Leaving out very few saves nothing.
        let rounded = |level: u8| {
            let count: u64 = whole.distances[..=level as usize].iter().sum();
            (count < all - all / 32 && (level as usize) < self.hops).then_some(level)
        };
        let mut level = rounded(0);
        let mut levels = Vec::new();
        for stage in model.stages.iter().rev() {
            if stage.mixes_rows() {
                level = None;
            }
            levels.push(level);
            if reads_edges(stage) {
                level = level.and_then(|level| rounded(level + 1));
            }
        }
        levels.reverse();
        levels
    }

    /// Number of rows that are no farther than `level`: the first ones.
    fn within(&self, cut: &Cut, level: Option<u8>) -> usize {
        let distance = self.shard.distance();
        level.map_or(cut.rows.len(), |level| cut.rows.partition_point(|&row| distance[row as usize] <= level))
    }

    /// Calls `visit` with each graph that scores are taken in, and the parts to score there.
    pub fn each_view(
        &self,
        rank: &Rank,
        model: &Model<T>,
        mut visit: impl FnMut(Graph, &View<T>, &Shared, &[usize]) -> Result<()>,
    ) -> Result<()> {
        let Seen { view, cut } = &self.train;
        let Some(larger) = &self.larger else {
            return visit(cut.graph, view, &cut.shared, &[0, 1, 2]);
        };
        visit(cut.graph, view, &cut.shared, &[0])?;
        for (cut, part) in larger.iter().zip([1, 2]) {
            // Other sizes: what is kept for training is of no use to it, nor the other way round.
            buffer::release();
            let features = self.features.rows(Some(&stored(self.shard, &cut.rows)))?;
            let view = View::new(cut.shared.block.clone(), features);
            keep_sums(rank, model, &view, cut, Purpose::Evaluation)?;
            visit(cut.graph, &view, &cut.shared, &[part])?;
        }
        buffer::release();
        Ok(())
    }
}

impl Cut {
    fn new(shard: &Shard, rank: &Rank, graph: Graph, hops: usize) -> Result<Self> {
        let split = shard.split();
        let mut rows: Vec<u32> =
            (0..shard.owned() as u32).filter(|&row| graph.holds(split[row as usize])).collect();
        if graph == Graph::All {
            rows.sort_by_key(|&row| level(shard, hops, row));
        }
        let tag = Tag::new(Purpose::Setup).layer(u16::MAX).slot(slot(graph));
        let shared = share(shard, rank, graph, hops, &rows, rows.len(), tag)?;
        Ok(Cut { graph, rows, shared })
    }
}

/// How far a row of a shard is from training rows, as far as it matters.
fn level(shard: &Shard, hops: usize, row: u32) -> u8 {
    shard.distance()[row as usize].min(hops.min(255) as u8)
}

/// The edges of `graph` into the first `destinations` of `rows`, and what is read of other ranks for them.
fn share(
    shard: &Shard,
    rank: &Rank,
    graph: Graph,
    hops: usize,
    rows: &[u32],
    destinations: usize,
    tag: Tag,
) -> Result<Shared<'static>> {
    // Sorted by id: less than half of what a table of them would take.
    let mut row_of: Vec<(u32, u32)> =
        rows.iter().zip(0..).map(|(&row, at)| (shard.ids()[row as usize], at)).collect();
    row_of.par_sort_unstable();
    let row_of = |id: u32| row_of.binary_search_by_key(&id, |&(id, _)| id).ok().map(|found| row_of[found].1);
    let halo = halo_rows(shard, graph, hops, &rows[..destinations]);
    let wanted: Vec<Vec<u32>> = halo.iter().map(|of| ids(shard, of)).collect();
    let exchange = Exchange::negotiate(&rank.comm, tag, &wanted, row_of)?;
    let halo = halo.concat();
    let degrees = shard.degrees(graph);
    let degrees_of = |rows: &[u32]| rows.iter().map(|&row| degrees[row as usize]).collect::<Vec<u32>>();
    let edges_from = |sources: &[u32]| edges(shard, &rows[..destinations], sources);
    let (indptr, indices) = edges_from(rows);
    let block = Block::new(indptr, indices, 0..destinations, degrees_of(rows), Some(ids(shard, rows)));
    let (indptr, indices) = edges_from(&halo);
    let block = block.with_halo(Halo::new(indptr, indices, degrees_of(&halo), ids(shard, &halo)));
    Ok(Shared { block: Arc::new(block), exchange: Some(Arc::new(exchange)) })
}

fn ids(shard: &Shard, rows: &[u32]) -> Vec<u32> {
    rows.iter().map(|&row| shard.ids()[row as usize]).collect()
}

/// For each rank, rows of the shard's halo that it owns and that `rows` read, in the order of its own rows.
fn halo_rows(shard: &Shard, graph: Graph, hops: usize, rows: &[u32]) -> Vec<Vec<u32>> {
    let split = shard.split();
    let mut is_read = vec![false; shard.rows()];
    for &row in rows {
        for &column in &shard.edges().row(row as usize)[shard.local_edges(row as usize)..] {
            is_read[column as usize] = graph.holds(split[column as usize]);
        }
    }
    let of = |owner: u32| {
        if owner == shard.part() {
            return Vec::new();
        }
        let run = shard.rows_of(owner);
        let read = run.filter(|&row| is_read[row]).map(|row| row as u32);
        let mut read: Vec<u32> = read.collect();
        if graph == Graph::All {
            read.sort_by_key(|&row| level(shard, hops, row));
        }
        read
    };
    (0..shard.whole().parts).map(of).collect()
}

/// Edges into `rows` from `sources`, both rows of the shard: numbered as they are listed, ascending in each row.
fn edges(shard: &Shard, rows: &[u32], sources: &[u32]) -> (Vec<u64>, Vec<u32>) {
    const NOWHERE: u32 = u32::MAX;
    let mut place = vec![NOWHERE; shard.rows()];
    sources.iter().zip(0..).for_each(|(&row, at)| place[row as usize] = at);
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for &row in rows {
        let start = indices.len();
        let columns = shard.edges().row(row as usize).iter().map(|&column| place[column as usize]);
        indices.extend(columns.filter(|&at| at != NOWHERE));
        indices[start..].sort_unstable();
        indptr.push(indices.len() as u64);
    }
    (indptr, indices)
}

/// The rows of a stage that reads no edges.
fn without_edges(destinations: usize, sources: usize) -> Shared<'static> {
    let block = Block::new(vec![0; destinations + 1], vec![], 0..destinations, vec![0; sources], None);
    Shared { block: Arc::new(block), exchange: None }
}

/// Where the features of `rows` are stored.
fn stored(shard: &Shard, rows: &[u32]) -> Vec<u32> {
    match shard.stored_rows() {
        Some(stored) => rows.iter().map(|&row| stored[row as usize]).collect(),
        None => rows.to_vec(),
    }
}

/// The labelled ones among `rows` of the shard that are in `part` of the split.
fn labelled(shard: &Shard, rows: &[u32], part: u8) -> Rows {
    let split = shard.split();
    let is_in = |row: &u32| split[*row as usize] == part && shard.label(*row as usize).is_known();
    let places = rows.iter().zip(0..).filter(|(row, _)| is_in(row)).map(|(_, at)| at).collect::<Vec<u32>>();
    let stored = stored(shard, rows);
    let from = |&at: &u32| stored[at as usize] as usize;
    let labels = match shard.labels() {
        LabelView::Single(classes) => {
            Labels::Single(places.iter().map(|at| classes[from(at)] as u32).collect())
        }
        LabelView::Multi { classes, flags } => {
            let of = places.iter().flat_map(|at| &flags[from(at) * classes..][..classes]);
            Labels::Multi(of.copied().collect())
        }
    };
    Rows { rows: places, labels }
}

/// Counts of all ranks together.
fn total(rank: &Rank, own: [u64; 3]) -> Result<[u64; 3]> {
    let all = rank.comm.all_gather(Tag::new(Purpose::Setup), Message::of(&own))?;
    all.iter().try_fold([0; 3], |sum, message| {
        let counts = message.expect::<u64>(3)?;
        Ok([0, 1, 2].map(|i| sum[i] + counts[i]))
    })
}

/// What `normalize` asks for, by the training rows of all ranks.
pub(crate) fn fit_scaling(shard: &Shard, rank: &Rank, normalize: Normalize) -> Result<Scaling> {
    match normalize {
        Normalize::None => Ok(Scaling::None),
        Normalize::Rows => Ok(Scaling::Rows),
        Normalize::Columns => fit_columns(shard, rank),
    }
}

/// The moments of the training rows of all ranks, merged in their order.
fn fit_columns(shard: &Shard, rank: &Rank) -> Result<Scaling> {
    let training = shard.split()[..shard.owned()].iter().zip(0..);
    let rows: Vec<u32> = training.filter(|(part, _)| **part == PARTS[0] as u8).map(|(_, row)| row).collect();
    let own = Features::of(shard.features(), Scaling::None).moments(&stored(shard, &rows))?;
    let numbers: Vec<f64> = std::iter::once(own.count as f64).chain(own.mean).chain(own.squares).collect();
    let tag = Tag::new(Purpose::Setup).slot(1);
    let mut all: Option<Moments<f64>> = None;
    for message in rank.comm.all_gather(tag, Message::of(&numbers))? {
        let numbers = message.expect::<f64>(numbers.len())?;
        let (mean, squares) = numbers[1..].split_at(numbers.len() / 2);
        let part = Moments { count: numbers[0] as u64, mean: mean.to_vec(), squares: squares.to_vec() };
        match &mut all {
            None => all = Some(part),
            Some(all) => all.merge(&part),
        }
    }
    Ok(column_scaling(&all.expect("there is at least one rank")))
}

/// Makes the sums of features of a view that never change, if the model has any.
fn keep_sums<T: Real>(
    rank: &Rank,
    model: &Model<T>,
    view: &View<T>,
    cut: &Cut,
    purpose: Purpose,
) -> Result<()> {
    let first = &model.stages[0];
    if sums_are_fixed(first) {
        let tag = Tag::new(purpose).slot(16 + slot(cut.graph));
        view.keep_sums(make_fixed_sums(rank, first, &cut.shared, view.features.clone(), tag)?);
    }
    Ok(())
}
