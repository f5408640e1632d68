//! File formats shared by datasets and importers.

pub mod npy;
pub mod npz;
pub mod pickle;
pub mod strings;
pub mod text;
