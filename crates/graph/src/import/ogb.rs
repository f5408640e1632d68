//! `ogb`: the raw directory of a node-property dataset of the Open Graph Benchmark.
//!
//! | what | file under the dataset's folder |
//! |---|---|
//! | edges, features, labels | `raw/edge.csv.gz`, `raw/node-feat.csv.gz`, `raw/node-label.csv.gz`, no headers |
//! | counts | `raw/num-node-list.csv.gz`, `raw/num-edge-list.csv.gz`, one number each |
//! | split | `split/<scheme>/{train,valid,test}.csv.gz`, one node per line |
//!
//! Unpacked `.csv` files are read too, and so is the array form `raw/data.npz` + `raw/node-label.npz`
//! ([`super::ogb_binary`]). The counts must be those of the other files.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::ogb_binary;
use super::table::csv::{CsvTable, Dialect};
use super::table::labels::LabelReader;
use super::table::streams::{Features, visit_pairs};
use super::table::{Cell, RowCursor, Table};
use super::{RawGraph, name_of};
use crate::build::{EdgeInput, EdgeSource, MAX_NODES};
use crate::dataset::Subset;
use crate::error::{Error, IoContext, Result};
use crate::progress::{Progress, Unit};

/// Reads the dataset in the folder `source`; `scheme` chooses one of several splits.
pub(super) fn read(source: &Path, scheme: Option<&str>, progress: &dyn Progress) -> Result<RawGraph> {
    let raw = source.join("raw");
    if !raw.is_dir() {
        return Err(Error::input(source.display(), "no folder `raw`")
            .help("give the folder of the dataset, which holds `raw` and `split`"));
    }
    let mut graph =
        if raw.join("data.npz").exists() { ogb_binary::read(&raw)? } else { read_tables(&raw, progress)? };
    graph.check_label_rows()?;
    graph.name = name_of(source);
    graph.splits = read_split(source, scheme, graph.nodes)?.into_iter().collect();
    if let Ok(path) = find(&raw, "edge-feat") {
        graph.notes.push(format!("{}: features of edges are not imported", path.display()));
    }
    Ok(graph)
}

fn read_tables(raw: &Path, progress: &dyn Progress) -> Result<RawGraph> {
    let nodes = read_count(raw, "num-node-list")?;
    if nodes > MAX_NODES as u64 {
        let problem = format!("{nodes} nodes, more than the {MAX_NODES} that ids can number");
        return Err(Error::input(raw.display(), problem));
    }
    let nodes = nodes as usize;
    let edges = ListedEdges { table: open(raw, "edge")?, nodes, count: read_count(raw, "num-edge-list")? };
    if edges.table.columns().len() != 2 && edges.count > 0 {
        let problem = format!("{} columns where edges have two", edges.table.columns().len());
        return Err(Error::input(edges.table.name(), problem));
    }
    let features = open_table(&find(raw, "node-feat").map_err(|e| {
        e.help("halograph needs node features: compute some and import them with `data import npy`")
    })?)?;
    if features.columns().is_empty() {
        return Err(Error::input(features.name(), format!("empty where {nodes} nodes need features")));
    }
    let columns = (0..features.columns().len()).collect();
    let label = open(raw, "node-label")?;
    let (labels, class_names) = read_labels(&label, nodes, progress)?.finish();
    Ok(RawGraph {
        name: String::new(),
        nodes,
        edges: EdgeInput::Source(Box::new(edges)),
        features: Box::new(Features::new(Rc::new(features), columns)?),
        labels,
        labels_from: label.name().to_string(),
        class_names,
        splits: Vec::new(),
        ids: None,
        notes: Vec::new(),
    })
}

/// `folder/stem.csv.gz` or `folder/stem.csv`.
fn find(folder: &Path, stem: &str) -> Result<PathBuf> {
    let names = [format!("{stem}.csv.gz"), format!("{stem}.csv")];
    names.iter().map(|name| folder.join(name)).find(|path| path.exists()).ok_or_else(|| {
        Error::input(folder.display(), format!("neither {} nor {} is there", names[0], names[1]))
    })
}

fn open(folder: &Path, stem: &str) -> Result<CsvTable> {
    open_table(&find(folder, stem)?)
}

fn open_table(path: &Path) -> Result<CsvTable> {
    CsvTable::open(path, Dialect { header: false, delimiter: None })
}

