//! What is trained on: a dataset as blocks, features in the working precision, and rows whose labels count.
//!
//! Transductive training knows one [`View`], the whole graph. Inductive training knows three, each a graph of its own:
//! the training nodes, these and the validation nodes, and all.

mod features;
pub(crate) mod part;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use halograph_comm::{Comm, Message, Tag};
use halograph_graph::block::Block;
use halograph_graph::dataset::{Dataset, INDICES, LABEL, LabelView, Part, Task};
use halograph_graph::error::{Error, Result};
use halograph_graph::order::nested;
use halograph_kernels::{Real, buffer, rows};
use halograph_nn::erased::AnyLayer;
use halograph_nn::metrics::Targets;
use halograph_nn::{Input, Layer, Matrix, Pass};
use rayon::prelude::*;

use features::Features;
pub use features::Scaling;

/// A graph and, for its rows in this order, features.
pub struct View<'d, T: Real> {
    /// Its edges.
    pub block: Arc<Block<'d>>,
    /// One row of features a source row.
    pub features: Input<T>,
    sums: OnceLock<Arc<Matrix<T>>>,
}

impl<'d, T: Real> View<'d, T> {
    /// A view of `block` with these features.
    pub fn new(block: impl Into<Arc<Block<'d>>>, features: impl Into<Input<T>>) -> Self {
        View { block: block.into(), features: features.into(), sums: OnceLock::new() }
    }

    /// What `layer`, the first one of the model that this view is for, sums up of the features: made at the first call.
    pub(crate) fn sums(&self, layer: &AnyLayer<T>) -> Arc<Matrix<T>> {
        let make = || {
            let (pass, features) = (Pass::evaluation(), self.features.clone());
            Layer::aggregate(layer, &self.block, features, &pass, &mut Default::default())
        };
        self.sums.get_or_init(make).clone()
    }

    /// Keeps what the first layer sums up of the features, once it was made with the help of other ranks.
    pub(crate) fn keep_sums(&self, sums: Arc<Matrix<T>>) {
        let _ = self.sums.set(sums);
    }

    /// The sums that are kept.
    pub(crate) fn fixed_sums(&self) -> Arc<Matrix<T>> {
        self.sums.get().expect("fixed sums are made before the first epoch").clone()
    }
}

/// Rows of a view whose labels count, and those labels.
pub struct Rows {
    /// Row numbers in the view, ascending.
    pub rows: Vec<u32>,
    labels: Labels,
}

enum Labels {
    Single(Vec<u32>),
    Multi(Vec<u8>),
}

impl Rows {
    /// These rows with these labels.
    pub fn new(rows: Vec<u32>, targets: Targets) -> Self {
        let labels = match targets {
            Targets::Single(classes) => Labels::Single(classes.to_vec()),
            Targets::Multi(flags) => Labels::Multi(flags.to_vec()),
        };
        Rows { rows, labels }
    }

    /// Rows that are all of class 0, or of none.
    pub(crate) fn blank(rows: Range<u32>, task: Task, classes: usize) -> Self {
        let labels = match task {
            Task::SingleLabel => Labels::Single(vec![0; rows.len()]),
            Task::MultiLabel => Labels::Multi(vec![0; rows.len() * classes]),
        };
        Rows { rows: rows.collect(), labels }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.rows.len() as u64
    }

    /// The rows of all ranks with their logits, in the order of ranks.
    pub(crate) fn gathered<T: Real>(
        &self,
        logits: &Matrix<T>,
        comm: &Comm,
        tag: Tag,
    ) -> crate::error::Result<(Matrix<T>, Rows)> {
        let width = logits.cols();
        let mut own = Message::new::<T>(self.rows.len() * width);
        rows::gather(logits.data(), width, &self.rows, own.as_mut_slice());
        let labels = match &self.labels {
            Labels::Single(classes) => Message::of(classes),
            Labels::Multi(flags) => Message::of(flags),
        };
        let mut all = Vec::new();
        for message in comm.all_gather(tag, own)? {
            all.extend_from_slice(message.as_slice::<T>()?);
        }
        let found = comm.all_gather(tag, labels)?;
        let labels = match &self.labels {
            Labels::Single(_) => Labels::Single(joined(&found)?),
            Labels::Multi(_) => Labels::Multi(joined(&found)?),
        };
        let count = all.len() / width.max(1);
        Ok((Matrix::new(count, width, all), Rows { rows: (0..count as u32).collect(), labels }))
    }

    /// The labels, in the order of the rows.
    pub fn targets(&self) -> Targets<'_> {
        match &self.labels {
            Labels::Single(classes) => Targets::Single(classes),
            Labels::Multi(flags) => Targets::Multi(flags),
        }
    }
}

fn joined<E: Pod>(messages: &[Message]) -> crate::error::Result<Vec<E>> {
    let mut all = Vec::new();
    for message in messages {
        all.extend_from_slice(message.as_slice()?);
    }
    Ok(all)
}

/// The parts of a split, in the order of [`Scores`](crate::event::Scores).
pub const PARTS: [Part; 3] = [Part::Train, Part::Val, Part::Test];

/// A dataset made ready for training.
pub struct Data<'d, T: Real> {
    dataset: &'d Dataset,
    features: Features<'d>,
    /// What is trained on.
    pub train: View<'d, T>,
    /// Larger graphs to validate and to test on, if training does not see all; their features are gathered when needed.
    larger: Option<[Arc<Block<'d>>; 2]>,
    /// Training, validation and test rows, each in the view it is scored in.
    pub parts: [Rows; 3],
}

