//! Where the command line meets the trainer.

use std::path::Path;

use halograph::train::admission::{self, PartSize};
use halograph::train::config::StrategyKind;
use halograph::train::launch::{self, Extras, Leader};
use halograph::train::run::{Resumed, Run};
use halograph::train::trainer::ResumePoint;
use halograph::train::{self, Config, Observer};
use halograph_graph::Dataset;
use halograph_graph::error::{Error, Result};
use halograph_graph::partition::{Assignment, Facts, Report, cache};

use super::assign;
use super::progress::Bar;
use super::source::Source;

pub use halograph::train::Summary;
pub use halograph::train::run::{DataRef, Header, read_header};

/// A run, and where it goes on.
pub struct Progressing {
    run: Run,
    from: Option<ResumePoint>,
    /// Epochs it had when this process took it up.
    pub started: u64,
}

impl Progressing {
    /// A new run.
    pub fn create(path: &Path, header: Header, overwrite: bool) -> Result<Self> {
        Ok(Progressing { run: Run::create(path, header, overwrite)?, from: None, started: 0 })
    }

    /// The run in `path`, to go on as `header` says; and what the user should know of it.
    pub fn resume(path: &Path, header: Header) -> Result<(Self, Vec<String>)> {
        let Resumed { mut run, checkpoint, history, mut notes } = Run::resume(path)?;
        let done = checkpoint.as_ref().map_or(0, |c| c.epoch);
        let in_epoch = checkpoint.as_ref().is_some_and(|c| c.partial.is_some());
        let epochs = header.config.train.epochs;
        if done + in_epoch as u64 > epochs {
            let begun = done + in_epoch as u64;
            let problem = format!("{epochs} epochs; the run has reached epoch {begun} already");
            return Err(Error::input("train.epochs", problem)
                .help(format!("give {begun} or more, or start a new run")));
        }
        if checkpoint.is_none() {
            notes.push("there is no checkpoint yet: the run starts again".into());
        }
        run.go_on(header)?;
        let from = checkpoint.map(|checkpoint| ResumePoint::new(checkpoint, history));
        Ok((Progressing { run, from, started: done }, notes))
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.run.path()
    }

    /// What it does.
    pub fn config(&self) -> &Config {
        &self.run.header().config
    }

    /// Trains to the end, or until `observer` asks to stop.
    pub fn train(
        &mut self,
        source: &Source,
        extras: Extras,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Summary> {
        let trained = match source {
            Source::Dataset(dataset) if self.config().train.strategy == StrategyKind::Single => {
                train::train(dataset, &mut self.run, self.from.take(), observer)
            }
            _ => launch::train_on_threads(source.for_ranks(), self.lead(observer), extras),
        };
        trained.map_err(plain)
    }

    /// Removes a new run that holds no epoch yet; gives whether it did.
    pub fn take_back(&mut self) -> bool {
        self.run.take_back()
    }

    /// What rank 0 of several needs.
    pub fn lead<'a>(&'a mut self, observer: &'a mut dyn Observer) -> Leader<'a> {
        Leader { from: self.from.take(), run: &mut self.run, observer }
    }

    /// What it is.
    pub fn header(&self) -> &Header {
        self.run.header()
    }
}

/// Whether there is a run in `path`.
pub fn is_run(path: &Path) -> bool {
    path.join("run.json").exists()
}

/// What is known of a run before it is made, or an older one replaced.
pub struct Prepared {
    /// How nodes are dealt out to ranks, if DATA is not in parts.
    pub assignment: Option<Assignment>,
    /// Bytes it will need.
    pub predicted: Option<u64>,
}

/// Refuses data that cannot be trained on, and what would need more memory than there is, unless forced.
pub fn prepare(source: &Source, config: &Config, force: bool, bar: &Bar) -> anyhow::Result<Prepared> {
    source.check()?;
    let assignment = match source {
        Source::Dataset(dataset) if config.train.strategy != StrategyKind::Single => {
            Some(deal_out(dataset, config, force, bar)?)
        }
        _ => None,
    };
    // There every rank predicts its own need.
    if halograph::comm::launched() {
        return Ok(Prepared { assignment, predicted: None });
    }
    bar.glance("predicting memory")?;
    let predicted = predict(source, assignment.as_ref(), config)?;
    predicted.map_or(Ok(()), |bytes| admission::admit(bytes, force)).map_err(plain)?;
    // Once more: until here nothing was made.
    bar.glance("loading")?;
    Ok(Prepared { assignment, predicted })
}

fn deal_out(dataset: &Dataset, config: &Config, force: bool, bar: &Bar) -> Result<Assignment> {
    let recipe = launch::recipe(&config.train);
    let (assignment, is_new) = assign::find(dataset, &recipe, "--partition stream", force, bar)?;
    if is_new {
        cache::keep(dataset, &recipe, &assignment);
    }
    Ok(assignment)
}

/// Bytes that all of the graph needs in this process, as a whole or in parts.
fn predict(source: &Source, assignment: Option<&Assignment>, config: &Config) -> anyhow::Result<Option<u64>> {
    let data = DataRef::of(source.manifest(), source.path())?;
    let predicted = match (source, assignment) {
        (Source::Dataset(dataset), None) => admission::predict(dataset, config),
        (Source::Dataset(dataset), Some(assignment)) => {
            let facts = Facts::of(dataset, assignment)?;
            let sizes: Vec<_> = Report::of(&facts).sizes.iter().map(PartSize::from).collect();
            admission::predict_parts(&facts.whole, &data, &sizes, config)
        }
        (Source::Shards { whole, .. }, _) => {
            let sizes: Vec<_> = source.described()?.iter().map(PartSize::from).collect();
            admission::predict_parts(whole, &data, &sizes, config)
        }
    };
    predicted.map_err(plain)
}

/// Bad input as itself, so that it ends with its own exit code.
pub fn plain(error: train::Error) -> anyhow::Error {
    match error {
        train::Error::Input(error) => error.into(),
        other => other.into(),
    }
}
