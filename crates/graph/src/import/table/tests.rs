//! Import of small tables, and errors of invalid ones.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::csv::Dialect;
use super::*;
use crate::dataset::{Dataset, LabelView};
use crate::import::{ImportFormat, ImportOptions, ImportReport, import};
use crate::progress::Silent;

const EDGES: &str = "src,dst\na,b\nb,c\n";
const NODES: &str = "id,label,split,x0,x1\na,cat,train,1,2\nb,dog,val,3,4\nc,cat,test,5,6.5\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        fs::create_dir(folder.path("in")).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path("in").join(name), text).unwrap());
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn import(&self, source: &str, spec: TableSpec, dialect: Dialect) -> Result<(ImportReport, Dataset)> {
        let options = ImportOptions { overwrite: true, ..ImportOptions::default() };
        let out = self.path("out");
        let report = import(&ImportFormat::Csv(spec, dialect), &self.path(source), &out, &options, &Silent)?;
        Ok((report, Dataset::open(&out)?))
    }
}

fn folder(edges: &str, nodes: &str) -> Folder {
    Folder::new(&[("edges.csv", edges), ("nodes.csv", nodes)])
}

fn load(edges: &str, nodes: &str, spec: TableSpec) -> Result<(ImportReport, Dataset)> {
    folder(edges, nodes).import("in", spec, Dialect::default())
}

fn fault(edges: &str, nodes: &str, spec: TableSpec) -> String {
    let error = load(edges, nodes, spec).err().expect("an error").to_string();
    error.split_once("/in/").map_or(error.clone(), |(_, rest)| rest.to_string())
}

fn default() -> TableSpec {
    TableSpec::default()
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| s.to_string()).collect()
}

fn features(data: &Dataset) -> &[f32] {
    data.features().as_slice().unwrap()
}

fn check_usual(report: &ImportReport, data: &Dataset) {
    assert_eq!((report.edges.read, report.edges.stored), (2, 4));
    assert_eq!(data.graph().indices, [1, 0, 2, 1]);
    assert_eq!(features(data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]);
    assert!(matches!(data.labels(), LabelView::Single([0, 1, 0])));
    assert_eq!(data.manifest.class_names, ["cat", "dog"]);
    assert_eq!(data.split(), [1, 2, 3]);
    assert_eq!(data.ids().unwrap().unwrap(), ["a", "b", "c"]);
}

#[test]
fn columns_are_guessed_by_name() {
    let folder = folder(EDGES, NODES);
    let (report, data) = folder.import("in", default(), Dialect::default()).unwrap();
    check_usual(&report, &data);
    let turned = "to,hue,from\nb,9,a\nc,9,b\n";
    let options = EDGES.replace("src,dst", "from,to");
    assert_eq!(
        load(turned, NODES, default()).unwrap().1.manifest.fingerprint,
        load(&options, NODES, default()).unwrap().1.manifest.fingerprint
    );
}

