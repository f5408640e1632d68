//! Whole models: lists of stages, each dropout, a layer, a norm and an activation.
//!
//! | kind | stages | parameters as in |
//! |---|---|---|
//! | GCN, GraphSAGE, GAT | `convs.i`, norm `norms.i`, activation; neither norm nor activation after the last | `torch_geometric.nn.models` |
//! | GIN | `convs.i.nn.lins.0`, norm `convs.i.nn.norms.0`, activation, `convs.i.nn.lins.1`, norm `norms.i`, activation; neither norm nor activation after the last | `torch_geometric.nn.models` |
//! | GCNII | `lins.0` and activation, `convs.i` and activation, `lins.1` | PyG's example `gcn2_cora.py` |
//! | ResGCN+ | `node_encoder`, `layers.0.conv`, blocks `layers.i`, norm `layers.0.norm` and activation, `lin` | PyG's example of DeeperGCN |
//!
//! Dense layers at the end (`linear_layers`) are `lins.i`. A strategy walks the list and decides when the three steps of a
//! stage run and when rows are exchanged ([`crate::layer`]).
//!
//! A kind of model is one file (its layer and its constructor) and one line of the registry.

mod build;
pub mod gat;
pub mod gcn;
pub mod gcnii;
pub mod gin;
mod messages;
mod registry;
pub mod resgcn;
pub mod sage;
mod spec;
mod stage;

use std::ops::Range;

use halograph_kernels::Real;

pub use messages::{StageMessages, StageSize};
pub use registry::Kind;
pub use spec::{ActivationKind, NormKind, Spec};
pub use stage::{Norm, Stage, StageCache};

use self::build::Builder;
use crate::norm::BatchNorm;
use crate::param::{Param, Scope};

/// A model, or consecutive stages of one, in the order in which they are applied.
pub struct Model<T: Real> {
    /// The stages in memory; at least one.
    pub stages: Vec<Stage<T>>,
    /// Index of the first of `stages` in the whole model.
    first: usize,
    /// Dropout probability of the input of every stage of the whole model.
    dropouts: Vec<f64>,
}

impl<T: Real> Model<T> {
    /// Creates a model with weights drawn with `seed`, from rows of `inputs` features to rows of `outputs` logits.
    ///
    /// `spec` must have passed [`Spec::check`].
    pub fn new(spec: &Spec, inputs: usize, outputs: usize, seed: u64) -> Self {
        Model::built(Builder { spec, inputs, outputs, root: Scope::new(seed) })
    }

    /// Creates a model whose parameters have shapes but no values.
    fn outline(spec: &Spec, inputs: usize, outputs: usize) -> Self {
        Model::built(Builder { spec, inputs, outputs, root: Scope::outline() })
    }

    fn built(builder: Builder) -> Self {
        let stages = builder.spec.kind.stages(&builder);
        let dropouts = stages.iter().map(|stage| stage.dropout).collect();
        Model { stages, first: 0, dropouts }
    }

    /// Keeps only the stages with these indices.
    pub fn restricted_to(mut self, indices: Range<usize>) -> Self {
        let first = indices.start;
        self.stages = self.stages.drain(first - self.first..indices.end - self.first).collect();
        Model { first, ..self }
    }

    /// Returns the indices of `stages` in the whole model.
    pub fn indices(&self) -> Range<usize> {
        self.first..self.first + self.stages.len()
    }

    /// Returns the number of stages of the whole model.
    pub fn depth(&self) -> usize {
        self.dropouts.len()
    }

    /// Returns the stage with this index in the whole model.
    pub fn stage(&self, index: usize) -> &Stage<T> {
        &self.stages[index - self.first]
    }

    /// Returns the stage with this index in the whole model.
    pub fn stage_mut(&mut self, index: usize) -> &mut Stage<T> {
        &mut self.stages[index - self.first]
    }

    /// Returns the dropout probability of the input of any stage of the whole model; `None` if there is no such stage.
    pub fn dropout(&self, index: usize) -> Option<f64> {
        self.dropouts.get(index).copied()
    }

    /// Returns whether the messages of a stage are the output of a ReLU and perhaps a dropout. The backward multiplies the
    /// gradient of such an entry by 0 if the entry is 0, whatever it is.
    pub fn sends_relu_output(&self, index: usize) -> bool {
        // The activation of a stage that is not in memory is unknown.
        let before = index.checked_sub(self.first + 1).map(|before| self.stages[before].activation);
        self.stage(index).sends_relu_output(before.unwrap_or_default())
    }

    /// Returns the number of stages that read edges: the receptive field of a node, in hops.
    pub fn hops(&self) -> usize {
        self.stages.iter().filter(|stage| stage.reads_edges()).count()
    }

    /// Returns all parameters, from the first stage to the last.
    pub fn params(&self) -> impl Iterator<Item = &Param<T>> {
        self.stages.iter().flat_map(Stage::params)
    }

    /// Returns all parameters, from the first stage to the last.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param<T>> {
        self.stages.iter_mut().flat_map(Stage::params_mut)
    }

    /// Returns the norms with running statistics.
    pub(crate) fn batch_norms(&self) -> impl Iterator<Item = &BatchNorm<T>> {
        self.stages.iter().filter_map(|stage| match &stage.norm {
            Some(Norm::Batch(norm)) => Some(norm),
            _ => None,
        })
    }

    /// Returns the norms with running statistics.
    pub(crate) fn batch_norms_mut(&mut self) -> impl Iterator<Item = &mut BatchNorm<T>> {
        self.stages.iter_mut().filter_map(|stage| match &mut stage.norm {
            Some(Norm::Batch(norm)) => Some(norm),
            _ => None,
        })
    }
}
