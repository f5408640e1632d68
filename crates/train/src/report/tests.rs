//! The page as a reader meets it.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_nn::model::Kind;
use serde_json::{Value, json};

use super::spans::tests::example;
use super::*;
use crate::Config;
use crate::run::{DataRef, Header, Run};

const LINES: [&str; 3] = [
    r#"{"epoch":1,"loss":1.9459101490553132,"lr":0.01,"seconds":0.0123,"train":0.25,"val":0.30000000000000004,"test":null,"val_loss":1.8}"#,
    r#"{"epoch":2,"loss":1.5,"lr":0.01,"seconds":0.0101}"#,
    r#"{"epoch":3,"loss":0.1,"lr":0.01,"seconds":0.0102,"train":0.5,"val":0.6,"test":0.7,"val_loss":1.1}"#,
];

fn header(ranks: usize, seed: u64) -> Header {
    let mut config = Config::new(Kind::Gcn);
    (config.train.ranks, config.train.seed) = (ranks, seed);
    let data = DataRef {
        path: Some("/data/x".into()),
        name: "<x>".into(),
        fingerprint: "0f".into(),
        features: 3,
        classes: 2,
        task: halograph_graph::dataset::Task::SingleLabel,
        class_names: Vec::new(),
    };
    Header { data, config }
}

/// A run called `name` with these lines, over if it has a summary.
fn run(folder: &Path, name: &str, header: Header, lines: &[&str], summary: Option<Value>) -> PathBuf {
    let path = folder.join(name);
    let mut run = Run::create(&path, header, false).unwrap();
    summary.iter().for_each(|summary| run.finish(summary).unwrap());
    drop(run);
    fs::write(path.join("metrics.jsonl"), lines.iter().map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    path
}

fn report(runs: &[&PathBuf]) -> String {
    let sources: Vec<Source> =
        runs.iter().map(|run| Source { run: run.to_path_buf(), trace: None }).collect();
    Report::read(&sources).unwrap().html()
}

/// The lines that a page carries of its run `k`.
fn carried(html: &str, k: usize) -> Vec<Value> {
    let open = format!("<script type=\"application/json\" id=\"metrics-{k}\">");
    let text = html.split_once(&open).unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(text).unwrap()
}

fn summary() -> Value {
    json!({
        "ending": "finished", "ranks": 2, "epochs": 3, "metric": "accuracy", "loss": 0.1, "val": 0.6, "best_epoch": 3,
        "epoch_seconds_median": 0.0102, "compute_seconds": 0.0301234, "wait_seconds": 0.002, "hidden_seconds": 0.001,
        "balance": 1.25, "bytes_by_tag": {"features": 123456, "gradients": 0, "setup": 77},
        "parts": [{"nodes": 10, "train": 4, "edges": 31, "halo": 5}, {"nodes": 30, "train": 4, "edges": 9, "halo": 7}]
    })
}

#[test]
fn numbers_are_those_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "a", header(2, 0), &LINES, Some(summary()));
    fs::write(run.join("trace.json"), example(3).to_string()).unwrap();
    let html = report(&[&run]);
    let lines: Vec<Value> = LINES.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(carried(&html, 0), lines);
    assert!(LINES.iter().all(|line| html.contains(line)), "as they stand");
    for text in [
        "epoch 1: 1.9459101490553132<",
        "epoch 1: 0.30000000000000004<",
        "title=\"0.0301234\"",
        "title=\"123456\"",
    ] {
        assert!(html.contains(text), "{text}");
    }
    for section in
        ["Loss", "Scores: accuracy", "Computing and waiting", "One epoch, rank by rank", "Parts", "Settings"]
    {
        assert!(html.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    assert!(html.contains("the whole run, or the rest of it") && !html.contains("<h2>Error of stale rows"));
    assert!(
        !html.contains("http")
            || html.matches("http").count() == html.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn what_users_wrote_is_text() {
    let folder = tempfile::tempdir().unwrap();
    let line = LINES[1].replace("\"lr\"", "\"note\":\"</script><b>\",\"lr\"");
    let run = run(folder.path(), "<i>&'", header(2, 0), &[&line], None);
    fs::write(run.join("trace.json"), example(2).to_string()).unwrap();
    let html = report(&[&run]);
    assert_eq!(carried(&html, 0)[0]["note"], "</script><b>");
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(!["<i>", "<b>", "<x>", "<host>"].iter().any(|tag| html.contains(tag)));
    assert!(html.contains("&lt;i&gt;&amp;&#39;"));
}

#[test]
fn a_run_that_goes_on_shows_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let none = run(folder.path(), "none", header(1, 0), &[], None);
    let html = report(&[&none]);
    assert!(html.contains("no summary yet") && !html.contains("<h2>Loss") && html.contains("<h2>Settings"));
    let one = run(folder.path(), "one", header(1, 0), &LINES[1..2], None);
    let html = report(&[&one]);
    assert!(html.contains("<h2>Loss") && html.contains("class=\"mark\"") && !html.contains("<h2>Scores"));
    assert!(!html.contains("NaN") && !html.contains("inf\""));
}

#[test]
fn runs_stand_side_by_side_and_differences_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    let first = run(folder.path(), "a", header(1, 1), &LINES, None);
    let second = run(folder.path(), "b/a", header(1, 2), &LINES[..1], Some(summary()));
    let html = report(&[&first, &second]);
    assert_eq!((carried(&html, 0).len(), carried(&html, 1).len()), (3, 1));
    assert!(html.contains("<tr class=\"differs\"><th>train.seed</th><td>1</td><td>2</td></tr>"));
    assert_eq!(html.matches("class=\"differs\"").count(), 1);
    assert!(html.contains(&text::escape(&second.display().to_string())), "told apart by their paths");
    let same = report(&[&first, &run(folder.path(), "c", header(1, 1), &LINES, None)]);
    assert!(same.contains("No setting differs."));
}

#[test]
fn staleness_is_drawn_where_a_layer_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let stale = r#""staleness":{"features":[null,0.12,0.2],"gradients":[null,0.3,0.4]},"lr""#;
    let line = LINES[1].replace("\"lr\"", stale);
    let html = report(&[&run(folder.path(), "a", header(2, 0), &[LINES[0], &line], None)]);
    assert!(html.contains("Features, layer 1") && html.contains("Gradients, layer 2"));
    assert!(!html.contains("Features, layer 0") && html.contains("epoch 2: 0.12<"));
    let deep: Vec<String> = (0..40).map(|l| format!("0.{}", l + 1)).collect();
    let deep = format!("\"staleness\":{{\"features\":[{}]}},\"lr\"", deep.join(","));
    let html = report(&[&run(folder.path(), "b", header(2, 0), &[&LINES[1].replace("\"lr\"", &deep)], None)]);
    assert!(
        html.contains("6 of 40 layers are shown") && html.contains("layer 0<") && html.contains("layer 39<")
    );
}

