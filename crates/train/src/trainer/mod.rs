//! The trainer: optimiser steps, epochs, evaluations, checkpoints, and when to stop.

mod step;
#[cfg(test)]
pub(crate) mod tests;

use std::time::{Duration, Instant};

use halograph_graph::error::Error as InputError;
use halograph_kernels::{Real, buffer};
use halograph_nn::Model;
use halograph_nn::optimizer::Optimizer;
use halograph_nn::state::State;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::event::{Best, Ending, EpochRecord, Event, Observer, Point, Scores};
use crate::requests::Requests;
use crate::run::{Checkpoint, PartialEpoch, RunSink};
use crate::strategy::{StepOutcome, Strategy};
use crate::summary::Outcome;

pub(crate) use step::Learner;

/// Where a resumed run continues.
pub struct ResumePoint {
    checkpoint: Checkpoint,
    history: Vec<EpochRecord>,
    /// Whether the last whole epoch was evaluated.
    evaluated: bool,
}

impl ResumePoint {
    /// Continues from `checkpoint`, after the epochs of `history`.
    pub fn new(checkpoint: Checkpoint, history: Vec<EpochRecord>) -> Self {
        let last = history.last().filter(|epoch| epoch.epoch == checkpoint.epoch);
        let evaluated = last.is_some_and(|epoch| epoch.scores.is_some());
        ResumePoint { checkpoint, history, evaluated }
    }

    /// Continues from `checkpoint` on a rank that keeps no history.
    pub(crate) fn without_history(checkpoint: Checkpoint, evaluated: bool) -> Self {
        ResumePoint { checkpoint, history: Vec::new(), evaluated }
    }

    /// Returns the number of whole epochs that are done.
    pub fn epochs(&self) -> u64 {
        self.checkpoint.epoch
    }

    pub(crate) fn point(&self) -> Point {
        self.checkpoint.point()
    }

    pub(crate) fn evaluated(&self) -> bool {
        self.evaluated
    }
}

/// Trains a model by a strategy. Every rank runs one; what they decide follows from numbers that are the same on all of
/// them, or from requests that were agreed on.
pub(crate) struct Trainer<'c, T: Real> {
    config: &'c Config,
    strategy: &'c mut dyn Strategy<T>,
    learner: Learner<T>,
    /// Whole epochs done.
    epoch: u64,
    /// What was done of the next epoch.
    partial: Option<PartialEpoch>,
    /// Seconds of training so far.
    seconds: f64,
    history: Vec<EpochRecord>,
    /// Whether the last whole epoch was evaluated.
    evaluated: bool,
    best: Option<Best>,
    best_weights: State,
    /// The newest checkpoint of the run.
    saved: Option<Point>,
    /// Whether observers know that the validation score is undefined.
    undefined_score_reported: bool,
}

impl<'c, T: Real> Trainer<'c, T> {
    pub(crate) fn new(config: &'c Config, strategy: &'c mut dyn Strategy<T>, learner: Learner<T>) -> Self {
        Trainer {
            config,
            strategy,
            learner,
            epoch: 0,
            partial: None,
            seconds: 0.0,
            history: Vec::new(),
            evaluated: false,
            best: None,
            best_weights: State::default(),
            saved: None,
            undefined_score_reported: false,
        }
    }

    /// Continues from where a run was interrupted.
    pub(crate) fn restore(&mut self, from: ResumePoint) -> Result<()> {
        let ResumePoint { checkpoint, history, evaluated } = from;
        let place = format!("checkpoint of epoch {}", checkpoint.point());
        let steps = self.strategy.steps();
        if checkpoint.point().step >= steps {
            let problem = format!("its epoch has more steps than the {steps} of this run");
            return Err(InputError::input(place, problem).help("start a new run").into());
        }
        self.learner.model.load(&place, &checkpoint.state.part("model."))?;
        self.learner.optimizer.load(&place, &checkpoint.state.part("optimizer."))?;
        self.strategy.load(&place, &checkpoint.state.part("boundary."))?;
        self.best_weights = checkpoint.state.part("best.");
        self.saved = Some(checkpoint.point());
        (self.epoch, self.partial) = (checkpoint.epoch, checkpoint.partial);
        (self.seconds, self.best) = (checkpoint.seconds, checkpoint.best);
        (self.history, self.evaluated) = (history, evaluated);
        Ok(())
    }

