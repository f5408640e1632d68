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
    assert_eq!(json(path, &format!("{line} --json"))["runs"], found["runs"]);
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
fn runs_on_another_dataset_are_refused() {
    let folder = small();
    let path = folder.path();
    let line = |data: &str| format!("sweep {data} {QUICK} --grid lr=0.01,0.1 -o s");
    ok(path, &line("g"));
    ok(path, "data make --nodes 200 --edges 800 --features 6 --classes 3 --seed 1 -o other -q");
    // The built-in graph is another dataset too.
    for data in ["other", ""] {
        let message = refused(path, &line(data));
        assert!(message.contains("lr=0.01_seed=0: was trained on another dataset (made)"), "{message}");
        assert!(message.contains("2 runs failed") && !message.contains("already trained"), "{message}");
    }
    // The same directory, written again with other contents.
    ok(path, "data make --nodes 200 --edges 800 --features 6 --classes 3 --seed 1 -o g --overwrite -q");
    assert!(refused(path, &line("g")).contains("was trained on another dataset (made)"));
    let seeds = |data: &str| format!("train {data} {QUICK} --seeds 2 -o seeds");
    ok(path, &seeds("g"));
    ok(path, &seeds("g"));
    assert!(refused(path, &seeds("")).contains("was trained on another dataset (made)"));
}

#[test]
fn the_built_in_graph_and_shards_are_swept() {
    let folder = small();
    let path = folder.path();
    let kept = |line: &str, runs: usize| {
        ok(path, line);
        let (code, stderr) = shell(path, &format!("$H {line}"));
        assert_eq!((code, stderr.matches("already trained").count()), (Some(0), runs), "{line}: {stderr}");
    };
    kept(&format!("sweep {QUICK} --grid lr=0.01,0.1 -o demo"), 2);
    // Shards imply the strategy and the number of ranks.
    ok(path, "partition g -k 2 -o shards -q");
    let quick = QUICK.replace(" --threads 1", "");
    kept(&format!("sweep shards {quick} --grid lr=0.01,0.1 --jobs 9 -o parts"), 2);
    kept(&format!("sweep shards {QUICK} --grid strategy=partition,pipelined -o strategies"), 2);
    let config = |file: &str| -> Value {
        serde_json::from_str::<Value>(&fs::read_to_string(path.join(file)).unwrap()).unwrap()["config"]
            .clone()
    };
    let train = &config("parts/lr=0.1_seed=0/run.json")["train"];
    // Two runs of two ranks share the cores: `--jobs` counts no more than there are runs.
    let share = std::thread::available_parallelism().unwrap().get() / 4;
    assert_eq!((&train["ranks"], &train["threads"]), (&2.into(), &share.max(1).into()));
    assert!(refused(path, "sweep shards --ranks 3 --grid lr=1,2 -o no").contains("2 parts for 3 ranks"));
    assert!(!path.join("no").exists());
}

#[test]
fn notes_of_runs_are_printed_once() {
    let folder = small();
    let line = format!("$H sweep g {QUICK} --model gcn --heads 2 --grid lr=0.01,0.1 -o s");
    let (code, stderr) = shell(folder.path(), &line);
    assert_eq!((code, stderr.matches("note: --set: model.heads").count()), (Some(0), 1), "{stderr}");
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
    assert!(refused(path, "sweep g --grid lr=1 -o runs/sub/b").contains("runs/sub/b: is a run"));
    assert!(refused(path, "runs g").contains("contains no runs"));
    assert!(refused(path, "runs missing").contains("missing"));
}

