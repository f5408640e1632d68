//! The trainer: epochs, evaluations, checkpoints, and when to stop.

use std::time::{Duration, Instant};

use halograph_graph::Dataset;
use halograph_graph::error::Error as InputError;
use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::Model;
use halograph_nn::optimizer::{Method, Optimizer, clip_gradients};
use halograph_nn::state::State;

use crate::config::{Config, OptimizerKind, Precision, TrainConfig};
use crate::data::{self, Data, Rows, Scaling};
use crate::error::{Error, Result};
use crate::evaluation::{new_model, scores};
use crate::event::{Best, Ending, Epoch, Event, Observer, Scores};
use crate::run::{Checkpoint, Run};
use crate::schedule::learning_rate;
use crate::strategy::single::{self, Plan};
use crate::summary::{Single, Summary};

/// Where a run that is taken up again stands: its checkpoint, and the epochs up to it.
pub type Standing = (Checkpoint, Vec<Epoch>);

/// Trains what the header of `run` says on `dataset`, `from` where it stands.
///
/// Returns when all epochs are done, when patience is at an end, or when `observer` asks to stop; the state is
/// saved in each case. After an error the last checkpoint is as it was.
pub fn train(
    dataset: &Dataset,
    run: &mut Run,
    from: Option<Standing>,
    observer: &mut dyn Observer,
) -> Result<Summary> {
    let config = run.header().config.clone();
    config.check()?;
    let threads = threads(&config.train);
    in_pool(threads, || match config.train.precision {
        Precision::F32 => train_in::<f32>(dataset, &config, run, from, observer, threads),
        Precision::F64 => train_in::<f64>(dataset, &config, run, from, observer, threads),
    })
}

fn train_in<T: Real>(
    dataset: &Dataset,
    config: &Config,
    run: &mut Run,
    from: Option<Standing>,
    observer: &mut dyn Observer,
    threads: usize,
) -> Result<Summary> {
    data::check(dataset)?;
    let model = new_model(&run.header().data, config)?;
    let optimizer = new_optimizer(&config.train, &model)?;
    let scaling = Scaling::fit(dataset, config.data.normalize)?;
    if let Some(numbers) = scaling.to_state() {
        run.save_scaling(&numbers)?;
    }
    let data = Data::<T>::load(dataset, config.data.inductive, scaling, Some(model.hops()))?;
    let plan = Plan::new(&model, &data.train, &data.parts[0]);
    let mut trainer = Trainer::new(config, &data, plan, model, optimizer);
    if let Some((checkpoint, history)) = from {
        trainer.restore(checkpoint)?;
        trainer.history = history;
    }
    trainer.run(run, observer, threads)
}

/// Threads to use: as many as asked for, or all cores there are.
pub fn threads(config: &TrainConfig) -> usize {
    match config.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        threads => threads,
    }
}

/// Runs `work` on so many threads.
pub(crate) fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| Error::Threads { threads, cause: e.to_string() })?.install(work)
}

struct Trainer<'d, T: Real> {
    config: &'d Config,
    data: &'d Data<'d, T>,
    plan: Plan<'d, T>,
    model: Model<T>,
    optimizer: Optimizer<T>,
    /// Epochs trained.
    epoch: u64,
    /// Seconds they took.
    seconds: f64,
    history: Vec<Epoch>,
    best: Option<Best>,
    best_weights: State,
}

impl<'d, T: Real> Trainer<'d, T> {
    fn new(
        config: &'d Config,
        data: &'d Data<'d, T>,
        plan: Plan<'d, T>,
        model: Model<T>,
        optimizer: Optimizer<T>,
    ) -> Self {
        let (history, best_weights) = (Vec::new(), State::default());
        Trainer {
            config,
            data,
            plan,
            model,
            optimizer,
            epoch: 0,
            seconds: 0.0,
            history,
            best: None,
            best_weights,
        }
    }

    fn run(mut self, run: &mut Run, observer: &mut dyn Observer, threads: usize) -> Result<Summary> {
        let train = &self.config.train;
        let parameters = self.model.params().map(|p| p.value.len() as u64).sum();
        let (model, from) = (self.config.model.kind, self.epoch + 1);
        observer.on(&Event::Started { model, parameters, from, epochs: train.epochs });
        let ending = self.epochs(run, observer)?;
        let summary = Summary::single(Single {
            ending,
            threads,
            model,
            parameters,
            epochs: self.epoch,
            metric: self.data.dataset().manifest.metric,
            history: &self.history,
            best: self.best,
        });
        run.finish(&serde_json::to_value(&summary).expect("numbers and names always serialise"))?;
        Ok(summary)
    }

    fn epochs(&mut self, run: &mut Run, observer: &mut dyn Observer) -> Result<Ending> {
        let interval = Duration::from_secs_f64(self.config.train.checkpoint_seconds.min(1e9));
        let mut saved = Instant::now();
        let ending = loop {
            if self.epoch >= self.config.train.epochs {
                break Ending::Finished;
            }
            if self.out_of_patience() {
                break Ending::StoppedEarly;
            }
            if observer.interrupted() {
                break Ending::Interrupted;
            }
            let record = match self.train_epoch() {
                Ok(record) => record,
                Err(error) => return Err(self.give_up(run, error)),
            };
            run.record(&record)?;
            observer.on(&Event::Epoch { record: &record, best: self.best.as_ref() });
            self.history.push(record);
            if saved.elapsed() >= interval {
                self.save(run, observer)?;
                saved = Instant::now();
            }
        };
        self.save(run, observer)?;
        Ok(ending)
    }

