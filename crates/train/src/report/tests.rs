//! Tests of the whole page.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_nn::model::Kind;
use serde_json::{Value, json};

use super::spans::tests::{example, sampled as sampled_trace};
use super::*;
use crate::Config;
use crate::config::StrategyKind;
use crate::run::{DataRef, Header, Run};
use crate::trace::TracedRun;

const LINES: [&str; 3] = [
    r#"{"epoch":1,"loss":1.9459101490553132,"lr":0.01,"seconds":0.0123,"train":0.25,"val":0.30000000000000004,"test":null,"val_loss":1.8}"#,
    r#"{"epoch":2,"loss":1.5,"lr":0.01,"seconds":0.0101}"#,
    r#"{"epoch":3,"loss":0.1,"lr":0.01,"seconds":0.0102,"train":0.5,"val":0.6,"test":0.7,"val_loss":1.1}"#,
];

fn header(ranks: usize, seed: u64) -> Header {
    let mut config = Config::new(Kind::Gcn);
    (config.train.ranks, config.train.seed) = (ranks, seed);
    if ranks > 1 {
        config.train.strategy = StrategyKind::Partition;
    }
    let data = DataRef {
        path: Some("/data/x".into()),
        name: "<x>".into(),
        fingerprint: "0f".into(),
        features: 3,
        classes: 2,
        task: halograph_graph::dataset::Task::SingleLabel,
        class_names: Vec::new(),
        feature_names: Vec::new(),
        directed: None,
        edge_weights: None,
    };
    Header { data, config }
}

/// Writes a run called `name` with these lines; it is complete if it has a summary.
fn run(folder: &Path, name: &str, header: Header, lines: &[&str], summary: Option<Value>) -> PathBuf {
    let path = folder.join(name);
    let mut run = Run::create(&path, header, false).unwrap();
    summary.iter().for_each(|summary| run.finish(summary).unwrap());
    drop(run);
    fs::write(path.join("metrics.jsonl"), lines.iter().map(|line| format!("{line}\n")).collect::<String>())
        .unwrap();
    path
}

fn read(runs: &[PathBuf]) -> RunReport {
    let sources: Vec<RunSource> =
        runs.iter().map(|run| RunSource { run: run.clone(), trace: None }).collect();
    RunReport::read(&sources).unwrap()
}

fn page(runs: &[PathBuf]) -> String {
    read(runs).html()
}

/// Returns the lines of `metrics.jsonl` that the page has of its run `k`.
fn lines_of(html: &str, k: usize) -> Vec<Value> {
    let open = format!("<script type=\"application/json\" id=\"metrics-{k}\">");
    let text = html.split_once(&open).unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(text).unwrap()
}

/// Returns the rows of the first table, each from the name of its run.
fn result_rows(html: &str) -> Vec<&str> {
    let table = html.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    table.split("<tr").skip(1).map(|row| row.split_once("</span>").unwrap().1).collect()
}

/// A summary of a run on two ranks.
fn summary() -> Value {
    json!({
        "ending": "finished", "strategy": "partition", "ranks": 2, "epochs": 3, "metric": "accuracy", "loss": 0.1,
        "val": 0.6, "best_epoch": 3, "transport": "threads",
        "epoch_seconds_median": 0.0102, "compute_seconds": 0.0301234, "wait_seconds": 0.002, "hidden_seconds": 0.001,
        "balance": 1.25, "bytes_by_tag": {"features": 123456, "gradients": 0, "setup": 77},
        "parts": [{"nodes": 10, "train": 4, "edges": 31, "halo": 5}, {"nodes": 30, "train": 4, "edges": 9, "halo": 7}]
    })
}

/// A summary of a run in one process with these scores and this epoch time.
fn single_summary(val: f64, test: f64, seconds: f64) -> Value {
    json!({
        "ending": "finished", "strategy": "single", "ranks": 1, "epochs": 3, "metric": "accuracy", "loss": 0.1,
        "val": val, "test": test, "best_epoch": 3, "transport": "none", "epoch_seconds_median": seconds,
        "compute_seconds": 0.0312345, "wait_seconds": 0.0, "hidden_seconds": 0.0, "balance": 1.0, "bytes_by_tag": {},
        "parts": []
    })
}

