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

use crate::class_report::ClassReport;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::evaluation::{Detail, Evaluated};
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
    /// Whether the last completed epoch was evaluated.
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

    /// Returns the number of completed epochs.
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

/// An optimiser step that ended.
struct FinishedStep {
    /// Agreed requests.
    requests: Requests,
    /// The epoch so far, this step included.
    partial: PartialEpoch,
    /// Learning rate of the step.
    lr: f64,
}

/// Trains a model with a strategy. Every rank runs one trainer; all decide the same, from values that are bit-identical on
/// all ranks or from requests that the ranks agreed on.
pub(crate) struct Trainer<'c, T: Real> {
    config: &'c Config,
    strategy: &'c mut dyn Strategy<T>,
    learner: Learner<T>,
    /// Completed epochs.
    epoch: u64,
    /// Completed steps of the next epoch.
    partial: Option<PartialEpoch>,
    /// Seconds of training so far.
    seconds: f64,
    history: Vec<EpochRecord>,
    /// Whether the last completed epoch was evaluated.
    evaluated: bool,
    best: Option<Best>,
    best_weights: State,
    /// The newest checkpoint of the run.
    saved: Option<Point>,
    /// Whether [`Event::UndefinedValidationScore`] was sent.
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

    /// Loads the state of a resumed run.
    pub(crate) fn restore(&mut self, from: ResumePoint) -> Result<()> {
        let ResumePoint { checkpoint, history, evaluated } = from;
        let place = format!("checkpoint of epoch {}", checkpoint.point());
        let steps = self.strategy.steps();
        let step = checkpoint.point().step;
        if step >= steps {
            let problem = format!("is {step} steps into an epoch, but epochs of this run have {steps} steps");
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

    /// Trains until all epochs are completed, early stopping ends the run, or a rank requests to stop; writes a checkpoint
    /// in each case. Collective; blocks.
    pub(crate) fn run(mut self, sink: &mut dyn RunSink, observer: &mut dyn Observer) -> Result<Outcome> {
        let mut parameters = [self.learner.model.params().map(|p| p.value.len()).sum::<usize>() as f64];
        self.strategy.sum_over_stages(&mut parameters)?;
        let (model, parameters) = (self.config.model.kind, parameters[0] as u64);
        let (from, epochs) = (self.epoch + 1, self.config.train.epochs);
        let (steps, step) = (self.strategy.steps(), self.partial.map_or(0, |partial| partial.step));
        observer.on(&Event::Started { model, parameters, from, epochs, steps, step });
        let before = self.seconds;
        let ending = self.steps(sink, observer)?;
        let seconds = self.seconds - before;
        let step = self.partial.map_or(0, |partial| partial.step);
        let classes = if ending == Ending::Interrupted { None } else { self.class_report()? };
        let Trainer { epoch: epochs, history, best, .. } = self;
        Ok(Outcome { ending, model, parameters, epochs, step, history, best, classes, seconds })
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
            let stepped = stepped.map_err(|error| self.fail(sink, error))?;
            let (epoch, steps) = (self.epoch + 1, self.strategy.steps());
            let PartialEpoch { step, loss, .. } = stepped.partial;
            if steps > 1 {
                observer.on(&Event::Step { epoch, step, steps, loss });
            }
            agreed = stepped.requests;
            self.partial = Some(stepped.partial).filter(|_| step < steps);
            if self.partial.is_none() {
                let record = self.finish_epoch(stepped.partial, stepped.lr);
                let record = record.map_err(|error| self.fail(sink, error))?;
                sink.record(&record)?;
                observer.on(&Event::Epoch { record: &record, best: self.best.as_ref() });
                self.report_undefined_score(&record, observer);
                self.history.push(record);
                // Evaluation may take long: requests made meanwhile take effect before the next step.
                agreed = agreed.or(self.strategy.agree(requests(observer))?);
            }
        };
        // Before the first step there is nothing to save.
        if self.epoch > 0 || self.partial.is_some() {
            self.save(sink, observer)?;
        }
        Ok(ending)
    }

    /// Runs one optimiser step.
    fn step(&mut self, requests: &dyn Fn() -> Requests) -> Result<FinishedStep> {
        let start = Instant::now();
        let done = self.partial.map_or(0, |partial| partial.step);
        let at = (self.epoch + 1, done);
        let (outcome, lr) = self.learner.step(self.strategy, &self.config.train, at, requests)?;
        let seconds = start.elapsed().as_secs_f64();
        self.seconds += seconds;
        let partial = extend(self.partial, &outcome, seconds);
        Ok(FinishedStep { requests: outcome.requests, partial, lr })
    }

    /// Completes an epoch after its last step; evaluates if `eval_every` asks for it.
    fn finish_epoch(&mut self, steps: PartialEpoch, lr: f64) -> Result<EpochRecord> {
        let train = &self.config.train;
        let staleness = self.strategy.staleness()?;
        self.epoch += 1;
        let epoch = self.epoch;
        if epoch == train.epochs {
            // No step follows that could reuse the buffers.
            buffer::release();
        }
        self.evaluated = epoch.is_multiple_of(train.eval_every) || epoch == train.epochs;
        let start = Instant::now();
        let scores = if self.evaluated { Some(self.evaluate()?) } else { None };
        let evaluation_seconds = scores.map(|_| start.elapsed().as_secs_f64());
        let PartialEpoch { loss, seconds, .. } = steps;
        Ok(EpochRecord { epoch, loss, lr, seconds, evaluation_seconds, staleness, scores })
    }

    /// Scores the current weights; keeps a copy if they are the best so far. Collective; blocks.
    fn evaluate(&mut self) -> Result<Scores> {
        let epoch = self.epoch;
        let found = self.strategy.evaluate(&self.learner.model, epoch, Detail::Scores)?;
        let Evaluated { scores, .. } = found.ok_or_else(|| diverged(epoch, None, f64::NAN))?;
        if self.best.is_none_or(|best| is_better(&scores, &best.scores)) {
            self.best = Some(Best { epoch, scores, seconds: self.seconds });
            self.best_weights = self.learner.model.state();
        }
        Ok(scores)
    }

    /// Scores the single classes with the best weights, which it loads; `None` before the first evaluation. Collective;
    /// blocks.
    fn class_report(&mut self) -> Result<Option<ClassReport>> {
        let Some(best) = self.best else { return Ok(None) };
        self.learner.model.load("best weights", &self.best_weights)?;
        let found = self.strategy.evaluate(&self.learner.model, best.epoch, Detail::Classes)?;
        Ok(found.ok_or_else(|| diverged(best.epoch, None, f64::NAN))?.classes)
    }

    /// Notifies the observer, once, that the validation score is undefined and early stopping is off.
    fn report_undefined_score(&mut self, record: &EpochRecord, observer: &mut dyn Observer) {
        let undefined = record.scores.is_some_and(|s| s.val.is_none() && s.val_loss.is_some());
        if undefined && !self.undefined_score_reported {
            observer.on(&Event::UndefinedValidationScore);
            self.undefined_score_reported = true;
        }
    }

    /// Returns whether patience has ended; checked only after an evaluation.
    fn out_of_patience(&self) -> bool {
        let patience = self.config.train.patience;
        let judged = self.evaluated && self.partial.is_none();
        patience > 0 && judged && self.best.is_some_and(|best| self.epoch >= best.epoch + patience)
    }

    /// Writes the best weights of a failing run, if possible; returns the error, completed with what was saved.
    fn fail(&mut self, sink: &mut dyn RunSink, error: Error) -> Error {
        // All ranks detect divergence and can still communicate. Any other error may be that of this rank alone.
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
        // The copies below take the place of buffers that no step uses meanwhile.
        buffer::release();
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

/// Creates the error of a diverged step; [`Trainer::fail`] adds what was saved.
fn diverged(epoch: u64, step: Option<u64>, loss: f64) -> Error {
    Error::Diverged { epoch, step, loss, checkpoint: None, best: None }
}

/// Adds a step to the completed steps of an epoch.
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

/// Returns all tensors of a checkpoint except those of the strategy.
pub(crate) fn checkpoint_state<T: Real>(model: &Model<T>, optimizer: &Optimizer<T>, best: &State) -> State {
    let mut state = State::default();
    state.insert_all("model.", model.state());
    state.insert_all("optimizer.", optimizer.state());
    state.insert_all("best.", best.clone());
    state
}

/// Returns whether `new` is better than `old`: by validation score, then by validation loss. Without a validation score
/// the later evaluation is better.
fn is_better(new: &Scores, old: &Scores) -> bool {
    match (new.val, old.val) {
        (Some(a), Some(b)) if a == b => new.val_loss < old.val_loss,
        (Some(a), Some(b)) => a > b,
        _ => true,
    }
}
