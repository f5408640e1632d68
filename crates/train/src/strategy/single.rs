//! One process computes every row: the reference that all other strategies are held to.
//!
//! ```text
//! forward    for each stage: prepare, aggregate, finish, norm and non-linearity
//! loss       over the training rows
//! backward   for each stage, last first: the same steps backwards
//! ```
//!
//! Nothing is computed that the loss does not need. A [`Plan`] knows for every stage how many of the first rows a later
//! stage reads, and gives it these as destinations; if the rows of a view are ordered by how far they are from the
//! training rows, that is few. Sums of features that never change are made once.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::dropout::{Mask, dropout_in_place};
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Stage, StageCache};
use halograph_nn::{Input, Layer, Matrix, Model, Pass};

use crate::data::{Rows, View};
use crate::loss::loss;

/// What each stage of a model computes of a view.
pub struct Plan<'v, T: Real> {
    view: &'v View<'v, T>,
    /// The block of each stage.
    blocks: Vec<Arc<Block<'v>>>,
}

impl<'v, T: Real> Plan<'v, T> {
    /// The rows that `model` must compute for the loss of `rows`.
    pub fn new(model: &Model<T>, view: &'v View<'v, T>, rows: &Rows) -> Self {
        let all = view.block.sources();
        let mut sources = needed(model, &view.block, rows);
        let destinations = sources.split_off(1);
        sources.extend(&destinations[..destinations.len() - 1]);
        debug_assert_eq!(sources[0], all, "features of every row");
        let mut blocks: Vec<Arc<Block>> = Vec::new();
        for ((stage, &destinations), &sources) in model.stages.iter().zip(&destinations).zip(&sources) {
            // One for all stages that compute the same rows: its transpose is made once.
            let same = |block: &&Arc<Block>| {
                let has_edges = block.edges() > 0 || view.block.edges() == 0;
                (block.destinations().len(), block.sources()) == (destinations, sources)
                    && has_edges == reads_edges(stage)
            };
            let block = blocks.iter().find(same).cloned();
            blocks.push(block.unwrap_or_else(|| {
                Arc::new(if reads_edges(stage) {
                    view.block.prefix(destinations, sources)
                } else {
                    Block::new(vec![0; destinations + 1], vec![], 0..destinations, vec![0; sources], None)
                })
            }));
        }
        Plan { view, blocks }
    }

    fn pass<'p>(&'p self, key: Key, stage: usize, initial: Option<&'p Matrix<T>>) -> Pass<'p, T> {
        let key = Some(key.with(stage as u64));
        Pass { key, ids: self.view.block.ids(), initial, input_gradient: stage > 0 }
    }

    /// What is dropped of the input of a stage, if there is such a stage.
    fn mask(&self, stages: &[Stage<T>], key: Key, stage: usize) -> Option<Mask<'_>> {
        self.pass(key, stage, None).mask(stages.get(stage)?.dropout)
    }
}

/// How many of the first rows are needed of the features, which are all there, and of the output of every stage.
fn needed<T: Real>(model: &Model<T>, block: &Block, rows: &Rows) -> Vec<usize> {
    let all = block.sources();
    // Leaving out very few saves nothing, and matrices of one size can share memory.
    let rounded = |rows: usize| if rows >= all - all / 32 { all } else { rows };
    let mut count = rows.rows.iter().max().map_or(0, |&r| r as usize + 1);
    let mut counts = Vec::new();
    for stage in model.stages.iter().rev() {
        count = if stage.mixes_rows() { all } else { rounded(count) };
        counts.push(count);
        if reads_edges(stage) && count < all {
            count = count.max(reach(block, count));
        }
    }
    counts.push(all);
    counts.reverse();
    counts
}

pub(crate) fn reads_edges<T: Real>(stage: &Stage<T>) -> bool {
    Layer::message_width(&stage.layer) > 0
}

/// One more than the last source that the first `rows` rows read.
fn reach(block: &Block, rows: usize) -> usize {
    let pattern = block.pattern();
    let last = (0..rows).flat_map(|r| &pattern.columns[pattern.row(r)]).max();
    last.map_or(0, |&c| c as usize + 1)
}

/// Forward, loss and backward: adds the gradients of this epoch to those of the parameters, and returns the loss.
pub fn epoch<T: Real>(model: &mut Model<T>, plan: &Plan<T>, rows: &Rows, key: Key) -> f64 {
    let (forward, logits) = Forward::run(model, plan, key);
    let (loss, grad) = loss(&logits, rows, rows.count());
    drop(logits);
    forward.backward(model, plan, key, grad);
    loss
}

/// What the backward needs of the forward.
struct Forward<T: Real> {
    caches: Vec<StageCache<T>>,
    initial: Option<Arc<Matrix<T>>>,
}