#[test]
fn numbers_are_those_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "a", header(2, 0), &LINES, Some(summary()));
    fs::write(run.join("trace.json"), example(3).to_string()).unwrap();
    let html = page(&[run]);
    let lines: Vec<Value> = LINES.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines_of(&html, 0), lines);
    assert!(LINES.iter().all(|line| html.contains(line)), "lines are unchanged");
    for text in [
        "epoch 1: 1.9459101490553132<",
        "epoch 1: 0.30000000000000004<",
        "title=\"0.0301234\"",
        "title=\"123456\"",
    ] {
        assert!(html.contains(text), "{text}");
    }
    for section in [
        "Loss",
        "Scores: accuracy",
        "Compute and wait time",
        "Timeline of one epoch",
        "Partition",
        "Settings",
    ] {
        assert!(html.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    assert!(html.contains("whole run (after a resume") && !html.contains("<h2>Staleness error"));
    assert_eq!(
        html.matches("http").count(),
        html.matches("http://www.w3.org/2000/svg").count(),
        "nothing is loaded"
    );
}

#[test]
fn stage_groups_are_shown_with_bubble_imbalance_and_exposed_communication() {
    let folder = tempfile::tempdir().unwrap();
    let plain = run(folder.path(), "a", header(2, 0), &LINES, Some(summary()));
    assert!(!page(std::slice::from_ref(&plain)).contains("<h2>Pipeline"));
    let mut split = summary();
    split["pipeline"] = json!({
        "groups": [
            {"stages": [0, 3], "compute_seconds": 0.0312345, "bubble_seconds": 0.0023456, "exposed_seconds": 0.001},
            {"stages": [3, 4], "compute_seconds": 0.02, "bubble_seconds": 0.004, "exposed_seconds": 0.0}
        ],
        "parts": 1, "chunks": 8, "steps_per_epoch": 1, "bubble_formula": 0.1111111, "bubble": 0.0612345,
        "exposed_communication": 0.0198765, "idle": 0.081111, "imbalance": 0.2192347
    });
    let html = page(&[plain, run(folder.path(), "b", header(2, 0), &LINES, Some(split))]);
    let section = html.split_once("<h2>Pipeline</h2>").unwrap().1.split_once("</section>").unwrap().0;
    for text in [
        "title=\"0.1111111\">0.1111<",
        "title=\"0.0612345\">0.0612<",
        "title=\"0.0198765\"",
        "title=\"0.081111\"",
        "title=\"0.2192347\"",
        "<td>0–2</td>",
        "<td>3–3</td>",
        "title=\"0.0312345\"",
        "title=\"0.0023456\"",
        "class=\"bubble\" style=\"width:6.7",
        "<th>bubble by formula</th>",
    ] {
        assert!(section.contains(text), "{text} in {section}");
    }
}

#[test]
fn user_text_is_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let line = LINES[1].replace("\"lr\"", "\"note\":\"</script><b>\",\"lr\"");
    let run = run(folder.path(), "<i>&'", header(2, 0), &[&line], None);
    fs::write(run.join("trace.json"), example(2).to_string()).unwrap();
    let html = page(&[run]);
    assert_eq!(lines_of(&html, 0)[0]["note"], "</script><b>");
    assert_eq!(html.matches("</script>").count(), 1);
    assert!(!["<i>", "<b>", "<x>", "<host>"].iter().any(|tag| html.contains(tag)));
    assert!(html.contains("&lt;i&gt;&amp;&#39;"));
}

#[test]
fn runs_in_progress_show_their_epochs() {
    let folder = tempfile::tempdir().unwrap();
    let none = run(folder.path(), "none", header(1, 0), &[], None);
    let html = page(&[none]);
    assert!(html.contains("no summary yet") && !html.contains("<h2>Loss") && html.contains("<h2>Settings"));
    let one = run(folder.path(), "one", header(1, 0), &LINES[1..2], None);
    let html = page(&[one]);
    assert!(html.contains("<h2>Loss") && html.contains("class=\"mark\"") && !html.contains("<h2>Scores"));
    assert!(!html.contains("NaN") && !html.contains("inf\""));
    let html = page(&[run(folder.path(), "all", header(1, 0), &LINES, None)]);
    assert!(html.contains("<th>validation score</th>") && html.contains(">0.6000<"), "best epoch so far");
}

