//! Layers of graph neural networks, each with a hand-written backward. Nothing here knows of ranks or files.
//!
//! - [`layer`]: the contract: three steps forward, three steps back, over one block of edges;
//! - [`gcn`], [`sage`], [`gat`], [`gcnii`], [`residual`] (ResGCN+), [`linear`]: the layers, a file each;
//! - [`norm`]: LayerNorm and BatchNorm;
//! - [`param`]: parameters under PyG's names, and how they are drawn;
//! - [`matrix`]: row-major matrices.

pub mod gat;
pub mod gcn;
pub mod gcnii;
pub mod layer;
pub mod linear;
pub mod matrix;
pub mod norm;
pub mod param;
mod propagate;
pub mod residual;
pub mod sage;
#[cfg(test)]
mod testing;

pub use layer::{FinishGrad, Layer, Pass, Project};
pub use matrix::Matrix;
pub use param::{Param, Scope};
