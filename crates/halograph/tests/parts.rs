//! Tests of training on shards and on ranks of one process, through the binary.

mod common;
#[path = "common/shell.rs"]
mod shell;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use common::{ok, refused};
use shell::shell;

/// Flags of a model that trains quickly.
const QUICK: &str = "--hidden 8 --layers 2 --epochs 4 --threads 1";
/// A model and settings with which boundary rows are kept across epochs.
const STALE: &str =
    "sage --strategy pipelined --staleness 2 --warmup-epochs 1 --smooth gf --checkpoint-seconds 0";

/// Creates a folder with a small dataset `g` and its shards `s`, two parts.
fn parts() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    ok(folder.path(), "partition g -k 2 --method random -o s -q");
    folder
}

/// Returns the names in a folder, including hidden ones.
fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_damaged_part_leaves_no_run() {
    for part in ["part-0000", "part-0001"] {
        let folder = parts();
        let path = folder.path();
        let file = path.join("s").join(part).join("indices.npy");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        for out in ["--out r", "--out deep/er/r", ""] {
            let message = refused(path, &format!("train s {out} {QUICK}"));
            assert!(message.contains(part) && message.contains("indices.npy"), "{message}");
            assert_eq!(entries(path), ["g", "s"], "{out}");
        }
        fs::create_dir(path.join("empty")).unwrap();
        refused(path, &format!("train s --out empty {QUICK}"));
        assert!(entries(&path.join("empty")).is_empty());
        fs::remove_dir_all(path.join("s").join(part)).unwrap();
        assert!(refused(path, &format!("train s --out r {QUICK}")).contains(part));
        assert_eq!(entries(path), ["empty", "g", "s"]);
    }
}

#[test]
fn a_missing_or_wrong_file_of_a_dataset_leaves_no_run() {
    let folder = parts();
    let path = folder.path();
    fs::write(path.join("g/feat.npy"), "nothing").unwrap();
    assert!(refused(path, &format!("train g --ranks 2 --out r {QUICK}")).contains("feat.npy"));
    fs::remove_file(path.join("g/feat.npy")).unwrap();
    assert!(refused(path, &format!("train g --out r {QUICK}")).contains("feat.npy"));
    assert_eq!(entries(path), ["g", "s"]);
}

#[test]
fn messages_fit_the_kind_of_data() {
    let folder = parts();
    let path = folder.path();
    for line in ["data info s", "data check s", "bench s", "partition s -k 2 -o t"] {
        let message = refused(path, line);
        assert!(
            message.contains("folder of shards") && message.contains("train, eval and predict"),
            "{message}"
        );
    }
    ok(path, &format!("train s --out r -q {QUICK}"));
    for line in ["train s/part-0000", "eval r --data s/part-0000", "predict r -o x.npy --data s/part-0000"] {
        let message = refused(path, line);
        assert!(message.contains("the folder above: s"), "{message}");
    }
    for (flags, words) in [
        ("s --partition stream", "--partition: train.partition = \"stream\", but s is in 2 parts"),
        ("s --strategy single", "--strategy: train.strategy = \"single\", but s is in 2 parts"),
        ("s --ranks 3", "2 parts for 3 ranks"),
        ("s --ranks 1", "2 parts for 1 rank\n"),
        ("g --ranks 0", "--ranks: train.ranks: 0: must be at least 1"),
        ("g --ranks 2 --trace s/partition.json", "exists already"),
    ] {
        let message = refused(path, &format!("train {flags} --out new {QUICK}"));
        assert!(message.contains(words), "{flags}: {message}");
    }
    assert_eq!(entries(path), ["g", "r", "s"]);
    assert!(ok(path, "train --help").contains("folder of shards"));
}

#[test]
fn a_shard_of_another_partition_is_named() {
    let folder = parts();
    let path = folder.path();
    ok(path, &format!("train s --out r -q {QUICK}"));
    ok(path, "partition g -k 2 --method random --seed 1 -o t -q");
    fs::remove_dir_all(path.join("s/part-0001")).unwrap();
    fs::rename(path.join("t/part-0001"), path.join("s/part-0001")).unwrap();
    for line in [&format!("train s --out new {QUICK}"), "eval r", "predict r -o x.npy"] {
        let message = refused(path, line);
        assert!(message.contains("s/part-0001: belongs to another partition"), "{message}");
    }
    fs::remove_file(path.join("g/feat.npy")).unwrap();
    let message = refused(path, "train g --out new");
    assert!(message.contains("g/feat.npy: is missing") && message.contains("help:"), "{message}");
    assert!(!path.join("new").exists());
}

#[test]
fn rank_statistics_cover_only_this_process() {
    let folder = parts();
    let path = folder.path();
    let summary = ok(path, &format!("train s --out r {QUICK}"));
    assert!(summary.contains("per epoch") && !summary.contains("since"), "{summary}");
    let summary = ok(path, "train --resume --out r");
    assert!(summary.contains("2 (threads)") && !summary.contains("exposed"), "{summary}");
    let line: Value = serde_json::from_str(&ok(path, "train --resume --out r --json")).unwrap();
    assert_eq!((&line["balance"], &line["compute_seconds"]), (&1.0.into(), &0.0.into()));
    assert!(ok(path, "train --resume --out r --epochs 6").contains("since epoch 4"));
}