    /// One epoch, from forward to evaluation.
    fn train_epoch(&mut self) -> Result<Epoch> {
        let train = &self.config.train;
        let epoch = self.epoch + 1;
        let start = Instant::now();
        let rows = &self.data.parts[0];
        let (loss, lr) = step(&mut self.model, &mut self.optimizer, &self.plan, rows, train, epoch)?;
        let seconds = start.elapsed().as_secs_f64();
        self.epoch = epoch;
        self.seconds += seconds;
        let scores = if epoch.is_multiple_of(train.eval_every) || epoch == train.epochs {
            Some(self.evaluate()?)
        } else {
            None
        };
        Ok(Epoch { epoch, loss, lr, seconds, scores })
    }

    /// Scores the weights as they are, and keeps them if they are the best so far.
    fn evaluate(&mut self) -> Result<Scores> {
        let epoch = self.epoch;
        let scores = scores(&self.model, self.data)?.ok_or(Error::Diverged { epoch, loss: f64::NAN })?;
        if self.best.is_none_or(|best| is_better(&scores, &best.scores)) {
            self.best = Some(Best { epoch: self.epoch, scores, seconds: self.seconds });
            self.best_weights = self.model.state();
        }
        Ok(scores)
    }

    /// Judged only after an evaluation: epochs nobody looked at are no failure.
    fn out_of_patience(&self) -> bool {
        let patience = self.config.train.patience;
        let evaluated = self.history.last().is_some_and(|e| e.scores.is_some());
        patience > 0 && evaluated && self.best.is_some_and(|best| self.epoch >= best.epoch + patience)
    }

    /// Keeps what can be kept of a run that fails. Why it fails is more important than whether this does too.
    fn give_up(&self, run: &mut Run, error: Error) -> Error {
        if self.best.is_some() {
            let _ = run.save_weights(&self.best_weights);
        }
        error
    }

    fn save(&self, run: &mut Run, observer: &mut dyn Observer) -> Result<()> {
        let state = checkpoint_state(&self.model, &self.optimizer, &self.best_weights);
        let &Trainer { epoch, seconds, best, .. } = self;
        // Before the first evaluation the newest weights are the best known.
        let newest = best.is_none().then(|| self.model.state());
        run.save_weights(newest.as_ref().unwrap_or(&self.best_weights))?;
        run.checkpoint(&Checkpoint { epoch, seconds, best, state })?;
        observer.on(&Event::Checkpoint { epoch });
        Ok(())
    }

    fn restore(&mut self, checkpoint: Checkpoint) -> Result<()> {
        let place = format!("checkpoint of epoch {}", checkpoint.epoch);
        self.model.load(&place, &checkpoint.state.part("model."))?;
        self.optimizer.load(&place, &checkpoint.state.part("optimizer."))?;
        self.best_weights = checkpoint.state.part("best.");
        self.epoch = checkpoint.epoch;
        self.seconds = checkpoint.seconds;
        self.best = checkpoint.best;
        Ok(())
    }
}

/// What is timed of an epoch: forward, loss, backward and the optimiser's step. Gives loss and learning rate.
pub(crate) fn step<T: Real>(
    model: &mut Model<T>,
    optimizer: &mut Optimizer<T>,
    plan: &Plan<T>,
    rows: &Rows,
    train: &TrainConfig,
    epoch: u64,
) -> Result<(f64, f64)> {
    // The word 0 is the batch: a full-graph epoch is one.
    let key = Key::new(train.seed, "dropout").with(epoch).with(0);
    let loss = single::epoch(model, plan, rows, key);
    if !loss.is_finite() {
        return Err(Error::Diverged { epoch, loss });
    }
    if train.clip > 0.0 {
        clip_gradients(model, train.clip);
    }
    let lr = learning_rate(train, epoch);
    optimizer.step(model, lr);
    if model.params().any(|p| p.value.iter().any(|x| !x.is_finite())) {
        return Err(Error::Diverged { epoch, loss });
    }
    Ok((loss, lr))
}

/// All that a run needs to go on, but numbers that stand in the manifest.
pub(crate) fn checkpoint_state<T: Real>(model: &Model<T>, optimizer: &Optimizer<T>, best: &State) -> State {
    let mut state = State::default();
    state.insert_all("model.", model.state());
    state.insert_all("optimizer.", optimizer.state());
    state.insert_all("best.", best.clone());
    state
}

/// Whether `new` is the better evaluation: by validation score, then by validation loss; without validation nodes
/// the later one is.
fn is_better(new: &Scores, old: &Scores) -> bool {
    match (new.val, old.val) {
        (Some(a), Some(b)) if a == b => new.val_loss < old.val_loss,
        (Some(a), Some(b)) => a > b,
        _ => true,
    }
}

pub(crate) fn new_optimizer<T: Real>(config: &TrainConfig, model: &Model<T>) -> Result<Optimizer<T>> {
    let method = match config.optimizer {
        OptimizerKind::Adam => Method::Adam,
        OptimizerKind::Adamw => Method::AdamW,
        OptimizerKind::Sgd => Method::Sgd { momentum: config.momentum },
    };
    for prefix in config.weight_decay_for.keys() {
        if !model.params().any(|p| fits(prefix, &p.name)) {
            let names: Vec<&str> = model.params().map(|p| p.name.as_str()).collect();
            let problem = format!("no parameter is called {prefix:?}");
            let error = InputError::input("train.weight_decay_for", problem);
            return Err(error.help(format!("parameters are {}", names.join(", "))).into());
        }
    }
    let decay = |name: &str| {
        let longest = config.weight_decay_for.iter().filter(|(prefix, _)| fits(prefix, name));
        longest.max_by_key(|(prefix, _)| prefix.len()).map_or(config.weight_decay, |(_, &decay)| decay)
    };
    Ok(Optimizer::new(method, model, decay))
}

/// Whether `prefix` is the name, or some of its first words: `convs.1` is not the beginning of `convs.10.bias`.
fn fits(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
