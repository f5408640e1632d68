//! What a dataset is like: degrees, homophily, labels, splits.

use rayon::prelude::*;

use super::{Dataset, LabelView, Part};
use crate::csr::CsrView;
use crate::io::npy::DType;

/// A description in numbers.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Info {
    /// In-degrees.
    pub degrees: Degrees,
    /// How features are stored: `f32` or `f16`.
    pub feature_type: &'static str,
    /// Share of edges whose ends agree; see [`homophily`]. `None` without an edge between labelled nodes.
    pub homophily: Option<f64>,
    /// Labels.
    pub labels: LabelCounts,
    /// Nodes in no part, training, validation, test.
    pub split: [u64; 4],
    /// Bytes of all arrays.
    pub bytes: u64,
}

/// In-degrees of all nodes.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Degrees {
    /// Smallest.
    pub min: u64,
    /// Middle (the lower one of two).
    pub median: u64,
    /// Average.
    pub mean: f64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest.
    pub max: u64,
    /// Nodes without an edge, in or out.
    pub isolated: u64,
}

/// How labels are spread.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct LabelCounts {
    /// Nodes with a label (multi-label: with at least one class).
    pub labelled: u64,
    /// Nodes in each class.
    pub per_class: Vec<u64>,
}

/// Describes `dataset`. Ids and labels must be in range ([`super::check()`]); those that are not are left out.
pub fn info(dataset: &Dataset) -> Info {
    let labels = dataset.labels();
    Info {
        degrees: degrees(dataset.graph(), dataset.manifest.directed),
        feature_type: if dataset.features().header.dtype == DType::F16 { "f16" } else { "f32" },
        homophily: homophily(dataset.graph(), labels),
        labels: label_counts(labels, dataset.manifest.classes as usize),
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

/// Nodes that no edge starts or ends at.
fn isolated(graph: CsrView) -> u64 {
    let mut used: Vec<bool> = (0..graph.nodes()).map(|v| graph.degree(v) > 0).collect();
    graph.indices.iter().for_each(|&u| used.get_mut(u as usize).into_iter().for_each(|u| *u = true));
    used.iter().filter(|&&used| !used).count() as u64
}

/// Edge homophily: the share of edges between labelled nodes whose ends have the same class; for multi-label
/// data, the mean over edges of common classes / all classes of the two ends.
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
    // One sum a row, added in row order: the same bits for any number of threads.
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

fn label_counts(labels: LabelView, classes: usize) -> LabelCounts {
    let mut per_class = vec![0; classes];
    let mut labelled = 0;
    match labels {
        LabelView::Single(y) => {
            for &class in y {
                if let Some(count) = usize::try_from(class).ok().and_then(|class| per_class.get_mut(class)) {
                    *count += 1;
                    labelled += 1;
                }
            }
        }
        LabelView::Multi { classes, flags } => {
            for row in flags.chunks_exact(classes.max(1)) {
                row.iter().zip(&mut per_class).for_each(|(&flag, count)| *count += u64::from(flag != 0));
                labelled += u64::from(row.iter().any(|&flag| flag != 0));
            }
        }
    }
    LabelCounts { labelled, per_class }
}

fn split_counts(split: &[u8]) -> [u64; 4] {
    let mut counts = [0; 4];
    split.iter().filter(|&&part| part <= Part::Test as u8).for_each(|&part| counts[part as usize] += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn labels_and_parts_are_counted() {
        let counts = label_counts(LabelView::Single(&[0, 2, -1, 2]), 3);
        assert_eq!(counts, LabelCounts { labelled: 3, per_class: vec![1, 0, 2] });
        assert_eq!(split_counts(&[0, 1, 1, 3]), [1, 2, 0, 1]);
    }
}
