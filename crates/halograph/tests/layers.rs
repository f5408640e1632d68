//! Strategies `layers` and `hybrid` through the binary.

mod common;

use std::path::Path;

use serde_json::Value;

use common::{ok, refused};

/// Flags of a model that trains quickly.
const QUICK: &str = "--hidden 8 --epochs 4 --threads 1";

fn summary(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(folder, line)).unwrap()
}

#[test]
fn what_cannot_run_is_refused_with_key_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    ok(path, "partition g -k 2 --method random -o s -q");
    for (flags, words) in [
        ("g --strategy layers", "train.ranks: 1: strategy layers needs 2 or more ranks"),
        ("g --strategy layers --ranks 4", "train.ranks: 4 groups for a model of 3 stages"),
        ("g --strategy layers --ranks 2 --stages 1", "--stages: layers.stages: 1: strategy layers has one"),
        ("g --strategy layers --ranks 2 --norm batch", "--norm: model.norm: batch needs all rows at once"),
        ("g --strategy layers --ranks 2 --steps-per-epoch 3", "layers.steps_per_epoch: 3: must divide"),
        ("g --strategy hybrid --ranks 4", "layers.stages: strategy hybrid needs a number of stages"),
        (
            "g --strategy hybrid --ranks 4 --stages 3",
            "--stages: layers.stages: 3: 4 ranks are not a multiple",
        ),
        ("g --strategy hybrid --ranks 8 --stages 4", "--stages: layers.stages: 4 groups for a model of 3"),
        ("g --strategy hybrid --ranks 4 --stages 2 --chunks 3", "layers.chunks: 3: each of 2 ways"),
        ("g --strategy hybrid --ranks 4 --stages 1 --chunks 2", "layers.chunks: 2: each of 4 ways"),
        ("g --ranks 2 --chunks 8", "--chunks: layers.chunks: strategy partition does not split the model"),
        ("g --chunk-order fixed", "--chunk-order: layers.chunk_order: strategy single does not split"),
        ("s --strategy layers", "but s is in 2 parts"),
        ("s --strategy layers --ranks 2", "but s is in 2 parts"),
        ("s --strategy hybrid --ranks 6 --stages 2", "2 parts for 6 ranks in 2 groups of 3"),
    ] {
        let message = refused(path, &format!("train {flags} --out new {QUICK}"));
        assert!(message.contains(words) && message.contains("help: "), "{flags}: {message}");
        assert!(!path.join("new").exists(), "{flags}");
    }
    let message = refused(path, "train g --strategy layers --ranks 2 --chunks 0 --out new");
    assert!(message.contains("--chunks: layers.chunks: 0: must be at least 1"), "{message}");
}

#[test]
fn runs_of_stages_are_complete_and_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    ok(path, "partition g -k 2 -o s -q");
    let model = format!("--model gcnii --layers 4 {QUICK}");
    let layers =
        summary(path, &format!("train g --strategy layers --ranks 2 {model} --out r --json --trace t.json"));
    // One part: there is nothing to partition, nor to store beside the two parts.
    let mut files = std::fs::read_dir(path.join("g")).unwrap().flatten();
    assert!(files.all(|file| !file.file_name().to_string_lossy().ends_with("-1.npy")));
    let facts = &layers["pipeline"];
    assert_eq!((&facts["ways"], &facts["chunks"]), (&1.into(), &8.into()));
    assert_eq!(facts["stages"].as_array().unwrap().len(), 2);
    assert!((facts["bubble"].as_f64().unwrap() - 1.0 / 9.0).abs() < 1e-12, "{facts}");
    let trace = std::fs::read_to_string(path.join("t.json")).unwrap();
    assert!(trace.contains("\"chunk\":7"), "spans name their chunk");
    // The weights are complete: another process scores them.
    let evaluated = summary(path, "eval r --json");
    assert_eq!(evaluated["test"], layers["test"]);
    // A part per way, as shards.
    let hybrid = format!("train s --strategy hybrid --ranks 4 --stages 2 {model} --out h");
    let text = ok(path, &format!("{hybrid} --json"));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["parts"].as_array().unwrap().len(), 2);
    ok(path, "train --resume --out h --epochs 6 -q");
    ok(path, "report r h -o page.html");
}

#[test]
fn predicted_memory_matches_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make small -o g -q");
    let runs = [
        "sage --strategy layers --ranks 2",
        "gcnii --layers 8 --strategy layers --ranks 2 --chunks 1",
        "gcnii --layers 8 --strategy layers --ranks 2 --history-epochs 3",
        "gat --strategy layers --ranks 2 --chunks 4",
        "resgcn --layers 6 --strategy hybrid --ranks 4 --stages 2",
    ];
    let ratio = |flags: &str| {
        let line = summary(
            path,
            &format!("train g --model {flags} --epochs 4 --threads 1 --json --overwrite --out r"),
        );
        let [predicted, real] =
            ["predicted_peak_bytes", "peak_rss_bytes"].map(|key| line[key].as_f64().unwrap());
        predicted / real
    };
    let ratios = runs.map(|flags| (flags, ratio(flags)));
    assert!(ratios.iter().all(|(_, ratio)| (0.9..1.6).contains(ratio)), "predicted / used: {ratios:?}");
}
