//! Graph convolution.
//!
//! Kipf, Welling, *Semi-Supervised Classification with Graph Convolutional Networks* (2017); PyG's `GCNConv`.
//!
//! ```text
//! out[v] = Σ_{u in N(v) ∪ {v}} W x[u] / √(d̂(u) d̂(v)) + b          d̂ = in-degree with the self-loop
//! ```
//!
//! Input rows x `inputs` → rows x `outputs`. Parameters: `lin.weight` (outputs x inputs), `bias` (outputs).
//! A stored self-loop is not doubled.

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

/// Returns the stages of a GCN.
pub(super) fn stages<T: Real>(builder: &Builder) -> Vec<Stage<T>> {
    builder.stack(|at| vec![Stage::new(Gcn::new(&at.scope, at.inputs, at.outputs, at.project))])
}

/// A graph convolution.
#[derive(Debug, Clone)]
pub struct Gcn<T> {
    projection: Projection<T>,
}

impl<T: Real> Gcn<T> {
    /// Creates a layer with parameters drawn from `scope`.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize, project: Project) -> Self {
        let weight = scope.glorot("lin.weight", &[outputs, inputs]);
        let bias = scope.constant("bias", &[outputs], 0.0);
        Gcn { projection: Projection::new(weight, bias, project) }
    }
}

impl<T: Real> Convolution for Gcn<T> {
    type Scalar = T;
    /// The rows that were multiplied by the weight.
    type Saved = Input<T>;

    fn message_width(&self) -> usize {
        self.projection.message_width()
    }

    fn output_width(&self) -> usize {
        self.projection.output_width()
    }

    fn aggregates_input(&self) -> bool {
        self.projection.aggregates_input()
    }

    fn finish_reads_input(&self) -> bool {
        false
    }

    fn propagation(&self, block: &Block) -> Propagation<T> {
        Propagation::symmetric(block, T::one())
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, factor: &mut Input<T>) -> Input<T> {
        self.projection.prepare(input, factor)
    }

    fn finish(
        &self,
        sums: Arc<Matrix<T>>,
        own: Range<usize>,
        _: &Pass<T>,
        factor: &mut Input<T>,
    ) -> Matrix<T> {
        self.projection.finish(sums, own.len(), factor)
    }

    fn weight_backward(&mut self, grad: &Matrix<T>, _: Range<usize>, factor: &mut Input<T>) {
        self.projection.weight_backward(grad, factor);
    }

    fn finish_backward(
        &mut self,
        grad: &Arc<Matrix<T>>,
        _: Range<usize>,
        pass: &Pass<T>,
        _: &mut Input<T>,
    ) -> FinishGrad<T> {
        FinishGrad::new(self.projection.finish_backward(grad, pass.input_gradient))
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        factor: &mut Input<T>,
    ) -> Option<Matrix<T>> {
        self.projection.prepare_backward(grad, factor, pass.input_gradient)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.projection.bias, &self.projection.weight]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.projection.bias, &mut self.projection.weight]
    }

    fn output_bias(&mut self) -> Option<&mut Param<T>> {
        Some(&mut self.projection.bias)
    }
}

#[cfg(test)]
mod tests {
    use halograph_kernels::rows;

    use super::*;
    use crate::testing::*;

    fn layer<T: Real>(project: Project) -> Gcn<T> {
        Gcn::new(&Scope::new(1), 3, 2, project)
    }

    #[test]
    fn layer_is_sound_with_the_weight_on_either_side() {
        for project in [Project::First, Project::Last] {
            check_layer(layer(project), layer(project));
        }
        assert_same(&outcome(layer::<f64>(Project::First)), &outcome(layer::<f64>(Project::Last)), 1e-12);
    }

    #[test]
    fn values_are_the_formulas() {
        let mut layer = layer::<f64>(Project::Last);
        scramble(&mut layer);
        let (graph, x) = (test_graph(), input(0));
        let degree = |v: usize| graph[v].iter().filter(|&&u| u as usize != v).count() as f64 + 1.0;
        let mut want = Matrix::zeros(graph.len(), 2);
        for (v, row) in graph.iter().enumerate() {
            let others = row.iter().map(|&u| u as usize).filter(|&u| u != v);
            for u in others.chain([v]) {
                for o in 0..2 {
                    let wx: f64 =
                        (0..3).map(|i| layer.projection.weight.value[o * 3 + i] * x.run(u..u + 1)[i]).sum();
                    want.run_mut(v..v + 1)[o] += wx / (degree(u) * degree(v)).sqrt();
                }
            }
        }
        rows::add_row(want.data_mut(), &layer.projection.bias.value);
        assert_close(evaluate(&layer, &x).data(), want.data(), 1e-12);
    }
}
