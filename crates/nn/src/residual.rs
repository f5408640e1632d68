//! ResGCN+: a pre-activation residual block around any layer.
//!
//! Li, Xiong, Thabet, Ghanem, *DeeperGCN: All You Need to Train Deeper GCNs* (2020); PyG's `DeepGCNLayer`, `res+`.
//!
//! ```text
//! out = x + conv(dropout(activation(norm(x))))
//! ```
//!
//! Rows x `width` → rows x `width`, where the layer inside keeps the width. Norm and non-linearity
//! are part of `prepare`, and so are computed by a row's owner alone. Parameters: `conv.*`, `norm.weight`, `norm.bias`.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::activation::Activation;
use halograph_kernels::epilogue::Epilogue;
use halograph_kernels::{Real, rows};

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass};
use crate::matrix::Matrix;
use crate::norm::{LayerNorm, NormCache};
use crate::param::{Param, Scope};

/// A residual block around the layer `conv`.
#[derive(Debug, Clone)]
pub struct Residual<T, L> {
    conv: L,
    norm: LayerNorm<T>,
    activation: Activation,
    dropout: f64,
}

/// What the backward of a [`Residual`] needs.
#[derive(Debug, Default)]
pub struct ResidualCache<T: Real, C> {
    conv: C,
    norm: NormCache<T>,
    /// Owned rows of the input, until they are added.
    input: Input<T>,
    /// What goes into the layer inside.
    active: Arc<Matrix<T>>,
    /// Gradient of the input through the shortcut, in these owned rows.
    shortcut: (Range<usize>, Matrix<T>),
}

impl<T: Real, L: Layer<T>> Residual<T, L> {
    /// A block over rows of `width` that drops what goes into the layer inside with probability `dropout`; `conv` makes
    /// that layer from its scope.
    pub fn new(
        scope: &Scope,
        width: usize,
        activation: Activation,
        dropout: f64,
        conv: impl FnOnce(&Scope) -> L,
    ) -> Self {
        let norm = LayerNorm::new(&scope.child("norm"), width);
        Residual { conv: conv(&scope.child("conv")), norm, activation, dropout }
    }

    fn tail<'a>(&self, pass: &Pass<'a, T>) -> Epilogue<'a> {
        Epilogue { activation: self.activation, mask: pass.mask(self.dropout) }
    }
}

impl<T: Real, L: Layer<T>> Layer<T> for Residual<T, L> {
    type Cache = ResidualCache<T, L::Cache>;

    fn message_width(&self) -> usize {
        self.conv.message_width()
    }

    fn aggregates_input(&self) -> bool {
        false
    }

    fn prepare(&self, input: Input<T>, pass: &Pass<T>, cache: &mut Self::Cache) -> Input<T> {
        let x = Matrix::clone(&input.full());
        cache.active = Arc::new(self.norm.forward(x, &self.tail(pass), &mut cache.norm));
        cache.input = input;
        self.conv.prepare(cache.active.clone().into(), pass, &mut cache.conv)
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>> {
        self.conv.aggregate(block, messages, pass, &mut cache.conv)
    }

    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Arc<Matrix<T>> {
        self.conv.add_halo(block, halo, sums, pass, &mut cache.conv)
    }

    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T> {
        let mut out = self.conv.finish(block, aggregated, pass, &mut cache.conv);
        let input = std::mem::take(&mut cache.input).full();
        rows::add_scaled(T::one(), input.run(block.destinations()), out.data_mut());
        out
    }

    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> FinishGrad<T> {
        if pass.input_gradient {
            cache.shortcut = (block.destinations(), grad.clone());
        }
        self.conv.finish_backward(block, grad, &inner(pass), &mut cache.conv)
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T> {
        self.conv.halo_backward(block, grad, &inner(pass), &mut cache.conv)
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Matrix<T> {
        self.conv.aggregate_backward(block, grad, &inner(pass), &mut cache.conv)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut Self::Cache,
    ) -> Option<Matrix<T>> {
        let grad = self
            .conv
            .prepare_backward(grad, &inner(pass), &mut cache.conv)
            .expect("the inner pass wants the gradient of its input");
        let tail = self.tail(pass);
        let mut grad = self.norm.backward(grad, &tail, &cache.active, &cache.norm);
        if !pass.input_gradient {
            return None;
        }
        grad.add_at(cache.shortcut.0.start, T::one(), &cache.shortcut.1);
        Some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        [self.conv.params(), self.norm.params()].into_iter().flatten().collect()
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        [self.conv.params_mut(), self.norm.params_mut()].into_iter().flatten().collect()
    }
}

/// The pass of the layer inside: the norm's parameters stand below it, so its input always needs a gradient.
fn inner<'a, T: Real>(pass: &Pass<'a, T>) -> Pass<'a, T> {
    Pass { input_gradient: true, ..*pass }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Project;
    use crate::sage::Sage;
    use crate::testing::*;

    fn layer<T: Real>(project: Project) -> Residual<T, Sage<T>> {
        Residual::new(&Scope::new(1), 3, Activation::Relu, 0.4, |scope| Sage::new(scope, 3, 3, project))
    }

    #[test]
    fn gradients_agree_with_differences() {
        check_gradients(layer(Project::First));
        check_gradients(layer(Project::Last));
    }

    #[test]
    fn owners_and_precisions_agree() {
        check_owners(layer(Project::First));
        check_owners(layer(Project::Last));
        assert_same(&outcome(layer::<f32>(Project::Auto)), &outcome(layer::<f64>(Project::Auto)), 1e-4);
    }

    #[test]
    fn names_are_those_of_deep_gcn_layers() {
        let names: Vec<String> =
            layer::<f32>(Project::Auto).params().iter().map(|p| p.name.clone()).collect();
        let want = ["conv.lin_l.weight", "conv.lin_l.bias", "conv.lin_r.weight", "norm.weight", "norm.bias"];
        assert_eq!(names, want);
    }

    #[test]
    fn a_first_layer_needs_less() {
        check_as_first(layer(Project::First));
        check_as_first(layer(Project::Last));
    }
}