    /// Trains until all epochs are done, patience ends, or a rank requests to stop. Saves the state in each case.
    pub(crate) fn run(mut self, sink: &mut dyn RunSink, observer: &mut dyn Observer) -> Result<Outcome> {
        let mut parameters = [self.learner.model.params().map(|p| p.value.len()).sum::<usize>() as f64];
        self.strategy.sum_over_stages(&mut parameters)?;
        let (model, parameters) = (self.config.model.kind, parameters[0] as u64);
        let (from, epochs) = (self.epoch + 1, self.config.train.epochs);
        observer.on(&Event::Started { model, parameters, from, epochs });
        let before = self.seconds;
        let ending = self.steps(sink, observer)?;
        let seconds = self.seconds - before;
        let step = self.partial.map_or(0, |partial| partial.step);
        let Trainer { epoch: epochs, history, best, .. } = self;
        Ok(Outcome { ending, model, parameters, epochs, step, history, best, seconds })
    }

    fn steps(&mut self, sink: &mut dyn RunSink, observer: &mut dyn Observer) -> Result<Ending> {
        let interval = Duration::from_secs_f64(self.config.train.checkpoint_seconds.min(1e9));
        let mut saved = Instant::now();
        let mut agreed = self.strategy.agree(Requests { stop: observer.interrupted(), save: false })?;
        let ending = loop {
            if self.partial.is_none() && self.epoch >= self.config.train.epochs {
                break Ending::Finished;
            }
            if self.out_of_patience() {
                break Ending::StoppedEarly;
            }
            if agreed.stop {
                break Ending::Interrupted;
            }
            if agreed.save {
                self.save(sink, observer)?;
                saved = Instant::now();
            }
            let requests = |observer: &dyn Observer| Requests {
                save: saved.elapsed() >= interval,
                stop: observer.interrupted(),
            };
            let stepped = self.step(&|| requests(observer));
            let (in_step, finished) = stepped.map_err(|error| self.give_up(sink, error))?;
            agreed = in_step;
            if let Some(record) = finished {
                sink.record(&record)?;
                observer.on(&Event::Epoch { record: &record, best: self.best.as_ref() });
                self.report_undefined_score(&record, observer);
                self.history.push(record);
                // Evaluation may take long: requests since the step are not left to the next one.
                agreed = agreed.or(self.strategy.agree(requests(observer))?);
            }
        };
        // Before the first step there is nothing to continue from.
        if self.epoch > 0 || self.partial.is_some() {
            self.save(sink, observer)?;
        }
        Ok(ending)
    }

    /// Runs one optimiser step; returns the agreed requests and, after the last step of an epoch, the record of it.
    fn step(&mut self, requests: &dyn Fn() -> Requests) -> Result<(Requests, Option<EpochRecord>)> {
        let start = Instant::now();
        let done = self.partial.map_or(0, |partial| partial.step);
        let at = (self.epoch + 1, done);
        let (outcome, lr) = self.learner.step(self.strategy, &self.config.train, at, requests)?;
        let seconds = start.elapsed().as_secs_f64();
        self.seconds += seconds;
        let partial = extend(self.partial, &outcome, seconds);
        if partial.step < self.strategy.steps() {
            self.partial = Some(partial);
            return Ok((outcome.requests, None));
        }
        self.partial = None;
        let record = self.finish_epoch(partial, lr)?;
        Ok((outcome.requests, Some(record)))
    }

    /// Ends an epoch after its last step: evaluates, if it is time to.
    fn finish_epoch(&mut self, steps: PartialEpoch, lr: f64) -> Result<EpochRecord> {
        let train = &self.config.train;
        let staleness = self.strategy.staleness()?;
        self.epoch += 1;
        let epoch = self.epoch;
        if epoch == train.epochs {
            // Buffers kept for the next step are of no use any more.
            buffer::release();
        }
        self.evaluated = epoch.is_multiple_of(train.eval_every) || epoch == train.epochs;
        let start = Instant::now();
        let scores = if self.evaluated { Some(self.evaluate()?) } else { None };
        let evaluation_seconds = scores.map(|_| start.elapsed().as_secs_f64());
        let PartialEpoch { loss, seconds, .. } = steps;
        Ok(EpochRecord { epoch, loss, lr, seconds, evaluation_seconds, staleness, scores })
    }

