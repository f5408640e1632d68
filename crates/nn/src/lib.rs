//! Layers of graph neural networks, each with a hand-written backward. Nothing here knows of ranks or files.
//!
//! - [`layer`]: the contract: three steps forward, three steps back, over one block of edges;
//! - [`gcn`], [`sage`], [`gat`], [`gcnii`], [`residual`] (ResGCN+), [`linear`]: the layers, a file each;
//! - [`model`]: whole models, as lists of stages; [`erased`]: layers of a kind known at run time;
//! - [`norm`]: LayerNorm and BatchNorm;
//! - [`param`]: parameters under PyG's names, and how they are drawn;
//! - [`optimizer`]: steps over all parameters of a model;
//! - [`state`]: state dicts, as safetensors bytes;
//! - [`metrics`]: scores of predictions;
//! - [`matrix`]: row-major matrices; [`input`]: what goes into a layer.

pub mod erased;
pub mod gat;
pub mod gcn;
pub mod gcnii;
pub mod input;
pub mod layer;
pub mod linear;
pub mod matrix;
pub mod metrics;
pub mod model;
pub mod norm;
pub mod optimizer;
pub mod param;
mod projection;
mod propagate;
pub mod residual;
pub mod sage;
pub mod state;
#[cfg(test)]
mod testing;

pub use input::Input;
pub use layer::{FinishGrad, Layer, Pass, Project};
pub use matrix::Matrix;
pub use model::{Model, Spec};
pub use param::{Param, Scope};
