//! Published graphs, imported and compared with values that numpy and scipy compute from the same files.
//!
//! Set `HALOGRAPH_TEST_DATA` to the folder that holds them; without it these tests are skipped with a message.

use std::path::Path;

use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::LabelView;
use halograph_graph::import::{ImportFormat, ImportOptions, ImportReport, import};
use halograph_graph::{Dataset, Silent};
use halograph_testing::real_data;

use crate::dense;

/// Values that a wrong row, id or order would change. All sums are exact.
#[derive(Debug, PartialEq)]
struct Digest {
    nodes: u64,
    edges: u64,
    features: u64,
    classes: u64,
    /// Nodes in no subset, for training, validation and test.
    split: [usize; 4],
    /// Over the edges: (row + 1) × (column + 7).
    edge_sum: u64,
    /// Over the nodes: (node + 1) × class.
    label_sum: i64,
    /// Over the nodes: (node + 1) × subset; `None` if the files hold no split.
    split_sum: Option<u64>,
    /// Number of features that are not 0, and over those: (row + 1) × (column + 1).
    entries: (u64, u64),
}

fn imported(
    format: ImportFormat,
    source: &Path,
    options: &ImportOptions,
) -> (ImportReport, Dataset, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let report = import(&format, source, &out, options, &Silent).unwrap();
    let dataset = Dataset::open(&out).unwrap();
    assert_eq!(dataset.manifest, report.manifest);
    (report, dataset, dir)
}

fn digest(report: &ImportReport, dataset: &Dataset) -> Digest {
    let (m, graph, split) = (&dataset.manifest, dataset.graph(), dataset.split());
    let row_sum = |v: usize| graph.row(v).iter().map(|&u| (v as u64 + 1) * (u64::from(u) + 7)).sum::<u64>();
    let LabelView::Single(labels) = dataset.labels() else { panic!("these graphs have one class a node") };
    let x = dense(dataset);
    let cols = m.features as usize;
    let entries: Vec<usize> = (0..x.len()).filter(|&i| x[i] != 0.0).collect();
    let split_sum = split.iter().zip(1..).map(|(&part, v)| u64::from(part) * v).sum();
    Digest {
        nodes: m.nodes,
        edges: m.edges,
        features: m.features,
        classes: m.classes,
        split: [0, 1, 2, 3].map(|part| split.iter().filter(|&&p| p == part).count()),
        edge_sum: (0..graph.nodes()).map(row_sum).sum(),
        label_sum: labels.iter().zip(1..).map(|(&class, v)| class * v).sum(),
        split_sum: (report.split == "as given").then_some(split_sum),
        entries: (
            entries.len() as u64,
            entries.iter().map(|i| (i / cols + 1) as u64 * (i % cols + 1) as u64).sum(),
        ),
    }
}

#[test]
fn cora() {
    let Some(source) = real_data("cora") else { return };
    let (report, dataset, _dir) = imported(ImportFormat::Planetoid, &source, &ImportOptions::default());
    let expected = Digest {
        nodes: 2_708,
        edges: 10_556,
        features: 1_433,
        classes: 7,
        split: [1_068, 140, 500, 1_000],
        edge_sum: 18_223_686_474,
        label_sum: 10_514_174,
        split_sum: Some(7_025_870),
        entries: (49_216, 52_537_512_582),
    };
    assert_eq!(digest(&report, &dataset), expected);
    assert_eq!((report.manifest.name.as_str(), report.edges.read), ("cora", 10_858));
    // Any one of the eight files selects the graph.
    let (by_file, ..) =
        imported(ImportFormat::Planetoid, &source.join("ind.cora.test.index"), &ImportOptions::default());
    assert_eq!(by_file.manifest.fingerprint, report.manifest.fingerprint);
}

#[test]
fn citeseer() {
    let Some(source) = real_data("citeseer") else { return };
    let (report, dataset, _dir) = imported(ImportFormat::Planetoid, &source, &ImportOptions::default());
    let expected = Digest {
        nodes: 3_327,
        edges: 9_104,
        features: 3_703,
        classes: 6,
        split: [1_707, 120, 500, 1_000],
        edge_sum: 24_087_191_128,
        label_sum: 14_854_682,
        split_sum: Some(8_830_041),
        entries: (105_165, 317_817_808_020),
    };
    assert_eq!(digest(&report, &dataset), expected);
    assert!(report.notes[0].starts_with("15 nodes are in no file"));
    assert_eq!(report.edges.self_loops, 248);
}

