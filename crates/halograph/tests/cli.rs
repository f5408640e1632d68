//! Tests of `halograph data` through the binary: output, files, exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use halograph_testing::SmallDisk;

fn halograph(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_halograph")).args(args).output().expect("the binary runs")
}

/// Runs a command and expects success; returns standard output.
fn ok(args: &[&str]) -> String {
    let out = halograph(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// Runs a command and expects exit code `code`; returns standard error.
fn fails(code: i32, args: &[&str]) -> String {
    let out = halograph(args);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{args:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Returns the names in a folder, including hidden ones.
fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn make_info_check_and_import_back() {
    let folder = tempfile::tempdir().unwrap();
    let (demo, copy) = (folder.path().join("demo"), folder.path().join("copy"));
    ok(&["data", "make", "demo", "-o", text(&demo)]);
    let names = entries(&demo);
    assert_eq!(names, ["dataset.json", "feat.npy", "indices.npy", "indptr.npy", "label.npy", "split.npy"]);
    assert!(ok(&["data", "check", text(&demo)]).contains("no fault found"));
    let info = ok(&["data", "info", text(&demo)]);
    for word in ["nodes", "degree", "homophily", "split", "training"] {
        assert!(info.contains(word), "{info}");
    }
    ok(&["data", "import", "npy", text(&demo), "-o", text(&copy), "-q"]);
    let fingerprint = |dir: &Path| {
        let json: serde_json::Value =
            serde_json::from_str(&ok(&["data", "info", text(dir), "--json"])).unwrap();
        json["manifest"]["fingerprint"].as_str().unwrap().to_string()
    };
    assert_eq!(fingerprint(&demo), fingerprint(&copy), "importing a dataset back changes nothing");
}

#[test]
fn a_dataset_without_labels_can_be_described_but_not_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("tables")).unwrap();
    fs::write(path("tables/edges.csv"), "src,dst\n0,1\n1,2\n").unwrap();
    fs::write(path("tables/nodes.csv"), "id,x,label\n0,1.5,-1\n1,0.5,-1\n2,2.5,-1\n").unwrap();
    let (tables, data) = (path("tables"), path("d"));
    ok(&["data", "import", "csv", text(&tables), "-o", text(&data), "-q"]);
    let warning = "no node has a label";
    assert!(ok(&["data", "info", text(&data)]).contains(warning));
    let json: serde_json::Value =
        serde_json::from_str(&ok(&["data", "info", text(&data), "--json"])).unwrap();
    assert!(json["warnings"][0].as_str().unwrap().contains(warning), "{json}");
    let checked = halograph(&["data", "check", text(&data)]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&checked.stderr).contains(&format!("warning: {warning}")));
    let refused = fails(2, &["train", text(&data), "--out", text(&path("r"))]);
    assert!(refused.contains("label.npy: no node has a label"), "{refused}");
    // A folder of tables is not a dataset; the error names the import command.
    let refused = fails(2, &["train", text(&tables), "--out", text(&path("r"))]);
    assert!(refused.contains(&format!("data import csv {} -o", text(&tables))), "{refused}");
}

#[test]
fn misspelt_arguments_suggest_the_most_similar_one() {
    assert!(fails(2, &["data", "maek", "demo", "-o", "x"]).contains("'make'"));
    assert!(fails(2, &["data", "make", "deno", "-o", "x"]).contains("'demo'"));
    assert!(fails(2, &["data", "import", "npy", "x", "--out", "y", "--direct"]).contains("'--directed'"));
    assert!(fails(2, &["data", "import", "planetiod", "x", "-o", "y"]).contains("'planetoid'"));
    assert!(
        fails(2, &["data", "import", "npy", "x", "-o", "y", "--metric", "acuracy"]).contains("'accuracy'")
    );
    assert!(fails(2, &["data", "import", "npy", "x", "-o", "y", "--split", "half"]).contains("per-class"));
}

#[test]
fn missing_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (missing, out) = (folder.path().join("missing"), folder.path().join("out"));
    for format in ["npy", "npz", "planetoid", "ogb", "graphsaint", "csv"] {
        let message = fails(2, &["data", "import", format, text(&missing), "-o", text(&out)]);
        assert!(message.contains(text(&missing)), "{format}: {message}");
    }
    for verb in ["info", "check"] {
        let message = fails(2, &["data", verb, text(&missing)]);
        assert!(message.contains(text(&missing)), "{verb}: {message}");
    }
    assert!(entries(folder.path()).is_empty());
}

