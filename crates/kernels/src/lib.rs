//! Numeric kernels: pure functions on slices. Independent of layers, ranks and files.
//!
//! | modules | contents |
//! |---|---|
//! | [`keyed`] | counter-based random numbers, used by all crates |
//! | [`gemm`] | products of a tall matrix, dense or sparse, and a small one |
//! | [`sparse`], [`mod@aggregate`], [`attention`] | CSR patterns, and weighted sums along their entries |
//! | [`rows`], [`nonzero`] | gather, scatter-add, bias, column sums; rows without their zeros |
//! | [`activation`], [`dropout`], [`layer_norm`], [`batch_norm`] | element-wise and row-wise passes, forward and backward |
//! | [`epilogue`] | norm, activation and dropout fused into one pass |
//! | [`loss`], [`optim`] | losses and optimiser steps |
//! | [`buffer`] | pooled memory for large arrays |
//! | [`simd`] | instruction sets, selected at run time |
//! | [`work`], [`probe`] | FLOP and byte counts of kernels, and memory bandwidth, for the roofline |
//!
//! Matrices are row-major slices with a width. Functions are generic over [`Real`] (`f32` or `f64`) and run on the
//! current rayon thread pool. Results are deterministic: every sum is added in a fixed order, for any number of
//! threads. Slices of wrong length are a bug of the caller and panic.

pub mod activation;
pub mod aggregate;
pub mod attention;
pub mod batch_norm;
pub mod buffer;
pub mod dropout;
pub mod epilogue;
mod exp;
pub mod gemm;
pub mod keyed;
pub mod layer_norm;
pub mod loss;
pub mod nonzero;
pub mod optim;
pub mod probe;
mod real;
pub mod rows;
pub mod simd;
pub mod sparse;
#[cfg(test)]
mod testing;
pub mod work;

pub use real::Real;