#[test]
fn eval_and_predict_accept_threads() {
    let folder = parts();
    let path = folder.path();
    ok(path, &format!("train s --out r -q {QUICK}"));
    assert_eq!(ok(path, "eval r --json --threads 2"), ok(path, "eval r --json"), "threads change no bit");
    for data in ["s", "g"] {
        ok(path, &format!("eval r --data {data} --threads 2"));
        ok(path, &format!("predict r -o {data}.npy --data {data} --threads 2"));
    }
    assert!(refused(path, "eval r --threads 1000000").contains("train.threads"));
}

#[test]
fn a_signal_before_the_first_epoch_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // Large enough that METIS takes seconds.
    ok(path, "data make --nodes 60000 --edges 1200000 --features 8 --classes 3 -o g -q");
    let before = entries(&path.join("g"));
    let commands = ["train g --ranks 16 --out r", "partition g -k 16 -o s"];
    // METIS installs its own handler for SIGTERM.
    for (command, signal) in commands.iter().flat_map(|command| [(command, "INT"), (command, "TERM")]) {
        let line = format!(
            "$H {command} 2> log & p=$!
             for i in $(seq 600); do grep -q METIS log && break; sleep 0.02; done
             kill -{signal} $p; wait $p; code=$?; cat log >&2; rm log; exit $code"
        );
        let (code, stderr) = shell(path, &line);
        assert_eq!(code, Some(130), "{signal} {command}: {stderr}");
        let told: Vec<&str> = stderr.lines().filter(|line| line.contains("interrupted")).collect();
        assert_eq!(told, ["interrupted; nothing was written"], "{signal} {command}: {stderr}");
        assert!(!stderr.contains("METIS returned"), "{signal} {command}: {stderr}");
        assert_eq!(entries(path), ["g"], "{command}");
        assert_eq!(entries(&path.join("g")), before, "{command}");
    }
}

#[test]
fn a_pipelined_run_resumed_with_more_epochs_equals_an_uninterrupted_one() {
    let folder = parts();
    let path = folder.path();
    let train = format!("g --ranks 2 --strategy pipelined -q {QUICK}");
    for (warmup, first) in [(1, 1), (3, 3), (1, 4)] {
        ok(path, &format!("train {train} --warmup-epochs {warmup} --epochs 8 --out whole --overwrite"));
        ok(path, &format!("train {train} --warmup-epochs {warmup} --epochs {first} --out r --overwrite"));
        ok(path, "train --resume --out r --epochs 8 -q");
        let weights = |run: &str| fs::read(path.join(run).join("model.safetensors")).unwrap();
        assert!(weights("whole") == weights("r"), "warm-up {warmup}, first {first}");
    }
    ok(path, &format!("train {train} --cooldown-epochs 1 --epochs 2 --out cool"));
    assert!(refused(path, "train --resume --out cool --epochs 8").contains("--cooldown-epochs"));
}

#[test]
fn predicted_memory_of_ranks_matches_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    ok(path, "data make small -o g -q");
    ok(path, "partition g -k 2 -o s -q");
    let sampled = "sage --strategy minibatch --batch-memory 16MiB";
    let split = "sage --strategy split --cache-input-aggregate=false --batch-memory 16MiB";
    for (data, model) in [
        ("g", "sage"),
        ("g", "gat"),
        ("g", "gcn"),
        ("s", "sage"),
        ("s", "gcnii --layers 8"),
        ("g", STALE),
        ("g", sampled),
        ("s", sampled),
        ("g", split),
    ] {
        let line =
            format!("train {data} --ranks 2 --model {model} --epochs 4 --threads 1 --json --overwrite");
        let line: Value = serde_json::from_str(&ok(path, &format!("{line} --out r"))).unwrap();
        let [predicted, real] =
            ["predicted_peak_bytes", "peak_rss_bytes"].map(|key| line[key].as_f64().unwrap());
        let ratio = predicted / real;
        assert!((0.8..1.8).contains(&ratio), "{data} {model}: {predicted} bytes predicted, {real} used");
    }
}

#[test]
fn a_run_is_resumed_on_its_own_partition_only() {
    let folder = parts();
    let path = folder.path();
    // Round-robin and in halves: parts of equal size.
    for (name, part) in [("even", (|v| v % 2) as fn(u32) -> u32), ("halves", |v| v / 150)] {
        let of: String = (0..300).map(|v| format!("{}\n", part(v))).collect();
        fs::write(path.join(format!("{name}.txt")), of).unwrap();
        ok(path, &format!("partition g -k 2 --assignment {name}.txt -o {name} -q"));
    }
    for flags in ["", "--model sage --strategy pipelined"] {
        ok(path, &format!("train even --out r -q --overwrite {flags} {QUICK}"));
        let before = fs::read(path.join("r/run.json")).unwrap();
        let message = refused(path, "train halves --out r --resume --epochs 6");
        assert!(message.contains("another partition") && message.contains("ckpt-4"), "{message}");
        assert_eq!(fs::read(path.join("r/run.json")).unwrap(), before, "nothing is changed");
        // A copy of the same partition at another place.
        fs::rename(path.join("even"), path.join("moved")).unwrap();
        ok(path, "train moved --out r --resume --epochs 6 -q");
        fs::rename(path.join("moved"), path.join("even")).unwrap();
    }
}
