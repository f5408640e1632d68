//! Training: what to do when, and how to lose nothing.
//!
//! - [`config`]: everything that decides a run;
//! - [`event`]: what a run tells while it goes on.

pub mod config;
pub mod event;

pub use config::Config;
pub use event::{Event, Observer};
