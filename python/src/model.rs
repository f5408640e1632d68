//! Trained models: predictions, scores, weights, files.

use std::path::PathBuf;

use halograph::job::{DataOption, JobData, open_data_for};
use halograph::nn::Matrix;
use halograph::nn::state::State;
use halograph::rows::{Chosen, Classes, Output, PredictedClasses, Predictions};
use halograph::train::event::{EpochRecord, Scores};
use halograph::train::report::{self as reports, RunReport, RunSource};
use halograph::train::run::{self, Header, Run};
use halograph::train::{Prediction, TrainedModel};
use halograph_graph::Error;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Value, json};

use crate::array::matrix;
use crate::dataset::{Dataset, refuse};
use crate::error::Failure;
use crate::work;

/// A model with its weights, and where its run and its data are.
#[pyclass(frozen, module = "halograph._halograph")]
pub struct Model {
    pub trained: TrainedModel,
    /// The run directory, if there is one.
    pub run: Option<PathBuf>,
}

/// Data as an argument: a dataset, a path, or by default those of the run.
pub type DataArgument<'py> = Option<DataChoice<'py>>;

/// Scores on training, validation and test nodes, and the validation loss.
type Scored = (Option<f64>, Option<f64>, Option<f64>, Option<f64>);

#[derive(FromPyObject)]
pub enum DataChoice<'py> {
    Dataset(Bound<'py, Dataset>),
    Path(PathBuf),
}

/// Returns the data that an argument names.
pub fn data_option(data: &DataArgument) -> DataOption {
    match data {
        None => DataOption::Default,
        Some(DataChoice::Path(path)) => DataOption::Path(path.clone()),
        Some(DataChoice::Dataset(dataset)) => DataOption::Open(dataset.get().data.clone()),
    }
}

impl Model {
    /// Opens the data and applies `work` to them, without the GIL.
    fn apply<T: Send>(
        &self,
        py: Python<'_>,
        data: &DataArgument,
        work: impl FnOnce(&TrainedModel, &JobData) -> halograph::Result<T> + Send,
    ) -> PyResult<T> {
        let option = data_option(data);
        let done = work::run(py, |_| {
            let (data, _) = open_data_for(&self.trained, self.run.as_deref(), &option)?;
            Ok(work(&self.trained, &data)?)
        });
        done.or_signal()
    }
}

#[pymethods]
impl Model {
    /// Returns data and configuration of the run as JSON.
    fn header(&self) -> String {
        json!(self.trained.header).to_string()
    }