#[test]
fn a_long_run_makes_a_small_page() {
    let folder = tempfile::tempdir().unwrap();
    let line = |e: u64| {
        let loss = if e == 54_321 { 77.0 } else { 1.0 / e as f64 };
        format!(
            "{{\"epoch\":{e},\"loss\":{loss},\"lr\":0.01,\"seconds\":0.01,\"train\":0.5,\"val\":0.5,\"test\":0.5,\"val_loss\":1.0}}"
        )
    };
    let lines: Vec<String> = (1..=100_000).map(line).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let html = report(&[&run(folder.path(), "a", header(1, 0), &lines, None)]);
    assert!(html.len() < 1_000_000, "{}", html.len());
    assert!(html.contains("has 100000 epochs") && html.contains(lines[54_320]), "the peak is kept");
}

#[test]
fn the_timeline_alone_is_for_runs_with_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "a", header(2, 0), &LINES, None);
    let file = folder.path().join("t.json");
    fs::write(&file, example(2).to_string()).unwrap();
    let read = |trace| Report::read(&[Source { run: run.clone(), trace }]).unwrap();
    assert!(read(None).timeline().is_none());
    let svg = read(Some(file)).timeline().unwrap();
    assert!(
        svg.starts_with("<?xml")
            && svg.contains("prefers-color-scheme: dark")
            && svg.trim_end().ends_with("</svg>")
    );
}

#[test]
fn what_is_no_run_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let read = |run: &Path| Report::read(&[Source { run: run.into(), trace: None }]).unwrap_err().to_string();
    assert!(read(folder.path()).contains("holds no run"));
    let run = run(folder.path(), "a", header(2, 0), &LINES, None);
    fs::write(run.join("trace.json"), "[]").unwrap();
    assert!(read(&run).contains("trace.json: not a trace of halograph"));
    fs::write(run.join("run.json"), "{").unwrap();
    assert!(read(&run).contains("run.json: not the description of a run"));
}

#[test]
fn a_file_is_replaced_only_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let [one, two] = ["one", "two"].map(|text| format!("<!DOCTYPE html>{text}"));
    write(&path, &one, false).unwrap();
    assert!(write(&path, &two, false).unwrap_err().to_string().contains("exists already"));
    write(&path, &two, true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), two);
    fs::write(&path, "something else").unwrap();
    assert!(write(&path, &one, true).unwrap_err().to_string().contains("is not a report"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "something else");
    assert!(write(folder.path(), "x", true).unwrap_err().to_string().contains("a folder"));
}
