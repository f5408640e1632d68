//! `npz`: one archive that holds a whole graph, in one of two layouts.
//!
//! **gnn-benchmark** (Shchur et al., 2018): sparse matrices in compressed rows.
//!
//! | what | members |
//! |---|---|
//! | edges, row = source | `adj_indptr`, `adj_indices`, `adj_shape` (or `adj_matrix.indptr` …) |
//! | features | `attr_data`, `attr_indices`, `attr_indptr`, `attr_shape` (or `attr_matrix.data` …), or dense `attr_matrix` |
//! | labels | `labels`, and names in `class_names` |
//!
//! **heterophilous-graphs** (Platonov et al., 2023): `node_features`, `node_labels`, `edges` (E×2) and ten splits
//! as `train_masks`, `val_masks`, `test_masks`.
//!
//! Members with pickled Python objects are skipped with a note: unpickling would execute code.

use std::path::Path;

use super::arrays::{self, DenseFeatures, PairEdges, SparseFeatures};
use super::{RawGraph, name_of};
use crate::build::{EdgeInput, Rows};
use crate::dataset::write::{FeatureSource, Labels};
use crate::error::{Error, Result};
use crate::io::npy::{Array, DType};
use crate::io::npz::Npz;
use crate::io::strings;

/// Reads the archive `source`.
pub(super) fn read(source: &Path, split_index: Option<usize>) -> Result<RawGraph> {
    let npz = Npz::open(source)?;
    let has = |member: &str| npz.names().any(|name| name == member);
    let mut raw = if has("adj_indptr") {
        benchmark(&npz, "adj_")
    } else if has("adj_matrix.indptr") {
        benchmark(&npz, "adj_matrix.")
    } else if has("node_features") && has("edges") {
        heterophilous(&npz, split_index)
    } else {
        let problem = format!("no known layout; its members are {}", npz.list());
        Err(Error::input(npz.name(), problem).help(
            "known are gnn-benchmark (adj_indptr, adj_indices, attr_…, labels) \
             and heterophilous-graphs (node_features, node_labels, edges, train_masks …)",
        ))
    }?;
    raw.name = name_of(source);
    raw.notes.extend(pickled(&npz));
    Ok(raw)
}

fn benchmark(npz: &Npz, adj: &str) -> Result<RawGraph> {
    let member = |part: &str| npz.need(&format!("{adj}{part}"));
    let indptr = member("indptr")?;
    let nodes = row_count(&indptr)?;
    square(&member("shape")?, nodes)?;
    let label = npz.need("labels")?;
    let labels = arrays::labels(&label)?;
    let mut notes = Vec::new();
    notes.extend(arrays::ignored_weights(npz.get(&format!("{adj}data"))?)?);
    Ok(RawGraph {
        name: String::new(),
        nodes,
        edges: EdgeInput::Rows { indptr, indices: member("indices")?, weights: None, rows: Rows::AreSources },
        features: attributes(npz, nodes)?,
        labels_from: label.name,
        class_names: class_names(npz, &labels, &mut notes)?,
        labels,
        splits: Vec::new(),
        ids: None,
        notes,
    })
}

fn heterophilous(npz: &Npz, split_index: Option<usize>) -> Result<RawGraph> {
    let label = npz.need("node_labels")?;
    let labels = arrays::labels(&label)?;
    let nodes = label.rows();
    let masks = [npz.get("train_masks")?, npz.get("val_masks")?, npz.get("test_masks")?];
    Ok(RawGraph {
        name: String::new(),
        nodes,
        edges: EdgeInput::Source(Box::new(PairEdges::tall(npz.need("edges")?)?)),
        features: Box::new(DenseFeatures::for_nodes(npz.need("node_features")?, nodes)?),
        labels_from: label.name,
        labels,
        class_names: Vec::new(),
        splits: arrays::masks(&masks, nodes, split_index)?,
        ids: None,
        notes: Vec::new(),
    })
}

/// Returns the number of rows that the row starts describe: the count that the size of the file verifies.
pub(super) fn row_count(indptr: &Array) -> Result<usize> {
    indptr.len().checked_sub(1).ok_or_else(|| {
        let problem = format!("{} of shape {:?}", indptr.header.dtype.descr(), indptr.header.shape);
        Error::input(&indptr.name, format!("{problem} where row starts are needed"))
    })
}