#[test]
fn another_format_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    let manifest = demo.join("dataset.json");
    let old = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, old.replace("\"version\": 1", "\"version\": 7")).unwrap();
    for verb in ["info", "check"] {
        let message = fails(2, &["data", verb, text(&demo)]);
        assert!(message.contains("dataset version 7; this build reads version 1"), "{message}");
    }
}

#[test]
fn existing_output_is_replaced_only_with_overwrite() {
    let folder = tempfile::tempdir().unwrap();
    let (demo, other) = (folder.path().join("demo"), folder.path().join("other"));
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    let before = fs::read(demo.join("dataset.json")).unwrap();
    assert!(fails(2, &["data", "make", "demo", "--seed", "9", "-o", text(&demo)]).contains("--overwrite"));
    assert_eq!(fs::read(demo.join("dataset.json")).unwrap(), before);
    ok(&["data", "make", "demo", "--seed", "9", "-o", text(&demo), "--overwrite", "-q"]);
    assert_ne!(fs::read(demo.join("dataset.json")).unwrap(), before);
    fs::create_dir(&other).unwrap();
    fs::write(other.join("thesis.tex"), "years of work").unwrap();
    let message = fails(2, &["data", "make", "demo", "-o", text(&other), "--overwrite"]);
    assert!(message.contains("not a dataset"), "{message}");
    assert_eq!(entries(&other), ["thesis.tex"]);
    assert_eq!(entries(folder.path()), ["demo", "other"]);
}

#[test]
fn an_unwritable_output_is_refused() {
    // Not even root may create folders there.
    let message = fails(2, &["data", "make", "demo", "-o", "/sys/halograph-test"]);
    assert!(message.contains("/sys"), "{message}");
}

#[test]
fn check_reports_a_damaged_file() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    let file = fs::OpenOptions::new().write(true).open(demo.join("feat.npy")).unwrap();
    file.set_len(1000).unwrap();
    let out = halograph(&["data", "check", text(&demo)]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stdout).contains("feat.npy: truncated"));
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_files() {
    let Some(disk) = SmallDisk::mount() else { return };
    let out = disk.path().join("small");
    let message = fails(1, &["data", "make", "small", "-o", text(&out)]);
    assert!(message.contains("free"), "{message}");
    assert!(entries(disk.path()).is_empty(), "{:?}", entries(disk.path()));
    // The space for ids is not checked in advance: the disk fills up during writing.
    let tables = tempfile::tempdir().unwrap();
    let id = |v: usize| format!("{v}{}", "x".repeat(100_000));
    let nodes: String = (0..20).map(|v| format!("{},0,1\n", id(v))).collect();
    fs::write(tables.path().join("nodes.csv"), format!("id,label,x\n{nodes}")).unwrap();
    fs::write(tables.path().join("edges.csv"), format!("src,dst\n{},{}\n", id(0), id(1))).unwrap();
    let message = fails(1, &["data", "import", "csv", text(tables.path()), "-o", text(&out)]);
    assert!(message.contains("No space left"), "{message}");
    assert!(entries(disk.path()).is_empty(), "{:?}", entries(disk.path()));
}

