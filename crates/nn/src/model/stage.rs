//! One stage of a model: dropout, a layer, a norm, an activation. The dropout of a stage is applied in the same pass over
//! memory as the activation of the stage before it.

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
    /// Normalises rows.
    Layer(LayerNorm<T>),
    /// Normalises columns.
    Batch(BatchNorm<T>),
}

impl<T: Real> Norm<T> {
    /// Creates a norm over rows of `width`; `None` for [`NormKind::None`].
    pub fn new(kind: NormKind, scope: &Scope, width: usize) -> Option<Self> {
        match kind {
            NormKind::None => None,
            NormKind::Layer => Some(Norm::Layer(LayerNorm::new(scope, width))),
            NormKind::Batch => Some(Norm::Batch(BatchNorm::new(scope, width))),
        }
    }
}

/// Dropout, a layer, a norm and an activation, in this order.
pub struct Stage<T: Real> {
    /// Dropout probability of the layer's input.
    pub dropout: f64,
    /// The layer.
    pub layer: AnyLayer<T>,
    /// The norm after the layer.
    pub(super) norm: Option<Norm<T>>,
    /// The activation after the norm.
    pub activation: Activation,
    /// Whether later stages read the output of this one as the initial representation ([`crate::layer::Pass::initial`]).
    pub is_initial: bool,
}

/// Values that the backward through a stage needs from the forward.
#[derive(Default)]
pub struct StageCache<T: Real> {
    /// Cache of the layer.
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

    /// Sets the norm. A bias directly before a batch norm has no effect on the loss: its gradient is set to zero.
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

    /// Returns whether the stage aggregates over edges.
    pub fn reads_edges(&self) -> bool {
        Layer::message_width(&self.layer) > 0
    }

    /// Returns whether the aggregate of constant features is the same in every step, if this is the first stage.
    pub fn has_static_aggregate(&self) -> bool {
        self.dropout == 0.0 && Layer::aggregates_input(&self.layer)
    }

    /// Returns whether messages are the output of a ReLU and perhaps a dropout. `before`: the activation of the stage before.
    pub(super) fn sends_relu_output(&self, before: Activation) -> bool {
        let sends_input = Layer::aggregates_input(&self.layer);
        Layer::sends_relu_output(&self.layer) || sends_input && before == Activation::Relu
    }

    /// Returns whether the features are read besides their static aggregate, if this is the first stage.
    pub fn reads_features_of(&self, has_aggregate: bool) -> bool {
        !has_aggregate || Layer::finish_reads_input(&self.layer)
    }

    /// Returns whether the output of a row depends on all other rows: batch norm.
    pub fn mixes_rows(&self) -> bool {
        matches!(self.norm, Some(Norm::Batch(_)))
    }

    /// Applies norm, activation and the dropout of the next stage (`mask`), in training. `merge` turns the batch-norm moments
    /// of these rows into those of the rows of all ranks.
    pub fn activate(
        &mut self,
        x: Matrix<T>,
        mask: Option<Mask>,
        cache: &mut StageCache<T>,
        merge: impl FnOnce(&mut Moments<T>),
    ) -> Arc<Matrix<T>> {
        let epilogue = Epilogue { activation: self.activation, mask };
        let out = match &mut self.norm {
            None => apply(x, &epilogue),
            Some(Norm::Layer(norm)) => norm.forward(x, &epilogue, &mut cache.norm),
            Some(Norm::Batch(norm)) => {
                let mut moments = Moments::of(x.data(), x.cols());
                merge(&mut moments);
                apply(norm.forward(x, &moments, &mut cache.norm), &epilogue)
            }
        };
        let out = Arc::new(out);
        if self.needs_output(&epilogue) {
            cache.output = out.clone();
        }
        out
    }

    /// Returns whether [`Stage::activate_backward`] needs the output of [`Stage::activate`].
    fn needs_output(&self, epilogue: &Epilogue) -> bool {
        !epilogue.is_identity() || matches!(self.norm, Some(Norm::Layer(_)))
    }

    /// Computes the backward of [`Stage::activate`]; adds to the gradients of parameters. `total` turns the batch-norm sums
    /// over these rows into sums over the rows of all ranks.
    pub fn activate_backward(
        &mut self,
        mut grad: Matrix<T>,
        mask: Option<Mask>,
        cache: &mut StageCache<T>,
        total: impl FnOnce(&mut NormSums<T>),
    ) -> Matrix<T> {
        let epilogue = Epilogue { activation: self.activation, mask };
        // Frees their memory early.
        let (norm_cache, output) = (std::mem::take(&mut cache.norm), std::mem::take(&mut cache.output));
        if let Some(Norm::Layer(norm)) = &mut self.norm {
            return norm.backward(grad, &epilogue, &output, &norm_cache);
        }
        if self.needs_output(&epilogue) {
            let width = grad.cols();
            epilogue.backward(output.data(), grad.data_mut(), width);
        }
        if let Some(Norm::Batch(norm)) = &mut self.norm {
            let mut sums = norm.gradient_sums(&grad, &norm_cache);
            total(&mut sums);
            grad = norm.backward(grad, &sums, &norm_cache);
        }
        grad
    }

    /// Applies norm and activation in evaluation.
    pub fn evaluate(&self, x: Matrix<T>) -> Matrix<T> {
        let epilogue = Epilogue { activation: self.activation, mask: None };
        match &self.norm {
            None => apply(x, &epilogue),
            Some(Norm::Layer(norm)) => norm.forward(x, &epilogue, &mut NormCache::default()),
            Some(Norm::Batch(norm)) => apply(norm.evaluate(x), &epilogue),
        }
    }

    /// Returns all parameters.
    pub fn params(&self) -> Vec<&Param<T>> {
        let norm = match &self.norm {
            None => Vec::new(),
            Some(Norm::Layer(norm)) => norm.params(),
            Some(Norm::Batch(norm)) => norm.params(),
        };
        Layer::params(&self.layer).into_iter().chain(norm).collect()
    }

    /// Returns all parameters.
    pub fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        let norm = match &mut self.norm {
            None => Vec::new(),
            Some(Norm::Layer(norm)) => norm.params_mut(),
            Some(Norm::Batch(norm)) => norm.params_mut(),
        };
        Layer::params_mut(&mut self.layer).into_iter().chain(norm).collect()
    }
}

/// Applies `epilogue` to `x`.
fn apply<T: Real>(mut x: Matrix<T>, epilogue: &Epilogue) -> Matrix<T> {
    let width = x.cols();
    epilogue.forward(x.data_mut(), width);
    x
}