/// Checks that `shape` is nodes × nodes.
pub(super) fn square(shape: &Array, nodes: usize) -> Result<()> {
    let [rows, cols] = dimensions(shape)?;
    if rows == nodes && cols == nodes {
        return Ok(());
    }
    let problem = format!("{rows} × {cols} for {nodes} nodes");
    Err(Error::input(&shape.name, problem).help("an adjacency matrix has one row and one column per node"))
}

/// Returns the two numbers of a `shape` member.
fn dimensions(shape: &Array) -> Result<[usize; 2]> {
    let numbers = if shape.len() == 2 { shape.to_i64()? } else { Vec::new() };
    match numbers[..] {
        [rows, cols] if rows >= 0 && cols >= 0 => Ok([rows as usize, cols as usize]),
        _ => Err(Error::input(&shape.name, format!("{numbers:?} where rows and columns are needed"))),
    }
}

fn attributes(npz: &Npz, nodes: usize) -> Result<Box<dyn FeatureSource>> {
    if let Some(dense) = npz.get("attr_matrix")? {
        return Ok(Box::new(DenseFeatures::for_nodes(dense, nodes)?));
    }
    let old = npz.names().any(|name| name == "attr_matrix.indptr");
    let prefix = if old { "attr_matrix." } else { "attr_" };
    let member = |part: &str| npz.need(&format!("{prefix}{part}"));
    let shape = member("shape")?;
    let [rows, cols] = dimensions(&shape)?;
    if rows != nodes {
        return Err(Error::input(&shape.name, format!("{rows} feature rows for {nodes} nodes")));
    }
    let sparse = SparseFeatures::new(&member("indptr")?, member("indices")?, member("data")?, [rows, cols])?;
    Ok(Box::new(sparse))
}

/// Returns the names of the classes, if they are text and there are enough.
fn class_names(npz: &Npz, labels: &Labels, notes: &mut Vec<String>) -> Result<Vec<String>> {
    let Some(array) = npz.get("class_names")? else { return Ok(Vec::new()) };
    if matches!(&array.header.dtype, DType::Other(descr) if descr.ends_with('O')) {
        return Ok(Vec::new());
    }
    let names = strings::strings(&array)?;
    let classes = match labels {
        Labels::Single(labels) => labels.iter().max().map_or(0, |&l| l.saturating_add(1).max(0) as usize),
        Labels::Multi { classes, .. } => *classes,
    };
    if names.len() < classes {
        notes.push(format!(
            "{}: skipped, because it has {} names for {classes} classes",
            array.name,
            names.len()
        ));
        return Ok(Vec::new());
    }
    Ok(names)
}

fn pickled(npz: &Npz) -> Option<String> {
    let members = npz.objects();
    (!members.is_empty())
        .then(|| format!("{}: skipped {}, which hold pickled Python objects", npz.name(), members.join(", ")))
}

#[cfg(test)]
mod tests {
    use zip::CompressionMethod;

    use super::*;
    use crate::Dataset;
    use crate::dataset::{LabelView, Metric};
    use crate::import::{ImportFormat, ImportOptions, ImportReport, SplitRule, import};
    use crate::io::npz::tests::{archive, list, matrix, npy};
    use crate::progress::Silent;

    type Members = Vec<(&'static str, Vec<u8>)>;

    fn imported(
        members: &[(&str, Vec<u8>)],
        method: CompressionMethod,
        split_index: impl Into<Option<usize>>,
        options: ImportOptions,
    ) -> Result<(ImportReport, Dataset, tempfile::TempDir)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("toy.npz");
        std::fs::write(&path, archive(members, method)).unwrap();
        let out = dir.path().join("out");
        let report =
            import(&ImportFormat::Npz { split_index: split_index.into() }, &path, &out, &options, &Silent)?;
        let dataset = Dataset::open(&out)?;
        Ok((report, dataset, dir))
    }

    fn fails(members: &[(&str, Vec<u8>)]) -> String {
        imported(members, CompressionMethod::Stored, None, ImportOptions::default())
            .err()
            .unwrap()
            .to_string()
    }

    fn with(mut members: Members, name: &'static str, data: Vec<u8>) -> Members {
        members.retain(|(n, _)| *n != name);
        members.push((name, data));
        members
    }

