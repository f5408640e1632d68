//! Datasets in memory against the same datasets on disk, and everything that is refused.

use super::*;
use crate::dataset::LabelView;
use crate::generate::{Spec, make, presets};

/// A path of four nodes, each with two features and one of two classes.
fn path() -> DatasetArrays {
    let graph = GraphArrays::from_edges(4, &[(0, 1), (1, 2), (3, 2)], EdgeOptions::default()).unwrap();
    let features = FeatureArray::f32(2, (0..8).map(|x| x as f32).collect());
    DatasetArrays::new("path", graph, features, Labels::Single(vec![0, 1, 1, -1]), vec![1, 2, 3, 0])
}

/// Returns the contents of `dataset` as arrays.
pub(crate) fn copied(dataset: &Dataset) -> DatasetArrays {
    let (graph, columns) = (dataset.graph(), dataset.features().cols());
    let rows = GraphArrays {
        indptr: graph.indptr.to_vec(),
        indices: graph.indices.to_vec(),
        weights: dataset.edge_weights().map(<[f32]>::to_vec),
        directed: dataset.manifest.directed,
    };
    let features = match dataset.features() {
        StoredFeatures::Dense(all) => match all.as_slice::<f32>() {
            Some(values) => FeatureArray::f32(columns, values.to_vec()),
            None => FeatureArray::f16(columns, super::super::view::<f16>(all).to_vec()),
        },
        StoredFeatures::Sparse(all) => {
            let (indptr, indices) = (all.starts().to_vec(), all.columns().to_vec());
            match all.values::<f32>() {
                Some(values) => FeatureArray::sparse_f32(columns, indptr, indices, values.to_vec()),
                None => {
                    let values = all.values::<f16>().expect("values of one of two types").to_vec();
                    FeatureArray::sparse_f16(columns, indptr, indices, values)
                }
            }
        }
    };
    let labels = match dataset.labels() {
        LabelView::Single(labels) => Labels::Single(labels.to_vec()),
        LabelView::Multi { classes, flags } => Labels::Multi { classes, flags: flags.to_vec() },
    };
    DatasetArrays {
        ids: dataset.ids().unwrap(),
        ..DatasetArrays::new("copy", rows, features, labels, dataset.split().to_vec())
    }
}

#[test]
fn defaults_follow_from_the_labels() {
    let single = Dataset::from_arrays(path()).unwrap();
    assert_eq!((single.manifest.classes, single.manifest.metric), (2, Metric::Accuracy));
    assert_eq!(single.path(), None);
    let flags = Labels::Multi { classes: 3, flags: vec![0; 12] };
    let multi = Dataset::from_arrays(DatasetArrays { labels: flags, ..path() }).unwrap();
    assert_eq!((multi.manifest.classes, multi.manifest.metric), (3, Metric::MicroF1));
    let names: Vec<String> = ["a", "b", "c"].map(String::from).into();
    let named = Dataset::from_arrays(DatasetArrays { class_names: names, ..path() }).unwrap();
    assert_eq!(named.manifest.classes, 3);
    let scored = DatasetArrays { classes: Some(2), metric: Some(Metric::Auc), ..path() };
    assert_eq!(Dataset::from_arrays(scored).unwrap().manifest.metric, Metric::Auc);
}

#[test]
fn edges_are_made_symmetric_sorted_and_unique() {
    let edges = [(2, 0), (0, 2), (2, 0), (1, 1), (1, 0)];
    let graph = GraphArrays::from_edges(3, &edges, EdgeOptions::default()).unwrap();
    assert_eq!((graph.indptr, graph.indices), (vec![0, 2, 3, 4], vec![1, 2, 0, 0]));
    let options = EdgeOptions { directed: true, keep_self_loops: true };
    let graph = GraphArrays::from_edges(3, &edges, options).unwrap();
    assert_eq!((graph.indptr, graph.indices), (vec![0, 2, 3, 4], vec![1, 2, 1, 0]));
    let error = GraphArrays::from_edges(3, &[(0, 1), (1, 3)], options).err().unwrap().to_string();
    assert!(error.starts_with("edges, element 1: node id 3 in a graph of 3 nodes"), "{error}");
}

