//! Import of other file formats into a dataset directory.
//!
//! Each format is one module with one function, `read`: it opens the files and returns a [`RawGraph`], in which edges and
//! features are still streams. The rest is common to all formats: build the graph, select the component, choose the
//! split, check labels, write.

mod arrays;
mod class_map;
mod graphsaint;
mod memory;
mod npy;
mod npz;
mod ogb;
mod ogb_binary;
mod planetoid;
mod split;
mod table;
#[cfg(test)]
mod weight_tests;

use std::path::Path;

pub use memory::{ImportArrays, MatrixArrays, import_arrays};
pub use split::SplitRule;
pub(crate) use split::SplitSource;
pub use table::TableSpec;
pub use table::csv::Dialect;
#[cfg(feature = "parquet")]
pub use table::panic_expected;

use crate::build::{self, EdgeCounts, EdgeInput, EdgeOptions};
use crate::csr::Csr;
use crate::dataset::Subset;
use crate::dataset::manifest::{Manifest, Metric, class_limit};
use crate::dataset::write::{self, FeatureLayout, FeatureSource, FeatureType, Labels, OwnedContents};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::subgraph;

/// Formats that can be imported, each with its own options.
#[derive(Debug, Clone)]
pub enum ImportFormat {
    /// A folder of plain arrays.
    Npy {
        /// Number of the only split to keep where there are several; by default all.
        split_index: Option<usize>,
    },
    /// The eight files of a Planetoid graph.
    Planetoid,
    /// One archive of arrays.
    Npz {
        /// Number of the only split to keep where there are several; by default all.
        split_index: Option<usize>,
    },
    /// A GraphSAINT folder.
    GraphSaint,
    /// A raw directory of the Open Graph Benchmark.
    Ogb {
        /// Name of the split to take where there are several.
        scheme: Option<String>,
    },
    /// An edge table and a node table in text files.
    Csv(TableSpec, Dialect),
    /// An edge table and a node table in parquet files.
    #[cfg(feature = "parquet")]
    Parquet(TableSpec),
}

impl ImportFormat {
    /// Returns the name of the format on the command line and in manifests.
    pub fn name(&self) -> &'static str {
        match self {
            ImportFormat::Npy { .. } => "npy",
            ImportFormat::Planetoid => "planetoid",
            ImportFormat::Npz { .. } => "npz",
            ImportFormat::GraphSaint => "graphsaint",
            ImportFormat::Ogb { .. } => "ogb",
            ImportFormat::Csv(..) => "csv",
            #[cfg(feature = "parquet")]
            ImportFormat::Parquet(_) => "parquet",
        }
    }

    /// Returns the flag that chooses one of several splits in the files, if it was given.
    fn split_flag(&self) -> Option<String> {
        match self {
            ImportFormat::Npy { split_index } | ImportFormat::Npz { split_index } => {
                split_index.map(|index| format!("--split-index {index}"))
            }
            ImportFormat::Ogb { scheme } => scheme.as_ref().map(|scheme| format!("--scheme {scheme}")),
            _ => None,
        }
    }

    /// Opens `source`.
    fn read(&self, source: &Path, progress: &dyn Progress) -> Result<RawGraph> {
        match self {
            ImportFormat::Npy { split_index } => npy::read(source, *split_index),
            ImportFormat::Planetoid => planetoid::read(source),
            ImportFormat::Npz { split_index } => npz::read(source, *split_index),
            ImportFormat::GraphSaint => graphsaint::read(source),
            ImportFormat::Ogb { scheme } => ogb::read(source, scheme.as_deref(), progress),
            ImportFormat::Csv(spec, dialect) => table::csv::read(source, spec, *dialect, progress),
            #[cfg(feature = "parquet")]
            ImportFormat::Parquet(spec) => table::parquet::read(source, spec, progress),
        }
    }
}

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// Which edges are kept.
    pub edges: EdgeOptions,
    /// Keep only the largest connected component.
    pub largest_component: bool,
    /// How the split is chosen.
    pub split: SplitRule,
    /// Seed of random splits.
    pub seed: u64,
    /// Metric; by default accuracy, or micro-F1 for multi-label data.
    pub metric: Option<Metric>,
    /// Type of stored features.
    pub feature_type: FeatureType,
    /// How features are stored.
    pub feature_layout: FeatureLayout,
    /// Name of the dataset; by default that of the source.
    pub name: Option<String>,
    /// Replace an existing dataset.
    pub overwrite: bool,
}