    /// 0→1, 0→2, 2→2 with sparse features of 3 columns.
    fn benchmark_members() -> Members {
        vec![
            ("adj_data", list(&[1f32; 3])),
            ("adj_indices", list(&[1i32, 2, 2])),
            ("adj_indptr", list(&[0i32, 2, 2, 3])),
            ("adj_shape", list(&[3i64, 3])),
            ("attr_data", list(&[1f32, 0.5, 2.0])),
            ("attr_indices", list(&[2i32, 0, 0])),
            ("attr_indptr", list(&[0i32, 1, 1, 3])),
            ("attr_shape", list(&[3i64, 3])),
            ("labels", list(&[1i64, 0, 1])),
        ]
    }

    fn features(dataset: &Dataset) -> Vec<f32> {
        dataset.features().as_slice::<f32>().unwrap().to_vec()
    }

    #[test]
    fn the_benchmark_layout_is_read() {
        for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
            let (report, dataset, _dir) =
                imported(&benchmark_members(), method, None, ImportOptions::default()).unwrap();
            assert_eq!(dataset.graph().indices, [1, 2, 0, 0]);
            assert_eq!(features(&dataset), [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.5, 0.0, 0.0]);
            assert!(matches!(dataset.labels(), LabelView::Single([1, 0, 1])));
            assert_eq!(report.manifest.name, "toy");
            assert!(report.split.contains("20 + 30 per class"));
        }
    }

    #[test]
    fn directed_rows_are_sources() {
        let edges = crate::build::EdgeOptions { directed: true, keep_self_loops: false };
        let options = ImportOptions { edges, ..ImportOptions::default() };
        let (_, dataset, _dir) =
            imported(&benchmark_members(), CompressionMethod::Stored, None, options).unwrap();
        assert_eq!(dataset.graph().indptr, [0, 0, 1, 2]);
        assert_eq!(dataset.graph().indices, [0, 0]);
    }

    #[test]
    fn the_older_spelling_is_read() {
        let old = |name: &'static str| match name {
            "adj_indices" => "adj_matrix.indices",
            "adj_indptr" => "adj_matrix.indptr",
            "adj_shape" => "adj_matrix.shape",
            "attr_data" => "attr_matrix.data",
            "attr_indices" => "attr_matrix.indices",
            "attr_indptr" => "attr_matrix.indptr",
            "attr_shape" => "attr_matrix.shape",
            other => other,
        };
        let members: Members = benchmark_members().into_iter().map(|(n, d)| (old(n), d)).collect();
        let (_, dataset, _dir) =
            imported(&members, CompressionMethod::Stored, None, ImportOptions::default()).unwrap();
        assert_eq!(features(&dataset)[6], 2.5);
    }

    #[test]
    fn dense_attributes_in_fortran_order_are_read() {
        let numbers = [1f64, 3.0, 5.0, 2.0, 4.0, 6.0];
        let dense = npy("<f8", true, "(3, 2)", bytemuck::cast_slice(&numbers));
        let members = with(benchmark_members(), "attr_matrix", dense);
        let (_, dataset, _dir) =
            imported(&members, CompressionMethod::Deflated, None, ImportOptions::default()).unwrap();
        assert_eq!(features(&dataset), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn class_names_are_read_as_text_and_skipped_as_objects() {
        let utf32: Vec<u8> = "abxy".chars().flat_map(|c| (c as u32).to_le_bytes()).collect();
        let run = |descr: &str, shape: &str, data: &[u8]| {
            let members = with(benchmark_members(), "class_names", npy(descr, false, shape, data));
            imported(&members, CompressionMethod::Stored, None, ImportOptions::default()).unwrap().0
        };
        let report = run("<U2", "(2,)", &utf32);
        assert_eq!(report.manifest.class_names, ["ab", "xy"]);
        assert!(report.notes.iter().all(|note| !note.contains("class_names")), "{:?}", report.notes);
        let report = run("|O", "(2,)", b"\x80\x02cos\nsystem\n.");
        assert!(report.manifest.class_names.is_empty());
        assert!(report.notes[0].contains("skipped class_names"), "{:?}", report.notes);
        assert!(run("<U4", "(1,)", &utf32).notes[0].contains("1 names for 2 classes"));
    }

    #[test]
    fn inconsistent_members_are_refused_with_their_position() {
        let good = benchmark_members;
        let cases = [
            (with(good(), "adj_shape", list(&[3i64, 4])), "[adj_shape]: 3 × 4"),
            (with(good(), "adj_shape", list(&[-1i64, 3])), "[adj_shape]"),
            (with(good(), "adj_shape", list(&[3i64])), "[adj_shape]"),
            (with(good(), "adj_indices", list(&[1i32, 2, 3])), "[adj_indices], element 2: node id 3"),
            (with(good(), "adj_indptr", npy("<i4", false, "(0,)", b"")), "[adj_indptr]"),
            (with(good(), "adj_indptr", npy("|O", false, "(99999999999999,)", b"")), "[adj_indptr]"),
            (with(good(), "attr_shape", list(&[2i64, 3])), "[attr_shape]: 2 feature rows for 3 nodes"),
            (with(good(), "attr_shape", list(&[3i64, 1 << 50])), "are used"),
            (
                with(good(), "attr_shape", list(&[3i64, 65_543])),
                "65543 columns, but only the first 3 are used",
            ),
            (with(good(), "attr_indices", list(&[2i32, 0, -1])), "element 2: feature column -1 of 3"),
            (with(good(), "attr_indices", list(&[2i32, 0, 3])), "element 2: feature column 3 of 3"),
            (with(good(), "attr_data", list(&[1f32])), "1 values for 3 column ids"),
            (with(good(), "attr_data", list(&[1f32, f32::NAN, 0.0])), "row 2, column 0"),
            (with(good(), "labels", list(&[1i64, 0])), "2 labels for 3 nodes"),
            (with(good(), "labels", npy("|O", false, "(99999999999999,)", b"")), "[labels]"),
        ];
        for (members, message) in cases {
            let error = fails(&members);
            assert!(error.contains(message), "{error} where {message} was expected");
        }
    }

    /// A path of 4 nodes, 2 splits.
    fn heterophilous_members() -> Members {
        vec![
            ("node_features", matrix(4, 2, &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])),
            ("node_labels", list(&[0i64, 1, 0, 1])),
            ("edges", matrix(3, 2, &[0i64, 1, 1, 2, 2, 3])),
            ("train_masks", npy("|b1", false, "(2, 4)", &[1, 0, 0, 0, 0, 0, 1, 1])),
            ("val_masks", npy("|b1", false, "(2, 4)", &[0, 1, 0, 0, 0, 1, 0, 0])),
            ("test_masks", npy("|b1", false, "(2, 4)", &[0, 0, 1, 1, 1, 0, 0, 0])),
        ]
    }

    #[test]
    fn the_heterophilous_layout_is_read_with_the_split_asked_for() {
        for (index, expected) in [(0, [1, 2, 3, 3]), (1, [3, 2, 1, 1])] {
            let members = heterophilous_members();
            let (report, dataset, _dir) =
                imported(&members, CompressionMethod::Deflated, index, ImportOptions::default()).unwrap();
            assert_eq!(dataset.split(), expected);
            assert_eq!(dataset.graph().indices, [1, 0, 2, 1, 3, 2]);
            assert_eq!(report.split, "as given");
        }
        let result =
            imported(&heterophilous_members(), CompressionMethod::Stored, 2, ImportOptions::default());
        assert!(result.err().unwrap().to_string().contains("--split-index"));
    }

    #[test]
    fn all_splits_are_kept_unless_one_is_asked_for() {
        let members = heterophilous_members();
        let (_, dataset, _dir) =
            imported(&members, CompressionMethod::Stored, None, ImportOptions::default()).unwrap();
        assert_eq!((dataset.manifest.splits, dataset.split()), (2, &[1, 2, 3, 3][..]));
        let second = dataset.with_split(1).unwrap();
        assert_eq!((second.split_index(), second.split()), (1, &[3, 2, 1, 1][..]));
        assert_eq!(second.with_split(0).unwrap().split(), dataset.split());
        let error = dataset.with_split(2).err().unwrap().to_string();
        assert!(error.contains("no split 2: there are 2, counted from 0"), "{error}");
        let component = ImportOptions { largest_component: true, ..ImportOptions::default() };
        let (_, kept, _dir) = imported(&members, CompressionMethod::Stored, None, component).unwrap();
        assert_eq!(kept.with_split(1).unwrap().split(), [3, 2, 1, 1]);
        let (_, one, _dir) =
            imported(&members, CompressionMethod::Stored, 1, ImportOptions::default()).unwrap();
        assert_eq!((one.manifest.splits, one.split()), (1, &[3, 2, 1, 1][..]));
        assert_ne!(one.manifest.fingerprint, dataset.manifest.fingerprint);
    }

    #[test]
    fn masks_hold_the_same_number_of_splits() {
        let mut members = heterophilous_members();
        members.retain(|(name, _)| *name != "test_masks");
        members.push(("test_masks", npy("|b1", false, "(3, 4)", &[0; 12])));
        assert!(fails(&members).contains("2 splits where another mask has 3"));
        let none = with(heterophilous_members(), "train_masks", npy("|b1", false, "(0, 4)", &[]));
        assert!(fails(&none).contains("[train_masks]: a mask without a split"));
    }

    #[test]
    fn the_number_of_the_split_is_recorded() {
        let source = |index: Option<usize>| {
            let members = heterophilous_members();
            let made =
                imported(&members, CompressionMethod::Stored, index, ImportOptions::default()).unwrap();
            made.1.manifest.source
        };
        assert_eq!(source(Some(1)), "import npz --split-index 1; split: as given");
        assert_eq!(source(None), "import npz; split: as given, 2 splits");
    }

    #[test]
    fn a_number_of_a_split_that_would_be_ignored_is_refused() {
        let refused = |members: &Members, split: SplitRule| {
            let options = ImportOptions { split, ..ImportOptions::default() };
            imported(members, CompressionMethod::Stored, 1, options).err().unwrap().to_string()
        };
        let without_masks = refused(&benchmark_members(), SplitRule::Auto);
        assert!(without_masks.starts_with("--split-index 1: the files hold no split"), "{without_masks}");
        let drawn = refused(&heterophilous_members(), SplitRule::Fraction { train: 0.5, val: 0.25 });
        assert!(drawn.starts_with("--split-index 1: --split draws a new split"), "{drawn}");
    }

    #[test]
    fn one_test_mask_may_serve_several_splits() {
        let masks = |name: &'static str, shape: &str, data: &[u8]| (name, npy("|b1", false, shape, data));
        let mut members = heterophilous_members();
        members.truncate(3);
        members.push(masks("train_masks", "(4, 2)", &[1, 0, 0, 1, 0, 0, 0, 0]));
        members.push(masks("val_masks", "(4, 2)", &[0, 1, 1, 0, 0, 0, 0, 0]));
        members.push(masks("test_masks", "(4,)", &[0, 0, 1, 1]));
        for (index, expected) in [(0, [1, 2, 3, 3]), (1, [2, 1, 3, 3])] {
            let (_, dataset, _dir) =
                imported(&members, CompressionMethod::Stored, index, ImportOptions::default()).unwrap();
            assert_eq!(dataset.split(), expected);
        }
        assert!(imported(&members, CompressionMethod::Stored, 2, ImportOptions::default()).is_err());
        members.truncate(3);
        for (name, data) in
            [("train_masks", [1, 0, 0, 0]), ("val_masks", [0, 1, 0, 0]), ("test_masks", [0, 0, 1, 1])]
        {
            members.push(masks(name, "(4,)", &data));
        }
        assert!(imported(&members, CompressionMethod::Stored, 1, ImportOptions::default()).is_err());
    }

    #[test]
    fn two_edges_are_two_edges() {
        let members = with(heterophilous_members(), "edges", matrix(2, 2, &[0i32, 1, 2, 3]));
        let (_, dataset, _dir) =
            imported(&members, CompressionMethod::Stored, None, ImportOptions::default()).unwrap();
        assert_eq!(dataset.graph().indices, [1, 0, 3, 2]);
    }

    #[test]
    fn empty_dimensions_cost_nothing() {
        for shape in ["(9999999999999999, 0)", "(0, 9999999999999999)"] {
            let members = with(heterophilous_members(), "node_features", npy("<f4", false, shape, b""));
            assert!(fails(&members).contains("feature rows for 4 nodes"), "{shape}");
        }
    }

    #[test]
    fn auc_is_for_two_classes() {
        let options = || ImportOptions { metric: Some(Metric::Auc), ..ImportOptions::default() };
        let two = heterophilous_members();
        let (report, ..) = imported(&two, CompressionMethod::Stored, None, options()).unwrap();
        assert_eq!(report.manifest.metric, Metric::Auc);
        let three = with(two, "node_labels", list(&[0i64, 1, 2, 1]));
        let error = imported(&three, CompressionMethod::Stored, None, options()).err().unwrap().to_string();
        assert!(error.contains("auc needs two classes"), "{error}");
    }

    #[test]
    fn an_unknown_layout_lists_what_is_there() {
        let error = fails(&[("x", list(&[1i32])), ("y", list(&[1i32]))]);
        assert!(error.contains("its members are x, y") && error.contains("heterophilous"), "{error}");
    }
}
