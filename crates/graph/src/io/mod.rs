//! File formats shared by datasets and importers.

pub mod npy;