/// Runs a line of bash in which `$H` is the binary and `$D` a folder; returns the exit code and standard error.
fn shell(folder: &Path, line: &str) -> (Option<i32>, String) {
    let out = Command::new("bash")
        .args(["-c", line])
        .env("H", env!("CARGO_BIN_EXE_halograph"))
        .env("D", folder)
        .output()
        .expect("bash runs");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn a_closed_pipe_is_no_error_and_hides_none() {
    let folder = tempfile::tempdir().unwrap();
    ok(&["data", "make", "demo", "-o", text(&folder.path().join("demo")), "-q"]);
    let quiet = (Some(0), String::new());
    assert_eq!(shell(folder.path(), "$H data info $D/demo | true; exit ${PIPESTATUS[0]}"), quiet);
    let (code, stderr) = shell(folder.path(), "$H data info $D/demo > /dev/full");
    assert!(code == Some(1) && stderr.contains("standard output: cannot write"), "{stderr}");
    fs::remove_file(folder.path().join("demo/feat.npy")).unwrap();
    let (code, _) = shell(folder.path(), "$H data check -q $D/demo | true; exit ${PIPESTATUS[0]}");
    assert_eq!(code, Some(2));
}

#[test]
fn overwrite_replaces_only_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, demo) = (folder.path().join("mine"), folder.path().join("demo"));
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("dataset.json"), "{}").unwrap();
    fs::write(mine.join("thesis.tex"), "years of work").unwrap();
    let message = fails(2, &["data", "make", "demo", "-o", text(&mine), "--overwrite"]);
    assert!(message.contains("not a dataset"), "{message}");
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    fs::write(demo.join("notes.md"), "keep me").unwrap();
    let message = fails(2, &["data", "make", "demo", "-o", text(&demo), "--overwrite"]);
    assert!(message.contains("notes.md"), "{message}");
    assert_eq!((entries(&mine).len(), entries(&demo).len()), (2, 7));
}

#[test]
fn of_two_concurrent_writers_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let line = "$H data make demo -q -o $D/x & $H data make demo --seed 1 -q -o $D/x; a=$?; wait $!; b=$?; exit $((a + b))";
    let (code, stderr) = shell(folder.path(), line);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("exists already"), "{stderr}");
    assert_eq!(entries(folder.path()), ["x"]);
    ok(&["data", "check", "-q", text(&folder.path().join("x"))]);
}

#[test]
fn a_failure_removes_the_folders_it_created() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/deep/out");
    fs::write(folder.path().join("edges.csv"), "src,dst\n0,1\n").unwrap();
    fs::write(folder.path().join("nodes.csv"), "id,label,x\n0,0,1\n1,1,nan\n").unwrap();
    fails(2, &["data", "import", "csv", text(folder.path()), "-o", text(&out)]);
    assert_eq!(entries(folder.path()), ["edges.csv", "nodes.csv"]);
}

#[test]
fn a_signal_cancels_the_work_and_leaves_no_files() {
    for signal in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        // The signal is sent when the temporary folder exists: during writing.
        let line = "$H data make reddit-like --features 20000 -q -o $D/big & p=$!
            for i in $(seq 600); do ls -A $D | grep -q partial && break; sleep 0.05; done
            kill -SIGNAL $p; wait $p";
        let (code, stderr) = shell(folder.path(), &line.replace("SIGNAL", signal));
        assert_eq!(code, Some(130), "{signal}: {stderr}");
        assert!(stderr.contains("interrupted; nothing was written"), "{stderr}");
        assert!(entries(folder.path()).is_empty(), "{signal}: {:?}", entries(folder.path()));
    }
}

#[test]
fn importing_a_dataset_again_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("edges.csv"), "src,dst\nb,a\na,a\nc,b\n").unwrap();
    fs::write(path("nodes.csv"), "id,label,x\na,cat,1\nb,dog,2\nc,cat,3\n").unwrap();
    let first = ["data", "import", "csv", text(folder.path()), "--directed", "--keep-self-loops", "--json"];
    let manifest = |args: &[&str]| {
        let report: serde_json::Value = serde_json::from_str(&ok(args)).unwrap();
        let manifest = &report["manifest"];
        ["fingerprint", "class_names", "directed", "edges", "name"].map(|key| manifest[key].clone())
    };
    let (one, two) = (path("one"), path("two"));
    let before = manifest(&[&first[..], &["-o", text(&one)]].concat());
    let after = manifest(&["data", "import", "npy", text(&one), "-o", text(&two), "--json"]);
    assert_eq!(before, after);
    assert_eq!(fs::read_to_string(two.join("ids.txt")).unwrap(), "a\nb\nc\n");
    fs::write(one.join("ids.txt"), "a\n").unwrap();
    let again = path("three");
    for flags in [&[][..], &["--largest-component"]] {
        let args = [&["data", "import", "npy", text(&one), "-o", text(&again)], flags].concat();
        assert!(fails(2, &args).contains("ids.txt: 1 lines for 3 nodes"));
    }
}

