//! Tests of `halograph train --strategy minibatch` and `--strategy split` on ranks, through the binary.

mod common;
#[path = "common/shell.rs"]
mod shell;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use common::{ok, refused};
use shell::shell;

/// Flags of a model that trains quickly, on small batches.
const QUICK: &str = "--hidden 8 --layers 2 --epochs 3 --threads 1 --batch-size 16 --fanout 4,3";
const STRATEGIES: [&str; 2] = ["minibatch", "split"];

/// Returns such flags with a strategy.
fn quick(strategy: &str) -> String {
    format!("{QUICK} --strategy {strategy}")
}

/// Creates a folder with a small dataset `g`.
fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    folder
}

fn json(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(folder, &format!("{line} --json"))).expect("JSON")
}

fn weights(folder: &Path, run: &str) -> Vec<u8> {
    fs::read(folder.join(run).join("model.safetensors")).unwrap()
}

/// Returns the epochs of a run without times.
fn epochs(folder: &Path, run: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(run).join("metrics.jsonl")).unwrap();
    let epoch = |line: &str| {
        let mut epoch: Value = serde_json::from_str(line).unwrap();
        let fields = epoch.as_object_mut().unwrap();
        ["seconds", "evaluation_seconds"].iter().for_each(|key| drop(fields.remove(*key)));
        epoch
    };
    text.lines().map(epoch).collect()
}

#[test]
fn too_little_memory_is_refused_with_key_and_remedy() {
    let folder = small();
    let path = folder.path();
    ok(path, &format!("train g --ranks 2 {} --out kept", quick("split")));
    let cases = [
        ("--batch-memory 1KiB", ["1024 bytes: batches of this run need 1 MiB", "--batch-size or --fanout"]),
        (
            "--batch-memory 16KiB --macrobatch 4",
            ["16384 bytes: macrobatches of 4 batches of this run need 1 MiB", "or a smaller --macrobatch"],
        ),
    ];
    for (strategy, (flags, words)) in STRATEGIES.into_iter().flat_map(|s| cases.map(|case| (s, case))) {
        let quick = format!("{} --cache-input-aggregate=false", quick(strategy));
        for ranks in [2, 3] {
            let message = refused(path, &format!("train g --ranks {ranks} {quick} {flags} --out r"));
            for word in words.into_iter().chain(["train.batch_memory", "give --batch-memory 1MiB or more"]) {
                assert!(message.contains(word), "{flags}: {word:?} is not in {message}");
            }
            assert_eq!(message.matches("error: ").count(), 1, "{message}");
            assert!(!path.join("r").exists(), "{flags}: a run is left");
            // Nor is another run replaced.
            let _ = refused(path, &format!("train g --ranks {ranks} {quick} {flags} --out kept --overwrite"));
            assert!(path.join("kept/model.safetensors").exists(), "{flags}: a run was replaced");
        }
    }
}

