//! Work before a run is created: checks of the data, the partition, and admission by predicted memory.

use halograph_graph::partition::{Assignment, Layout, PartitionReport, PartitionSpec, cache};
use halograph_graph::{Dataset, Error as InputError, Progress};
use halograph_train::admission::{self, PartSize, Prediction};
use halograph_train::{Config, Result, launch, memory};

use super::{JobData, World};

/// What is known before a run is created or replaced.
pub struct Prepared {
    /// The part of each node, if a dataset is trained on several ranks.
    pub assignment: Option<Assignment>,
    /// Predicted peak memory in bytes; `None` on ranks of a launcher, each of which predicts its own when it trains.
    pub predicted: Option<u64>,
    /// Layout of the parts; `None` for one process, and on ranks of a launcher, which compare it when they train.
    pub layout: Option<String>,
}

/// Refuses data that cannot be trained on and, unless `force`, runs that need more memory than is free. May partition the
/// dataset and store the partition beside it. Blocks.
pub fn prepare(data: &JobData, config: &Config, force: bool, progress: &dyn Progress) -> Result<Prepared> {
    prepare_in(&World::alone(), data, config, force, progress)
}

/// As [`prepare`], for rank 0 of `world`.
pub(super) fn prepare_in(
    world: &World,
    data: &JobData,
    config: &Config,
    force: bool,
    progress: &dyn Progress,
) -> Result<Prepared> {
    data.check()?;
    let assignment = match data {
        JobData::Dataset(dataset) if config.train.strategy.is_for_ranks() => {
            let spec = launch::partition_spec(&config.train);
            let (assignment, is_new) = assignment(dataset, &spec, "--partition stream", force, progress)?;
            if is_new {
                cache::store(dataset, &spec, &assignment);
            }
            Some(assignment)
        }
        _ => None,
    };
    if world.comm().is_some() {
        return Ok(Prepared { assignment, predicted: None, layout: None });
    }
    stage(progress, "predicting memory")?;
    let (predicted, layout) = predict(data, assignment.as_ref(), config)?;
    predicted.map_or(Ok(()), |predicted| admission::admit(&predicted, 1, force))?;
    // The last chance to stop before something is written.
    stage(progress, "loading")?;
    Ok(Prepared { assignment, predicted: predicted.map(|predicted| predicted.bytes), layout })
}

/// Shows a short stage; fails if the user asked to stop.
pub(super) fn stage(progress: &dyn Progress, name: &str) -> Result<()> {
    progress.brief(name);
    Ok(progress.tick(0)?)
}

/// Returns the assignment of `spec`, and whether it is new, i.e. was not stored beside the dataset. Refuses to compute
/// one that needs more memory than is free, unless `force`; `alternative` is what the error advises. Blocks.
pub fn assignment(
    dataset: &Dataset,
    spec: &PartitionSpec,
    alternative: &str,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Assignment, bool), InputError> {
    if let Some(kept) = cache::load(dataset, spec) {
        return Ok((kept, false));
    }
    admit_partition(spec.peak_bytes(dataset), alternative, force)?;
    // METIS cannot be stopped in between.
    progress.uninterruptible(true);
    let made = spec.assign(dataset, progress);
    progress.uninterruptible(false);
    Ok((made?, true))
}

fn admit_partition(needed: u64, alternative: &str, force: bool) -> Result<(), InputError> {
    match memory::available() {
        Some(free) if needed > free && !force => {
            let problem = format!(
                "partitioning needs about {} MiB, but only {} MiB are free",
                needed >> 20,
                free >> 20
            );
            let help = format!("{alternative} needs far less; --force tries it anyway");
            Err(InputError::input("memory", problem).help(help))
        }
        _ => Ok(()),
    }
}

/// Predicts the peak memory of this process, with the whole graph or all its parts. Returns the layout of the parts too.
fn predict(
    data: &JobData,
    assignment: Option<&Assignment>,
    config: &Config,
) -> Result<(Option<Prediction>, Option<String>)> {
    match (data, assignment) {
        (JobData::Dataset(dataset), None) => Ok((admission::predict(dataset, config)?, None)),
        (JobData::Dataset(dataset), Some(assignment)) => {
            let layout = Layout::of(dataset, assignment)?;
            let sizes: Vec<_> = PartitionReport::of(&layout).sizes.iter().map(PartSize::from).collect();
            let whole = layout.partition;
            Ok((admission::predict_parts(&whole, &sizes, config)?, Some(whole.layout)))
        }
        (JobData::Shards { whole, .. }, _) => {
            let sizes: Vec<_> = data.shard_manifests()?.iter().map(PartSize::from).collect();
            Ok((admission::predict_parts(whole, &sizes, config)?, Some(whole.layout.clone())))
        }
    }
}
