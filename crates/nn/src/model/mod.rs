//! Whole models: a list of stages, each a layer, a norm and a non-linearity.
//!
//! | kind | stages | parameters as in |
//! |---|---|---|
//! | GCN, GraphSAGE, GAT | `convs.i`, norm `norms.i`, activation; nothing after the last | `torch_geometric.nn.models` |
//! | GCNII | `lins.0` and activation, `convs.i` and activation, `lins.1` | PyG's example `gcn2_cora.py` |
//! | ResGCN+ | `node_encoder`, `layers.0.conv`, blocks `layers.i`, norm `layers.0.norm` and activation, `lin` | PyG's example of DeeperGCN |
//!
//! Dense layers at the end (`linear_layers`) are `lins.i`. A list is all a schedule needs: it decides when a stage's
//! three steps run and what travels between them ([`crate::layer`]).

mod messages;
mod spec;
mod stage;

use std::ops::Range;

use halograph_kernels::Real;

pub use messages::StageMessages;
pub use spec::{ActivationKind, Kind, NormKind, Spec};
pub use stage::{Norm, Stage, StageCache};

use crate::erased::AnyLayer;
use crate::gat::{Gat, Heads};
use crate::gcn::Gcn;
use crate::gcnii::Gcnii;
use crate::layer::Project;
use crate::linear::Linear;
use crate::norm::{BatchNorm, LayerNorm};
use crate::param::{Param, Scope};
use crate::residual::Residual;
use crate::sage::Sage;

/// A model, or a run of consecutive stages of one: what is applied to rows of features, in this order.
pub struct Model<T: Real> {
    /// The stages that are held here; at least one.
    pub stages: Vec<Stage<T>>,
    /// Index of the first of them in the whole model.
    first: usize,
    /// Dropout probability of the input of every stage of the whole model.
    dropouts: Vec<f64>,
}

impl<T: Real> Model<T> {
    /// A model drawn with `seed`, from rows of `inputs` features to rows of `outputs` logits.
    ///
    /// `spec` must have passed [`Spec::check`].
    pub fn new(spec: &Spec, inputs: usize, outputs: usize, seed: u64) -> Self {
        let build = Build { spec, inputs, outputs, root: Scope::new(seed) };
        let stages = match spec.kind {
            Kind::Gcn | Kind::Sage | Kind::Gat => build.stack(),
            Kind::Gcnii => build.gcnii(),
            Kind::Resgcn => build.resgcn(),
        };
        let dropouts = stages.iter().map(|stage| stage.dropout).collect();
        Model { stages, first: 0, dropouts }
    }

    /// Keeps only the stages with these indices.
    pub fn restricted_to(mut self, indices: Range<usize>) -> Self {
        let first = indices.start;
        self.stages = self.stages.drain(first - self.first..indices.end - self.first).collect();
        Model { first, ..self }
    }

    /// Indices in the whole model of the stages that are held here.
    pub fn indices(&self) -> Range<usize> {
        self.first..self.first + self.stages.len()
    }

    /// Number of stages of the whole model.
    pub fn depth(&self) -> usize {
        self.dropouts.len()
    }

    /// The stage with this index in the whole model.
    pub fn stage(&self, index: usize) -> &Stage<T> {
        &self.stages[index - self.first]
    }

    /// The stage with this index in the whole model.
    pub fn stage_mut(&mut self, index: usize) -> &mut Stage<T> {
        &mut self.stages[index - self.first]
    }

    /// Dropout probability of the input of a stage, held here or not; `None`: there is no such stage.
    pub fn dropout(&self, index: usize) -> Option<f64> {
        self.dropouts.get(index).copied()
    }

    /// How far a node sees: the number of stages that read edges.
    pub fn hops(&self) -> usize {
        self.stages.iter().filter(|stage| stage.reads_edges()).count()
    }

    /// All parameters, from the first stage to the last.
    pub fn params(&self) -> impl Iterator<Item = &Param<T>> {
        self.stages.iter().flat_map(Stage::params)
    }

    /// All parameters, from the first stage to the last.
    pub fn params_mut(&mut self) -> impl Iterator<Item = &mut Param<T>> {
        self.stages.iter_mut().flat_map(Stage::params_mut)
    }

    /// The norms that keep running statistics.
    pub(crate) fn batch_norms(&self) -> impl Iterator<Item = &BatchNorm<T>> {
        self.stages.iter().filter_map(|stage| match &stage.norm {
            Some(Norm::Batch(norm)) => Some(norm),
            _ => None,
        })
    }

    /// The norms that keep running statistics.
    pub(crate) fn batch_norms_mut(&mut self) -> impl Iterator<Item = &mut BatchNorm<T>> {
        self.stages.iter_mut().filter_map(|stage| match &mut stage.norm {
            Some(Norm::Batch(norm)) => Some(norm),
            _ => None,
        })
    }
}

