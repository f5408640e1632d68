//! Training: what to do when, and how to lose nothing.
//!
//! - [`config`]: everything that decides a run;
//! - [`event`]: what a run tells while it goes on;
//! - [`run`]: what a run leaves on disk.

pub mod config;
pub mod event;
pub mod run;

pub use config::Config;
pub use event::{Event, Observer};
