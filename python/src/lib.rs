//! The extension module `halograph._halograph`: the job API of the crate `halograph` for Python.
//!
//! - `error`: errors as exceptions of `halograph._errors`;
//! - `work`: work without the GIL, stopped by signals;
//! - `array`: numpy arrays that the library reads, and views of its arrays;
//! - `dataset`, `training`, `model`: the classes and functions of the module;
//! - `command`: the command line.
//!
//! Signatures, types and docs are in Python: this module has positional arguments only, and everything is checked here or
//! in the library.

mod array;
mod command;
mod dataset;
mod error;
mod model;
mod training;
mod work;

use pyo3::prelude::*;

/// Counts allocations, so that the memory of a run can be predicted.
#[global_allocator]
static ALLOCATOR: halograph::train::memory::Counting = halograph::train::memory::Counting;

#[pymodule]
fn _halograph(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<dataset::Dataset>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<training::Trained>()?;
    module.add_function(wrap_pyfunction!(training::train, module)?)?;
    module.add_function(wrap_pyfunction!(training::leave_world, module)?)?;
    module.add_function(wrap_pyfunction!(model::load, module)?)?;
    module.add_function(wrap_pyfunction!(model::report, module)?)?;
    module.add_function(wrap_pyfunction!(model::write_report, module)?)?;
    module.add_function(wrap_pyfunction!(command::run_command, module)?)
}
