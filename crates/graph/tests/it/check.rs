//! `check` reports every kind of damage with its position.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_graph::build::{EdgeInput, EdgeList, EdgeOptions, build};
use halograph_graph::dataset::write::{Contents, FeatureLayout, FeatureSource, FeatureType, Labels, write};
use halograph_graph::dataset::{Dataset, Metric, check};
use halograph_graph::import::{ImportFormat, ImportOptions, import};
use halograph_graph::io::npy::{Element, Writer};
use halograph_graph::{Result, Silent};

struct Ones(usize);

impl FeatureSource for Ones {
    fn cols(&self) -> usize {
        3
    }
    fn stream(&self, sink: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        (0..self.0).try_for_each(|_| sink(&[1.0; 3]))
    }
    fn place(&self, row: usize, column: usize) -> String {
        format!("row {row}, column {column}")
    }
}

/// A ring of six nodes with two classes.
fn ring(folder: &Path, multi: bool) -> PathBuf {
    ring_with(folder, multi, &[vec![1, 1, 2, 2, 3, 0]])
}

fn ring_with(folder: &Path, multi: bool, splits: &[Vec<u8>]) -> PathBuf {
    let target = folder.join("ring");
    let edges = (0..6).map(|v| [v, (v + 1) % 6]).collect();
    let source = EdgeInput::Source(Box::new(EdgeList { name: "ring".into(), edges }));
    let (mut csr, _) = build(6, source, EdgeOptions::default(), &Silent).unwrap();
    csr.weights = Some(vec![0.5; 12]);
    let labels = if multi {
        Labels::Multi { classes: 2, flags: vec![0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0] }
    } else {
        Labels::Single(vec![0, 1, 0, 1, 0, -1])
    };
    let ids: Vec<String> = (0..6).map(|v| format!("n{v}")).collect();
    let contents = Contents {
        name: "ring".into(),
        csr: &csr,
        directed: false,
        features: &Ones(6),
        feature_type: FeatureType::F32,
        feature_layout: FeatureLayout::Dense,
        labels: &labels,
        classes: 2,
        class_names: Vec::new(),
        splits,
        ids: Some(&ids),
        metric: Metric::Accuracy,
        source: "test".into(),
    };
    write(&target, false, &contents, &Silent).unwrap();
    target
}

#[test]
fn every_split_is_checked() {
    let splits = [vec![1, 1, 2, 2, 3, 0], vec![3, 2, 1, 1, 1, 0]];
    let faults = |changed: [u8; 12]| {
        let folder = tempfile::tempdir().unwrap();
        let ring = ring_with(folder.path(), false, &splits);
        assert!(check(&ring, &Silent).unwrap().1.is_empty());
        replace(ring.join("splits.npy"), &[2, 6], &changed);
        let (_, faults) = check(&ring, &Silent).unwrap();
        faults.iter().map(|f| f.to_string()).filter(|line| !line.contains("BLAKE3")).collect::<Vec<_>>()
    };
    assert_eq!(
        faults([1, 1, 3, 2, 3, 0, 3, 2, 1, 1, 1, 0]),
        ["splits.npy, split 0, node 2: 3 where split.npy has 2"]
    );
    assert_eq!(
        faults([1, 1, 2, 2, 3, 0, 3, 2, 9, 1, 1, 1]),
        [
            "splits.npy, split 1, node 2: 9 is none of 0 (none), 1 (train), 2 (validation), 3 (test)",
            "splits.npy, split 1, node 5: subset 1 for a node without a label"
        ]
    );
}

/// Creates a ring and damages it; returns the faults that `check` reports, except those of digests.
fn faults_after(multi: bool, damage: impl Fn(&Path)) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let ring = ring(folder.path(), multi);
    damage(&ring);
    let (_, faults) = check(&ring, &Silent).unwrap();
    faults.iter().map(|f| f.to_string()).filter(|line| !line.contains("BLAKE3")).collect()
}

fn replace<T: Element>(path: PathBuf, shape: &[usize], elements: &[T]) {
    fs::remove_file(&path).unwrap();
    let mut writer = Writer::create(&path, shape).unwrap();
    writer.write(elements).unwrap();
    writer.finish().unwrap();
}