    /// Scores the current weights and keeps them if they are the best so far.
    fn evaluate(&mut self) -> Result<Scores> {
        let epoch = self.epoch;
        let scores = self.strategy.evaluate(&self.learner.model, epoch)?;
        let scores = scores.ok_or_else(|| diverged(epoch, None, f64::NAN))?;
        if self.best.is_none_or(|best| is_better(&scores, &best.scores)) {
            self.best = Some(Best { epoch, scores, seconds: self.seconds });
            self.best_weights = self.learner.model.state();
        }
        Ok(scores)
    }

    /// Tells observers, once, that early stopping has no score to go by.
    fn report_undefined_score(&mut self, record: &EpochRecord, observer: &mut dyn Observer) {
        let undefined = record.scores.is_some_and(|s| s.val.is_none() && s.val_loss.is_some());
        if undefined && !self.undefined_score_reported {
            observer.on(&Event::UndefinedValidationScore);
            self.undefined_score_reported = true;
        }
    }

    /// Whether patience has ended; judged only after an evaluation.
    fn out_of_patience(&self) -> bool {
        let patience = self.config.train.patience;
        let judged = self.evaluated && self.partial.is_none();
        patience > 0 && judged && self.best.is_some_and(|best| self.epoch >= best.epoch + patience)
    }

    /// Writes the best weights of a run that fails, if possible; returns why it fails.
    fn give_up(&mut self, sink: &mut dyn RunSink, error: Error) -> Error {
        // All ranks notice divergence, and can still communicate; any other error may be of this rank alone.
        let is_complete = self.strategy.owns_all_stages() || matches!(error, Error::Diverged { .. });
        let kept = self.best.filter(|_| is_complete).filter(|_| {
            let weights = self.strategy.gather_weights(&self.best_weights);
            weights.is_ok_and(|weights| sink.save_weights(&weights).is_ok())
        });
        match error {
            Error::Diverged { epoch, step, loss, .. } => {
                let best = kept.map(|best| best.epoch);
                Error::Diverged { epoch, step, loss, checkpoint: self.saved, best }
            }
            other => other,
        }
    }

    fn save(&mut self, sink: &mut dyn RunSink, observer: &mut dyn Observer) -> Result<()> {
        let Learner { model, optimizer } = &self.learner;
        let mut state = checkpoint_state(model, optimizer, &self.best_weights);
        state.insert_all("boundary.", self.strategy.save()?);
        // Before the first evaluation the newest weights are the best known.
        let newest = self.best.is_none().then(|| model.state());
        let weights = newest.as_ref().unwrap_or(&self.best_weights);
        sink.save_weights(&*self.strategy.gather_weights(weights)?)?;
        let &mut Trainer { epoch, partial, seconds, best, .. } = self;
        let checkpoint = Checkpoint { epoch, partial, seconds, best, state };
        if sink.checkpoint(&checkpoint)? {
            self.saved = Some(checkpoint.point());
            observer.on(&Event::Checkpoint { at: checkpoint.point() });
        }
        Ok(())
    }
}

/// Creates the error of a diverged step; [`Trainer::give_up`] adds what is kept.
fn diverged(epoch: u64, step: Option<u64>, loss: f64) -> Error {
    Error::Diverged { epoch, step, loss, checkpoint: None, best: None }
}

/// Adds a step to what was done of an epoch.
fn extend(partial: Option<PartialEpoch>, outcome: &StepOutcome, seconds: f64) -> PartialEpoch {
    let before = partial.unwrap_or(PartialEpoch { step: 0, loss: 0.0, rows: 0, seconds: 0.0 });
    let rows = before.rows + outcome.rows;
    // Exactly the step's loss after one step: 0 + (loss - 0) * 1.
    let share = if rows > 0 { outcome.rows as f64 / rows as f64 } else { 1.0 };
    PartialEpoch {
        step: before.step + 1,
        loss: before.loss + (outcome.loss - before.loss) * share,
        rows,
        seconds: before.seconds + seconds,
    }
}

/// Returns all tensors of a checkpoint but those of the strategy.
pub(crate) fn checkpoint_state<T: Real>(model: &Model<T>, optimizer: &Optimizer<T>, best: &State) -> State {
    let mut state = State::default();
    state.insert_all("model.", model.state());
    state.insert_all("optimizer.", optimizer.state());
    state.insert_all("best.", best.clone());
    state
}

/// Whether `new` is the better evaluation: by validation score, then by validation loss; without validation nodes the
/// later one is.
fn is_better(new: &Scores, old: &Scores) -> bool {
    match (new.val, old.val) {
        (Some(a), Some(b)) if a == b => new.val_loss < old.val_loss,
        (Some(a), Some(b)) => a > b,
        _ => true,
    }
}
