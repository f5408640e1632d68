//! What the constructors of models share.

use halograph_kernels::Real;

use super::spec::Spec;
use super::stage::{Norm, Stage};
use crate::layer::Project;
use crate::linear::Linear;
use crate::param::Scope;

/// What a model is built from.
pub(super) struct Builder<'a> {
    pub(super) spec: &'a Spec,
    /// Features of an input row.
    pub(super) inputs: usize,
    /// Logits of an output row.
    pub(super) outputs: usize,
    /// Scope of all parameters.
    pub(super) root: Scope,
}

/// One graph layer of a stack.
pub(super) struct StackedLayer {
    /// `convs.i`.
    pub(super) scope: Scope,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) is_last: bool,
    /// On which side of its aggregation the layer projects.
    pub(super) project: Project,
}

impl Builder<'_> {
    /// Returns layers one after the other, as in PyG's `BasicGNN`: dropout, `convs.i`, norm `norms.i`, activation; neither
    /// norm nor activation after the last. The last `linear_layers` are dense: `lins.i`.
    ///
    /// `conv` returns the stages of one graph layer, at least one.
    pub(super) fn stack<T: Real>(&self, conv: impl Fn(&StackedLayer) -> Vec<Stage<T>>) -> Vec<Stage<T>> {
        let spec = self.spec;
        let graph_layers = spec.layers - spec.linear_layers;
        let layer = |index: usize| {
            let is_last = index + 1 == spec.layers;
            let inputs = if index == 0 { self.inputs } else { spec.hidden };
            let outputs = if is_last { self.outputs } else { spec.hidden };
            let mut stages = if index < graph_layers {
                let scope = self.root.child("convs").child(index);
                conv(&StackedLayer { scope, inputs, outputs, is_last, project: self.project(index) })
            } else {
                vec![self.dense(&self.root.child("lins").child(index - graph_layers), inputs, outputs)]
            };
            stages[0].dropout = if index == 0 { spec.input_dropout } else { spec.dropout };
            if let Some(end) = stages.last_mut().filter(|_| !is_last) {
                end.set_norm(Norm::new(spec.norm, &self.root.child("norms").child(index), spec.hidden));
                end.activation = spec.activation.into();
            }
            stages
        };
        (0..spec.layers).flat_map(layer).collect()
    }

    /// Returns a stage with a dense layer and nothing else.
    pub(super) fn dense<T: Real>(&self, scope: &Scope, inputs: usize, outputs: usize) -> Stage<T> {
        Stage::new(Linear::new(scope, inputs, outputs))
    }

    /// Returns on which side of its aggregation a layer of a stack projects. The aggregate of dense features without dropout
    /// is the same in every step: computing it once is best, however wide it is. Sparse features are projected first.
    fn project(&self, index: usize) -> Project {
        match (index, self.spec.project) {
            (0, Project::Auto) if self.spec.sparse_input => Project::First,
            (0, Project::Auto) if self.spec.input_dropout == 0.0 => Project::Last,
            (_, project) => project,
        }
    }
}