/// A graph as read from its files; edges and features are not yet read.
pub struct RawGraph {
    /// Name in the files, or of the files.
    pub name: String,
    /// Vertices.
    pub nodes: usize,
    /// Edges, unchecked.
    pub edges: EdgeInput,
    /// Features, unchecked.
    pub features: Box<dyn FeatureSource>,
    /// Labels, one row per node, unchecked.
    pub labels: Labels,
    /// File of the labels, for messages.
    pub labels_from: String,
    /// Names of the classes; may be empty.
    pub class_names: Vec<String>,
    /// All splits in the files, perhaps none; in each, for every node 0 none, 1 train, 2 validation or 3 test.
    pub splits: Vec<Vec<u8>>,
    /// The user's own ids.
    pub ids: Option<Vec<String>>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl RawGraph {
    /// Checks that there is a label for each node. Labels are in memory, so the files really hold that many. Before this
    /// check the number of nodes is unverified, and nothing of that size may be allocated.
    fn check_label_rows(&self) -> Result<()> {
        let rows = match &self.labels {
            Labels::Single(labels) => labels.len(),
            Labels::Multi { classes, flags } => flags.len().checked_div(*classes).unwrap_or(0),
        };
        if rows != self.nodes {
            let problem = format!("{rows} labels for {} nodes", self.nodes);
            return Err(Error::input(&self.labels_from, problem));
        }
        if rows == 0 {
            return Err(Error::input(&self.labels_from, "no nodes: a graph needs at least one"));
        }
        Ok(())
    }
}

/// Result of an import.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ImportReport {
    /// Manifest of the new dataset.
    pub manifest: Manifest,
    /// Numbers of edges before and after.
    pub edges: EdgeCounts,
    /// Nodes of smaller components, which were left out.
    pub nodes_dropped: usize,
    /// Provenance of the split.
    pub split: String,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Imports `source` and writes the dataset directory `target`.
pub fn import(
    format: &ImportFormat,
    source: &Path,
    target: &Path,
    options: &ImportOptions,
    progress: &dyn Progress,
) -> Result<ImportReport> {
    write::may_write(target, options.overwrite)?;
    let raw = format.read(source, progress)?;
    check_split_flag(format, &raw, options.split)?;
    let manifest = if matches!(format, ImportFormat::Npy { .. }) { npy::manifest(source)? } else { None };
    let options = manifest.map_or_else(|| options.clone(), |manifest| options.following(&manifest));
    let prepared = prepare(raw, &options, |split| command(format, &options, split), progress)?;
    let manifest = write::write(target, options.overwrite, &prepared.contents.borrowed(), progress)?;
    let Prepared { edges, nodes_dropped, split, notes, .. } = prepared;
    Ok(ImportReport { manifest, edges, nodes_dropped, split, notes })
}

/// Refuses to ignore a flag that chooses one of several splits in the files.
fn check_split_flag(format: &ImportFormat, raw: &RawGraph, rule: SplitRule) -> Result<()> {
    let Some(flag) = format.split_flag() else { return Ok(()) };
    if raw.splits.is_empty() {
        return Err(Error::input(flag, "the files hold no split to choose")
            .help("leave the flag out; --split 0.6,0.2,0.2 draws a split"));
    }
    if !matches!(rule, SplitRule::Auto | SplitRule::Given) {
        return Err(Error::input(flag, "--split draws a new split instead of taking one from the files")
            .help("leave out one of the two flags"));
    }
    Ok(())
}

impl ImportOptions {
    /// Returns the options for files that are a dataset already: direction, self-loops and metric remain.
    fn following(&self, manifest: &Manifest) -> ImportOptions {
        let edges = EdgeOptions { directed: self.edges.directed || manifest.directed, keep_self_loops: true };
        ImportOptions { edges, metric: self.metric.or(Some(manifest.metric)), ..self.clone() }
    }

