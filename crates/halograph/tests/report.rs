//! Tests of `halograph report`, with runs of `halograph train`.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use common::{halograph, ok, refused};

/// Returns a folder with a run `one` in one process, and a run `two` on two ranks with trace `t.json`.
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

/// Returns the lines of `metrics.jsonl` that the page has of its run `k`.
fn lines_of(html: &str, k: usize) -> Vec<Value> {
    let open = format!("<script type=\"application/json\" id=\"metrics-{k}\">");
    let text = html.split_once(&open).expect("data").1.split_once("</script>").expect("an end").0;
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn pages_show_metrics_timeline_and_differences() {
    let folder = trained();
    let path = folder.path();
    assert_eq!(ok(path, "report two one --trace t.json --svg t.svg"), "two/report.html\nt.svg\n");
    let html = fs::read_to_string(path.join("two/report.html")).unwrap();
    for (k, run) in ["two", "one"].into_iter().enumerate() {
        let lines = fs::read_to_string(path.join(run).join("metrics.jsonl")).unwrap();
        assert_eq!(lines_of(&html, k), json_lines(&lines));
    }
    for text in [
        "<h2>Loss",
        "<h2>Scores: accuracy",
        "<h2>Timeline of one epoch",
        "<h2>Communication volume",
        "Settings that differ",
        "<th>train.ranks</th>",
    ] {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("does not say which run"), "the trace identifies its run");
    let svg = fs::read_to_string(path.join("t.svg")).unwrap();
    for text in ["aggregate own rows", "gradients of halo rows", "class=\"features\"", "rank 1"] {
        assert!(svg.contains(text), "{text}");
    }
    open_in_browser(path, "two/report.html");
}

/// Bug: the trace of another run with as many ranks was accepted.
#[test]
fn traces_of_other_runs_are_refused() {
    let folder = trained();
    let path = folder.path();
    ok(path, "train g --out other --ranks 2 --hidden 8 --layers 2 --epochs 4 --threads 1 -q");
    let error = refused(path, "report other --trace t.json");
    assert!(error.contains("t.json: the trace of another run, whose folder was \"two\""), "{error}");
    // A resumed run is still the same run.
    ok(path, "train --resume --out two --epochs 6 -q");
    ok(path, "report two --trace t.json");
}

#[test]
fn sorting_reorders_the_page() {
    let folder = trained();
    let path = folder.path();
    let title = |flags: &str| {
        ok(path, &format!("report two one --overwrite -o r.html {flags}"));
        let html = fs::read_to_string(path.join("r.html")).unwrap();
        html.split_once("<h1>").unwrap().1.split_once("</h1>").unwrap().0.to_string()
    };
    assert_eq!([title(""), title("--sort name")], ["two, one", "one, two"]);
    assert!(refused(path, "report one --sort size").contains("val, test, time, name"));
}

#[test]
fn bad_input_is_refused_and_nothing_is_replaced() {
    let folder = trained();
    let path = folder.path();
    assert!(refused(path, "report g").contains("contains no run"));
    assert!(refused(path, "report nowhere").contains("nowhere"));
    assert!(refused(path, "report one --svg a.svg").contains("has no trace"));
    assert!(refused(path, "report one --trace t.json").contains("a trace of 2 ranks, but the run has 1"));
    assert!(refused(path, "report two --trace t.json --trace t.json").contains("at most one --trace"));
    assert!(refused(path, "report two --trace t.json -o a.svg --svg a.svg").contains("different files"));
    assert!(refused(path, "report two --trace g/dataset.json").contains("not a trace"));
    assert!(!path.join("one/report.html").exists() && !path.join("a.svg").exists());
    ok(path, "report one");
    assert!(refused(path, "report one").contains("--overwrite"));
    ok(path, "report one --overwrite");
    // --overwrite replaces only files of the same kind.
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

/// Trains a run `mini` of 5 batches per epoch with trace `m.json`; returns standard output and standard error.
fn train_minibatch(folder: &Path) -> (String, String) {
    ok(folder, "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    let info: Value = serde_json::from_str(&ok(folder, "data info g --json")).expect("JSON");
    let batch = info["info"]["split"][1].as_u64().expect("training nodes").div_ceil(5);
    let line = format!(
        "train g --out mini --strategy minibatch --batch-size {batch} --model sage --hidden 8 --layers 2 --epochs 4 \
         --threads 2 --trace m.json"
    );
    let out = halograph(folder, &line);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    [out.stdout, out.stderr].map(|text| String::from_utf8(text).expect("text")).into()
}

#[test]
fn mini_batches_are_traced_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (stdout, stderr) = train_minibatch(path);
    assert!(stdout.contains("strategy   minibatch, sampler neighbor, fanout 15, 10\n"), "{stdout}");
    assert!(stdout.contains("batches    5 per epoch of "), "{stdout}");
    assert!(stderr.contains("epoch 4/4  loss ") && !stderr.contains("batch"), "short epochs: {stderr}");
    assert!(!stderr.contains("--trace"), "no note: {stderr}");
    let trace: Value = serde_json::from_slice(&fs::read(path.join("m.json")).unwrap()).unwrap();
    let spans: Vec<&Value> =
        trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").collect();
    let steps = |is: &dyn Fn(&Value) -> bool| {
        let found = spans.iter().filter(|span| is(span));
        let mut found: Vec<_> =
            found.map(|span| ["epoch", "step"].map(|key| span["args"][key].as_u64().unwrap())).collect();
        found.sort_unstable();
        found
    };
    let all: Vec<[u64; 2]> = (1..=4).flat_map(|epoch| (0..5).map(move |step| [epoch, step])).collect();
    for (track, name) in [(0, "gather"), (0, "loss"), (3, "batch")] {
        assert_eq!(steps(&|span| span["tid"] == track && span["name"] == name), all, "{name}");
    }
    assert_eq!(steps(&|span| span["cat"] == "sampling" && span["tid"].as_u64() > Some(3)), all, "sampling");
    for phase in ["forward", "backward"] {
        for layer in 0..2 {
            let is = |span: &Value| span["name"] == phase && span["args"]["layer"] == layer;
            assert_eq!(steps(&is), all, "{phase} of layer {layer}");
        }
    }
    ok(path, "train g --out one --hidden 8 --layers 2 --epochs 4 --threads 1 -q");
    ok(path, "report mini one --trace m.json --svg m.svg -o m.html");
    let html = fs::read_to_string(path.join("m.html")).unwrap();
    for text in
        ["<h2>Mini-batches</h2>", "<h2>Timeline of one epoch", "Batches 1 to 5 of 5", "train.batch_size"]
    {
        assert!(html.contains(text), "{text}");
    }
    assert!(!html.contains("does not say which run"), "the trace identifies its run");
    let svg = fs::read_to_string(path.join("m.svg")).unwrap();
    assert!(svg.contains("class=\"sample\"") && svg.contains("class=\"gather\""), "{svg}");
    open_in_browser(path, "m.html");
    // A trace of strategy single would be empty: there is none, and a note.
    let out = halograph(path, "train g --out single --epochs 1 --trace s.json -q");
    assert!(String::from_utf8_lossy(&out.stderr).contains("no trace is written"));
    assert!(!path.join("s.json").exists());
}

/// Opens a page in Chromium, if it is installed, and checks that it logs no problem.
fn open_in_browser(folder: &Path, page: &str) {
    let url = format!("file://{}", folder.join(page).display());
    let profile = format!("--user-data-dir={}", folder.join("chromium").display());
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    let Ok(out) = browser.args([&profile, &url]).output() else {
        return halograph_testing::skip("chromium is not installed, so the page was not opened");
    };
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(!stderr.contains("CONSOLE"), "{stderr}");
    let dom = String::from_utf8_lossy(&out.stdout);
    assert!(dom.contains("id=\"metrics-1\"") && dom.contains("<h2>Settings"), "{dom}");
}
