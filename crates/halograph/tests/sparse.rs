//! Sparse features through the binary: layouts, conversion, refusals, memory.

mod common;

use std::fs;
use std::path::Path;

use common::{ok, refused};
use halograph_graph::io::npy::{Element, Writer};
use serde_json::Value;

const NODES: usize = 4000;
const FEATURES: usize = 3000;
const ROW: usize = 30;
const QUICK: &str = "--hidden 16 --layers 2 --epochs 2 --threads 2 --overwrite --json --out r";

fn save<T: Element>(folder: &Path, name: &str, shape: &[usize], elements: &[T]) {
    let path = folder.join(name);
    let _ = fs::remove_file(&path);
    let mut writer = Writer::create(&path, shape).unwrap();
    writer.write(elements).unwrap();
    writer.finish().unwrap();
}

/// A folder `x` of plain arrays: a ring of nodes with one word in a hundred.
fn words() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let x = folder.path().join("x");
    fs::create_dir(&x).unwrap();
    let ends: Vec<i64> = (0..NODES).chain((1..=NODES).map(|v| v % NODES)).map(|v| v as i64).collect();
    save(&x, "edge_index.npy", &[2, NODES], &ends);
    save(&x, "label.npy", &[NODES], &(0..NODES).map(|v| (v % 4) as i64).collect::<Vec<_>>());
    let columns =
        (0..NODES * ROW).map(|i| (i % ROW * (FEATURES / ROW) + (i / ROW * 7) % (FEATURES / ROW)) as u32);
    let starts: Vec<u64> = (0..=NODES).map(|v| (v * ROW) as u64).collect();
    save(&x, "feat_indptr.npy", &[NODES + 1], &starts);
    save(&x, "feat_indices.npy", &[NODES * ROW], &columns.collect::<Vec<_>>());
    save(&x, "feat_values.npy", &[NODES * ROW], &vec![1f32; NODES * ROW]);
    folder
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn train(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(folder, &format!("train {line} {QUICK}"))).unwrap()
}

#[test]
fn contradictory_arrays_of_features_are_refused() {
    let folder = words();
    let path = folder.path();
    let x = path.join("x");
    save(&x, "x.npy", &[NODES, 1], &vec![1f32; NODES]);
    let message = refused(path, "data import npy x -o g");
    assert!(
        message.contains("x.npy: dense features beside sparse ones (feat_indptr.npy)\n  help: "),
        "{message}"
    );
    fs::remove_file(x.join("x.npy")).unwrap();
    let mut starts: Vec<u64> = (0..=NODES).map(|v| (v * ROW) as u64).collect();
    starts[NODES] += 7;
    save(&x, "feat_indptr.npy", &[NODES + 1], &starts);
    let message = refused(path, "data import npy x -o g");
    assert!(
        message.contains(&format!("where {} feature values are stored\n  help: ", NODES * ROW)),
        "{message}"
    );
    assert_eq!(entries(path), ["x"]);
}

#[test]
fn layouts_are_chosen_converted_and_described() {
    let folder = words();
    let path = folder.path();
    ok(path, "data import npy x -o auto -q");
    ok(path, "data import npy auto -o dense --features dense -q");
    ok(path, "data import npy dense -o again --features sparse -q");
    ok(path, "data import npy auto -o half --features f16 -q");
    ok(path, "data import npy auto -o half_too --feature-type f16 -q");
    assert!(entries(&path.join("auto")).contains(&"feat_indptr.npy".into()));
    assert!(path.join("dense/feat.npy").exists() && !path.join("dense/feat_values.npy").exists());
    let info = |name: &str| ok(path, &format!("data info {name}"));
    let features =
        |name: &str| info(name).lines().find(|line| line.starts_with("features")).unwrap().to_string();
    assert!(
        features("auto").ends_with("as f32, sparse: 120,000 values stored, 1.00 %"),
        "{}",
        features("auto")
    );
    assert!(features("half").contains("as f16, sparse"), "{}", features("half"));
    assert!(features("dense").ends_with("as f32"), "{}", features("dense"));
    let fingerprint =
        |name: &str| info(name).lines().find(|l| l.starts_with("fingerprint")).unwrap().to_string();
    assert_eq!(fingerprint("auto"), fingerprint("again"));
    assert_eq!(fingerprint("half"), fingerprint("half_too"));
    for name in ["auto", "dense", "half"] {
        assert!(ok(path, &format!("data check {name}")).contains("no fault found"));
    }
    let message = refused(path, "data import npy auto -o no --features f16 --feature-type f32");
    assert!(message.contains("--features: f16 besides --feature-type f32"), "{message}");
}