    /// Returns the flags that changed the result.
    fn flags(&self) -> String {
        let flags = [
            (self.edges.directed, " --directed"),
            (self.edges.keep_self_loops, " --keep-self-loops"),
            (self.largest_component, " --largest-component"),
            (self.feature_layout == FeatureLayout::Dense, " --features dense"),
            (self.feature_layout == FeatureLayout::Sparse, " --features sparse"),
            (self.feature_type == FeatureType::F16, " --feature-type f16"),
        ];
        flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag).collect()
    }
}

/// A dataset that was read and checked, but for its features, and not yet stored.
struct Prepared {
    contents: OwnedContents<'static>,
    edges: EdgeCounts,
    nodes_dropped: usize,
    /// Provenance of the split.
    split: String,
    notes: Vec<String>,
}

/// Does the part of an import that depends neither on the format nor on where the dataset is stored. `source` says where
/// the dataset comes from, given the provenance of its split.
fn prepare(
    raw: RawGraph,
    options: &ImportOptions,
    source: impl FnOnce(&str) -> String,
    progress: &dyn Progress,
) -> Result<Prepared> {
    let classes = count_classes(&raw)?;
    if raw.features.cols() == 0 {
        return Err(no_columns(&*raw.features));
    }
    let metric = Metric::choose(options.metric, raw.labels.task(), classes)
        .map_err(|problem| Error::input("--metric", problem))?;
    let (csr, mut edges) = build::build(raw.nodes, raw.edges, options.edges, progress)?;
    let mut kept = Kept { csr, features: raw.features, labels: raw.labels, splits: raw.splits, ids: raw.ids };
    if options.largest_component {
        kept = kept.largest_component();
        edges.stored = kept.csr.edges();
    }
    let nodes = kept.csr.nodes();
    let given = SplitSource { given: kept.splits, labels: &kept.labels, nodes, seed: options.seed };
    let (mut splits, mut split_from) = options.split.apply(given)?;
    let mut notes = raw.notes;
    notes.extend(edges.notes());
    if has_labels(&kept.labels) {
        notes.extend(drop_unlabelled(&mut splits, &kept.labels));
        notes.extend(empty_subsets(&splits));
        notes.extend(empty_classes(&kept.labels, classes));
    } else {
        (splits, split_from) = (vec![vec![Subset::None as u8; nodes]], "none".into());
        notes.push("no node has a label: the dataset can be predicted on, not trained on".into());
    }
    let contents = OwnedContents {
        name: options.name.clone().unwrap_or(raw.name),
        csr: kept.csr,
        directed: options.edges.directed,
        features: kept.features,
        feature_type: options.feature_type,
        feature_layout: options.feature_layout,
        labels: kept.labels,
        classes,
        class_names: raw.class_names,
        splits,
        ids: kept.ids,
        metric,
        source: source(&split_from),
    };
    Ok(Prepared { contents, edges, nodes_dropped: raw.nodes - nodes, split: split_from, notes })
}

/// Returns the command that makes this dataset, without the paths, and the provenance of its split.
fn command(format: &ImportFormat, options: &ImportOptions, split_from: &str) -> String {
    let split = format.split_flag().map_or(String::new(), |flag| format!(" {flag}"));
    format!("import {}{split}{}; split: {split_from}", format.name(), options.flags())
}

/// Creates the error for features without a column.
fn no_columns(features: &dyn FeatureSource) -> Error {
    Error::input(features.place(0, 0), "features without a column")
        .help("give every node at least one feature")
}

