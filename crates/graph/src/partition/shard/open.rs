//! Opening the folder of one shard. No other file is read: a host may have no other.

use std::fs;
use std::path::Path;

use rayon::prelude::*;

use super::column::Column;
use super::manifest::{
    AGAIN, DEGREE, DISTANCE, HALO, HOME, IDS, IN_WEIGHT, MANIFEST, ShardManifest, folder_name,
};
use super::{Shard, ShardWeights};
use crate::dataset::check::row_starts;
use crate::dataset::{
    EDGE_WEIGHT, INDICES, INDPTR, LABEL, LabelView, SPLIT, StoredFeatures, Subset, is_weight, open_array,
    wrong_weight,
};
use crate::error::{Error, IoContext, Result};
use crate::io::npy::{self, Array};

impl Shard {
    /// Reads the manifest of part `part` in the folder `shards`, without its arrays.
    pub fn describe(shards: &Path, part: u32) -> Result<ShardManifest> {
        read_manifest(&shards.join(folder_name(part)), part)
    }

    /// Opens part `part` in the folder `shards`. Reads only the folder of that part and maps its arrays. Checks lengths,
    /// types, digests and consistency of all arrays.
    pub fn open(shards: &Path, part: u32) -> Result<Shard> {
        let folder = shards.join(folder_name(part));
        let manifest = read_manifest(&folder, part)?;
        manifest.files.par_iter().try_for_each(|(file, record)| check_digest(&folder.join(file), record))?;
        let open = |file| -> Result<Array> {
            let (shape, types) = manifest.shape(file);
            open_array(&folder, MANIFEST, file, &shape, types).map_err(|e| e.help(AGAIN))
        };
        let weights = match manifest.partition.dataset.has_edge_weights() {
            true => Some(ShardWeights {
                edges: Column::Mapped(open(EDGE_WEIGHT)?),
                sums: Column::Mapped(open(IN_WEIGHT)?),
            }),
            false => None,
        };
        let shard = Shard {
            part,
            weights,
            ids: Column::Mapped(open(IDS)?),
            indptr: Column::Mapped(open(INDPTR)?),
            indices: Column::Mapped(open(INDICES)?),
            split: Column::Mapped(open(SPLIT)?),
            degrees: Column::Mapped(open(DEGREE)?),
            distance: Column::Mapped(open(DISTANCE)?),
            halo: Column::Mapped(open(HALO)?),
            homes: Column::Mapped(open(HOME)?),
            features: StoredFeatures::open(
                manifest.feature_values.is_some(),
                manifest.partition.dataset.features,
                open,
            )?,
            labels: open(LABEL)?,
            stored: None,
            partition: manifest.partition,
        };
        shard.check().map_err(|(file, problem)| damaged(&folder.join(file), problem))?;
        Ok(shard)
    }

    /// Checks that all indices are in range; returns file and problem of the first fault.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(fault) = row_starts(INDPTR, &self.indptr, self.indices.len() as u64).into_iter().next() {
            return Err((INDPTR, format!("{}: {}", fault.position, fault.problem)));
        }
        let (rows, nodes) = (self.rows() as u32, self.partition.dataset.nodes as u32);
        if let Some(edge) = self.indices.par_iter().position_any(|&column| column >= rows) {
            return Err((
                INDICES,
                format!("element {edge}: out-of-range row {} of {rows}", self.indices[edge]),
            ));
        }
        let edges = self.edges();
        if let Some(row) = (0..self.owned()).into_par_iter().find_any(|&row| !edges.row(row).is_sorted()) {
            return Err((INDICES, format!("unsorted edges in row {row}")));
        }
        if let Some(row) = self.ids.iter().position(|&id| id >= nodes) {
            return Err((
                IDS,
                format!("element {row}: out-of-range id {} in a graph of {nodes} nodes", self.ids[row]),
            ));
        }
        if let Some(weights) = &self.weights {
            let (edges, sums) = (&weights.edges, &weights.sums);
            if let Some(edge) = edges.par_iter().position_any(|&weight| !is_weight(weight)) {
                return Err((EDGE_WEIGHT, format!("element {edge}: {}", wrong_weight(edges[edge].into()))));
            }
            if let Some(at) = sums.par_iter().position_any(|sum| !sum.is_finite()) {
                return Err((IN_WEIGHT, format!("element {at}: {} where sums must be finite", sums[at])));
            }
        }
        let ends = self.halo.first() == Some(&0) && self.halo.last() == Some(&(self.homes.len() as u64));
        let own = self.halo[self.part as usize] == self.halo[self.part as usize + 1];
        if !ends || !own || !self.halo.is_sorted() {
            return Err((HALO, "the runs of the owners are not consecutive".into()));
        }
        self.check_labels()
    }

    /// Checks labels and split; returns file and problem of the first fault.
    fn check_labels(&self) -> Result<(), (&'static str, String)> {
        let classes = self.partition.dataset.classes;
        let wrong = match self.labels() {
            LabelView::Single(labels) => {
                let row = labels.par_iter().position_first(|&label| label < -1 || label >= classes as i64);
                row.map(|row| format!("row {row}: label {} outside {classes} classes", labels[row]))
            }
            LabelView::Multi { classes, flags } => {
                let at = flags.par_iter().position_first(|&flag| flag > 1);
                at.map(|at| {
                    let (row, class) = (at / classes, at % classes);
                    format!("row {row}, class {class}: {} where 0 or 1 is needed", flags[at])
                })
            }
        };
        if let Some(problem) = wrong {
            return Err((LABEL, problem));
        }
        match self.split.par_iter().position_first(|&part| part > Subset::Test as u8) {
            None => Ok(()),
            Some(row) => Err((
                SPLIT,
                format!(
                    "row {row}: {} is none of 0 (none), 1 (train), 2 (validation), 3 (test)",
                    self.split[row]
                ),
            )),
        }
    }
}

fn read_manifest(folder: &Path, part: u32) -> Result<ShardManifest> {
    let path = folder.join(MANIFEST);
    if !path.exists() {
        return Err(Error::input(folder.display(), format!("no {MANIFEST}: part {part} is missing"))
            .help("create the shards with `halograph partition`, or copy the folder of this part here"));
    }
    let manifest = ShardManifest::parse(&path, &fs::read_to_string(&path).at(&path, "read")?)?;
    if manifest.part != part {
        return Err(damaged(&path, format!("is part {}, not part {part}", manifest.part)));
    }
    Ok(manifest)
}

fn check_digest(path: &Path, record: &npy::FileRecord) -> Result<()> {
    let map = npy::map(path).map_err(|e| e.if_missing(AGAIN))?;
    if map.len() as u64 != record.bytes {
        let problem = format!("{} bytes instead of {} as in {MANIFEST}", map.len(), record.bytes);
        return Err(damaged(path, problem));
    }
    if blake3::hash(&map).to_hex().as_str() != record.blake3 {
        return Err(damaged(path, format!("the contents do not match the BLAKE3 digest in {MANIFEST}")));
    }
    Ok(())
}

fn damaged(path: &Path, problem: impl std::fmt::Display) -> Error {
    Error::input(path.display(), problem).help(AGAIN)
}
