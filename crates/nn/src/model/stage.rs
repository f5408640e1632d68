//! One stage of a model: a layer, then a norm, then a non-linearity.

use std::sync::Arc;

use halograph_kernels::Real;
use halograph_kernels::activation::Activation;
use halograph_kernels::batch_norm::Moments;

use super::NormKind;
use crate::erased::{AnyCache, AnyLayer};
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

/// A layer and what follows it.
pub struct Stage<T> {
    /// The layer.
    pub layer: AnyLayer<T>,
    /// What follows the layer.
    pub norm: Option<Norm<T>>,
    /// What follows the norm.
    pub activation: Activation,
    /// Whether later stages mix this stage's output in ([`crate::layer::Pass::initial`]).
    pub is_initial: bool,
}

/// What the backward through a stage needs of its forward.
#[derive(Default)]
pub struct StageCache<T> {
    /// The layer's.
    pub layer: AnyCache,
    norm: NormCache<T>,
    /// The stage's output, if its non-linearity needs it.
    output: Arc<Matrix<T>>,
}

impl<T: Real> Stage<T> {
    /// A layer that nothing follows.
    pub fn new(layer: AnyLayer<T>) -> Self {
        Stage { layer, norm: None, activation: Activation::Identity, is_initial: false }
    }

    pub(super) fn with_norm(self, norm: Option<Norm<T>>) -> Self {
        Stage { norm, ..self }
    }

    pub(super) fn with_activation(self, activation: Activation) -> Self {
        Stage { activation, ..self }
    }

    pub(super) fn into_initial(self) -> Self {
        Stage { is_initial: true, ..self }
    }

    /// Norm and non-linearity in training. `merge` turns the moments of these rows into those of all rows there are.
    pub fn activate(
        &mut self,
        x: Matrix<T>,
        cache: &mut StageCache<T>,
        merge: impl FnOnce(&mut Moments<T>),
    ) -> Arc<Matrix<T>> {
        let mut x = match &mut self.norm {
            None => x,
            Some(Norm::Layer(norm)) => norm.forward(x, &mut cache.norm),
            Some(Norm::Batch(norm)) => {
                let mut moments = Moments::of(x.data(), x.cols());
                merge(&mut moments);
                norm.forward(x, &moments, &mut cache.norm)
            }
        };
        self.activation.forward(x.data_mut());
        let out = Arc::new(x);
        if self.activation != Activation::Identity {
            cache.output = out.clone();
        }
        out
    }

    /// The backward of [`Stage::activate`]; adds to the gradients of parameters. `total` turns the sums over these rows
    /// into those over all rows there are.
    pub fn activate_backward(
        &mut self,
        mut grad: Matrix<T>,
        cache: &mut StageCache<T>,
        total: impl FnOnce(&mut NormSums<T>),
    ) -> Matrix<T> {
        if self.activation != Activation::Identity {
            self.activation.backward(cache.output.data(), grad.data_mut());
            cache.output = Arc::default();
        }
        match &mut self.norm {
            None => grad,
            Some(Norm::Layer(norm)) => norm.backward(grad, &cache.norm),
            Some(Norm::Batch(norm)) => {
                let mut sums = norm.gradient_sums(&grad, &cache.norm);
                total(&mut sums);
                norm.backward(grad, &sums, &cache.norm)
            }
        }
    }

    /// Norm and non-linearity in evaluation.
    pub fn evaluate(&self, x: Matrix<T>) -> Matrix<T> {
        let mut x = match &self.norm {
            None => x,
            Some(Norm::Layer(norm)) => norm.forward(x, &mut NormCache::default()),
            Some(Norm::Batch(norm)) => norm.evaluate(x),
        };
        self.activation.forward(x.data_mut());
        x
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
