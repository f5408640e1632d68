//! File formats shared by datasets and importers.

pub mod npy;
pub mod npz;
pub mod text;
