//! Tests of `halograph train --strategy minibatch` through the binary.

mod common;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use common::{halograph, ok, refused};

/// Flags of a model of three layers that trains quickly.
const QUICK: &str = "--hidden 8 --epochs 2 --threads 1 --out r";
const MINIBATCH: &str = "--strategy minibatch --batch-size 32";

/// Creates a folder with a small dataset `g`.
fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

/// Trains and returns the line of `--json`.
fn json(folder: &Path, flags: &str) -> Value {
    let line = ok(folder, &format!("train g {QUICK} --overwrite --json {flags}"));
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn bad_settings_are_refused_with_flag_value_and_remedy() {
    let folder = small();
    let path = folder.path();
    let before = names(path);
    let cached = |model: &str| format!("{MINIBATCH} --cache-input-aggregate {model}");
    let cases = [
        (
            format!("{MINIBATCH} --fanout 5,5"),
            vec!["--fanout: train.fanout: 2 fanouts for a model of 3 graph layers", "e.g. --fanout 15,10,5"],
        ),
        (
            format!("{MINIBATCH} --fanout 5"),
            vec!["--fanout: train.fanout: 1 fanout for a model of 3 graph layers", "one fanout per layer"],
        ),
        (
            format!("{MINIBATCH} --layers 2 --fanout 5,5,5"),
            vec!["3 fanouts for a model of 2 graph layers", "e.g. --fanout 15,10\n"],
        ),
        (
            "--strategy minibatch --batch-size 0".into(),
            vec!["--batch-size: train.batch_size: 0: must be at least 1"],
        ),
        (
            "--strategy minibatch --batch-size=-1".into(),
            vec!["--batch-size: train.batch_size: -1: must be a whole number, at least 1"],
        ),
        (
            format!("{MINIBATCH} --ranks 2 --macrobatch 0"),
            vec!["--macrobatch: train.macrobatch: 0: must be at least 1"],
        ),
        (
            format!("{MINIBATCH} --ranks 2 --macrobatch=-1"),
            vec!["--macrobatch: train.macrobatch: -1: must be a whole number, at least 1"],
        ),
        (
            format!("{MINIBATCH} --ranks 2 --batch-memory 12XB"),
            vec!["--batch-memory: train.batch_memory: \"12XB\": must be", "512MiB"],
        ),
        (
            format!("{MINIBATCH} --ranks 2 --batch-memory 0GiB"),
            vec!["--batch-memory: train.batch_memory: 0: must be at least 1 byte"],
        ),
        (
            format!("{MINIBATCH} --ranks 2 --row-cache all"),
            vec!["--row-cache", "'all'", "none, lru, degree, future"],
        ),
        (
            "--strategy split --ranks 2 --row-encoding sparse".into(),
            vec!["--row-encoding", "'sparse'", "dense, nonzero"],
        ),
        (
            "--strategy split --ranks 2 --fanout 5".into(),
            vec!["--fanout: train.fanout: 1 fanout for a model of 3 graph layers", "one fanout per layer"],
        ),
        (
            "--strategy split --ranks 2 --cache-input-aggregate --model gat".into(),
            vec!["--cache-input-aggregate: train.cache_input_aggregate", "model gat", "gcn, sage or gin"],
        ),
        (
            format!("{MINIBATCH} --fanout 0"),
            vec!["--fanout: train.fanout: 0: must be at least 1, or -1 for all neighbours"],
        ),
        (
            format!("{MINIBATCH} --fanout 5,0,5"),
            vec!["--fanout: train.fanout: 0: must be at least 1, or -1 for all neighbours"],
        ),
        (
            format!("{MINIBATCH} --fanout=-2"),
            vec!["--fanout: train.fanout: -2: must be at least 1, or -1 for all neighbours"],
        ),
        (
            format!("{MINIBATCH} --fanout 15,x"),
            vec!["--fanout: train.fanout: \"15,x\": must be a list of whole numbers such as 15,10,5"],
        ),
        (
            format!("{MINIBATCH} --set train.fanout=[5,2.5,5]"),
            vec!["--set: train.fanout: [5, 2.5, 5]: must be a list of whole numbers"],
        ),
        (format!("{MINIBATCH} --sampler random"), vec!["--sampler", "'random'", "neighbor, labor"]),
        (
            cached("--model gat"),
            vec![
                "--cache-input-aggregate: train.cache_input_aggregate",
                "model gat",
                "choose model gcn, sage or gin",
            ],
        ),
        (
            cached("--model gcnii"),
            vec!["--cache-input-aggregate: train.cache_input_aggregate", "model gcnii", "gcn, sage or gin"],
        ),
        (
            cached("--model resgcn"),
            vec!["--cache-input-aggregate: train.cache_input_aggregate", "model resgcn", "gcn, sage or gin"],
        ),
        (
            cached("--set model.input_dropout=0.5"),
            vec!["train.cache_input_aggregate: model.input_dropout = 0.5", "set model.input_dropout to 0"],
        ),
        (
            cached("--set model.project=first"),
            vec!["train.cache_input_aggregate: model.project = \"first\"", "leave out model.project"],
        ),
        (
            "--strategy single --fanout 5,5,5".into(),
            vec!["--fanout: train.fanout: strategy single does not sample", "choose --strategy minibatch"],
        ),
        (
            "--fanout 5,5,5".into(),
            vec!["--fanout: train.fanout: strategy single does not sample", "choose --strategy minibatch"],
        ),
        (
            "--ranks 2 --fanout 5,5,5".into(),
            vec!["--fanout: train.fanout: strategy partition does not sample", "choose --strategy minibatch"],
        ),
        (
            "--strategy single --ranks 2".into(),
            vec![
                "--ranks: train.ranks: 2: must be 1 with train.strategy = \"single\"",
                "choose strategy partition, pipelined, minibatch, split, layers or hybrid",
            ],
        ),
    ];
    for (flags, words) in cases {
        let message = refused(path, &format!("train g {QUICK} {flags}"));
        for word in words {
            assert!(message.contains(word), "{flags}: {word:?} is not in {message}");
        }
        assert_eq!(names(path), before, "{flags}");
    }
}

#[test]
fn mini_batches_of_shards_need_one_rank_per_part() {
    let folder = small();
    let path = folder.path();
    ok(path, "partition g -k 2 --method random -o s -q");
    for (strategy, ranks) in [("minibatch", 1), ("minibatch", 3), ("split", 1), ("split", 3)] {
        let message = refused(path, &format!("train s {QUICK} --strategy {strategy} --ranks {ranks}"));
        assert!(message.contains(&format!("s: 2 parts for {ranks} rank")), "{message}");
        assert!(message.contains("use --ranks 2"), "{message}");
        assert_eq!(names(path), ["g", "s"]);
    }
}

#[test]
fn fanouts_are_read_from_flags_keys_and_files() {
    let folder = small();
    let path = folder.path();
    fs::write(
        path.join("c.toml"),
        "[train]\nstrategy = \"minibatch\"\nbatch_size = 32\nfanout = [5, 5, 5]\n",
    )
    .unwrap();
    for (flags, fanout) in [
        (format!("{MINIBATCH} --fanout -1,-1,-1"), vec![-1, -1, -1]),
        (format!("{MINIBATCH} --fanout=-1,5,-1"), vec![-1, 5, -1]),
        (format!("{MINIBATCH} --fanout 10,5,5"), vec![10, 5, 5]),
        (format!("{MINIBATCH} --layers 1 --fanout 7"), vec![7]),
        (format!("{MINIBATCH} --layers 1 --fanout -1"), vec![-1]),
        (format!("{MINIBATCH} --set train.fanout=[5,5,5]"), vec![5, 5, 5]),
        (format!("{MINIBATCH} --set train.fanout=5,5,5"), vec![5, 5, 5]),
        ("--config c.toml".into(), vec![5, 5, 5]),
        ("--config c.toml --fanout 2,2,2".into(), vec![2, 2, 2]),
        (MINIBATCH.into(), vec![15, 10, 5]),
        (format!("{MINIBATCH} --layers 5"), vec![15, 10, 5, 5, 5]),
        (format!("{MINIBATCH} --sampler labor --cache-input-aggregate --model gcn"), vec![15, 10, 5]),
    ] {
        let line = json(path, &flags);
        assert_eq!(line["strategy"], "minibatch", "{flags}");
        assert_eq!(line["epochs"], 2, "{flags}");
        let run: Value = serde_json::from_slice(&fs::read(path.join("r/run.json")).unwrap()).unwrap();
        assert_eq!(run["config"]["train"]["fanout"], Value::from(fanout), "{flags}");
    }
}

#[test]
fn json_describes_the_batches() {
    let folder = small();
    let path = folder.path();
    let (few, all) = (format!("{MINIBATCH} --fanout 2,2,2"), format!("{MINIBATCH} --fanout -1,-1,-1"));
    let [few, all] = [few, all].map(|flags| json(path, &flags)["batches"].clone());
    for batches in [&few, &all] {
        let count = |key: &str| batches[key].as_u64().unwrap();
        // 2 epochs of the same number of batches.
        assert!(count("batches") > 2 && count("batches") % 2 == 0, "{batches}");
        assert!(count("input_nodes") >= 32 && count("input_nodes") <= 300 * count("batches"), "{batches}");
        for key in ["sampling_seconds", "gather_seconds", "compute_seconds", "wait_seconds"] {
            assert!(batches[key].as_f64().unwrap() >= 0.0, "{key}: {batches}");
        }
    }
    assert_eq!(few["batches"], all["batches"]);
    assert!(few["sampled_edges"].as_u64().unwrap() < all["sampled_edges"].as_u64().unwrap());
    assert!(json(path, "").get("batches").is_none(), "strategy single has none");
}

#[test]
fn settings_of_batches_are_noted_if_nothing_samples() {
    let folder = small();
    for flags in
        ["--batch-size 32", "--sampler labor", "--cache-input-aggregate", "--macrobatch 2", "--row-cache lru"]
    {
        let out = halograph(folder.path(), &format!("train g {QUICK} --overwrite {flags}"));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && stderr.contains("strategy minibatch"), "{flags}: {stderr}");
    }
    for flags in ["", MINIBATCH, "--strategy minibatch --ranks 2", "--strategy split"] {
        let out =
            halograph(folder.path(), &format!("train g {QUICK} --overwrite {flags} --row-encoding dense"));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success() && stderr.contains("strategy split on several ranks"),
            "{flags}: {stderr}"
        );
    }
    let split = "--strategy split --ranks 2 --row-encoding dense --row-cache lru --macrobatch 2";
    let out = halograph(folder.path(), &format!("train g {QUICK} --overwrite {split}"));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && !stderr.contains("strategy"), "{stderr}");
}

#[test]
fn a_run_on_batches_resumes_bit_identically() {
    let folder = small();
    let path = folder.path();
    let flags = format!("{MINIBATCH} --fanout 3,3,3 --hidden 8 --threads 1 -q");
    ok(path, &format!("train g --out whole --epochs 4 {flags}"));
    ok(path, &format!("train g --out r --epochs 2 {flags}"));
    ok(path, "train --resume --out r --epochs 4 --threads 2 -q");
    let weights = |run: &str| fs::read(path.join(run).join("model.safetensors")).unwrap();
    assert!(weights("r") == weights("whole"), "other weights");
    let message = refused(path, "train --resume --out r --epochs 5 --batch-size 16");
    assert!(message.contains("train.batch_size = 16, but the run was started with 32"), "{message}");
}