/// Returns the neighbour ids of the ring with some elements changed.
fn indices_with(changes: &[(usize, u32)]) -> Vec<u32> {
    let mut ids = vec![1, 5, 0, 2, 1, 3, 2, 4, 3, 5, 0, 4];
    changes.iter().for_each(|&(at, id)| ids[at] = id);
    ids
}

#[test]
fn a_whole_dataset_has_no_fault() {
    assert!(faults_after(false, |_| {}).is_empty());
    assert!(faults_after(true, |_| {}).is_empty());
}

#[test]
fn every_damage_is_reported_with_its_position() {
    type Damage = fn(&Path);
    let cases: &[(&str, Damage)] = &[
        ("indices.npy, element 3 (node 1): out-of-range id 77 in a graph of 6 nodes", |d| {
            replace(d.join("indices.npy"), &[12], &indices_with(&[(3, 77)]))
        }),
        ("indices.npy, element 3 (node 1): out-of-range id -1 in a graph of 6 nodes", |d| {
            let ids: Vec<i32> = indices_with(&[(3, u32::MAX)]).iter().map(|&id| id as i32).collect();
            replace(d.join("indices.npy"), &[12], &ids)
        }),
        ("indices.npy, element 3 (node 1): out-of-range id 4294967295 in a graph of 6 nodes", |d| {
            replace(d.join("indices.npy"), &[12], &indices_with(&[(3, u32::MAX)]))
        }),
        ("indices.npy, element 5 (node 2): unsorted neighbours: 1 after 3", |d| {
            replace(d.join("indices.npy"), &[12], &indices_with(&[(4, 3), (5, 1)]))
        }),
        ("indices.npy, element 5 (node 2): repeated neighbour 1", |d| {
            replace(d.join("indices.npy"), &[12], &indices_with(&[(5, 1)]))
        }),
        (
            "indices.npy, node 2: no reverse edge in the row of neighbour 4, although the graph is undirected",
            |d| replace(d.join("indices.npy"), &[12], &indices_with(&[(5, 4)])),
        ),
        ("edge_weight.npy, element 3: weight NaN: edge weights must be finite and at least 0", |d| {
            let mut weights = [0.5f32; 12];
            weights[3] = f32::NAN;
            replace(d.join("edge_weight.npy"), &[12], &weights)
        }),
        (
            "edge_weight.npy, element 3: weight -1: edge weights must be finite and at least 0 (1 more like this)",
            |d| {
                let mut weights = [0.5f32; 12];
                // The reverse edge, too.
                (weights[3], weights[4]) = (-1.0, -1.0);
                replace(d.join("edge_weight.npy"), &[12], &weights)
            },
        ),
        (
            "edge_weight.npy, element 4 (node 2): weight 2, and 0.5 of the reverse edge in the row of neighbour 1, \
             although the graph is undirected",
            |d| {
                let mut weights = [0.5f32; 12];
                weights[4] = 2.0;
                replace(d.join("edge_weight.npy"), &[12], &weights)
            },
        ),
        ("edge_weight.npy: wrong length: shape [11] instead of [12] as in dataset.json", |d| {
            replace(d.join("edge_weight.npy"), &[11], &[0.5f32; 11])
        }),
        ("feat.npy, row 2, column 1: NaN where features must be finite (1 more like this)", |d| {
            let mut x = [1f32; 18];
            (x[7], x[9]) = (f32::NAN, f32::INFINITY);
            replace(d.join("feat.npy"), &[6, 3], &x)
        }),
        ("label.npy, node 1: label 2 outside 2 classes", |d| {
            replace(d.join("label.npy"), &[6], &[0i64, 2, 0, 1, 0, -1])
        }),
        ("split.npy, node 0: 9 is none of 0 (none), 1 (train), 2 (validation), 3 (test)", |d| {
            replace(d.join("split.npy"), &[6], &[9u8, 1, 2, 2, 3, 0])
        }),
        ("split.npy, node 5: subset 1 for a node without a label", |d| {
            replace(d.join("split.npy"), &[6], &[1u8, 1, 2, 2, 3, 1])
        }),
        ("split.npy: wrong length: shape [5] instead of [6] as in dataset.json", |d| {
            replace(d.join("split.npy"), &[5], &[1u8; 5])
        }),
        ("label.npy: wrong dtype: <f4 where <i8 is needed", |d| {
            replace(d.join("label.npy"), &[6], &[0f32; 6])
        }),
        ("feat.npy: truncated: shape [6, 3] needs 72 bytes, there are 70", |d| {
            let file = fs::OpenOptions::new().write(true).open(d.join("feat.npy")).unwrap();
            file.set_len(128 + 70).unwrap();
        }),
        ("indptr.npy, element 2: 1 after 2: row starts may not decrease", |d| {
            replace(d.join("indptr.npy"), &[7], &[0u64, 2, 1, 6, 8, 10, 12])
        }),
        ("indptr.npy, element 6: 11 where the last row must end at 12", |d| {
            replace(d.join("indptr.npy"), &[7], &[0u64, 2, 4, 6, 8, 10, 11])
        }),
        ("feat.npy: cannot open: No such file or directory (os error 2)", |d| {
            fs::remove_file(d.join("feat.npy")).unwrap()
        }),
        ("ids.txt: 1 lines for 6 nodes", |d| fs::write(d.join("ids.txt"), "n0\n").unwrap()),
        ("dataset.json: the fingerprint does not match the counts and digests in the file", |d| {
            let text = fs::read_to_string(d.join("dataset.json")).unwrap();
            let text = text.replace("\"fingerprint\": \"", "\"fingerprint\": \"0");
            fs::write(d.join("dataset.json"), text).unwrap();
        }),
    ];
    for (expected, damage) in cases {
        assert_eq!(faults_after(false, damage), [*expected]);
    }
}

