//! Training in one process.

use halograph_graph::Dataset;
use halograph_kernels::Real;

use super::Leader;
use crate::config::{Config, Precision};
use crate::data::{self, Data, Scaling};
use crate::error::Result;
use crate::pool::{in_pool, threads};
use crate::setup::{new_model, new_optimizer};
use crate::strategy::single::Single;
use crate::summary::{Facts, Summary, Traffic};
use crate::trainer::{Learner, Trainer};

/// Trains on the whole of `dataset`. Blocks.
pub(super) fn train(dataset: &Dataset, config: &Config, leader: Leader) -> Result<Summary> {
    in_pool(threads(&config.train), || match config.train.precision {
        Precision::F32 => train_in::<f32>(dataset, config, leader),
        Precision::F64 => train_in::<f64>(dataset, config, leader),
    })
}

fn train_in<T: Real>(dataset: &Dataset, config: &Config, leader: Leader) -> Result<Summary> {
    data::check(dataset)?;
    let Leader { run, from, observer, .. } = leader;
    let model = new_model(&run.header().data, config)?;
    let optimizer = new_optimizer(&config.train, &model)?;
    let scaling = Scaling::fit(dataset, config.data.normalize)?;
    if let Some(statistics) = scaling.to_state() {
        run.save_scaling(&statistics)?;
    }
    let data = Data::<T>::load(dataset, config.data.inductive, scaling, Some(model.hops()))?;
    let mut strategy = Single::new(&model, &data)?;
    let mut trainer = Trainer::new(config, &mut strategy, Learner { model, optimizer });
    if let Some(from) = from {
        trainer.restore(from)?;
    }
    let outcome = trainer.run(run, observer)?;
    let facts = Facts {
        threads: threads(&config.train),
        metric: dataset.manifest.metric,
        outcome: &outcome,
        train: &config.train,
    };
    let summary = Summary::new(facts, Traffic::none(&outcome));
    run.finish(&serde_json::to_value(&summary).expect("numbers and names always serialise"))?;
    Ok(summary)
}
