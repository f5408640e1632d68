//! Tests of `halograph train --strategy minibatch` on ranks, through the binary.

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
const QUICK: &str =
    "--hidden 8 --layers 2 --epochs 3 --threads 1 --strategy minibatch --batch-size 16 --fanout 4,3";

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
    ok(path, &format!("train g --ranks 2 {QUICK} --out kept"));
    for (flags, words) in [
        ("--batch-memory 1KiB", ["1024 bytes: batches of this run need 1 MiB", "--batch-size or --fanout"]),
        (
            "--batch-memory 16KiB --macrobatch 4",
            ["16384 bytes: macrobatches of 4 batches of this run need 1 MiB", "or a smaller --macrobatch"],
        ),
    ] {
        for ranks in [2, 3] {
            let message = refused(path, &format!("train g --ranks {ranks} {QUICK} {flags} --out r"));
            for word in words.into_iter().chain(["train.batch_memory", "give --batch-memory 1MiB or more"]) {
                assert!(message.contains(word), "{flags}: {word:?} is not in {message}");
            }
            assert_eq!(message.matches("error: ").count(), 1, "{message}");
            assert!(!path.join("r").exists(), "{flags}: a run is left");
            // Nor is another run replaced.
            let _ = refused(path, &format!("train g --ranks {ranks} {QUICK} {flags} --out kept --overwrite"));
            assert!(path.join("kept/model.safetensors").exists(), "{flags}: a run was replaced");
        }
    }
}

#[test]
fn shards_train_like_the_dataset_they_were_cut_from() {
    let folder = small();
    let path = folder.path();
    let one = json(path, &format!("train g {QUICK} --out one"));
    for (parts, flags) in
        [(2, "--macrobatch 2"), (3, "--cache-input-aggregate --sampler labor --row-cache lru")]
    {
        ok(path, &format!("partition g -k {parts} --balance edges --balance train -o s{parts} -q"));
        let shards = json(path, &format!("train s{parts} {QUICK} {flags} --out shards --overwrite"));
        assert_eq!((&shards["ranks"], &shards["strategy"]), (&parts.into(), &"minibatch".into()));
        assert_eq!(shards["batches"]["batches"], one["batches"]["batches"]);
        assert!(shards["fetches"]["fetched_rows"].as_u64().unwrap() > 0, "{}", shards["fetches"]);
        let dataset =
            json(path, &format!("train g --ranks {parts} {QUICK} {flags} --out dataset --overwrite"));
        assert_eq!(shards["loss_history"], dataset["loss_history"]);
        assert!(weights(path, "shards") == weights(path, "dataset"), "{parts} parts: other weights");
    }
    // With the settings of one process.
    ok(path, &format!("train s2 {QUICK} --out shards --overwrite -q"));
    for (got, want) in epochs(path, "shards").iter().zip(epochs(path, "one")) {
        let [got, want] = [got, &want].map(|epoch| epoch["loss"].as_f64().unwrap());
        assert!((got - want).abs() <= 1e-4 * want, "loss {got} where one process has {want}");
    }
}

#[test]
fn a_run_interrupted_inside_an_epoch_resumes_bit_identically() {
    let folder = small();
    let path = folder.path();
    // Epochs of 75 steps and more: signals rarely arrive between two of them.
    let flags = format!("{QUICK} --batch-size 2 --ranks 2 -q");
    for (signal, macrobatch) in [("INT", "--macrobatch 10"), ("TERM", "")] {
        let line = format!(
            "$H train g --out {signal} {flags} {macrobatch} --epochs 10000000 & p=$!
             for i in $(seq 600); do [ -s {signal}/metrics.jsonl ] && break; sleep 0.02; done
             kill -{signal} $p; wait $p"
        );
        let (code, stderr) = shell(path, &line);
        assert_eq!(code, Some(130), "{stderr}");
        assert!(stderr.contains("interrupted after") && stderr.contains("saved. Resume with: "), "{stderr}");
        let trained = epochs(path, signal).len() + 2;
        ok(path, &format!("train --resume --out {signal} --epochs {trained} -q"));
        ok(path, &format!("train g --out whole --overwrite {flags} --epochs {trained}"));
        assert_eq!(epochs(path, signal), epochs(path, "whole"), "{signal}");
        assert!(weights(path, signal) == weights(path, "whole"), "{signal}: other weights");
    }
}