#[test]
fn sparse_and_dense_features_train_alike_and_sparse_ones_take_less_memory() {
    let folder = words();
    let path = folder.path();
    ok(path, "data import npy x -o sparse -q");
    ok(path, "data import npy x -o dense --features dense -q");
    ok(path, "partition sparse -k 2 -o shards -q");
    let dense_bytes = (4 * NODES * FEATURES) as f64;
    for (flags, shards) in [
        ("", true),
        ("--model gcn --set model.input_dropout=0.2 --dropout 0.3", true),
        ("--model gcnii --dropout 0.3", true),
        ("--strategy minibatch --batch-size 64 --ranks 1", false),
    ] {
        let of = |data: &str, more: &str| train(path, &format!("{data} {flags} --precision f64 {more}"));
        let (dense, sparse) = (of("dense", ""), of("sparse", ""));
        let mut runs = vec![sparse];
        if shards {
            runs.push(of("shards", "--ranks 2"));
        }
        for run in runs {
            let [a, b] = [&dense, &run].map(|line| line["loss"].as_f64().unwrap());
            assert!((a - b).abs() <= 1e-9 * a, "{flags}: {a} and {b}");
            let [predicted, real] =
                ["predicted_peak_bytes", "peak_rss_bytes"].map(|key| run[key].as_f64().unwrap());
            let noise = 20.0 * (1 << 20) as f64;
            assert!(
                (predicted - real).abs() <= 0.3 * real + noise,
                "{flags}: {predicted} predicted, {real} used"
            );
            let saved = dense["predicted_peak_bytes"].as_f64().unwrap() - predicted;
            assert!(saved > dense_bytes, "{flags}: {saved} bytes less than dense");
        }
    }
}

#[test]
fn bad_sparse_input_is_named_and_leaves_nothing_behind() {
    let folder = words();
    let path = folder.path();
    let mut columns: Vec<u32> = (0..NODES * ROW).map(|i| (i % ROW) as u32).collect();
    // Nothing states the number of columns: no row may be read as a billion of them.
    for column in [u32::MAX, 1 << 30] {
        columns[ROW + 2] = column;
        save(&path.join("x"), "feat_indices.npy", &[NODES * ROW], &columns);
        let message = refused(path, "data import npy x -o g");
        assert!(
            message.contains(&format!("feat_indices.npy, element 32: feature column {column} of 1048576")),
            "{message}"
        );
    }
    save(&path.join("x"), "feat_indices.npy", &[7], &columns[..7]);
    assert!(refused(path, "data import npy x -o g").contains("120000 values for 7 column ids"));
    columns[ROW + 2] = 2;
    save(&path.join("x"), "feat_indices.npy", &[NODES * ROW], &columns);
    let mut values = vec![1f32; NODES * ROW];
    values[5] = f32::NAN;
    save(&path.join("x"), "feat_values.npy", &[NODES * ROW], &values);
    assert!(refused(path, "data import npy x -o g").contains("row 0, column 5"));
    assert_eq!(entries(path), ["x"]);

    values[5] = 1.0;
    save(&path.join("x"), "feat_values.npy", &[NODES * ROW], &values);
    ok(path, "data import npy x -o g --features sparse -q");
    for (at, column, problem) in
        [(33, 900, "out-of-range column 900"), (34, 3, "repeated column 3"), (34, 1, "unsorted columns")]
    {
        let mut damaged = columns.clone();
        damaged[at] = column;
        save(&path.join("g"), "feat_indices.npy", &[NODES * ROW], &damaged);
        for ranks in [1, 2] {
            let message =
                refused(path, &format!("train g {QUICK} --ranks {ranks} --set train.partition=\"stream\""));
            assert!(
                message.contains("feat_indices.npy, element 3") && message.contains(problem),
                "{message}"
            );
        }
        let out = common::halograph(path, "data check g");
        assert!(String::from_utf8_lossy(&out.stdout).contains(problem) && out.status.code() == Some(2));
    }
    assert_eq!(entries(path), ["g", "x"]);
}
