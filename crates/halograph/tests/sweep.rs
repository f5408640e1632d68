//! Tests of many runs: `halograph sweep`, `halograph train --seeds` and `halograph runs`.

mod common;
#[path = "common/shell.rs"]
mod shell;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use common::{ok, refused};
use shell::shell;

const QUICK: &str = "--hidden 4 --layers 2 --epochs 3 --threads 1";

fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let size = "--nodes 200 --edges 800 --features 6 --classes 3";
    ok(folder.path(), &format!("data make {size} -o g -q"));
    folder
}

fn json(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&ok(folder, line)).unwrap()
}

#[test]
fn a_sweep_trains_all_combinations_and_continues() {
    let folder = small();
    let path = folder.path();
    let line =
        format!("sweep g {QUICK} --grid lr=0.01,0.1 --grid model.dropout=0,0.5 --seeds 2 --jobs 2 -o s");
    let found = json(path, &format!("{line} --json"));
    assert_eq!((found["cases"].as_array().unwrap().len(), found["runs"].as_array().unwrap().len()), (4, 8));
    let best: Vec<f64> =
        found["cases"].as_array().unwrap().iter().map(|c| c["val"]["mean"].as_f64().unwrap()).collect();
    assert!(best.is_sorted_by(|one, next| one >= next), "{best:?}");
    // Each run is what `train` makes of its settings.
    let run = path.join("s/lr=0.1_dropout=0_seed=1");
    let one = json(path, &format!("train g {QUICK} --lr 0.1 --dropout 0 --seed 1 -o one --json"));
    let of_sweep =
        found["runs"].as_array().unwrap().iter().find(|r| r["run"] == "s/lr=0.1_dropout=0_seed=1").unwrap();
    assert_eq!((&of_sweep["val"], &of_sweep["test"]), (&one["val"], &one["test"]));
    let weights = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(weights(&run) == weights(&path.join("one")), "other weights");
    // Runs that ended are not trained again; one that is missing is.
    fs::remove_dir_all(&run).unwrap();
    let kept = fs::metadata(path.join("s/lr=0.01_dropout=0_seed=0/run.json")).unwrap().modified().unwrap();
    let again = json(path, &format!("{line} --json"));
    assert_eq!((&again["runs"], &again["failed"]), (&found["runs"], &found["failed"]));
    assert!(run.join("run.json").exists());
    let after = fs::metadata(path.join("s/lr=0.01_dropout=0_seed=0/run.json")).unwrap().modified().unwrap();
    assert_eq!(kept, after);
    // Other settings do not mix with those runs.
    let (code, stderr) = shell(
        path,
        &format!("$H {} --hidden 8 2>&1 >/dev/null | tail -n 2 >&2; exit ${{PIPESTATUS[0]}}", line),
    );
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("runs failed"), "{stderr}");
}

#[test]
fn seeds_are_trained_and_summarised() {
    let folder = small();
    let path = folder.path();
    let table = ok(path, &format!("train g {QUICK} --seeds 3 --seed 5 -o seeds -q --json"));
    let found: Value = serde_json::from_str(&table).unwrap();
    let tests: Vec<f64> =
        found["runs"].as_array().unwrap().iter().map(|r| r["test"].as_f64().unwrap()).collect();
    let mean = tests.iter().sum::<f64>() / 3.0;
    assert!((found["cases"][0]["test"]["mean"].as_f64().unwrap() - mean).abs() < 1e-12);
    assert!(path.join("seeds/seed=7/run.json").exists());
    assert!(ok(path, &format!("train g {QUICK} --seeds 3 --seed 5 -o seeds")).contains(" ± "));
    // Without a folder, one is made.
    ok(path, &format!("train g {QUICK} --seeds 2 -q"));
    let made: Vec<_> = fs::read_dir(path.join("runs")).unwrap().collect();
    assert_eq!(made.len(), 1);
}

#[test]
fn runs_are_listed_with_their_scores() {
    let folder = small();
    let path = folder.path();
    for (name, more) in [("a", ""), ("sub/b", "--ranks 2")] {
        ok(path, &format!("train g {QUICK} {more} -o runs/{name} -q"));
    }
    let table = ok(path, "runs");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(
        lines[1].starts_with("a ") && lines[1].contains("sage") && lines[1].ends_with("finished"),
        "{table}"
    );
    assert!(lines[2].starts_with("sub/b ") && lines[2].contains("partition × 2"), "{table}");
    let sorted = ok(path, "runs runs --sort val --json");
    let scores: Vec<f64> = sorted
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["val"].as_f64().unwrap())
        .collect();
    assert!(scores.len() == 2 && scores[0] >= scores[1]);
    // A damaged run is named, and the others are listed.
    fs::write(path.join("runs/a/run.json"), r#"{"format": "halograph-run", "version": 1}"#).unwrap();
    let (code, stderr) = shell(path, "$H runs > list");
    assert!(code == Some(0) && stderr.contains("runs/a"), "{stderr}");
    assert_eq!(fs::read_to_string(path.join("list")).unwrap().lines().count(), 2);
    assert!(refused(path, "runs g").contains("contains no runs"));
    assert!(refused(path, "runs missing").contains("missing"));
}

#[test]
fn bad_grids_start_nothing() {
    let folder = small();
    let path = folder.path();
    for (line, words) in [
        ("sweep g --grid lr -o s", "KEY=VALUE"),
        ("sweep g --grid lr=0.1,-1 -o s", "--grid lr"),
        ("sweep g --grid layer=1,2 -o s", "layer"),
        ("sweep g --grid seed=1,2 -o s", "--seeds"),
        ("sweep g --lr 1 --grid lr=0.1,1 -o s", "also set by --lr"),
        ("sweep missing --grid lr=0.1,1 -o s", "missing: does not exist"),
        ("sweep g --grid lr=0.1,1", "--out"),
        ("train g --seeds 0", "--seeds"),
        ("train g --seeds 2 --resume -o s", "--resume"),
    ] {
        let message = refused(path, line);
        assert!(message.contains(words), "{line}: {message}");
        assert!(!path.join("s").exists() && !path.join("runs").exists(), "{line}");
    }
}

#[test]
fn a_sweep_stops_at_a_signal_and_continues() {
    let folder = small();
    let path = folder.path();
    let line = "sweep g --hidden 4 --layers 2 --threads 1 --epochs 1000000 --grid lr=0.01,0.02,0.03 -o s";
    let script = format!(
        "$H {line} & p=$!
         for i in $(seq 600); do [ -s s/lr=0.01_seed=0/metrics.jsonl ] && break; sleep 0.02; done
         kill -INT $p; wait $p"
    );
    let (code, stderr) = shell(path, &script);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("3 runs left"), "{stderr}");
    // The first run was saved, the others were not started.
    assert!(path.join("s/lr=0.01_seed=0/run.json").exists() && !path.join("s/lr=0.02_seed=0").exists());
    let runs = ok(path, "runs s");
    assert!(runs.contains("interrupted"), "{runs}");
}
