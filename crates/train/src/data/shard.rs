//! The shard of one rank: the rows that it owns, in one graph or in three.
//!
//! Owned rows are ordered by their distance from training rows, then as in the shard: a stage computes a prefix of them,
//! as in one process. Which rows are needed follows from distances in the whole graph, so that the owner and the readers
//! of a row decide alike.

use std::collections::HashMap;
use std::sync::Arc;

use halograph_comm::{Message, Tag};
use halograph_graph::block::{Block, Halo};
use halograph_graph::dataset::{LabelView, Metric};
use halograph_graph::partition::{Shard, Subgraph as Graph};
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::{Real, buffer};
use halograph_nn::{Input, Model};
use rayon::prelude::*;

use super::PARTS;
use super::chunks::{RowChunks, order_key};
use super::features::{Features, Scaling, column_scaling};
use super::rows::{Labels, Rows};
use super::view::{InputSource, View};
use crate::boundary::{Exchange, Peers, RankLink};
use crate::config::Normalize;
use crate::error::Result;
use crate::stage::StageBlock;
use crate::tags::{Evaluation, Setup};

/// A shard loaded for training.
pub struct ShardData<'s, T: Real> {
    shard: &'s Shard,
    features: Features<'s>,
    /// The graph that is trained on, and its features.
    train: (LocalGraph, View<'s, T>),
    /// Inductive runs: the larger graphs for validation and test. Their features are gathered when needed.
    larger: Option<[LocalGraph; 2]>,
    /// Owned training, validation and test rows, each in the graph it is scored in.
    pub rows: [Rows; 3],
    /// Numbers of such rows on all ranks.
    pub counts: [u64; 3],
    /// Number of graph layers. Rows farther from training rows do not affect the loss.
    hops: usize,
    /// Whether this rank reads features: not if it only computes later stages.
    has_features: bool,
    chunks: Option<RowChunks>,
}

/// What a rank loads of its shard.
pub struct Loading {
    /// Whether training, validation and test have graphs of their own.
    pub inductive: bool,
    /// How features are scaled.
    pub scaling: Scaling,
    /// Number of graph layers of the model to train.
    pub hops: usize,
    /// Chunks by which training rows are sorted.
    pub chunks: Option<RowChunks>,
    /// Whether this rank reads features.
    pub has_features: bool,
}

/// The rows of one graph that a rank owns, with all edges into them.
pub(super) struct LocalGraph {
    pub(super) graph: Graph,
    /// Rows of the shard, in the order of rows here.
    pub(super) rows: Vec<u32>,
    /// The block of a stage that computes all rows.
    pub(super) block: StageBlock<'static>,
}

/// A graph that is evaluated.
pub struct Scored<'v, 's, T: Real> {
    /// Number of the graph.
    pub graph: u8,
    /// Rows and features.
    pub view: &'v View<'s, T>,
    /// The block of a stage that computes all rows.
    pub block: &'v StageBlock<'static>,
    /// The parts of the split that are scored in this graph.
    pub parts: &'v [usize],
}

impl<'s, T: Real> ShardData<'s, T> {
    /// Loads a shard. `hops`: number of graph layers of the model to train. Collective; blocks.
    pub fn load(
        shard: &'s Shard,
        link: &RankLink,
        inductive: bool,
        scaling: Scaling,
        hops: usize,
    ) -> Result<Self> {
        ShardData::load_as(
            shard,
            link,
            Loading { inductive, scaling, hops, chunks: None, has_features: true },
        )
    }

    /// Loads a shard for a rank that computes it in chunks, or only later stages. Collective; blocks.
    pub fn load_as(shard: &'s Shard, link: &RankLink, loading: Loading) -> Result<Self> {
        let Loading { inductive, scaling, hops, chunks, has_features } = loading;
        let features = Features::of(shard.features(), scaling);
        let graphs = if inductive { [Graph::Train, Graph::TrainVal, Graph::All] } else { [Graph::All; 3] };
        let local = |graph: Graph, chunks| LocalGraph::new(shard, link, graph, (hops, chunks));
        let train = local(graphs[0], chunks.as_ref())?;
        let larger = if inductive { Some([local(graphs[1], None)?, local(graphs[2], None)?]) } else { None };
        let scored = match &larger {
            None => [&train; 3],
            Some([val, all]) => [&train, val, all],
        };
        let rows = [0, 1, 2].map(|i| labelled(shard, &scored[i].rows, PARTS[i] as u8));
        let counts = total(link, rows.each_ref().map(Rows::count))?;
        let input = match has_features {
            true => features.rows(Some(&stored(shard, &train.rows)))?,
            false => Input::default(),
        };
        let view = View::new(train.block.block.clone(), input);
        let train = (train, view);
        Ok(ShardData { shard, features, train, larger, rows, counts, hops, has_features, chunks })
    }

