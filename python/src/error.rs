//! Errors of the library as exceptions of `halograph._errors`.

use halograph::comm;
use halograph::{Error, graph};
use halograph_graph::Error as InputError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// The module of the exceptions.
const MODULE: &str = "halograph._errors";

/// An error of the library, on its way to Python.
pub enum Failure {
    /// Of a job.
    Job(Error),
    /// A panic: a defect of the library.
    Panic(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Job(error)
    }
}

impl From<InputError> for Failure {
    fn from(error: InputError) -> Self {
        Failure::Job(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure {
            Failure::Job(error) => of_job(py, &error),
            Failure::Panic(message) => {
                let text = format!(
                    "internal error: {message}\n  help: this is a defect of halograph; please report it"
                );
                exception(py, "HalographError", text, ["", "", ""])
            }
        })
    }
}

/// Returns the exception of an error of a job.
fn of_job(py: Python<'_>, error: &Error) -> PyErr {
    let plain = |class| exception(py, class, error.to_string(), ["", "", ""]);
    match error {
        Error::Input(error) => of_input(py, error),
        Error::Diverged { .. } | Error::NotFinite { .. } => plain("Diverged"),
        Error::Ranks(comm::Error::Mismatch { .. }) => plain("InputError"),
        Error::Ranks(_) => plain("PeerLost"),
        _ => plain("HalographError"),
    }
}

fn of_input(py: Python<'_>, error: &graph::Error) -> PyErr {
    let text = error.to_string();
    match error {
        InputError::Input { place, problem, help } => {
            exception(py, "InputError", text, [place, problem, help])
        }
        InputError::OutOfMemory { place, problem, help } => {
            exception(py, "OutOfMemory", text, [place, problem, help])
        }
        InputError::Cancelled => PyKeyboardInterrupt::new_err(text),
        InputError::Io { path, .. } => {
            let class = if error.is_environment() { "HalographError" } else { "InputError" };
            exception(py, class, text, [&path.display().to_string(), "", ""])
        }
        _ => exception(py, "HalographError", text, ["", "", ""]),
    }
}

/// Creates an exception with its text, and place, problem and remedy as attributes.
fn exception(py: Python<'_>, class: &str, text: String, [place, problem, help]: [&str; 3]) -> PyErr {
    let create = || {
        let class = py.import(MODULE)?.getattr(class)?;
        class.call1((text, place, problem, help)).map(PyErr::from_value)
    };
    create().unwrap_or_else(|error| error)
}
