//! Trained models: scores and predictions of finished runs.

use std::path::Path;

use halograph_graph::dataset::{Manifest, Task};
use halograph_graph::error::Error;
use halograph_graph::partition::Shard;
use halograph_kernels::Real;
use halograph_nn::state::State;
use halograph_nn::{Matrix, Model};

use crate::config::{Normalize, Precision};
use crate::data::{Data, Scaling};
use crate::error::Result;
use crate::evaluation;
use crate::event::Scores;
use crate::launch::{Source, TrainedShards};
use crate::pool::{in_pool, threads_among};
use crate::run::{self, Header};
use crate::setup::new_model;

/// What [`predict`] gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Nodes x classes, before softmax or sigmoid.
    Logits,
    /// Nodes x hidden: what the last layer reads.
    Embeddings,
}

/// What a run has learnt.
pub struct Trained {
    /// What it was.
    pub header: Header,
    /// The kept weights.
    pub weights: State,
    /// What was done to features, if that has numbers.
    pub scaling: Option<State>,
    /// The run, as errors call it.
    pub place: String,
}

impl Trained {
    /// Reads the run in `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let header = run::read_header(path)?;
        let (weights, scaling) = (run::read_weights(path)?, run::read_scaling(path)?);
        let trained = Trained { header, weights, scaling, place: path.display().to_string() };
        trained.header.config.check()?;
        trained.model::<f32>()?;
        Ok(trained)
    }

    /// Its model, with the kept weights.
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
                let missing = || Error::input(&self.place, "the scaling of its features is missing");
                let state = self.scaling.as_ref().ok_or_else(missing)?;
                Ok(Scaling::from_state(&self.place, state, self.header.data.features as usize)?)
            }
        }
    }

    /// Refuses data with other features.
    fn check_features(&self, place: &str, manifest: &Manifest) -> Result<()> {
        let (own, other) = (self.header.data.features, manifest.features);
        if own == other {
            return Ok(());
        }
        let problem = format!("{other} features; {} was trained on {own}", self.place);
        Err(Error::input(place, problem)
            .help("use a dataset with the features the run was trained on, in the same order")
            .into())
    }

    /// Refuses data whose labels do not mean what the run learnt.
    fn check_classes(&self, place: &str, other: &Manifest) -> Result<()> {
        let own = &self.header.data;
        let refuse = |problem: String| {
            let help =
                "scores need the classes the run was trained on, in the same order; predict needs none";
            Err(Error::input(place, problem).help(help).into())
        };
        if other.task != own.task || (other.task == Task::MultiLabel && other.classes != own.classes) {
            return refuse(format!(
                "{} with {} classes; {} learnt {} with {}",
                other.task, other.classes, self.place, own.task, own.classes
            ));
        }
        if other.classes > own.classes {
            return refuse(format!("{} classes; {} learnt {}", other.classes, self.place, own.classes));
        }
        let differ = own.class_names.iter().zip(&other.class_names).position(|(a, b)| a != b);
        match differ {
            Some(k) => refuse(format!(
                "class {k} is {:?}; {} learnt it as {:?}",
                other.class_names[k], self.place, own.class_names[k]
            )),
            None => Ok(()),
        }
    }
}

/// Scores of what a run has learnt on the data of `source`.
pub fn evaluate<'a>(trained: &Trained, source: impl Into<Source<'a>>) -> Result<Scores> {
    let source = source.into();
    let (place, manifest) = described(source)?;
    trained.check_features(&place, &manifest)?;
    trained.check_classes(&place, &manifest)?;
    let train = &trained.header.config.train;
    in_pool(threads_among(train, 1), || match train.precision {
        Precision::F32 => evaluate_in::<f32>(trained, source),
        Precision::F64 => evaluate_in::<f64>(trained, source),
    })
}

fn evaluate_in<T: Real>(trained: &Trained, source: Source) -> Result<Scores> {
    let model = trained.model::<T>()?;
    // The order of rows that training had, for the same bits.
    let hops = Some(model.hops());
    let config = &trained.header.config;
    let scores = match source {
        Source::Dataset(dataset) => evaluation::scores(
            &model,
            &Data::load(dataset, config.data.inductive, trained.scaling()?, hops)?,
        )?,
        Source::Shards(shards) => {
            TrainedShards { shards, config, scaling: trained.scaling()? }.scores(&model)?
        }
    };
    scores.ok_or_else(|| crate::Error::NotFinite { place: trained.place.clone() })
}

/// What a run has learnt to say of every node of the data of `source`, in their order; all edges are used, inductive or not.
pub fn predict<'a>(trained: &Trained, source: impl Into<Source<'a>>, output: Output) -> Result<Matrix<f32>> {
    let source = source.into();
    let (place, manifest) = described(source)?;
    trained.check_features(&place, &manifest)?;
    let train = &trained.header.config.train;
    in_pool(threads_among(train, 1), || match train.precision {
        Precision::F32 => predict_in::<f32>(trained, source, output),
        Precision::F64 => predict_in::<f64>(trained, source, output),
    })
}

fn predict_in<T: Real>(trained: &Trained, source: Source, output: Output) -> Result<Matrix<f32>> {
    let model = trained.model::<T>()?;
    let scaling = trained.scaling()?;
    let parts = match source {
        Source::Dataset(dataset) => {
            let view = Data::whole(dataset, scaling)?;
            let ids = (0..view.block.sources()).map(|row| view.block.id(row)).collect();
            vec![(ids, evaluation::outputs(&model, &view)?)]
        }
        Source::Shards(shards) => {
            TrainedShards { shards, config: &trained.header.config, scaling }.outputs(&model)?
        }
    };
    let nodes = parts.iter().map(|(ids, _): &(Vec<u32>, _)| ids.len()).sum();
    let mut narrow = None;
    for (ids, found) in &parts {
        let values = match output {
            Output::Logits => &found.logits,
            Output::Embeddings => &*found.embeddings.full(),
        };
        let all = narrow.get_or_insert_with(|| Matrix::unspecified(nodes, values.cols()));
        for (row, &id) in ids.iter().enumerate() {
            let out = all.run_mut(id as usize..id as usize + 1).iter_mut();
            out.zip(values.run(row..row + 1)).for_each(|(out, x)| *out = x.wide() as f32);
        }
    }
    Ok(narrow.unwrap_or_default())
}

/// Where data are and what they say of themselves.
fn described(source: Source) -> Result<(String, Manifest)> {
    Ok(match source {
        Source::Dataset(dataset) => (dataset.location(), dataset.manifest.clone()),
        Source::Shards(path) => (path.display().to_string(), Shard::describe(path, 0)?.whole.dataset),
    })
}
