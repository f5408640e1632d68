//! Statistics of a dataset: degrees, homophily, labels, split.

use rayon::prelude::*;

use super::{Dataset, LabelView, Manifest, Subset};
use crate::csr::CsrView;

/// Statistics of a dataset.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct DatasetInfo {
    /// In-degrees.
    pub degrees: Degrees,
    /// Edge weights, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_weights: Option<WeightSummary>,
    /// Type of the features: `f32` or `f16`.
    pub feature_type: &'static str,
    /// Stored values of sparse features as a share of all elements; `None`: features are dense.
    pub feature_density: Option<f64>,
    /// Edge homophily; see [`homophily`]. `None` without an edge between labelled nodes.
    pub homophily: Option<f64>,
    /// Labels.
    pub labels: LabelCounts,
    /// Number of nodes in no subset, for training, validation and test.
    pub split: [u64; 4],
    /// Bytes of all arrays.
    pub bytes: u64,
}

/// In-degrees of all nodes.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Degrees {
    /// Smallest.
    pub min: u64,
    /// Median (the lower one of two).
    pub median: u64,
    /// Mean.
    pub mean: f64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Nodes without any edge.
    pub isolated: u64,
}

/// Edge weights.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct WeightSummary {
    /// Smallest.
    pub min: f32,
    /// Median (the lower one of two).
    pub median: f32,
    /// Largest.
    pub max: f32,
    /// Edges of weight 0.
    pub zeros: u64,
}

impl WeightSummary {
    /// Returns the summary of `weights`; `None` of none.
    fn of(weights: &[f32]) -> Option<Self> {
        let mut sorted = weights.to_vec();
        sorted.par_sort_unstable_by(f32::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let zeros = sorted.iter().filter(|&&weight| weight == 0.0).count() as u64;
        Some(WeightSummary { min, median: sorted[(sorted.len() - 1) / 2], max, zeros })
    }
}

/// Numbers of labels.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LabelCounts {
    /// Nodes with a label (multi-label: with at least one class).
    pub labelled: u64,
    /// Nodes in each class.
    pub per_class: Vec<u64>,
    /// Training nodes in each class.
    pub training_per_class: Vec<u64>,
    /// Validation nodes in each class.
    pub validation_per_class: Vec<u64>,
    /// Test nodes in each class.
    pub test_per_class: Vec<u64>,
    /// Training nodes with a label (multi-label: all training nodes).
    pub training: u64,
}

/// Computes the statistics of `dataset`. Ids and labels out of range are ignored ([`super::check()`] reports them).
pub fn info(dataset: &Dataset) -> DatasetInfo {
    let labels = dataset.labels();
    DatasetInfo {
        degrees: degrees(dataset.graph(), dataset.manifest.directed),
        edge_weights: dataset.edge_weights().and_then(WeightSummary::of),
        feature_type: if dataset.features().is_half() { "f16" } else { "f32" },
        feature_density: dataset.manifest.is_sparse().then(|| dataset.manifest.density()),
        homophily: homophily(dataset.graph(), labels),
        labels: LabelCounts::of(dataset),
        split: split_counts(dataset.split()),
        bytes: dataset.manifest.bytes(),
    }
}

fn degrees(graph: CsrView, directed: bool) -> Degrees {
    let mut all: Vec<u64> = (0..graph.nodes()).map(|v| graph.degree(v)).collect();
    all.par_sort_unstable();
    let at =
        |share: f64| all.get(((all.len().saturating_sub(1)) as f64 * share) as usize).copied().unwrap_or(0);
    Degrees {
        min: at(0.0),
        median: at(0.5),
        mean: graph.indices.len() as f64 / all.len().max(1) as f64,
        p99: at(0.99),
        max: at(1.0),
        isolated: if directed { isolated(graph) } else { all.partition_point(|&d| d == 0) as u64 },
    }
}

/// Returns the number of nodes without an edge in a directed graph.
fn isolated(graph: CsrView) -> u64 {
    let mut used: Vec<bool> = (0..graph.nodes()).map(|v| graph.degree(v) > 0).collect();
    graph.indices.iter().for_each(|&u| used.get_mut(u as usize).into_iter().for_each(|u| *u = true));
    used.iter().filter(|&&used| !used).count() as u64
}

