//! One process computes every row: the reference that all other strategies are compared with.
//!
//! Nothing is computed that the loss does not need. A [`Plan`] knows for every stage how many of the first rows a later
//! stage reads, and computes only these; if the rows of a view are ordered by their distance from the training rows,
//! they are few.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::Model;

use super::{Step, StepOutcome, Strategy};
use crate::boundary::Fresh;
use crate::data::{Data, Rows, View};
use crate::error::Result;
use crate::evaluation::{self, Detail, Evaluated, Keep};
use crate::loss::loss;
use crate::requests::Requests;
use crate::stage::{StageBlock, StageRunner};

/// Training on one process.
pub struct Single<'d, T: Real> {
    data: &'d Data<'d, T>,
    plan: Plan<'d, T>,
}

impl<'d, T: Real> Single<'d, T> {
    /// Plans the training of `model` on `data`.
    pub fn new(model: &Model<T>, data: &'d Data<'d, T>) -> Result<Self> {
        let plan = Plan::new(model, &data.train, &data.parts[0])?;
        Ok(Single { data, plan: plan.with_class_weights(data.objective.weights()) })
    }
}

impl<T: Real> Strategy<T> for Single<'_, T> {
    fn steps(&self) -> u64 {
        1
    }

    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let rows = &self.data.parts[0];
        let loss = self.plan.step(model, rows, step.key)?;
        Ok(StepOutcome { loss, rows: rows.count(), requests: requests() })
    }

    fn evaluate(&mut self, model: &Model<T>, _: u64, detail: Detail) -> Result<Option<Evaluated>> {
        evaluation::scores(model, self.data, Keep::InputAggregate, detail)
    }
}

/// The rows that each stage of a model computes in a view.
pub struct Plan<'v, T: Real> {
    view: &'v View<'v, T>,
    blocks: Vec<StageBlock<'v>>,
    /// Weight of each class in the loss, if there are any.
    weights: Option<&'v [f64]>,
}

impl<'v, T: Real> Plan<'v, T> {
    /// Plans the rows that `model` must compute for the loss of `rows`, and computes its static aggregate.
    pub fn new(model: &Model<T>, view: &'v View<'v, T>, rows: &Rows) -> Result<Self> {
        let all = view.block.sources();
        let mut sources = needed(model, &view.block, rows);
        let destinations = sources.split_off(1);
        sources.extend(&destinations[..destinations.len() - 1]);
        debug_assert_eq!(sources[0], all, "features of every row");
        let mut blocks: Vec<StageBlock> = Vec::new();
        for ((stage, &destinations), &sources) in model.stages.iter().zip(&destinations).zip(&sources) {
            // One block for all stages that compute the same rows: its transpose is made once.
            let same = |block: &&StageBlock| {
                let block = &block.block;
                let has_edges = block.edges() > 0 || view.block.edges() == 0;
                (block.destinations().len(), block.sources()) == (destinations, sources)
                    && has_edges == stage.reads_edges()
            };
            let block = match blocks.iter().find(same) {
                Some(block) => block.clone(),
                None if stage.reads_edges() => {
                    StageBlock::local(Arc::new(view.block.prefix(destinations, sources)))
                }
                None => StageBlock::without_edges(destinations, sources),
            };
            blocks.push(block);
        }
        view.prepare(model, &StageBlock::local(view.block.clone()), None)?;
        Ok(Plan { view, blocks, weights: None })
    }

    /// Sets the weight of each class in the loss.
    pub fn with_class_weights(self, weights: Option<&'v [f64]>) -> Self {
        Plan { weights, ..self }
    }

    /// Runs forward, loss and backward: adds to the gradients of the parameters and returns the loss of `rows`. `key`
    /// names the random masks.
    pub fn step(&self, model: &mut Model<T>, rows: &Rows, key: Key) -> Result<f64> {
        let mut halo = Fresh;
        let mut runner = StageRunner::new(Some(key), self.view.block.ids(), None, &mut halo);
        let (tape, logits) = runner.forward_model(model, &self.blocks, self.view.input())?;
        let (loss, grad) = loss(&logits, rows, self.weights, rows.divisor(self.weights));
        drop(logits);
        runner.backward_model(model, &self.blocks, tape, grad, |_, _| ())?;
        Ok(loss)
    }
}

/// Numbers of first rows that are needed: of the features, which are all there, and of the output of every stage.
fn needed<T: Real>(model: &Model<T>, block: &Block, rows: &Rows) -> Vec<usize> {
    let all = block.sources();
    // Leaving out very few rows saves nothing, and matrices of one size can share memory.
    let rounded = |rows: usize| if rows >= all - all / 32 { all } else { rows };
    let mut count = rows.rows.iter().max().map_or(0, |&r| r as usize + 1);
    let mut counts = Vec::new();
    for stage in model.stages.iter().rev() {
        count = if stage.mixes_rows() { all } else { rounded(count) };
        counts.push(count);
        if stage.reads_edges() && count < all {
            count = count.max(reach(block, count));
        }
    }
    counts.push(all);
    counts.reverse();
    counts
}

/// Returns one more than the last source that the first `rows` rows read.
fn reach(block: &Block, rows: usize) -> usize {
    let pattern = block.pattern();
    let last = (0..rows).flat_map(|r| &pattern.columns[pattern.row(r)]).max();
    last.map_or(0, |&c| c as usize + 1)
}
