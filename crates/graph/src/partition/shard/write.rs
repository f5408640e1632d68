//! Writing the folder of a shard.

use std::fs;
use std::path::{Path, PathBuf};

use half::f16;

use super::Shard;
use super::manifest::{
    DEGREE, DISTANCE, FORMAT, HALO, HOME, IDS, IN_WEIGHT, MANIFEST, ShardManifest, VERSION, folder_name,
};
use crate::dataset::{
    EDGE_WEIGHT, FEAT, FEAT_INDICES, FEAT_INDPTR, FEAT_VALUES, INDICES, INDPTR, LABEL, SPLIT, SparseArrays,
    StoredFeatures, Task,
};
use crate::error::{IoContext, Result};
use crate::io::npy::{Array, Element, FileRecord, Writer};
use crate::progress::Progress;

/// Rows copied between two checks for cancellation.
const RUN: usize = 4096;

impl Shard {
    /// Writes the shard into a new folder inside `parent`, without syncing it: there may be thousands, which the caller syncs
    /// at once.
    pub(in crate::partition) fn write(
        &self,
        parent: &Path,
        progress: &dyn Progress,
    ) -> Result<ShardManifest> {
        let folder = parent.join(folder_name(self.part));
        fs::create_dir(&folder).at(&folder, "create")?;
        let mut manifest = ShardManifest {
            format: FORMAT.into(),
            version: VERSION,
            part: self.part,
            owned: self.owned() as u64,
            halo: (self.rows() - self.owned()) as u64,
            edges: self.indices.len() as u64,
            feature_values: self.feature_values(),
            partition: self.partition.clone(),
            files: Default::default(),
            digest: String::new(),
        };
        let path = |file: &str| folder.join(file);
        let mut add = |file: &str, record: FileRecord| drop(manifest.files.insert(file.into(), record));
        add(INDPTR, array(&path(INDPTR), &[self.indptr.len()], &self.indptr)?);
        add(INDICES, array(&path(INDICES), &[self.indices.len()], &self.indices)?);
        add(IDS, array(&path(IDS), &[self.rows()], &self.ids)?);
        add(SPLIT, array(&path(SPLIT), &[self.rows()], &self.split)?);
        add(DEGREE, array(&path(DEGREE), &[3, self.rows()], &self.degrees)?);
        add(DISTANCE, array(&path(DISTANCE), &[self.rows()], &self.distance)?);
        add(HALO, array(&path(HALO), &[self.halo.len()], &self.halo)?);
        add(HOME, array(&path(HOME), &[self.homes.len()], &self.homes)?);
        if let Some(weights) = &self.weights {
            add(EDGE_WEIGHT, array(&path(EDGE_WEIGHT), &[weights.edges.len()], &weights.edges)?);
            add(IN_WEIGHT, array(&path(IN_WEIGHT), &[3, self.rows(), 2], &weights.sums)?);
        }
        add(LABEL, self.write_labels(&path(LABEL), progress)?);
        manifest.files.extend(self.write_features(&path, progress)?);
        manifest.digest = manifest.compute_digest();
        let json = serde_json::to_string_pretty(&manifest).expect("a manifest always serialises") + "\n";
        fs::write(path(MANIFEST), json).at(&path(MANIFEST), "write")?;
        Ok(manifest)
    }

    /// Returns the number of stored feature values of owned vertices, if features are sparse.
    fn feature_values(&self) -> Option<u64> {
        let StoredFeatures::Sparse(all) = &self.features else { return None };
        Some((0..self.owned()).map(|row| all.row(self.stored_row(row)).len() as u64).sum())
    }

    fn write_features(
        &self,
        path: &dyn Fn(&str) -> PathBuf,
        progress: &dyn Progress,
    ) -> Result<Vec<(String, FileRecord)>> {
        let is_half = self.features.is_half();
        match &self.features {
            StoredFeatures::Dense(all) => {
                let record = match is_half {
                    true => self.copy_rows::<f16>(all, &path(FEAT), progress),
                    false => self.copy_rows::<f32>(all, &path(FEAT), progress),
                };
                Ok(vec![(FEAT.into(), record?)])
            }
            StoredFeatures::Sparse(all) => match is_half {
                true => self.copy_sparse_rows::<f16>(all, path, progress),
                false => self.copy_sparse_rows::<f32>(all, path, progress),
            },
        }
    }

    /// Copies the stored values of owned vertices from `from`.
    fn copy_sparse_rows<T: Element>(
        &self,
        from: &SparseArrays,
        path: &dyn Fn(&str) -> PathBuf,
        progress: &dyn Progress,
    ) -> Result<Vec<(String, FileRecord)>> {
        let all: &[T] = from.values().expect("the type of the values was checked");
        let mut starts = vec![0u64];
        for row in 0..self.owned() {
            starts.push(starts[row] + from.row(self.stored_row(row)).len() as u64);
        }
        let stored = starts[self.owned()] as usize;
        let mut indices = Writer::<u32>::create(&path(FEAT_INDICES), &[stored])?;
        let mut values = Writer::<T>::create(&path(FEAT_VALUES), &[stored])?;
        for row in 0..self.owned() {
            let of = from.row(self.stored_row(row));
            indices.write(&from.columns()[of.clone()])?;
            values.write(&all[of])?;
            if row.is_multiple_of(RUN) {
                progress.tick(0)?;
            }
        }
        Ok(vec![
            (FEAT_INDPTR.into(), array(&path(FEAT_INDPTR), &[starts.len()], &starts)?),
            (FEAT_INDICES.into(), indices.finish_unsynced()?),
            (FEAT_VALUES.into(), values.finish_unsynced()?),
        ])
    }

    fn write_labels(&self, path: &Path, progress: &dyn Progress) -> Result<FileRecord> {
        match self.partition.dataset.task {
            Task::SingleLabel => self.copy_rows::<i64>(&self.labels, path, progress),
            Task::MultiLabel => self.copy_rows::<u8>(&self.labels, path, progress),
        }
    }

    /// Copies the rows of owned vertices from `from`.
    fn copy_rows<T: Element>(
        &self,
        from: &Array,
        path: &Path,
        progress: &dyn Progress,
    ) -> Result<FileRecord> {
        let (values, cols) = (crate::dataset::view::<T>(from), from.cols());
        let mut shape = from.header.shape.clone();
        shape[0] = self.owned();
        let mut writer = Writer::create(path, &shape)?;
        for start in (0..self.owned()).step_by(RUN) {
            for row in start..(start + RUN).min(self.owned()) {
                writer.write(&values[self.stored_row(row) * cols..][..cols])?;
            }
            progress.tick(0)?;
        }
        writer.finish_unsynced()
    }
}

fn array<T: Element>(path: &Path, shape: &[usize], elements: &[T]) -> Result<FileRecord> {
    let mut writer = Writer::create(path, shape)?;
    writer.write(elements)?;
    writer.finish_unsynced()
}
