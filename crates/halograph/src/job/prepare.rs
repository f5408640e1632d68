//! Checks before a run is created: the data, the partition, and admission by predicted memory.

use halograph_graph::partition::{Assignment, Layout, PartitionReport, PartitionSpec, Shard, cache};
use halograph_graph::{Dataset, Error as InputError, Progress};
use halograph_train::admission::{self, PartSize, Prediction};
use halograph_train::{Config, Result, launch, memory};

use super::JobData;

/// What is known of a run that was admitted.
pub struct Admission {
    /// Predicted peak memory in bytes; `None` if it was not predicted.
    pub predicted: Option<u64>,
    /// Layout of the parts; `None` for the whole graph.
    pub layout: Option<String>,
}

/// Refuses data that one process cannot train on and, unless `force`, runs that need more memory than is free. Blocks;
/// of a dataset, only the node order may be cached.
pub fn check_one_process(
    data: &JobData,
    config: &Config,
    force: bool,
    progress: &dyn Progress,
) -> Result<Admission> {
    data.check()?;
    admit(data, None, config, force, progress)
}

/// Refuses a run of this process that needs more memory than is free, unless `force`. `assignment`: the part of each node,
/// if a dataset is trained on several ranks. Blocks.
pub(super) fn admit(
    data: &JobData,
    assignment: Option<&Assignment>,
    config: &Config,
    force: bool,
    progress: &dyn Progress,
) -> Result<Admission> {
    stage(progress, "predicting memory")?;
    let (predicted, layout) = predict(data, assignment, config)?;
    predicted.map_or(Ok(()), |predicted| admission::admit(&predicted, force))?;
    admission::check_weights(data.manifest(), config)?;
    Ok(Admission { predicted: predicted.map(|predicted| predicted.bytes), layout })
}

/// The part of each node of a dataset.
pub(super) struct Partition {
    pub assignment: Assignment,
    /// How it was computed, if it is not stored beside the dataset.
    new: Option<PartitionSpec>,
}

impl Partition {
    /// Returns the stored partition, or computes it; `None` for shards and for one process. Refuses data that cannot be
    /// trained on. Blocks; writes nothing.
    pub fn of(data: &JobData, config: &Config, force: bool, progress: &dyn Progress) -> Result<Option<Self>> {
        data.check()?;
        let JobData::Dataset(dataset) = data else { return Ok(None) };
        if !config.train.uses_parts() {
            return Ok(None);
        }
        let spec = launch::partition_spec(config);
        let (assignment, is_new) = assignment(dataset, &spec, force, progress)?;
        Ok(Some(Partition { assignment, new: is_new.then_some(spec) }))
    }

    /// Stores a new partition beside the dataset, if possible.
    pub fn store(&self, data: &JobData) {
        if let (JobData::Dataset(dataset), Some(spec)) = (data, &self.new) {
            cache::store(dataset, spec, &self.assignment);
        }
    }
}

/// Shows a short stage; fails if the user asked to stop.
pub(super) fn stage(progress: &dyn Progress, name: &str) -> Result<()> {
    progress.brief(name);
    Ok(progress.tick(0)?)
}

/// Returns the assignment of `spec`, and whether it is new, i.e. was not stored beside the dataset. Refuses to compute
/// one that needs more memory than is free, unless `force`. Blocks; writes nothing.
pub(super) fn assignment(
    dataset: &Dataset,
    spec: &PartitionSpec,
    force: bool,
    progress: &dyn Progress,
) -> Result<(Assignment, bool), InputError> {
    if let Some(kept) = cache::load(dataset, spec) {
        return Ok((kept, false));
    }
    admit_partition(spec.peak_bytes(dataset), force)?;
    // METIS cannot be stopped in between.
    progress.uninterruptible(true);
    let made = spec.assign(dataset, progress);
    progress.uninterruptible(false);
    Ok((made?, true))
}

fn admit_partition(needed: u64, force: bool) -> Result<(), InputError> {
    match memory::available() {
        Some(free) if needed > free && !force => {
            let problem = format!(
                "partitioning needs about {} MiB, but only {} MiB are free",
                needed >> 20,
                free >> 20
            );
            let help = "the partitioner `stream` needs far less; --force tries it anyway";
            Err(InputError::out_of_memory("memory", problem).help(help))
        }
        _ => Ok(()),
    }
}

/// Predicts the peak memory of this process, with the whole graph or all its parts. Returns the layout of the parts too.
/// Refuses less memory for sampled batches than they need.
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
            let whole = &layout.partition;
            launch::check_batch_memory(config, whole, |part| layout.cut(part))?;
            Ok((admission::predict_parts(whole, &sizes, config)?, Some(whole.layout.clone())))
        }
        (JobData::Shards { whole, path, .. }, _) => {
            launch::check_batch_memory(config, whole, |part| Shard::open(path, part))?;
            let sizes: Vec<_> = data.shard_manifests()?.iter().map(PartSize::from).collect();
            Ok((admission::predict_parts(whole, &sizes, config)?, Some(whole.layout.clone())))
        }
    }
}
