//! Training: what to do when, and how to lose nothing.
//!
//! - [`config`]: everything that decides a run;
//! - [`data`]: a dataset made ready: blocks, features, rows whose labels count;
//! - [`boundary`]: what travels between ranks in a layer; [`ranks`]: training on several of them;
//! - [`strategy`]: the order of work of an epoch, a file each;
//! - [`trainer`]: epochs, evaluations, checkpoints, and when to stop; [`schedule`]: the learning rate;
//! - [`evaluation`]: scores and predictions; [`loss`];
//! - [`run`]: what a run leaves on disk; [`summary`]: what is said of it when it is over;
//! - [`event`]: what it tells while it goes on; [`report`]: what it has left, as a page;
//! - [`memory`]: how much it will need; [`bench`](mod@bench): where the time of an epoch goes.

pub mod bench;
pub mod boundary;
pub mod config;
pub mod data;
pub mod error;
pub mod evaluation;
pub mod event;
pub mod loss;
pub mod memory;
pub mod ranks;
pub mod report;
pub mod run;
pub mod schedule;
pub mod strategy;
pub mod summary;
pub mod trace;
pub mod trainer;

pub use config::Config;
pub use error::{Error, Result};
pub use evaluation::{Output, Trained, evaluate, predict};
pub use event::{Event, Observer};
pub use summary::Summary;
pub use trainer::train;