/// Returns the edge homophily: the fraction of edges between labelled nodes whose ends have the same class; for
/// multi-label data the mean Jaccard index of the classes of the two ends.
pub fn homophily(graph: CsrView, labels: LabelView) -> Option<f64> {
    let agreement = |v: usize, u: usize| -> Option<f64> {
        match labels {
            LabelView::Single(y) => {
                let (a, b) = (y[v], *y.get(u)?);
                (a >= 0 && b >= 0).then_some(f64::from(a == b))
            }
            LabelView::Multi { classes, flags } => {
                let row = |v: usize| flags.get(v * classes..(v + 1) * classes);
                let pairs = || row(v).into_iter().flatten().zip(row(u).into_iter().flatten());
                let either = pairs().filter(|&(a, b)| a | b != 0).count();
                let both = pairs().filter(|&(a, b)| a & b != 0).count();
                (either > 0).then(|| both as f64 / either as f64)
            }
        }
    };
    // One sum per row, added in row order: the same bits for any number of threads.
    let per_row: Vec<(f64, u64)> = (0..graph.nodes())
        .into_par_iter()
        .map(|v| {
            let found = graph.row(v).iter().filter_map(|&u| agreement(v, u as usize));
            found.fold((0.0, 0), |(sum, count), x| (sum + x, count + 1))
        })
        .collect();
    let (sum, count) = per_row.iter().fold((0.0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    (count > 0).then(|| sum / count as f64)
}

impl LabelCounts {
    /// Counts the labels of `dataset`; those out of range are left out.
    pub fn of(dataset: &Dataset) -> Self {
        Self::count(dataset.labels(), dataset.split(), dataset.manifest.classes as usize)
    }

    fn count(labels: LabelView, split: &[u8], classes: usize) -> Self {
        let mut all = vec![0; classes];
        let mut subsets =
            [Subset::Train, Subset::Val, Subset::Test].map(|subset| (subset as u8, vec![0; classes]));
        let (mut labelled, mut training) = (0, 0);
        let mut add = |class: usize, part: u8| {
            if class < classes {
                all[class] += 1;
                let within = subsets.iter_mut().find(|(subset, _)| *subset == part);
                within.into_iter().for_each(|(_, counts)| counts[class] += 1);
            }
        };
        for (v, &part) in split.iter().enumerate() {
            let is_multi = matches!(labels, LabelView::Multi { .. });
            let is_labelled = match labels {
                LabelView::Single(y) => {
                    let class = usize::try_from(y[v]).ok().filter(|&class| class < classes);
                    class.into_iter().for_each(|class| add(class, part));
                    class.is_some()
                }
                LabelView::Multi { classes, flags } => {
                    let row = &flags[v * classes..][..classes];
                    let set = row.iter().enumerate().filter(|&(_, &flag)| flag != 0);
                    set.for_each(|(class, _)| add(class, part));
                    row.iter().any(|&flag| flag != 0)
                }
            };
            labelled += u64::from(is_labelled);
            training += u64::from(part == Subset::Train as u8 && (is_multi || is_labelled));
        }
        let [training_per_class, validation_per_class, test_per_class] = subsets.map(|(_, counts)| counts);
        let per_class = all;
        LabelCounts {
            labelled,
            per_class,
            training_per_class,
            validation_per_class,
            test_per_class,
            training,
        }
    }

    /// Classes that have nodes, but none in this subset: their scores are not measured on it. None if the subset is empty.
    pub fn classes_missing_in(&self, subset: Subset) -> Vec<usize> {
        let within = match subset {
            Subset::Train => &self.training_per_class,
            Subset::Val => &self.validation_per_class,
            Subset::Test => &self.test_per_class,
            Subset::None => return Vec::new(),
        };
        let is_empty = within.iter().all(|&count| count == 0);
        let is_missing = |&class: &usize| !is_empty && self.per_class[class] > 0 && within[class] == 0;
        (0..within.len()).filter(is_missing).collect()
    }

    /// Classes that no training node has or, of multi-label data, that all of them have: balanced weights are not defined.
    pub fn classes_without_contrast(&self, is_multi: bool) -> Vec<usize> {
        let count = |class: usize| self.training_per_class[class];
        let is_flat = |&class: &usize| count(class) == 0 || (is_multi && count(class) == self.training);
        (0..self.training_per_class.len()).filter(is_flat).collect()
    }

    /// Classes that have nodes, but no training node: a model cannot learn them.
    pub fn untrained_classes(&self) -> Vec<usize> {
        let counts = self.per_class.iter().zip(&self.training_per_class);
        counts
            .enumerate()
            .filter(|(_, (all, training))| **all > 0 && **training == 0)
            .map(|(k, _)| k)
            .collect()
    }

    /// Says in one line each what keeps a model from learning these labels; empty if nothing does.
    pub fn warnings(&self, manifest: &Manifest) -> Vec<String> {
        if self.labelled == 0 {
            return vec!["no node has a label: the dataset can be predicted on, not trained on".into()];
        }
        if self.training_per_class.iter().all(|&count| count == 0) {
            return vec!["no training node has a label: the dataset cannot be trained on".into()];
        }
        let untrained = self.untrained_classes();
        if untrained.is_empty() {
            return Vec::new();
        }
        let name = |&class: &usize| match manifest.class_names.get(class) {
            Some(name) => format!("{class} ({name})"),
            None => class.to_string(),
        };
        let names: Vec<String> = untrained.iter().take(NAMED_CLASSES).map(name).collect();
        let more = untrained.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (count, classes) = (untrained.len(), manifest.classes);
        let verb = if count == 1 { "has" } else { "have" };
        vec![format!("{count} of {classes} classes {verb} no training node: {}{more}", names.join(", "))]
    }
}

/// Classes that a warning names.
const NAMED_CLASSES: usize = 8;

fn split_counts(split: &[u8]) -> [u64; 4] {
    let mut counts = [0; 4];
    split.iter().filter(|&&part| part <= Subset::Test as u8).for_each(|&part| counts[part as usize] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{Metric, Task};

    /// 0 — 1 — 2, and 3 alone.
    const PATH: CsrView = CsrView { indptr: &[0, 1, 3, 4, 4], indices: &[1, 0, 2, 1] };

    #[test]
    fn degrees_of_a_path() {
        let d = degrees(PATH, false);
        assert_eq!((d.min, d.median, d.max, d.isolated), (0, 1, 2, 1));
        assert_eq!(d.mean, 1.0);
    }

    #[test]
    fn the_source_of_a_directed_edge_is_not_isolated() {
        // 0 -> 1 -> 2, and 3 alone.
        let path = CsrView { indptr: &[0, 0, 1, 2, 2], indices: &[0, 1] };
        assert_eq!(degrees(path, true).isolated, 1);
    }

    #[test]
    fn homophily_counts_labelled_edges_only() {
        assert_eq!(homophily(PATH, LabelView::Single(&[0, 0, 1, 1])), Some(0.5));
        assert_eq!(homophily(PATH, LabelView::Single(&[0, 0, -1, 1])), Some(1.0));
        assert_eq!(homophily(PATH, LabelView::Single(&[-1; 4])), None);
    }

    #[test]
    fn multi_label_homophily_is_overlap() {
        let flags = [1, 0, 1, 1, 0, 1, 0, 0];
        assert_eq!(homophily(PATH, LabelView::Multi { classes: 2, flags: &flags }), Some(0.5));
    }

    #[test]
    fn labels_and_split_are_counted() {
        let counts = LabelCounts::count(LabelView::Single(&[0, 2, -1, 2, 9]), &[1, 1, 1, 2, 1], 3);
        let expected = LabelCounts {
            labelled: 3,
            per_class: vec![1, 0, 2],
            training_per_class: vec![1, 0, 1],
            validation_per_class: vec![0, 0, 1],
            test_per_class: vec![0, 0, 0],
            training: 2,
        };
        assert_eq!(counts, expected);
        let flags = [1, 0, 1, 1, 0, 0];
        let counts = LabelCounts::count(LabelView::Multi { classes: 2, flags: &flags }, &[2, 1, 1], 2);
        let expected = LabelCounts {
            labelled: 2,
            per_class: vec![2, 1],
            training_per_class: vec![1, 1],
            validation_per_class: vec![1, 0],
            test_per_class: vec![0, 0],
            training: 2,
        };
        assert_eq!(counts, expected);
        assert_eq!(split_counts(&[0, 1, 1, 3]), [1, 2, 0, 1]);
    }

    #[test]
    fn classes_are_missing_in_a_subset_if_others_have_nodes_there() {
        // Class 3 has no node at all.
        let counts = LabelCounts::count(LabelView::Single(&[0, 1, 0, 2]), &[1, 1, 2, 0], 4);
        assert_eq!(counts.classes_missing_in(Subset::Val), [1, 2]);
        assert!(counts.classes_missing_in(Subset::Test).is_empty(), "there is no test node");
        assert_eq!(counts.classes_without_contrast(false), [2, 3]);
        let flags = [1, 0, 0, 1, 1, 0];
        let counts = LabelCounts::count(LabelView::Multi { classes: 3, flags: &flags }, &[1, 1], 3);
        assert_eq!(counts.classes_without_contrast(true), [0, 2]);
    }

    #[test]
    fn classes_without_training_nodes_are_named() {
        let mut manifest = Manifest::new("x".into(), Task::SingleLabel, Metric::Accuracy);
        let warnings = |labels: &[i64], split: &[u8], manifest: &Manifest| {
            let classes = manifest.classes as usize;
            LabelCounts::count(LabelView::Single(labels), split, classes).warnings(manifest)
        };
        manifest.classes = 4;
        // Class 2 has no node at all, which costs no accuracy.
        assert!(warnings(&[0, 1, 3], &[1, 1, 1], &manifest).is_empty());
        manifest.class_names = vec!["a".into(), "b".into()];
        let found = warnings(&[0, 1, 3, 1], &[1, 2, 0, 3], &manifest);
        assert_eq!(found, ["2 of 4 classes have no training node: 1 (b), 3"]);
        let found = warnings(&[0, 1], &[2, 3], &manifest);
        assert_eq!(found, ["no training node has a label: the dataset cannot be trained on"]);
        manifest.classes = 0;
        let found = warnings(&[-1, -1], &[0, 0], &manifest);
        assert_eq!(found, ["no node has a label: the dataset can be predicted on, not trained on"]);
    }
}
