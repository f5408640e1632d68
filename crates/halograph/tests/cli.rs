//! The command line as a user meets it: what it prints, what it leaves behind, how it ends.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn halograph(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_halograph")).args(args).output().expect("the binary runs")
}

/// Runs, expects success, gives standard output.
fn ok(args: &[&str]) -> String {
    let out = halograph(args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// Runs, expects `code`, gives standard error.
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

/// Names in a folder, hidden ones too.
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
fn wrong_words_get_the_nearest_right_one() {
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
fn another_version_is_refused_by_number() {
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
fn existing_output_is_kept_unless_told_otherwise() {
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
    // Nobody, root included, may make folders there.
    let message = fails(2, &["data", "make", "demo", "-o", "/sys/halograph-test"]);
    assert!(message.contains("/sys"), "{message}");
}

#[test]
fn damage_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    let file = fs::OpenOptions::new().write(true).open(demo.join("feat.npy")).unwrap();
    file.set_len(1000).unwrap();
    let out = halograph(&["data", "check", text(&demo)]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stdout).contains("feat.npy: truncated"));
}

/// A tmpfs of 1 MiB, if this process may mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
        let done = Command::new("mount").args(mount).arg(folder.path()).output().ok()?;
        done.status.success().then_some(SmallDisk(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn a_full_disk_is_named_and_left_clean() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("skipped: mounting a small tmpfs needs root");
        return;
    };
    let out = disk.0.path().join("small");
    let message = fails(1, &["data", "make", "small", "-o", text(&out)]);
    assert!(message.contains("free"), "{message}");
    assert!(entries(disk.0.path()).is_empty(), "{:?}", entries(disk.0.path()));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let demo = folder.path().join("demo");
    ok(&["data", "make", "demo", "-o", text(&demo), "-q"]);
    let bin = env!("CARGO_BIN_EXE_halograph");
    let line = format!("{bin} data info {} | true; exit ${{PIPESTATUS[0]}}", text(&demo));
    let out = Command::new("bash").args(["-c", &line]).output().unwrap();
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn every_verb_has_help() {
    for words in
        [&["--help"][..], &["data", "--help"], &["data", "import", "--help"], &["data", "make", "--help"]]
    {
        assert!(ok(words).contains("Usage:"));
    }
    for format in ["npy", "npz", "planetoid", "ogb", "graphsaint", "csv", "parquet"] {
        assert!(ok(&["data", "import", format, "--help"]).contains("--largest-component"), "{format}");
    }
}
