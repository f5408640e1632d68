//! Halo rows and returned gradients of earlier epochs.

use std::time::Duration;

use halograph_comm::Priority;
use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_kernels::Real;
use halograph_nn::state::State;
use halograph_nn::{Input, Matrix};

use super::schedule::Schedule;
use crate::boundary::{
    Deviation, Exchange, FeatureTransfer, GradientTransfer, HaloSource, ReturnedGradients, Transfer,
    VersionQueue,
};
use crate::error::Result;
use crate::stage::StageBlock;

/// Versions of the remote rows of one stage.
struct StageVersions<T: Real> {
    features: VersionQueue<FeatureTransfer<T>>,
    gradients: VersionQueue<GradientTransfer<T>>,
    /// Errors of both in this epoch, if measured.
    deviations: [Option<Deviation>; 2],
}

/// Remote rows of all stages, in the version that the current epoch reads.
pub(super) struct StaleHalo<T: Real> {
    schedule: Schedule,
    stages: Vec<StageVersions<T>>,
    /// Whether stale rows are compared with fresh ones, which blocks until these arrive.
    measures: bool,
    epoch: u64,
}

impl<T: Real> StaleHalo<T> {
    /// Creates empty queues for so many stages.
    pub fn new(schedule: Schedule, stages: usize, measures: bool) -> Self {
        let versions = || StageVersions {
            features: VersionQueue::new(schedule.features),
            gradients: VersionQueue::new(schedule.gradients),
            deviations: [None; 2],
        };
        StaleHalo { schedule, stages: (0..stages).map(|_| versions()).collect(), measures, epoch: 0 }
    }

    /// Starts an epoch. Epochs must be consecutive.
    pub fn start_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.stages.iter_mut().for_each(|stage| stage.deviations = [None; 2]);
    }

    /// Returns the errors of features and gradients of each stage in this epoch, if measured.
    pub fn deviations(&self) -> Vec<[Option<Deviation>; 2]> {
        self.stages.iter().map(|stage| stage.deviations).collect()
    }

    fn read(&self) -> Read {
        Read { schedule: self.schedule, epoch: self.epoch, measures: self.measures }
    }

    /// Returns what later epochs read. Blocks until it has arrived.
    pub fn save(&mut self) -> Result<State> {
        let mut state = State::default();
        if self.schedule.keeps() {
            for (index, stage) in self.stages.iter_mut().enumerate() {
                stage.features.save(&format!("{index}.features"), &mut state)?;
                stage.gradients.save(&format!("{index}.gradients"), &mut state)?;
            }
        }
        Ok(state)
    }

    /// Restores what [`StaleHalo::save`] returned; `place` names the checkpoint in errors.
    pub fn load(&mut self, place: &str, state: &State, blocks: &[StageBlock]) -> InputResult<()> {
        if !self.schedule.keeps() {
            return Ok(());
        }
        for ((index, stage), block) in self.stages.iter_mut().enumerate().zip(blocks) {
            let exchange = block.exchange.as_deref();
            let features = |saved: Matrix<T>| {
                check_rows(place, saved.rows(), exchange.map_or(0, Exchange::halo_rows))?;
                Ok(saved.into())
            };
            stage.features.load(place, &format!("{index}.features"), state, features)?;
            let gradients = |saved: Matrix<T>| {
                check_rows(place, saved.rows(), exchange.map_or(0, Exchange::sent_rows))?;
                Ok(exchange.map_or_else(ReturnedGradients::default, |e| e.restore_gradients(&saved)))
            };
            stage.gradients.load(place, &format!("{index}.gradients"), state, gradients)?;
        }
        Ok(())
    }
}

impl<T: Real> HaloSource<T> for StaleHalo<T> {
    fn priority(&self) -> Priority {
        if self.schedule.staleness(self.epoch) == 0 { Priority::Urgent } else { Priority::Background }
    }

    fn features(
        &mut self,
        stage: usize,
        _: &Input<T>,
        started: FeatureTransfer<T>,
    ) -> Result<(Input<T>, Duration)> {
        let (rows, columns) = started.shape();
        let (read, stage) = (self.read(), &mut self.stages[stage]);
        let (found, deviation) = read.from(&mut stage.features, started)?;
        stage.deviations[0] = deviation;
        Ok((found.unwrap_or_else(|| Matrix::zeros(rows, columns).into()), stage.features.take_hidden()))
    }

    fn gradients(
        &mut self,
        stage: usize,
        started: GradientTransfer<T>,
    ) -> Result<(Option<ReturnedGradients<T>>, Duration)> {
        let (read, stage) = (self.read(), &mut self.stages[stage]);
        let (found, deviation) = read.from(&mut stage.gradients, started)?;
        stage.deviations[1] = deviation;
        Ok((found, stage.gradients.take_hidden()))
    }
}

/// How an epoch reads a queue of versions.
#[derive(Clone, Copy)]
struct Read {
    schedule: Schedule,
    epoch: u64,
    measures: bool,
}

impl Read {
    /// Adds what was just started to `queue` and takes what this epoch reads, with its error if that is measured.
    fn from<X: Transfer>(
        self,
        queue: &mut VersionQueue<X>,
        started: X,
    ) -> Result<(Option<X::Rows>, Option<Deviation>)> {
        queue.start(self.epoch, started);
        let staleness = self.schedule.staleness(self.epoch);
        if staleness == 0 {
            return Ok((Some(queue.fresh(self.schedule.keeps())?), None));
        }
        let rows = queue.stale(self.epoch, staleness)?;
        let deviation = if self.measures { Some(queue.deviation(rows.as_ref())?) } else { None };
        Ok((rows, deviation))
    }
}

/// Refuses saved rows of a graph in other parts.
fn check_rows(place: &str, saved: usize, rows: usize) -> InputResult<()> {
    if saved == rows {
        return Ok(());
    }
    Err(InputError::input(place, format!("{saved} boundary rows were saved where there are {rows}")).help(
        "this checkpoint is of a graph in other parts: give the parts it was trained on, or start a new run",
    ))
}
