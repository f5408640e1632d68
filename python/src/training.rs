//! Training.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use halograph::cli::key_of_flag;
use halograph::config::{self, Setting};
use halograph::job::{DataOption, Job, JobOptions, OutOption, World};
use halograph::nn::model::Kind;
use halograph::train::Config;
use halograph::train::event::{Ending, EpochRecord, Event, Observer};
use halograph::train::run::read_history;
use halograph::{Error, Result};
use pyo3::prelude::*;
use serde_json::json;

use crate::error::Failure;
use crate::model::{DataArgument, Model, data_option};
use crate::work::{self, StopFlag};

/// The ranks that a launcher started: joined by the first run, left when Python ends.
static WORLD: Mutex<Option<World>> = Mutex::new(None);
/// Time between two reports of optimiser steps.
const STEP_INTERVAL: Duration = Duration::from_millis(100);

/// A setting: its name, a key of the table that it is, if it is one, and its value as TOML or text.
type SettingArgument = (String, Option<String>, String);

/// The arguments of [`train`] besides the data.
#[derive(FromPyObject)]
pub struct Arguments {
    #[pyo3(item)]
    settings: Vec<SettingArgument>,
    #[pyo3(item)]
    config: Option<PathBuf>,
    #[pyo3(item)]
    out: Option<PathBuf>,
    #[pyo3(item)]
    resume: bool,
    #[pyo3(item)]
    overwrite: bool,
    #[pyo3(item)]
    force: bool,
    #[pyo3(item)]
    trace: Option<PathBuf>,
    /// Called with the name and the values of each event; stops the run by returning `False`.
    #[pyo3(item)]
    on_event: Py<PyAny>,
    /// Called with the remarks that are known before the training.
    #[pyo3(item)]
    on_notes: Py<PyAny>,
}

/// What a run was, when it ended.
#[pyclass(frozen, module = "halograph._halograph")]
pub struct Trained {
    /// The model; `None` on ranks other than 0.
    model: Mutex<Option<Model>>,
    /// The epochs as JSON.
    #[pyo3(get)]
    history: String,
    /// The summary as JSON.
    #[pyo3(get)]
    summary: Option<String>,
    /// The run directory.
    #[pyo3(get)]
    path: Option<PathBuf>,
    /// Remarks.
    #[pyo3(get)]
    notes: Vec<String>,
    /// Whether the run was stopped.
    #[pyo3(get)]
    interrupted: bool,
}

