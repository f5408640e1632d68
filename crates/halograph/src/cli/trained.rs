//! A run that has been trained, opened for use.

use std::path::{Path, PathBuf};

use halograph::nn::state::State;
use halograph::train::run::{DEMO_DATA, read_weights};
use halograph::train::{self, Config, evaluation};
use halograph_graph::Dataset;
use halograph_graph::error::Error;

use super::engine::{Header, plain, read_header};
use super::say;

/// Where a run keeps data of its own.
pub fn own_data(run: &Path) -> PathBuf {
    run.join(DEMO_DATA)
}

/// Where the data of a run are: where they were, or in the run, should it have moved with data of its own.
pub fn data_path(run: &Path, header: &Header) -> PathBuf {
    let (then, own) = (&header.data.path, own_data(run));
    if !then.exists() && then.ends_with(DEMO_DATA) { own } else { then.clone() }
}

/// Weights, what they are of, and data to use them on.
pub struct Trained {
    /// How they were trained.
    pub config: Config,
    /// The kept weights.
    pub weights: State,
    /// The run, as it is called in errors.
    pub place: String,
    /// The data.
    pub dataset: Dataset,
}

impl Trained {
    /// Opens the run `run`, with its own data unless others are given, which must have as many features and classes.
    pub fn open(run: &Path, data: Option<&Path>) -> anyhow::Result<Self> {
        let header = read_header(run)?;
        let weights = read_weights(run)?;
        let dataset = Dataset::open(&data.map_or_else(|| data_path(run, &header), PathBuf::from))?;
        let same = dataset.manifest.fingerprint == header.data.fingerprint;
        if !same && data.is_none() {
            say(&format!("note: {}: the dataset is no longer the one of the run", dataset.path.display()));
        }
        let place = run.display().to_string();
        let trained = Trained { config: header.config, weights, place, dataset };
        let Trained { config, weights, place, dataset } = &trained;
        match evaluation::check_fit(dataset, config, place, weights) {
            Err(train::Error::Input(error)) if !same => Err(trained.other_data(&error).into()),
            fit => fit.map(|()| trained).map_err(plain),
        }
    }

    fn other_data(&self, error: &Error) -> Error {
        let m = &self.dataset.manifest;
        let problem = match error {
            Error::Input { problem, .. } => problem.clone(),
            other => other.to_string(),
        };
        let sizes = format!("{} features and {} classes", m.features, m.classes);
        let problem = format!("{sizes} do not fit the weights of {}: {problem}", self.place);
        Error::input(self.dataset.path.display(), problem)
            .help("use a dataset with the features and classes the run was trained on")
    }
}
