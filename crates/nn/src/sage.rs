//! GraphSAGE with the mean aggregator.
//!
//! Hamilton, Ying, Leskovec, *Inductive Representation Learning on Large Graphs* (2017); PyG's `SAGEConv`.
//!
//! ```text
//! out[v] = W_l mean_{u in N(v)} x[u] + b_l + W_r x[v]          the mean of nothing is 0
//! ```
//!
//! Input rows x `inputs` → rows x `outputs`. Parameters: `lin_l.weight` (outputs x inputs), `lin_l.bias` (outputs),
//! `lin_r.weight` (outputs x inputs). PipeGCN's variant also counts v itself in the mean.

use std::ops::Range;
use std::sync::Arc;

use halograph_graph::block::Block;
use halograph_kernels::gemm::Start;
use halograph_kernels::{Real, rows};

use crate::input::Input;
use crate::layer::{FinishGrad, Layer, Pass, Project};
use crate::matrix::Matrix;
use crate::param::{Param, Scope};
use crate::projection::Projection;
use crate::propagate::Propagation;

/// A GraphSAGE layer.
#[derive(Debug, Clone)]
pub struct Sage<T> {
    neighbours: Projection<T>,
    bias: Param<T>,
    own: Param<T>,
    self_in_mean: bool,
}

/// What the backward of a [`Sage`] needs.
#[derive(Debug, Default)]
pub struct SageCache<T: Real> {
    propagation: Propagation<T>,
    /// Owned rows of the input.
    input: Input<T>,
    /// What was multiplied by the neighbours' weight: the same input, or the mean.
    factor: Input<T>,
    /// Gradient of the output, in these owned rows.
    grad: (Range<usize>, Arc<Matrix<T>>),
    /// Whether gradients of parameters are still to be made of it.
    is_owed: bool,
}

impl<T: Real> Sage<T> {
    /// A layer drawn from `scope`.
    pub fn new(scope: &Scope, inputs: usize, outputs: usize, project: Project) -> Self {
        Sage {
            neighbours: Projection::new(scope.kaiming("lin_l.weight", &[outputs, inputs], inputs), project),
            bias: scope.kaiming("lin_l.bias", &[outputs], inputs),
            own: scope.kaiming("lin_r.weight", &[outputs, inputs], inputs),
            self_in_mean: false,
        }
    }

    /// Counts a vertex among its own neighbours, as PipeGCN does.
    #[must_use]
    pub fn with_self_in_mean(self) -> Self {
        Sage { self_in_mean: true, ..self }
    }

    fn propagation(&self, block: &Block) -> Propagation<T> {
        if self.self_in_mean { Propagation::mean_with_self(block) } else { Propagation::mean(block) }
    }

    /// Gradients of the parameters above the aggregation, from that of the output.
    fn add_grads(&mut self, cache: &mut SageCache<T>) {
        let (own, grad) = &cache.grad;
        rows::add_column_sums(grad.data(), &mut self.bias.grad);
        self.own.add_grad(cache.input.tall_of(own.clone()), grad.tall());
        self.neighbours.weight_backward(grad, &mut cache.factor);
    }
}

impl<T: Real> Layer<T> for Sage<T> {
    type Cache = SageCache<T>;

    fn message_width(&self) -> usize {
        self.neighbours.message_width()
    }

    fn aggregates_input(&self) -> bool {
        !self.neighbours.is_first()
    }

    fn prepare(&self, input: Input<T>, _: &Pass<T>, cache: &mut SageCache<T>) -> Input<T> {
        cache.input = input.clone();
        self.neighbours.prepare(input, &mut cache.factor)
    }

    fn aggregate(
        &self,
        block: &Block,
        messages: Input<T>,
        _: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> Arc<Matrix<T>> {
        cache.propagation = self.propagation(block);
        Arc::new(cache.propagation.forward(block, &messages))
    }

    fn add_halo(
        &self,
        block: &Block,
        halo: Input<T>,
        sums: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> Arc<Matrix<T>> {
        cache.propagation.add_halo(block, &halo, sums)
    }

    fn finish(
        &self,
        block: &Block,
        aggregated: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> Matrix<T> {
        let own = block.destinations();
        let mut out = self.neighbours.finish(aggregated, own.len(), &self.bias.value, &mut cache.factor);
        self.own.project_into(cache.input.tall_of(own), Start::Kept, &mut out);
        out
    }

    fn finish_backward(
        &mut self,
        block: &Block,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> FinishGrad<T> {
        cache.grad = (block.destinations(), Arc::new(grad));
        cache.is_owed = pass.input_gradient && block.halo().is_some();
        if !cache.is_owed {
            self.add_grads(cache);
        }
        let aggregated = self.neighbours.finish_backward(&cache.grad.1, pass.input_gradient);
        FinishGrad { aggregated, initial: None }
    }

    fn halo_backward(
        &mut self,
        block: &Block,
        grad: &Matrix<T>,
        _: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> Matrix<T> {
        cache.propagation.halo_backward(block, grad)
    }

    fn aggregate_backward(
        &mut self,
        block: &Block,
        grad: Arc<Matrix<T>>,
        _: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> Matrix<T> {
        if cache.is_owed {
            self.add_grads(cache);
        }
        cache.propagation.backward(block, &grad)
    }

    fn prepare_backward(
        &mut self,
        grad: Matrix<T>,
        pass: &Pass<T>,
        cache: &mut SageCache<T>,
    ) -> Option<Matrix<T>> {
        let mut grad = self.neighbours.prepare_backward(grad, &cache.factor, pass.input_gradient)?;
        let (own, out_grad) = std::mem::take(&mut cache.grad);
        self.own.add_back(out_grad.tall(), own, &mut grad);
        Some(grad)
    }

    fn params(&self) -> Vec<&Param<T>> {
        vec![&self.neighbours.weight, &self.bias, &self.own]
    }

    fn params_mut(&mut self) -> Vec<&mut Param<T>> {
        vec![&mut self.neighbours.weight, &mut self.bias, &mut self.own]
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
    fn gradients_agree_with_differences_in_both_orders() {
        for project in [Project::First, Project::Last] {
            check_gradients(layer(project));
            check_gradients(layer(project).with_self_in_mean());
        }
    }

    #[test]
    fn both_orders_and_both_precisions_agree() {
        assert_same(&outcome(layer::<f64>(Project::First)), &outcome(layer::<f64>(Project::Last)), 1e-12);
        assert_same(&outcome(layer::<f32>(Project::Auto)), &outcome(layer::<f64>(Project::Auto)), 1e-5);
    }

    #[test]
    fn two_owners_give_what_one_gives() {
        check_owners(layer(Project::First));
        check_owners(layer(Project::Last).with_self_in_mean());
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
                    *out = sum / row.len().max(1) as f64 + layer.bias.value[o] + times(&layer.own, v);
                }
            }
            assert_close(evaluate(&layer, &x).data(), want.data(), 1e-12);
        }
    }

    #[test]
    fn a_first_layer_needs_less() {
        check_as_first(layer(Project::First));
        check_as_first(layer(Project::Last));
    }
}
