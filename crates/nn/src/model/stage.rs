//! One stage of a model: dropout, a layer, then a norm, then a non-linearity. The dropout is done by whoever makes the
//! input: in the same pass as the non-linearity of the stage before.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_kernels::activation::Activation;
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::dropout::Mask;
use halograph_kernels::epilogue::Epilogue;

use super::NormKind;
use crate::erased::{AnyCache, AnyLayer, ErasedLayer};
use crate::layer::Layer;
use crate::matrix::Matrix;
use crate::norm::{BatchNorm, LayerNorm, NormCache, NormSums};
use crate::param::{Param, Scope};

/// A norm of either kind.
pub enum Norm<T> {
    /// Of rows.
    Layer(LayerNorm<T>),
    /// Of columns.
    Batch(BatchNorm<T>),
}

impl<T: Real> Norm<T> {
    /// A new norm over rows of `width`, if there is to be one.
    pub fn new(kind: NormKind, scope: &Scope, width: usize) -> Option<Self> {
        match kind {
            NormKind::None => None,
            NormKind::Layer => Some(Norm::Layer(LayerNorm::new(scope, width))),
            NormKind::Batch => Some(Norm::Batch(BatchNorm::new(scope, width))),
        }
    }
}

/// A layer, what precedes and what follows it.
pub struct Stage<T: Real> {
    /// Probability of dropping an element of the layer's input.
    pub dropout: f64,
    /// The layer.
    pub layer: AnyLayer<T>,
    /// What follows the layer.
    pub(super) norm: Option<Norm<T>>,
    /// What follows the norm.
    pub activation: Activation,
    /// Whether later stages mix this stage's output in ([`crate::layer::Pass::initial`]).
    pub is_initial: bool,
}

/// What the backward through a stage needs of its forward.
#[derive(Default)]
pub struct StageCache<T: Real> {
    /// The layer's.
    pub layer: AnyCache,
    norm: NormCache<T>,
    /// The stage's output, if its backward needs it.
    output: Arc<Matrix<T>>,
}

impl<T: Real> Stage<T> {
    /// Creates a stage of a layer alone, without dropout, norm and activation.
    pub fn new(layer: impl ErasedLayer<T> + Send + Sync + 'static) -> Self {
        let (dropout, activation) = (0.0, Activation::Identity);
        Stage { dropout, layer: Box::new(layer), norm: None, activation, is_initial: false }
    }

    pub(super) fn with_dropout(self, dropout: f64) -> Self {
        Stage { dropout, ..self }
    }

    pub(super) fn with_norm(mut self, norm: Option<Norm<T>>) -> Self {
        self.set_norm(norm);
        self
    }

    pub(super) fn set_norm(&mut self, norm: Option<Norm<T>>) {
        if matches!(norm, Some(Norm::Batch(_))) {
            Layer::output_bias(&mut self.layer).into_iter().for_each(Param::set_inert);
        }
        self.norm = norm;
    }

    pub(super) fn with_activation(self, activation: Activation) -> Self {
        Stage { activation, ..self }
    }

    pub(super) fn into_initial(self) -> Self {
        Stage { is_initial: true, ..self }
    }

    /// Whether the stage reads edges: its messages have a width.
    pub fn reads_edges(&self) -> bool {
        Layer::message_width(&self.layer) > 0
    }

    /// Whether the aggregate of the model's features by this stage, its first one, is the same in every step.
    pub fn has_static_aggregate(&self) -> bool {
        self.dropout == 0.0 && Layer::aggregates_input(&self.layer)
    }

    /// Whether the output of one row depends on all others, by its norm.
    pub fn mixes_rows(&self) -> bool {
        matches!(self.norm, Some(Norm::Batch(_)))
    }

    /// Norm, non-linearity, and what the next stage drops of its input (`mask`), in training. `merge` turns the moments
    /// of these rows into those of all rows there are.
    pub fn activate(
        &mut self,
        x: Matrix<T>,
        mask: Option<Mask>,
        cache: &mut StageCache<T>,
        merge: impl FnOnce(&mut Moments<T>),
    ) -> Arc<Matrix<T>> {
        let tail = Epilogue { activation: self.activation, mask };
        let out = match &mut self.norm {
            None => finish(x, &tail),
            Some(Norm::Layer(norm)) => norm.forward(x, &tail, &mut cache.norm),
            Some(Norm::Batch(norm)) => {
                let mut moments = Moments::of(x.data(), x.cols());
                merge(&mut moments);
                finish(norm.forward(x, &moments, &mut cache.norm), &tail)
            }
        };
        let out = Arc::new(out);
        if self.needs_output(&tail) {
            cache.output = out.clone();
        }
        out
    }

    /// Whether the backward through norm and non-linearity reads what they gave.
    fn needs_output(&self, tail: &Epilogue) -> bool {
        !tail.is_identity() || matches!(self.norm, Some(Norm::Layer(_)))
    }

    /// The backward of [`Stage::activate`]; adds to the gradients of parameters. `total` turns the sums over these rows
    /// into those over all rows there are.
    pub fn activate_backward(
        &mut self,
        mut grad: Matrix<T>,
        mask: Option<Mask>,
        cache: &mut StageCache<T>,
        total: impl FnOnce(&mut NormSums<T>),
    ) -> Matrix<T> {
        let tail = Epilogue { activation: self.activation, mask };
        // Nobody needs them afterwards, but somebody their memory.
        let (norm_cache, output) = (std::mem::take(&mut cache.norm), std::mem::take(&mut cache.output));
        if let Some(Norm::Layer(norm)) = &mut self.norm {
            return norm.backward(grad, &tail, &output, &norm_cache);
        }
        if self.needs_output(&tail) {
            let width = grad.cols();
            tail.backward(output.data(), grad.data_mut(), width);
        }
        if let Some(Norm::Batch(norm)) = &mut self.norm {
            let mut sums = norm.gradient_sums(&grad, &norm_cache);
            total(&mut sums);
            grad = norm.backward(grad, &sums, &norm_cache);
        }
        grad
    }

    /// Norm and non-linearity in evaluation.
    pub fn evaluate(&self, x: Matrix<T>) -> Matrix<T> {
        let tail = Epilogue { activation: self.activation, mask: None };
        match &self.norm {
            None => finish(x, &tail),
            Some(Norm::Layer(norm)) => norm.forward(x, &tail, &mut NormCache::default()),
            Some(Norm::Batch(norm)) => finish(norm.evaluate(x), &tail),
        }
    }

    /// All parameters.
    pub fn params(&self) -> Vec<&Param<T>> {
        let norm = match &self.norm {
            None => Vec::new(),
            Some(Norm::Layer(norm)) => norm.params(),
            Some(Norm::Batch(norm)) => norm.params(),
        };
        Layer::params(&self.layer).into_iter().chain(norm).collect()
    }

    /// All parameters.
    pub fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        let norm = match &mut self.norm {
            None => Vec::new(),
            Some(Norm::Layer(norm)) => norm.params_mut(),
            Some(Norm::Batch(norm)) => norm.params_mut(),
        };
        Layer::params_mut(&mut self.layer).into_iter().chain(norm).collect()
    }
}

fn finish<T: Real>(mut x: Matrix<T>, tail: &Epilogue) -> Matrix<T> {
    let width = x.cols();
    tail.forward(x.data_mut(), width);
    x
}