    /// Returns the training graph with its features.
    pub(super) fn training(&self) -> (&LocalGraph, &View<'s, T>) {
        (&self.train.0, &self.train.1)
    }

    /// Returns the chunks that the shard was loaded with.
    pub fn chunks(&self) -> &RowChunks {
        self.chunks.as_ref().expect("loaded with chunks")
    }

    /// Returns the number of graph layers.
    pub(super) fn hops(&self) -> usize {
        self.hops
    }

    /// Computes the static aggregate of the training graph, if the first stage of `model` has one. Collective; blocks.
    pub fn prepare(&self, link: &RankLink, model: &Model<T>) -> Result<()> {
        let (local, view) = &self.train;
        let tag = Setup::StaticAggregate.of_graph(local.graph as u8);
        view.prepare(model, &local.block, Some(Peers::forward_only(link, tag)))
    }

    /// Returns the metric of scores.
    pub fn metric(&self) -> Metric {
        self.shard.partition().dataset.metric
    }

    /// Returns the shard.
    pub fn shard(&self) -> &'s Shard {
        self.shard
    }

    /// Returns the dataset ids of the rows of the training graph.
    pub fn ids(&self) -> Vec<u32> {
        ids(self.shard, &self.train.0.rows)
    }

    /// Returns the rows of the shard that are rows of the training graph, in their order there.
    pub fn shard_rows(&self) -> &[u32] {
        &self.train.0.rows
    }

    /// Returns the rows of the shard of the owned training rows.
    pub fn training_rows(&self) -> Vec<u32> {
        self.rows[0].rows.iter().map(|&at| self.train.0.rows[at as usize]).collect()
    }

    /// Returns the edges of the training graph into owned rows, from all rows of the shard: what batches are sampled from.
    pub fn sampled_graph(&self) -> Block<'s> {
        sampled_graph(self.shard, self.larger.is_some())
    }

    /// Returns the training graph with its features, and the block of a stage that computes all its rows.
    pub fn train(&self) -> (&View<'s, T>, &StageBlock<'static>) {
        (&self.train.1, &self.train.0.block)
    }

    /// Returns the block of each stage of `model`. Collective; blocks.
    pub fn stage_blocks(&self, link: &RankLink, model: &Model<T>) -> Result<Vec<StageBlock<'static>>> {
        let local = &self.train.0;
        let levels = self.levels(model);
        let mut known: HashMap<_, StageBlock> = HashMap::from([((None, None, true), local.block.clone())]);
        let mut blocks = Vec::new();
        for (l, stage) in model.stages.iter().enumerate() {
            let (to, from) = (levels[l], l.checked_sub(1).and_then(|below| levels[below]));
            let key = (to, from, stage.reads_edges());
            if let Some(block) = known.get(&key) {
                blocks.push(block.clone());
                continue;
            }
            let count = |level: Option<u8>| self.within(local, level);
            let block = if stage.reads_edges() {
                let tag = Setup::StageHalo.of_graph(local.graph as u8).layer(l as u16);
                let rows =
                    OwnedRows { graph: local.graph, hops: self.hops, rows: &local.rows[..count(from)] };
                rows.block(self.shard, link, count(to), tag)?
            } else {
                StageBlock::without_edges(count(to), count(from))
            };
            known.insert(key, block.clone());
            blocks.push(block);
        }
        Ok(blocks)
    }

    /// Returns for each stage of a whole model the largest distance from training rows of the rows that it computes; `None`: all rows.
    pub fn levels(&self, model: &Model<T>) -> Vec<Option<u8>> {
        if self.larger.is_some() {
            return vec![None; model.stages.len()];
        }
        let whole = self.shard.partition();
        let all = whole.dataset.nodes;
        // Omitting very few rows saves nothing.
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
            if stage.reads_edges() {
                level = level.and_then(|level| rounded(level + 1));
            }
        }
        levels.reverse();
        levels
    }

    /// Returns the number of rows with a distance of at most `level`; these are the first rows.
    fn within(&self, local: &LocalGraph, level: Option<u8>) -> usize {
        let distance = self.shard.distance();
        let near = |level: u8| local.rows.partition_point(|&row| distance[row as usize] <= level);
        level.map_or(local.rows.len(), near)
    }

    /// Calls `visit` with each graph that is evaluated. Collective; blocks.
    pub fn each_scored(
        &self,
        link: &RankLink,
        model: &Model<T>,
        mut visit: impl FnMut(Scored<T>) -> Result<()>,
    ) -> Result<()> {
        let (local, view) = &self.train;
        let parts: &[usize] = if self.larger.is_some() { &[0] } else { &[0, 1, 2] };
        visit(Scored { graph: local.graph as u8, view, block: &local.block, parts })?;
        let Some(larger) = &self.larger else { return Ok(()) };
        for (local, part) in larger.iter().zip([1, 2]) {
            // Buffers of training do not fit graphs of other sizes, nor the other way round.
            buffer::release();
            let features = match self.has_features {
                true => self.features.rows(Some(&stored(self.shard, &local.rows)))?,
                false => Input::default(),
            };
            let view = View::new(local.block.block.clone(), features);
            let tag = Evaluation::StaticAggregate.tag(0, local.graph as u8);
            view.prepare(model, &local.block, Some(Peers::forward_only(link, tag)))?;
            visit(Scored { graph: local.graph as u8, view: &view, block: &local.block, parts: &[part] })?;
        }
        buffer::release();
        Ok(())
    }
}

