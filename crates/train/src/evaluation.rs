//! Scores of a model: exact, over every row, whatever the strategy that trained it.

use std::path::Path;

use halograph_graph::Dataset;
use halograph_graph::dataset::Task;
use halograph_graph::error::Error;
use halograph_kernels::Real;
use halograph_nn::metrics::score;
use halograph_nn::state::State;
use halograph_nn::{Matrix, Model};
use rayon::prelude::*;

use crate::config::{Config, Normalize, Precision};
use crate::data::{Data, Scaling};
use crate::error::Result;
use crate::event::Scores;
use crate::loss::loss;
use crate::memory;
use crate::run::{self, DataRef, Header};
use crate::strategy::single;
use crate::trainer::{in_pool, threads};

/// What [`predict`] gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Nodes x classes, before softmax or sigmoid.
    Logits,
    /// Nodes x hidden: what the last layer reads.
    Embeddings,
}

/// Scores of `model` on all parts of `data`; nothing if its outputs are not finite.
pub(crate) fn scores<T: Real>(model: &Model<T>, data: &Data<T>) -> Result<Option<Scores>> {
    let metric = data.dataset().manifest.metric;
    let mut found = [None; 3];
    let (mut val_loss, mut finite) = (None, true);
    data.each_view(|view, parts| {
        let logits = single::evaluate(model, view).logits;
        finite &= logits.data().par_iter().all(|x| x.is_finite());
        for &part in parts {
            let rows = &data.parts[part];
            found[part] = score(metric, &logits, &rows.rows, rows.targets());
            if part == 1 && !rows.rows.is_empty() {
                val_loss = Some(loss(&logits, rows).0);
            }
        }
        Ok::<_, Error>(())
    })?;
    let [train, val, test] = found;
    Ok(finite.then_some(Scores { train, val, test, val_loss }))
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
    fn check_features(&self, dataset: &Dataset) -> Result<()> {
        let (own, other) = (self.header.data.features, dataset.manifest.features);
        if own == other {
            return Ok(());
        }
        let problem = format!("{other} features; {} was trained on {own}", self.place);
        Err(Error::input(dataset.path.display(), problem)
            .help("use a dataset with the features the run was trained on, in the same order")
            .into())
    }

    /// Refuses data whose labels do not mean what the run learnt.
    fn check_classes(&self, dataset: &Dataset) -> Result<()> {
        let (own, other) = (&self.header.data, &dataset.manifest);
        let refuse = |problem: String| {
            let help =
                "scores need the classes the run was trained on, in the same order; predict needs none";
            Err(Error::input(dataset.path.display(), problem).help(help).into())
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

/// Scores of what a run has learnt on `dataset`.
pub fn evaluate(trained: &Trained, dataset: &Dataset) -> Result<Scores> {
    trained.check_features(dataset)?;
    trained.check_classes(dataset)?;
    let train = &trained.header.config.train;
    in_pool(threads(train), || match train.precision {
        Precision::F32 => evaluate_in::<f32>(trained, dataset),
        Precision::F64 => evaluate_in::<f64>(trained, dataset),
    })
}

fn evaluate_in<T: Real>(trained: &Trained, dataset: &Dataset) -> Result<Scores> {
    let model = trained.model::<T>()?;
    // The order of rows that training had, for the same bits.
    let hops = Some(model.hops());
    let data = Data::load(dataset, trained.header.config.data.inductive, trained.scaling()?, hops)?;
    let scores = scores(&model, &data)?;
    scores.ok_or_else(|| crate::Error::NotFinite { place: trained.place.clone() })
}

/// What a run has learnt to say of every node of `dataset`, in its order; all edges are used, inductive or not.
pub fn predict(trained: &Trained, dataset: &Dataset, output: Output) -> Result<Matrix<f32>> {
    trained.check_features(dataset)?;
    let train = &trained.header.config.train;
    in_pool(threads(train), || match train.precision {
        Precision::F32 => predict_in::<f32>(trained, dataset, output),
        Precision::F64 => predict_in::<f64>(trained, dataset, output),
    })
}

fn predict_in<T: Real>(trained: &Trained, dataset: &Dataset, output: Output) -> Result<Matrix<f32>> {
    let model = trained.model::<T>()?;
    let view = Data::whole(dataset, trained.scaling()?)?;
    let found = single::evaluate(&model, &view);
    let values = match output {
        Output::Logits => &found.logits,
        Output::Embeddings => &*found.embeddings.full(),
    };
    let mut narrow = Matrix::unspecified(values.rows(), values.cols());
    for row in 0..values.rows() {
        let id = view.block.id(row) as usize;
        let out = narrow.run_mut(id..id + 1).iter_mut();
        out.zip(values.run(row..row + 1)).for_each(|(out, x)| *out = x.wide() as f32);
    }
    Ok(narrow)
}

/// A new model for such data; refused if its weights alone would fill the memory there is.
pub(crate) fn new_model<T: Real>(data: &DataRef, config: &Config) -> Result<Model<T>> {
    let [inputs, outputs] = [data.features, data.classes].map(|n| n as usize);
    // A weight and its gradient.
    let bytes = 2 * size_of::<T>() as u128 * config.model.least_weights(inputs, outputs);
    if let Some(free) = memory::available().filter(|&free| bytes > free as u128) {
        let problem = format!("its weights take {} MiB and {} MiB are free", bytes >> 20, free >> 20);
        return Err(Error::input("model", problem)
            .help("choose a smaller model.hidden or model.layers")
            .into());
    }
    Ok(Model::new(&config.model, inputs, outputs, config.train.seed))
}
