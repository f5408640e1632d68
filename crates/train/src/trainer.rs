//! The trainer: epochs, evaluations, checkpoints, and when to stop.

use std::time::{Duration, Instant};

use halograph_graph::Dataset;
use halograph_graph::error::Error as InputError;
use halograph_kernels::keyed::Key;
use halograph_kernels::{Real, buffer};
use halograph_nn::Model;
use halograph_nn::model::Kind;
use halograph_nn::optimizer::{Method, Optimizer, clip_gradients};
use halograph_nn::state::State;

use crate::config::{Config, OptimizerKind, Precision, StrategyKind, TrainConfig};
use crate::data::{self, Data, Scaling};
use crate::error::{Error, Result};
use crate::evaluation::new_model;
use crate::event::{Best, Ending, Epoch, Event, Observer, Scores};
use crate::ranks::{self, Extras, Leader, Source};
use crate::run::{Checkpoint, Run};
use crate::schedule::learning_rate;
use crate::strategy::engine::{Alone, Engine};
use crate::strategy::single::Plan;
use crate::summary::{Facts, Summary, Traffic};

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
    if config.train.strategy != StrategyKind::Single {
        data::check(dataset)?;
        let leader = Leader { run, from, observer };
        return ranks::train_on_threads(Source::Dataset(dataset), leader, Extras::default());
    }
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
    let mut trainer = Trainer::new(config, Alone { data: &data, plan }, model, optimizer);
    let started = from.as_ref().map_or(0, |(checkpoint, _)| checkpoint.epoch);
    if let Some((checkpoint, history)) = from {
        trainer.restore(checkpoint, history)?;
    }
    let (outcome, _) = trainer.run(run, observer)?;
    let facts = Facts { threads, metric: dataset.manifest.metric, outcome: &outcome, train: &config.train };
    // Of this process, as on several ranks.
    let own = outcome.history.iter().filter(|epoch| epoch.epoch > started);
    let compute_seconds = own.map(|epoch| epoch.seconds).sum();
    let summary = Summary::new(facts, Traffic { compute_seconds, ..Traffic::none(&outcome) });
    run.finish(&serde_json::to_value(&summary).expect("numbers and names always serialise"))?;
    Ok(summary)
}

/// Threads of a rank: as many as asked for, or an equal share of all cores there are.
pub fn threads(config: &TrainConfig) -> usize {
    match config.threads {
        0 => (std::thread::available_parallelism().map_or(1, |n| n.get()) / config.ranks).max(1),
        threads => threads,
    }
}

/// Runs `work` on so many threads.
pub(crate) fn in_pool<R: Send>(threads: usize, work: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|e| Error::Threads { threads, cause: e.to_string() })?.install(work)
}

/// Where what is learnt is kept.
pub(crate) trait Keeper {
    /// Adds an epoch to the history.
    fn record(&mut self, epoch: &Epoch) -> Result<()>;
    /// Saves the best weights so far.
    fn save_weights(&mut self, weights: &State) -> Result<()>;
    /// Saves where the run stands.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()>;
}

impl Keeper for Run {
    fn record(&mut self, epoch: &Epoch) -> Result<()> {
        Ok(Run::record(self, epoch)?)
    }

    fn save_weights(&mut self, weights: &State) -> Result<()> {
        Ok(Run::save_weights(self, weights)?)
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        Ok(Run::checkpoint(self, checkpoint)?)
    }
}

/// What a rank may wish for between epochs; if one does, all do it.
const SAVE: u8 = 1;
const STOP_EARLY: u8 = 2;
const INTERRUPT: u8 = 4;

/// How a training went.
pub(crate) struct Outcome {
    pub ending: Ending,
    pub model: Kind,
    pub parameters: u64,
    pub epochs: u64,
    pub history: Vec<Epoch>,
    pub best: Option<Best>,
}

pub(crate) struct Trainer<'c, T: Real, E> {
    config: &'c Config,
    engine: E,
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

impl<'c, T: Real, E: Engine<T>> Trainer<'c, T, E> {
    pub(crate) fn new(config: &'c Config, engine: E, model: Model<T>, optimizer: Optimizer<T>) -> Self {
        let (history, best_weights) = (Vec::new(), State::default());
        let (epoch, seconds, best) = (0, 0.0, None);
        Trainer { config, engine, model, optimizer, epoch, seconds, history, best, best_weights }
    }

    pub(crate) fn run(
        mut self,
        keeper: &mut dyn Keeper,
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, E)> {
        let parameters = self.model.params().map(|p| p.value.len() as u64).sum();
        let (model, from, epochs) = (self.config.model.kind, self.epoch + 1, self.config.train.epochs);
        observer.on(&Event::Started { model, parameters, from, epochs });
        let ending = self.epochs(keeper, observer)?;
        let Trainer { epoch, history, best, engine, .. } = self;
        Ok((Outcome { ending, model, parameters, epochs: epoch, history, best }, engine))
    }

