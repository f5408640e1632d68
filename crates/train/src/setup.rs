//! New models and optimisers, as a configuration asks for them.

use halograph_graph::error::Error as InputError;
use halograph_kernels::Real;
use halograph_nn::Model;
use halograph_nn::optimizer::{Method, Optimizer};

use crate::config::{Config, OptimizerKind, Precision, TrainConfig};
use crate::error::Result;
use crate::memory;
use crate::run::DataRef;

/// Creates the model of `config` for such data. Refuses a model whose weights alone exceed the free memory.
pub(crate) fn new_model<T: Real>(data: &DataRef, config: &Config) -> Result<Model<T>> {
    check_weights(data.features, data.classes, config)?;
    Ok(Model::new(&config.model, data.features as usize, data.classes as usize, config.train.seed))
}

/// Refuses a model whose weights alone exceed the free memory, for data with so many features and classes.
pub(crate) fn check_weights(features: u64, classes: u64, config: &Config) -> Result<()> {
    let number = match config.train.precision {
        Precision::F32 => size_of::<f32>(),
        Precision::F64 => size_of::<f64>(),
    };
    // A weight and its gradient.
    let bytes = 2 * number as u128 * config.model.parameters(features as usize, classes as usize);
    if let Some(free) = memory::available().filter(|&free| bytes > free as u128) {
        let problem = format!("its weights take {} MiB and {} MiB are free", bytes >> 20, free >> 20);
        return Err(InputError::out_of_memory("model", problem)
            .help("choose a smaller model.hidden or model.layers")
            .into());
    }
    Ok(())
}

/// Creates the optimiser of `config`. Refuses weight decay for parameters that do not exist.
pub(crate) fn new_optimizer<T: Real>(config: &TrainConfig, model: &Model<T>) -> Result<Optimizer<T>> {
    check_decays(config, model)?;
    Ok(optimizer_of(config, model))
}

/// Creates the optimiser of `config` for some stages of a model.
pub(crate) fn optimizer_of<T: Real>(config: &TrainConfig, model: &Model<T>) -> Optimizer<T> {
    let method = match config.optimizer {
        OptimizerKind::Adam => Method::Adam,
        OptimizerKind::Adamw => Method::AdamW,
        OptimizerKind::Sgd => Method::Sgd { momentum: config.momentum },
    };
    let decay = |name: &str| {
        let longest = config.weight_decay_for.iter().filter(|(prefix, _)| matches(prefix, name));
        longest.max_by_key(|(prefix, _)| prefix.len()).map_or(config.weight_decay, |(_, &decay)| decay)
    };
    Optimizer::new(method, model, decay)
}

/// Refuses weight decay for parameters that `model` does not have.
pub(crate) fn check_decays<T: Real>(config: &TrainConfig, model: &Model<T>) -> Result<()> {
    for prefix in config.weight_decay_for.keys() {
        if !model.params().any(|p| matches(prefix, &p.name)) {
            let names: Vec<&str> = model.params().map(|p| p.name.as_str()).collect();
            let problem = format!("no parameter is called {prefix:?}");
            let error = InputError::input("train.weight_decay_for", problem);
            return Err(error.help(format!("parameters are {}", names.join(", "))).into());
        }
    }
    Ok(())
}

/// Returns whether `prefix` is `name` or its first components: `convs.1` does not match `convs.10.bias`.
fn matches(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