#[test]
fn tabs_gzip_quotes_crlf_and_byte_order_mark_are_read() {
    let folder = Folder::new(&[("edges.tsv", &EDGES.replace(',', "\t"))]);
    let text = format!("\u{feff}{}", NODES.replace("cat", "\"cat\"").replace('\n', "\r\n"));
    let file = fs::File::create(folder.path("in/nodes.csv.gz")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap();
    let (report, data) = folder.import("in", default(), Dialect::default()).unwrap();
    check_usual(&report, &data);
}

#[test]
fn an_edge_file_with_its_node_file_and_no_header() {
    let strip = |text: &str| text.split_once('\n').unwrap().1.replace(',', ";");
    let folder = Folder::new(&[("e.txt", &strip(EDGES)), ("n.txt", &strip(NODES))]);
    let spec = TableSpec {
        nodes: Some(folder.path("in/n.txt")),
        labels: names(&["1"]),
        split: Some("2".into()),
        feature_columns: names(&["3-4"]),
        ..default()
    };
    let dialect = Dialect { header: false, delimiter: Some(b';') };
    let (report, data) = folder.import("in/e.txt", spec, dialect).unwrap();
    check_usual(&report, &data);
    let error = folder.import("in/e.txt", default(), dialect).err().unwrap().to_string();
    assert!(error.contains("--nodes FILE"), "{error}");
}

#[test]
fn ids_that_count_from_0_are_not_stored() {
    let sequence = folder("s,t\n0,1\n1,2\n", "id,y,x\n0,1,1\n1,0,2\n2,,3\n");
    let (_, data) = sequence.import("in", default(), Dialect::default()).unwrap();
    assert!(data.ids().unwrap().is_none());
    assert!(matches!(data.labels(), LabelView::Single([1, 0, -1])));
    assert_eq!(data.split(), [1, 1, 0]);
    let others = folder("s,t\n7,5\n", "id,y,x\n5,1,1\n7,0,2\n");
    let (_, data) = others.import("in", default(), Dialect::default()).unwrap();
    assert_eq!(data.ids().unwrap().unwrap(), ["5", "7"]);
}

#[test]
fn several_label_columns_are_flags() {
    let nodes = "id,p,q,x\na,0,1,1\nb,1,1,2\n";
    let spec = TableSpec { labels: names(&["p", "q"]), ..default() };
    let (_, data) = load("src,dst\na,b\n", nodes, spec.clone()).unwrap();
    assert!(matches!(data.labels(), LabelView::Multi { classes: 2, flags: [0, 1, 1, 1] }));
    assert_eq!(features(&data), [1.0, 2.0]);
    let error = fault("src,dst\na,b\n", &nodes.replace("b,1,1", "b,1,3"), spec);
    assert!(
        error.starts_with("nodes.csv, line 3, column q: \"3\" where a multi-label table has 0 or 1"),
        "{error}"
    );
}

#[test]
fn feature_columns_are_chosen_by_name_prefix_position_or_range() {
    let nodes = "id,y,name,x0,x1,z\na,0,Ann,1,2,3\nb,1,Bob,4,5,6\n";
    let pick = |columns: &[&str]| {
        let spec = TableSpec { feature_columns: names(columns), ..default() };
        load("src,dst\na,b\n", nodes, spec).map(|(_, data)| features(&data)[..columns.len().max(2)].to_vec())
    };
    assert_eq!(pick(&["z", "3"]).unwrap(), [3.0, 1.0]);
    assert_eq!(pick(&["x*"]).unwrap(), [1.0, 2.0]);
    assert_eq!(pick(&["4-5"]).unwrap(), [2.0, 3.0]);
    let (report, data) = load("src,dst\na,b\n", nodes, default()).unwrap();
    assert_eq!(features(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert!(report.notes[0].ends_with("not numbers: name"), "{:?}", report.notes);
    for bad in ["w", "w*", "9"] {
        let error = pick(&[bad]).err().unwrap().to_string();
        let help = "help: the 6 columns are id, y, name, x0, x1, z; positions count from 0";
        assert!(error.contains(&format!("nodes.csv: no column {bad:?}\n  {help}")), "{error}");
    }
}

#[test]
fn features_may_come_from_an_array() {
    let folder = folder(EDGES, NODES);
    let path = folder.path("f.npy");
    let write = |rows: usize| {
        let mut writer = crate::io::npy::Writer::<f32>::create(&path, &[rows, 1]).unwrap();
        writer.write(&vec![7.0; rows]).unwrap();
        writer.finish().unwrap();
    };
    let spec = TableSpec { features: Some(path.clone()), ..default() };
    write(3);
    let (_, data) = folder.import("in", spec.clone(), Dialect::default()).unwrap();
    assert_eq!(features(&data), [7.0; 3]);
    fs::remove_file(&path).unwrap();
    write(2);
    let error = folder.import("in", spec, Dialect::default()).err().unwrap().to_string();
    assert!(error.contains("f.npy: 2 rows where") && error.contains("has 3 nodes"), "{error}");
}

#[test]
fn bad_cells_are_named_by_line_and_column() {
    let bad = |from: &str, to: &str| fault(EDGES, &NODES.replace(from, to), default());
    for (from, to, message) in [
        ("b,dog,val,3,4", "b,dog,val,3,four", "nodes.csv, line 3, column x1: \"four\" is not a number"),
        ("b,dog,val,3,4", "b,dog,val,,4", "nodes.csv, line 3, column x0: an empty cell"),
        (
            "b,dog,val,3,4",
            "b,dog,val,inf,4",
            "nodes.csv, line 3, column x0: inf where a finite number is needed",
        ),
        ("b,dog,val,3,4", "b,dog,val,1e40,4", "nodes.csv, line 3, column x0: 1e40 is too large: the largest"),
        ("b,dog,val,3,4", "b,dog,val,3", "nodes.csv, line 3: 4 fields where the lines before have 5"),
        ("b,dog,val", "b,0.5,val", "nodes.csv, line 3, column label: \"0.5\" is a number but not a class"),
        ("b,dog,val", "b,-2,val", "nodes.csv, line 3, column label: class -2: classes count from 0"),
        ("b,dog,val", "b,-2.0,val", "nodes.csv, line 3, column label: class -2: classes count from 0"),
        ("c,cat,test", "c,cat,later", "nodes.csv, line 4, column split: \"later\" is no subset of a split"),
        ("c,cat", "a,cat", "nodes.csv, line 4, column id: id \"a\" is already that of node 0"),
        ("c,cat", ",cat", "nodes.csv, line 4, column id: no id"),
        ("c,cat", "\"c\nd\",cat", "nodes.csv, line 5, column id: id \"c\\nd\" holds a line break"),
    ] {
        let error = bad(from, to);
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn edges_to_unknown_nodes_are_refused() {
    let error = fault("src,dst\na,b\nb,z\n", NODES, default());
    assert!(
        error.starts_with("edges.csv, line 3, column dst: id \"z\" is not in the node table\n  help: "),
        "{error}"
    );
    let error = fault("src,dst\na,b\n,b\n", NODES, default());
    assert!(error.starts_with("edges.csv, line 3, column src: no id"), "{error}");
}

#[test]
fn missing_columns_are_named_with_the_existing_ones() {
    let error = fault(EDGES, NODES, TableSpec { src: Some("start".into()), ..default() });
    assert!(
        error.starts_with("edges.csv: no column \"start\"\n  help: the 2 columns are src, dst"),
        "{error}"
    );
    let error = fault(EDGES, NODES, TableSpec { labels: names(&["kind"]), ..default() });
    assert!(error.starts_with("nodes.csv: no column \"kind\""), "{error}");
    assert!(error.contains("id, label, split, x0, x1"), "{error}");
    let error = fault(EDGES, NODES, TableSpec { feature_columns: names(&["3-9"]), ..default() });
    assert!(error.starts_with("nodes.csv: 3-9: the last column has position 4\n  help: "), "{error}");
    let error = fault("a b\n", NODES, default());
    assert!(error.contains("one column where edges need two"), "{error}");
    let error = fault(EDGES, "id,label\na,1\nb,1\nc,0\n", default());
    assert!(error.contains("no feature column\n"), "{error}");
    let error = fault(EDGES, "id,label,x\na,1,\"1,5\"\nb,1,\"2,5\"\nc,0,\"3,0\"\n", default());
    assert!(error.contains("no feature column; columns that are not numbers: x\n"), "{error}");
}

#[test]
fn words_that_are_read_as_no_label_are_noted() {
    let nodes = "id,label,f\na,None,1\nb,cat,2\nc,NA,3\n";
    let (report, data) = load(EDGES, nodes, default()).unwrap();
    assert_eq!(data.manifest.class_names, ["cat"]);
    let note = "nodes.csv: labels NA, None are read as no label";
    assert!(report.notes.iter().any(|text| text.ends_with(note)), "{:?}", report.notes);
}

#[test]
fn feature_columns_of_one_name_are_refused() {
    let nodes = "id,f,g,f\na,1,2,3\nb,4,5,6\nc,7,8,9\n";
    let error = fault(EDGES, nodes, default());
    assert!(
        error.starts_with(
            "nodes.csv: two feature columns are called \"f\": positions 1 and 3\n  help: rename"
        ),
        "{error}"
    );
    let by_position = TableSpec { feature_columns: names(&["2", "3"]), ..default() };
    assert_eq!(load(EDGES, nodes, by_position).unwrap().1.manifest.feature_names, ["g", "f"]);
}

#[test]
fn tables_without_labels_make_a_dataset_to_predict_on() {
    let (report, data) = load(EDGES, "id,split,x0\na,train,1\nb,val,3\nc,test,5\n", default()).unwrap();
    assert!(matches!(data.labels(), LabelView::Single([-1, -1, -1])));
    assert_eq!((data.manifest.classes, data.split()), (0, &[0, 0, 0][..]));
    assert!(report.notes[0].contains("no label column: none of label, y, class is there; choose one with"));
    assert_eq!(
        report.notes.last().unwrap(),
        "no node has a label: the dataset can be predicted on, not trained on"
    );
}

#[test]
fn feature_columns_keep_their_names() {
    let (_, data) = load(EDGES, NODES, default()).unwrap();
    assert_eq!(data.manifest.feature_names, ["x0", "x1"]);
    let turned = TableSpec { feature_columns: names(&["x1", "x0"]), ..default() };
    assert_eq!(load(EDGES, NODES, turned).unwrap().1.manifest.feature_names, ["x1", "x0"]);
    // Positions are no names.
    let bare = folder("0,1\n1,2\n", "0,1,2.5\n1,0,2\n2,1,3\n");
    let spec = TableSpec { labels: names(&["1"]), ..default() };
    let (_, data) = bare.import("in", spec, Dialect { header: false, delimiter: None }).unwrap();
    assert!(data.manifest.feature_names.is_empty());
}

#[test]
fn multi_label_columns_name_the_classes() {
    let nodes = "id,label,spam,x\na,0,1,1\nb,1,1,2\nc,0,0,3\n";
    let (_, data) = load(EDGES, nodes, TableSpec { labels: names(&["spam", "label"]), ..default() }).unwrap();
    assert_eq!(data.manifest.class_names, ["spam", "label"]);
    assert!(matches!(data.labels(), LabelView::Multi { flags: [1, 0, 1, 1, 0, 0], .. }));
}

#[test]
fn a_first_line_of_numbers_is_not_taken_for_names() {
    let (edges, nodes) = ("0,1\n1,2\n2,0\n", "id,y,x\n0,1,1\n1,0,2\n2,1,3\n");
    let positions = TableSpec { src: Some("0".into()), dst: Some("1".into()), ..default() };
    for spec in [default(), positions] {
        let error = fault(edges, nodes, spec);
        assert!(error.starts_with("edges.csv, line 1: numbers where column names are expected"), "{error}");
        assert!(error.contains("help: add --no-header"), "{error}");
    }
    let spec = TableSpec { labels: names(&["1"]), ..default() };
    let error = fault(EDGES, "0,1,2.5\n1,0,2\n", spec);
    assert!(error.starts_with("nodes.csv, line 1: numbers") && error.contains("--no-header"), "{error}");
    // A flag that names a column of the first line makes it a header.
    let spec = TableSpec { src: Some("10".into()), dst: Some("20".into()), ..default() };
    let (report, _) = load("10,20\n0,1\n1,2\n", nodes, spec).unwrap();
    assert_eq!(report.edges.read, 2);
}

#[test]
fn source_and_destination_are_different_columns() {
    let nodes = "id,y,x\na,1,1\nb,0,2\n";
    let error = fault("neighbour,src\na,b\n", nodes, default());
    assert!(error.starts_with("edges.csv: no column of destinations: none of dst, target, to"), "{error}");
    assert!(error.contains("choose one with --dst-col; the columns are neighbour, src"), "{error}");
    let error = fault("to,neighbour\na,b\n", nodes, default());
    assert!(error.starts_with("edges.csv: no column of sources: none of src, source, from"), "{error}");
    let same = TableSpec { dst: Some("src".into()), ..default() };
    let error = fault("neighbour,src\na,b\n", nodes, same);
    assert!(error.starts_with("edges.csv: column \"src\" is both source and destination"), "{error}");
    let named = TableSpec { dst: Some("neighbour".into()), ..default() };
    assert_eq!(load("neighbour,src\na,b\n", nodes, named).unwrap().0.edges.stored, 2);
}

#[test]
fn a_feature_column_has_no_other_role_and_is_used_once() {
    for (columns, message) in [
        (&["x0", "id"][..], "column \"id\", which is the id"),
        (&["label"], "column \"label\", which is a label"),
        (&["2-4"], "column \"split\", which is the split"),
        (&["x0", "x*"], "column \"x0\", which is a feature already"),
    ] {
        let error = fault(EDGES, NODES, TableSpec { feature_columns: names(columns), ..default() });
        assert!(error.starts_with(&format!("nodes.csv: --feature-cols includes {message}")), "{error}");
    }
}

#[test]
fn a_column_is_skipped_only_if_no_row_holds_a_number() {
    let error = fault(EDGES, &NODES.replace("train,1,2", "train,one,2"), default());
    assert!(error.starts_with("nodes.csv, line 2, column x0: \"one\" is not a number"), "{error}");
    let words =
        NODES.replace("train,1,2", "train,,2").replace("val,3", "val,nan").replace("test,5", "test,so");
    let (report, data) = load(EDGES, &words, default()).unwrap();
    assert_eq!(features(&data), [2.0, 4.0, 6.5]);
    assert!(report.notes[0].ends_with("not numbers: x0"), "{:?}", report.notes);
}

#[test]
fn empty_tables_are_named() {
    let error = fault(EDGES, "id,label,x\n", default());
    assert!(error.starts_with("nodes.csv: no nodes: a graph needs at least one"), "{error}");
    assert!(fault("", NODES, default()).starts_with("edges.csv: empty"));
    let bare = Dialect { header: false, delimiter: None };
    for (edges, nodes, file) in [("", NODES, "edges.csv"), (EDGES, "", "nodes.csv")] {
        let error = folder(edges, nodes).import("in", default(), bare).err().unwrap().to_string();
        assert!(error.ends_with(&format!("{file}: empty: no rows and no columns")), "{error}");
    }
}

#[test]
fn truncated_files_never_panic() {
    for end in 0..NODES.len() {
        let _ = load(EDGES, &NODES[..end], default());
    }
    for end in 0..EDGES.len() {
        let _ = load(&EDGES[..end], NODES, default());
    }
}