#[test]
fn bad_grids_start_nothing() {
    let folder = small();
    let path = folder.path();
    fs::create_dir(path.join("broken")).unwrap();
    for (line, words) in [
        ("sweep g --grid lr -o s", "KEY=VALUE"),
        ("sweep g --grid lr=0.1,-1 -o s", "--grid lr"),
        ("sweep g --grid layer=1,2 -o s", "layer"),
        ("sweep g --grid seed=1,2 -o s", "--seeds"),
        ("sweep g --grid lr=0.1,1,1.0 -o s", "lr=1 and lr=1.0 are the same run"),
        ("sweep g --grid lr=0.1 -o g", "g: is a dataset"),
        ("sweep g --grid lr=0.1 -o g/feat.npy", "feat.npy: is a file"),
        ("sweep broken --grid lr=0.1,1 -o s", "broken"),
        ("sweep g --lr 1 --grid lr=0.1,1 -o s", "also set by --lr"),
        ("sweep missing --grid lr=0.1,1 -o s", "missing: does not exist"),
        ("sweep g --grid lr=0.1,1", "--out"),
        ("train g --seeds 0", "--seeds"),
        ("train g --seeds 10001 -o s", "--seeds: more than 10000 runs"),
        ("train g --seeds 2 --resume -o s", "--resume"),
    ] {
        let message = refused(path, line);
        assert!(message.contains(words), "{line}: {message}");
        assert!(!path.join("s").exists() && !path.join("runs").exists(), "{line}");
    }
}

/// A sweep of endless runs in the background, whose process is `$p`, after the first epochs of the first run. `$c` is the
/// process of that run.
const ENDLESS: &str = "\
    $H sweep g --hidden 4 --layers 2 --threads 1 --epochs 1000000 --grid lr=0.01,0.02,0.03 -o s & p=$!
    for i in $(seq 600); do [ -s s/lr=0.01_seed=0/metrics.jsonl ] && break; sleep 0.02; done
    c=$(pgrep -P $p)";

#[test]
fn a_sweep_stops_at_a_signal_and_continues() {
    let folder = small();
    let path = folder.path();
    let (code, stderr) = shell(path, &format!("{ENDLESS}; kill -INT $p; wait $p"));
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("3 runs left"), "{stderr}");
    // The first run was saved, the others were not started.
    let files: Vec<_> = fs::read_dir(path.join("s")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["lr=0.01_seed=0"]);
    let runs = ok(path, "runs s");
    assert!(runs.contains("interrupted"), "{runs}");
    // A process that is killed, perhaps by the same signal before it handles signals, is no failure then.
    let (code, stderr) =
        shell(path, &format!("rm -r s; {ENDLESS}; kill -STOP $c; kill -INT $p; kill -KILL $c; wait $p"));
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("3 runs left") && !stderr.contains("failed"), "{stderr}");
}

#[test]
fn a_run_ends_when_its_sweep_is_killed() {
    let folder = small();
    // Until the run has saved and released its lock.
    let resume =
        "$H train --resume -o s/lr=0.01_seed=0 --epochs 1 2>&1 | grep -q 'has reached epoch' && exit 7";
    let wait = format!("for i in $(seq 600); do {resume}; sleep 0.02; done");
    let (code, stderr) = shell(folder.path(), &format!("{ENDLESS}; kill -KILL $p; {wait}; kill -KILL $c"));
    assert_eq!(code, Some(7), "{stderr}");
    let runs = ok(folder.path(), "runs s");
    assert!(runs.contains("interrupted"), "{runs}");
}

#[test]
fn a_second_signal_ends_a_sweep_at_once() {
    let folder = small();
    // The stopped run cannot save.
    let script =
        "kill -STOP $c; kill -INT $p; sleep 0.7; kill -INT $p; wait $p; code=$?; kill -KILL $c; exit $code";
    let (code, stderr) = shell(folder.path(), &format!("{ENDLESS}; {script}"));
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("interrupted twice"), "{stderr}");
}

#[test]
fn a_run_that_is_killed_is_reported_and_the_others_go_on() {
    let folder = small();
    let path = folder.path();
    let script = "\
        $H sweep g --hidden 4 --layers 2 --threads 1 --grid epochs=1000000,3 -o s & p=$!
        for i in $(seq 600); do [ -s s/epochs=1000000_seed=0/metrics.jsonl ] && break; sleep 0.02; done
        kill -KILL $(pgrep -P $p); wait $p";
    let (code, stderr) = shell(path, script);
    assert_eq!(code, Some(1), "{stderr}");
    let words = [
        "signal: 9",
        "if memory ran out",
        "2/2 epochs=3_seed=0: val ",
        "1 run failed: epochs=1000000_seed=0",
    ];
    assert!(words.iter().all(|word| stderr.contains(word)), "{stderr}");
    assert!(!path.join("s/epochs=1000000_seed=0.log").exists());
}