impl<'d, T: Real> Data<'d, T> {
    /// Checks and loads. `hops`: for training a model of so many graph layers, which shall find the rows that it needs in
    /// front.
    pub fn load(
        dataset: &'d Dataset,
        inductive: bool,
        scaling: Scaling,
        hops: Option<usize>,
    ) -> Result<Self> {
        check_edges(dataset)?;
        check_labels(dataset)?;
        let features = Features::new(dataset, scaling);
        let order = dataset.order()?;
        if !inductive {
            let block = whole(dataset, order, hops);
            let parts = PARTS.map(|part| rows_of(dataset, block.ids(), part));
            let train = View::new(block.clone(), features.rows(block.ids())?);
            return Ok(Data { dataset, features, train, larger: None, parts });
        }
        let induced = |parts: &[Part]| {
            let nodes = nodes_in(dataset.split(), order.as_deref(), parts);
            Arc::new(Block::induced(dataset.graph(), &nodes))
        };
        let blocks = [induced(&[Part::Train]), induced(&[Part::Train, Part::Val])];
        let [block, val] = blocks;
        let test = whole(dataset, order, None);
        let parts = [(&block, Part::Train), (&val, Part::Val), (&test, Part::Test)];
        let parts = parts.map(|(block, part)| rows_of(dataset, block.ids(), part));
        let train = View::new(block.clone(), features.rows(block.ids())?);
        Ok(Data { dataset, features, train, larger: Some([val, test]), parts })
    }

    /// The whole graph, as `predict` sees it.
    pub fn whole(dataset: &'d Dataset, scaling: Scaling) -> Result<View<'d, T>> {
        check_edges(dataset)?;
        let block = whole(dataset, dataset.order()?, None);
        let features = Features::new(dataset, scaling).rows(block.ids())?;
        Ok(View::new(block, features))
    }

    /// Calls `visit` with each view that scores are taken in, and the parts to score there.
    pub fn each_view<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&View<T>, &[usize]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Some(larger) = &self.larger else {
            return visit(&self.train, &[0, 1, 2]);
        };
        visit(&self.train, &[0])?;
        for (block, part) in larger.iter().zip([1, 2]) {
            // Other sizes: what is kept for training is of no use to it, nor the other way round.
            buffer::release();
            visit(&View::new(block.clone(), self.features.rows(block.ids())?), &[part])?;
        }
        buffer::release();
        Ok(())
    }

    /// What the data calls itself and is scored by.
    pub fn dataset(&self) -> &'d Dataset {
        self.dataset
    }
}

/// All of a dataset's graph: in a locality order if there is one, and with what a model of `hops` graph layers needs for
/// its training rows in front.
fn whole(dataset: &Dataset, order: Option<Vec<u32>>, hops: Option<usize>) -> Arc<Block<'_>> {
    let graph = dataset.graph();
    let order = match hops {
        Some(hops) => {
            let training = nodes_in(dataset.split(), None, &[Part::Train]);
            Some(nested(graph, order.as_deref(), &training, hops).order)
        }
        None => order,
    };
    let moved = order.filter(|order| !order.is_sorted());
    Arc::new(moved.map_or_else(|| Block::whole(graph), |order| Block::ordered(graph, &order)))
}

/// The nodes of `parts`, in this `order` or by their numbers.
fn nodes_in(split: &[u8], order: Option<&[u32]>, parts: &[Part]) -> Vec<u32> {
    let within = |&v: &u32| parts.iter().any(|&part| split[v as usize] == part as u8);
    match order {
        Some(order) => order.iter().copied().filter(within).collect(),
        None => (0..split.len() as u32).filter(within).collect(),
    }
}

/// The labelled rows of `part`, where `ids` are the dataset ids of the rows of a view (`None`: the row numbers).
fn rows_of(dataset: &Dataset, ids: Option<&[u32]>, part: Part) -> Rows {
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

/// Refuses a dataset that cannot be trained on.
pub fn check(dataset: &Dataset) -> Result<()> {
    check_edges(dataset)?;
    check_labels(dataset)?;
    if let LabelView::Single(classes) = dataset.labels()
        && classes.iter().all(|&c| c < 0)
    {
        return Err(Error::input(dataset.path.join(LABEL).display(), "no node has a label")
            .help("training needs labels; import the data again with them"));
    }
    if !dataset.split().contains(&(Part::Train as u8)) {
        return Err(Error::input(dataset.path.display(), "the split holds no training node")
            .help("import the data with a split, or let `data import` draw one: --split per-class, --split fraction"));
    }
    if rows_of(dataset, None, Part::Train).rows.is_empty() {
        return Err(Error::input(dataset.path.join(LABEL).display(), "no training node has a label")
            .help("import the data again: nodes without a label are taken out of the split"));
    }
    Ok(())
}

/// An id out of range would be read from nowhere.
fn check_edges(dataset: &Dataset) -> Result<()> {
    let graph = dataset.graph();
    let nodes = graph.nodes() as u32;
    match graph.indices.par_iter().position_any(|&u| u >= nodes) {
        None => Ok(()),
        Some(edge) => {
            let problem = format!("{} is not one of {nodes} nodes", graph.indices[edge]);
            Err(damaged(dataset, INDICES, edge, problem))
        }
    }
}

fn check_labels(dataset: &Dataset) -> Result<()> {
    let LabelView::Single(classes) = dataset.labels() else { return Ok(()) };
    let count = dataset.manifest.classes as i64;
    match classes.iter().position(|&c| c < -1 || c >= count) {
        None => Ok(()),
        Some(v) => Err(damaged(dataset, LABEL, v, format!("{} is not one of {count} classes", classes[v]))),
    }
}

fn damaged(dataset: &Dataset, file: &str, position: usize, problem: String) -> Error {
    Error::input(format!("{}, element {position}", dataset.path.join(file).display()), problem)
        .help("`halograph data check` lists every fault of a dataset")
}