/// Returns whether any node has a label. Nodes of multi-label data always have: it may be no class.
fn has_labels(labels: &Labels) -> bool {
    match labels {
        Labels::Single(labels) => labels.iter().any(|&label| label >= 0),
        Labels::Multi { .. } => true,
    }
}

/// Removes nodes without a label from the splits; returns notes about them.
fn drop_unlabelled(splits: &mut [Vec<u8>], labels: &Labels) -> Vec<String> {
    let Labels::Single(labels) = labels else { return Vec::new() };
    let dropped = splits.iter_mut().map(|split| {
        let pairs = split.iter_mut().zip(labels);
        let unlabelled = pairs.filter(|(part, label)| **part != Subset::None as u8 && **label < 0);
        unlabelled.map(|(part, _)| *part = Subset::None as u8).count()
    });
    let dropped: Vec<usize> = dropped.collect();
    let note = |(k, n): (usize, &usize)| {
        let split = split_name(k, dropped.len());
        (*n > 0).then(|| format!("{n} nodes of {split} have no label and were removed from it"))
    };
    dropped.iter().enumerate().filter_map(note).collect()
}

/// Returns notes about empty subsets of splits, which are allowed but rarely intended.
fn empty_subsets(splits: &[Vec<u8>]) -> Vec<String> {
    let parts = [(Subset::Train, "training"), (Subset::Val, "validation"), (Subset::Test, "test")];
    let note = |(k, split): (usize, &Vec<u8>)| {
        let missing = parts.iter().filter(|(part, _)| !split.contains(&(*part as u8)));
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        let which = split_name(k, splits.len());
        (!missing.is_empty()).then(|| format!("{which} has no {} nodes", missing.join(" and no ")))
    };
    splits.iter().enumerate().filter_map(note).collect()
}

/// Returns how notes name split number `k` of `count`.
fn split_name(k: usize, count: usize) -> String {
    if count == 1 { "the split".into() } else { format!("split {k}") }
}

/// Returns a note about classes without nodes, which cost memory and time in the last layer.
fn empty_classes(labels: &Labels, classes: usize) -> Option<String> {
    let Labels::Single(labels) = labels else { return None };
    let mut seen = vec![false; classes];
    labels.iter().filter(|&&label| label >= 0).for_each(|&label| seen[label as usize] = true);
    let empty = seen.iter().filter(|&&seen| !seen).count();
    (empty > 0).then(|| format!("{empty} of {classes} classes have no node"))
}

/// Checks every label; returns the number of classes.
fn count_classes(raw: &RawGraph) -> Result<usize> {
    let place = |node: usize| format!("{}, node {node}", raw.labels_from);
    raw.check_label_rows()?;
    let classes = match &raw.labels {
        Labels::Single(labels) => {
            let limit = class_limit(raw.nodes as u64) as i64;
            if let Some(v) = labels.iter().position(|&l| l < -1 || l >= limit) {
                return Err(Error::input(
                    place(v),
                    format!("class {} where -1 to {} are possible", labels[v], limit - 1),
                )
                .help("classes count from 0, and -1 means no label; number them without large gaps"));
            }
            (labels.iter().copied().max().unwrap_or(-1) + 1) as usize
        }
        Labels::Multi { classes, flags } => {
            if let Some(at) = flags.iter().position(|&x| x > 1) {
                let problem = format!("{} in column {} where 0 or 1 is needed", flags[at], at % classes);
                return Err(Error::input(place(at / classes), problem));
            }
            *classes
        }
    };
    Ok(classes.max(raw.class_names.len()))
}

/// The contents of the dataset after its graph is built.
struct Kept {
    csr: Csr,
    features: Box<dyn FeatureSource>,
    labels: Labels,
    splits: Vec<Vec<u8>>,
    ids: Option<Vec<String>>,
}