#[test]
fn the_largest_component_keeps_the_original_ids() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    fs::write(folder.path().join("edges.csv"), "src,dst\n1,2\n2,3\n").unwrap();
    fs::write(folder.path().join("nodes.csv"), "id,label,x\n0,0,1\n1,1,1\n2,0,1\n3,1,1\n").unwrap();
    ok(&["data", "import", "csv", text(folder.path()), "-o", text(&out), "--largest-component"]);
    assert_eq!(fs::read_to_string(out.join("ids.txt")).unwrap(), "1\n2\n3\n");
}

#[test]
fn a_manifest_is_checked_against_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    let original = fs::read_to_string(demo.join("dataset.json")).unwrap();
    for (from, to) in [
        ("\"classes\": 8", "\"classes\": 999999999999"),
        ("\"nodes\": 4000", "\"nodes\": 9999999999999999999"),
        ("\"edges\": 48000", "\"edges\": 18446744073709551615"),
        ("\"features\": 32", "\"features\": 18446744073709551615"),
        ("\"feat.npy\"", "\"../feat.npy\""),
    ] {
        let damaged = original.replacen(from, to, 1);
        assert_ne!(damaged, original, "{from}");
        fs::write(demo.join("dataset.json"), damaged).unwrap();
        fails(2, &["data", "info", text(&demo)]);
        let out = halograph(&["data", "check", text(&demo)]);
        assert_eq!(out.status.code(), Some(2), "{to}");
    }
}

#[test]
fn every_command_has_help() {
    for words in
        [&["--help"][..], &["data", "--help"], &["data", "import", "--help"], &["data", "make", "--help"]]
    {
        assert!(ok(words).contains("Usage:"));
    }
    for format in ["npy", "npz", "planetoid", "ogb", "graphsaint", "csv", "parquet"] {
        assert!(ok(&["data", "import", format, "--help"]).contains("--largest-component"), "{format}");
    }
}

#[test]
fn features_can_be_stored_in_16_bits() {
    let folder = tempfile::tempdir().unwrap();
    let [demo, half, run] = ["demo", "half", "run"].map(|name| folder.path().join(name));
    ok(&["data", "make", "demo", "-o", text(&demo)]);
    ok(&["data", "import", "npy", text(&demo), "-o", text(&half), "--features", "f16"]);
    let size = |dir: &Path| fs::metadata(dir.join("feat.npy")).unwrap().len() - 128;
    assert_eq!(size(&half) * 2, size(&demo));
    assert!(ok(&["data", "check", text(&half)]).contains("no fault found"));
    assert!(ok(&["data", "info", text(&half)]).contains("as f16"));
    assert!(ok(&["data", "info", text(&demo)]).contains("as f32"));
    let train = |data: &Path, seed: &str| {
        let out = ["--epochs", "40", "--seed", seed, "--out", text(&run), "--overwrite", "--json"];
        let json: serde_json::Value =
            serde_json::from_str(&ok(&[&["train", text(data)], &out[..]].concat())).unwrap();
        ["loss", "test"].map(|key| json[key].as_f64().unwrap())
    };
    let mut gap = 0.0;
    for seed in ["0", "1", "2"] {
        let (wide, narrow) = (train(&demo, seed), train(&half, seed));
        assert!(
            wide[0] != narrow[0] && (wide[0] - narrow[0]).abs() < 0.02 * wide[0],
            "{wide:?} and {narrow:?}"
        );
        gap += (wide[1] - narrow[1]) / 3.0;
    }
    assert!(gap.abs() < 0.005, "the mean accuracy moved by {gap}");
}