/// A ring with sparse features: three ones in each row.
fn sparse_ring(folder: &Path) -> PathBuf {
    let target = folder.join("sparse");
    let options = ImportOptions { feature_layout: FeatureLayout::Sparse, ..ImportOptions::default() };
    let format = ImportFormat::Npy { split_index: None };
    import(&format, &ring(folder, false), &target, &options, &Silent).unwrap();
    target
}

#[test]
fn damaged_sparse_features_are_reported_with_their_position() {
    type Damage = fn(&Path);
    let columns = |changes: &[(usize, u32)]| {
        let mut all = [0, 1, 2].repeat(6);
        changes.iter().for_each(|&(at, column)| all[at] = column);
        all
    };
    static COLUMNS: fn(&Path, &[u32]) = |d, columns| replace(d.join("feat_indices.npy"), &[18], columns);
    let faults = |damage: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        let ring = sparse_ring(folder.path());
        damage(&ring);
        let (_, faults) = check(&ring, &Silent).unwrap();
        faults.iter().map(|f| f.to_string()).filter(|line| !line.contains("BLAKE3")).collect::<Vec<_>>()
    };
    assert!(faults(&|_| {}).is_empty());
    for (expected, changes) in [
        (
            "feat_indices.npy, element 4 (row 1): out-of-range column 3 of 3 (1 more like this)",
            &[(4, 3), (7, 9)][..],
        ),
        ("feat_indices.npy, element 5 (row 1): unsorted columns: 0 after 1", &[(5, 0)]),
        ("feat_indices.npy, element 5 (row 1): repeated column 1", &[(5, 1)]),
    ] {
        assert_eq!(faults(&|d| COLUMNS(d, &columns(changes))), [expected]);
    }
    let cases: &[(&str, Damage)] = &[
        ("feat_values.npy, element 7 (row 2): NaN where features must be finite", |d| {
            let mut x = [1f32; 18];
            x[7] = f32::NAN;
            replace(d.join("feat_values.npy"), &[18], &x)
        }),
        ("feat_indptr.npy, element 2: 1 after 3: row starts may not decrease", |d| {
            replace(d.join("feat_indptr.npy"), &[7], &[0u64, 3, 1, 9, 12, 15, 18])
        }),
        ("feat_indptr.npy, element 6: 17 where the last row must end at 18", |d| {
            replace(d.join("feat_indptr.npy"), &[7], &[0u64, 3, 6, 9, 12, 15, 17])
        }),
        ("feat_values.npy: wrong length: shape [17] instead of [18] as in dataset.json", |d| {
            replace(d.join("feat_values.npy"), &[17], &[1f32; 17])
        }),
        ("feat_indices.npy: wrong dtype: <i8 where <u4 or <i4 is needed", |d| {
            replace(d.join("feat_indices.npy"), &[18], &[0i64; 18])
        }),
        ("feat_indptr.npy: cannot open: No such file or directory (os error 2)", |d| {
            fs::remove_file(d.join("feat_indptr.npy")).unwrap()
        }),
    ];
    for (expected, damage) in cases {
        assert_eq!(faults(damage), [*expected]);
    }
}

