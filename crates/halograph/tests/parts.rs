//! Training on graphs in parts, and on ranks of one process, as a user meets it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Flags of a small model that is trained in no time.
const QUICK: &str = "--hidden 8 --layers 2 --epochs 4 --threads 1";

/// Runs a command line, split at spaces, inside `folder`.
fn halograph(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halograph"));
    command.args(line.split_whitespace()).current_dir(folder).output().expect("the binary runs")
}

/// Runs, expects success, gives standard output.
fn ok(folder: &Path, line: &str) -> String {
    let out = halograph(folder, line);
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text")
}

/// Runs, expects bad input, gives standard error.
fn refused(folder: &Path, line: &str) -> String {
    let out = halograph(folder, line);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{line}: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

/// A folder with a small dataset `g` and two parts of it, `s`.
fn parts() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    ok(folder.path(), "partition g -k 2 --method random -o s -q");
    folder
}

/// Names in a folder, hidden ones too.
fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_damaged_part_leaves_no_run() {
    for part in ["part-0000", "part-0001"] {
        let folder = parts();
        let path = folder.path();
        let file = path.join("s").join(part).join("indices.npy");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
        for out in ["--out r", "--out deep/er/r", ""] {
            let message = refused(path, &format!("train s {out} {QUICK}"));
            assert!(message.contains(part) && message.contains("indices.npy"), "{message}");
            assert_eq!(entries(path), ["g", "s"], "{out}");
        }
        fs::create_dir(path.join("empty")).unwrap();
        refused(path, &format!("train s --out empty {QUICK}"));
        assert!(entries(&path.join("empty")).is_empty());
        fs::remove_dir_all(path.join("s").join(part)).unwrap();
        assert!(refused(path, &format!("train s --out r {QUICK}")).contains(part));
        assert_eq!(entries(path), ["empty", "g", "s"]);
    }
}

#[test]
fn a_missing_or_wrong_file_of_a_dataset_leaves_no_run() {
    let folder = parts();
    let path = folder.path();
    fs::write(path.join("g/feat.npy"), "nothing").unwrap();
    assert!(refused(path, &format!("train g --ranks 2 --out r {QUICK}")).contains("feat.npy"));
    fs::remove_file(path.join("g/feat.npy")).unwrap();
    assert!(refused(path, &format!("train g --out r {QUICK}")).contains("feat.npy"));
    assert_eq!(entries(path), ["g", "s"]);
}