#[test]
fn a_feature_that_exceeds_f16_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("source"), folder.path().join("out"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("edges.csv"), "src,dst\n0,1\n").unwrap();
    fs::write(source.join("nodes.csv"), "id,label,a,b\n0,0,1.5,65504\n1,1,2.5,-70000\n").unwrap();
    let import = ["data", "import", "csv", text(&source), "-o", text(&out)];
    let message = fails(2, &[&import[..], &["--features", "f16"]].concat());
    for word in ["feature 1 of node 1 is -70000", "65504", "--feature-type f32", "nodes.csv"] {
        assert!(message.contains(word), "{message}");
    }
    assert!(!out.exists());
    ok(&import);
}

#[test]
fn edge_weights_go_from_a_table_into_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("t")).unwrap();
    let nodes: String = (0..30).map(|v| format!("{v},{},{}\n", v % 7, v % 2)).collect();
    fs::write(path("t/nodes.csv"), format!("id,x,label\n{nodes}")).unwrap();
    let edges: String = (0..60).map(|i| format!("{},{},{}\n", i % 30, (i * 7 + 1) % 30, i % 5)).collect();
    let table = |edges: &str| fs::write(path("t/edges.csv"), format!("src,dst,weight\n{edges}")).unwrap();
    let (tables, data, parts) = (path("t"), path("d"), path("parts"));
    let import =
        ["data", "import", "csv", text(&tables), "-o", text(&data), "--split", "fraction:0.4,0.2", "-q"];

    table(&edges.replacen(",1\n", ",-1\n", 1));
    let refused = fails(2, &import);
    assert!(refused.contains("edges.csv, line 3, column weight: weight -1"), "{refused}");
    table(&edges.replacen(",1\n", ",\n", 1));
    assert!(fails(2, &import).contains("column weight: an empty cell"));
    assert_eq!(entries(folder.path()), ["t"], "nothing is left behind");

    table(&edges);
    ok(&import);
    let info = ok(&["data", "info", text(&data)]);
    assert!(info.contains("edge weights min 0, median "), "{info}");
    assert!(ok(&["data", "check", text(&data)]).contains("no fault found"));
    ok(&["partition", text(&data), "-k", "2", "--method", "random", "-o", text(&parts)]);
    let loss = |source: &Path, name: &str, more: &[&str]| {
        let run = path(name);
        let usual = ["--epochs", "3", "--hidden", "4", "--precision", "f64", "--json", "--out", text(&run)];
        let out = halograph(&[&["train", text(source)][..], &usual, more].concat());
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{stderr}");
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        (json["loss"].as_f64().unwrap(), stderr)
    };
    let (weighted, notes) = loss(&data, "weighted", &[]);
    assert!(!notes.contains("edge weights"), "{notes}");
    let (on_ranks, _) = loss(&parts, "ranks", &[]);
    assert!((weighted - on_ranks).abs() < 1e-9, "{weighted} and {on_ranks}");
    let (plain, _) = loss(&data, "plain", &["--edge-weights", "false"]);
    assert!((weighted - plain).abs() > 1e-6, "{weighted} and {plain}");
    let (_, notes) = loss(&data, "gat", &["--model", "gat"]);
    assert!(notes.contains("model gat does not use the edge weights"), "{notes}");
    let run = path("weighted");
    ok(&["eval", text(&run)]);

    let bytes = fs::read(data.join("edge_weight.npy")).unwrap();
    let mut nan = bytes.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(data.join("edge_weight.npy"), &nan).unwrap();
    let refused = fails(2, &["train", text(&data), "--out", text(&path("nan"))]);
    assert!(refused.contains("edge_weight.npy, element") && refused.contains("NaN"), "{refused}");
    fs::write(data.join("edge_weight.npy"), &bytes[..end - 4]).unwrap();
    let refused = fails(2, &["train", text(&data), "--out", text(&path("short"))]);
    assert!(refused.contains("edge_weight.npy") && refused.contains("truncated"), "{refused}");
    assert!(!path("nan").exists() && !path("short").exists());
}
