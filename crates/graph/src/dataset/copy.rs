//! Writing a dataset that is open, on disk or in memory, to another directory.

use std::path::Path;

use super::write::{self, Contents, FeatureLayout, FeatureSource, FeatureType, Labels};
use super::{Dataset, LabelView, StoredFeatures};
use crate::csr::{Csr, Ids};
use crate::error::Result;
use crate::progress::Progress;

/// Elements read at a time.
const CHUNK: usize = 1 << 16;

impl Dataset {
    /// Writes the dataset to the directory `target`, completely or not at all. Replaces an existing dataset there only if
    /// `overwrite`. Of several splits, all are written; the first stays the first.
    pub fn save(&self, target: &Path, overwrite: bool, progress: &dyn Progress) -> Result<()> {
        write::may_write(target, overwrite)?;
        let graph = self.graph();
        let csr = Csr {
            indptr: graph.indptr.to_vec(),
            indices: Ids::Mapped(self.indices.clone()),
            weights: self.edge_weights().map(<[f32]>::to_vec),
        };
        let labels = match self.labels() {
            LabelView::Single(labels) => Labels::Single(labels.to_vec()),
            LabelView::Multi { classes, flags } => Labels::Multi { classes, flags: flags.to_vec() },
        };
        let count = self.manifest.splits as usize;
        let splits = (0..count).map(|index| Ok(self.with_split(index)?.split().to_vec()));
        let ids = self.ids()?;
        let is_sparse = matches!(self.feat, StoredFeatures::Sparse(_));
        let contents = Contents {
            name: self.manifest.name.clone(),
            csr: &csr,
            directed: self.manifest.directed,
            features: &StoredRows { rows: &self.feat, names: &self.manifest.feature_names },
            feature_type: if self.feat.is_half() { FeatureType::F16 } else { FeatureType::F32 },
            feature_layout: if is_sparse { FeatureLayout::Sparse } else { FeatureLayout::Dense },
            labels: &labels,
            classes: self.manifest.classes as usize,
            class_names: self.manifest.class_names.clone(),
            splits: &splits.collect::<Result<Vec<_>>>()?,
            ids: ids.as_deref(),
            metric: self.manifest.metric,
            source: self.manifest.source.clone(),
        };
        write::write(target, overwrite, &contents, progress).map(drop)
    }
}

/// The features of a dataset as a source.
struct StoredRows<'a> {
    rows: &'a StoredFeatures,
    names: &'a [String],
}

impl FeatureSource for StoredRows<'_> {
    fn cols(&self) -> usize {
        self.rows.cols()
    }

    fn names(&self) -> Vec<String> {
        self.names.to_vec()
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let (rows, cols) = (self.rows.rows(), self.rows.cols());
        let step = (CHUNK / cols).max(1);
        let mut buffer = vec![0.0; step * cols];
        for start in (0..rows).step_by(step) {
            let values = &mut buffer[..step.min(rows - start) * cols];
            for (k, row) in values.chunks_exact_mut(cols).enumerate() {
                self.rows.read_row(start + k, row)?;
            }
            sink(values)?;
        }
        Ok(())
    }

    fn place(&self, row: usize, column: usize) -> String {
        self.rows.place(row, column)
    }
}
