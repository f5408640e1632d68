//! One process computes every row: the reference that all other strategies are held to.
//!
//! ```text
//! forward    for each stage: prepare, aggregate, finish, norm and non-linearity
//! loss       over the training rows
//! backward   for each stage, last first: the same steps backwards
//! ```

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::model::StageCache;
use halograph_nn::{Layer, Matrix, Model, Pass};

use crate::data::{Rows, View};
use crate::loss::loss;

/// Forward, loss and backward: adds the gradients of this epoch to those of the parameters, and returns the loss.
pub fn epoch<T: Real>(model: &mut Model<T>, view: &View<T>, rows: &Rows, key: Key) -> f64 {
    let block = &view.block;
    let count = model.stages.len();
    let mut caches: Vec<StageCache<T>> = (0..count).map(|_| StageCache::default()).collect();
    let mut initial: Option<Arc<Matrix<T>>> = None;
    let mut x = view.features.clone();
    for (l, (stage, cache)) in model.stages.iter_mut().zip(&mut caches).enumerate() {
        let pass = pass(block, key, l, initial.as_deref());
        let messages = stage.layer.prepare(x, &pass, &mut cache.layer);
        let sums = Layer::aggregate(&stage.layer, block, messages, &pass, &mut cache.layer);
        let out = Layer::finish(&stage.layer, block, sums, &pass, &mut cache.layer);
        x = stage.activate(out, cache, |_| ());
        if stage.is_initial {
            initial = Some(x.clone());
        }
    }

    let (loss, mut grad) = loss(&x, rows);
    drop(x);
    let mut initial_grad: Option<Matrix<T>> = None;
    for (l, stage) in model.stages.iter_mut().enumerate().rev() {
        let pass = pass(block, key, l, initial.as_deref());
        let mut cache = caches.pop().expect("a cache for every stage");
        if let Some(more) = initial_grad.take_if(|_| stage.is_initial) {
            grad.add_at(0, &more);
        }
        let out = stage.activate_backward(grad, &mut cache, |_| ());
        let sums = Layer::finish_backward(&mut stage.layer, block, out, &pass, &mut cache.layer);
        if let Some(more) = sums.initial {
            match &mut initial_grad {
                Some(sum) => sum.add_at(0, &more),
                None => initial_grad = Some(more),
            }
        }
        if l == 0 && !Layer::trains_messages(&stage.layer) {
            break;
        }
        let messages =
            Layer::aggregate_backward(&mut stage.layer, block, sums.aggregated, &pass, &mut cache.layer);
        match Layer::prepare_backward(&mut stage.layer, messages, &pass, &mut cache.layer) {
            Some(below) => grad = below,
            None => break,
        }
    }
    loss
}

/// What a forward without dropout gives.
pub struct Output<T> {
    /// Output of the last stage.
    pub logits: Matrix<T>,
    /// Its input: what the model has learnt to say of a node.
    pub embeddings: Arc<Matrix<T>>,
}

/// The forward of evaluation: nothing is dropped and nothing kept.
pub fn evaluate<T: Real>(model: &Model<T>, block: &Block, features: Arc<Matrix<T>>) -> Output<T> {
    let mut initial: Option<Arc<Matrix<T>>> = None;
    let mut x = features;
    let last = model.stages.len() - 1;
    for (l, stage) in model.stages.iter().enumerate() {
        let embeddings = (l == last).then(|| x.clone());
        let pass = Pass { ids: block.ids(), initial: initial.as_deref(), ..Pass::evaluation() };
        let mut cache = Default::default();
        let messages = Layer::prepare(&stage.layer, x, &pass, &mut cache);
        let sums = Layer::aggregate(&stage.layer, block, messages, &pass, &mut cache);
        let out = Layer::finish(&stage.layer, block, sums, &pass, &mut cache);
        let out = stage.evaluate(out);
        if let Some(embeddings) = embeddings {
            return Output { logits: out, embeddings };
        }
        x = Arc::new(out);
        if stage.is_initial {
            initial = Some(x.clone());
        }
    }
    unreachable!("the last stage returns")
}

fn pass<'a, T>(block: &'a Block, key: Key, stage: usize, initial: Option<&'a Matrix<T>>) -> Pass<'a, T> {
    Pass { key: Some(key.with(stage as u64)), ids: block.ids(), initial, input_gradient: stage > 0 }
}
