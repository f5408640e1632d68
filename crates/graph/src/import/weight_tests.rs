//! Edge weights in tables and arrays.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Dialect, ImportFormat, ImportOptions, ImportReport, TableSpec, import};
use crate::build::EdgeOptions;
use crate::dataset::Dataset;
use crate::dataset::info::{WeightSummary, info};
use crate::error::Result;
use crate::io::npy::{Element, Writer};
use crate::progress::Silent;

const NODES: &str = "id,label,x\na,0,1\nb,1,2\nc,0,3\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        fs::create_dir(folder.path("in")).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn import(&self, format: ImportFormat, directed: bool) -> Result<(ImportReport, Dataset)> {
        let edges = EdgeOptions { directed, keep_self_loops: true };
        let options = ImportOptions { edges, overwrite: true, ..ImportOptions::default() };
        let report = import(&format, &self.path("in"), &self.path("out"), &options, &Silent)?;
        Ok((report, Dataset::open(&self.path("out"))?))
    }

    fn table(&self, edges: &str, weight: Option<&str>, directed: bool) -> Result<(ImportReport, Dataset)> {
        fs::write(self.path("in").join("edges.csv"), edges).unwrap();
        fs::write(self.path("in").join("nodes.csv"), NODES).unwrap();
        let spec = TableSpec { weight: weight.map(String::from), ..TableSpec::default() };
        self.import(ImportFormat::Csv(spec, Dialect::default()), directed)
    }

    /// Writes a folder of arrays: edges 0 -> 1, 1 -> 2 and 2 -> 0, and these weights.
    fn arrays<T: Element>(&self, shape: &[usize], weights: &[T], directed: bool) -> Result<Dataset> {
        let folder = self.path("in");
        save(&folder.join("edge_index.npy"), &[2, 3], &[0i64, 1, 2, 1, 2, 0]);
        save(&folder.join("x.npy"), &[3, 1], &[1.0f32, 2.0, 3.0]);
        save(&folder.join("y.npy"), &[3], &[0i64, 1, 0]);
        save(&folder.join("edge_weight.npy"), shape, weights);
        self.import(ImportFormat::Npy { split_index: None }, directed).map(|(_, dataset)| dataset)
    }
}

fn save<T: Element>(path: &Path, shape: &[usize], elements: &[T]) {
    let _ = fs::remove_file(path);
    let mut writer = Writer::create(path, shape).unwrap();
    writer.write(elements).unwrap();
    writer.finish().unwrap();
}

/// Returns `(source, destination, weight)` of all edges.
fn edges(dataset: &Dataset) -> Vec<(u32, u32, f32)> {
    let graph = dataset.graph();
    let ends = (0..graph.nodes()).flat_map(|v| graph.row(v).iter().map(move |&u| (u, v as u32)));
    ends.zip(dataset.edge_weights().unwrap()).map(|((u, v), &weight)| (u, v, weight)).collect()
}

const TABLE: &str = "src,dst,weight,year\na,b,0.5,1990\na,b,1,1991\nb,c,2,1992\nc,b,4,1993\nc,c,8,1994\n";

#[test]
fn a_column_of_weights_is_found_and_combined() {
    let folder = Folder::new();
    let (report, dataset) = folder.table(TABLE, None, false).unwrap();
    assert_eq!(edges(&dataset), [(1, 0, 1.5), (0, 1, 1.5), (2, 1, 3.0), (1, 2, 3.0), (2, 2, 8.0)]);
    let told = |part: &str| report.notes.iter().any(|note| note.contains(part));
    for part in [
        "edges.csv: edge weights: column \"weight\"",
        "edges.csv: columns that are not imported: year",
        "1 edges are repeated: their weights were added",
        "1 undirected edges have different weights in the two directions: the mean was taken",
    ] {
        assert!(told(part), "{part}: {:?}", report.notes);
    }
    let summary = WeightSummary { min: 1.5, median: 3.0, max: 8.0, zeros: 0 };
    assert_eq!(info(&dataset).edge_weights, Some(summary));
    let (_, dataset) = folder.table(TABLE, None, true).unwrap();
    assert_eq!(edges(&dataset), [(0, 1, 1.5), (2, 1, 4.0), (1, 2, 2.0), (2, 2, 8.0)]);
}