#[test]
fn a_directory_with_the_same_contents_has_the_same_fingerprint() {
    let folder = tempfile::tempdir().unwrap();
    let small = presets::find("small").unwrap().spec.clone();
    for multi_label in [false, true] {
        let target = folder.path().join(format!("{multi_label}"));
        let spec = Spec { nodes: 50, edges: 200, features: 3, classes: 4, multi_label, ..small.clone() };
        make(&spec, "made", &target, false, &Silent).unwrap();
        let on_disk = Dataset::open(&target).unwrap();
        let arrays = DatasetArrays { classes: Some(4), ..copied(&on_disk) };
        let in_memory = Dataset::from_arrays(arrays).unwrap();
        assert_eq!(in_memory.manifest.fingerprint, on_disk.manifest.fingerprint);
        assert_eq!(in_memory.manifest.files, on_disk.manifest.files);
    }
}

#[test]
fn ids_and_half_precision_are_part_of_the_fingerprint() {
    let fingerprint = |arrays| Dataset::from_arrays(arrays).unwrap().manifest.fingerprint;
    let ids: Vec<String> = ["a", "b", "c", "d"].map(String::from).into();
    let with_ids = Dataset::from_arrays(DatasetArrays { ids: Some(ids.clone()), ..path() }).unwrap();
    assert_eq!(with_ids.ids().unwrap(), Some(ids));
    assert_ne!(with_ids.manifest.fingerprint, fingerprint(path()));
    let half = FeatureArray::f16(2, (0..8).map(|x| f16::from_f32(x as f32)).collect());
    assert_ne!(fingerprint(DatasetArrays { features: half, ..path() }), fingerprint(path()));
}

#[track_caller]
fn refused(arrays: DatasetArrays, message: &str) {
    let found = Dataset::from_arrays(arrays).err().expect("a refusal").to_string();
    assert!(found.starts_with(message), "{found}");
}

#[test]
fn wrong_lengths_are_refused() {
    let graph = |indptr: &[u64]| GraphArrays { indptr: indptr.to_vec(), ..path().graph };
    refused(
        DatasetArrays { graph: graph(&[]), ..path() },
        "dataset \"path\", indptr: 0 row starts where at least 2 are needed",
    );
    refused(
        DatasetArrays { features: FeatureArray::f32(2, vec![0.0; 7]), ..path() },
        "dataset \"path\", features: 7 elements for 4 nodes × 2 columns",
    );
    refused(
        DatasetArrays { features: FeatureArray::f32(0, vec![]), ..path() },
        "dataset \"path\", features: no column",
    );
    refused(
        DatasetArrays { labels: Labels::Single(vec![0; 5]), ..path() },
        "dataset \"path\", labels: 5 elements for 4 nodes",
    );
    refused(
        DatasetArrays { labels: Labels::Multi { classes: 3, flags: vec![0; 11] }, ..path() },
        "dataset \"path\", labels: 11 elements for 4 nodes × 3 columns",
    );
    refused(
        DatasetArrays { labels: Labels::Multi { classes: 0, flags: vec![] }, ..path() },
        "dataset \"path\": multi-label data without a class",
    );
    refused(DatasetArrays { split: vec![1; 3], ..path() }, "dataset \"path\", split: 3 elements for 4 nodes");
    refused(
        DatasetArrays { ids: Some(vec!["a".into()]), ..path() },
        "dataset \"path\", ids: 1 elements for 4 nodes",
    );
}

/// The path with sparse features of three columns.
fn sparse(indptr: &[u64], indices: &[u32], values: &[f32]) -> DatasetArrays {
    let features = FeatureArray::sparse_f32(3, indptr.to_vec(), indices.to_vec(), values.to_vec());
    DatasetArrays { features, ..path() }
}

#[test]
fn sparse_features_are_rows_without_zeros() {
    let dataset = Dataset::from_arrays(sparse(&[0, 2, 2, 3, 3], &[0, 2, 1], &[1.0, 2.0, 3.0])).unwrap();
    let m = &dataset.manifest;
    assert_eq!((m.features, m.feature_values, m.density()), (3, Some(3), 0.25));
    let mut row = [9.0; 3];
    for (v, want) in [[1.0, 0.0, 2.0], [0.0; 3], [0.0, 3.0, 0.0], [0.0; 3]].iter().enumerate() {
        dataset.features().read_row(v, &mut row).unwrap();
        assert_eq!(row, *want, "row {v}");
    }
    let changed = Dataset::from_arrays(sparse(&[0, 2, 2, 3, 3], &[0, 1, 1], &[1.0, 2.0, 3.0])).unwrap();
    assert_ne!(changed.manifest.fingerprint, m.fingerprint);
}

