//! Training in one process.

use halograph_graph::Dataset;
use halograph_kernels::Real;
use halograph_nn::Model;

use super::{Leader, Order};
use crate::config::Precision;
use crate::data::{self, Data, Scaling};
use crate::error::{Error, Result};
use crate::objective::check_divisor;
use crate::pool::{in_pool, threads};
use crate::setup::{new_model, new_optimizer};
use crate::strategy::Strategy;
use crate::strategy::minibatch::{BatchSource, Minibatch};
use crate::strategy::single::Single;
use crate::summary::{Facts, Summary, Traffic};
use crate::trace;
use crate::trainer::{Learner, Trainer};

/// Trains on the whole of `dataset`. Blocks. Writes a trace, if the strategy records one.
pub(super) fn train(dataset: &Dataset, order: Order, leader: Leader) -> Result<Summary> {
    let train = &order.header.config.train;
    in_pool(threads(train), || match train.precision {
        Precision::F32 => train_in::<f32>(dataset, order, leader),
        Precision::F64 => train_in::<f64>(dataset, order, leader),
    })
}

fn train_in<T: Real>(dataset: &Dataset, order: Order, leader: Leader) -> Result<Summary> {
    let config = &order.header.config;
    data::check(dataset)?;
    let Leader { run, from, observer, .. } = leader;
    let model = new_model(&run.header().data, config)?;
    let optimizer = new_optimizer(&config.train, &model)?;
    let scaling = Scaling::fit(dataset, config.data.normalize)?;
    if let Some(statistics) = scaling.to_state() {
        run.save_scaling(&statistics)?;
    }
    let is_sampled = config.train.strategy.samples();
    let data = Data::<T>::load(dataset, config.graphs(), scaling, config.nested_hops())?;
    let data = data.with_objective(&config.train)?;
    check_divisor(data.parts[0].divisor(data.objective.weights()))?;
    let train = |strategy: &mut dyn Strategy<T>, model: Model<T>| {
        let mut trainer = Trainer::new(config, strategy, Learner { model, optimizer });
        if let Some(from) = from {
            trainer.restore(from)?;
        }
        trainer.run(run, observer)
    };
    let mut spans = Vec::new();
    let (outcome, batches) = if is_sampled {
        let source = BatchSource::new(config, &data);
        if order.extras.trace.is_some() {
            source.trace();
        }
        rayon::in_place_scope_fifo(|scope| {
            let mut strategy = Minibatch::new(&model, &data, &source, scope)?;
            let outcome = train(&mut strategy, model)?;
            spans = source.take_spans();
            Ok::<_, Error>((outcome, Some(strategy.totals())))
        })?
    } else {
        let mut strategy = Single::new(&model, &data)?;
        (train(&mut strategy, model)?, None)
    };
    let facts = Facts {
        threads: threads(&config.train),
        objective: &data.objective,
        outcome: &outcome,
        train: &config.train,
    };
    let summary = Summary::new(facts, Traffic::none(&outcome)).with_batches(batches);
    run.finish(&serde_json::to_value(&summary).expect("numbers and names always serialise"))?;
    // Last: the run is complete even if the trace cannot be written.
    if let Some(file) = order.extras.trace.filter(|_| is_sampled) {
        trace::write_single(file, order.directory, &spans)?;
    }
    Ok(summary)
}
