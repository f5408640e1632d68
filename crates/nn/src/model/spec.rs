//! The specification of a model: its kind, sizes and options, named as in PyG.

use halograph_graph::error::{Error, Result};
use halograph_kernels::activation::Activation;
use serde::{Deserialize, Serialize};

use super::registry::Kind;
use crate::layer::Project;

/// The norm between a layer and its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// No norm.
    None,
    /// LayerNorm of each row.
    Layer,
    /// BatchNorm of each column.
    Batch,
}

/// The activation between layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActivationKind {
    /// `max(x, 0)`.
    Relu,
    /// `x` above 0, `exp(x) - 1` below.
    Elu,
}

impl From<ActivationKind> for Activation {
    fn from(kind: ActivationKind) -> Self {
        match kind {
            ActivationKind::Relu => Activation::Relu,
            ActivationKind::Elu => Activation::Elu,
        }
    }
}

/// Largest number of columns or heads: keeps products of sizes from overflowing.
const MAX_SIZE: usize = 1_000_000;
/// Largest number of layers: each has names in the file of weights, whose header is bounded.
const MAX_LAYERS: usize = 10_000;
/// Largest number of attention heads: a thread keeps some numbers of every head on its stack.
const MAX_HEADS: usize = 4096;

/// The kind, sizes and options of a model. The widths of its input and output come from the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Kind of model.
    pub kind: Kind,
    /// Layers, dense ones at the end included. The dense layers before and after the graph layers of GCNII and ResGCN+
    /// do not count.
    pub layers: usize,
    /// Hidden size; of all heads together (PyG's `hidden_channels`).
    pub hidden: usize,
    /// Attention heads (GAT).
    pub heads: usize,
    /// Attention heads of the last layer, whose outputs are averaged (GAT). 0: as many as in the others, the only number
    /// that PyG's `GAT` supports.
    pub output_heads: usize,
    /// Number of last layers that are dense instead of graph layers.
    pub linear_layers: usize,
    /// Norm between layers.
    pub norm: NormKind,
    /// Activation between layers.
    pub activation: ActivationKind,
    /// Dropout probability of the input of every layer but the first.
    pub dropout: f64,
    /// Dropout probability of the input of the first layer.
    pub input_dropout: f64,
    /// Dropout probability of an edge in a head (GAT).
    pub attention_dropout: f64,
    /// Whether a node counts among its own neighbours in the mean, as in PipeGCN (GraphSAGE, ResGCN+).
    pub self_in_mean: bool,
    /// Strength of the initial residual (GCNII).
    pub alpha: f64,
    /// Strength of the weights, which falls with depth (GCNII; PyG's `theta`, the paper's λ).
    pub theta: f64,
    /// Whether the weight of a node's own row is trained (GIN).
    #[serde(default)]
    pub train_eps: bool,
    /// On which side of an aggregation to multiply by the weight.
    pub project: Project,
    /// Whether features are sparse: the first layer then multiplies by its weight before it aggregates. That product takes time
    /// in proportion to the stored values, while aggregates are far less sparse. Follows from the data: see
    /// [`Spec::resolve_input`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sparse_input: bool,
}

impl Spec {
    /// Returns the defaults of a kind.
    pub fn new(kind: Kind) -> Self {
        Spec {
            kind,
            layers: 3,
            hidden: 128,
            heads: 4,
            output_heads: 0,
            linear_layers: 0,
            norm: kind.default_norm(),
            activation: kind.default_activation(),
            dropout: 0.5,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            self_in_mean: false,
            alpha: 0.1,
            theta: 0.5,
            train_eps: false,
            project: Project::Auto,
            sparse_input: false,
        }
    }

    /// Returns the number of attention heads of the last layer.
    pub(super) fn last_heads(&self) -> usize {
        if self.output_heads == 0 { self.heads } else { self.output_heads }
    }

    /// Adapts the first layer to features that are sparse or not.
    pub fn resolve_input(&mut self, is_sparse: bool) {
        self.sparse_input = is_sparse && self.project == Project::Auto;
    }

    /// Returns how far a node sees: the number of layers that read edges.
    pub fn hops(&self) -> usize {
        self.layers - self.linear_layers
    }