#[test]
fn wrong_sparse_features_are_refused() {
    let start = "dataset \"path\", ";
    for (arrays, problem) in [
        (sparse(&[0, 1, 1, 1], &[0], &[1.0]), "row starts of the features: 4 elements for 4 nodes"),
        (sparse(&[0, 1, 1, 1, 1], &[0], &[]), "values of the features: 0 elements for 1 columns"),
        (
            sparse(&[0, 1, 0, 1, 1], &[0], &[1.0]),
            "row starts of the features, element 2: 0 after 1: row starts may not decrease",
        ),
        (
            sparse(&[0, 1, 1, 1, 2], &[0], &[1.0]),
            "row starts of the features, element 4: 2 where the last row must end at 1",
        ),
        (
            sparse(&[0, 0, 1, 1, 1], &[3], &[1.0]),
            "columns of the features, element 0 (row 1): out-of-range column 3 of 3",
        ),
        (
            sparse(&[0, 1, 3, 3, 3], &[1, 2, 0], &[1.0; 3]),
            "columns of the features, element 2 (row 1): unsorted columns: 0 after 2",
        ),
        (
            sparse(&[0, 1, 3, 3, 3], &[1, 2, 2], &[1.0; 3]),
            "columns of the features, element 2 (row 1): repeated column 2",
        ),
        (
            sparse(&[0, 1, 2, 2, 2], &[1, 2], &[1.0, f32::NAN]),
            "values of the features, element 1 (row 1): NaN where features must be finite",
        ),
    ] {
        refused(arrays, &format!("{start}{problem}"));
    }
}

#[test]
fn weights_of_edges_are_kept_and_wrong_ones_refused() {
    let with = |weights: &[f32], directed: bool| {
        let graph = GraphArrays { weights: Some(weights.to_vec()), directed, ..path().graph };
        DatasetArrays { graph, ..path() }
    };
    let count = path().graph.indices.len();
    let ones = vec![1.0; count];
    let dataset = Dataset::from_arrays(with(&ones, false)).unwrap();
    assert_eq!(dataset.edge_weights(), Some(&ones[..]));
    assert_ne!(dataset.manifest.fingerprint, Dataset::from_arrays(path()).unwrap().manifest.fingerprint);
    let mut wrong = ones.clone();
    wrong[1] = -2.0;
    refused(with(&wrong, true), "dataset \"path\", edge weights, element 1: weight -2: edge weights must be");
    wrong[1] = 3.0;
    assert!(Dataset::from_arrays(with(&wrong, true)).is_ok());
    refused(with(&wrong, false), "dataset \"path\", edge weights, element 1 (node");
    refused(
        with(&ones[1..], false),
        &format!("dataset \"path\", edge weights: {} weights for {count} edges", count - 1),
    );
    let negative = GraphArrays::from_weighted_edges(2, &[(0, 1, 1.0), (1, 0, -1.0)], EdgeOptions::default());
    assert!(negative.err().unwrap().to_string().starts_with("edges, element 1: weight -1"));
}

#[test]
fn wrong_edges_are_refused() {
    let with = |indptr: &[u64], indices: &[u32]| {
        let graph = GraphArrays {
            indptr: indptr.to_vec(),
            indices: indices.to_vec(),
            weights: None,
            directed: false,
        };
        DatasetArrays { graph, ..path() }
    };
    refused(
        with(&[0, 2, 1, 1, 1], &[1]),
        "dataset \"path\", indptr, element 2: 1 after 2: row starts may not decrease",
    );
    refused(
        with(&[0, 1, 1, 1, 1], &[1, 2]),
        "dataset \"path\", indptr, element 4: 1 where the last row must end at 2",
    );
    refused(
        with(&[0, 1, 1, 1, 1], &[4]),
        "dataset \"path\", indices, element 0 (node 0): out-of-range id 4 in a graph of 4 nodes",
    );
    refused(
        with(&[0, 2, 2, 2, 2], &[2, 1]),
        "dataset \"path\", indices, element 1 (node 0): unsorted neighbours",
    );
    refused(
        with(&[0, 2, 2, 2, 2], &[1, 1]),
        "dataset \"path\", indices, element 1 (node 0): repeated neighbour 1",
    );
    refused(
        with(&[0, 1, 1, 1, 1], &[1]),
        "dataset \"path\", indices, node 0: no reverse edge in the row of neighbour 1",
    );
}

