//! Small datasets for the tests of this module.

use crate::build::{EdgeInput, EdgeList, EdgeOptions, build, from_weighted_edges};
use crate::dataset::write::{Contents, FeatureLayout, FeatureSource, FeatureType, Labels, write};
use crate::dataset::{Dataset, Metric};
use crate::error::Result;
use crate::generate::{Spec, make, presets};
use crate::progress::Silent;

/// Three features per vertex that identify it.
struct Numbers(usize);

impl FeatureSource for Numbers {
    fn cols(&self) -> usize {
        3
    }
    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        (0..self.0).try_for_each(|v| sink(&[v as f32, v as f32 + 0.5, -(v as f32)]))
    }
    fn place(&self, row: usize, column: usize) -> String {
        format!("row {row}, column {column}")
    }
}

/// A small dataset in a temporary folder.
pub(super) struct Toy {
    folder: tempfile::TempDir,
    nodes: usize,
}

/// Properties of a [`Toy`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub directed: bool,
    pub multi_label: bool,
    pub half: bool,
    pub sparse: bool,
    pub weighted: bool,
}

impl Toy {
    /// Creates a directed graph from edges `[source, destination]`, self-loops included.
    pub fn new(nodes: usize, edges: &[[i64; 2]]) -> Toy {
        let split: Vec<u8> = (0..nodes).map(|v| (v % 4) as u8).collect();
        let kind = Kind { directed: true, multi_label: false, half: false, sparse: false, weighted: false };
        Toy::like(nodes, edges, &split, kind)
    }

    /// Creates a dataset of this kind. Every fifth vertex has no label.
    pub fn like(nodes: usize, edges: &[[i64; 2]], split: &[u8], kind: Kind) -> Toy {
        let folder = tempfile::tempdir().unwrap();
        let source = EdgeInput::Source(Box::new(EdgeList { name: "toy".into(), edges: edges.to_vec() }));
        let options = EdgeOptions { directed: kind.directed, keep_self_loops: true };
        let (csr, _) = if kind.weighted {
            let weight = |&[u, v]: &[i64; 2]| (u as u32, v as u32, ((7 * u + 3 * v) % 5) as f32 / 2.0);
            from_weighted_edges(nodes, &edges.iter().map(weight).collect::<Vec<_>>(), options).unwrap()
        } else {
            build(nodes, source, options, &Silent).unwrap()
        };
        let labels = if kind.multi_label {
            Labels::Multi { classes: 2, flags: (0..2 * nodes).map(|i| (i % 3 == 0) as u8).collect() }
        } else {
            Labels::Single((0..nodes as i64).map(|v| if v % 5 == 4 { -1 } else { v % 3 }).collect())
        };
        let contents = Contents {
            name: "toy".into(),
            csr: &csr,
            directed: kind.directed,
            features: &Numbers(nodes),
            feature_layout: if kind.sparse { FeatureLayout::Sparse } else { FeatureLayout::Dense },
            feature_type: if kind.half { FeatureType::F16 } else { FeatureType::F32 },
            labels: &labels,
            classes: if kind.multi_label { 2 } else { 3 },
            class_names: vec!["a".into(), "b".into()],
            splits: &[split.to_vec()],
            ids: None,
            metric: Metric::Accuracy,
            source: "test".into(),
        };
        write(&folder.path().join("toy"), false, &contents, &Silent).unwrap();
        Toy { folder, nodes }
    }

    pub fn nodes(&self) -> usize {
        self.nodes
    }

    pub fn dataset(&self) -> Dataset {
        Dataset::open(&self.folder.path().join("toy")).unwrap()
    }
}

/// Generates a graph with communities and random node ids.
pub(super) fn communities(nodes: usize, edges: u64) -> (tempfile::TempDir, Dataset) {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("made");
    let small = presets::find("small").unwrap().spec.clone();
    let spec = Spec { nodes, edges, features: 2, classes: 8, mixing: 0.02, ..small };
    make(&spec, "made", &target, false, &Silent).unwrap();
    let dataset = Dataset::open(&target).unwrap();
    (folder, dataset)
}
