//! What the tests of whole models share: forward, backward and evaluation of a list of stages by one owner.

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::erased::AnyCache;
use halograph_nn::model::{Model, StageCache};
use halograph_nn::{Layer, Matrix, Pass};

/// What a backward needs of its forward.
pub struct Trace<T> {
    key: Option<Key>,
    caches: Vec<StageCache<T>>,
    /// Output of the stage that later ones mix in, once there is one.
    initial: Option<Arc<Matrix<T>>>,
}

fn pass<'a, T>(
    block: &'a Block,
    key: Option<Key>,
    initial: &'a Option<Arc<Matrix<T>>>,
    l: usize,
) -> Pass<'a, T> {
    Pass {
        key: key.map(|key| key.with(l as u64)),
        ids: block.ids(),
        initial: initial.as_deref(),
        input_gradient: l > 0,
    }
}

/// A training forward: logits, and what [`backward`] needs.
pub fn forward<T: Real>(
    model: &mut Model<T>,
    block: &Block,
    features: Arc<Matrix<T>>,
    key: Option<Key>,
) -> (Arc<Matrix<T>>, Trace<T>) {
    let mut trace = Trace { key, caches: Vec::new(), initial: None };
    let mut x = features;
    for (l, stage) in model.stages.iter_mut().enumerate() {
        let mut cache = StageCache::default();
        let pass = pass(block, key, &trace.initial, l);
        let messages = stage.layer.prepare(x, &pass, &mut cache.layer);
        let aggregated = stage.layer.aggregate(block, messages, &pass, &mut cache.layer);
        let out = stage.layer.finish(block, aggregated, &pass, &mut cache.layer);
        x = stage.activate(out, &mut cache, |_| {});
        trace.caches.push(cache);
        if stage.is_initial {
            trace.initial = Some(x.clone());
        }
    }
    (x, trace)
}

/// From the gradient of the logits; adds to the gradients of parameters.
pub fn backward<T: Real>(model: &mut Model<T>, block: &Block, mut trace: Trace<T>, grad: Matrix<T>) {
    let mut grad = Some(grad);
    let mut initial_grad: Option<Matrix<T>> = None;
    for (l, stage) in model.stages.iter_mut().enumerate().rev() {
        let mut out = grad.take().expect("every stage but the first gives a gradient of its input");
        if let Some(through_later) = initial_grad.take_if(|_| stage.is_initial) {
            out.add_at(0, &through_later);
        }
        let pass = pass(block, trace.key, &trace.initial, l);
        let mut cache = trace.caches.pop().expect("a cache for every stage");
        let out = stage.activate_backward(out, &mut cache, |_| {});
        let finished = stage.layer.finish_backward(block, out, &pass, &mut cache.layer);
        if let Some(part) = finished.initial {
            initial_grad.get_or_insert_with(|| Matrix::zeros(part.rows(), part.cols())).add_at(0, &part);
        }
        let messages = stage.layer.aggregate_backward(block, finished.aggregated, &pass, &mut cache.layer);
        grad = stage.layer.prepare_backward(messages, &pass, &mut cache.layer);
    }
}

/// Logits in evaluation.
pub fn evaluate<T: Real>(model: &Model<T>, block: &Block, features: Arc<Matrix<T>>) -> Arc<Matrix<T>> {
    let mut initial = None;
    let mut x = features;
    for (l, stage) in model.stages.iter().enumerate() {
        let mut cache = AnyCache::default();
        let pass = pass(block, None, &initial, l);
        let messages = stage.layer.prepare(x, &pass, &mut cache);
        let aggregated = stage.layer.aggregate(block, messages, &pass, &mut cache);
        let out = stage.layer.finish(block, aggregated, &pass, &mut cache);
        x = Arc::new(stage.evaluate(out));
        if stage.is_initial {
            initial = Some(x.clone());
        }
    }
    x
}
