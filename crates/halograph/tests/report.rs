//! `halograph report` as a user meets it.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use common::{ok, refused};

/// A folder with a run `one` in one process, and a run `two` on two ranks with its trace `t.json`.
fn trained() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    let quick = "--hidden 8 --layers 2 --epochs 4 --threads 1 -q";
    ok(folder.path(), &format!("train g --out one {quick}"));
    ok(folder.path(), &format!("train g --out two --ranks 2 --trace t.json {quick}"));
    folder
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The epochs that a page carries of its run `k`.
fn carried(html: &str, k: usize) -> Vec<Value> {
    let open = format!("<script type=\"application/json\" id=\"metrics-{k}\">");
    let text = html.split_once(&open).expect("data").1.split_once("</script>").expect("an end").0;
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_page_tells_what_the_runs_have_left() {
    let folder = trained();
    let path = folder.path();
    assert_eq!(ok(path, "report two one --trace t.json --svg t.svg"), "two/report.html\nt.svg\n");
    let html = fs::read_to_string(path.join("two/report.html")).unwrap();
    for (k, run) in ["two", "one"].into_iter().enumerate() {
        let lines = fs::read_to_string(path.join(run).join("metrics.jsonl")).unwrap();
        assert_eq!(carried(&html, k), json_lines(&lines));
    }
    for text in
        ["<h2>Loss", "<h2>Scores: accuracy", "<h2>One epoch, rank by rank", "<h2>Bytes", "≠", "train.ranks"]
    {
        assert!(html.contains(text), "{text}");
    }
    let svg = fs::read_to_string(path.join("t.svg")).unwrap();
    for text in ["aggregate own rows", "gradients of halo rows", "class=\"features\"", "rank 1"] {
        assert!(svg.contains(text), "{text}");
    }
    looks_well(path, "two/report.html");
}

#[test]
fn bad_input_is_named_and_nothing_is_replaced() {
    let folder = trained();
    let path = folder.path();
    assert!(refused(path, "report g").contains("holds no run"));
    assert!(refused(path, "report nowhere").contains("nowhere"));
    assert!(refused(path, "report one --svg a.svg").contains("has no trace"));
    assert!(refused(path, "report one --trace t.json").contains("is of 2 ranks, and the run has 1"));
    assert!(refused(path, "report two --trace t.json --trace t.json").contains("at most one --trace"));
    assert!(refused(path, "report two --trace t.json -o a.svg --svg a.svg").contains("different files"));
    assert!(refused(path, "report two --trace g/dataset.json").contains("not a trace"));
    assert!(!path.join("one/report.html").exists() && !path.join("a.svg").exists());
    ok(path, "report one");
    assert!(refused(path, "report one").contains("--overwrite"));
    ok(path, "report one --overwrite");
    // Only what is of its kind is replaced, even then.
    let (run, data) =
        (fs::read(path.join("one/run.json")).unwrap(), fs::read(path.join("g/dataset.json")).unwrap());
    assert!(refused(path, "report one -o one/run.json --overwrite").contains("is not a report"));
    assert!(refused(path, "report two --trace t.json -o t.json --overwrite").contains("is not a report"));
    for flag in ["--overwrite", "--resume"] {
        let error = refused(path, &format!("train g --out one {flag} --trace g/dataset.json"));
        assert!(error.contains("is not a trace"), "{error}");
    }
    assert_eq!(fs::read(path.join("one/run.json")).unwrap(), run);
    assert_eq!(fs::read(path.join("g/dataset.json")).unwrap(), data);
    let metrics = path.join("one/metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap().replacen("loss", "lost", 1);
    fs::write(&metrics, text).unwrap();
    let error = refused(path, "report one --overwrite");
    assert!(error.contains("metrics.jsonl, line 1") && error.contains("help"), "{error}");
}

/// Opens a page in Chromium, if that is here, and holds it to have nothing to complain about.
#[expect(clippy::print_stderr, reason = "a skipped test should say so")]
fn looks_well(folder: &Path, page: &str) {
    let url = format!("file://{}", folder.join(page).display());
    let profile = format!("--user-data-dir={}", folder.join("chromium").display());
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
    let Ok(out) = browser.args([&profile, &url]).output() else {
        return eprintln!("chromium is not installed: the page was not opened");
    };
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!stderr.contains("CONSOLE"), "{stderr}");
    let dom = String::from_utf8_lossy(&out.stdout);
    assert!(dom.contains("id=\"metrics-1\"") && dom.contains("<h2>Settings"), "{dom}");
}
