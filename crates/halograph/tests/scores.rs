//! Scores of single classes, metrics and class weights through the binary, on accounts of which few are fraudulent.

mod common;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use common::{halograph, ok, refused};

const NODES: usize = 150;
const QUICK: &str = "--hidden 8 --layers 2 --epochs 30 --threads 1";

/// Returns the class of an account: two thirds are ordinary.
fn class(v: usize) -> &'static str {
    match v % 15 {
        0 => "bot",
        1..=4 => "fraud",
        _ => "ok",
    }
}

/// Imports a ring of accounts as dataset `g`, with classes fraud and bot among ok ones. `feature`: the feature of a node.
fn accounts(feature: impl Fn(usize) -> f64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tables = folder.path().join("t");
    fs::create_dir(&tables).unwrap();
    let edges: String = (0..NODES).map(|v| format!("n{v},n{}\n", (v + 15) % NODES)).collect();
    fs::write(tables.join("edges.csv"), format!("src,dst\n{edges}")).unwrap();
    let split = |v: usize| ["train", "train", "val", "test", "test"][v / 15 % 5];
    let row = |v: usize| format!("n{v},{},{},{}\n", class(v), feature(v), split(v));
    let rows: String = (0..NODES).map(row).collect();
    fs::write(tables.join("nodes.csv"), format!("id,label,x,split\n{rows}")).unwrap();
    ok(folder.path(), "data import csv t -o g -q");
    folder
}

/// Accounts that differ by their feature.
fn telling() -> TempDir {
    accounts(|v| match class(v) {
        "bot" => 4.0,
        "fraud" => -2.0,
        _ => 0.5,
    })
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn stderr(folder: &Path, line: &str) -> String {
    let out = halograph(folder, line);
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stderr).unwrap()
}

/// Returns the numbers of the class scores of a subset by the name of the class.
fn of_class(report: &Value, subset: &str, key: &str, class: &str) -> f64 {
    let names = report["names"].as_array().expect("names");
    let at = names.iter().position(|name| name == class).expect("a class");
    report[subset][key][at].as_f64().expect("a number")
}

