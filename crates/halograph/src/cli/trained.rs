//! A run that has been trained, opened for use.

use std::path::{Path, PathBuf};

use halograph::nn::Model;
use halograph::nn::state::State;
use halograph::train::Config;
use halograph_graph::Dataset;
use halograph_graph::error::{Error, Result};

use halograph::train::run::{DEMO_DATA, read_weights};

use super::engine::{Header, read_header};
use super::say;

/// The name under which a run keeps data of its own.
const OWN_DATA: &str = DEMO_DATA;

/// Where a run keeps data of its own.
pub fn own_data(run: &Path) -> PathBuf {
    run.join(OWN_DATA)
}

/// Where the data of a run are: where they were, or in the run, should it have moved with data of its own.
pub fn data_path(run: &Path, header: &Header) -> PathBuf {
    let (then, own) = (&header.data.path, own_data(run));
    if !then.exists() && then.ends_with(OWN_DATA) && own.exists() { own } else { then.clone() }
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
    pub fn open(run: &Path, data: Option<&Path>) -> Result<Self> {
        let header = read_header(run)?;
        let weights = read_weights(run)?;
        let dataset = Dataset::open(&data.map_or_else(|| data_path(run, &header), PathBuf::from))?;
        let same = dataset.manifest.fingerprint == header.data.fingerprint;
        if !same && data.is_none() {
            say(&format!("note: {}: the dataset is no longer the one of the run", dataset.path.display()));
        }
        let place = run.display().to_string();
        let trained = Trained { config: header.config, weights, place, dataset };
        trained.check_fit().map_err(|e| if same { e } else { trained.other_data(&e) })?;
        Ok(trained)
    }

    /// The weights must be those of this model for these data.
    fn check_fit(&self) -> Result<()> {
        let m = &self.dataset.manifest;
        let mut model = Model::<f32>::new(
            &self.config.model,
            m.features as usize,
            m.classes as usize,
            self.config.train.seed,
        );
        model.load(&self.place, &self.weights)
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