struct Build<'a> {
    spec: &'a Spec,
    inputs: usize,
    outputs: usize,
    root: Scope,
}

impl Build<'_> {
    /// Layers one after the other, as PyG's `BasicGNN`.
    fn stack<T: Real>(&self) -> Vec<Stage<T>> {
        (0..self.spec.layers)
            .map(|l| {
                let last = l + 1 == self.spec.layers;
                let stage = Stage::new(self.stacked(l, last), self.dropout(l));
                if last {
                    return stage;
                }
                let norm = Norm::new(self.spec.norm, &self.root.child("norms").child(l), self.spec.hidden);
                stage.with_norm(norm).with_activation(self.spec.activation.into())
            })
            .collect()
    }

    fn stacked<T: Real>(&self, l: usize, last: bool) -> AnyLayer<T> {
        let spec = self.spec;
        let inputs = if l == 0 { self.inputs } else { spec.hidden };
        let outputs = if last { self.outputs } else { spec.hidden };
        let graph_layers = spec.layers - spec.linear_layers;
        if l >= graph_layers {
            return Box::new(Linear::new(&self.root.child("lins").child(l - graph_layers), inputs, outputs));
        }
        let scope = self.root.child("convs").child(l);
        match spec.kind {
            Kind::Gcn => Box::new(Gcn::new(&scope, inputs, outputs, spec.projects(l))),
            Kind::Gat => {
                let dropout = spec.attention_dropout;
                if !last {
                    let width = outputs / spec.heads;
                    return Box::new(Gat::new(&scope, inputs, spec.heads, width, Heads::Concat, dropout));
                }
                let heads = spec.heads_of(true);
                Box::new(Gat::new(&scope, inputs, heads, outputs, Heads::Mean, dropout))
            }
            _ => Box::new(self.sage(&scope, inputs, outputs, spec.projects(l))),
        }
    }

    fn sage<T: Real>(&self, scope: &Scope, inputs: usize, outputs: usize, project: Project) -> Sage<T> {
        let sage = Sage::new(scope, inputs, outputs, project);
        if self.spec.self_in_mean { sage.with_self_in_mean() } else { sage }
    }

    fn dropout(&self, stage: usize) -> f64 {
        if stage == 0 { self.spec.input_dropout } else { self.spec.dropout }
    }

    fn dense<T: Real>(&self, scope: &Scope, inputs: usize, outputs: usize, dropout: f64) -> Stage<T> {
        Stage::new(Box::new(Linear::new(scope, inputs, outputs)), dropout)
    }

    fn gcnii<T: Real>(&self) -> Vec<Stage<T>> {
        let &Spec { hidden, layers, alpha, theta, dropout, norm, .. } = self.spec;
        let activation = self.spec.activation.into();
        let first =
            self.dense(&self.root.child("lins").child(0), self.inputs, hidden, self.spec.input_dropout);
        let middle = (0..layers).map(|l| {
            let scope = self.root.child("convs").child(l);
            let norm = Norm::new(norm, &self.root.child("norms").child(l), hidden);
            let layer = Gcnii::new(&scope, hidden, alpha, theta, l + 1);
            Stage::new(Box::new(layer), dropout).with_norm(norm).with_activation(activation)
        });
        let last = self.dense(&self.root.child("lins").child(1), hidden, self.outputs, dropout);
        let first = first.with_activation(activation).into_initial();
        std::iter::once(first).chain(middle).chain([last]).collect()
    }

    fn resgcn<T: Real>(&self) -> Vec<Stage<T>> {
        let &Spec { hidden, layers, dropout, .. } = self.spec;
        let activation = self.spec.activation.into();
        let layer_scope = |l: usize| self.root.child("layers").child(l);
        let encoder =
            self.dense(&self.root.child("node_encoder"), self.inputs, hidden, self.spec.input_dropout);
        // As in PyG, the first block's norm is not used before its layer but after the last block.
        let mut stages = vec![
            encoder,
            Stage::new(
                Box::new(self.sage(&layer_scope(0).child("conv"), hidden, hidden, self.spec.project)),
                0.0,
            ),
        ];
        stages.extend((1..layers).map(|l| {
            let conv = |scope: &Scope| self.sage(scope, hidden, hidden, self.spec.project);
            let block = Residual::new(&layer_scope(l), hidden, activation, dropout, conv);
            Stage::new(Box::new(block), 0.0)
        }));
        let end = stages.pop().expect("an encoder and a layer");
        let norm = Norm::Layer(LayerNorm::new(&layer_scope(0).child("norm"), hidden));
        stages.push(end.with_norm(Some(norm)).with_activation(activation));
        stages.push(self.dense(&self.root.child("lin"), hidden, self.outputs, dropout));
        stages
    }
}
