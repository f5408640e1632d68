//! `planetoid`: the eight `ind.<name>.<part>` files of Yang, Cohen and Salakhutdinov (2016): Cora, Citeseer, Pubmed.
//!
//! | part | contents |
//! |---|---|
//! | `allx`, `ally` | sparse features and one-hot labels of nodes 0, 1, 2 … |
//! | `tx`, `ty` | the same for the test nodes: row i belongs to the node on line i of `test.index` |
//! | `x`, `y` | the first rows of `allx`: the training nodes |
//! | `graph` | a dictionary from node to neighbours |
//! | `test.index` | text, one node id per line, in any order |
//!
//! The split is the public one: the rows of `x` for training, the next 500 nodes for validation, `test.index` for testing.
//! Citeseer has ids in the test range that are in no file: nodes with zero features and no label, outside the split.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::RawGraph;
use super::arrays::{self, SparseFeatures};
use crate::build::EdgeInput;
use crate::dataset::Subset;
use crate::dataset::write::{FeatureSource, Labels};
use crate::error::{Error, IoContext, Result};
use crate::io::npy::Array;
use crate::io::pickle::Pickle;

const PARTS: [&str; 8] = ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"];
/// Validation nodes of the public split.
const VALIDATION: usize = 500;

/// Reads the graph in the folder `source`, or the graph that the file `source` belongs to.
pub(super) fn read(source: &Path) -> Result<RawGraph> {
    let family = Family::find(source)?;
    let allx = family.features("allx")?;
    let tx = family.features("tx")?;
    let train = family.features("x")?.rows();
    let known = allx.rows();
    if family.array("y")?.rows() != train || train > known {
        let problem = format!(
            "x has {train} training nodes, allx {known} nodes: x, y and allx are not of the same graph"
        );
        return Err(Error::input(family.path("x").display(), problem));
    }
    if tx.cols() != allx.cols() {
        let problem = format!("{} columns where allx has {}", tx.cols(), allx.cols());
        return Err(Error::input(family.path("tx").display(), problem));
    }
    let graph = Pickle::open(&family.path("graph"))?.adjacency()?;
    let test = test_index(&family.path("test.index"), known, tx.rows(), graph.keys())?;
    let nodes = test.iter().map(|&v| v + 1).max().unwrap_or(0).max(known).max(graph.keys());

    let mut labels = family.labels("ally", known)?;
    labels.resize(nodes, -1);
    for (&v, label) in test.iter().zip(family.labels("ty", tx.rows())?) {
        labels[v] = label;
    }
    let mut split = vec![Subset::None as u8; nodes];
    split[..train].fill(Subset::Train as u8);
    split[train..known.min(train + VALIDATION)].fill(Subset::Val as u8);
    test.iter().for_each(|&v| split[v] = Subset::Test as u8);
    let mut test_rows = vec![None; nodes - known];
    test.iter().enumerate().for_each(|(row, &v)| test_rows[v - known] = Some(row));
    let orphans = test_rows.iter().filter(|row| row.is_none()).count();
    let note = format!("{orphans} nodes are in no file: zero features, no label, outside the split");
    Ok(RawGraph {
        name: family.name.clone(),
        nodes,
        edges: EdgeInput::Source(Box::new(graph)),
        features: Box::new(Stacked { allx, tx, test_rows }),
        labels: Labels::Single(labels),
        labels_from: format!("{} and ty", family.path("ally").display()),
        class_names: Vec::new(),
        splits: vec![split],
        ids: None,
        notes: (orphans > 0).then_some(note).into_iter().collect(),
    })
}

/// The eight files of one graph.
struct Family {
    folder: PathBuf,
    name: String,
}

