//! Where the command line meets the trainer.

use std::path::Path;

use halograph::train::config::StrategyKind;
use halograph::train::ranks::{self, Extras, Leader};
use halograph::train::run::{Resumed, Run};
use halograph::train::trainer::Standing;
use halograph::train::{self, Config, Observer, memory};
use halograph_graph::error::{Error, Result};

use super::source::Source;

pub use halograph::train::Summary;
pub use halograph::train::run::{DataRef, Header, read_header};

/// A run, and where it goes on.
pub struct Progressing {
    run: Run,
    from: Option<Standing>,
}

impl Progressing {
    /// A new run.
    pub fn create(path: &Path, header: Header, overwrite: bool) -> Result<Self> {
        Ok(Progressing { run: Run::create(path, header, overwrite)?, from: None })
    }

    /// The run in `path`, to go on as `header` says; and what the user should know of it.
    pub fn resume(path: &Path, header: Header) -> Result<(Self, Vec<String>)> {
        let Resumed { mut run, checkpoint, history, mut notes } = Run::resume(path)?;
        let done = checkpoint.as_ref().map_or(0, |c| c.epoch);
        let epochs = header.config.train.epochs;
        if done > epochs {
            let problem = format!("{epochs} epochs; the run has done {done} already");
            return Err(
                Error::input("train.epochs", problem).help("give as many or more, or start a new run")
            );
        }
        if done == 0 {
            notes.push("there is no checkpoint yet: the run starts again".into());
        }
        run.go_on(header)?;
        Ok((Progressing { run, from: checkpoint.map(|checkpoint| (checkpoint, history)) }, notes))
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
        trace: Option<&Path>,
        observer: &mut dyn Observer,
    ) -> anyhow::Result<Summary> {
        let trained = match source {
            Source::Dataset(dataset) if self.config().train.strategy == StrategyKind::Single => {
                train::train(dataset, &mut self.run, self.from.take(), observer)
            }
            _ => {
                let extras = Extras { trace, ..Extras::default() };
                ranks::train_on_threads(source.for_ranks(), self.lead(observer), extras)
            }
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

/// Refuses data that cannot be trained on, and what would need more memory than there is, unless forced: before
/// a run is made, or an older one replaced.
///
/// Gives the bytes it will need.
pub fn admit(source: &Source, config: &Config, force: bool) -> anyhow::Result<Option<u64>> {
    source.check()?;
    // What is predicted is the need of one process that has all of the graph. Ranks on several hosts need not fit one.
    let Source::Dataset(dataset) = source else { return Ok(None) };
    if halograph::comm::launched() {
        return Ok(None);
    }
    let predicted = memory::predict(dataset, config).map_err(plain)?;
    predicted.map_or(Ok(()), |bytes| memory::admit(bytes, force)).map_err(plain)?;
    Ok(predicted)
}

/// Bad input as itself, so that it ends with its own exit code.
pub fn plain(error: train::Error) -> anyhow::Error {
    match error {
        train::Error::Input(error) => error.into(),
        other => other.into(),
    }
}
