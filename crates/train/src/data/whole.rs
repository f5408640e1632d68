//! A dataset on one process.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_graph::dataset::{Dataset, LABEL, LabelView, Subset};
use halograph_graph::error::{Error, Result};
use halograph_graph::order::nested;
use halograph_kernels::{Real, buffer};

use super::PARTS;
use super::columns::Preprocessing;
use super::features::Features;
use super::rows::{Labels, Rows};
use super::view::{InputSource, View};
use crate::config::{GraphOptions, TrainConfig};
use crate::objective::Objective;

/// A dataset loaded for training on one process.
pub struct Data<'d, T: Real> {
    dataset: &'d Dataset,
    features: Features<'d>,
    /// The graph that is trained on.
    pub train: View<'d, T>,
    /// Inductive runs: the larger graphs for validation and test. Their features are gathered when needed.
    larger: Option<[Arc<Block<'d>>; 2]>,
    /// Training, validation and test rows, each in the view it is scored in.
    pub parts: [Rows; 3],
    /// Metric and class weights: those of the dataset, unless set by [`Data::with_objective`].
    pub objective: Objective,
}

impl<'d, T: Real> Data<'d, T> {
    /// Checks and loads `dataset`. `hops`: number of graph layers of the model to train; rows that its loss needs are
    /// ordered first.
    pub fn load(
        dataset: &'d Dataset,
        graphs: GraphOptions,
        preprocessing: impl Into<Preprocessing>,
        hops: Option<usize>,
    ) -> Result<Self> {
        dataset.check_edges()?;
        dataset.check_labels()?;
        let features = Features::new(dataset, preprocessing);
        let order = dataset.order()?;
        if !graphs.inductive {
            let block = whole(dataset, graphs, order, hops);
            let parts = PARTS.map(|part| rows_of(dataset, block.ids(), part));
            let train = View::new(block.clone(), features.rows(block.ids())?);
            let objective = Objective::of(&dataset.manifest);
            return Ok(Data { dataset, features, train, larger: None, parts, objective });
        }
        let induced = |parts: &[Subset]| {
            let nodes = nodes_in(dataset.split(), order.as_deref(), parts);
            Arc::new(weighted(dataset, graphs, Block::induced(dataset.graph(), &nodes)))
        };
        let blocks = [induced(&[Subset::Train]), induced(&[Subset::Train, Subset::Val])];
        let [block, val] = blocks;
        let test = whole(dataset, graphs, order, None);
        let parts = [(&block, Subset::Train), (&val, Subset::Val), (&test, Subset::Test)];
        let parts = parts.map(|(block, part)| rows_of(dataset, block.ids(), part));
        let train = View::new(block.clone(), features.rows(block.ids())?);
        let objective = Objective::of(&dataset.manifest);
        Ok(Data { dataset, features, train, larger: Some([val, test]), parts, objective })
    }

    /// Sets metric and class weights. Refuses those that do not fit the dataset.
    pub fn with_objective(self, train: &TrainConfig) -> Result<Self> {
        let manifest = &self.dataset.manifest;
        let counts = || Ok::<_, Error>(self.parts[0].class_counts(manifest.classes as usize));
        let objective = Objective::new(train, manifest, counts)?;
        Ok(Data { objective, ..self })
    }

    /// Loads the whole graph, for `predict`.
    pub fn whole(
        dataset: &'d Dataset,
        graphs: GraphOptions,
        preprocessing: impl Into<Preprocessing>,
    ) -> Result<View<'d, T>> {
        dataset.check_edges()?;
        let block = whole(dataset, graphs, dataset.order()?, None);
        let features = Features::new(dataset, preprocessing).rows(block.ids())?;
        Ok(View::new(block, features))
    }

    /// Calls `visit` with each view that is evaluated, and the parts of the split to score in it.
    pub fn each_view<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&View<T>, &[usize]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Some(larger) = &self.larger else {
            return visit(&self.train, &[0, 1, 2]);
        };
        visit(&self.train, &[0])?;
        for (block, part) in larger.iter().zip([1, 2]) {
            // Buffers of training do not fit graphs of other sizes.
            buffer::release();
            visit(&View::new(block.clone(), self.features.rows(block.ids())?), &[part])?;
        }
        buffer::release();
        Ok(())
    }

    /// Returns the dataset.
    pub fn dataset(&self) -> &'d Dataset {
        self.dataset
    }
}

