//! Datasets with several splits: import, training, evaluation, shards, sweeps.

mod common;

use std::fs;
use std::path::Path;

use halograph::graph::Dataset;
use halograph::graph::io::npy::{Array, Writer};
use serde_json::Value;
use tempfile::TempDir;

use common::{ok, refused};

const NODES: usize = 200;
const SPLITS: usize = 3;
const QUICK: &str = "--hidden 8 --layers 2 --epochs 3 --threads 1 -q";

/// The subset of a node in a split; the splits are rotations of each other.
fn subset(node: usize, split: usize) -> u8 {
    [1, 1, 1, 2, 3, 3][(node + 2 * split) % 6]
}

fn split(index: usize) -> Vec<u8> {
    (0..NODES).map(|v| subset(v, index)).collect()
}

fn write<T: halograph::graph::io::npy::Element>(path: &Path, shape: &[usize], values: &[T]) {
    let _ = fs::remove_file(path);
    let mut writer = Writer::create(path, shape).unwrap();
    writer.write(values).unwrap();
    writer.finish().unwrap();
}

/// Creates a folder with the arrays `a` of a graph with three splits, as masks, and the dataset `g`.
fn with_splits() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make --nodes 200 --edges 1600 --features 8 --classes 3 -o made -q");
    fs::create_dir(path.join("a")).unwrap();
    for file in ["indptr.npy", "indices.npy", "feat.npy", "label.npy"] {
        fs::copy(path.join("made").join(file), path.join("a").join(file)).unwrap();
    }
    fs::remove_dir_all(path.join("made")).unwrap();
    for (part, mask) in [(1, "train_mask.npy"), (2, "val_mask.npy"), (3, "test_mask.npy")] {
        let flag = |at: usize| u8::from(subset(at / SPLITS, at % SPLITS) == part);
        let flags: Vec<u8> = (0..NODES * SPLITS).map(flag).collect();
        write(&path.join("a").join(mask), &[NODES, SPLITS], &flags);
    }
    ok(path, "data import npy a -o g -q");
    folder
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn weights(path: &Path, run: &str) -> Vec<u8> {
    fs::read(path.join(run).join("model.safetensors")).unwrap()
}

#[test]
fn one_import_keeps_all_splits() {
    let folder = with_splits();
    let path = folder.path();
    let dataset = Dataset::open(&path.join("g")).unwrap();
    assert_eq!(dataset.manifest.splits, SPLITS as u64);
    for index in 0..SPLITS {
        assert_eq!(dataset.with_split(index).unwrap().split(), split(index));
    }
    assert_eq!(Array::open(&path.join("g/splits.npy")).unwrap().header.shape, [SPLITS, NODES]);
    assert!(ok(path, "data check g").contains("no fault found"));
    assert!(ok(path, "data info g").contains("(the first of 3)"));
    // A dataset imports back with all splits.
    ok(path, "data import npy g -o copy -q");
    let fingerprint = |dir: &str| json(&ok(path, &format!("data info {dir} --json")))["manifest"].clone();
    assert_eq!(fingerprint("g")["fingerprint"], fingerprint("copy")["fingerprint"]);
    ok(path, "data import npy g --split-index 2 -o one -q");
    assert_eq!(Dataset::open(&path.join("one")).unwrap().split(), split(2));
    assert!(refused(path, "data import npy g --split-index 3 -o x").contains("no split 3: there are 3"));
    // A changed first split contradicts the others.
    let mut changed = split(0);
    changed[5] = 0;
    write(&path.join("copy/split.npy"), &[NODES], &changed);
    let message = refused(path, "data import npy copy -o x");
    assert!(message.contains("splits.npy, node 5: its first split is not that of split.npy"), "{message}");
    assert!(message.contains("remove splits.npy") && !path.join("x").exists(), "{message}");
}