    /// Refuses a specification that does not describe a model; the error names the key.
    pub fn check(&self) -> Result<()> {
        for (key, value, max) in [
            ("layers", self.layers, MAX_LAYERS),
            ("hidden", self.hidden, MAX_SIZE),
            ("heads", self.heads, MAX_HEADS),
        ] {
            require(value > 0, key, value, "at least 1")?;
            require(value <= max, key, value, &format!("at most {max}"))?;
        }
        let heads = self.output_heads;
        require(heads <= MAX_HEADS, "output_heads", heads, &format!("at most {MAX_HEADS}"))?;
        let dropouts = [self.dropout, self.input_dropout, self.attention_dropout];
        for (key, p) in ["dropout", "input_dropout", "attention_dropout"].into_iter().zip(dropouts) {
            require((0.0..1.0).contains(&p), key, p, "a probability from 0 up to, but not including, 1")?;
        }
        require((0.0..=1.0).contains(&self.alpha), "alpha", self.alpha, "from 0 to 1")?;
        require(self.theta.is_finite() && self.theta >= 0.0, "theta", self.theta, "0 or more")?;
        let dense = self.linear_layers;
        require(dense < self.layers, "linear_layers", dense, "fewer than model.layers")?;
        if self.kind.uses("heads") && !self.hidden.is_multiple_of(self.heads) {
            let problem = format!("{} is not a multiple of model.heads = {}", self.hidden, self.heads);
            return Err(Error::input("model.hidden", problem)
                .help("model.hidden is the width of all heads together, as PyG's hidden_channels"));
        }
        self.check_unused()
    }

    /// Refuses options that the model does not have, unless they are at their defaults.
    fn check_unused(&self) -> Result<()> {
        let default = Spec::new(self.kind);
        let norm = format!("{:?}", self.norm).to_lowercase();
        for (key, is_default, value) in [
            ("linear_layers", self.linear_layers == default.linear_layers, self.linear_layers.to_string()),
            ("norm", self.norm == default.norm, norm),
            ("self_in_mean", self.self_in_mean == default.self_in_mean, self.self_in_mean.to_string()),
            ("train_eps", self.train_eps == default.train_eps, self.train_eps.to_string()),
        ] {
            if !is_default && !self.kind.uses(key) {
                let problem = format!("{value}: {} does not have this option", self.kind.title());
                let help = format!("remove it; it is for {}", Kind::users(key).join(", "));
                return Err(Error::input(format!("model.{key}"), problem).help(help));
            }
        }
        Ok(())
    }
}

fn require(holds: bool, key: &str, value: impl std::fmt::Display, want: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::input(format!("model.{key}"), format!("{value}: must be {want}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_sound_defaults() {
        for kind in Kind::ALL {
            Spec::new(kind).check().unwrap();
        }
    }

    #[test]
    fn options_of_other_models_are_refused_with_key_value_and_remedy() {
        for kind in Kind::ALL {
            let spec = Spec::new(kind);
            let specs = [
                ("linear_layers", "2", Spec { linear_layers: 2, ..spec.clone() }),
                ("norm", "batch", Spec { norm: NormKind::Batch, ..spec.clone() }),
                ("self_in_mean", "true", Spec { self_in_mean: true, ..spec.clone() }),
                ("train_eps", "true", Spec { train_eps: true, ..spec.clone() }),
            ];
            for (key, value, spec) in specs {
                let found = spec.check().map_err(|e| e.to_string());
                if kind.uses(key) {
                    assert_eq!(found, Ok(()), "{key} of {}", kind.name());
                    continue;
                }
                let problem = format!("model.{key}: {value}: {} does not have this option", kind.title());
                let help = format!("help: remove it; it is for {}", Kind::users(key).join(", "));
                assert_eq!(found, Err(format!("{problem}\n  {help}")));
            }
        }
    }

    #[test]
    fn sparse_features_decide_only_where_the_user_does_not() {
        for (project, expected) in [(Project::Auto, true), (Project::First, false), (Project::Last, false)] {
            let mut spec = Spec { project, ..Spec::new(Kind::Gcn) };
            spec.resolve_input(true);
            assert_eq!(spec.sparse_input, expected, "{project:?}");
            spec.resolve_input(false);
            assert!(!spec.sparse_input);
        }
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        let refused = |spec: Spec| spec.check().unwrap_err().to_string();
        let gat = Spec::new(Kind::Gat);
        assert_eq!(refused(Spec { layers: 0, ..gat.clone() }), "model.layers: 0: must be at least 1");
        assert_eq!(
            refused(Spec { layers: 10_001, ..gat.clone() }),
            "model.layers: 10001: must be at most 10000"
        );
        assert!(refused(Spec { linear_layers: 3, ..gat.clone() }).contains("fewer than model.layers"));
        assert!(refused(Spec { heads: 3, ..gat.clone() }).starts_with("model.hidden: 128 is not a multiple"));
        assert!(refused(Spec { dropout: 1.0, ..gat }).starts_with("model.dropout: 1: must be a probability"));
    }
}
