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

use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::{Real, rows};

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass, Project};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};
use crate::projection::Projection;
use crate::propagate::Propagation;

/// A graph convolution.
#[derive(Debug, Clone)]
pub struct Gcn<T> {
    projection: Projection<T>,
    bias: Param<T>,
}

/// What the backward of a [`Gcn`] needs.
#[derive(Debug, Default)]
pub struct GcnCache<T: Real> {
    propagation: Propagation<T>,
    /// What was multiplied by the weight: the input, or the aggregate.
    factor: Input<T>,
    /// Gradient of the output, if those of parameters are still to be made of it.
    owed: Option<Arc<Matrix<T>>>,
}

impl<T: Real> Gcn<T> {
    /// A layer drawn from `scope`.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize, project: Project) -> Self {
        Gcn {
            projection: Projection::new(scope.glorot("lin.weight", &[outputs, inputs]), project),
            bias: scope.constant("bias", &[outputs], 0.0),
        }
    }

    /// Gradients of the parameters above the aggregation, from that of the output.
    fn add_grads(&mut self, grad: &Matrix<T>, cache: &mut GcnCache<T>) {
        rows::add_column_sums(grad.data(), &mut self.bias.grad);
        self.projection.weight_backward(grad, &mut cache.factor);
    }
}

impl<T: Real> Layer<T> for Gcn<T> {
    type Cache = GcnCache<T>;

    fn message_width(&self) -> usize {
        self.projection.message_width()
    }

    fn aggregates_input(&self) -> bool {
        !self.projection.is_first()
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, cache: &mut GcnCache<T>) -> Input<T> {
        self.projection.prepare(input, &mut cache.factor)
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        _: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> Arc<Matrix<T>> {
        cache.propagation = Propagation::symmetric(block, T::one());
        Arc::new(cache.propagation.forward(block, &messages))
    }

    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> Arc<Matrix<T>> {
        cache.propagation.add_halo(block, &halo, sums)
    }

    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> Matrix<T> {
        let rows = block.destinations().len();
        self.projection.finish(aggregated, rows, &self.bias.value, &mut cache.factor)
    }

    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> FinishGrad<T> {
        let grad = Arc::new(grad);
        if pass.input_gradient && block.halo().is_some() {
            cache.owed = Some(grad.clone());
        } else {
            self.add_grads(&grad, cache);
        }
        let aggregated = self.projection.finish_backward(&grad, pass.input_gradient);
        FinishGrad { aggregated, initial: None }
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        _: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> Matrix<T> {
        cache.propagation.halo_backward(block, grad)
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> Matrix<T> {
        if let Some(owed) = cache.owed.take() {
            self.add_grads(&owed, cache);
        }
        cache.propagation.backward(block, &grad)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut GcnCache<T>,
    ) -> Option<Matrix<T>> {
        self.projection.prepare_backward(grad, &cache.factor, pass.input_gradient)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.bias, &self.projection.weight]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.bias, &mut self.projection.weight]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn layer<T: Real>(project: Project) -> Gcn<T> {
        Gcn::new(&Scope::new(1), 3, 2, project)
    }

    #[test]
    fn gradients_agree_with_differences_in_both_orders() {
        check_gradients(layer(Project::First));
        check_gradients(layer(Project::Last));
    }

    #[test]
    fn both_orders_and_both_precisions_agree() {
        assert_same(&outcome(layer::<f64>(Project::First)), &outcome(layer::<f64>(Project::Last)), 1e-12);
        assert_same(&outcome(layer::<f32>(Project::Auto)), &outcome(layer::<f64>(Project::Auto)), 1e-5);
    }

    #[test]
    fn two_owners_give_what_one_gives() {
        check_owners(layer(Project::First));
        check_owners(layer(Project::Last));
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
        rows::add_row(want.data_mut(), &layer.bias.value);
        assert_close(evaluate(&layer, &x).data(), want.data(), 1e-12);
    }

    #[test]
    fn a_first_layer_needs_less() {
        check_as_first(layer(Project::First));
        check_as_first(layer(Project::Last));
    }
}
