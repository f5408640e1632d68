//! What commands print and write: predictions, version, help, completions, man pages, notes.

mod common;

use std::fs;
use std::path::Path;

use halograph::graph::io::npy::Array;
use halograph_kernels::simd::Level;
use serde_json::Value;
use tempfile::TempDir;

use common::{halograph, ok, refused};

const TRAIN: &str = "train g -o r -q --hidden 8 --layers 2 --epochs 3 --threads 1";

/// Creates a folder with a dataset `g`.
fn with_data() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 200 --edges 1600 --features 8 --classes 3 -o g -q");
    folder
}

/// Creates a folder with a dataset `g` and a run `r`.
fn with_run() -> TempDir {
    let folder = with_data();
    ok(folder.path(), TRAIN);
    folder
}

fn stderr(folder: &Path, line: &str) -> String {
    String::from_utf8(halograph(folder, line).stderr).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

/// Parses predictions in CSV; checks the header and the node numbers. `skipped`: columns before the numbers, ids included.
fn parse_csv(text: &str, header: &str, skipped: usize) -> Vec<f32> {
    let mut lines = text.lines();
    assert_eq!(lines.next().unwrap(), header);
    let row = |(v, line): (usize, &str)| {
        let mut fields = line.splitn(skipped + 1, ',');
        assert_eq!(fields.next().unwrap(), v.to_string());
        let values = fields.last().unwrap();
        values.split(',').map(|x| x.parse().unwrap()).collect::<Vec<f32>>()
    };
    lines.enumerate().flat_map(row).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn csv_predictions_equal_the_npy_file() {
    let folder = with_run();
    let path = folder.path();
    let embeddings = "id,e0,e1,e2,e3,e4,e5,e6,e7";
    for (flags, columns, header, skipped) in [
        ("--output logits", 3, "id,class,logit_0,logit_1,logit_2", 2),
        ("--output probabilities", 3, "id,class,p_0,p_1,p_2", 2),
        ("--embeddings", 8, embeddings, 1),
        ("--embeddings 1", 8, embeddings, 1),
    ] {
        ok(path, &format!("predict r -o p.npy --overwrite {flags}"));
        ok(path, &format!("predict r -o p.csv --overwrite {flags}"));
        let array = Array::open(&path.join("p.npy")).unwrap();
        assert_eq!(array.header.shape, [200, columns]);
        let expected = bits(array.as_slice().unwrap());
        let text = fs::read_to_string(path.join("p.csv")).unwrap();
        assert_eq!(bits(&parse_csv(&text, header, skipped)), expected, "{flags}");
        // The same text on standard output, and no file.
        assert_eq!(ok(path, &format!("predict r -o - {flags}")), text);
    }
    assert_eq!(names(path), ["g", "p.csv", "p.npy", "r"]);
    assert!(refused(path, "predict r -o p.csv").contains("--overwrite"));
}

#[test]
fn hidden_layers_are_those_of_the_model() {
    let folder = with_data();
    let path = folder.path();
    // Number of hidden layers: the MLP of gin is part of its layer, the dense layer before gcnii counts.
    for (model, hidden) in [("gin", 1), ("gcn", 1), ("gcnii", 3)] {
        ok(
            path,
            &format!("train g -o {model} -q --model {model} --hidden 8 --layers 2 --epochs 2 --threads 1"),
        );
        ok(path, &format!("predict {model} -o {model}.npy --embeddings {hidden} -q"));
        ok(path, &format!("predict {model} -o {model}-last.npy --embeddings -q"));
        let read = |name: &str| fs::read(path.join(name)).unwrap();
        assert!(read(&format!("{model}.npy")) == read(&format!("{model}-last.npy")), "{model}");
        let message = refused(path, &format!("predict {model} -o x.npy --embeddings {}", hidden + 1));
        assert!(message.contains(&format!("the model has {hidden}, counted from 1")), "{message}");
    }
}

#[test]
fn other_formats_of_predictions_are_refused() {
    let folder = with_run();
    for file in ["x.txt", "x", "npy"] {
        let message = refused(folder.path(), &format!("predict r -o {file}"));
        assert!(message.contains(file) && message.contains(".npy, .csv or .parquet"), "{message}");
    }
    for layer in [0, 3] {
        let message = refused(folder.path(), &format!("predict r -o x.npy --embeddings {layer}"));
        assert!(message.contains(&format!("no hidden layer {layer}: the model has ")), "{message}");
    }
    assert_eq!(names(folder.path()), ["g", "r"]);
}

#[test]
fn a_closed_pipe_ends_predict_without_an_error() {
    let folder = with_run();
    let mut bash = std::process::Command::new("bash");
    let line = "$H predict r -o - | head -1; exit ${PIPESTATUS[0]}";
    let bash = bash.args(["-c", line]).env("H", env!("CARGO_BIN_EXE_halograph"));
    let out = bash.current_dir(folder.path()).output().unwrap();
    assert_eq!((out.status.code(), out.stdout), (Some(0), b"id,class,p_0,p_1,p_2\n".to_vec()));
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn quiet_commands_print_results_and_no_notes() {
    let folder = with_run();
    let path = folder.path();
    let scores = ok(path, "eval r");
    assert_eq!(ok(path, "eval r -q"), scores);
    // Another graph in the same place: a note.
    ok(path, "data make --nodes 200 --edges 1600 --features 8 --classes 3 --seed 9 -o g -q --overwrite");
    for command in ["eval r", "predict r -o p.npy"] {
        let stderr = stderr(path, command);
        assert!(stderr.contains("note: ") && stderr.contains("has changed"), "{stderr}");
    }
    assert_eq!(stderr(path, "eval r -q"), "");
    let out = halograph(path, "predict r -o p.npy -q --overwrite");
    assert!(out.status.success() && out.stdout.is_empty() && out.stderr.is_empty());
}

#[test]
fn boolean_flags_take_a_value_with_or_without_an_equals_sign() {
    let folder = with_data();
    let pipelined = "--ranks 2 --strategy pipelined --partition random --warmup-epochs 0 --overwrite";
    for (flag, expected) in [
        ("--smooth-correction false", false),
        ("--smooth-correction=false", false),
        ("--smooth-correction", true),
        ("--smooth-correction true", true),
    ] {
        ok(folder.path(), &format!("{TRAIN} {pipelined} {flag}"));
        let run: Value =
            serde_json::from_slice(&fs::read(folder.path().join("r/run.json")).unwrap()).unwrap();
        assert_eq!(run["config"]["train"]["smooth_correction"], expected, "{flag}");
    }
    assert!(refused(folder.path(), &format!("{TRAIN} --smooth-correction maybe")).contains("true, false"));
}

#[test]
fn the_version_names_mpi_and_the_instruction_set() {
    let mpi = if cfg!(feature = "mpi") { "MPI" } else { "no MPI" };
    let expected = format!("halograph {} ({mpi}, {})\n", env!("CARGO_PKG_VERSION"), Level::best().name());
    for flag in ["-V", "--version"] {
        assert_eq!(ok(Path::new("."), flag), expected);
    }
}

#[test]
fn completions_know_the_flags_of_train() {
    let here = Path::new(".");
    for (shell, flag) in [("bash", "--hidden"), ("zsh", "--hidden"), ("fish", "-l hidden")] {
        let script = ok(here, &format!("completions {shell}"));
        assert!(script.contains(flag), "{shell}");
    }
    assert!(refused(here, "completions basic").contains("bash"));
}

#[test]
fn man_pages_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(ok(path, "man -o share/man1"), "share/man1\n");
    let names = names(&path.join("share/man1"));
    for page in ["halograph.1", "halograph-train.1", "halograph-predict.1", "halograph-data-make.1"] {
        assert!(names.iter().any(|name| name == page), "{page} in {names:?}");
    }
    let train = fs::read_to_string(path.join("share/man1/halograph-train.1")).unwrap();
    assert!(train.contains("hidden") && train.starts_with('.'));
    assert!(train.contains("macrobatch") && train.contains("row\\-cache"), "{train}");
    // Again: pages are replaced.
    ok(path, "man -o share/man1");
}

#[test]
fn short_help_is_shorter_and_both_have_headings() {
    let here = Path::new(".");
    let (short, long) = (ok(here, "train -h"), ok(here, "train --help"));
    assert!(short.len() < long.len(), "{} and {} bytes", short.len(), long.len());
    for help in [&short, &long] {
        for heading in [
            "Model",
            "Optimisation",
            "Strategy and ranks",
            "Strategy pipelined (PipeGCN)",
            "Strategies minibatch (BatchGNN) and split (GSplit)",
            "Strategies layers and hybrid (GNNPipe)",
            "Output",
        ] {
            assert!(help.lines().any(|line| line == format!("{heading}:")), "{heading} in {help}");
        }
        assert!(help.contains("--hidden") && help.contains("Examples:"));
        assert!(help.contains("--batch-memory") && help.contains("[default: 512MiB]"), "{help}");
    }
}

#[test]
fn divergence_in_the_first_epoch_leaves_no_run() {
    let folder = with_data();
    for flags in ["", "--ranks 2 --partition random"] {
        let out = halograph(folder.path(), &format!("{TRAIN} --lr 1e30 {flags}"));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("epoch 1: ") && stderr.contains("nothing was saved"), "{stderr}");
        assert!(!stderr.contains("checkpoint") && stderr.contains("train.lr"), "{stderr}");
        assert_eq!(names(folder.path()), ["g"]);
    }
}

#[test]
fn divergence_later_names_the_checkpoint_that_is_kept() {
    let folder = with_run();
    let path = folder.path();
    // Three epochs are trained; the fourth diverges with damaged features.
    let file = path.join("g/feat.npy");
    let mut bytes = fs::read(&file).unwrap();
    let start = bytes.len() - 200 * 8 * 4;
    bytes[start..].chunks_exact_mut(4).for_each(|x| x.copy_from_slice(&f32::MAX.to_le_bytes()));
    fs::write(&file, bytes).unwrap();
    let out = halograph(path, "train --resume -o r --epochs 5 -q");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("epoch 4: ") && stderr.contains("the checkpoint of epoch 3"), "{stderr}");
    assert!(path.join("r/ckpt-3").exists());
}

#[test]
fn an_undefined_validation_score_is_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    fs::create_dir(path.join("tables")).unwrap();
    let edges: String = (0..29).map(|v| format!("{v},{}\n", v + 1)).collect();
    fs::write(path.join("tables/edges.csv"), format!("src,dst\n{edges}")).unwrap();
    // All validation nodes have class 0: AUC is undefined on them.
    let row = |v: usize| match v % 3 {
        1 => format!("{v},0,{v},val\n"),
        part => format!("{v},{},{v},{}\n", v / 3 % 2, ["train", "", "test"][part]),
    };
    let rows: String = (0..30).map(row).collect();
    fs::write(path.join("tables/nodes.csv"), format!("id,label,x,split\n{rows}")).unwrap();
    ok(path, "data import csv tables -o g -q --metric auc");
    let out = halograph(path, &format!("{TRAIN} --patience 1"));
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{stderr}");
    assert_eq!(stderr.matches("note: the validation score is undefined").count(), 1, "{stderr}");
    let lines = fs::read_to_string(path.join("r/metrics.jsonl")).unwrap().lines().count();
    assert_eq!(lines, 3, "early stopping is off");
}
