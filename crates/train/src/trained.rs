//! Trained models: scores and predictions.

use std::path::Path;

use halograph_graph::dataset::{Dataset, Manifest, Task};
use halograph_graph::error::Error;
use halograph_graph::partition::Shard;
use halograph_kernels::Real;
use halograph_nn::model::Kind;
use halograph_nn::state::State;
use halograph_nn::{Input, Matrix, Model};

use crate::config::{Normalize, Precision};
use crate::data::{Data, Preprocessing, Scaling, column_order};
use crate::error::Result;
use crate::evaluation::{self, Detail, Evaluated, Keep};
use crate::event::Scores;
use crate::launch::{DataSource, TrainedShards};
use crate::pool::{in_pool, threads_among};
use crate::run::{self, Header, MemoryRun, RunStore};
use crate::setup::new_model;

/// What to do about data with other classes than those of the run.
const CLASSES_HELP: &str =
    "eval needs data with the classes that the run was trained on; predict needs no labels";

/// What [`TrainedModel::predict`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prediction {
    /// Nodes × classes, before softmax or sigmoid.
    Logits,
    /// Nodes × hidden size: the input of the last layer.
    Embeddings,
    /// Nodes × hidden size: the output of this hidden layer, counted from 1, after norm and activation. The dense layer at
    /// the beginning of GCNII and ResGCN+ counts.
    Hidden(usize),
}

impl Prediction {
    /// Returns the number of stages that are evaluated, of `all` stages of a model of this kind.
    fn stages(self, all: usize, kind: Kind) -> Result<usize> {
        // Of GIN, a layer is two stages: its MLP has two dense layers.
        let stages_per_layer = if matches!(kind, Kind::Gin) { 2 } else { 1 };
        let hidden = (all - 1) / stages_per_layer;
        match self {
            Prediction::Logits => Ok(all),
            Prediction::Embeddings => Ok(hidden * stages_per_layer),
            Prediction::Hidden(layer) if (1..=hidden).contains(&layer) => Ok(layer * stages_per_layer),
            Prediction::Hidden(layer) => {
                let problem = match hidden {
                    0 => format!("no hidden layer {layer}: the model has none"),
                    _ => format!("no hidden layer {layer}: the model has {hidden}, counted from 1"),
                };
                Err(Error::input("--embeddings", problem).into())
            }
        }
    }
}

/// A model with the weights of the best evaluation of a run.
pub struct TrainedModel {
    /// Data and configuration of the run.
    pub header: Header,
    weights: State,
    /// Statistics by which features are scaled, if there are any.
    scaling: Option<State>,
    /// Name of the run in errors.
    place: String,
}

