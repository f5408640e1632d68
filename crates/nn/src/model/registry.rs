//! The registry of models: the only place that lists them.

use halograph_kernels::Real;
use serde::{Deserialize, Serialize};

use super::build::Builder;
use super::spec::{ActivationKind, NormKind};
use super::stage::Stage;
use super::{gat, gcn, gcnii, gin, resgcn, sage};

macro_rules! registry {
    ($($kind:ident: $name:literal, $title:literal, $stages:path, $norm:ident, $activation:ident, $options:expr;)*) => {
        /// A kind of model.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Kind {
            $(#[doc = $title] #[serde(rename = $name)] $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: [Kind; [$($name),*].len()] = [$(Kind::$kind),*];

            /// Returns the name in configurations and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            /// Returns the name for display, e.g. `GraphSAGE`.
            pub fn title(self) -> &'static str {
                match self { $(Kind::$kind => $title,)* }
            }

            /// Returns the norm between layers if the user chooses none.
            pub(super) fn default_norm(self) -> NormKind {
                match self { $(Kind::$kind => NormKind::$norm,)* }
            }

            /// Returns the activation between layers if the user chooses none.
            pub(super) fn default_activation(self) -> ActivationKind {
                match self { $(Kind::$kind => ActivationKind::$activation,)* }
            }

            fn options(self) -> &'static [&'static str] {
                match self { $(Kind::$kind => &$options,)* }
            }

            /// Returns the stages of a model of this kind.
            pub(super) fn stages<T: Real>(self, builder: &Builder) -> Vec<Stage<T>> {
                match self { $(Kind::$kind => $stages(builder),)* }
            }
        }
    };
}

// Kind, name, title, constructor, default norm and activation, and the keys of `Spec` that only some models use.
registry! {
    Sage:   "sage",   "GraphSAGE", sage::stages,   Layer, Relu, ["linear_layers", "norm", "project", "self_in_mean"];
    Gcn:    "gcn",    "GCN",       gcn::stages,    None,  Relu, ["linear_layers", "norm", "project"];
    Gat:    "gat",    "GAT",       gat::stages,    None,  Elu,  ["attention_dropout", "heads", "linear_layers", "norm", "output_heads"];
    Gcnii:  "gcnii",  "GCNII",     gcnii::stages,  None,  Relu, ["alpha", "norm", "theta"];
    Resgcn: "resgcn", "ResGCN+",   resgcn::stages, Layer, Relu, ["project", "self_in_mean"];
    Gin:    "gin",    "GIN",       gin::stages,    Layer, Relu, ["linear_layers", "norm", "project", "train_eps"];
}

impl Kind {
    /// Returns whether models of this kind use the key `model.{key}`. Keys that no entry of the registry lists are used by
    /// all kinds.
    pub fn uses(self, key: &str) -> bool {
        self.options().contains(&key) || !Kind::ALL.iter().any(|kind| kind.options().contains(&key))
    }

    /// Returns whether models of this kind use edge weights.
    pub fn uses_edge_weights(self) -> bool {
        // Attention computes weights of its own.
        self != Kind::Gat
    }

    /// Returns the names of the kinds that use the key `model.{key}`.
    pub fn users(key: &str) -> Vec<&'static str> {
        Kind::ALL.into_iter().filter(|kind| kind.uses(key)).map(Kind::name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Spec;
    use super::*;

    #[test]
    fn options_are_keys_of_the_specification() {
        for kind in Kind::ALL {
            let spec = format!("{:?}", Spec::new(kind));
            for key in kind.options() {
                assert!(spec.contains(&format!(" {key}: ")), "{key} of {}", kind.name());
            }
        }
    }

    #[test]
    fn keys_that_no_model_lists_are_used_by_all() {
        assert!(Kind::ALL.iter().all(|kind| kind.uses("layers")));
        assert_eq!(Kind::users("heads"), ["gat"]);
    }
}