#[test]
fn settings_that_differ_are_apart_from_the_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("b")).unwrap();
    let first = run(folder.path(), "a", header(1, 1), &LINES, None);
    let second = run(folder.path(), "b/a", header(1, 2), &LINES[..1], Some(single_summary(0.5, 0.5, 0.01)));
    let html = page(&[first.clone(), second.clone()]);
    assert_eq!((lines_of(&html, 0).len(), lines_of(&html, 1).len()), (3, 1));
    let differing = html.split_once("Settings that differ").unwrap().1.split_once("</table>").unwrap().0;
    assert!(differing.contains("<th>train.seed</th>"), "{differing}");
    assert!(differing.contains("<td>1</td>") && differing.contains("<td>2</td>"), "{differing}");
    assert!(!differing.contains("train.lr") && html.contains("<dt>train.lr</dt><dd>0.01</dd>"));
    assert!(html.contains(&text::escape(&second.display().to_string())), "equal names become paths");
    let same = page(&[first, run(folder.path(), "c", header(1, 1), &LINES, None)]);
    assert!(same.contains("All settings are the same") && !same.contains("Settings that differ"));
}

#[test]
fn a_setting_of_one_layer_differs_from_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut decayed = header(1, 0);
    decayed.config.train.weight_decay_for.insert("convs.0".into(), 0.5);
    let runs =
        [run(folder.path(), "a", header(1, 0), &LINES, None), run(folder.path(), "b", decayed, &LINES, None)];
    let html = page(&runs);
    let differing = html.split_once("Settings that differ").unwrap().1.split_once("</table>").unwrap().0;
    assert!(differing.contains("train.weight_decay_for.convs.0"), "{differing}");
}

/// Bug: runs were columns, and with many runs the table was wider than the page.
#[test]
fn many_runs_are_rows() {
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<PathBuf> = (0..16)
        .map(|k| {
            let summary = single_summary(0.5 + 0.01 * k as f64, 0.5, 0.01);
            run(folder.path(), &format!("run-{k:02}"), header(1, k), &LINES, Some(summary))
        })
        .collect();
    let html = page(&runs);
    let tables: Vec<&str> = html.split("<table").skip(1).collect();
    for table in &tables {
        let head = table.split_once("</thead>").unwrap().0;
        assert!(head.matches("<th").count() <= 12, "{head}");
    }
    assert_eq!(result_rows(&html).len(), 16);
    assert!(html.contains("<h1>run-00, run-01, run-02 and 13 more</h1>"));
}

/// Bug: runs were in the order of the command line only, and the best one was not marked.
#[test]
fn runs_are_sorted_and_the_best_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let complete = |name, val, test, seconds| {
        run(folder.path(), name, header(1, 0), &LINES[1..2], Some(single_summary(val, test, seconds)))
    };
    let runs = [
        run(folder.path(), "d", header(1, 0), &[], None),
        complete("c", 0.7, 0.60, 0.3),
        complete("a", 0.9, 0.61, 0.2),
        complete("b", 0.8, 0.62, 0.1),
    ];
    let order = |key: Option<SortKey>| {
        let mut report = read(&runs);
        key.into_iter().for_each(|key| report.sort(key));
        let html = report.html();
        let rows = result_rows(&html);
        let best: Vec<&&str> = rows.iter().filter(|row| row.contains("class=\"badge\"")).collect();
        assert!(best.len() == 1 && best[0].starts_with("a<"), "{rows:?}");
        rows.iter().map(|row| &row[..1]).collect::<String>()
    };
    let keys = [None, Some(SortKey::Val), Some(SortKey::Test), Some(SortKey::Time), Some(SortKey::Name)];
    assert_eq!(keys.map(order), ["dcab", "abcd", "bacd", "bacd", "abcd"]);
}

