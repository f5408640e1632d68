//! ResGCN+: pre-activation residual blocks around graph convolutions.
//!
//! Li, Xiong, Thabet, Ghanem, *DeeperGCN: All You Need to Train Deeper GCNs* (2020); PyG's `DeepGCNLayer`, `res+`.
//!
//! ```text
//! out = x + conv(dropout(activation(norm(x))))
//! ```
//!
//! Rows x `width` → rows x `width`; the convolution keeps the width. Norm and activation are part of `prepare`: the owner
//! of a row computes them. Parameters: `conv.*`, `norm.weight`, `norm.bias`.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::activation::Activation;
use halograph_kernels::epilogue::Epilogue;
use halograph_kernels::{Real, rows};

use super::build::Builder;
use super::sage::Sage;
use super::stage::{Norm, Stage};
use crate::convolution::Convolution;
use crate::input::Input;
use crate::layer::{FinishGrad, Pass};
use crate::matrix::Matrix;
use crate::norm::{LayerNorm, NormCache};
use crate::param::{Param, Scope};
use crate::propagation::Propagation;

/// Returns the stages of a ResGCN+ model around GraphSAGE layers: `node_encoder`, `layers.0.conv`, blocks `layers.i`, norm
/// `layers.0.norm` and activation, `lin`.
///
/// As in PyG's examples of DeeperGCN, the norm of the first block is not used before its layer but after the last block.
pub(super) fn stages<T: Real>(builder: &Builder) -> Vec<Stage<T>> {
    let spec = builder.spec;
    let (hidden, activation) = (spec.hidden, spec.activation.into());
    let scope = |l: usize| builder.root.child("layers").child(l);
    let conv =
        |scope: &Scope| Sage::new(scope, hidden, hidden, spec.project).with_self_in_mean(spec.self_in_mean);

    let encoder = builder.dense(&builder.root.child("node_encoder"), builder.inputs, hidden);
    let mut stages =
        vec![encoder.with_dropout(spec.input_dropout), Stage::new(conv(&scope(0).child("conv")))];
    let block = |l| Stage::new(Residual::new(&scope(l), hidden, activation, spec.dropout, conv));
    stages.extend((1..spec.layers).map(block));
    let norm = Norm::Layer(LayerNorm::new(&scope(0).child("norm"), hidden));
    let end = stages.pop().expect("an encoder and a layer");
    stages.push(end.with_norm(Some(norm)).with_activation(activation));
    let last = builder.dense(&builder.root.child("lin"), hidden, builder.outputs);
    stages.push(last.with_dropout(spec.dropout));
    stages
}

/// A residual block around the convolution `conv`.
#[derive(Debug, Clone)]
pub struct Residual<T, C> {
    conv: C,
    norm: LayerNorm<T>,
    activation: Activation,
    dropout: f64,
}

/// Values that the backward of a [`Residual`] needs from the forward.
#[derive(Debug, Default)]
pub struct ResidualSaved<T: Real, S> {
    conv: S,
    norm: NormCache<T>,
    /// Owned rows of the input, until they are added.
    input: Input<T>,
    /// Input of the convolution.
    active: Arc<Matrix<T>>,
    /// Gradient of the input through the shortcut, and the owned rows it belongs to.
    shortcut: (Range<usize>, Arc<Matrix<T>>),
}

impl<T: Real, C> Residual<T, C> {
    /// Creates a block over rows of `width`. `dropout` is that of the input of the convolution, which `conv` creates from
    /// its scope.
    pub fn new(
        scope: &Scope,
        width: usize,
        activation: Activation,
        dropout: f64,
        conv: impl FnOnce(&Scope) -> C,
    ) -> Self {
        let norm = LayerNorm::new(&scope.child("norm"), width);
        Residual { conv: conv(&scope.child("conv")), norm, activation, dropout }
    }

    fn tail<'a>(&self, pass: &Pass<'a, T>) -> Epilogue<'a> {
        Epilogue { activation: self.activation, mask: pass.mask(self.dropout) }
    }
}