    fn epochs(&mut self, run: &mut dyn Keeper, observer: &mut dyn Observer) -> Result<Ending> {
        let interval = Duration::from_secs_f64(self.config.train.checkpoint_seconds.min(1e9));
        let mut saved = Instant::now();
        let ending = loop {
            if self.epoch >= self.config.train.epochs {
                break Ending::Finished;
            }
            let wishes = [
                (SAVE, saved.elapsed() >= interval && self.epoch > 0),
                (STOP_EARLY, self.out_of_patience()),
                (INTERRUPT, observer.interrupted()),
            ];
            let own = wishes.iter().filter(|(_, is)| *is).fold(0, |flags, (flag, _)| flags | flag);
            let agreed = self.engine.agree(own)?;
            if agreed & STOP_EARLY != 0 {
                break Ending::StoppedEarly;
            }
            if agreed & INTERRUPT != 0 {
                break Ending::Interrupted;
            }
            if agreed & SAVE != 0 {
                self.save(run, observer)?;
                saved = Instant::now();
            }
            let record = match self.train_epoch() {
                Ok(record) => record,
                Err(error) => return Err(self.give_up(run, error)),
            };
            run.record(&record)?;
            observer.on(&Event::Epoch { record: &record, best: self.best.as_ref() });
            self.history.push(record);
        };
        // Before the first epoch there is nothing to go on from.
        if self.epoch > 0 {
            self.save(run, observer)?;
        }
        Ok(ending)
    }

    /// One epoch, from forward to evaluation.
    fn train_epoch(&mut self) -> Result<Epoch> {
        let train = &self.config.train;
        let epoch = self.epoch + 1;
        let start = Instant::now();
        let (loss, lr) = step(&mut self.model, &mut self.optimizer, &mut self.engine, train, epoch)?;
        let seconds = start.elapsed().as_secs_f64();
        let staleness = self.engine.staleness()?;
        self.epoch = epoch;
        self.seconds += seconds;
        if epoch == train.epochs {
            // What training kept for its next epoch is of no use any more.
            buffer::release();
        }
        let scores = if epoch.is_multiple_of(train.eval_every) || epoch == train.epochs {
            Some(self.evaluate()?)
        } else {
            None
        };
        Ok(Epoch { epoch, loss, lr, seconds, staleness, scores })
    }

    /// Scores the weights as they are, and keeps them if they are the best so far.
    fn evaluate(&mut self) -> Result<Scores> {
        let epoch = self.epoch;
        let scores = self.engine.scores(&self.model, epoch)?;
        let scores = scores.ok_or(Error::Diverged { epoch, loss: f64::NAN })?;
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
    fn give_up(&self, run: &mut dyn Keeper, error: Error) -> Error {
        if self.best.is_some() {
            let _ = run.save_weights(&self.best_weights);
        }
        error
    }

    fn save(&mut self, run: &mut dyn Keeper, observer: &mut dyn Observer) -> Result<()> {
        let mut state = checkpoint_state(&self.model, &self.optimizer, &self.best_weights);
        state.insert_all("boundary.", self.engine.save()?);
        let &mut Trainer { epoch, seconds, best, .. } = self;
        // Before the first evaluation the newest weights are the best known.
        let newest = best.is_none().then(|| self.model.state());
        run.save_weights(newest.as_ref().unwrap_or(&self.best_weights))?;
        run.checkpoint(&Checkpoint { epoch, seconds, best, state })?;
        observer.on(&Event::Checkpoint { epoch });
        Ok(())
    }

    /// Takes up a training where it stood.
    pub(crate) fn restore(&mut self, checkpoint: Checkpoint, history: Vec<Epoch>) -> Result<()> {
        let place = format!("checkpoint of epoch {}", checkpoint.epoch);
        self.model.load(&place, &checkpoint.state.part("model."))?;
        self.optimizer.load(&place, &checkpoint.state.part("optimizer."))?;
        self.engine.load(&place, &checkpoint.state.part("boundary."))?;
        self.best_weights = checkpoint.state.part("best.");
        self.epoch = checkpoint.epoch;
        self.seconds = checkpoint.seconds;
        self.best = checkpoint.best;
        self.history = history;
        Ok(())
    }
}

/// What is timed of an epoch: forward, loss, backward and the optimiser's step. Gives loss and learning rate.
pub(crate) fn step<T: Real>(
    model: &mut Model<T>,
    optimizer: &mut Optimizer<T>,
    engine: &mut impl Engine<T>,
    train: &TrainConfig,
    epoch: u64,
) -> Result<(f64, f64)> {
    // The word 0 is the batch: a full-graph epoch is one.
    let key = Key::new(train.seed, "dropout").with(epoch).with(0);
    let loss = engine.epoch(model, epoch, key)?;
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