impl Family {
    fn find(source: &Path) -> Result<Family> {
        if !source.is_dir() {
            let name = source.file_name().and_then(|name| family_of(name.to_str()?));
            let name = name.ok_or_else(|| {
                Error::input(source.display(), "neither a folder nor an ind.NAME.PART file")
                    .help(format!("give a folder, or a file whose PART is one of {}", PARTS.join(", ")))
            })?;
            let folder = source.parent().unwrap_or(Path::new("")).to_path_buf();
            return Ok(Family { folder, name });
        }
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(source).at(source, "open")? {
            let file = entry.at(source, "read")?.file_name();
            names.extend(file.to_str().and_then(family_of));
        }
        let mut names = names.into_iter();
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(Family { folder: source.to_path_buf(), name }),
            (None, _) => Err(Error::input(source.display(), "no ind.NAME.PART file in this folder")),
            (Some(a), Some(b)) => {
                Err(Error::input(source.display(), format!("several graphs: {a}, {b} and possibly more"))
                    .help(format!(
                        "give a file of one of them instead: {}",
                        source.join(format!("ind.{a}.x")).display()
                    )))
            }
        }
    }

    fn path(&self, part: &str) -> PathBuf {
        self.folder.join(format!("ind.{}.{part}", self.name))
    }

    fn array(&self, part: &str) -> Result<Array> {
        Pickle::open(&self.path(part))?.array()
    }

    fn features(&self, part: &str) -> Result<SparseFeatures> {
        let matrix = Pickle::open(&self.path(part))?.matrix()?;
        // The row starts verify the number of rows; the shape does not.
        if matrix.indptr.len().checked_sub(1) != Some(matrix.shape[0]) {
            let problem = format!("{} row starts for {} rows", matrix.indptr.len(), matrix.shape[0]);
            return Err(Error::input(&matrix.indptr.name, problem));
        }
        SparseFeatures::new(&matrix.indptr, matrix.indices, matrix.data, matrix.shape)
    }

    /// Reads the classes of `rows` one-hot rows; −1 for a row of zeros.
    fn labels(&self, part: &str, rows: usize) -> Result<Vec<i64>> {
        let array = self.array(part)?;
        if array.header.shape.len() != 2 || array.rows() != rows || array.cols() == 0 {
            let problem = format!("shape {:?} where {rows} rows of classes are needed", array.header.shape);
            return Err(Error::input(&array.name, problem));
        }
        let flags = array.to_i64()?;
        let class = |(row, flags): (usize, &[i64])| {
            let set: Vec<usize> = (0..flags.len()).filter(|&c| flags[c] != 0).take(2).collect();
            match set[..] {
                [] => Ok(-1),
                [class] if flags[class] == 1 => Ok(class as i64),
                _ => Err(Error::input(format!("{}, row {row}", array.name), "not a one-hot row")),
            }
        };
        flags.chunks_exact(array.cols()).enumerate().map(class).collect()
    }
}

/// Returns `NAME` of `ind.NAME.PART`.
fn family_of(file: &str) -> Option<String> {
    let rest = file.strip_prefix("ind.")?;
    PARTS.iter().find_map(|part| rest.strip_suffix(part)?.strip_suffix('.')).map(String::from)
}

/// Reads the ids of `rows` test nodes, all of them after the `known` nodes of `allx`.
fn test_index(path: &Path, known: usize, rows: usize, listed: usize) -> Result<Vec<usize>> {
    let text = std::fs::read_to_string(path).at(path, "read")?;
    let place = |line: usize| format!("{}, line {}", path.display(), line + 1);
    // A wrong id must not make a graph of a billion nodes: gaps are allowed up to a limit.
    let limit = listed.max(known + 2 * rows + 1000);
    let mut ids = Vec::new();
    let mut seen = BTreeSet::new();
    for (line, word) in text.lines().map(str::trim).enumerate().filter(|(_, word)| !word.is_empty()) {
        let id: usize = word
            .parse()
            .map_err(|_| Error::input(place(line), format!("{:?} is not a node id", short(word))))?;
        if id < known || id >= limit {
            let problem = format!("test node {id} where ids from {known} to {} are possible", limit - 1);
            return Err(Error::input(place(line), problem).help("test nodes come after those of allx"));
        }
        if !seen.insert(id) {
            return Err(Error::input(place(line), format!("test node {id} is listed twice")));
        }
        ids.push(id);
    }
    if ids.len() != rows {
        let problem = format!("{} test nodes where tx has {rows} rows", ids.len());
        return Err(Error::input(path.display(), problem));
    }
    Ok(ids)
}

/// Returns the first 40 characters of a word.
fn short(word: &str) -> String {
    word.chars().take(40).collect()
}

/// The rows of `allx`, then those of `tx` in the order of node ids.
struct Stacked {
    allx: SparseFeatures,
    tx: SparseFeatures,
    /// The row of `tx` for each node after those of `allx`.
    test_rows: Vec<Option<usize>>,
}

