//! As [`partition`](super::partition), but rows of other ranks are read as they were an epoch ago: what travels does so
//! behind the compute of a whole epoch.
//!
//! ```text
//! epoch t, layer l, forward     send the boundary rows of t; aggregate own rows; add halo rows of t − 1
//!                   backward    gradients of halo rows; send them back; those of own rows; add what others found in t − 1
//! ```
//!
//! Own rows, weights, norms and evaluations are always fresh. A row that is an epoch old carries its owner's mask of
//! that epoch. The first and the last epochs may read fresh rows, as `partition` does; an age of 0 is `partition`.

use std::ops::RangeInclusive;
use std::time::Duration;

use halograph_comm::Priority;
use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_kernels::Real;
use halograph_nn::state::State;
use halograph_nn::{Input, Matrix};

use super::partition::Plan;
use crate::boundary::{Arriving, Deviation, Exchange, Line, Returned, Returning, Smoothing};
use crate::config::{Smooth, StrategyKind, TrainConfig};
use crate::error::Result;

/// How old the rows of others are in each epoch.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// In epochs that are not fresh.
    age: u64,
    /// Fresh epochs at the beginning.
    warmup: u64,
    /// Fresh epochs follow this one.
    last: u64,
    features: Option<Smoothing>,
    gradients: Option<Smoothing>,
}

impl Schedule {
    /// That of a configuration.
    pub fn of(train: &TrainConfig) -> Self {
        let age = if train.strategy == StrategyKind::Pipelined { train.staleness } else { 0 };
        let smoothing = Smoothing { decay: train.gamma, corrected: train.smooth_correction };
        let smoothed = |kinds: &[Smooth]| kinds.contains(&train.smooth).then_some(smoothing);
        Schedule {
            age,
            warmup: train.warmup_epochs,
            last: train.epochs.saturating_sub(train.cooldown_epochs),
            features: smoothed(&[Smooth::F, Smooth::Gf]),
            gradients: smoothed(&[Smooth::G, Smooth::Gf]),
        }
    }

    /// How old rows of others are in `epoch`, counted from 1; 0 is fresh.
    fn age(&self, epoch: u64) -> u64 {
        if self.usual().contains(&epoch) { self.age } else { 0 }
    }

    /// Epochs that are as most are: those of the warm-up and the cool-down are not.
    pub(crate) fn usual(&self) -> RangeInclusive<u64> {
        if self.age == 0 { 1..=u64::MAX } else { self.warmup + 1..=self.last }
    }

    /// How many copies of what travels are kept from epoch to epoch.
    pub(crate) fn kept(&self) -> u64 {
        let averages = self.features.is_some() || self.gradients.is_some();
        if self.keeps() { self.age.min(self.last.max(1)) + averages as u64 } else { 0 }
    }

    /// Whether a later epoch may read what a fresh one starts: more of them may be asked for when the run goes on.
    fn keeps(&self) -> bool {
        self.age > 0
    }
}

/// What a rank reads of others in one stage.
struct Lines<T: Real> {
    features: Line<Arriving<T>>,
    gradients: Line<Returning<T>>,
    /// How far both were from fresh ones in this epoch.
    deviations: [Option<Deviation>; 2],
}

/// Everything that a rank reads of others, in the version that its epoch is to see.
pub struct Boundary<T: Real> {
    schedule: Schedule,
    stages: Vec<Lines<T>>,
    /// Whether stale rows are compared with fresh ones, which are waited for.
    measures: bool,
    epoch: u64,
}

impl<T: Real> Boundary<T> {
    /// Nothing was read yet.
    pub fn new(schedule: Schedule, stages: usize, measures: bool) -> Self {
        let lines = || Lines {
            features: Line::new(schedule.features),
            gradients: Line::new(schedule.gradients),
            deviations: [None; 2],
        };
        Boundary { schedule, stages: (0..stages).map(|_| lines()).collect(), measures, epoch: 0 }
    }

