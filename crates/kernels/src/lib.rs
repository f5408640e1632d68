//! Pure functions on slices and numbers. Nothing here knows of graphs, ranks or files.
//!
//! Today it holds [`keyed`], the counter-based randomness every other crate draws from.

pub mod keyed;