#[pymethods]
impl Trained {
    /// Moves the model out; `None` on ranks other than 0.
    fn take_model(&self) -> Option<Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Trains on `data`. Events are passed on in another thread.
#[pyfunction]
pub fn train(py: Python<'_>, data: DataArgument<'_>, arguments: Arguments) -> PyResult<Trained> {
    let options = arguments.options(data_option(&data))?;
    let Arguments { on_event, on_notes, .. } = arguments;
    let raised = Mutex::new(None);
    let done = work::run(py, |stop| {
        let world = world(&options)?;
        let mut events = Events {
            on_event,
            is_leader: world.is_leader(),
            stop,
            raised: &raised,
            epochs: 0,
            stepped: Instant::now(),
            records: Vec::new(),
        };
        run(&options, &world, &on_notes, &mut events).map_err(|error| Failure::Job(world.fail(error, |_| {})))
    });
    // An exception of a callback is the cause of what follows it.
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    match (done.result, done.signal) {
        (Ok(trained), signal) => match signal {
            Some(signal) if !trained.has_learnt() || !is_interrupt(py, &signal) => Err(signal),
            _ => Ok(trained),
        },
        (Err(_), Some(signal)) => Err(signal),
        (Err(failure), None) => Err(failure.into()),
    }
}

impl Trained {
    /// Returns whether there is anything to keep: always on ranks that have no results.
    fn has_learnt(&self) -> bool {
        self.summary.is_none() || self.model.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py)
}

/// Leaves the ranks that a launcher started. Collective; blocks. Called when Python ends.
#[pyfunction]
pub fn leave_world(py: Python<'_>) {
    let world = WORLD.lock().unwrap_or_else(PoisonError::into_inner).take();
    // After a failure there is nothing to leave.
    py.detach(|| world.map(World::close).transpose().ok());
}

/// Returns the ranks that a launcher started, which join in the first call.
fn world(options: &JobOptions) -> Result<World, Error> {
    let mut joined = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    if joined.is_none() {
        *joined = Some(World::join(&options.settings)?);
    }
    Ok(joined.clone().unwrap_or_default())
}

/// Opens and trains the job.
fn run(
    options: &JobOptions,
    world: &World,
    on_notes: &Py<PyAny>,
    events: &mut Events<'_>,
) -> Result<Trained> {
    let mut job = Job::open(options, world, &events.stop)?;
    let mut notes: Vec<String> = job.notes().iter().map(ToString::to_string).collect();
    let warned = Python::attach(|py| on_notes.call1(py, (notes.clone(),)).map(drop));
    events.check(warned);
    let summary = job.train(events)?;
    let Some(summary) = summary else {
        let path = job.directory().map(PathBuf::from);
        let interrupted = events.stop.get();
        return Ok(Trained {
            model: Mutex::new(None),
            history: "[]".into(),
            summary: None,
            path,
            notes,
            interrupted,
        });
    };
    notes.extend(job.notes_on(&summary).iter().map(ToString::to_string));
    let path = job
        .directory()
        .filter(|_| !job.is_removed())
        .map(|path| std::path::absolute(path).unwrap_or(path.into()));
    let model = match summary.is_empty() {
        true => None,
        false => Some(Model { trained: job.trained()?, run: path.clone() }),
    };
    let history = match &path {
        Some(path) => read_history(path)?,
        None => std::mem::take(&mut events.records),
    };
    Ok(Trained {
        model: Mutex::new(model),
        history: json!(history).to_string(),
        summary: Some(job.summary_json(&summary).to_string()),
        path,
        notes,
        interrupted: summary.ending == Ending::Interrupted,
    })
}

impl Arguments {
    fn options(&self, data: DataOption) -> PyResult<JobOptions> {
        let file = self.config.as_deref().map(config::read_file).transpose().map_err(Failure::from)?;
        let own = self.settings.iter().flat_map(setting);
        Ok(JobOptions {
            data,
            settings: file.into_iter().flatten().chain(own).collect(),
            out: self.out.clone().map_or(OutOption::Memory, OutOption::Path),
            resume: self.resume,
            overwrite: self.overwrite,
            force: self.force,
            trace: self.trace.clone(),
            ..JobOptions::default()
        })
    }
}

/// Returns the settings of an argument, whose name is a flag, the last part of a key, or a key.
fn setting((name, inner, text): &SettingArgument) -> Vec<Setting> {
    let place = format!("argument {name}");
    let key = key_of_flag(name).or_else(|| key_of_name(name)).unwrap_or_else(|| name.clone());
    let mut setting = Setting::new(&place, &key, text);
    setting.key.extend(inner.clone());
    setting.parts()
}

/// Returns the key whose last part is `name`.
fn key_of_name(name: &str) -> Option<String> {
    let known = config::flatten(&Config::new(Kind::Gcn)).unwrap_or_default();
    let keys = known.into_iter().map(|(key, _)| key).chain(config::OPTIONAL.map(String::from));
    keys.chain([config::FREE.join(".")]).find(|key| key.rsplit('.').next() == Some(name))
}

/// Passes events on to Python.
struct Events<'a> {
    on_event: Py<PyAny>,
    /// Whether this process is rank 0: others do not call back.
    is_leader: bool,
    stop: &'a StopFlag,
    /// The first exception of a callback.
    raised: &'a Mutex<Option<PyErr>>,
    /// Last epoch.
    epochs: u64,
    /// Time of the last report of a step.
    stepped: Instant,
    /// The epochs of this process.
    records: Vec<EpochRecord>,
}

impl Events<'_> {
    /// Stops the run after an exception.
    fn check<T>(&self, result: PyResult<T>) -> Option<T> {
        result
            .map_err(|error| {
                self.stop.set();
                self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            })
            .ok()
    }

    /// Calls back, unless a callback has raised before.
    fn call(&self, kind: &str, values: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>) {
        if !self.is_leader || self.raised.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        Python::attach(|py| {
            let result = values(py).and_then(|values| self.on_event.bind(py).call1((kind, values)));
            // Only `False`: a callback without a return value continues.
            let stops =
                self.check(result).is_some_and(|answer| answer.is(pyo3::types::PyBool::new(py, false)));
            if stops {
                self.stop.set();
            }
        });
    }
}

impl Observer for Events<'_> {
    fn on(&mut self, event: &Event) {
        match *event {
            Event::Started { parameters, from, epochs, .. } => {
                self.epochs = epochs;
                self.call("started", |py| Ok((parameters, from, epochs).into_pyobject(py)?.into_any()));
            }
            Event::Step { epoch, step, steps, loss } => {
                if self.stepped.elapsed() >= STEP_INTERVAL {
                    self.stepped = Instant::now();
                    let epochs = self.epochs;
                    self.call("step", |py| {
                        Ok((epoch, epochs, step, steps, loss).into_pyobject(py)?.into_any())
                    });
                }
            }
            Event::Epoch { record, best } => {
                self.records.push(record.clone());
                let &EpochRecord { epoch, loss, lr, seconds, .. } = record;
                let epochs = self.epochs;
                self.call("epoch", |py| Ok((epoch, epochs, loss, lr, seconds).into_pyobject(py)?.into_any()));
                if let Some(scores) = record.scores {
                    let taken = record.evaluation_seconds.unwrap_or(0.0);
                    let best = best.map(|best| best.epoch);
                    let scores = (scores.train, scores.val, scores.test, scores.val_loss);
                    self.call("evaluation", |py| {
                        Ok((epoch, scores, taken, best).into_pyobject(py)?.into_any())
                    });
                }
            }
            Event::UndefinedValidationScore | Event::Checkpoint { .. } => {}
        }
    }

    fn interrupted(&self) -> bool {
        self.stop.get()
    }
}
