//! GIN: the graph isomorphism network.
//!
//! Xu, Hu, Leskovec, Jegelka, *How Powerful are Graph Neural Networks?* (2019); PyG's `GINConv`, as in its `GIN`.
//!
//! ```text
//! s[v]   = (1 + ε) x[v] + Σ_{u in N(v)} x[u]
//! out[v] = W₁ activation(norm(W₀ s[v] + b₀)) + b₁
//! ```
//!
//! Input rows x `inputs` → rows x `outputs`. Parameters: `nn.lins.0.weight` (outputs x inputs), `nn.lins.0.bias`,
//! `nn.lins.1.weight` (outputs x outputs), `nn.lins.1.bias`, `nn.norms.0.*`, and `eps` (1), which is trained or fixed.
//! A stored self-loop counts as a neighbour.
//!
//! A layer is two stages: [`Gin`] computes `W₀ s + b₀`, a dense layer follows. The norm of the MLP is thus the norm of a
//! stage, and its batch statistics are over the rows of all ranks.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;
use halograph_kernels::rows::sum_over_rows;

use super::build::Builder;
use super::stage::{Norm, Stage};
use crate::convolution::Convolution;
use crate::input::Input;
use crate::layer::{FinishGrad, Pass, Project};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};
use crate::projection::Projection;
use crate::propagation::Propagation;

/// Returns the stages of a GIN.
pub(super) fn stages<T: Real>(builder: &Builder) -> Vec<Stage<T>> {
    let spec = builder.spec;
    builder.stack(|at| {
        let mlp = at.scope.child("nn");
        let sum = Gin::new(&at.scope, at.inputs, at.outputs, at.project).with_trained_eps(spec.train_eps);
        let norm = Norm::new(spec.norm, &mlp.child("norms").child(0), at.outputs);
        vec![
            Stage::new(sum).with_norm(norm).with_activation(spec.activation.into()),
            builder.dense(&mlp.child("lins").child(1), at.outputs, at.outputs),
        ]
    })
}

/// The sum of a GIN layer and the first linear layer of its MLP.
#[derive(Debug, Clone)]
pub struct Gin<T> {
    eps: Param<T>,
    is_eps_trained: bool,
    projection: Projection<T>,
}

/// Values that the backward of a [`Gin`] needs from the forward.
#[derive(Debug, Default)]
pub struct GinSaved<T: Real> {
    /// Messages of owned rows, until the self term is computed; in training of ε until its gradient is computed.
    messages: Input<T>,
    /// The rows that were multiplied by the weight.
    factor: Input<T>,
    /// Gradient of `s`, projected or not as messages are, and the owned rows it belongs to.
    grad: (Range<usize>, Arc<Matrix<T>>),
}

impl<T: Real> Gin<T> {
    /// Creates a layer with parameters drawn from `scope` and a fixed ε of 0.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize, project: Project) -> Self {
        let weight = scope.kaiming("nn.lins.0.weight", &[outputs, inputs], inputs);
        let bias = scope.kaiming("nn.lins.0.bias", &[outputs], inputs);
        let eps = scope.constant("eps", &[1], 0.0);
        Gin { eps, is_eps_trained: false, projection: Projection::new(weight, bias, project) }
    }

    /// Sets whether ε is a parameter.
    #[must_use]
    pub fn with_trained_eps(self, is_eps_trained: bool) -> Self {
        Gin { is_eps_trained, ..self }
    }

    /// Returns `1 + ε`.
    fn self_weight(&self) -> T {
        T::one() + self.eps.value[0]
    }
}

impl<T: Real> Convolution for Gin<T> {
    type Scalar = T;
    type Saved = GinSaved<T>;

    fn message_width(&self) -> usize {
        self.projection.message_width()
    }

    fn output_width(&self) -> usize {
        self.projection.output_width()
    }

    fn aggregates_input(&self) -> bool {
        self.projection.aggregates_input()
    }

    fn propagation(&self, block: &Block) -> Propagation<T> {
        // Without the self term: a static aggregate stays valid when ε changes.
        Propagation::sum(block)
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, saved: &mut GinSaved<T>) -> Input<T> {
        saved.messages = self.projection.prepare(input, &mut saved.factor);
        saved.messages.clone()
    }

    fn finish(
        &self,
        sums: Arc<Matrix<T>>,
        own: Range<usize>,
        _: &Pass<T>,
        saved: &mut GinSaved<T>,
    ) -> Matrix<T> {
        let rows = own.len();
        let mut sums = Matrix::first_rows(sums, rows);
        saved.messages.add_scaled_to(self.self_weight(), own, &mut sums);
        if !self.is_eps_trained {
            saved.messages = Input::default();
        }
        self.projection.finish(Arc::new(sums), rows, &mut saved.factor)
    }

    fn weight_backward(&mut self, grad: &Matrix<T>, _: Range<usize>, saved: &mut GinSaved<T>) {
        self.projection.weight_backward(grad, &mut saved.factor);
    }