impl TrainedModel {
    /// Reads the run directory `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let header = run::read_header(path)?;
        let (weights, scaling) = (run::read_weights(path)?, run::read_scaling(path)?);
        let trained = TrainedModel { header, weights, scaling, place: path.display().to_string() };
        trained.header.config.check()?;
        trained.model::<f32>()?;
        Ok(trained)
    }

    /// Copies the weights of a run that has no directory. Fails if nothing has been trained.
    pub fn of(run: &MemoryRun) -> Result<Self> {
        let place = "run without a directory".to_string();
        let weights = run.weights().cloned();
        let weights = weights.ok_or_else(|| Error::input(&place, "there are no weights yet"))?;
        let header = run.header().clone();
        Ok(TrainedModel { header, weights, scaling: run.scaling().cloned(), place })
    }

    /// Puts a model together: data and configuration of its run, weights, and the statistics by which features are scaled, if
    /// there are any. Refuses weights of another model.
    pub fn from_parts(header: Header, weights: State, scaling: Option<State>) -> Result<Self> {
        let trained = TrainedModel { header, weights, scaling, place: "model".to_string() };
        trained.header.config.check()?;
        trained.model::<f32>()?;
        Ok(trained)
    }

    /// Returns the statistics by which features are scaled, if there are any: `mean` and `scale` of each column.
    pub fn scaling_state(&self) -> Option<&State> {
        self.scaling.as_ref()
    }

    /// Returns the weights under PyG's names.
    pub fn weights(&self) -> &State {
        &self.weights
    }

    /// Creates the model with its weights.
    fn model<T: Real>(&self) -> Result<Model<T>> {
        let mut model = new_model(&self.header.data, &self.header.config)?;
        model.load(&self.place, &self.weights)?;
        Ok(model)
    }

    fn scaling(&self) -> Result<Scaling> {
        match self.header.config.data.normalize {
            Normalize::None => Ok(Scaling::None),
            Normalize::Rows => Ok(Scaling::Rows),
            Normalize::Columns => {
                let missing = || {
                    Error::input(
                        &self.place,
                        "the statistics by which features are scaled are missing (scaling.safetensors)",
                    )
                };
                let state = self.scaling.as_ref().ok_or_else(missing)?;
                Ok(Scaling::from_state(&self.place, state, self.header.data.features as usize)?)
            }
        }
    }

    /// Returns how features of these data are read: columns with names in the order of the run. Refuses other names and, if
    /// the run or the data have none, another number of features.
    fn preprocessing(&self, place: &str, manifest: &Manifest) -> Result<Preprocessing> {
        let (own, scaling) = (&self.header.data, self.scaling()?);
        if !own.feature_names.is_empty() && !manifest.feature_names.is_empty() {
            let columns = column_order(&own.feature_names, &manifest.feature_names).map_err(|problem| {
                let problem = format!("feature columns differ from those of {}: {problem}", self.place);
                Error::input(place, problem)
                    .help("import the data with the columns that the run was trained on (--feature-cols), in any order")
            })?;
            return Ok(Preprocessing { columns, scaling });
        }
        if own.features != manifest.features {
            let problem =
                format!("{} features; {} was trained on {}", manifest.features, self.place, own.features);
            return Err(Error::input(place, problem)
                .help("use a dataset with the features that the run was trained on, in the same order")
                .into());
        }
        Ok(scaling.into())
    }

    /// Refuses data without labels, and data with another task or more classes than the model. `by_name`: classes are matched by
    /// name later.
    fn check_classes(&self, place: &str, other: &Manifest, by_name: bool) -> Result<()> {
        let own = &self.header.data;
        if other.classes == 0 {
            return Err(Error::input(place, "no node has a label")
                .help("eval needs labels; predict needs none")
                .into());
        }
        let refuse = |problem: String| Err(Error::input(place, problem).help(CLASSES_HELP).into());
        if other.task != own.task || (other.task == Task::MultiLabel && other.classes != own.classes) {
            return refuse(format!(
                "{} with {} classes; {} was trained on {} with {}",
                other.task, other.classes, self.place, own.task, own.classes
            ));
        }
        if by_name {
            return Ok(());
        }
        if other.classes > own.classes {
            return refuse(format!(
                "{} classes; {} was trained on {}",
                other.classes, self.place, own.classes
            ));
        }
        let differ = own.class_names.iter().zip(&other.class_names).position(|(a, b)| a != b);
        match differ {
            Some(k) => refuse(format!(
                "class {k} is {:?}; {} was trained with {:?}",
                other.class_names[k], self.place, own.class_names[k]
            )),
            None => Ok(()),
        }
    }

    /// Returns the dataset with the classes of the model, if both have names: only some of them may have nodes.
    fn with_own_classes(&self, dataset: &Dataset) -> Result<Option<Dataset>> {
        let (own, other) = (&self.header.data.class_names, &dataset.manifest.class_names);
        let is_single = dataset.manifest.task == Task::SingleLabel;
        if !is_single || own.is_empty() || other.is_empty() || own == other {
            return Ok(None);
        }
        let named = dataset.with_classes(own).map_err(|error| error.help(CLASSES_HELP))?;
        Ok(Some(named))
    }

    /// Scores the model on the data of `source`, exactly, by the metric of the run. Blocks.
    pub fn evaluate<'a>(&self, source: impl Into<DataSource<'a>>) -> Result<Scores> {
        self.evaluate_classes(source).map(|found| found.scores)
    }

    /// Scores the model and its single classes on the data of `source`, exactly. Blocks.
    pub fn evaluate_classes<'a>(&self, source: impl Into<DataSource<'a>>) -> Result<Evaluated> {
        let source = source.into();
        let (place, manifest) = described(source)?;
        let preprocessing = self.preprocessing(&place, &manifest)?;
        let named = match source {
            DataSource::Dataset(dataset) => self.with_own_classes(dataset)?,
            DataSource::Shards(_) => None,
        };
        self.check_classes(&place, &manifest, named.is_some())?;
        let source = named.as_ref().map_or(source, DataSource::Dataset);
        let train = &self.header.config.train;
        let found = in_pool(threads_among(train, 1), || match train.precision {
            Precision::F32 => evaluate_in::<f32>(self, source, preprocessing),
            Precision::F64 => evaluate_in::<f64>(self, source, preprocessing),
        })?;
        found.ok_or_else(|| self.not_finite(place))
    }

    /// Returns one row per node of `source`, in dataset order. Uses all edges, inductive or not. Refuses to return numbers that
    /// are not finite. Blocks.
    pub fn predict<'a>(&self, source: impl Into<DataSource<'a>>, what: Prediction) -> Result<Matrix<f32>> {
        let source = source.into();
        let (place, manifest) = described(source)?;
        let preprocessing = self.preprocessing(&place, &manifest)?;
        let train = &self.header.config.train;
        let rows = in_pool(threads_among(train, 1), || match train.precision {
            Precision::F32 => predict_in::<f32>(self, source, preprocessing, what),
            Precision::F64 => predict_in::<f64>(self, source, preprocessing, what),
        })?;
        if evaluation::is_finite(&rows) { Ok(rows) } else { Err(self.not_finite(place)) }
    }

    fn not_finite(&self, data: String) -> crate::Error {
        crate::Error::NotFinite { place: self.place.clone(), data }
    }
}