impl LocalGraph {
    /// Orders the owned rows of a graph by chunk, if there are any, and then by their distance from training rows; negotiates
    /// the exchange of halo rows. Collective; blocks.
    fn new(
        shard: &Shard,
        link: &RankLink,
        graph: Graph,
        (hops, chunks): (usize, Option<&RowChunks>),
    ) -> Result<Self> {
        let split = shard.split();
        let mut rows: Vec<u32> =
            (0..shard.owned() as u32).filter(|&row| graph.holds(split[row as usize])).collect();
        if graph == Graph::All {
            rows.sort_by_key(|&row| level(shard, hops, row));
        }
        if let Some(chunks) = chunks {
            let is_near = graph == Graph::All;
            rows.sort_by_key(|&row| order_key(shard, if is_near { hops } else { 0 }, chunks, row));
        }
        let tag = Setup::GraphHalo.of_graph(graph as u8);
        let block = OwnedRows { graph, hops, rows: &rows }.block(shard, link, rows.len(), tag)?;
        Ok(LocalGraph { graph, rows, block })
    }
}

/// Returns the distance of a row of a shard from training rows, at most `hops`.
pub(super) fn level(shard: &Shard, hops: usize, row: u32) -> u8 {
    shard.distance()[row as usize].min(hops.min(255) as u8)
}

/// Owned rows of a graph, as source rows of a block.
struct OwnedRows<'r> {
    graph: Graph,
    hops: usize,
    /// Rows of the shard.
    rows: &'r [u32],
}

impl OwnedRows<'_> {
    /// Returns the edges into the first `destinations` rows, and the exchange of the halo rows that they read. Collective;
    /// blocks.
    fn block(
        &self,
        shard: &Shard,
        link: &RankLink,
        destinations: usize,
        tag: Tag,
    ) -> Result<StageBlock<'static>> {
        let &OwnedRows { graph, hops, rows } = self;
        let row_of = row_lookup(shard, rows);
        let halo = halo_rows(shard, graph, hops, &rows[..destinations]);
        let wanted: Vec<Vec<u32>> = halo.iter().map(|of| ids(shard, of)).collect();
        let exchange = Exchange::negotiate(&link.comm, tag, &wanted, row_of)?;
        let halo = halo.concat();
        let degrees = shard.degrees(graph);
        let degrees_of = |rows: &[u32]| rows.iter().map(|&row| degrees[row as usize]).collect::<Vec<u32>>();
        let edges_from = |sources: &[u32]| edges(shard, &rows[..destinations], sources);
        let (indptr, indices) = edges_from(rows);
        let block = Block::new(indptr, indices, 0..destinations, degrees_of(rows), Some(ids(shard, rows)));
        let (indptr, indices) = edges_from(&halo);
        let block = block.with_halo(Halo::new(indptr, indices, degrees_of(&halo), ids(shard, &halo)));
        Ok(StageBlock { block: Arc::new(block), exchange: Some(Arc::new(exchange)) })
    }
}

