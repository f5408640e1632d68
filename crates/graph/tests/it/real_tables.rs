//! Import of real graphs from tables, with published counts.
//!
//! Set `HALOGRAPH_TEST_DATA` to the folder that holds them; without it these tests are skipped.

use crate::dense;
use halograph_graph::dataset::LabelView;
use halograph_graph::import::{Dialect, ImportFormat, ImportOptions, TableSpec, import};
use halograph_graph::io::npy::Writer;
use halograph_graph::{Dataset, Silent};
use halograph_testing::real_data;

#[test]
fn cora_in_the_layout_of_ogb() {
    let Some(source) = real_data("cora_ogbn_layout") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("cora");
    let report =
        import(&ImportFormat::Ogb { scheme: None }, &source, &out, &ImportOptions::default(), &Silent)
            .unwrap();
    assert_eq!((report.edges.read, report.edges.self_loops, report.edges.stored), (5278, 0, 10556));

    let cora = Dataset::open(&out).unwrap();
    let m = &cora.manifest;
    assert_eq!((m.nodes, m.edges, m.features, m.classes), (2708, 10556, 1433, 7));
    let count = |part: u8| cora.split().iter().filter(|&&p| p == part).count();
    assert_eq!([0, 1, 2, 3].map(count), [1068, 140, 500, 1000]);
    let LabelView::Single(labels) = cora.labels() else { panic!("Cora has one class a node") };
    assert!(labels.iter().all(|&class| class >= 0));
    assert_eq!(cora.manifest.feature_values, Some(49216));
    assert!(dense(&cora).iter().all(|&x| x == 0.0 || x == 1.0));
}

#[test]
fn the_same_cora_from_an_edge_list_and_a_node_table() {
    let Some(source) = real_data("cora_ogbn_layout") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [ogb, csv] = ["ogb", "csv"].map(|name| folder.path().join(name));
    import(&ImportFormat::Ogb { scheme: None }, &source, &ogb, &ImportOptions::default(), &Silent).unwrap();
    let cora = Dataset::open(&ogb).unwrap();
    let LabelView::Single(labels) = cora.labels() else { panic!("Cora has one class a node") };
    let rows = labels.iter().zip(cora.split()).enumerate();
    let table: String = rows.map(|(v, (class, part))| format!("{v},{class},{part}\n")).collect();
    let nodes = folder.path().join("nodes.txt");
    std::fs::write(&nodes, table).unwrap();

    let features = folder.path().join("x.npy");
    let mut writer = Writer::<f32>::create(&features, &[2708, 1433]).unwrap();
    writer.write(&dense(&cora)).unwrap();
    writer.finish().unwrap();
    let spec = TableSpec {
        nodes: Some(nodes),
        features: Some(features),
        labels: vec!["1".into()],
        split: Some("2".into()),
        ..TableSpec::default()
    };
    let format = ImportFormat::Csv(spec, Dialect { header: false, delimiter: None });
    import(&format, &source.join("raw/edge.csv.gz"), &csv, &ImportOptions::default(), &Silent).unwrap();
    let again = Dataset::open(&csv).unwrap();
    assert_eq!(again.manifest.fingerprint, cora.manifest.fingerprint);
}