#[test]
fn a_run_trains_and_is_scored_on_its_split() {
    let folder = with_splits();
    let path = folder.path();
    ok(path, &format!("train g --split-index 2 --out r {QUICK}"));
    assert_eq!(
        json(&fs::read_to_string(path.join("r/run.json")).unwrap())["config"]["data"]["split_index"],
        2
    );
    // The same as a dataset with only that split.
    ok(path, "data import npy g --split-index 2 -o one -q");
    ok(path, &format!("train one --out s {QUICK}"));
    assert!(weights(path, "r") == weights(path, "s"));
    let scores = |line: &str| {
        let mut scores = json(&ok(path, line));
        scores.as_object_mut().unwrap().retain(|key, _| ["train", "val", "test"].contains(&key.as_str()));
        scores
    };
    assert_eq!(scores("eval r --json"), scores("eval s --json"));
    assert_eq!(scores("eval r --data one --json"), scores("eval s --json"));
    let test = ok(path, "predict r --split test --output classes -o -");
    let ids: Vec<usize> =
        test.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(ids, (0..NODES).filter(|&v| subset(v, 2) == 3).collect::<Vec<_>>());
    // Another split is another run.
    ok(path, &format!("train g --out first {QUICK}"));
    assert!(weights(path, "r") != weights(path, "first"));
    let message = refused(path, "train --resume -o r --split-index 1 --epochs 9");
    assert!(message.contains("data.split_index = 1, but the run was started with 2"), "{message}");
    ok(path, "train --resume -o r --epochs 6 -q");
    ok(path, &format!("train one --out whole {QUICK} --epochs 6"));
    assert!(weights(path, "r") == weights(path, "whole"), "a resumed run keeps its split");
    for line in [
        "train g --split-index 3 --out x",
        "train --split-index 1 --out x",
        "partition g -k 2 --split-index 3 -o x",
    ] {
        let message = refused(path, line);
        assert!(message.contains("no split ") && message.contains("--split-index"), "{line}: {message}");
    }
    assert!(refused(path, "train g --split-index -1 --out x").contains("0 or more"));
    assert!(!path.join("x").exists());
}

#[test]
fn ranks_and_shards_have_the_split_of_the_run() {
    let folder = with_splits();
    let path = folder.path();
    let ranks = "--ranks 2 --partition random";
    ok(path, &format!("train g --split-index 1 --out r {ranks} {QUICK}"));
    ok(path, "data import npy g --split-index 1 -o one -q");
    ok(path, &format!("train one --out s {ranks} {QUICK}"));
    assert!(weights(path, "r") == weights(path, "s"));
    ok(path, "partition g -k 2 --method random --split-index 1 -o shards -q");
    ok(path, &format!("train shards --out t {QUICK}"));
    assert!(weights(path, "r") == weights(path, "t"), "shards imply their split");
    assert_eq!(
        json(&fs::read_to_string(path.join("t/run.json")).unwrap())["config"]["data"]["split_index"],
        1
    );
    let message = refused(path, "train shards --split-index 2 --out x");
    assert!(message.contains("data.split_index = 2, but the shards in shards have split 1"), "{message}");
    ok(path, &format!("train g --out first {QUICK}"));
    let message = refused(path, "eval first --data shards");
    assert!(message.contains("shards of split 1 where split 0 is needed"), "{message}");
    ok(path, "eval t --data g -q");
    // Partitions that balance training nodes depend on the split: each is stored under a name of its own.
    for index in [0, 2] {
        ok(path, &format!("partition g -k 2 --balance train --split-index {index} -o p{index} -q"));
    }
    for name in ["partition-metis-volume-train-2.npy", "partition-metis-volume-train-2-split2.npy"] {
        assert!(path.join("g").join(name).exists(), "{name}");
    }
    assert!(ok(path, "data check g").contains("no fault found"));
}

#[test]
fn a_sweep_over_splits_has_one_row() {
    let folder = with_splits();
    let path = folder.path();
    let sweep = json(&ok(
        path,
        &format!("sweep g --grid split_index=0,1,2 -o sweep {} --json", QUICK.replace(" -q", "")),
    ));
    assert_eq!((sweep["cases"].as_array().unwrap().len(), &sweep["cases"][0]["runs"]), (1, &3.into()));
    let tests: Vec<f64> = (0..3).map(|k| sweep["runs"][k]["test"].as_f64().unwrap()).collect();
    let mean = tests.iter().sum::<f64>() / 3.0;
    assert!((sweep["cases"][0]["test"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12, "{sweep}");
    assert!(path.join("sweep/split_index=2_seed=0/run.json").exists());
}
