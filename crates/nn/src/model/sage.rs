//! GraphSAGE with the mean aggregator.
//!
//! Hamilton, Ying, Leskovec, *Inductive Representation Learning on Large Graphs* (2017); PyG's `SAGEConv`.
//!
//! ```text
//! out[v] = W_l mean_{u in N(v)} x[u] + b_l + W_r x[v]          0 without neighbours
//! ```
//!
//! Input rows x `inputs` → rows x `outputs`. Parameters: `lin_l.weight` (outputs x inputs), `lin_l.bias` (outputs),
//! `lin_r.weight` (outputs x inputs). PipeGCN's variant also counts v itself in the mean.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::Real;

use super::build::Builder;
use super::stage::Stage;
use crate::convolution::Convolution;
use crate::input::Input;
use crate::layer::{FinishGrad, Pass, Project};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};
use crate::projection::Projection;
use crate::propagation::Propagation;

/// Returns the stages of a GraphSAGE model.
pub(super) fn stages<T: Real>(builder: &Builder) -> Vec<Stage<T>> {
    let self_in_mean = builder.spec.self_in_mean;
    builder.stack(|at| {
        vec![Stage::new(
            Sage::new(&at.scope, at.inputs, at.outputs, at.project).with_self_in_mean(self_in_mean),
        )]
    })
}

/// A GraphSAGE layer.
#[derive(Debug, Clone)]
pub struct Sage<T> {
    neighbours: Projection<T>,
    own: Param<T>,
    self_in_mean: bool,
}

/// Values that the backward of a [`Sage`] needs from the forward.
#[derive(Debug, Default)]
pub struct SageSaved<T: Real> {
    /// Owned rows of the input.
    input: Input<T>,
    /// The rows that were multiplied by the neighbours' weight.
    factor: Input<T>,
    /// Gradient of the output, and the owned rows it belongs to.
    grad: (Range<usize>, Arc<Matrix<T>>),
}

impl<T: Real> Sage<T> {
    /// Creates a layer with parameters drawn from `scope`.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize, project: Project) -> Self {
        let weight = scope.kaiming("lin_l.weight", &[outputs, inputs], inputs);
        let bias = scope.kaiming("lin_l.bias", &[outputs], inputs);
        Sage {
            neighbours: Projection::new(weight, bias, project),
            own: scope.kaiming("lin_r.weight", &[outputs, inputs], inputs),
            self_in_mean: false,
        }
    }

    /// Sets whether a vertex counts among its own neighbours, as in PipeGCN.
    #[must_use]
    pub fn with_self_in_mean(self, self_in_mean: bool) -> Self {
        Sage { self_in_mean, ..self }
    }
}

impl<T: Real> Convolution for Sage<T> {
    type Scalar = T;
    type Saved = SageSaved<T>;

    fn message_width(&self) -> usize {
        self.neighbours.message_width()
    }

    fn output_width(&self) -> usize {
        self.neighbours.output_width()
    }

    fn aggregates_input(&self) -> bool {
        self.neighbours.aggregates_input()
    }

    fn propagation(&self, block: &Block) -> Propagation<T> {
        if self.self_in_mean { Propagation::mean_with_self(block) } else { Propagation::mean(block) }
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, saved: &mut SageSaved<T>) -> Input<T> {
        saved.input = input.clone();
        self.neighbours.prepare(input, &mut saved.factor)
    }

    fn finish(
        &self,
        sums: Arc<Matrix<T>>,
        own: Range<usize>,
        _: &Pass<T>,
        saved: &mut SageSaved<T>,
    ) -> Matrix<T> {
        let own = (saved.input.tall_of(own), &self.own);
        self.neighbours.finish_with_own(sums, own, &mut saved.factor)
    }

    fn weight_backward(&mut self, grad: &Matrix<T>, own: Range<usize>, saved: &mut SageSaved<T>) {
        self.own.add_grad(saved.input.tall_of(own), grad.tall());
        self.neighbours.weight_backward(grad, &mut saved.factor);
    }

    fn finish_backward(
        &mut self,
        grad: &Arc<Matrix<T>>,
        own: Range<usize>,
        pass: &Pass<T>,
        saved: &mut SageSaved<T>,
    ) -> FinishGrad<T> {
        saved.grad = (own, grad.clone());
        FinishGrad::new(self.neighbours.finish_backward(grad, pass.input_gradient))
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        saved: &mut SageSaved<T>,
    ) -> Option<Matrix<T>> {
        let mut grad = self.neighbours.prepare_backward(grad, &saved.factor, pass.input_gradient)?;
        let (own, output_grad) = std::mem::take(&mut saved.grad);
        self.own.add_back(output_grad.tall(), own, &mut grad);
        Some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.neighbours.weight, &self.neighbours.bias, &self.own]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.neighbours.weight, &mut self.neighbours.bias, &mut self.own]
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        Some(&mut self.neighbours.bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>(project: Project) -> Sage<T> {
        Sage::new(&Scope::new(1), 3, 2, project)
    }

    #[test]
    fn layer_is_sound_with_the_weight_on_either_side() {
        for project in [Project::First, Project::Last] {
            check_layer(layer(project), layer(project));
            check_layer(layer(project).with_self_in_mean(true), layer(project).with_self_in_mean(true));
        }
        assert_same(&outcome(layer::<f64>(Project::First)), &outcome(layer::<f64>(Project::Last)), 1e-12);
    }

    #[test]
    fn values_are_the_formulas() {
        for self_in_mean in [false, true] {
            let mut layer = Sage { self_in_mean, ..layer::<f64>(Project::Last) };
            scramble(&mut layer);
            let (graph, x) = (test_graph(), input(0));
            let mut want = Matrix::zeros(graph.len(), 2);
            for (v, row) in graph.iter().enumerate() {
                let mut row = row.clone();
                if self_in_mean && !row.contains(&(v as u32)) {
                    row.push(v as u32);
                }
                for (o, out) in want.run_mut(v..v + 1).iter_mut().enumerate() {
                    let times = |w: &Param<f64>, u: usize| -> f64 {
                        (0..3).map(|i| w.value[o * 3 + i] * x.run(u..u + 1)[i]).sum()
                    };
                    let sum: f64 = row.iter().map(|&u| times(&layer.neighbours.weight, u as usize)).sum();
                    *out =
                        sum / row.len().max(1) as f64 + layer.neighbours.bias.value[o] + times(&layer.own, v);
                }
            }
            assert_close(evaluate(&layer, &x).data(), want.data(), 1e-12);
        }
    }
}