#[test]
fn pubmed() {
    let Some(source) = real_data("pubmed") else { return };
    let (report, dataset, _dir) = imported(ImportFormat::Planetoid, &source, &ImportOptions::default());
    let expected = Digest {
        nodes: 19_717,
        edges: 88_648,
        features: 500,
        classes: 3,
        split: [18_157, 60, 500, 1_000],
        edge_sum: 8_452_873_508_116,
        label_sum: 231_043_241,
        split_sum: Some(57_964_830),
        entries: (988_031, 1_825_247_637_390),
    };
    assert_eq!(digest(&report, &dataset), expected);
    let x = dense(&dataset);
    let sum: f64 = x.iter().map(|&x| f64::from(x)).sum();
    assert!((sum - 38_716.295_094_509_4).abs() < 1e-6, "{sum}");
}

#[test]
fn amazon_photo() {
    let Some(source) = real_data("amazon_photo/amazon_electronics_photo.npz") else { return };
    let format = || ImportFormat::Npz { split_index: None };
    let (report, dataset, _dir) = imported(format(), &source, &ImportOptions::default());
    let whole = Digest {
        nodes: 7_650,
        edges: 238_162,
        features: 745,
        classes: 8,
        split: [0, 160, 240, 7_250],
        edge_sum: 3_478_267_189_826,
        label_sum: 104_718_379,
        split_sum: None,
        entries: (1_979_909, 2_820_188_540_215),
    };
    assert_eq!(digest(&report, &dataset), whole);
    assert_eq!((report.edges.read, report.edges.self_loops), (143_663, 1));
    assert_eq!(report.manifest.class_names[2], "Binoculars & Scopes");

    let options = ImportOptions { largest_component: true, ..ImportOptions::default() };
    let (report, dataset, _dir) = imported(format(), &source, &options);
    let component = Digest {
        nodes: 7_487,
        edges: 238_086,
        split: [0, 160, 240, 7_087],
        edge_sum: 3_335_347_571_028,
        label_sum: 100_403_970,
        entries: (1_950_178, 2_719_210_526_646),
        ..whole
    };
    assert_eq!(digest(&report, &dataset), component);
    assert_eq!(report.nodes_dropped, 7_650 - 7_487);
}

#[test]
fn amazon_computers() {
    let Some(source) = real_data("amazon_computers/amazon_electronics_computers.npz") else { return };
    let format = || ImportFormat::Npz { split_index: None };
    let (report, dataset, _dir) = imported(format(), &source, &ImportOptions::default());
    let whole = Digest {
        nodes: 13_752,
        edges: 491_722,
        features: 767,
        classes: 10,
        split: [0, 200, 300, 13_252],
        edge_sum: 23_034_199_494_316,
        label_sum: 394_062_836,
        split_sum: None,
        entries: (3_675_081, 9_781_869_344_680),
    };
    assert_eq!(digest(&report, &dataset), whole);
    assert_eq!(report.manifest.class_names.len(), 10);

    let options = ImportOptions { largest_component: true, ..ImportOptions::default() };
    let (report, dataset, _dir) = imported(format(), &source, &options);
    let component = Digest {
        nodes: 13_381,
        edges: 491_556,
        split: [0, 200, 300, 12_881],
        edge_sum: 21_781_592_241_010,
        label_sum: 371_858_620,
        entries: (3_607_444, 9_331_946_230_607),
        ..whole
    };
    assert_eq!(digest(&report, &dataset), component);
}

#[test]
fn directed_amazon_photo_keeps_every_entry_but_the_self_loop() {
    let Some(source) = real_data("amazon_photo/amazon_electronics_photo.npz") else { return };
    let edges = EdgeOptions { directed: true, keep_self_loops: false };
    let options = ImportOptions { edges, ..ImportOptions::default() };
    let (report, ..) = imported(ImportFormat::Npz { split_index: None }, &source, &options);
    assert_eq!(report.manifest.edges, 143_662);
}

#[test]
fn karate_as_graphsaint() {
    let Some(source) = real_data("karate_graphsaint_layout") else { return };
    let (report, dataset, _dir) = imported(ImportFormat::GraphSaint, &source, &ImportOptions::default());
    let expected = Digest {
        nodes: 34,
        edges: 156,
        features: 34,
        classes: 2,
        split: [0, 8, 9, 17],
        edge_sum: 73_384,
        label_sum: 423,
        split_sum: Some(1_402),
        entries: (34, 13_685),
    };
    assert_eq!(digest(&report, &dataset), expected);
}
