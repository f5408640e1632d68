//! Pure functions on slices and numbers. Nothing here knows of layers, ranks or files.
//!
//! - [`keyed`]: the counter-based randomness every other crate draws from;
//! - [`gemm`]: dense products;
//! - [`sparse`], [`mod@aggregate`], [`attention`], [`rows`]: sums along the entries of a sparse pattern;
//! - [`activation`], [`dropout`], [`layer_norm`], [`batch_norm`]: element- and row-wise passes with their
//!   backwards;
//! - [`loss`], [`optim`]: what is minimised and how;
//! - [`work`]: what all of these count of themselves; [`probe`]: what memory can do.
//!
//! Matrices are row-major slices with a width. Functions are generic over [`Real`] (`f32` or `f64`) and
//! deterministic: rows are shared out between threads, but each result is summed in one fixed order. Lengths
//! that do not fit are a bug of the caller and panic.

pub mod activation;
pub mod aggregate;
pub mod attention;
pub mod batch_norm;
pub mod buffer;
pub mod dropout;
pub mod gemm;
pub mod keyed;
pub mod layer_norm;
pub mod loss;
pub mod optim;
pub mod probe;
mod real;
pub mod rows;
pub mod simd;
pub mod sparse;
pub mod tail;
#[cfg(test)]
mod testing;
pub mod work;

pub use real::Real;
