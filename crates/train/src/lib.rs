//! Training: strategies, the trainer, evaluation, runs and checkpoints.
//!
//! - [`config`]: everything that decides a run;
//! - [`boundary`]: rows exchanged between ranks; [`stage`]: the stage runner; [`data`]: blocks, features, labelled rows;
//! - [`strategy`]: how the work of an epoch is spread, one file or folder each;
//! - [`trainer`]: optimiser steps, epochs, checkpoints, and when to stop; [`schedule`]: the learning rate;
//! - [`objective`]: metric and class weights; [`evaluation`]: exact outputs and scores; [`class_report`]: scores of single
//!   classes; [`loss`]; [`trained`]: scores and predictions of finished runs;
//! - [`launch`]: entry points for one process, ranks as threads, and ranks under a launcher;
//! - [`run`]: the run directory; [`summary`]: a run in numbers; [`event`]: what a run reports while it trains;
//! - [`memory`] and [`admission`]: how much a run uses and will need; [`cost`]: bytes that a step sends;
//! - [`bench`](mod@bench): where the time of an epoch goes; [`report`]: runs as one page.

pub mod admission;
pub mod bench;
pub mod boundary;
pub mod class_report;
pub mod config;
pub mod cost;
pub mod data;
pub mod error;
pub mod evaluation;
pub mod event;
mod fault;
pub mod launch;
pub mod loss;
pub mod memory;
pub mod objective;
pub mod pool;
pub mod report;
pub mod requests;
pub mod run;
pub mod schedule;
mod setup;
pub mod stage;
pub mod strategy;
pub mod summary;
pub mod tags;
pub mod trace;
pub mod traffic;
pub mod trained;
pub mod trainer;

pub use config::Config;
pub use error::{Error, Result};
pub use event::{Event, Observer};
pub use launch::train;
pub use summary::Summary;
pub use trained::{Prediction, TrainedModel};