    /// Returns `logits`, `probabilities` or `classes` of all nodes.
    fn predict<'py>(
        &self,
        py: Python<'py>,
        data: DataArgument<'py>,
        output: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let output = match output {
            "logits" => Output::Logits,
            "probabilities" => Output::Probabilities,
            "classes" => Output::Classes,
            other => {
                let problem = format!("{other:?}: must be one of logits, probabilities, classes");
                return Err(refuse("output", &problem));
            }
        };
        let own = &self.trained.header.data;
        let classes = Classes { task: own.task, count: own.classes as usize, names: &[] };
        let logits =
            self.apply(py, &data, |trained, data| trained.predict(data.source(), Prediction::Logits))?;
        if output == Output::Logits {
            return to_numpy(py, &logits);
        }
        let nodes: Vec<u32> = (0..logits.rows() as u32).collect();
        let table = py.detach(|| {
            Predictions::of_logits(&logits, &Chosen { nodes: &nodes, ids: None }, &classes, output)
        });
        match (table.numbers, table.classes) {
            (Some(numbers), _) => to_numpy(py, &numbers),
            (None, Some(PredictedClasses::One(classes))) => {
                matrix(py, classes.iter().map(|&class| i64::from(class)).collect(), &[nodes.len()])
            }
            (None, Some(PredictedClasses::Flags(flags))) => {
                matrix(py, flags.data().to_vec(), &[flags.rows(), flags.cols()])
            }
            (None, None) => unreachable!("tables of logits have classes"),
        }
    }

    /// Returns the output of hidden layer `layer`, counted from 1, or of the last one.
    fn embeddings<'py>(
        &self,
        py: Python<'py>,
        layer: Option<i64>,
        data: DataArgument<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The library refuses layer 0 and those beyond the last.
        let what = match layer.map(usize::try_from) {
            None => Prediction::Embeddings,
            Some(Ok(layer)) => Prediction::Hidden(layer),
            Some(Err(_)) => return Err(refuse("layer", "hidden layers are counted from 1")),
        };
        let hidden = self.apply(py, &data, |trained, data| trained.predict(data.source(), what))?;
        to_numpy(py, &hidden)
    }

    /// Returns scores on training, validation and test nodes, and the validation loss.
    fn evaluate(&self, py: Python<'_>, data: DataArgument<'_>) -> PyResult<Scored> {
        let scores = self.apply(py, &data, |trained, data| trained.evaluate(data.source()))?;
        let Scores { train, val, test, val_loss } = scores;
        Ok((train, val, test, val_loss))
    }

    /// Returns name, type, shape and bytes of all weights.
    fn weights<'py>(&self, py: Python<'py>) -> Vec<(String, &'static str, Vec<usize>, Bound<'py, PyBytes>)> {
        let tensors = self.trained.weights().0.iter();
        let parts = tensors.filter_map(|(name, tensor)| {
            Some((name.clone(), tensor.descr()?, tensor.shape.clone(), PyBytes::new(py, tensor.bytes())))
        });
        parts.collect()
    }

    /// Returns mean and scale of each column by which features are standardised, if they are.
    fn scaling(&self) -> PyResult<Option<(Vec<f64>, Vec<f64>)>> {
        let Some(state) = self.trained.scaling_state() else { return Ok(None) };
        let columns = [self.trained.header.data.features as usize];
        let read = |name| state.real::<f64>("scaling", name, &columns).map_err(Failure::from);
        Ok(Some((read("mean")?, read("scale")?)))
    }

    /// Writes a run directory, with these epochs and this summary as JSON.
    fn save(
        &self,
        py: Python<'_>,
        path: PathBuf,
        overwrite: bool,
        history: &str,
        summary: Option<&str>,
    ) -> PyResult<()> {
        let epochs: Vec<EpochRecord> = parse("history", history)?;
        let summary: Option<Value> = summary.map(|text| parse("summary", text)).transpose()?;
        let write = || -> halograph_graph::Result<()> {
            let mut run = Run::create(&path, self.trained.header.clone(), overwrite)?;
            let mut write = || {
                self.trained.scaling_state().map_or(Ok(()), |scaling| run.save_scaling(scaling))?;
                run.save_weights(self.trained.weights())?;
                epochs.iter().try_for_each(|epoch| run.record(epoch))?;
                summary.as_ref().map_or(Ok(()), |summary| run.finish(summary))
            };
            let written = write();
            if written.is_err() {
                run.discard_if_empty();
            }
            written
        };
        work::run(py, |_| Ok(write()?)).or_signal()
    }

    /// Returns header, weights and scaling as bytes, for pickles.
    fn parts<'py>(&self, py: Python<'py>) -> (String, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>) {
        let bytes = |state: &State| PyBytes::new(py, &state.to_bytes());
        (self.header(), bytes(self.trained.weights()), self.trained.scaling_state().map(bytes))
    }

    /// Creates a model of the [`Model::parts`] of another, whose run was in the directory `run`.
    #[staticmethod]
    fn from_parts(
        header: &str,
        weights: &[u8],
        scaling: Option<&[u8]>,
        run: Option<PathBuf>,
    ) -> PyResult<Self> {
        let header: Header = parse("model", header)?;
        let create = || -> halograph::Result<TrainedModel> {
            let scaling = scaling.map(|bytes| State::from_bytes("scaling", bytes)).transpose()?;
            TrainedModel::from_parts(header, State::from_bytes("weights", weights)?, scaling)
        };
        Ok(Model { trained: create().map_err(Failure::from)?, run })
    }
}

/// Reads the model, the epochs and the summary of a run directory, the last two as JSON.
#[pyfunction]
pub fn load(py: Python<'_>, path: PathBuf) -> PyResult<(Model, String, Option<String>)> {
    let done = work::run(py, |_| {
        let trained = TrainedModel::open(&path)?;
        let (history, summary) = (run::read_history(&path)?, run::read_summary(&path)?);
        Ok((trained, json!(history).to_string(), summary.map(|summary| summary.to_string())))
    });
    let (trained, history, summary) = done.or_signal()?;
    let path = std::path::absolute(&path).unwrap_or(path);
    Ok((Model { trained, run: Some(path) }, history, summary))
}

/// Returns the report on a run directory.
#[pyfunction]
pub fn report(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let source = RunSource { run: path, trace: None };
    work::run(py, |_| Ok(RunReport::read(&[source])?.html())).or_signal()
}

/// Writes a report to a file.
#[pyfunction]
pub fn write_report(py: Python<'_>, path: PathBuf, html: &str, overwrite: bool) -> PyResult<()> {
    work::run(py, |_| Ok(reports::write(&path, html, overwrite)?)).or_signal()
}

/// Parses JSON that this package has written.
fn parse<T: serde::de::DeserializeOwned>(place: &str, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| Failure::from(Error::input(place, error)).into())
}

fn to_numpy<'py>(py: Python<'py>, rows: &Matrix<f32>) -> PyResult<Bound<'py, PyAny>> {
    matrix(py, rows.data().to_vec(), &[rows.rows(), rows.cols()])
}