#[test]
fn no_run_is_best_if_they_cannot_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = header(1, 0);
    other.data.fingerprint = "ff".into();
    let complete =
        |name, header, val| run(folder.path(), name, header, &LINES, Some(single_summary(val, 0.5, 0.1)));
    let (a, b) = (complete("a", header(1, 0), 0.5), complete("b", header(1, 1), 0.6));
    assert!(page(&[a.clone(), b]).contains("class=\"badge\""));
    assert!(!page(&[a.clone(), complete("c", other, 0.6)]).contains("class=\"badge\""), "other data");
    assert!(!page(&[a]).contains("class=\"badge\""), "one run");
}

/// Bug: runs on one rank showed waiting, transfers and settings of exchanges.
#[test]
fn runs_on_one_rank_have_no_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let single = run(folder.path(), "one", header(1, 0), &LINES, Some(single_summary(0.5, 0.5, 0.1)));
    let html = page(std::slice::from_ref(&single));
    for absent in [
        "<h2>Compute and wait time",
        "<h2>Communication volume",
        "<h2>Partition",
        "transport",
        "train.overlap",
        "train.gamma",
        "train.staleness",
    ] {
        assert!(!html.contains(absent), "{absent}");
    }
    let two = run(folder.path(), "two", header(2, 0), &LINES, Some(summary()));
    let html = page(&[single, two]);
    let times = html.split_once("<h2>Compute and wait time").unwrap().1.split_once("</table>").unwrap().0;
    assert!(
        times.contains("title=\"0.0312345\">31.2 ms</span></td><td>–</td><td>–</td><td>–</td>"),
        "{times}"
    );
    assert_eq!(times.matches("class=\"waiting\"").count(), 1);
    assert!(html.contains("<dt>train.overlap</dt>") && !html.contains("train.gamma"));
}

#[test]
fn staleness_is_drawn_for_layers_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let stale = r#""staleness":{"features":[null,0.12,0.2],"gradients":[null,0.3,0.4]},"lr""#;
    let line = LINES[1].replace("\"lr\"", stale);
    let html = page(&[run(folder.path(), "a", header(2, 0), &[LINES[0], &line], None)]);
    assert!(html.contains("Features, layer 1") && html.contains("Gradients, layer 2"));
    assert!(!html.contains("Features, layer 0") && html.contains("epoch 2: 0.12<"));
    let deep: Vec<String> = (0..40).map(|l| format!("0.{}", l + 1)).collect();
    let deep = format!("\"staleness\":{{\"features\":[{}]}},\"lr\"", deep.join(","));
    let html = page(&[run(folder.path(), "b", header(2, 0), &[&LINES[1].replace("\"lr\"", &deep)], None)]);
    assert!(
        html.contains("6 of 40 layers are shown") && html.contains("layer 0<") && html.contains("layer 39<")
    );
}

#[test]
fn pages_of_long_runs_are_small() {
    let folder = tempfile::tempdir().unwrap();
    let line = |e: u64| {
        let loss = if e == 54_321 { 77.0 } else { 1.0 / e as f64 };
        format!(
            "{{\"epoch\":{e},\"loss\":{loss},\"lr\":0.01,\"seconds\":0.01,\"train\":0.5,\"val\":0.5,\"test\":0.5,\"val_loss\":1.0}}"
        )
    };
    let lines: Vec<String> = (1..=100_000).map(line).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let html = page(&[run(folder.path(), "a", header(1, 0), &lines, None)]);
    assert!(html.len() < 1_000_000, "{}", html.len());
    assert!(html.contains("has 100000 epochs") && html.contains(lines[54_320]), "the maximum is kept");
}

#[test]
fn timelines_need_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "a", header(2, 0), &LINES, None);
    let file = folder.path().join("t.json");
    fs::write(&file, example(2).to_string()).unwrap();
    let read = |trace| RunReport::read(&[RunSource { run: run.clone(), trace }]).unwrap();
    assert!(read(None).timeline().is_none());
    let svg = read(Some(file)).timeline().unwrap();
    assert!(
        svg.starts_with("<?xml")
            && svg.contains("prefers-color-scheme: dark")
            && svg.trim_end().ends_with("</svg>")
    );
}