#[test]
fn shards_train_like_the_dataset_they_were_cut_from() {
    let folder = small();
    let path = folder.path();
    let one = json(path, &format!("train g {} --out one", quick("minibatch")));
    for parts in [2, 3] {
        ok(path, &format!("partition g -k {parts} --balance edges --balance train -o s{parts} -q"));
    }
    let cases = [
        (2, "--macrobatch 2 --cache-input-aggregate=false"),
        (3, "--cache-input-aggregate --sampler labor --row-cache lru"),
    ];
    for (strategy, (parts, flags)) in STRATEGIES.into_iter().flat_map(|s| cases.map(|case| (s, case))) {
        let quick = quick(strategy);
        let shards = json(path, &format!("train s{parts} {quick} {flags} --out shards --overwrite"));
        assert_eq!((&shards["ranks"], &shards["strategy"]), (&parts.into(), &strategy.into()));
        assert_eq!(shards["batches"]["batches"], one["batches"]["batches"]);
        // `split` fetches no rows with a cached aggregate.
        let fetches = strategy == "minibatch" || parts == 2;
        assert_eq!(shards["fetches"]["fetched_rows"].as_u64().unwrap() > 0, fetches, "{}", shards["fetches"]);
        if strategy == "split" && parts == 2 {
            for count in ["sampled_edges", "computed_nodes"] {
                assert_eq!(shards["batches"][count], one["batches"][count], "{count}");
            }
        }
        let dataset = json(
            path,
            &format!("train g --ranks {parts} --partition metis {quick} {flags} --out dataset --overwrite"),
        );
        assert_eq!(shards["loss_history"], dataset["loss_history"]);
        assert!(weights(path, "shards") == weights(path, "dataset"), "{parts} parts: other weights");
    }
    // With the settings of one process; a dataset on one rank is a single part.
    for (strategy, data) in [("minibatch", "s2"), ("split", "s2"), ("split", "g")] {
        let sampled = format!("{} --cache-input-aggregate=false", quick(strategy));
        ok(path, &format!("train {data} {sampled} --out follower --overwrite -q"));
        let (found, want) = (epochs(path, "follower"), epochs(path, "one"));
        assert_eq!(found.len(), want.len());
        for (got, want) in found.iter().zip(&want) {
            let [got, want] = [got, want].map(|epoch| epoch["loss"].as_f64().unwrap());
            assert!((got - want).abs() <= 1e-4 * want, "{strategy}: loss {got} where one process has {want}");
        }
    }
}

#[test]
fn a_run_interrupted_inside_an_epoch_resumes_bit_identically() {
    let folder = small();
    let path = folder.path();
    // Epochs of 75 steps and more: signals rarely arrive between two of them.
    for (strategy, signal, macrobatch) in [
        ("minibatch", "INT", "--macrobatch 10"),
        ("minibatch", "TERM", ""),
        ("split", "INT", "--macrobatch 7"),
    ] {
        let flags = format!("{} --batch-size 2 --ranks 2 -q", quick(strategy));
        let run = &format!("{strategy}-{signal}");
        let line = format!(
            "$H train g --out {run} {flags} {macrobatch} --epochs 10000000 & p=$!
             for i in $(seq 600); do [ -s {run}/metrics.jsonl ] && break; sleep 0.02; done
             kill -{signal} $p; wait $p"
        );
        let (code, stderr) = shell(path, &line);
        assert_eq!(code, Some(130), "{stderr}");
        assert!(stderr.contains("interrupted after") && stderr.contains("saved. Resume with: "), "{stderr}");
        let trained = epochs(path, run).len() + 2;
        ok(path, &format!("train --resume --out {run} --epochs {trained} -q"));
        ok(path, &format!("train g --out whole --overwrite {flags} --epochs {trained}"));
        assert_eq!(epochs(path, run), epochs(path, "whole"), "{run}");
        assert!(weights(path, run) == weights(path, "whole"), "{run}: other weights");
    }
}

#[test]
fn a_resumed_run_may_exchange_rows_in_another_way() {
    let folder = small();
    let path = folder.path();
    for (strategy, other) in [("minibatch", "--strategy split"), ("split", "--strategy minibatch")] {
        let flags = format!("{} --ranks 3 --macrobatch 4 -q", quick(strategy));
        ok(path, &format!("train g --out whole {flags} --epochs 4 --overwrite"));
        ok(path, &format!("train g --out r {flags} --epochs 2 --overwrite"));
        for refused_flags in ["--batch-size 8", "--fanout 5,5", "--sampler labor", other] {
            let message = refused(path, &format!("train --resume --out r --epochs 4 {refused_flags}"));
            assert!(message.contains("but the run was started with"), "{refused_flags}: {message}");
        }
        let others = "--macrobatch 3 --row-cache lru --batch-memory 64MiB --row-encoding dense";
        ok(path, &format!("train --resume --out r --epochs 4 {others} -q"));
        assert_eq!(epochs(path, "r"), epochs(path, "whole"), "{strategy}");
        assert!(weights(path, "r") == weights(path, "whole"), "{strategy}: other weights");
    }
}