    /// Epochs follow one another.
    pub fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.stages.iter_mut().for_each(|stage| stage.deviations = [None; 2]);
    }

    /// How soon what this epoch sends is needed.
    pub fn priority(&self) -> Priority {
        if self.schedule.age(self.epoch) == 0 { Priority::Urgent } else { Priority::Background }
    }

    fn turn(&self) -> Turn {
        Turn { schedule: self.schedule, epoch: self.epoch, measures: self.measures }
    }

    /// The messages of halo rows that this epoch reads in a stage, and how long they travelled while something was
    /// computed. Of stale ones nobody knows: they travel all the time.
    pub fn features(&mut self, stage: usize, arriving: Arriving<T>) -> Result<(Input<T>, Duration)> {
        let (rows, columns) = arriving.shape();
        let (turn, lines) = (self.turn(), &mut self.stages[stage]);
        let (read, deviation) = turn.read(&mut lines.features, arriving)?;
        lines.deviations[0] = deviation;
        Ok((read.unwrap_or_else(|| Matrix::zeros(rows, columns).into()), lines.features.take_hidden()))
    }

    /// The gradients of own rows that this epoch adds in a stage; the rest as for features.
    pub fn gradients(
        &mut self,
        stage: usize,
        returning: Returning<T>,
    ) -> Result<(Option<Returned<T>>, Duration)> {
        let (turn, lines) = (self.turn(), &mut self.stages[stage]);
        let (read, deviation) = turn.read(&mut lines.gradients, returning)?;
        lines.deviations[1] = deviation;
        Ok((read, lines.gradients.take_hidden()))
    }

    /// How far features and gradients of each stage were from fresh ones in this epoch, where that was measured.
    pub fn deviations(&self) -> Vec<[Option<Deviation>; 2]> {
        self.stages.iter().map(|stage| stage.deviations).collect()
    }

    /// What later epochs will read; waits for what is under way.
    pub fn save(&mut self) -> Result<State> {
        let mut state = State::default();
        if self.schedule.age > 0 {
            for (l, lines) in self.stages.iter_mut().enumerate() {
                lines.features.save(&format!("{l}.features"), &mut state)?;
                lines.gradients.save(&format!("{l}.gradients"), &mut state)?;
            }
        }
        Ok(state)
    }

    /// Takes what was saved; `place` names it in errors.
    pub fn load(&mut self, place: &str, state: &State, plan: &Plan<T>) -> InputResult<()> {
        if self.schedule.age == 0 {
            return Ok(());
        }
        for (l, lines) in self.stages.iter_mut().enumerate() {
            let exchange = plan.stages[l].exchange.as_deref();
            let features = |saved: Matrix<T>| {
                fits(place, saved.rows(), exchange.map_or(0, Exchange::halo_rows))?;
                Ok(saved.into())
            };
            lines.features.load(place, &format!("{l}.features"), state, features)?;
            let gradients = |saved: Matrix<T>| {
                fits(place, saved.rows(), exchange.map_or(0, Exchange::sent_rows))?;
                Ok(exchange.map_or_else(Returned::default, |exchange| exchange.returned(&saved)))
            };
            lines.gradients.load(place, &format!("{l}.gradients"), state, gradients)?;
        }
        Ok(())
    }
}

/// Rows that were saved are those of this part.
fn fits(place: &str, saved: usize, rows: usize) -> InputResult<()> {
    if saved == rows {
        return Ok(());
    }
    Err(InputError::input(place, format!("{saved} boundary rows were saved where there are {rows}")).help(
        "this checkpoint is of a graph in other parts: give the parts it was trained on, or start a new run",
    ))
}

/// What is read in an epoch.
#[derive(Clone, Copy)]
struct Turn {
    schedule: Schedule,
    epoch: u64,
    measures: bool,
}

impl Turn {
    fn read<J: crate::boundary::Journey>(
        self,
        line: &mut Line<J>,
        journey: J,
    ) -> Result<(Option<J::Cargo>, Option<Deviation>)> {
        line.start(self.epoch, journey);
        let age = self.schedule.age(self.epoch);
        if age == 0 {
            return Ok((Some(line.fresh(self.schedule.keeps())?), None));
        }
        let read = line.stale(self.epoch, age)?;
        let deviation = if self.measures { Some(line.deviation(read.as_ref())?) } else { None };
        Ok((read, deviation))
    }
}