impl FeatureSource for Stacked {
    fn cols(&self) -> usize {
        self.allx.cols()
    }

    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let known = self.allx.rows();
        arrays::stream_rows(known + self.test_rows.len(), self.cols(), sink, |v, out, entries| {
            match v.checked_sub(known).map(|k| self.test_rows[k]) {
                None => self.allx.add_row(v, out, entries),
                Some(Some(row)) => self.tx.add_row(row, out, entries),
                Some(None) => Ok(()),
            }
        })
    }

    fn place(&self, row: usize, column: usize) -> String {
        match row.checked_sub(self.allx.rows()).map(|k| self.test_rows.get(k).copied().flatten()) {
            None => self.allx.place(row, column),
            Some(test) => self.tx.place(test.unwrap_or(0), column),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Dataset;
    use crate::dataset::LabelView;
    use crate::import::{ImportFormat, ImportOptions, ImportReport, import};
    use crate::progress::Silent;

    fn int(n: i32) -> Vec<u8> {
        [&b"J"[..], &n.to_le_bytes()].concat()
    }

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&b"T"[..], &(bytes.len() as i32).to_le_bytes(), bytes].concat()
    }

    fn pickle(body: &[u8]) -> Vec<u8> {
        [b"\x80\x02", body, b"."].concat()
    }

    /// Returns the opcodes numpy writes for an array.
    fn array(code: &str, shape: &[i32], bytes: &[u8]) -> Vec<u8> {
        let mut out =
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01(".to_vec();
        shape.iter().for_each(|&dim| out.extend(int(dim)));
        out.extend(b"tcnumpy\ndtype\n");
        out.extend(string(code.as_bytes()));
        out.extend(b"K\x00K\x01\x87R(K\x03U\x01<NNNJ\xFF\xFF\xFF\xFFJ\xFF\xFF\xFF\xFFK\x00tb\x89");
        out.extend(string(bytes));
        out.extend(b"tb");
        out
    }

    fn ints(values: &[i32]) -> Vec<u8> {
        array("i4", &[values.len() as i32], bytemuck::cast_slice(values))
    }

    fn one_hot(rows: i32, flags: &[i32]) -> Vec<u8> {
        pickle(&array("i4", &[rows, flags.len() as i32 / rows], bytemuck::cast_slice(flags)))
    }

    fn csr(cols: i32, indptr: &[i32], indices: &[i32], data: &[f32]) -> Vec<u8> {
        let mut body = b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(".to_vec();
        body.extend(string(b"_shape"));
        body.extend([int(indptr.len() as i32 - 1), int(cols), b"\x86".to_vec()].concat());
        body.extend([string(b"indptr"), ints(indptr), string(b"indices"), ints(indices)].concat());
        body.extend(string(b"data"));
        body.extend(array("f4", &[data.len() as i32], bytemuck::cast_slice(data)));
        body.extend(b"ub");
        pickle(&body)
    }

    fn graph(lists: &[(i32, &[i32])]) -> Vec<u8> {
        let mut body = b"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(".to_vec();
        for (key, list) in lists {
            body.extend([int(*key), b"](".to_vec()].concat());
            list.iter().for_each(|&n| body.extend(int(n)));
            body.push(b'e');
        }
        body.push(b'u');
        pickle(&body)
    }

    type Files = Vec<(&'static str, Vec<u8>)>;

    /// Nodes 0 to 2 in allx (0 trains), tests 5 and 3, orphan 4.
    fn files() -> Files {
        vec![
            ("x", csr(2, &[0, 1], &[0], &[1.0])),
            ("y", one_hot(1, &[1, 0])),
            ("allx", csr(2, &[0, 1, 1, 2], &[0, 1], &[1.0, 2.0])),
            ("ally", one_hot(3, &[1, 0, 0, 1, 0, 0])),
            ("tx", csr(2, &[0, 1, 2], &[0, 1], &[5.0, 3.0])),
            ("ty", one_hot(2, &[0, 1, 1, 0])),
            ("graph", graph(&[(0, &[1, 1]), (1, &[0]), (2, &[2, 5]), (3, &[0])])),
            ("test.index", b"5\n3\n".to_vec()),
        ]
    }

    fn with(mut files: Files, part: &'static str, data: Vec<u8>) -> Files {
        files.retain(|(p, _)| *p != part);
        files.push((part, data));
        files
    }

    fn save(folder: &Path, name: &str, files: &Files) {
        for (part, data) in files {
            std::fs::write(folder.join(format!("ind.{name}.{part}")), data).unwrap();
        }
    }

    fn imported(files: &Files) -> Result<(ImportReport, Dataset, tempfile::TempDir)> {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), "toy", files);
        let out = dir.path().join("out");
        let report = import(&ImportFormat::Planetoid, dir.path(), &out, &ImportOptions::default(), &Silent)?;
        let dataset = Dataset::open(&out)?;
        Ok((report, dataset, dir))
    }

    #[test]
    fn rows_are_assigned_to_their_nodes() {
        let (report, dataset, _dir) = imported(&files()).unwrap();
        assert_eq!(report.manifest.name, "toy");
        assert_eq!(dataset.graph().indptr, [0, 2, 3, 4, 5, 5, 6]);
        assert_eq!(dataset.graph().indices, [1, 3, 0, 5, 0, 2]);
        let x = dataset.features().as_slice::<f32>().unwrap();
        assert_eq!(x, [1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 3.0, 0.0, 0.0, 5.0, 0.0]);
        assert!(matches!(dataset.labels(), LabelView::Single([0, 1, -1, 0, -1, 1])));
        assert_eq!(dataset.split(), [1, 2, 0, 3, 0, 3]);
        assert!(report.notes[0].starts_with("1 nodes"), "{:?}", report.notes);
        assert_eq!((report.edges.read, report.edges.self_loops), (6, 1));
    }

    #[test]
    fn a_file_chooses_one_of_several_graphs_in_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Family::find(dir.path()).err().unwrap().to_string().contains("no ind.NAME.PART"));
        save(dir.path(), "nell.0.01", &files());
        assert_eq!(Family::find(dir.path()).unwrap().name, "nell.0.01");
        save(dir.path(), "toy", &files());
        assert!(Family::find(dir.path()).err().unwrap().to_string().contains("nell.0.01, toy"));
        for part in PARTS {
            assert_eq!(Family::find(&dir.path().join(format!("ind.toy.{part}"))).unwrap().name, "toy");
        }
        assert!(Family::find(&dir.path().join("ind.toy.z")).is_err());
    }

    #[test]
    fn inconsistent_files_are_refused_with_their_position() {
        let cases = [
            ("test.index", b"5\n5\n".to_vec(), "line 2: test node 5 is listed twice"),
            ("test.index", b"5\n\n99999999999\n".to_vec(), "line 3: test node 99999999999"),
            ("test.index", b"1\n3\n".to_vec(), "line 1: test node 1"),
            ("test.index", b"5\n3x\n".to_vec(), "line 2: \"3x\" is not a node id"),
            ("test.index", b"5\n".to_vec(), "1 test nodes where tx has 2 rows"),
            ("ally", one_hot(3, &[1, 1, 0, 1, 0, 0]), "ally, row 0: not a one-hot row"),
            ("ally", one_hot(2, &[1, 0, 0, 1]), "where 3 rows of classes are needed"),
            ("tx", csr(3, &[0, 1, 2], &[0, 1], &[5.0, 3.0]), "3 columns where allx has 2"),
            ("allx", csr(2, &[0, 1, 1, 2], &[0, 7], &[1.0, 2.0]), "element 1: feature column 7 of 2"),
            ("allx", csr(i32::MAX, &[0, 1, 1, 2], &[0, 1], &[1.0, 2.0]), "are used"),
            ("allx", ints(&[1]), "allx, byte 130: truncated"),
            ("allx", one_hot(1, &[1]), "no sparse matrix"),
            ("y", csr(1, &[0, 0], &[], &[]), "no plain array"),
            ("y", pickle(&array("i4", &[i32::MAX, i32::MAX], b"")), "truncated"),
            ("y", pickle(&array("O8", &[0], b"")), "no plain array"),
            ("graph", graph(&[(0, &[6])]), "neighbour 0 of node 0: node id 6 in a graph of 6 nodes"),
            ("graph", pickle(b"}(K\x00]q\x00K\x01h\x00u"), "node 1 shares its neighbour list"),
            ("graph", pickle(b"}(K\x00]NaK\x01]u"), "neighbour 0 of node 0"),
            ("graph", pickle(b"}(NNu"), "no node id"),
        ];
        for (part, data, message) in cases {
            let error = imported(&with(files(), part, data)).err().unwrap().to_string();
            assert!(error.contains(message), "{error}\nwhere {message} was expected");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        #[test]
        fn damage_never_panics(part in 0usize..8, at in 0usize..2000, value: u8, cut: bool) {
            let mut files = files();
            let data = &mut files[part].1;
            let at = at % data.len();
            data[at] = value;
            if cut {
                data.truncate(at);
            }
            let _ = imported(&files);
        }
    }
}
