//! Compares an epoch with its roofline: which kernels take the time, and how close each is to its roof.
//!
//! Kernels count their FLOP and bytes (`kernels::work`). [`measure`] trains and records some epochs, then measures the
//! rates of the machine (`limits`). The roof of a phase is the rate for its shape; the roofline of the epoch is
//!
//! ```text
//! Σ over phases of  FLOP / GEMM rate at that shape,                            for products,
//!                   bytes / gather bandwidth at that row width and matrix size, for gathers,
//!                   bytes / stream bandwidth at that size,                      for streams
//! ```
//!
//! A phase may be faster than its roof: gathers in an order with locality are faster than gathers of random rows. Such a
//! phase counts with its measured time, so that it does not offset slow phases.
//!
//! `report` combines times and rates; `machine` describes the machine.

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
use crate::strategy::minibatch::{BatchSource, Minibatch};
use crate::strategy::single::Single;
use crate::trainer::Learner;

use limits::Limits;
pub use limits::Rate;
use machine::CpuUsage;
pub use machine::Machine;
pub use report::{BatchRates, BenchReport, Phase, ThreadScaling};

/// Numbers of epochs to train.
#[derive(Debug, Clone, Copy)]
pub struct EpochCounts {
    /// Warm-up epochs, which are not timed.
    pub warmup: u64,
    /// Timed epochs; at least one.
    pub timed: u64,
}

/// Trains some epochs of `config` on `dataset` and compares the median one with its roofline. Blocks; writes no file.
pub fn measure(
    dataset: &Dataset,
    config: &Config,
    counts: EpochCounts,
    progress: &dyn Progress,
) -> Result<BenchReport> {
    config.check()?;
    in_pool(threads(&config.train), || match config.train.precision {
        Precision::F32 => measure_in::<f32>(dataset, config, counts, progress),
        Precision::F64 => measure_in::<f64>(dataset, config, counts, progress),
    })
}

/// Calls [`measure`] on one thread, then on the configured number of threads.
pub fn measure_scaling(
    dataset: &Dataset,
    config: &Config,
    counts: EpochCounts,
    progress: &dyn Progress,
) -> Result<(BenchReport, ThreadScaling)> {
    let on_one = Config { train: TrainConfig { threads: 1, ..config.train.clone() }, ..config.clone() };
    let one = measure(dataset, &on_one, counts, progress)?;
    let many = measure(dataset, config, counts, progress)?;
    let scaling = ThreadScaling::of(&one, &many);
    Ok((many, scaling))
}

fn measure_in<T: Real>(
    dataset: &Dataset,
    config: &Config,
    counts: EpochCounts,
    progress: &dyn Progress,
) -> Result<BenchReport> {
    // Batches are prepared for coming epochs too.
    let epochs_in_all = counts.warmup + counts.timed;
    let config =
        &Config { train: TrainConfig { epochs: epochs_in_all, ..config.train.clone() }, ..config.clone() };
    let TimedEpochs { epochs, others_share, batches } = epochs::<T>(dataset, config, counts, progress)?;
    // Training has freed its memory; give back its buffers too, before rates are measured.
    buffer::release();
    let seconds: Vec<f64> = epochs.iter().map(|epoch| epoch.seconds).collect();
    let mut middle = median(epochs);
    if batches.is_some() {
        middle.work.iter_mut().for_each(|work| work.cost.kind = limits::rounded(work.cost.kind));
    }
    let kinds: HashSet<_> = middle.work.iter().map(|work| limits::class(work.cost.kind)).collect();
    progress.begin("measuring roofs", Some(kinds.len() as u64), Unit::Items);
    let mut limits = Limits::default();
    let rates = limits.overview::<T>();
    let mut measured = HashSet::new();
    let mut phases = report::Phases::new(limits.ridge_point::<T>());
    for work in &middle.work {
        phases.add(work, limits.seconds::<T>(&work.cost));
        if measured.insert(limits::class(work.cost.kind)) {
            progress.tick(1)?;
        }
    }
    let threads = threads(&config.train);
    let report = BenchReport::new(Machine::here(), threads, rates, seconds, middle.seconds, phases);
    Ok(BenchReport { others_share, batches, ..report })
}

/// A timed epoch and the work of its kernels.
struct TimedEpoch {
    seconds: f64,
    work: Vec<Work>,
}

/// Returns the epoch of median time; of an even number, the faster of the two in the middle.
fn median(mut epochs: Vec<TimedEpoch>) -> TimedEpoch {
    epochs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    epochs.swap_remove((epochs.len() - 1) / 2)
}

/// All timed epochs.
struct TimedEpochs {
    epochs: Vec<TimedEpoch>,
    /// Fraction of CPU time that other processes used meanwhile.
    others_share: Option<f64>,
    batches: Option<BatchRates>,
}

/// Trains as configured.
fn epochs<T: Real>(
    dataset: &Dataset,
    config: &Config,
    counts: EpochCounts,
    progress: &dyn Progress,
) -> Result<TimedEpochs> {
    progress.begin("loading", None, Unit::Items);
    data::check(dataset)?;
    let model: Model<T> = new_model(&DataRef::new(dataset)?, config)?;
    let optimizer = new_optimizer(&config.train, &model)?;
    let scaling = Scaling::fit(dataset, config.data.normalize)?;
    let is_sampled = config.train.strategy.samples();
    let data = Data::<T>::load(dataset, config.graphs(), scaling, config.nested_hops())?;
    if !is_sampled {
        let mut strategy = Single::new(&model, &data)?;
        let learner = Learner { model, optimizer };
        return timed_epochs(&mut strategy, learner, config, counts, progress);
    }
    let source = BatchSource::new(config, &data);
    source.sample_epoch(1);
    let sampling = source.sample_epoch(2);
    rayon::in_place_scope_fifo(|scope| {
        let mut strategy = Minibatch::new(&model, &data, &source, scope)?;
        let learner = Learner { model, optimizer };
        let timed = timed_epochs(&mut strategy, learner, config, counts, progress)?;
        let batches = BatchRates::new(sampling, &strategy.totals(), counts.warmup + counts.timed);
        Ok::<_, crate::Error>(TimedEpochs { batches: Some(batches), ..timed })
    })
}

/// Runs all steps of some epochs.
fn timed_epochs<T: Real>(
    strategy: &mut dyn Strategy<T>,
    mut learner: Learner<T>,
    config: &Config,
    counts: EpochCounts,
    progress: &dyn Progress,
) -> Result<TimedEpochs> {
    let all = counts.warmup + counts.timed;
    progress.begin("training", Some(all), Unit::Items);
    let mut epochs = Vec::new();
    let usage = CpuUsage::now();
    for epoch in 1..=all {
        let (seconds, work) = record(|| {
            let start = Instant::now();
            for step in 0..strategy.steps() {
                learner.step(strategy, &config.train, (epoch, step), &Requests::default)?;
            }
            Ok::<_, crate::Error>(start.elapsed().as_secs_f64())
        });
        let seconds = seconds?;
        if epoch > counts.warmup {
            epochs.push(TimedEpoch { seconds, work });
        }
        progress.tick(1)?;
    }
    Ok(TimedEpochs { epochs, others_share: usage.used_by_others(), batches: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_epochs() {
        let of = |seconds: &[f64]| {
            median(seconds.iter().map(|&seconds| TimedEpoch { seconds, work: Vec::new() }).collect()).seconds
        };
        assert_eq!([of(&[2.0]), of(&[3.0, 1.0]), of(&[3.0, 1.0, 2.0])], [2.0, 1.0, 2.0]);
    }
}