impl<T: Real> Forward<T> {
    fn run(model: &mut Model<T>, plan: &Plan<T>, key: Key) -> (Self, Arc<Matrix<T>>) {
        let mut forward = Forward { caches: Vec::new(), initial: None };
        let mut x = match plan.mask(&model.stages, key, 0) {
            Some(mask) => plan.view.features.dropped(mask),
            None => plan.view.features.clone(),
        };
        let mut out = Arc::default();
        for l in 0..model.stages.len() {
            let mask = plan.mask(&model.stages, key, l + 1);
            let (stage, block) = (&mut model.stages[l], &plan.blocks[l]);
            let pass = plan.pass(key, l, forward.initial.as_deref());
            let mut cache = StageCache::default();
            let messages = Layer::prepare(&stage.layer, x, &pass, &mut cache.layer);
            let sums = if l == 0 && sums_are_fixed(stage) {
                plan.view.sums(&stage.layer)
            } else {
                Layer::aggregate(&stage.layer, block, messages, &pass, &mut cache.layer)
            };
            let finished = Layer::finish(&stage.layer, block, sums, &pass, &mut cache.layer);
            if stage.is_initial {
                // Later stages read it as it is, the next one dropped out.
                out = stage.activate(finished, None, &mut cache, |_| ());
                forward.initial = Some(out.clone());
                x = out.clone().into();
                x = mask.map_or(x.clone(), |mask| x.dropped(mask));
            } else {
                out = stage.activate(finished, mask, &mut cache, |_| ());
                x = out.clone().into();
            }
            forward.caches.push(cache);
        }
        (forward, out)
    }

    fn backward(mut self, model: &mut Model<T>, plan: &Plan<T>, key: Key, mut grad: Matrix<T>) {
        let mut initial_grad: Option<Matrix<T>> = None;
        for l in (0..model.stages.len()).rev() {
            let mut mask = plan.mask(&model.stages, key, l + 1);
            let (stage, block) = (&mut model.stages[l], &plan.blocks[l]);
            let pass = plan.pass(key, l, self.initial.as_deref());
            let mut cache = self.caches.pop().expect("a cache for every stage");
            if stage.is_initial {
                let width = grad.cols();
                mask.take().iter().for_each(|&mask| dropout_in_place(grad.data_mut(), width, mask));
                initial_grad.take().iter().for_each(|more| grad.add_at(0, T::one(), more));
            }
            let out = stage.activate_backward(grad, mask, &mut cache, |_| ());
            let finished = Layer::finish_backward(&mut stage.layer, block, out, &pass, &mut cache.layer);
            let Some(sums) = finished.aggregated else { return };
            if let Some(share) = finished.initial {
                let like = self.initial.as_deref().expect("a stage that reads it came after it");
                let zeros = || Matrix::zeros(like.rows(), like.cols());
                initial_grad.get_or_insert_with(zeros).add_at(0, share, &sums);
            }
            let messages = Layer::aggregate_backward(&mut stage.layer, block, sums, &pass, &mut cache.layer);
            match Layer::prepare_backward(&mut stage.layer, messages, &pass, &mut cache.layer) {
                Some(below) => grad = below,
                None => return,
            }
        }
    }
}

/// Whether the first stage's sums of features are the same every time.
pub(crate) fn sums_are_fixed<T: Real>(first: &Stage<T>) -> bool {
    first.dropout == 0.0 && Layer::aggregates_input(&first.layer)
}

/// What a forward without dropout gives.
pub struct Output<T: Real> {
    /// Output of the last stage.
    pub logits: Matrix<T>,
    /// Its input: what the model has learnt to say of a node.
    pub embeddings: Input<T>,
}

/// The forward of evaluation, for every row: nothing is dropped and nothing kept but fixed sums.
pub fn evaluate<T: Real>(model: &Model<T>, view: &View<T>) -> Output<T> {
    let block = &view.block;
    let mut initial: Option<Arc<Matrix<T>>> = None;
    let mut x = view.features.clone();
    let last = model.stages.len() - 1;
    for (l, stage) in model.stages.iter().enumerate() {
        let embeddings = (l == last).then(|| x.clone());
        let pass = Pass { ids: block.ids(), initial: initial.as_deref(), ..Pass::evaluation() };
        let mut cache = Default::default();
        let messages = Layer::prepare(&stage.layer, x, &pass, &mut cache);
        let sums = if l == 0 && sums_are_fixed(stage) {
            view.sums(&stage.layer)
        } else {
            Layer::aggregate(&stage.layer, block, messages, &pass, &mut cache)
        };
        let out = stage.evaluate(Layer::finish(&stage.layer, block, sums, &pass, &mut cache));
        if let Some(embeddings) = embeddings {
            return Output { logits: out, embeddings };
        }
        let out = Arc::new(out);
        if stage.is_initial {
            initial = Some(out.clone());
        }
        x = out.into();
    }
    unreachable!("the last stage returns")
}