/// Bug: the trace of another run with as many ranks was accepted.
#[test]
fn a_trace_must_belong_to_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let mine = run(folder.path(), "mine", header(2, 0), &LINES, None);
    let other = run(folder.path(), "other", header(2, 0), &LINES[1..], None);
    let mut trace = example(2);
    fs::write(mine.join("trace.json"), trace.to_string()).unwrap();
    assert!(page(std::slice::from_ref(&mine)).contains("does not say which run"), "older traces get a note");
    trace["otherData"] = json!({"run": TracedRun::of(&mine).unwrap()});
    fs::write(mine.join("trace.json"), trace.to_string()).unwrap();
    assert!(!page(std::slice::from_ref(&mine)).contains("does not say which run"));
    let source = RunSource { run: other, trace: Some(mine.join("trace.json")) };
    let error = RunReport::read(&[source]).unwrap_err().to_string();
    assert!(error.contains("the trace of another run") && error.contains("mine"), "{error}");
}

#[test]
fn folders_that_are_no_runs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let read =
        |run: &Path| RunReport::read(&[RunSource { run: run.into(), trace: None }]).unwrap_err().to_string();
    assert!(read(folder.path()).contains("contains no run"));
    let run = run(folder.path(), "a", header(2, 0), &LINES, None);
    fs::write(run.join("trace.json"), "[]").unwrap();
    assert!(read(&run).contains("trace.json: not a trace of halograph"));
    fs::write(run.join("run.json"), "{").unwrap();
    assert!(read(&run).contains("run.json: not a valid description of a run"));
}

#[test]
fn existing_files_are_replaced_on_request_only() {
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

/// A run with mini-batches: header and summary.
fn minibatch() -> (Header, Value) {
    let mut header = header(1, 0);
    header.config.train.strategy = StrategyKind::Minibatch;
    let mut summary = single_summary(0.5, 0.5, 0.1);
    summary["strategy"] = "minibatch".into();
    summary["batches"] = json!({
        "per_epoch": 144, "batches": 432, "sampled_edges": 268_180_200, "input_nodes": 80_416_800,
        "sampling_seconds": 16.416, "gather_seconds": 15.12, "compute_seconds": 92.016, "wait_seconds": 0.1296
    });
    (header, summary)
}

#[test]
fn runs_with_batches_show_their_sizes_times_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let (sampled, mut totals) = minibatch();
    let one = run(folder.path(), "sampled", sampled.clone(), &LINES, Some(totals.clone()));
    fs::write(one.join("trace.json"), sampled_trace(3, 20).to_string()).unwrap();
    let html = page(std::slice::from_ref(&one));
    let table = html.split_once("<h2>Mini-batches</h2>").unwrap().1.split_once("</table>").unwrap().0;
    for text in [
        "<td>144</td>",
        ">620,788</span>",
        ">186,150</span>",
        ">38.0 ms</span>",
        ">35.0 ms</span>",
        ">213 ms</span>",
        ">300 µs</span>",
    ] {
        assert!(table.contains(text), "{text} in {table}");
    }
    assert!(html.contains("Lane sample:") && !html.contains("Lane transfer:"), "lanes that occur");
    let settings = ["train.batch_size", "train.fanout", "train.sampler", "train.cache_input_aggregate"];
    assert!(settings.iter().all(|name| html.contains(&format!("<dt>{name}</dt>"))), "settings of batches");
    // Beside a run on the full graph, only the run with batches has a row.
    let full = run(folder.path(), "full", header(1, 0), &LINES, Some(single_summary(0.5, 0.5, 0.1)));
    let html = page(&[one, full.clone()]);
    let table = html.split_once("<h2>Mini-batches</h2>").unwrap().1.split_once("</table>").unwrap().0;
    assert_eq!(table.matches("<tr class=").count(), 1, "{table}");
    let html = page(&[full]);
    assert!(!html.contains("Mini-batches") && !settings.iter().any(|name| html.contains(name)));
    // A resumed run that had nothing left to train.
    totals["batches"]["batches"] = 0.into();
    let html = page(&[run(folder.path(), "none", sampled, &LINES, Some(totals))]);
    assert!(html.contains("<h2>Mini-batches</h2>") && !html.contains("NaN") && !html.contains("inf"));
}
