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
        ("g --strategy layers --ranks 4", "train.ranks: 4 stage groups for a model of 3 stages"),
        ("g --strategy layers --ranks 2 --stages 1", "--stages: layers.stages: 1: strategy layers has one"),
        ("g --strategy layers --ranks 2 --norm batch", "--norm: model.norm: batch needs all rows at once"),
        ("g --strategy layers --ranks 2 --steps-per-epoch 3", "layers.steps_per_epoch: 3: must divide"),
        ("g --strategy layers --ranks 2 --chunks 0", "--chunks: layers.chunks: 0: must be at least 1"),
        ("g --strategy hybrid --ranks 4", "layers.stages: strategy hybrid needs a number of stage groups"),
        (
            "g --strategy hybrid --ranks 4 --stages 3",
            "--stages: layers.stages: 3: 4 ranks are not a multiple",
        ),
        (
            "g --strategy hybrid --ranks 8 --stages 4",
            "--stages: layers.stages: 4 stage groups for a model of 3",
        ),
        ("g --strategy hybrid --ranks 4 --stages 2 --chunks 3", "layers.chunks: 3: each of 2 parts"),
        ("g --strategy hybrid --ranks 4 --stages 1 --chunks 2", "layers.chunks: 2: each of 4 parts"),
        ("g --ranks 2 --chunks 8", "--chunks: layers.chunks: strategy partition does not split the model"),
        ("g --chunk-order fixed", "--chunk-order: layers.chunk_order: strategy single does not split"),
        ("s --strategy layers", "s: is in 2 parts, but each rank of strategy layers"),
        ("s --strategy layers --ranks 2", "s: is in 2 parts, but each rank of strategy layers"),
        ("s --strategy hybrid --ranks 6 --stages 2", "2 parts for 6 ranks in 2 stage groups of 3"),
    ] {
        let message = refused(path, &format!("train {flags} --out new {QUICK}"));
        assert!(message.contains(words) && message.contains("help: "), "{flags}: {message}");
        assert!(!path.join("new").exists(), "{flags}");
    }
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
    assert_eq!((&facts["parts"], &facts["chunks"]), (&1.into(), &8.into()));
    let groups = facts["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    let share = |key: &str| facts[key].as_f64().unwrap();
    assert!((share("bubble_formula") - 1.0 / 9.0).abs() < 1e-12, "{facts}");
    assert!((share("bubble") + share("exposed_communication") - share("idle")).abs() < 1e-12, "{facts}");
    assert!(share("bubble") > 0.0 && share("idle") < 1.0 && share("imbalance") >= 0.0, "{facts}");
    let seconds = |key: &str| groups.iter().map(|group| group[key].as_f64().unwrap()).sum::<f64>() / 2.0;
    for (whole, part) in [
        ("compute_seconds", seconds("compute_seconds")),
        ("wait_seconds", seconds("bubble_seconds") + seconds("exposed_seconds")),
    ] {
        assert!((layers[whole].as_f64().unwrap() - part).abs() < 1e-9, "{whole}: {layers}");
    }
    let trace = std::fs::read_to_string(path.join("t.json")).unwrap();
    assert!(trace.contains("\"chunk\":7"), "spans name their chunk");
    assert!(
        ["the first chunk", "the first gradients", "other stage groups"]
            .iter()
            .all(|wait| trace.contains(wait))
    );
    ok(path, "report r --trace t.json -o one.html");
    let page = std::fs::read_to_string(path.join("one.html")).unwrap();
    for part in [
        "<h2>Pipeline</h2>",
        "class=\"activations\"",
        "class=\"activation_gradients\"",
        "class=\"bubble\" x=",
        "chunk 7, layer",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The weights are complete: another process scores them.
    let evaluated = summary(path, "eval r --json");
    assert_eq!(evaluated["test"], layers["test"]);
    // As shards.
    let hybrid = format!("train s --strategy hybrid --ranks 4 --stages 2 {model} --out h");
    let text = ok(path, &format!("{hybrid} --json"));
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["parts"].as_array().unwrap().len(), 2);
    let text = ok(path, "train --resume --out h --epochs 6");
    for words in ["on 2 ranks each, 16 chunks", "bubble ", "exposed communication ", "slowest stage group "] {
        assert!(text.contains(words), "{words}: {text}");
    }
    ok(path, "report r h -o page.html");
}

#[test]
fn activations_beyond_the_budget_are_computed_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    let train = |flags: &str| {
        let line = format!(
            "train g --strategy layers --ranks 2 --chunks 4 {QUICK} --json --overwrite --out r --trace t.json {flags}"
        );
        let losses = summary(path, &line)["loss_history"].clone();
        let trace = std::fs::read_to_string(path.join("t.json")).unwrap();
        (losses, trace.matches("\"name\":\"recompute\"").count())
    };
    let (losses, none) = train("");
    assert_eq!(none, 0);
    // Each of two ranks, in each of four epochs, for all chunks but the last.
    assert_eq!(train("--activation-memory 0"), (losses.clone(), 2 * 4 * 3));
    assert_eq!(train("--activation-memory 1GiB"), (losses.clone(), 0));
    let (same, some) = train("--activation-memory 12KiB");
    assert!(same == losses && (1..24).contains(&some), "{some} forwards were run again");
    // The budget does not change what is resumed.
    ok(path, "train --resume --out r --epochs 6 --activation-memory 0 -q");
    let message = refused(path, "train g --strategy layers --ranks 2 --activation-memory much --out new");
    assert!(message.contains("layers.activation_memory: \"much\": must be a number of bytes"), "{message}");
    let message = refused(path, "train g --ranks 2 --activation-memory 1MiB --out new");
    assert!(message.contains("layers.activation_memory: strategy partition does not split"), "{message}");
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
        "resgcn --layers 8 --strategy layers --ranks 2 --activation-memory 0",
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