impl Kept {
    fn largest_component(self) -> Kept {
        let keep = subgraph::largest_component(self.csr.view());
        let csr = subgraph::induced(&self.csr, &keep);
        let labels = match self.labels {
            Labels::Single(labels) => Labels::Single(pick(&keep, &labels)),
            Labels::Multi { classes, flags } => {
                let rows =
                    keep.iter().flat_map(|&v| &flags[v as usize * classes..(v as usize + 1) * classes]);
                Labels::Multi { classes, flags: rows.copied().collect() }
            }
        };
        let splits = self.splits.iter().map(|split| pick(&keep, split)).collect();
        // Renumbered nodes keep their old numbers as ids.
        let ids = match self.ids {
            Some(ids) => Some(pick(&keep, &ids)),
            None if keep.len() < self.csr.nodes() => Some(keep.iter().map(u32::to_string).collect()),
            None => None,
        };
        let features = Box::new(KeptFeatures { all: self.features, nodes: self.csr.nodes(), keep });
        Kept { csr, features, labels, splits, ids }
    }
}

fn pick<T: Clone>(keep: &[u32], all: &[T]) -> Vec<T> {
    keep.iter().map(|&v| all[v as usize].clone()).collect()
}

/// Some rows of a feature source.
struct KeptFeatures {
    all: Box<dyn FeatureSource>,
    /// Expected number of rows before selection; the writer sees only the selected ones.
    nodes: usize,
    /// Ascending.
    keep: Vec<u32>,
}

impl FeatureSource for KeptFeatures {
    fn cols(&self) -> usize {
        self.all.cols()
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let cols = self.cols();
        if cols == 0 {
            return Ok(());
        }
        let nodes = self.nodes;
        let (mut row, mut next, mut batch) = (0, 0, Vec::new());
        self.all.stream(&mut |rows| {
            batch.clear();
            for values in rows.chunks_exact(cols) {
                if self.keep.get(next).is_some_and(|&v| v as usize == row) {
                    batch.extend_from_slice(values);
                    next += 1;
                }
                row += 1;
            }
            if row > nodes {
                let problem = format!("more feature rows than the {nodes} nodes of the graph");
                return Err(Error::input(self.all.place(nodes, 0), problem));
            }
            sink(&batch)
        })?;
        if row != nodes {
            return Err(Error::input(
                self.all.place(row, 0),
                format!("{row} feature rows for {nodes} nodes"),
            ));
        }
        Ok(())
    }

    fn place(&self, row: usize, column: usize) -> String {
        self.all.place(self.keep.get(row).map_or(row, |&v| v as usize), column)
    }

    fn names(&self) -> Vec<String> {
        self.all.names()
    }
}

/// Returns the name of a dataset imported from `source`: that of the folder, or of the file without extension.
fn name_of(source: &Path) -> String {
    // `.` and `..` have no file name.
    let named = if source.file_name().is_some() {
        source.to_path_buf()
    } else {
        source.canonicalize().unwrap_or_default()
    };
    let name = if named.is_dir() { named.file_name() } else { named.file_stem() };
    name.map_or("graph".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one column.
    struct Rows(usize);

    impl FeatureSource for Rows {
        fn cols(&self) -> usize {
            1
        }

        fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
            (0..self.0).try_for_each(|row| sink(&[row as f32]))
        }

        fn place(&self, row: usize, _column: usize) -> String {
            format!("row {row}")
        }
    }

    #[test]
    fn rows_are_counted_before_selection() {
        let stream = |rows: usize| {
            let features = KeptFeatures { all: Box::new(Rows(rows)), nodes: 4, keep: vec![0, 2] };
            let mut kept = Vec::new();
            features.stream(&mut |rows| {
                kept.extend_from_slice(rows);
                Ok(())
            })?;
            Ok::<_, Error>(kept)
        };
        assert_eq!(stream(4).unwrap(), [0.0, 2.0]);
        assert_eq!(stream(3).unwrap_err().to_string(), "row 3: 3 feature rows for 4 nodes");
        let error = stream(5).unwrap_err().to_string();
        assert_eq!(error, "row 4: more feature rows than the 4 nodes of the graph");
    }
}
