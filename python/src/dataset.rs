//! Datasets.

use std::path::PathBuf;
use std::sync::Arc;

use half::f16;
use halograph::config::choices;
use halograph::graph::build::EdgeOptions;
use halograph::graph::dataset::write::FeatureLayout;
use halograph::graph::dataset::{self, LabelView, Metric, StoredFeatures};
use halograph::graph::generate::{self, PRESETS, presets};
use halograph::graph::import::{ImportArrays, ImportOptions, MatrixArrays, SplitRule, import_arrays};
use halograph_graph::Error;
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::array::{shared, view};
use crate::error::Failure;
use crate::work;

/// A dataset of the library, and the remarks on it.
#[pyclass(frozen, module = "halograph._halograph")]
pub struct Dataset {
    pub data: Arc<dataset::Dataset>,
    notes: Vec<String>,
}

/// A read-only view of an array.
type View<'py> = Bound<'py, PyAny>;

/// An array, or row starts, columns, values and shape of a sparse one.
#[derive(FromPyObject)]
pub enum Matrix<'py> {
    Dense(Bound<'py, PyUntypedArray>),
    Sparse(SparseMatrix<'py>),
}

type SparseMatrix<'py> =
    (Bound<'py, PyUntypedArray>, Bound<'py, PyUntypedArray>, Bound<'py, PyUntypedArray>, [usize; 2]);

/// The arrays of [`Dataset::from_arrays`].
#[derive(FromPyObject)]
pub struct Arrays<'py> {
    #[pyo3(item)]
    edge_index: Bound<'py, PyUntypedArray>,
    #[pyo3(item)]
    edge_weight: Option<Bound<'py, PyUntypedArray>>,
    #[pyo3(item)]
    x: Matrix<'py>,
    #[pyo3(item)]
    y: Option<Bound<'py, PyUntypedArray>>,
    #[pyo3(item)]
    train_mask: Option<Bound<'py, PyUntypedArray>>,
    #[pyo3(item)]
    val_mask: Option<Bound<'py, PyUntypedArray>>,
    #[pyo3(item)]
    test_mask: Option<Bound<'py, PyUntypedArray>>,
}

/// The other arguments of [`Dataset::from_arrays`].
#[derive(FromPyObject)]
pub struct ArrayOptions {
    #[pyo3(item)]
    name: String,
    #[pyo3(item)]
    directed: bool,
    #[pyo3(item)]
    keep_self_loops: bool,
    #[pyo3(item)]
    task: Option<String>,
    #[pyo3(item)]
    metric: Option<String>,
    #[pyo3(item)]
    class_names: Vec<String>,
    #[pyo3(item)]
    feature_names: Vec<String>,
    #[pyo3(item)]
    ids: Option<Vec<String>>,
    #[pyo3(item)]
    split: Option<String>,
    #[pyo3(item)]
    seed: u64,
    #[pyo3(item)]
    layout: String,
}

impl Arrays<'_> {
    fn into_import(self, options: &ArrayOptions) -> PyResult<ImportArrays> {
        let optional = |name: &str, array: &Option<Bound<'_, PyUntypedArray>>| {
            array.as_ref().map(|array| shared(name, array)).transpose()
        };
        let features = match &self.x {
            Matrix::Dense(x) => MatrixArrays::Dense(shared("x", x)?),
            Matrix::Sparse((indptr, indices, values, shape)) => MatrixArrays::Sparse {
                indptr: shared("x.indptr", indptr)?,
                indices: shared("x.indices", indices)?,
                values: shared("x.data", values)?,
                shape: *shape,
            },
        };
        Ok(ImportArrays {
            name: options.name.clone(),
            edges: shared("edge_index", &self.edge_index)?,
            edge_weights: optional("edge_weight", &self.edge_weight)?,
            features,
            feature_names: options.feature_names.clone(),
            labels: optional("y", &self.y)?,
            task: options.task.as_deref().map(|text| named("task", text)).transpose()?,
            class_names: options.class_names.clone(),
            masks: [
                optional("train_mask", &self.train_mask)?,
                optional("val_mask", &self.val_mask)?,
                optional("test_mask", &self.test_mask)?,
            ],
            ids: options.ids.clone(),
        })
    }
}

impl ArrayOptions {
    fn to_import(&self) -> PyResult<ImportOptions> {
        let rule = |text: &String| text.parse().map_err(|problem: String| refuse("split", &problem));
        Ok(ImportOptions {
            edges: EdgeOptions { directed: self.directed, keep_self_loops: self.keep_self_loops },
            split: self.split.as_ref().map_or(Ok(SplitRule::Given), rule)?,
            seed: self.seed,
            feature_layout: match self.layout.as_str() {
                "auto" => FeatureLayout::Auto,
                "dense" => FeatureLayout::Dense,
                "sparse" => FeatureLayout::Sparse,
                other => {
                    return Err(refuse("layout", &format!("{other:?}: must be one of auto, dense, sparse")));
                }
            },
            metric: self.metric.as_deref().map(|text| named::<Metric>("metric", text)).transpose()?,
            ..ImportOptions::default()
        })
    }
}

/// Parses one of the names of a task or a metric; `place` is the argument.
fn named<T: serde::de::DeserializeOwned>(place: &str, text: &str) -> PyResult<T> {
    let names = match place {
        "task" => "single-label, multi-label".to_string(),
        _ => choices("train.metric").join(", "),
    };
    serde_json::from_value(Value::from(text))
        .map_err(|_| refuse(place, &format!("{text:?}: must be one of {names}")))
}

