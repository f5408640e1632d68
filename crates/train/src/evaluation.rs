//! Scores of a model: exact, over every row, whatever the strategy that trained it.

use halograph_graph::Dataset;
use halograph_graph::error::Error;
use halograph_kernels::Real;
use halograph_nn::metrics::score;
use halograph_nn::state::State;
use halograph_nn::{Matrix, Model};

use crate::config::{Config, Precision};
use crate::data::Data;
use crate::error::Result;
use crate::event::Scores;
use crate::loss::loss;
use crate::memory;
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
    data.each_view(|block, features, parts| {
        let logits = single::evaluate(model, block, features).logits;
        finite &= logits.data().iter().all(|x| x.is_finite());
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

/// Scores of the weights `state` on `dataset`; `place` names them in errors.
pub fn evaluate(dataset: &Dataset, config: &Config, place: &str, state: &State) -> Result<Scores> {
    in_pool(threads(&config.train), || match config.train.precision {
        Precision::F32 => evaluate_in::<f32>(dataset, config, place, state),
        Precision::F64 => evaluate_in::<f64>(dataset, config, place, state),
    })
}

fn evaluate_in<T: Real>(dataset: &Dataset, config: &Config, place: &str, state: &State) -> Result<Scores> {
    let model = model::<T>(dataset, config, place, state)?;
    let scores = scores(&model, &Data::load(dataset, &config.data)?)?;
    scores.ok_or_else(|| crate::Error::NotFinite { place: place.into() })
}

/// What the weights `state` say of every node of `dataset`, in its order; `place` names them in errors.
pub fn predict(
    dataset: &Dataset,
    config: &Config,
    place: &str,
    state: &State,
    output: Output,
) -> Result<Matrix<f32>> {
    in_pool(threads(&config.train), || match config.train.precision {
        Precision::F32 => predict_in::<f32>(dataset, config, place, state, output),
        Precision::F64 => predict_in::<f64>(dataset, config, place, state, output),
    })
}

fn predict_in<T: Real>(
    dataset: &Dataset,
    config: &Config,
    place: &str,
    state: &State,
    output: Output,
) -> Result<Matrix<f32>> {
    let model = model::<T>(dataset, config, place, state)?;
    let view = Data::whole(dataset, &config.data)?;
    let found = single::evaluate(&model, &view.block, view.features);
    let values = match output {
        Output::Logits => &found.logits,
        Output::Embeddings => &*found.embeddings,
    };
    let narrow = values.data().iter().map(|x| x.wide() as f32).collect();
    Ok(Matrix::new(values.rows(), values.cols(), narrow))
}

/// Refuses weights that are not those of this model for such data; `place` names them in errors.
pub fn check_fit(dataset: &Dataset, config: &Config, place: &str, state: &State) -> Result<()> {
    model::<f32>(dataset, config, place, state).map(drop)
}

/// A model for `dataset` with the weights `state`, which must fit it.
fn model<T: Real>(dataset: &Dataset, config: &Config, place: &str, state: &State) -> Result<Model<T>> {
    config.check()?;
    let mut model = new_model(dataset, config)?;
    model.load(place, state)?;
    Ok(model)
}

/// A new model that fits `dataset`; refused if its weights alone would fill the memory there is.
pub(crate) fn new_model<T: Real>(dataset: &Dataset, config: &Config) -> Result<Model<T>> {
    let [inputs, outputs] = [dataset.manifest.features, dataset.manifest.classes].map(|n| n as usize);
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
