//! What a model is to be: its kind and its sizes, by PyG's names.

use halograph_graph::error::{Error, Result};
use halograph_kernels::activation::Activation;
use serde::{Deserialize, Serialize};

use crate::layer::Project;

/// The five models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// GraphSAGE with the mean aggregator.
    Sage,
    /// Graph convolutions.
    Gcn,
    /// Graph attention.
    Gat,
    /// Deep graph convolutions with initial residual.
    Gcnii,
    /// Deep residual blocks of GraphSAGE layers.
    Resgcn,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Sage, Kind::Gcn, Kind::Gat, Kind::Gcnii, Kind::Resgcn];

    /// The name in configurations and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sage => "sage",
            Kind::Gcn => "gcn",
            Kind::Gat => "gat",
            Kind::Gcnii => "gcnii",
            Kind::Resgcn => "resgcn",
        }
    }
}

/// What stands between a layer and its non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NormKind {
    /// Nothing.
    None,
    /// LayerNorm of each row.
    Layer,
    /// BatchNorm of each column.
    Batch,
}

/// The non-linearity between layers.
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

/// Layers or columns that nobody will ever ask for: so that products of sizes cannot overflow.
const MOST: usize = 1_000_000;

/// A model's kind and sizes; the widths of its ends come from the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Which of the five.
    pub kind: Kind,
    /// Layers, dense ones at the end included. Those before and after GCNII's and ResGCN+'s graph layers are not
    /// counted.
    pub layers: usize,
    /// Width between layers; of all heads together (PyG's `hidden_channels`).
    pub hidden: usize,
    /// Attention heads (GAT).
    pub heads: usize,
    /// Attention heads of the last layer, whose outputs are averaged; 0 for as many as in the others, the only
    /// number PyG's `GAT` knows (GAT).
    pub output_heads: usize,
    /// How many of the last layers are dense instead of graph layers.
    pub linear_layers: usize,
    /// Between layers.
    pub norm: NormKind,
    /// Between layers.
    pub activation: ActivationKind,
    /// Probability of dropping an element of a layer's input, the first layer's excepted.
    pub dropout: f64,
    /// Probability of dropping an element of the first layer's input.
    pub input_dropout: f64,
    /// Probability of dropping an edge in a head (GAT).
    pub attention_dropout: f64,
    /// Whether a node counts among its own neighbours in the mean, as PipeGCN has it (GraphSAGE).
    pub self_in_mean: bool,
    /// Strength of the initial residual (GCNII).
    pub alpha: f64,
    /// Strength of the weights, falling with depth (GCNII; PyG's `theta`, the paper's λ).
    pub theta: f64,
    /// On which side of an aggregation to multiply by the weight (GCN, GraphSAGE).
    pub project: Project,
}

impl Spec {
    /// What a model of this kind is when nothing more is said.
    pub fn new(kind: Kind) -> Self {
        Spec {
            kind,
            layers: 3,
            hidden: 128,
            heads: 4,
            output_heads: 0,
            linear_layers: 0,
            norm: if matches!(kind, Kind::Sage | Kind::Resgcn) { NormKind::Layer } else { NormKind::None },
            activation: if kind == Kind::Gat { ActivationKind::Elu } else { ActivationKind::Relu },
            dropout: 0.5,
            input_dropout: 0.0,
            attention_dropout: 0.0,
            self_in_mean: false,
            alpha: 0.1,
            theta: 0.5,
            project: Project::Auto,
        }
    }

    /// Number of weights that a model from `inputs` to `outputs` has at the very least: for telling, before anything is
    /// made, that it cannot be.
    pub fn least_weights(&self, inputs: usize, outputs: usize) -> u128 {
        let [inputs, outputs, hidden, layers] =
            [inputs, outputs, self.hidden, self.layers].map(|n| n as u128);
        let heads = if self.output_heads == 0 { self.heads } else { self.output_heads } as u128;
        let ends = hidden * (inputs + outputs);
        match (self.kind, layers) {
            (Kind::Gcnii | Kind::Resgcn, _) => ends + layers * hidden * hidden,
            (Kind::Gat, 1) => inputs * heads * outputs,
            (Kind::Gat, _) if self.linear_layers == 0 => {
                hidden * (inputs + (layers - 2) * hidden + heads * outputs)
            }
            (_, 1) => inputs * outputs,
            _ => ends + (layers - 2) * hidden * hidden,
        }
    }

    /// Refuses sizes that make no model, naming the key.
    pub fn check(&self) -> Result<()> {
        for (key, value) in [("layers", self.layers), ("hidden", self.hidden), ("heads", self.heads)] {
            require(value > 0, key, value, "at least 1")?;
            require(value <= MOST, key, value, "at most 1000000")?;
        }
        // Each has its names in the file of weights, whose table of contents is bounded.
        require(self.layers <= 10_000, "layers", self.layers, "at most 10000")?;
        // A thread keeps some numbers of every head at hand.
        for (key, heads) in [("heads", self.heads), ("output_heads", self.output_heads)] {
            require(heads <= 4096, key, heads, "at most 4096")?;
        }
        let drops = [self.dropout, self.input_dropout, self.attention_dropout];
        for (key, p) in ["dropout", "input_dropout", "attention_dropout"].into_iter().zip(drops) {
            require((0.0..1.0).contains(&p), key, p, "a probability from 0 up to, but not including, 1")?;
        }
        let unit = (0.0..=1.0).contains(&self.alpha);
        require(unit, "alpha", self.alpha, "a share from 0 to 1")?;
        require(self.theta.is_finite() && self.theta >= 0.0, "theta", self.theta, "0 or more")?;
        self.check_kind()
    }

    /// What only some kinds can be.
    fn check_kind(&self) -> Result<()> {
        let deep = matches!(self.kind, Kind::Gcnii | Kind::Resgcn);
        if self.kind == Kind::Gat && !self.hidden.is_multiple_of(self.heads) {
            let problem = format!("{} is not a multiple of model.heads = {}", self.hidden, self.heads);
            return Err(Error::input("model.hidden", problem)
                .help("model.hidden is the width of all heads together, as PyG's hidden_channels"));
        }
        let dense = self.linear_layers;
        require(dense < self.layers, "linear_layers", dense, "fewer than model.layers")?;
        require(
            dense == 0 || !deep,
            "linear_layers",
            dense,
            "0 for gcnii and resgcn, which end in one anyway",
        )?;
        if self.kind == Kind::Resgcn && self.norm != NormKind::Layer {
            return Err(Error::input("model.norm", "a ResGCN+ block holds a LayerNorm; no other will do")
                .help("leave model.norm (--norm) out, or set it to \"layer\""));
        }
        if self.self_in_mean && !matches!(self.kind, Kind::Sage | Kind::Resgcn) {
            return Err(Error::input("model.self_in_mean", format!("{} takes no mean", self.kind.name()))
                .help("it is for sage and resgcn; remove it"));
        }
        Ok(())
    }
}

fn require(holds: bool, key: &str, value: impl std::fmt::Display, want: &str) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::input(format!("model.{key}"), format!("{value}: must be {want}"))) }
}