/// Reads a cell that must be a whole number, not negative.
fn whole(rows: &dyn RowCursor, k: usize) -> Result<u64> {
    let cell = rows.cell(k);
    let number = match cell {
        Cell::Text(text) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| {
        Error::input(
            format!("{}, column {k}", rows.place()),
            format!("{cell} where a whole number is needed"),
        )
    })
}

/// Reads the number in a `num-…-list`.
fn read_count(raw: &Path, stem: &str) -> Result<u64> {
    let table = open(raw, stem)?;
    let mut rows = table.open(&[0])?;
    if !rows.advance()? {
        return Err(Error::input(table.name(), "empty where one number is needed"));
    }
    let count = whole(&*rows, 0)?;
    if rows.advance()? {
        return Err(Error::input(rows.place(), "a second number: the dataset holds several graphs")
            .help("only node-property datasets, which hold one graph, can be imported"));
    }
    Ok(count)
}

/// Reads one class per line, or 0/1 flags.
fn read_labels(table: &CsvTable, nodes: usize, progress: &dyn Progress) -> Result<LabelReader> {
    progress.begin("reading labels", Some(nodes as u64), Unit::Items);
    let columns: Vec<usize> = (0..table.columns().len()).collect();
    let mut labels = LabelReader::new(columns.len());
    let mut rows = table.open(&columns)?;
    let mut count = 0;
    while rows.advance()? {
        if count == nodes {
            let problem = format!("more labels than the {nodes} nodes of num-node-list");
            return Err(Error::input(rows.place(), problem));
        }
        for &k in &columns {
            labels
                .push(rows.cell(k))
                .map_err(|problem| Error::input(format!("{}, column {k}", rows.place()), problem))?;
        }
        count += 1;
        if count % 4096 == 0 {
            progress.tick(4096)?;
        }
    }
    if count != nodes {
        let problem = format!("{count} labels for the {nodes} nodes of num-node-list");
        return Err(Error::input(table.name(), problem));
    }
    Ok(labels)
}

/// Edges as two node ids per line.
struct ListedEdges {
    table: CsvTable,
    nodes: usize,
    count: u64,
}

impl ListedEdges {
    fn end(&self, rows: &dyn RowCursor, k: usize) -> Result<i64> {
        match whole(rows, k)? {
            id if id < self.nodes as u64 => Ok(id as i64),
            id => {
                let place = format!("{}, column {k}", rows.place());
                Err(Error::input(place, format!("node {id} in a graph of {} nodes", self.nodes)))
            }
        }
    }
}

impl EdgeSource for ListedEdges {
    fn visit(&self, sink: &mut dyn FnMut(&[[i64; 2]]) -> Result<()>) -> Result<()> {
        let mut found = 0;
        let mut rows = self.table.open(&[0, 1])?;
        visit_pairs(&mut *rows, sink, &mut |rows| {
            if found == self.count {
                let problem = format!("more edges than the {found} of num-edge-list");
                return Err(Error::input(rows.place(), problem));
            }
            found += 1;
            Ok([self.end(rows, 0)?, self.end(rows, 1)?])
        })?;
        if found != self.count {
            let problem = format!("{found} edges instead of the {} of num-edge-list", self.count);
            return Err(Error::input(self.table.name(), problem));
        }
        Ok(())
    }

    fn place(&self, index: u64) -> String {
        format!("{}, edge {index}", self.table.name())
    }

    fn len(&self) -> Option<u64> {
        Some(self.count)
    }
}

/// Reads the split, if there is a folder `split`.
fn read_split(source: &Path, scheme: Option<&str>, nodes: usize) -> Result<Option<Vec<u8>>> {
    let folder = source.join("split");
    if !folder.is_dir() && scheme.is_none() {
        return Ok(None);
    }
    let folder = folder.join(choose_scheme(&folder, scheme)?);
    let mut split = vec![Subset::None as u8; nodes];
    for (stem, part) in [("train", Subset::Train), ("valid", Subset::Val), ("test", Subset::Test)] {
        let table = open(&folder, stem)?;
        let mut rows = table.open(&[0])?;
        while rows.advance()? {
            let id = whole(&*rows, 0)?;
            let problem = match usize::try_from(id).ok().and_then(|id| split.get_mut(id)) {
                Some(of) if *of == Subset::None as u8 => {
                    *of = part as u8;
                    continue;
                }
                Some(_) => format!("node {id} is in the split already"),
                None => format!("node {id} in a graph of {nodes} nodes"),
            };
            return Err(Error::input(rows.place(), problem));
        }
    }
    Ok(Some(split))
}