    fn finish_backward(
        &mut self,
        grad: &Arc<Matrix<T>>,
        own: Range<usize>,
        pass: &Pass<T>,
        saved: &mut GinSaved<T>,
    ) -> FinishGrad<T> {
        let grad = self.projection.finish_backward(grad, pass.input_gradient || self.is_eps_trained);
        if let Some(grad) = grad.as_ref().filter(|_| self.is_eps_trained) {
            let messages = std::mem::take(&mut saved.messages);
            self.eps.grad[0] += inner_product(&messages, own.start, grad);
        }
        saved.grad = (own, grad.clone().unwrap_or_default());
        let is_needed_below = pass.input_gradient || !self.aggregates_input();
        FinishGrad::new(grad.filter(|_| is_needed_below))
    }

    fn prepare_backward(
        &mut self,
        mut grad: Matrix<T>,
        pass: &Pass<T>,
        saved: &mut GinSaved<T>,
    ) -> Option<Matrix<T>> {
        let (own, sums_grad) = std::mem::take(&mut saved.grad);
        grad.add_at(own.start, self.self_weight(), &sums_grad);
        self.projection.prepare_backward(grad, &saved.factor, pass.input_gradient)
    }

    fn params(&self) -> Vec<&Param<T>> {
        let eps = self.is_eps_trained.then_some(&self.eps);
        eps.into_iter().chain([&self.projection.weight, &self.projection.bias]).collect()
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        let eps = self.is_eps_trained.then_some(&mut self.eps);
        eps.into_iter().chain([&mut self.projection.weight, &mut self.projection.bias]).collect()
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        Some(&mut self.projection.bias)
    }

    fn buffers(&self) -> Vec<&Param<T>> {
        if self.is_eps_trained { Vec::new() } else { vec![&self.eps] }
    }

    fn buffers_mut(&mut self) -> Vec<&mut Param<T>> {
        if self.is_eps_trained { Vec::new() } else { vec![&mut self.eps] }
    }
}

/// Returns `Σ x[first + r] · y[r]` over the rows r of `y`, column by column: rounding errors stay small.
fn inner_product<T: Real>(x: &Input<T>, first: usize, y: &Matrix<T>) -> T {
    let mut columns = vec![T::zero(); y.cols()];
    sum_over_rows(y.rows(), &mut columns, |run, columns| {
        let x = x.run(first + run.start..first + run.end);
        let rows = x.chunks_exact(y.cols()).zip(y.run(run).chunks_exact(y.cols()));
        for (x, y) in rows {
            columns.iter_mut().zip(x).zip(y).for_each(|((sum, &x), &y)| *sum += x * y);
        }
    });
    columns.into_iter().fold(T::zero(), |sum, column| sum + column)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::testing::*;

    fn layer<T: Real>(project: Project) -> Gin<T> {
        let mut layer = Gin::new(&Scope::new(1), 3, 2, project);
        layer.eps.value[0] = T::of(0.25);
        layer
    }

    #[test]
    fn layer_is_sound_with_the_weight_on_either_side() {
        for project in [Project::First, Project::Last] {
            check_layer(layer(project), layer(project));
            check_layer(layer(project).with_trained_eps(true), layer(project).with_trained_eps(true));
        }
        for is_trained in [false, true] {
            let [first, last] =
                [Project::First, Project::Last].map(|p| layer::<f64>(p).with_trained_eps(is_trained));
            assert_same(&outcome(first), &outcome(last), 1e-12);
        }
    }

    #[test]
    fn values_are_the_formulas() {
        let mut layer = layer::<f64>(Project::Last);
        scramble(&mut layer);
        let (graph, x) = (test_graph(), input(0));
        let mut want = Matrix::zeros(graph.len(), 2);
        for (v, row) in graph.iter().enumerate() {
            for (o, out) in want.run_mut(v..v + 1).iter_mut().enumerate() {
                let times = |u: usize| -> f64 {
                    (0..3).map(|i| layer.projection.weight.value[o * 3 + i] * x.run(u..u + 1)[i]).sum()
                };
                let sum: f64 = row.iter().map(|&u| times(u as usize)).sum();
                *out = 1.25 * times(v) + sum + layer.projection.bias.value[o];
            }
        }
        assert_close(evaluate(&layer, &x).data(), want.data(), 1e-12);
    }

    #[test]
    fn eps_is_a_parameter_or_a_buffer() {
        let names = |params: Vec<&Param<f64>>| params.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        let fixed = layer::<f64>(Project::Auto);
        assert_eq!(names(fixed.params()), ["nn.lins.0.weight", "nn.lins.0.bias"]);
        assert_eq!(names(fixed.buffers()), ["eps"]);
        let trained = fixed.with_trained_eps(true);
        assert_eq!(names(trained.params()), ["eps", "nn.lins.0.weight", "nn.lins.0.bias"]);
        assert!(trained.buffers().is_empty());
    }

    #[test]
    fn inner_products_are_the_same_in_half_precision() {
        let x: Vec<f32> = (0..3000 * 2).map(|i| (i % 7) as f32 - 3.0).collect();
        let half = x.iter().map(|&x| f16::from_f32(x)).collect();
        let half = Input::<f32>::Half(Arc::new(Matrix::new(3000, 2, half)));
        let full = Input::from(Matrix::new(3000, 2, x.clone()));
        let y = Matrix::new(2500, 2, x[1000..].to_vec());
        let want: f32 = (0..5000).map(|i| x[200 + i] * x[1000 + i]).sum();
        assert_eq!(inner_product(&full, 100, &y), want);
        assert_eq!(inner_product(&half, 100, &y), want);
    }
}
