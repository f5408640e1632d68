//! Tests of `halograph data make` through the binary.

use std::process::{Command, Output};

fn make(folder: &tempfile::TempDir, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_halograph"))
        .args(["data", "make", "-o", "out"])
        .args(args.split_whitespace())
        .current_dir(folder.path())
        .output()
        .expect("the binary starts")
}

fn refused(args: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let output = make(&folder, args);
    assert_eq!(output.status.code(), Some(2), "{args}");
    assert!(!folder.path().join("out").exists(), "{args}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn made(folder: &tempfile::TempDir, args: &str) -> serde_json::Value {
    let output = make(folder, args);
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one line of JSON")
}

#[test]
fn flags_override_or_replace_a_preset() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = made(&folder, "demo --nodes 1000 --edges 8000 --name tiny --threads 1 --json");
    let manifest = &report["manifest"];
    assert_eq!((&manifest["nodes"], &manifest["features"]), (&1000.into(), &32.into()));
    assert_eq!((&manifest["name"], &manifest["metric"]), (&"tiny".into(), &"accuracy".into()));
    let flags = "--nodes 90 --edges 300 --features 3 --classes 4 --multi-label --overwrite --json";
    let manifest = &made(&folder, flags)["manifest"];
    assert_eq!((&manifest["edges"], &manifest["metric"]), (&300.into(), &"micro-f1".into()));
}

#[test]
fn the_recorded_command_generates_the_same_dataset() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = made(&folder, "demo --seed 5 --json");
    let command = first["manifest"]["source"].as_str().and_then(|s| s.strip_prefix("make "));
    let again = made(&folder, &format!("{} --overwrite --json", command.expect("a command")));
    assert_eq!(first["manifest"]["fingerprint"], again["manifest"]["fingerprint"]);
}

#[test]
fn invalid_arguments_are_explained() {
    assert!(refused("dmo").contains("a similar value exists: 'demo'"));
    assert!(refused("").contains("neither a preset nor all of --nodes"));
    assert!(refused("--nodes 10 --edges 4").contains("halograph data make demo"));
    assert!(refused("demo --edges 7").contains("an odd number"));
    assert!(refused("demo --train 0.9 --val 0.2").contains("add up to more than 1"));
}