/// Returns the scores; `None` if outputs are not finite.
fn evaluate_in<T: Real>(
    trained: &TrainedModel,
    source: DataSource,
    preprocessing: Preprocessing,
) -> Result<Option<Evaluated>> {
    let model = trained.model::<T>()?;
    let config = &trained.header.config;
    match source {
        DataSource::Dataset(dataset) => evaluation::scores(
            &model,
            // The row order of training, for bit-identical scores.
            &Data::load(dataset, config.graphs(), preprocessing, config.nested_hops())?
                .with_objective(&config.train)?,
            Keep::Nothing,
            Detail::Classes,
        ),
        DataSource::Shards(shards) => TrainedShards { shards, config, preprocessing }.scores(&model),
    }
}

fn predict_in<T: Real>(
    trained: &TrainedModel,
    source: DataSource,
    preprocessing: Preprocessing,
    what: Prediction,
) -> Result<Matrix<f32>> {
    let model = trained.model::<T>()?;
    let stages = what.stages(model.stages.len(), trained.header.config.model.kind)?;
    let parts = match source {
        DataSource::Dataset(dataset) => {
            let view = Data::whole(dataset, trained.header.config.graphs(), preprocessing)?;
            let ids = (0..view.block.sources()).map(|row| view.block.id(row)).collect();
            vec![(ids, evaluation::stage_output(&model, &view, stages)?)]
        }
        DataSource::Shards(shards) => {
            let config = &trained.header.config;
            TrainedShards { shards, config, preprocessing }.stage_output(&model, stages)?
        }
    };
    let nodes = parts.iter().map(|(ids, _): &(Vec<u32>, Input<T>)| ids.len()).sum();
    let mut rows = None;
    for (ids, found) in &parts {
        let values = found.full();
        let all = rows.get_or_insert_with(|| Matrix::unspecified(nodes, values.cols()));
        for (row, &id) in ids.iter().enumerate() {
            let out = all.run_mut(id as usize..id as usize + 1).iter_mut();
            out.zip(values.run(row..row + 1)).for_each(|(out, x)| *out = x.wide() as f32);
        }
    }
    Ok(rows.unwrap_or_default())
}

/// Returns the place of the data, for errors, and their manifest.
fn described(source: DataSource) -> Result<(String, Manifest)> {
    Ok(match source {
        DataSource::Dataset(dataset) => (dataset.location(), dataset.manifest.clone()),
        DataSource::Shards(path) => (path.display().to_string(), Shard::describe(path, 0)?.partition.dataset),
    })
}