#[test]
fn a_list_of_files_that_contradicts_the_counts_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let ring = sparse_ring(folder.path());
    let file = ring.join("dataset.json");
    let text = fs::read_to_string(&file).unwrap();
    for (from, to, problem) in [
        ("\"feature_values\": 18,", "", "lists feat_indices.npy, but by its counts the features are dense"),
        ("feat_values.npy", "feat.npy", "lists feat.npy, but by its counts the features are sparse"),
        (
            "\"feature_values\": 18",
            "\"feature_values\": 19",
            "19 stored feature values in 6 rows of 3 columns",
        ),
    ] {
        fs::write(&file, text.replace(from, to)).unwrap();
        let error = Dataset::open(&ring).err().unwrap().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn features_are_stored_sparse_if_most_of_them_are_0() {
    let folder = tempfile::tempdir().unwrap();
    let ring = ring(folder.path(), false);
    let stored = |columns: usize, ones: usize, layout: FeatureLayout, name: &str| {
        let mut x = vec![0f32; 6 * columns];
        x.iter_mut().take(ones).for_each(|x| *x = 1.0);
        replace(ring.join("feat.npy"), &[6, columns], &x);
        let options = ImportOptions { feature_layout: layout, ..ImportOptions::default() };
        let target = folder.path().join(name);
        import(&ImportFormat::Npy { split_index: None }, &ring, &target, &options, &Silent).unwrap();
        let dataset = Dataset::open(&target).unwrap();
        assert_eq!(crate::dense(&dataset), x);
        dataset.manifest.feature_values
    };
    assert_eq!(stored(100, 60, FeatureLayout::Auto, "a"), Some(60));
    assert_eq!(stored(100, 61, FeatureLayout::Auto, "b"), None);
    assert_eq!(stored(100, 61, FeatureLayout::Sparse, "c"), Some(61));
    assert_eq!(stored(100, 60, FeatureLayout::Dense, "d"), None);
    // Few columns are not worth it.
    assert_eq!(stored(10, 1, FeatureLayout::Auto, "e"), None);
    assert_eq!(stored(10, 0, FeatureLayout::Sparse, "f"), Some(0));
}

#[test]
fn multi_label_flags_are_checked() {
    let faults = faults_after(true, |d| {
        replace(d.join("label.npy"), &[6, 2], &[0u8, 1, 1, 3, 1, 1, 0, 0, 0, 1, 1, 0]);
    });
    assert_eq!(faults, ["label.npy, node 1, class 1: 3 where 0 or 1 is needed"]);
}

#[test]
fn a_changed_value_is_detected_by_the_digest() {
    let folder = tempfile::tempdir().unwrap();
    let ring = ring(folder.path(), false);
    replace(ring.join("feat.npy"), &[6, 3], &[2f32; 18]);
    let (_, faults) = check(&ring, &Silent).unwrap();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        faults[0].to_string(),
        "feat.npy: the contents do not match the BLAKE3 digest in dataset.json"
    );
}

#[test]
fn open_refuses_wrong_row_starts() {
    let folder = tempfile::tempdir().unwrap();
    let ring = ring(folder.path(), false);
    replace(ring.join("indptr.npy"), &[7], &[0u64, 2, 1, 6, 8, 10, 12]);
    let error = Dataset::open(&ring).err().unwrap().to_string();
    assert!(error.contains("indptr.npy, element 2: 1 after 2"), "{error}");
}

#[test]
fn a_folder_without_a_manifest_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = check(folder.path(), &Silent).unwrap_err().to_string();
    assert!(error.contains("no dataset.json"), "{error}");
}

#[test]
fn ids_and_arrays_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(&ring(folder.path(), false)).unwrap();
    assert_eq!(dataset.graph().row(0), [1, 5]);
    assert_eq!(dataset.ids().unwrap().unwrap()[5], "n5");
    assert_eq!(dataset.split(), [1, 1, 2, 2, 3, 0]);
}
