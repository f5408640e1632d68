//! A run that has been trained, opened for use.

use std::path::{Path, PathBuf};

use halograph::train::Trained;
use halograph::train::run::DEMO_DATA;
use halograph_graph::error::{Error, Result};

use super::engine::{Header, plain};
use super::say;
use super::source::Source;

/// Where a run keeps data of its own.
pub fn own_data(run: &Path) -> PathBuf {
    run.join(DEMO_DATA)
}

/// Where the data of a run are: where they were, or in the run, should it have moved with data of its own. `None`: they
/// were arrays in memory.
pub fn data_path(run: &Path, header: &Header) -> Option<PathBuf> {
    let then = header.data.path.as_ref()?;
    Some(if !then.exists() && then.ends_with(DEMO_DATA) { own_data(run) } else { then.clone() })
}

/// Opens the data of a run, or `given` in their place.
pub fn open_source(run: &Path, header: &Header, given: Option<&Path>) -> Result<Source> {
    if let Some(path) = given {
        return Source::open(path, 0);
    }
    let Some(path) = data_path(run, header) else {
        let problem = format!("was trained on arrays in memory ({})", header.data.name);
        return Err(Error::input(run.display(), problem)
            .help("say where the same data are on disk: train DATA --resume, eval and predict --data DATA"));
    };
    if path.exists() {
        return Source::open(&path, 0);
    }
    let problem = format!("is gone; {} was trained on it ({})", run.display(), header.data.name);
    Err(Error::input(path.display(), problem)
        .help("say where it is now: train DATA --resume, eval and predict --data DATA"))
}

/// What the run in `run` has learnt, and data to use it on: its own unless others are given.
/// Work is done by as many threads as the run had, unless others are given.
pub fn open(run: &Path, data: Option<&Path>, threads: Option<usize>) -> anyhow::Result<(Trained, Source)> {
    let mut trained = Trained::open(run).map_err(plain)?;
    if let Some(threads) = threads {
        trained.header.config.train.threads = threads;
        trained.header.config.check()?;
    }
    let source = open_source(run, &trained.header, data)?;
    source.described()?;
    if data.is_none() && source.manifest().fingerprint != trained.header.data.fingerprint {
        say(&format!("note: {}: the dataset is no longer the one of the run", source.path().display()));
    }
    Ok((trained, source))
}
