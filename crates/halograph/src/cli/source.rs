//! What a user trains on: a dataset, or the parts of one.

use std::path::{Path, PathBuf};

use halograph::train::data;
use halograph::train::launch;
use halograph_graph::Dataset;
use halograph_graph::dataset::Manifest;
use halograph_graph::error::{Error, Result};
use halograph_graph::partition::shard::manifest::ShardManifest;
use halograph_graph::partition::{Shard, Whole, folder, shard};

/// A dataset, or the parts that `halograph partition` made of one.
pub enum Source {
    /// All of it.
    Dataset(Box<Dataset>),
    /// A folder of parts.
    Shards {
        /// The folder.
        path: PathBuf,
        /// What every part knows.
        whole: Box<Whole>,
    },
}

/// Whether `path` holds parts: all of them, or that of one rank.
pub fn is_shards(path: &Path, part: u32) -> bool {
    path.join(folder::MANIFEST).exists() || path.join(shard::manifest::folder_name(part)).exists()
}

impl Source {
    /// What is in `path`. Of parts, `part` is asked what they are; ranks open their own.
    pub fn open(path: &Path, part: u32) -> Result<Self> {
        if is_shards(path, part) {
            let whole = Box::new(Shard::describe(path, part)?.whole);
            return Ok(Source::Shards { path: path.to_path_buf(), whole });
        }
        Ok(Source::Dataset(Box::new(Dataset::open(path)?)))
    }

    /// What the data say of themselves.
    pub fn manifest(&self) -> &Manifest {
        match self {
            Source::Dataset(dataset) => &dataset.manifest,
            Source::Shards { whole, .. } => &whole.dataset,
        }
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        match self {
            Source::Dataset(dataset) => dataset.path().expect("it was opened from a directory"),
            Source::Shards { path, .. } => path,
        }
    }

    /// Number of parts, if they are in parts.
    pub fn parts(&self) -> Option<u32> {
        match self {
            Source::Dataset(_) => None,
            Source::Shards { whole, .. } => Some(whole.parts),
        }
    }

    /// For ranks.
    pub fn for_ranks(&self) -> launch::Source<'_> {
        match self {
            Source::Dataset(dataset) => launch::Source::Dataset(dataset),
            Source::Shards { path, .. } => launch::Source::Shards(path),
        }
    }

    /// What each part says of itself, if they are in parts and all here; refuses one of another partition.
    pub fn described(&self) -> Result<Vec<ShardManifest>> {
        let Source::Shards { path, whole } = self else { return Ok(Vec::new()) };
        let describe = |part: u32| {
            let found = Shard::describe(path, part)?;
            if found.whole == **whole {
                return Ok(found);
            }
            let folder = path.join(shard::manifest::folder_name(part));
            let problem = format!("belongs to another partition than part 0 in {}", path.display());
            Err(Error::input(folder.display(), problem)
                .help("copy the right folder here, or make all parts again with `halograph partition`"))
        };
        (0..whole.parts).map(describe).collect()
    }

    /// Refuses what cannot be trained on.
    pub fn check(&self) -> Result<()> {
        match self {
            Source::Dataset(dataset) => data::check(dataset),
            Source::Shards { path, whole } if whole.training == 0 => {
                Err(Error::input(path.display(), "no training node has a label")
                    .help("partition a dataset that has labelled training nodes"))
            }
            Source::Shards { .. } => Ok(()),
        }
    }
}
