//! Where the time of an epoch goes, and how close that is to what the machine can do.
//!
//! Kernels count their own work (`kernels::work`). Some epochs are trained and recorded; then the machine is asked for
//! its rates (`limits`) and each phase of the median epoch is held to its own:
//!
//! ```text
//! roofline = Σ over phases of operations / rate of products of that shape,
//!                          or bytes / rate of gathers of that width and set, or of streams of that size
//! ```
//!
//! A phase that is faster than its limit (gathers along an order with locality are, of random rows) counts with the time
//! it took: an epoch cannot hide one phase behind another.

mod limits;
mod machine;
mod report;

use std::collections::HashSet;
use std::time::Instant;

use halograph_graph::Dataset;
use halograph_graph::progress::{Progress, Unit};
use halograph_kernels::work::{Work, record};
use halograph_kernels::{Real, buffer};
use halograph_nn::Model;

use crate::config::{Config, Precision, TrainConfig};
use crate::data::{self, Data, Scaling};
use crate::error::Result;
use crate::pool::{in_pool, threads};
use crate::requests::Requests;
use crate::run::DataRef;
use crate::setup::{new_model, new_optimizer};
use crate::strategy::Strategy;
use crate::strategy::single::Single;
use crate::trainer::Learner;

use limits::Limits;
pub use limits::Rate;
pub use machine::Machine;
use machine::Usage;
pub use report::{Comparison, Phase, Report};

/// How much is trained.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Epochs before the clock runs.
    pub warmup: u64,
    /// Epochs that count; at least one.
    pub epochs: u64,
}

/// Trains some epochs of `config` on `dataset`, and holds the median one to the machine. Nothing is kept of what was learnt.
pub fn bench(dataset: &Dataset, config: &Config, length: Length, progress: &dyn Progress) -> Result<Report> {
    config.check()?;
    in_pool(threads(&config.train), || match config.train.precision {
        Precision::F32 => bench_in::<f32>(dataset, config, length, progress),
        Precision::F64 => bench_in::<f64>(dataset, config, length, progress),
    })
}

/// [`bench`](fn@bench) on one thread, then on as many as `config` says.
pub fn compare(
    dataset: &Dataset,
    config: &Config,
    length: Length,
    progress: &dyn Progress,
) -> Result<(Report, Comparison)> {
    let alone = Config { train: TrainConfig { threads: 1, ..config.train.clone() }, ..config.clone() };
    let one = bench(dataset, &alone, length, progress)?;
    let many = bench(dataset, config, length, progress)?;
    let comparison = Comparison::of(&one, &many);
    Ok((many, comparison))
}

fn bench_in<T: Real>(
    dataset: &Dataset,
    config: &Config,
    length: Length,
    progress: &dyn Progress,
) -> Result<Report> {
    let (epochs, others_share) = epochs::<T>(dataset, config, length, progress)?;
    // Nothing of the training is left: what is measured now has the memory to itself.
    buffer::release();
    let seconds: Vec<f64> = epochs.iter().map(|epoch| epoch.seconds).collect();
    let middle = median(epochs);
    let kinds: HashSet<_> = middle.work.iter().map(|work| limits::class(work.cost.kind)).collect();
    progress.begin("measuring limits", Some(kinds.len() as u64), Unit::Items);
    let mut limits = Limits::default();
    let rates = limits.overview::<T>();
    let mut measured = HashSet::new();
    let mut phases = report::Phases::default();
    for work in &middle.work {
        phases.add(work, limits.seconds::<T>(&work.cost));
        if measured.insert(limits::class(work.cost.kind)) {
            progress.tick(1)?;
        }
    }
    let threads = threads(&config.train);
    let report = Report::new(Machine::here(), threads, rates, seconds, middle.seconds, phases);
    Ok(Report { others_share, ..report })
}

/// An epoch that was recorded.
struct Epoch {
    seconds: f64,
    work: Vec<Work>,
}

/// The one in the middle, if they are sorted by time; of two the faster.
fn median(mut epochs: Vec<Epoch>) -> Epoch {
    epochs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    epochs.swap_remove((epochs.len() - 1) / 2)
}

/// The epochs that count, and the share of the CPUs that others took while they ran.
fn epochs<T: Real>(
    dataset: &Dataset,
    config: &Config,
    length: Length,
    progress: &dyn Progress,
) -> Result<(Vec<Epoch>, Option<f64>)> {
    progress.begin("loading", None, Unit::Items);
    data::check(dataset)?;
    let model: Model<T> = new_model(&DataRef::new(dataset)?, config)?;
    let optimizer = new_optimizer(&config.train, &model)?;
    let scaling = Scaling::fit(dataset, config.data.normalize)?;
    let data = Data::<T>::load(dataset, config.data.inductive, scaling, Some(model.hops()))?;
    let mut strategy = Single::new(&model, &data)?;
    let mut learner = Learner { model, optimizer };
    let all = length.warmup + length.epochs;
    progress.begin("training", Some(all), Unit::Items);
    let mut done = Vec::new();
    let usage = Usage::now();
    for epoch in 1..=all {
        let (seconds, work) = record(|| {
            let start = Instant::now();
            for step in 0..strategy.steps() {
                learner.step(&mut strategy, &config.train, (epoch, step), &Requests::default)?;
            }
            Ok::<_, crate::Error>(start.elapsed().as_secs_f64())
        });
        let seconds = seconds?;
        if epoch > length.warmup {
            done.push(Epoch { seconds, work });
        }
        progress.tick(1)?;
    }
    Ok((done, usage.others()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_epoch_is_one_that_there_was() {
        let of = |seconds: &[f64]| {
            median(seconds.iter().map(|&seconds| Epoch { seconds, work: Vec::new() }).collect()).seconds
        };
        assert_eq!([of(&[2.0]), of(&[3.0, 1.0]), of(&[3.0, 1.0, 2.0])], [2.0, 1.0, 2.0]);
    }
}