/// Returns the name of the split the user chose, or of the only one.
fn choose_scheme(folder: &Path, wanted: Option<&str>) -> Result<String> {
    let mut schemes = Vec::new();
    for entry in std::fs::read_dir(folder).at(folder, "open")? {
        let path = entry.at(folder, "read")?.path();
        if path.is_dir() {
            schemes.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    schemes.sort();
    match (wanted, &schemes[..]) {
        (Some(name), _) if schemes.iter().any(|s| s == name) => Ok(name.to_string()),
        (None, [only]) => Ok(only.clone()),
        (Some(name), _) => Err(Error::input(folder.display(), format!("no split {name:?}"))
            .help(format!("choose one with --scheme: {}", schemes.join(", ")))),
        (None, []) => Err(Error::input(folder.display(), "no folder with a split in it")),
        (None, _) => Err(Error::input(folder.display(), format!("{} splits", schemes.len()))
            .help(format!("choose one with --scheme: {}", schemes.join(", ")))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{ImportFormat, ImportOptions, ImportReport, import};
    use super::*;
    use crate::dataset::{Dataset, LabelView};
    use crate::progress::Silent;

    struct Raw(tempfile::TempDir);

    impl Raw {
        /// Three nodes on a path, node 2 without a label.
        fn new() -> Raw {
            let raw = Raw(tempfile::tempdir().unwrap());
            for (file, text) in [
                ("raw/edge.csv", "0,1\n1,2\n"),
                ("raw/node-feat.csv", "1,2\n3,4\n5,6.5\n"),
                ("raw/node-label.csv", "1.0\n0\nnan\n"),
                ("raw/num-node-list.csv", "3\n"),
                ("raw/num-edge-list.csv", "2\n"),
                ("split/time/train.csv", "0\n"),
                ("split/time/valid.csv", "1\n"),
                ("split/time/test.csv", "2\n"),
            ] {
                raw.put(file, text);
            }
            raw
        }

        fn put(&self, file: &str, text: &str) {
            let path = self.0.path().join("in").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn import(&self, scheme: Option<&str>) -> Result<(ImportReport, Dataset)> {
            let out = self.0.path().join("out");
            let format = ImportFormat::Ogb { scheme: scheme.map(String::from) };
            let options = ImportOptions { overwrite: true, ..ImportOptions::default() };
            let report = import(&format, &self.0.path().join("in"), &out, &options, &Silent)?;
            Ok((report, Dataset::open(&out)?))
        }

        fn fault(&self, file: &str, text: &str) -> String {
            self.put(file, text);
            self.import(None).err().expect("an error").to_string()
        }
    }

    #[test]
    fn plain_files_are_read() {
        let (report, data) = Raw::new().import(None).unwrap();
        assert_eq!((report.edges.read, report.edges.stored), (2, 4));
        assert_eq!(data.features().as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.5]);
        assert!(matches!(data.labels(), LabelView::Single([1, 0, -1])));
        // Node 2 has no label: nothing can be tested on it.
        assert_eq!(data.split(), [1, 2, 0]);
        let told =
            ["1 nodes of the split have no label and were removed from it", "the split has no test nodes"];
        assert_eq!(report.notes, told);
        let raw = Raw::new();
        raw.put("raw/edge-feat.csv", "0.5\n1\n");
        let (report, _) = raw.import(None).unwrap();
        assert!(report.notes[0].ends_with("edge-feat.csv: features of edges are not imported"));
    }

    #[test]
    fn several_label_columns_are_flags() {
        let raw = Raw::new();
        raw.put("raw/node-label.csv", "0,1\n1,1\n0,0\n");
        let (_, data) = raw.import(None).unwrap();
        assert!(matches!(data.labels(), LabelView::Multi { classes: 2, flags: [0, 1, 1, 1, 0, 0] }));
        let error = raw.fault("raw/node-label.csv", "0,1\n1,2\n0,0\n");
        assert!(
            error.ends_with("node-label.csv, line 2, column 1: \"2\" where a multi-label table has 0 or 1"),
            "{error}"
        );
    }

    #[test]
    fn a_scheme_is_chosen_by_name() {
        let raw = Raw::new();
        for part in ["train", "valid", "test"] {
            raw.put(&format!("split/random/{part}.csv"), "");
        }
        let error = raw.import(None).err().unwrap().to_string();
        assert!(error.contains("2 splits") && error.contains("random, time"), "{error}");
        assert_eq!(raw.import(Some("time")).unwrap().1.split(), [1, 2, 0]);
        assert!(raw.import(Some("size")).err().unwrap().to_string().contains("no split \"size\""));
    }

    #[test]
    fn declared_counts_must_be_found() {
        let error = Raw::new().fault("raw/num-edge-list.csv", "3");
        assert!(error.ends_with("edge.csv: 2 edges instead of the 3 of num-edge-list"), "{error}");
        let error = Raw::new().fault("raw/num-node-list.csv", "4");
        assert!(error.ends_with("node-label.csv: 3 labels for the 4 nodes of num-node-list"), "{error}");
        let error = Raw::new().fault("raw/node-feat.csv", "1,2\n3,4\n");
        assert!(error.contains("2 feature rows for 3 nodes"), "{error}");
        let error = Raw::new().fault("raw/num-node-list.csv", "3\n4\n");
        assert!(error.contains("num-node-list.csv, line 2: a second number"), "{error}");
        assert!(Raw::new().fault("raw/num-node-list.csv", "99999999999").contains("more than the"));
    }

    #[test]
    fn lists_are_not_read_beyond_their_count() {
        // What follows the surplus row is never looked at.
        let error = Raw::new().fault("raw/node-label.csv", "1\n0\n1\n0\n0.5\n");
        assert!(error.ends_with("node-label.csv, line 4: more labels than the 3 nodes of num-node-list"));
        let error = Raw::new().fault("raw/edge.csv", "0,1\n1,2\n2,0\nx,y\n");
        assert!(error.ends_with("edge.csv, line 3: more edges than the 2 of num-edge-list"), "{error}");
    }

    #[test]
    fn empty_files_are_named() {
        let error = Raw::new().fault("raw/node-feat.csv", "");
        assert!(error.ends_with("node-feat.csv: empty where 3 nodes need features"), "{error}");
        let error = Raw::new().fault("raw/node-label.csv", "");
        assert!(error.ends_with("node-label.csv: 0 labels for the 3 nodes of num-node-list"), "{error}");
        let error = Raw::new().fault("raw/num-node-list.csv", "");
        assert!(error.ends_with("num-node-list.csv: empty where one number is needed"), "{error}");
        let none = Raw::new();
        none.put("raw/node-label.csv", "");
        let error = none.fault("raw/num-node-list.csv", "0");
        assert!(error.ends_with("node-label.csv: no nodes: a graph needs at least one"), "{error}");
    }

    #[test]
    fn advice_fits_the_fault() {
        let damaged = Raw::new().fault("raw/node-feat.csv", "1,\"2\n");
        assert!(damaged.contains("unclosed quote\n  help: the file may be truncated"), "{damaged}");
        let raw = Raw::new();
        fs::remove_file(raw.0.path().join("in/raw/node-feat.csv")).unwrap();
        let missing = raw.import(None).err().unwrap().to_string();
        assert!(missing.contains("node-feat.csv is there\n  help: halograph needs node"), "{missing}");
    }

    #[test]
    fn faults_name_line_and_column() {
        let error = Raw::new().fault("raw/edge.csv", "0,1\n1,3\n");
        assert!(error.ends_with("edge.csv, line 2, column 1: node 3 in a graph of 3 nodes"), "{error}");
        let error = Raw::new().fault("raw/edge.csv", "0,x\n");
        assert!(error.ends_with("line 1, column 1: \"x\" where a whole number is needed"), "{error}");
        let error = Raw::new().fault("raw/node-feat.csv", "1,2\n3,?\n5,6\n");
        assert!(error.contains("node-feat.csv, line 2, column 1: \"?\" is not a number"), "{error}");
        let error = Raw::new().fault("split/time/test.csv", "1\n");
        assert!(error.ends_with("test.csv, line 1: node 1 is in the split already"), "{error}");
        let error = Raw::new().fault("split/time/test.csv", "7\n");
        assert!(error.ends_with("test.csv, line 1: node 7 in a graph of 3 nodes"), "{error}");
    }
}