#[test]
fn wrong_values_are_refused() {
    let mut features = vec![0.0; 8];
    features[5] = f32::NAN;
    refused(
        DatasetArrays { features: FeatureArray::f32(2, features), ..path() },
        "dataset \"path\", features, row 2, column 1: NaN where features must be finite",
    );
    refused(
        DatasetArrays { labels: Labels::Single(vec![0, 1, -2, 0]), ..path() },
        "dataset \"path\", labels, node 2: label -2",
    );
    refused(
        DatasetArrays { labels: Labels::Single(vec![0, 1, i64::MAX, 0]), ..path() },
        "dataset \"path\", labels, node 2: label 9223372036854775807",
    );
    refused(
        DatasetArrays { classes: Some(1), ..path() },
        "dataset \"path\", labels, node 1: label 1 outside 1 classes",
    );
    refused(
        DatasetArrays {
            classes: Some(4),
            labels: Labels::Multi { classes: 3, flags: vec![0; 12] },
            ..path()
        },
        "dataset \"path\", labels: 3 columns for 4 classes",
    );
    refused(
        DatasetArrays { labels: Labels::Multi { classes: 1, flags: vec![0, 1, 2, 0] }, ..path() },
        "dataset \"path\", labels, node 2, class 0: 2 where 0 or 1 is needed",
    );
    refused(DatasetArrays { split: vec![1, 2, 4, 0], ..path() }, "dataset \"path\", split, node 2: ");
    refused(DatasetArrays { split: vec![1, 2, 3, 1], ..path() }, "dataset \"path\", split, node 3: ");
    refused(DatasetArrays { metric: Some(Metric::Auc), classes: Some(3), ..path() }, "dataset \"path\": auc");
    let ids: Vec<String> = ["a", "b\nc", "d", "e"].map(String::from).into();
    refused(DatasetArrays { ids: Some(ids), ..path() }, "dataset \"path\", ids, node 1: id \"b\\nc\"");
}

#[test]
fn the_locality_order_is_that_of_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("d");
    let small = presets::find("small").unwrap().spec.clone();
    let spec = Spec { nodes: 20_000, edges: 300_000, features: 2, classes: 64, mixing: 0.02, ..small };
    make(&spec, "d", &target, false, &Silent).unwrap();
    let on_disk = Dataset::open(&target).unwrap();
    let in_memory = Dataset::from_arrays(copied(&on_disk)).unwrap();
    let order = on_disk.order().unwrap();
    assert!(order.is_some());
    assert_eq!(in_memory.order().unwrap(), order);
    assert_eq!(in_memory.order().unwrap(), order, "the one that is kept");
}

#[test]
fn elements_are_checked_once() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec { nodes: 50, edges: 200, ..presets::find("demo").unwrap().spec.clone() };
    make(&spec, "small", &folder.path().join("g"), false, &Silent).unwrap();
    let stored = Dataset::open(&folder.path().join("g")).unwrap();
    let passed = |dataset: &Dataset| {
        [&dataset.checked.edges, &dataset.checked.labels].map(|checked| checked.get().is_some())
    };
    assert_eq!(passed(&stored), [false, false]);
    stored.check_edges().unwrap();
    assert_eq!(passed(&stored), [true, false]);
    stored.check_labels().unwrap();
    assert_eq!(passed(&stored), [true, true]);
    assert_eq!(passed(&Dataset::from_arrays(path()).unwrap()), [true, true]);
    // A check that fails is repeated.
    let wrong = Checked::default();
    let check = || crate::dataset::once(&wrong.edges, || Err(Error::input("edges", "wrong")));
    assert!(check().is_err() && check().is_err());
}
