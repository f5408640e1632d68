//! Layers of graph neural networks, each with a hand-written backward. This crate does not know ranks or files.
//!
//! - [`layer`]: the contract: three forward steps and their backward steps, over one block of edges;
//! - [`model`]: whole models, as lists of stages; one file per kind, with its layer;
//! - [`convolution`]: layers with fixed edge weights, [`propagation`]; [`linear`]: dense layers;
//! - [`erased`]: layers of a kind known at run time;
//! - [`norm`]: LayerNorm and BatchNorm;
//! - [`param`]: parameters under PyG's names, and their initialisation;
//! - [`optimizer`]: steps over all parameters of a model;
//! - [`state`]: state dicts, as safetensors bytes;
//! - [`metrics`]: scores of predictions, and of single classes;
//! - [`matrix`]: row-major matrices; [`sparse`]: sparse ones; [`input`]: what goes into a layer.

pub mod convolution;
pub mod erased;
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
pub mod propagation;
pub mod sparse;
pub mod state;
#[cfg(test)]
mod testing;

pub use input::Input;
pub use layer::{FinishGrad, Layer, Pass, Project};
pub use matrix::Matrix;
pub use model::{Model, Spec};
pub use param::{Param, Scope};
pub use sparse::Sparse;