#[test]
fn every_class_is_scored_in_train_eval_run_and_report() {
    let folder = telling();
    let path = folder.path();
    let line = json_of(&ok(path, &format!("train g -o r --json {QUICK}")));
    let report = &line["classes"];
    assert_eq!(
        [("ok", 40.0), ("fraud", 16.0), ("bot", 4.0)]
            .map(|(c, n)| of_class(report, "test", "support", c) == n),
        [true; 3]
    );
    assert_eq!(report["test"]["accuracy"], line["test"]);
    let sum: u64 = report["test"]["confusion"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!((sum, &report["test"]["nodes"]), (60, &json!(60)));
    assert_eq!(report["majority"]["score"].as_f64(), Some(40.0 / 60.0));

    let text = fs::read_to_string(path.join("r/run.json")).unwrap();
    assert_eq!(json_of(&text)["summary"]["classes"], *report);
    assert!(
        text.contains("\"names\": [\"") && text.lines().all(|line| line.len() < 3000),
        "lists are in one line"
    );
    let evaluated = json_of(&ok(path, "eval r --json"));
    assert_eq!((&evaluated["classes"], &evaluated["metric"]), (report, &json!("accuracy")));

    let table = ok(path, "eval r");
    let words =
        ["precision", "recall", "F1", "support", "fraud", "bot", "balanced accuracy", "true \\ predicted"];
    assert!(words.iter().all(|word| table.contains(word)), "{table}");
    assert!(
        table.starts_with("train  ") && table.contains("\nmetric       accuracy\n\ntest: accuracy"),
        "{table}"
    );
    ok(path, "report r -o r.html");
    let page = fs::read_to_string(path.join("r.html")).unwrap();
    assert!(
        page.contains("<h2>Classes</h2>") && page.contains("<th>fraud</th>"),
        "the report has the classes"
    );
    let text = ok(path, &format!("train g -o s {QUICK}"));
    assert!(text.contains("classes    test: accuracy") && text.contains("lowest recall: "), "{text}");
}

#[test]
fn a_model_no_better_than_the_majority_is_noted() {
    let folder = accounts(|_| 1.0);
    let path = folder.path();
    let said = stderr(path, &format!("train g -o r -q {QUICK}"));
    let words = "note: test accuracy 0.6667 is no better than always predicting class ok (0.6667)";
    assert!(said.contains(words), "{said}");
    assert!(stderr(path, "eval r").contains(words));
    assert_eq!(stderr(path, "eval r -q"), "");
    let said = stderr(path, &format!("train g -o s -q --metric balanced-accuracy {QUICK}"));
    assert!(said.contains("note: test balanced-accuracy 0.3333 is no better than"), "{said}");
    let folder = telling();
    assert_eq!(
        stderr(folder.path(), &format!("train g -o r -q {QUICK}")),
        "",
        "a model that has learned something"
    );
}

#[test]
fn classes_that_cannot_be_scored_are_noted() {
    let folder = telling();
    let path = folder.path();
    let nodes = fs::read_to_string(path.join("t/nodes.csv")).unwrap();
    let moved: String = nodes
        .lines()
        .map(|row| {
            let row = if row.contains(",bot,") {
                row.replace(",test", ",train").replace(",val", ",train")
            } else {
                row.into()
            };
            row + "\n"
        })
        .collect();
    fs::write(path.join("t/nodes.csv"), moved).unwrap();
    ok(path, "data import csv t -o h -q");
    for line in [format!("train h -o r -q {QUICK}"), "eval r".to_string()] {
        let said = stderr(path, &line);
        for subset in ["validation", "test"] {
            let words = format!("note: no {subset} node has class bot: {subset} scores say nothing about it");
            assert_eq!(said.matches(&words).count(), 1, "{line}: {said}");
        }
    }
}

#[test]
fn classes_of_other_data_are_matched_by_name() {
    let folder = telling();
    let path = folder.path();
    ok(path, &format!("train g -o r -q {QUICK}"));
    let nodes = fs::read_to_string(path.join("t/nodes.csv")).unwrap();
    // Without bots, fraud is the first class, not the second.
    for (name, class) in [("without", "ok"), ("other", "robot")] {
        fs::write(path.join("t/nodes.csv"), nodes.replace(",bot,", &format!(",{class},"))).unwrap();
        ok(path, &format!("data import csv t -o {name} -q"));
    }
    let [own, without] =
        ["eval r --json", "eval r --data without --json"].map(|line| json_of(&ok(path, line)));
    let [own, without] = [&own["classes"], &without["classes"]];
    assert_eq!(without["names"], json!(["bot", "fraud", "ok"]));
    assert_eq!(without["test"]["support"], json!([0, 16, 44]));
    assert_eq!(of_class(without, "test", "recall", "fraud"), of_class(own, "test", "recall", "fraud"));
    let message = refused(path, "eval r --data other");
    assert!(message.contains("other/label.npy: class \"robot\" is not one of bot, fraud, ok"), "{message}");
    // Shards keep their numbers.
    ok(path, "partition without -k 2 --method random -o shards -q");
    assert!(
        refused(path, "eval r --data shards").contains("class 0 is \"fraud\"; r was trained with \"bot\"")
    );
}

#[test]
fn the_metric_is_chosen_and_kept() {
    let folder = telling();
    let path = folder.path();
    let line = json_of(&ok(path, &format!("train g -o r --json --metric macro-f1 {QUICK}")));
    assert_eq!((&line["metric"], &line["test"]), (&json!("macro-f1"), &line["classes"]["test"]["macro_f1"]));
    let evaluated = json_of(&ok(path, "eval r --json"));
    assert_eq!([&evaluated["metric"], &evaluated["test"]], [&line["metric"], &line["test"]]);
    let run = json_of(&fs::read_to_string(path.join("r/run.json")).unwrap());
    assert_eq!(run["config"]["train"]["metric"], "macro-f1");
    let message = refused(path, "train --resume -o r --epochs 40 --metric accuracy");
    assert!(
        message.contains("--metric: train.metric = \"accuracy\", but the run was started with \"macro-f1\""),
        "{message}"
    );
    ok(path, "train --resume -o r --epochs 31 --metric macro-f1 -q");

    ok(path, "data make --nodes 100 --edges 600 --features 8 --classes 3 --multi-label -o m -q");
    for (flags, words) in [
        (
            "m --metric balanced-accuracy",
            "--metric: train.metric: balanced-accuracy is not defined for multi-label data",
        ),
        (
            "m --set train.metric=accuracy",
            "--set: train.metric: accuracy is not defined for multi-label data",
        ),
        ("g --metric auc", "auc needs two classes or multi-label data; there are 3 classes"),
        ("g --metric f1", "'f1'"),
        ("g --set train.metric=f1", "must be one of"),
    ] {
        let message = refused(path, &format!("train {flags} -o bad"));
        assert!(message.contains(words), "{flags}: {message}");
        assert!(!path.join("bad").exists());
    }
}

#[test]
fn class_weights_come_from_counts_or_a_file() {
    let folder = telling();
    let path = folder.path();
    let train =
        |out: &str, flags: &str| json_of(&ok(path, &format!("train g -o {out} --json {flags} {QUICK}")));
    let balanced = train("b", "--class-weights balanced");
    let names = balanced["classes"]["names"].as_array().unwrap().clone();
    let weight = |class: &str| {
        let at = names.iter().position(|name| name == class).unwrap();
        balanced["class_weights"][at].as_f64().unwrap()
    };
    // 60 training nodes: 40 ok, 16 fraud, 4 bot.
    assert_eq!([weight("ok"), weight("fraud"), weight("bot")], [60.0 / 120.0, 60.0 / 48.0, 60.0 / 12.0]);
    fs::write(path.join("w.csv"), "class,weight\nbot,5\nfraud,1.25\nok,0.5\n").unwrap();
    let given = train("f", "--class-weights w.csv");
    assert_eq!(
        (&given["loss_history"], &given["class_weights"]),
        (&balanced["loss_history"], &balanced["class_weights"])
    );
    let together = train("p", "--class-weights w.csv --ranks 2");
    let (alone, together) = (given["loss"].as_f64().unwrap(), together["loss"].as_f64().unwrap());
    assert!((alone - together).abs() < 1e-3 * alone, "{alone} and {together}");

    // The run keeps the weights: the file is not needed any more.
    assert!(
        ok(path, "train --resume -o f --epochs 31 --class-weights w.csv --json").contains("class_weights")
    );
    fs::write(path.join("w.csv"), "class,weight\nbot,6\nfraud,1.25\nok,0.5\n").unwrap();
    let message = refused(path, "train --resume -o f --epochs 32 --class-weights w.csv");
    assert!(
        message.contains("--class-weights: train.class_weights = [") && message.contains("was started with"),
        "{message}"
    );
    fs::remove_file(path.join("w.csv")).unwrap();
    ok(path, "train --resume -o f --epochs 32 -q");
    ok(path, "eval f");
}

#[test]
fn bad_class_weights_leave_nothing_behind() {
    let folder = telling();
    let path = folder.path();
    let rest = "ok,1\nfraud,2\nbot,3\n";
    for (name, text) in [
        ("unknown.csv", format!("class,weight\n{rest}robot,1\n")),
        ("negative.csv", "class,weight\nok,1\nfraud,-2\nbot,3\n".into()),
        ("nan.csv", "class,weight\nok,nan\nfraud,2\nbot,3\n".into()),
        ("twice.csv", format!("class,weight\n{rest}ok,1\n")),
        ("missing.csv", "class,weight\nok,1\n".into()),
        ("bare.csv", rest.into()),
    ] {
        fs::write(path.join(name), text).unwrap();
    }
    for (flags, words) in [
        ("--class-weights unknown.csv", "unknown.csv, line 5: there is no class \"robot\""),
        ("--class-weights negative.csv", "negative.csv, line 3: weight \"-2\" of class fraud"),
        ("--class-weights nan.csv", "nan.csv, line 2: weight \"nan\" of class ok"),
        ("--class-weights twice.csv", "twice.csv, line 5: class ok has a weight already"),
        ("--class-weights missing.csv", "missing.csv: no weight for class "),
        ("--class-weights bare.csv", "bare.csv, line 1: the first line is not class,weight"),
        ("--class-weights none.csv", "none.csv: is missing\n  help: give the path"),
        ("--class-weights blanced", "blanced: is missing\n  help: did you mean balanced?"),
        ("--class-weights g", "g: is not a regular file"),
        ("--class-weights 3", "--class-weights: train.class_weights: 3: must be balanced"),
        ("--set train.class_weights=[1,2]", "--set: train.class_weights: 2 weights for 3 classes"),
        ("--set train.class_weights=[1,-2,3]", "train.class_weights: -2 for class 1: must be 0 or more"),
        ("--set train.class_weights=[1,nan,3]", "train.class_weights: NaN for class 1: must be 0 or more"),
        ("--set train.class_weights=[0,0,0]", "must be above 0 for one class or more"),
    ] {
        let message = refused(path, &format!("train g -o bad {flags} {QUICK}"));
        assert!(message.contains(words), "{flags}: {message}");
        assert!(!path.join("bad").exists() && !path.join("runs").exists(), "{flags}");
    }
}