#[test]
fn another_column_can_be_chosen_and_all_others_are_listed() {
    let folder = Folder::new();
    let (report, dataset) = folder.table(TABLE, Some("year"), true).unwrap();
    assert_eq!(edges(&dataset)[3], (2, 2, 1994.0));
    assert!(report.notes.iter().any(|note| note.ends_with("not imported: weight")), "{:?}", report.notes);
    let (report, dataset) = folder.table(&TABLE.replace("weight", "hue"), None, true).unwrap();
    assert!(dataset.edge_weights().is_none() && info(&dataset).edge_weights.is_none());
    let note = "not imported: hue, year; --weight-col reads one as edge weights";
    assert!(report.notes.iter().any(|found| found.ends_with(note)), "{:?}", report.notes);
    let error = folder.table(TABLE, Some("dst"), true).err().unwrap().to_string();
    assert!(error.contains("column \"dst\" holds the ends of edges"), "{error}");
    let error = folder.table(TABLE, Some("heft"), true).err().unwrap().to_string();
    assert!(error.contains("no column \"heft\""), "{error}");
}

#[test]
fn wrong_weights_in_tables_are_named_by_line_and_leave_nothing() {
    for (cell, problem) in [
        ("-1", "weight -1: edge weights must be finite and at least 0"),
        ("nan", "weight NaN: edge weights"),
        ("inf", "weight inf: edge weights"),
        ("1e99", "weight 1"),
        ("", "an empty cell where edges need a weight"),
        ("heavy", "\"heavy\" where edges need a weight"),
    ] {
        let folder = Folder::new();
        let table = TABLE.replace("b,c,2,", &format!("b,c,{cell},"));
        let error = folder.table(&table, None, false).err().unwrap().to_string();
        assert!(error.contains(&format!("edges.csv, line 4, column weight: {problem}")), "{error}");
        assert!(error.contains("help: "), "{error}");
        assert!(!folder.path("out").exists());
    }
}

#[test]
fn arrays_of_weights_follow_the_order_of_edges() {
    let folder = Folder::new();
    let directed = folder.arrays(&[3], &[1.5f64, 0.0, 3.0], true).unwrap();
    assert_eq!(edges(&directed), [(2, 0, 3.0), (0, 1, 1.5), (1, 2, 0.0)]);
    let column = folder.arrays(&[3, 1], &[1i64, 0, 3], false).unwrap();
    let expected = [(1, 0, 1.0), (2, 0, 3.0), (0, 1, 1.0), (2, 1, 0.0), (0, 2, 3.0), (1, 2, 0.0)];
    assert_eq!(edges(&column), expected);
}

#[test]
fn importing_a_dataset_again_keeps_its_weights() {
    let folder = Folder::new();
    for directed in [false, true] {
        let (_, first) = folder.table(TABLE, None, directed).unwrap();
        let (before, fingerprint) = (edges(&first), first.manifest.fingerprint.clone());
        drop(first);
        fs::remove_dir_all(folder.path("in")).unwrap();
        fs::rename(folder.path("out"), folder.path("in")).unwrap();
        let (report, again) = folder.import(ImportFormat::Npy { split_index: None }, false).unwrap();
        assert_eq!((edges(&again), &again.manifest.fingerprint), (before, &fingerprint));
        assert!(report.notes.iter().all(|note| !note.contains("weights")), "{:?}", report.notes);
        // Rows that are not symmetric any more.
        if !directed {
            save(&folder.path("in").join("edge_weight.npy"), &[5], &[1.0f32, 3.0, 3.0, 3.0, 8.0]);
            let (report, changed) = folder.import(ImportFormat::Npy { split_index: None }, false).unwrap();
            assert_eq!(edges(&changed)[..2], [(1, 0, 2.0), (0, 1, 2.0)]);
            assert_eq!(report.edges.unequal, 1);
        }
        fs::remove_dir_all(folder.path("in")).unwrap();
        fs::create_dir(folder.path("in")).unwrap();
    }
}

#[test]
fn wrong_arrays_of_weights_are_refused_by_position() {
    let folder = Folder::new();
    let error = |result: Result<Dataset>| result.err().unwrap().to_string();
    for (weights, problem) in [
        ([1.0, -0.5, 1.0], "edge_weight.npy, element 1: weight -0.5"),
        ([1.0, 1.0, f32::NAN], "edge_weight.npy, element 2: weight NaN"),
    ] {
        let found = error(folder.arrays(&[3], &weights, false));
        assert!(found.contains(problem) && found.contains("help: "), "{found}");
    }
    for (shape, count) in [(&[2][..], 2), (&[4], 4), (&[3, 2], 6), (&[], 1)] {
        let found = error(folder.arrays(shape, &vec![1.0f32; count], false));
        let problem = format!("edge_weight.npy: shape {shape:?} where 3 edges need one weight each");
        assert!(found.contains(&problem), "{found}");
    }
    assert!(!folder.path("out").exists());
}
