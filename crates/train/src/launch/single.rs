//! Training in one process.

use halograph_graph::Dataset;
use halograph_kernels::Real;

use super::{Extras, Leader, Source, train_on_threads};
use crate::config::{Config, Precision, StrategyKind};
use crate::data::{self, Data, Scaling};
use crate::error::Result;
use crate::event::Observer;
use crate::pool::{in_pool, threads};
use crate::run::Run;
use crate::setup::{new_model, new_optimizer};
use crate::strategy::single::Single;
use crate::summary::{Facts, Summary, Traffic};
use crate::trainer::{Learner, ResumePoint, Trainer};

/// Trains what the header of `run` says on `dataset`, from where a resumed run continues. Blocks.
///
/// Returns when all epochs are done, when patience ends, or when `observer` requests to stop; the state is saved in each
/// case. After an error the last checkpoint is as it was.
pub fn train(
    dataset: &Dataset,
    run: &mut Run,
    from: Option<ResumePoint>,
    observer: &mut dyn Observer,
) -> Result<Summary> {
    let config = run.header().config.clone();
    config.check()?;
    let leader = Leader { run, from, observer };
    if config.train.strategy != StrategyKind::Single {
        data::check(dataset)?;
        return train_on_threads(Source::Dataset(dataset), leader, Extras::default());
    }
    in_pool(threads(&config.train), || match config.train.precision {
        Precision::F32 => train_in::<f32>(dataset, &config, leader),
        Precision::F64 => train_in::<f64>(dataset, &config, leader),
    })
}

fn train_in<T: Real>(dataset: &Dataset, config: &Config, leader: Leader) -> Result<Summary> {
    data::check(dataset)?;
    let Leader { run, from, observer } = leader;
    let model = new_model(&run.header().data, config)?;
    let optimizer = new_optimizer(&config.train, &model)?;
    let scaling = Scaling::fit(dataset, config.data.normalize)?;
    if let Some(numbers) = scaling.to_state() {
        run.save_scaling(&numbers)?;
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
