//! The data of a job: a dataset on disk or in memory, or shards that `halograph partition` wrote.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halograph_graph::Dataset;
use halograph_graph::dataset::info::LabelCounts;
use halograph_graph::dataset::{Manifest, Subset};
use halograph_graph::error::{Error, Result};
use halograph_graph::partition::shard::manifest::ShardManifest;
use halograph_graph::partition::{PartitionInfo, Shard, folder, shard};
use halograph_train::launch::DataSource;
use halograph_train::run::DataRef;
use halograph_train::{Config, data};

use super::start;
use crate::config::Setting;

/// Opened data.
#[derive(Clone)]
pub enum JobData {
    /// A whole dataset.
    Dataset(Arc<Dataset>),
    /// A folder of shards; ranks open their own.
    Shards {
        /// The folder.
        path: PathBuf,
        /// What all shards have in common.
        whole: Box<PartitionInfo>,
    },
}

/// Returns whether `path` is a folder of shards: of all shards, or of that of rank `part`.
pub fn is_shards(path: &Path, part: u32) -> bool {
    path.join(folder::MANIFEST).exists() || path.join(shard::manifest::folder_name(part)).exists()
}

impl JobData {
    /// Opens a dataset directory, or a folder of shards, of which only the manifest of shard `part` is read.
    pub fn open(path: &Path, part: u32) -> Result<Self> {
        if is_shards(path, part) {
            let whole = Box::new(Shard::describe(path, part)?.partition);
            return Ok(JobData::Shards { path: path.to_path_buf(), whole });
        }
        Ok(JobData::Dataset(Arc::new(Dataset::open(path)?)))
    }

    /// Returns the manifest of the whole dataset.
    pub fn manifest(&self) -> &Manifest {
        match self {
            JobData::Dataset(dataset) => &dataset.manifest,
            JobData::Shards { whole, .. } => &whole.dataset,
        }
    }

    /// Returns the directory; `None` for a dataset in memory.
    pub fn path(&self) -> Option<&Path> {
        match self {
            JobData::Dataset(dataset) => dataset.path(),
            JobData::Shards { path, .. } => Some(path),
        }
    }

    /// Returns the directory, or the name of a dataset in memory, for messages.
    pub fn place(&self) -> String {
        self.path().map_or_else(|| self.manifest().name.clone(), |path| path.display().to_string())
    }

    /// Describes the data for the header of a run.
    pub fn reference(&self) -> Result<DataRef> {
        DataRef::of(self.manifest(), self.path())
    }

    /// Returns the number of shards; `None` for a dataset.
    pub fn parts(&self) -> Option<u32> {
        match self {
            JobData::Dataset(_) => None,
            JobData::Shards { whole, .. } => Some(whole.parts),
        }
    }

    /// Resolves the settings of a new run on these data: shards imply a strategy and a number of ranks. Refuses settings that
    /// contradict the data.
    pub fn resolve(&self, settings: &[Setting]) -> Result<Config> {
        start::resolve(settings, self)
    }

    /// Returns the view that training and evaluation take.
    pub fn source(&self) -> DataSource<'_> {
        match self {
            JobData::Dataset(dataset) => DataSource::Dataset(dataset),
            JobData::Shards { path, .. } => DataSource::Shards(path),
        }
    }

    /// Returns whether there are validation nodes. Shards are taken to have some.
    pub(super) fn has_validation_nodes(&self) -> bool {
        match self {
            JobData::Dataset(dataset) => dataset.split().contains(&(Subset::Val as u8)),
            JobData::Shards { .. } => true,
        }
    }

    /// Returns the names or numbers of classes that have nodes, but no training node. Empty for shards.
    pub(super) fn classes_without_training_nodes(&self) -> Vec<String> {
        let JobData::Dataset(dataset) = self else { return Vec::new() };
        let name =
            |class: usize| dataset.manifest.class_names.get(class).cloned().unwrap_or(class.to_string());
        LabelCounts::of(dataset).untrained_classes().into_iter().map(name).collect()
    }

    /// Reads the manifests of all shards; refuses a shard of another partition. Empty for a dataset.
    pub(super) fn shard_manifests(&self) -> Result<Vec<ShardManifest>> {
        let JobData::Shards { path, whole } = self else { return Ok(Vec::new()) };
        let describe = |part: u32| {
            let found = Shard::describe(path, part)?;
            if found.partition == **whole {
                return Ok(found);
            }
            let folder = path.join(shard::manifest::folder_name(part));
            let problem = format!("belongs to another partition than part 0 in {}", path.display());
            Err(Error::input(folder.display(), problem)
                .help("copy the right folder here, or make all parts again with `halograph partition`"))
        };
        (0..whole.parts).map(describe).collect()
    }

    /// Refuses data that cannot be trained on.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            JobData::Dataset(dataset) => data::check(dataset),
            JobData::Shards { path, whole } if whole.training == 0 => {
                Err(Error::input(path.display(), "no training node has a label")
                    .help("partition a dataset that has labelled training nodes"))
            }
            JobData::Shards { .. } => Ok(()),
        }
    }
}

impl From<Arc<Dataset>> for JobData {
    fn from(dataset: Arc<Dataset>) -> Self {
        JobData::Dataset(dataset)
    }
}
