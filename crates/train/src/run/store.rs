//! Where the results of a run are kept: in a run directory, or in memory only.

use halograph_nn::state::State;
use serde_json::Value;

use super::{Checkpoint, Header, Run};
use crate::error::Result;
use crate::event::EpochRecord;

/// Receives what a trainer produces.
pub trait RunSink {
    /// Adds an epoch to the history.
    fn record(&mut self, epoch: &EpochRecord) -> Result<()>;
    /// Saves the best weights so far.
    fn save_weights(&mut self, weights: &State) -> Result<()>;
    /// Saves a checkpoint; returns whether the run can be resumed from it. On several ranks: collective; blocks.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<bool>;
}

/// A run of rank 0: what it is, and where its results are kept.
pub trait RunStore: RunSink + Send {
    /// Returns the data and the configuration of the run.
    fn header(&self) -> &Header;
    /// Returns the run directory, if there is one.
    fn directory(&mut self) -> Option<&mut Run>;
    /// Saves the statistics by which features are scaled.
    fn save_scaling(&mut self, scaling: &State) -> Result<()>;
    /// Saves the summary of a run that ended.
    fn finish(&mut self, summary: &Value) -> Result<()>;
}

impl RunSink for Run {
    fn record(&mut self, epoch: &EpochRecord) -> Result<()> {
        Ok(Run::record(self, epoch)?)
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        Ok(Run::save_weights(self, weights)?)
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<bool> {
        Run::checkpoint(self, checkpoint)?;
        Ok(true)
    }
}

impl RunStore for Run {
    fn header(&self) -> &Header {
        Run::header(self)
    }

    fn directory(&mut self) -> Option<&mut Run> {
        Some(self)
    }

    fn save_scaling(&mut self, scaling: &State) -> Result<()> {
        Ok(Run::save_scaling(self, scaling)?)
    }

    fn finish(&mut self, summary: &Value) -> Result<()> {
        Ok(Run::finish(self, summary)?)
    }
}

/// A run without a directory: keeps the best weights in memory and writes nothing. It cannot be resumed.
#[derive(Debug)]
pub struct MemoryRun {
    header: Header,
    weights: Option<State>,
    scaling: Option<State>,
}

impl MemoryRun {
    /// Creates a run that has not been trained.
    pub fn new(header: Header) -> Self {
        MemoryRun { header, weights: None, scaling: None }
    }

    /// Returns the best weights so far; `None` before they were saved for the first time.
    pub fn weights(&self) -> Option<&State> {
        self.weights.as_ref()
    }

    /// Returns the statistics by which features are scaled, if there are any.
    pub fn scaling(&self) -> Option<&State> {
        self.scaling.as_ref()
    }
}

impl RunSink for MemoryRun {
    fn record(&mut self, _: &EpochRecord) -> Result<()> {
        Ok(())
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.weights = Some(weights.clone());
        Ok(())
    }

    fn checkpoint(&mut self, _: &Checkpoint) -> Result<bool> {
        Ok(false)
    }
}

impl RunStore for MemoryRun {
    fn header(&self) -> &Header {
        &self.header
    }

    fn directory(&mut self) -> Option<&mut Run> {
        None
    }

    fn save_scaling(&mut self, scaling: &State) -> Result<()> {
        self.scaling = Some(scaling.clone());
        Ok(())
    }

    fn finish(&mut self, _: &Value) -> Result<()> {
        Ok(())
    }
}