/// Returns the whole graph of a dataset, in its locality order if there is one. With `hops`, the rows that a model of so many
/// graph layers needs for its training rows come first.
fn whole(
    dataset: &Dataset,
    graphs: GraphOptions,
    order: Option<Vec<u32>>,
    hops: Option<usize>,
) -> Arc<Block<'_>> {
    let graph = dataset.graph();
    let order = match hops {
        Some(hops) => {
            let training = nodes_in(dataset.split(), None, &[Subset::Train]);
            Some(nested(graph, order.as_deref(), &training, hops).order)
        }
        None => order,
    };
    let moved = order.filter(|order| !order.is_sorted());
    let block = moved.map_or_else(|| Block::whole(graph), |order| Block::ordered(graph, &order));
    Arc::new(weighted(dataset, graphs, block))
}

/// Returns the block with the weights of its edges, if they are used and there are any.
fn weighted<'d>(dataset: &'d Dataset, graphs: GraphOptions, block: Block<'d>) -> Block<'d> {
    if graphs.edge_weights { dataset.weighted(block) } else { block }
}

/// Returns the nodes of `parts`, in the given `order` or by their numbers.
fn nodes_in(split: &[u8], order: Option<&[u32]>, parts: &[Subset]) -> Vec<u32> {
    let within = |&v: &u32| parts.iter().any(|&part| split[v as usize] == part as u8);
    match order {
        Some(order) => order.iter().copied().filter(within).collect(),
        None => (0..split.len() as u32).filter(within).collect(),
    }
}

/// Returns the labelled rows of `part`, where `ids` are the dataset ids of the rows of a view (`None`: the row numbers).
fn rows_of(dataset: &Dataset, ids: Option<&[u32]>, part: Subset) -> Rows {
    let split = dataset.split();
    let id = |row: u32| ids.map_or(row, |ids| ids[row as usize]) as usize;
    let count = ids.map_or(split.len(), <[u32]>::len) as u32;
    let rows = (0..count).filter(|&row| split[id(row)] == part as u8);
    match dataset.labels() {
        LabelView::Single(classes) => {
            let rows: Vec<u32> = rows.filter(|&row| classes[id(row)] >= 0).collect();
            let labels = rows.iter().map(|&row| classes[id(row)] as u32).collect();
            Rows { rows, labels: Labels::Single(labels) }
        }
        LabelView::Multi { classes, flags } => {
            let rows: Vec<u32> = rows.collect();
            let labels = rows.iter().flat_map(|&row| &flags[id(row) * classes..][..classes]);
            Rows { labels: Labels::Multi(labels.copied().collect()), rows }
        }
    }
}

/// Refuses a dataset that cannot be trained on. Edges and labels are read only if no earlier check has passed.
pub fn check(dataset: &Dataset) -> Result<()> {
    dataset.check_edges()?;
    dataset.check_labels()?;
    if let LabelView::Single(classes) = dataset.labels()
        && classes.iter().all(|&c| c < 0)
    {
        return Err(Error::input(dataset.place(LABEL), "no node has a label").help(
            "training needs labels: import the data again with them (tables: --label-col; arrays: y.npy)",
        ));
    }
    if !dataset.split().contains(&(Subset::Train as u8)) {
        return Err(Error::input(dataset.split_place(), "the split has no training node")
            .help("import the data with a split, or let `data import` draw one: --split 0.6,0.2,0.2"));
    }
    if rows_of(dataset, None, Subset::Train).rows.is_empty() {
        return Err(Error::input(dataset.place(LABEL), "no training node has a label")
            .help("import the data again: nodes without a label are taken out of the split"));
    }
    Ok(())
}
