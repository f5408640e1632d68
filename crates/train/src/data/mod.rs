//! What is trained on: a dataset as blocks, features in the working precision, and rows whose labels count.
//!
//! Transductive training knows one [`View`], the whole graph. Inductive training knows three, each a graph of its own:
//! the training nodes, these and the validation nodes, and all.

mod features;

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_graph::dataset::{Dataset, INDICES, LABEL, LabelView, Part, Task};
use halograph_graph::error::{Error, Result};
use halograph_kernels::Real;
use halograph_nn::Matrix;
use halograph_nn::metrics::Targets;
use rayon::prelude::*;

use features::Features;
pub use features::Scaling;

/// A graph and, for its rows in this order, features.
pub struct View<'d, T> {
    /// Its edges.
    pub block: Block<'d>,
    /// One row of features a source row.
    pub features: Arc<Matrix<T>>,
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

    /// The labels, in the order of the rows.
    pub fn targets(&self) -> Targets<'_> {
        match &self.labels {
            Labels::Single(classes) => Targets::Single(classes),
            Labels::Multi(flags) => Targets::Multi(flags),
        }
    }
}

/// The parts of a split, in the order of [`Scores`](crate::event::Scores).
pub const PARTS: [Part; 3] = [Part::Train, Part::Val, Part::Test];

/// A dataset made ready for training.
pub struct Data<'d, T> {
    dataset: &'d Dataset,
    features: Features<'d>,
    /// What is trained on.
    pub train: View<'d, T>,
    /// Larger graphs to validate and to test on, if training does not see all; their features are gathered when needed.
    larger: Option<[Block<'d>; 2]>,
    /// Training, validation and test rows, each in the view it is scored in.
    pub parts: [Rows; 3],
}

impl<'d, T: Real> Data<'d, T> {
    /// Checks and loads.
    pub fn load(dataset: &'d Dataset, inductive: bool, scaling: Scaling) -> Result<Self> {
        check_edges(dataset)?;
        check_labels(dataset)?;
        let features = Features::new(dataset, scaling);
        let split = dataset.split();
        if !inductive {
            let block = Block::whole(dataset.graph());
            let train = View { block, features: Arc::new(features.all()?) };
            let parts = PARTS.map(|part| rows_of(dataset, None, part));
            return Ok(Data { dataset, features, train, larger: None, parts });
        }
        let nodes = |parts: &[Part]| nodes_in(split, parts);
        let block = Block::induced(dataset.graph(), &nodes(&[Part::Train]));
        let val = Block::induced(dataset.graph(), &nodes(&[Part::Train, Part::Val]));
        let ids = [block.ids(), val.ids(), None];
        let parts = [0, 1, 2].map(|i| rows_of(dataset, ids[i], PARTS[i]));
        let train = View { features: Arc::new(features.rows(block.ids().unwrap_or_default())?), block };
        Ok(Data { dataset, features, train, larger: Some([val, Block::whole(dataset.graph())]), parts })
    }

    /// The whole graph, as `predict` sees it.
    pub fn whole(dataset: &'d Dataset, scaling: Scaling) -> Result<View<'d, T>> {
        check_edges(dataset)?;
        let features = Features::new(dataset, scaling);
        Ok(View { block: Block::whole(dataset.graph()), features: Arc::new(features.all()?) })
    }

    /// Calls `visit` with each view that scores are taken in, and the parts to score there.
    pub fn each_view<E: From<Error>>(
        &self,
        mut visit: impl FnMut(&Block, Arc<Matrix<T>>, &[usize]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let Some([val, test]) = &self.larger else {
            return visit(&self.train.block, self.train.features.clone(), &[0, 1, 2]);
        };
        visit(&self.train.block, self.train.features.clone(), &[0])?;
        visit(val, Arc::new(self.features.rows(val.ids().unwrap_or_default())?), &[1])?;
        visit(test, Arc::new(self.features.all()?), &[2])
    }

    /// What the data calls itself and is scored by.
    pub fn dataset(&self) -> &'d Dataset {
        self.dataset
    }
}

fn nodes_in(split: &[u8], parts: &[Part]) -> Vec<u32> {
    let within = |&v: &u32| parts.iter().any(|&part| split[v as usize] == part as u8);
    (0..split.len() as u32).filter(within).collect()
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