impl<T: Real, C: Convolution<Scalar = T>> Convolution for Residual<T, C> {
    type Scalar = T;
    type Saved = ResidualSaved<T, C::Saved>;

    fn message_width(&self) -> usize {
        self.conv.message_width()
    }

    fn output_width(&self) -> usize {
        self.conv.output_width()
    }

    fn aggregates_input(&self) -> bool {
        false
    }

    fn sends_relu_output(&self) -> bool {
        self.activation == Activation::Relu && self.conv.aggregates_input()
    }

    fn propagation(&self, block: &Block) -> Propagation<T> {
        self.conv.propagation(block)
    }

    fn prepare(&self, input: Input<T>, pass: &Pass<T>, saved: &mut Self::Saved) -> Input<T> {
        let x = Matrix::clone(&input.full());
        saved.active = Arc::new(self.norm.forward(x, &self.tail(pass), &mut saved.norm));
        saved.input = input;
        self.conv.prepare(saved.active.clone().into(), pass, &mut saved.conv)
    }

    fn finish(
        &self,
        sums: Arc<Matrix<T>>,
        own: Range<usize>,
        pass: &Pass<T>,
        saved: &mut Self::Saved,
    ) -> Matrix<T> {
        let mut out = self.conv.finish(sums, own.clone(), pass, &mut saved.conv);
        let input = std::mem::take(&mut saved.input).full();
        rows::add_scaled(T::one(), input.run(own), out.data_mut());
        out
    }

    fn weight_backward(&mut self, grad: &Matrix<T>, own: Range<usize>, saved: &mut Self::Saved) {
        self.conv.weight_backward(grad, own, &mut saved.conv);
    }

    fn finish_backward(
        &mut self,
        grad: &Arc<Matrix<T>>,
        own: Range<usize>,
        pass: &Pass<T>,
        saved: &mut Self::Saved,
    ) -> FinishGrad<T> {
        saved.shortcut = (own.clone(), grad.clone());
        self.conv.finish_backward(grad, own, &inner(pass), &mut saved.conv)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        saved: &mut Self::Saved,
    ) -> Option<Matrix<T>> {
        let grad = self
            .conv
            .prepare_backward(grad, &inner(pass), &mut saved.conv)
            .expect("the inner pass needs the gradient of its input");
        let mut grad = self.norm.backward(grad, &self.tail(pass), &saved.active, &saved.norm);
        let (own, shortcut) = std::mem::take(&mut saved.shortcut);
        if !pass.input_gradient {
            return None;
        }
        grad.add_at(own.start, T::one(), &shortcut);
        Some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        [self.conv.params(), self.norm.params()].into_iter().flatten().collect()
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        [self.conv.params_mut(), self.norm.params_mut()].into_iter().flatten().collect()
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        self.conv.output_bias()
    }

    fn buffers(&self) -> Vec<&Param<T>> {
        self.conv.buffers()
    }

    fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
        self.conv.buffers_mut()
    }
}

/// Returns the pass of the convolution: its input always needs a gradient, because the norm's parameters are below it.
fn inner<'a, T: Real>(pass: &Pass<'a, T>) -> Pass<'a, T> {
    Pass { input_gradient: true, ..*pass }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Project;
    use crate::testing::*;

    fn layer<T: Real>(project: Project) -> Residual<T, Sage<T>> {
        Residual::new(&Scope::new(1), 3, Activation::Relu, 0.4, |scope| Sage::new(scope, 3, 3, project))
    }

    #[test]
    fn layer_is_sound_with_the_weight_on_either_side() {
        for project in [Project::First, Project::Last] {
            check_layer(layer(project), layer(project));
        }
    }

    #[test]
    fn names_are_those_of_deep_gcn_layers() {
        let names: Vec<String> =
            layer::<f32>(Project::Auto).params().iter().map(|p| p.name.clone()).collect();
        let want = ["conv.lin_l.weight", "conv.lin_l.bias", "conv.lin_r.weight", "norm.weight", "norm.bias"];
        assert_eq!(names, want);
    }
}