/// Returns a function from dataset ids to positions in `rows`, which are rows of the shard.
pub(super) fn row_lookup(shard: &Shard, rows: &[u32]) -> impl Fn(u32) -> Option<u32> + use<> {
    // Sorted by id: less than half the memory of a hash table.
    let mut row_of: Vec<(u32, u32)> =
        rows.iter().zip(0..).map(|(&row, at)| (shard.ids()[row as usize], at)).collect();
    row_of.par_sort_unstable();
    move |id: u32| row_of.binary_search_by_key(&id, |&(id, _)| id).ok().map(|at| row_of[at].1)
}

pub(super) fn ids(shard: &Shard, rows: &[u32]) -> Vec<u32> {
    rows.iter().map(|&row| shard.ids()[row as usize]).collect()
}

/// Returns for each rank the halo rows of the shard that it owns and that `rows` read, in the order of its own rows.
pub(super) fn halo_rows(shard: &Shard, graph: Graph, hops: usize, rows: &[u32]) -> Vec<Vec<u32>> {
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
    (0..shard.partition().parts).map(of).collect()
}

/// Returns the edges into `rows` from `sources`, both rows of the shard. They are numbered by their positions in these lists;
/// sources are ascending in each row.
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

/// Returns the rows of the feature file that hold the features of `rows`.
fn stored(shard: &Shard, rows: &[u32]) -> Vec<u32> {
    match shard.stored_rows() {
        Some(stored) => rows.iter().map(|&row| stored[row as usize]).collect(),
        None => rows.to_vec(),
    }
}

/// Returns the edges of the training graph into owned rows, from all rows of the shard. Borrows the edges of the shard, unless
/// some are outside the training graph of an inductive run.
pub(crate) fn sampled_graph(shard: &Shard, inductive: bool) -> Block<'_> {
    let graph = if inductive { Graph::Train } else { Graph::All };
    let (degrees, ids) = (shard.degrees(graph).to_vec(), Some(shard.ids().to_vec()));
    let edges = shard.edges();
    if graph == Graph::All {
        return Block::new(edges.indptr, edges.indices, 0..shard.owned(), degrees, ids);
    }
    let holds = |row: u32| graph.holds(shard.split()[row as usize]);
    let (mut indptr, mut indices) = (vec![0], Vec::new());
    for row in 0..shard.owned() {
        if holds(row as u32) {
            indices.extend(edges.row(row).iter().copied().filter(|&source| holds(source)));
        }
        indptr.push(indices.len() as u64);
    }
    Block::new(indptr, indices, 0..shard.owned(), degrees, ids)
}

/// Returns the owned rows of a shard that are trained on.
pub(crate) fn training_rows(shard: &Shard) -> Vec<u32> {
    let is_trained =
        |&row: &u32| shard.split()[row as usize] == PARTS[0] as u8 && shard.label(row as usize).is_known();
    (0..shard.owned() as u32).filter(is_trained).collect()
}

/// Returns those of `rows` that have a label and are in `part` of the split.
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

/// Returns the sums of the counts of all ranks. Collective; blocks.
fn total(link: &RankLink, own: [u64; 3]) -> Result<[u64; 3]> {
    let all = link.comm.all_gather(Setup::RowCounts.tag(), Message::of(&own))?;
    all.iter().try_fold([0; 3], |sum, message| {
        let counts = message.expect::<u64>(3)?;
        Ok([0, 1, 2].map(|i| sum[i] + counts[i]))
    })
}

/// Computes the scaling for `normalize` from the training rows of all ranks. Collective; blocks.
pub fn fit_scaling(shard: &Shard, link: &RankLink, normalize: Normalize) -> Result<Scaling> {
    match normalize {
        Normalize::None => Ok(Scaling::None),
        Normalize::Rows => Ok(Scaling::Rows),
        Normalize::Columns => fit_columns(shard, link),
    }
}

/// Computes the scaling of columns from the moments of the training rows of all ranks, merged in the order of ranks.
/// Collective; blocks.
fn fit_columns(shard: &Shard, link: &RankLink) -> Result<Scaling> {
    let training = shard.split()[..shard.owned()].iter().zip(0..);
    let rows: Vec<u32> = training.filter(|(part, _)| **part == PARTS[0] as u8).map(|(_, row)| row).collect();
    let own = Features::of(shard.features(), Scaling::None).moments(&stored(shard, &rows))?;
    let numbers: Vec<f64> = std::iter::once(own.count as f64).chain(own.mean).chain(own.squares).collect();
    let tag = Setup::ColumnMoments.tag();
    let mut all: Option<Moments<f64>> = None;
    for message in link.comm.all_gather(tag, Message::of(&numbers))? {
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