/// Creates the exception for a wrong argument.
pub fn refuse(place: &str, problem: &str) -> PyErr {
    Failure::from(Error::input(place, problem)).into()
}

#[pymethods]
impl Dataset {
    #[staticmethod]
    fn from_arrays(py: Python<'_>, arrays: Arrays<'_>, options: ArrayOptions) -> PyResult<Self> {
        let (arrays, options) = (arrays.into_import(&options)?, options.to_import()?);
        let done = work::run(py, |stop| Ok(import_arrays(arrays, &options, &stop)?));
        let (data, notes) = done.or_signal()?;
        Ok(Dataset { data: Arc::new(data), notes })
    }

    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let done = work::run(py, |_| Ok(dataset::Dataset::open(&path)?));
        Ok(Dataset { data: Arc::new(done.or_signal()?), notes: Vec::new() })
    }

    #[staticmethod]
    fn make(
        py: Python<'_>,
        preset: &str,
        seed: u64,
        path: Option<PathBuf>,
        overwrite: bool,
    ) -> PyResult<Self> {
        let known = presets::find(preset).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            refuse("preset", &format!("{preset:?}: must be one of {}", names.join(", ")))
        })?;
        let spec = generate::Spec { seed, ..known.spec.clone() };
        let done = work::run(py, |stop| match &path {
            None => Ok(generate::make_in_memory(&spec, preset, &stop)?),
            Some(path) => {
                generate::make(&spec, preset, path, overwrite, &stop)?;
                Ok(dataset::Dataset::open(path)?)
            }
        });
        Ok(Dataset { data: Arc::new(done.or_signal()?), notes: Vec::new() })
    }

    fn save(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        work::run(py, |stop| Ok(self.data.save(&path, overwrite, &stop)?)).or_signal()
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    #[getter]
    fn path(&self) -> PyResult<Option<PathBuf>> {
        let path = self.data.path().map(|path| path.to_path_buf());
        Ok(path.map(|path| std::path::absolute(&path).unwrap_or(path)))
    }

    /// Returns the manifest as JSON.
    fn manifest(&self) -> String {
        json!(self.data.manifest).to_string()
    }

    fn ids(&self) -> PyResult<Option<Vec<String>>> {
        Ok(self.data.ids().map_err(Failure::from)?)
    }

    /// Returns dense features; `None` if they are sparse.
    fn dense<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let features = this.get().data.features();
        let shape = [features.rows(), features.cols()];
        // SAFETY: the dataset keeps its arrays, and is immutable.
        let full = features.as_slice::<f32>().map(|values| unsafe { view(this.as_any(), shape, values) });
        // SAFETY: as above.
        let half = || features.as_slice::<f16>().map(|values| unsafe { view(this.as_any(), shape, values) });
        full.or_else(half).transpose()
    }

    /// Returns row starts, columns and values of sparse features; `None` if they are dense.
    fn sparse<'py>(this: &Bound<'py, Self>) -> PyResult<Option<(View<'py>, View<'py>, View<'py>)>> {
        let StoredFeatures::Sparse(arrays) = this.get().data.features() else { return Ok(None) };
        let owner = this.as_any();
        let (starts, columns) = (arrays.starts(), arrays.columns());
        let (full, half) = (arrays.values::<f32>(), arrays.values::<f16>().unwrap_or_default());
        // SAFETY: the dataset keeps its arrays, and is immutable.
        unsafe {
            let values = match full {
                Some(values) => view(owner, [values.len()], values),
                None => view(owner, [half.len()], half),
            };
            Ok(Some((view(owner, [starts.len()], starts)?, view(owner, [columns.len()], columns)?, values?)))
        }
    }

    fn labels<'py>(this: &Bound<'py, Self>) -> PyResult<View<'py>> {
        let owner = this.as_any();
        match this.get().data.labels() {
            // SAFETY: the dataset keeps its arrays, and is immutable.
            LabelView::Single(labels) => unsafe { view(owner, [labels.len()], labels) },
            LabelView::Multi { classes, flags } => {
                let nodes = flags.len() / classes.max(1);
                // SAFETY: as above.
                unsafe { view(owner, [nodes, classes], flags) }
            }
        }
    }

    /// Returns the number of the subset of each node in split `index`: 0 none, 1 train, 2 validation, 3 test.
    fn split<'py>(this: &Bound<'py, Self>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let chosen = this.get().data.with_split(index).map_err(Failure::from)?;
        crate::array::matrix(this.py(), chosen.split().to_vec(), &[chosen.split().len()])
    }

    fn graph<'py>(this: &Bound<'py, Self>) -> PyResult<(View<'py>, View<'py>)> {
        let graph = this.get().data.graph();
        let owner = this.as_any();
        // SAFETY: the dataset keeps its arrays, and is immutable.
        unsafe {
            Ok((
                view(owner, [graph.indptr.len()], graph.indptr)?,
                view(owner, [graph.indices.len()], graph.indices)?,
            ))
        }
    }

    fn edge_weights<'py>(this: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(weights) = this.get().data.edge_weights() else { return Ok(None) };
        // SAFETY: the dataset keeps its arrays, and is immutable.
        unsafe { view(this.as_any(), [weights.len()], weights) }.map(Some)
    }
}
