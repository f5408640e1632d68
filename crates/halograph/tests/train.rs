//! Tests of `halograph train`, `eval` and `predict` through the binary.

mod common;
#[path = "common/shell.rs"]
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use halograph::graph::io::npy::Array;
use serde_json::Value;
use tempfile::TempDir;

use common::{halograph, ok, refused};
use shell::shell;

/// Creates a folder with a small dataset `g`.
fn small() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    folder
}

/// Flags of a model that trains quickly.
const QUICK: &str = "--hidden 8 --layers 2 --epochs 4 --threads 1";

/// Returns the training losses in `metrics.jsonl`, with all digits.
fn losses(run: &Path) -> Vec<String> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let loss = |line: &str| serde_json::from_str::<Value>(line).unwrap()["loss"].to_string();
    text.lines().map(loss).collect()
}

fn json(text: &str) -> Value {
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(text).expect("JSON")
}

fn only_entry(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap();
    let path = entries.next().expect("an entry").unwrap().path();
    assert!(entries.next().is_none(), "more than {}", path.display());
    path
}

#[test]
fn train_without_arguments_runs_on_the_built_in_graph() {
    let folder = tempfile::tempdir().unwrap();
    let summary = ok(folder.path(), "train --epochs 2 --hidden 8");
    for word in ["GraphSAGE", "parameters", "demo", "accuracy", "test", "median", "halograph predict runs/"] {
        assert!(summary.contains(word), "{summary}");
    }
    let run = only_entry(&folder.path().join("runs"));
    let name = run.file_name().unwrap().to_str().unwrap();
    assert!(name.ends_with("-demo-sage"), "{name}");
    for file in ["run.json", "metrics.jsonl", "model.safetensors", "demo-data/dataset.json"] {
        assert!(run.join(file).exists(), "{file}");
    }
    let moved = folder.path().join("moved");
    fs::rename(&run, &moved).unwrap();
    assert!(ok(folder.path(), "eval moved").contains("validation"));
    assert_eq!(json(&ok(folder.path(), "train --resume --out moved --epochs 3 --json"))["epochs"], 3);
    ok(folder.path(), "train --overwrite --out moved --epochs 1 --hidden 4 -q");
    assert_eq!(losses(&moved).len(), 1);
}

/// Returns whether messages are only that a model of few epochs is no better than the majority class.
fn has_only_score_notes(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    text.lines().all(|line| line.starts_with("note: test accuracy ") && line.contains("no better than"))
}

#[test]
fn json_has_all_fields() {
    let folder = small();
    let out = halograph(folder.path(), &format!("train g --out r --json {QUICK}"));
    assert!(out.status.success() && has_only_score_notes(&out.stderr));
    let line = json(std::str::from_utf8(&out.stdout).unwrap());
    let fields = "strategy transport ranks threads model epochs metric loss loss_history train val test best_epoch \
        epoch_seconds_median epoch_seconds compute_seconds wait_seconds bytes_per_epoch bytes_by_tag \
        messages_per_epoch peak_rss_bytes seconds_to_best ending run data";
    for field in fields.split_whitespace() {
        assert!(line.get(field).is_some(), "{field} is missing in {line}");
    }
    assert_eq!(line["loss_history"].as_array().unwrap().len(), 4);
    let scores = json(&ok(folder.path(), "eval r --json"));
    for part in ["train", "val", "test", "metric"] {
        assert_eq!(scores[part], line[part], "{part} of the kept weights");
    }
}

#[test]
fn flags_win_over_set_and_set_over_the_file() {
    let folder = small();
    let file = "[model]\nkind = \"gcn\"\nhidden = 4\n[train]\nlr = 1\nepochs = 3\nweight_decay_for = { \"convs.0\" = 1 }\n";
    fs::write(folder.path().join("c.toml"), file).unwrap();
    ok(
        folder.path(),
        "train g --config c.toml --set train.lr=0.5 --set model={hidden=6,layers=2} --epochs 2 --out r -q",
    );
    let run: Value = serde_json::from_slice(&fs::read(folder.path().join("r/run.json")).unwrap()).unwrap();
    let config = &run["config"];
    assert_eq!((&config["model"]["kind"], &config["model"]["hidden"]), (&"gcn".into(), &6.into()));
    assert_eq!((&config["train"]["lr"], &config["train"]["epochs"]), (&0.5.into(), &2.into()));
    assert_eq!(config["train"]["weight_decay_for"]["convs.0"], 1.0);
    assert!(Path::new(run["data"]["path"].as_str().unwrap()).is_absolute());
}

#[test]
fn bad_settings_are_refused_before_anything_is_written() {
    let folder = small();
    let path = folder.path();
    fs::write(path.join("typo.toml"), "[model]\n\nhiden = 3\n").unwrap();
    fs::write(path.join("type.toml"), "[train]\nlr = \"fast\"\n").unwrap();
    fs::write(path.join("broken.toml"), "[train\n").unwrap();
    for (flags, words) in [
        ("--layers 0", "--layers: model.layers: 0: must be at least 1"),
        ("--lr nan", "--lr: train.lr: NaN"),
        ("--lr NaN", "train.lr: \"NaN\": must be a number"),
        ("--lr -1", "train.lr: -1: must be a positive number"),
        ("--hidden -1", "--hidden: model.hidden: -1: must be a whole number"),
        ("--epochs 0", "train.epochs"),
        ("--dropout 1", "model.dropout"),
        ("--model sagee", "'sage'"),
        ("--norm batchh", "'batch'"),
        ("--model gat --hidden 10 --heads 4", "model.heads"),
        ("--set model.kind=gcni", "must be one of gcnii, gcn"),
        ("--set model.hiden=3", "--set: unknown key model.hiden\n  help: did you mean model.hidden?"),
        ("--set hidden=3", "did you mean model.hidden?"),
        ("--set hidden", "is not key=value"),
        ("--config typo.toml", "typo.toml, line 3: unknown key model.hiden"),
        ("--config type.toml", "type.toml, line 2: train.lr: \"fast\": must be a number"),
        ("--config broken.toml", "broken.toml, line 1: not TOML"),
        ("--config none.toml", "none.toml: cannot read"),
        ("--epoch 3", "'--epochs'"),
        ("--resume", "--out"),
    ] {
        let message = refused(path, &format!("train g {flags}"));
        assert!(message.contains(words), "{flags}: {message}");
    }
    assert!(!path.join("runs").exists());
}

#[test]
fn data_without_labels_or_training_nodes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let table = |labels: [&str; 3], split: [&str; 3]| {
        fs::write(path.join("edges.csv"), "src,dst\n0,1\n1,2\n").unwrap();
        let row = |v: usize| format!("{v},{},1,{}\n", labels[v], split[v]);
        let rows: String = (0..3).map(row).collect();
        fs::write(path.join("nodes.csv"), format!("id,label,x,split\n{rows}")).unwrap();
        ok(path, "data import csv . -o d -q --overwrite");
    };
    table(["0", "1", "0"], ["val", "val", "test"]);
    assert!(refused(path, "train d --out r").contains("training node"));
    table(["", "1", "0"], ["train", "val", "test"]);
    assert!(refused(path, "train d --out r").contains("training node"));
    table(["0", "1", "0"], ["train", "val", "test"]);
    let (labels, bytes) = (path.join("d/label.npy"), fs::read(path.join("d/label.npy")).unwrap());
    let header = bytes.len() - 3 * 8;
    // All labels -1, then only that of the training node.
    fs::write(&labels, [&bytes[..header], &[0xff; 24]].concat()).unwrap();
    assert!(refused(path, "train d --out r").contains("no node has a label"));
    fs::write(&labels, [&bytes[..header], &[0xff; 8], &bytes[header + 8..]].concat()).unwrap();
    assert!(refused(path, "train d --out r").contains("no training node has a label"));
    assert!(refused(path, "train . --out r").contains("not a dataset directory"));
    assert!(refused(path, "train nowhere --out r").contains("nowhere"));
    assert!(!path.join("r").exists(), "refused data leave no run");
}

#[test]
fn an_existing_run_is_replaced_only_with_overwrite() {
    let folder = small();
    let (path, run) = (folder.path(), folder.path().join("r"));
    ok(path, &format!("train g --out r -q {QUICK}"));
    let before = losses(&run);
    let message = refused(path, &format!("train g --out r --seed 1 {QUICK}"));
    assert!(message.contains("--resume") && message.contains("--overwrite"), "{message}");
    assert_eq!(losses(&run), before);
    ok(path, &format!("train g --out r --seed 1 --overwrite -q --tensorboard {QUICK}"));
    assert_ne!(losses(&run), before);
    ok(path, &format!("train g --out r --overwrite -q {QUICK}"));
    assert!(!run.join("tensorboard").exists(), "event files of the old run are removed");
    assert_eq!(losses(&run), before, "the same seed gives the same run");
    for folder in [".", "tensorboard", "demo-data"] {
        fs::create_dir_all(run.join(folder)).unwrap();
        let file = run.join(folder).join("thesis.tex");
        fs::write(&file, "years of work").unwrap();
        assert!(refused(path, &format!("train g --out r --overwrite {QUICK}")).contains("thesis.tex"));
        fs::remove_file(file).unwrap();
    }
    assert!(refused(path, &format!("train g --out g --overwrite {QUICK}")).contains("another --out"));
    fs::create_dir(path.join("mine")).unwrap();
    fs::write(path.join("mine/thesis.tex"), "years of work").unwrap();
    assert!(refused(path, &format!("train g --out mine --overwrite {QUICK}")).contains("not a run"));
}

#[test]
fn an_artificial_delay_of_messages_changes_no_result() {
    let folder = small();
    let path = folder.path();
    let train = |flags: &str| json(&ok(path, &format!("train g --json --ranks 2 {QUICK} {flags}")));
    train("--out plain");
    let summary = train("--out delayed --send-delay 500");
    assert_eq!(losses(&path.join("delayed")), losses(&path.join("plain")));
    // The sum of the losses takes two messages, one after the other.
    let seconds = summary["epoch_seconds"].as_array().expect("one number per epoch");
    assert!(seconds.iter().all(|seconds| seconds.as_f64().unwrap() >= 2.0 * 500e-6), "{seconds:?}");
    let config = |run: &str| {
        let text = fs::read_to_string(path.join(run).join("run.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["config"].clone()
    };
    assert!(config("plain").is_object() && config("delayed") == config("plain"));
    assert!(!ok(path, "train --help").contains("send-delay"), "only for benchmarks");
}

#[test]
fn another_format_version_is_refused() {
    let folder = small();
    let (path, file) = (folder.path(), folder.path().join("r/run.json"));
    ok(path, &format!("train g --out r -q {QUICK}"));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"version\": 1", "\"version\": 7")).unwrap();
    for line in ["train --resume --out r", "eval r", "predict r -o x.npy"] {
        let message = refused(path, line);
        assert!(message.contains("version 7"), "{line}: {message}");
    }
}

#[test]
fn eval_and_predict_refuse_bad_runs_and_data() {
    let folder = small();
    let path = folder.path();
    ok(path, "data make --nodes 300 --edges 2400 --features 9 --classes 3 -o wide -q");
    ok(path, "data make --nodes 300 --edges 2400 --features 12 --classes 5 -o classes -q");
    ok(path, &format!("train g --out r -q {QUICK}"));
    ok(path, &format!("train g --out other -q {QUICK} --hidden 16"));
    for verb in ["eval", "predict -o x.npy"] {
        assert!(refused(path, &format!("{verb} g")).contains("run.json"));
        let message = refused(path, &format!("{verb} r --data wide"));
        assert!(message.starts_with("error: wide: 9 features; r was trained on 12"), "{message}");
    }
    assert!(refused(path, "eval r --data classes").contains("5 classes; r was trained on 3"));
    fs::copy(path.join("other/model.safetensors"), path.join("r/model.safetensors")).unwrap();
    for verb in ["eval", "predict -o x.npy"] {
        assert!(refused(path, &format!("{verb} r")).contains("has shape"));
    }
    fs::remove_file(path.join("r/model.safetensors")).unwrap();
    assert!(refused(path, "eval r").contains("no weights"));
    assert!(!path.join("x.npy").exists());
}

#[test]
fn predictions_are_in_dataset_order() {
    let folder = small();
    let path = folder.path();
    ok(path, &format!("train g --out r -q {QUICK} --epochs 20"));
    ok(path, "predict r -o logits.npy");
    ok(path, "predict r -o hidden.npy --embeddings");
    let (logits, hidden) = (path.join("logits.npy"), path.join("hidden.npy"));
    assert_eq!(Array::open(&hidden).unwrap().header.shape, [300, 8]);
    let logits = Array::open(&logits).unwrap();
    assert_eq!(logits.header.shape, [300, 3]);
    // The accuracy of these rows equals that of eval: every row is that of its node.
    let (labels, split) = (Array::open(&path.join("g/label.npy")), Array::open(&path.join("g/split.npy")));
    let (labels, split) = (labels.unwrap(), split.unwrap());
    let (labels, split): (&[i64], &[u8]) = (labels.as_slice().unwrap(), split.as_slice().unwrap());
    let rows = logits.as_slice::<f32>().unwrap().chunks_exact(3);
    let best = |row: &[f32]| (0..3).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as i64;
    let right: Vec<bool> = rows
        .zip(labels)
        .zip(split)
        .filter(|(_, part)| **part == 3)
        .map(|((row, l), _)| best(row) == *l)
        .collect();
    let score = right.iter().filter(|r| **r).count() as f64 / right.len() as f64;
    let expected = json(&ok(path, "eval r --json"))["test"].as_f64().unwrap();
    assert!((score - expected).abs() < 1e-9, "{score} and {expected}");
    assert!(expected > 0.5, "better than chance: {expected}");
    assert!(refused(path, "predict r -o logits.npy").contains("--overwrite"));
    ok(path, "predict r -o logits.npy --overwrite");
    assert!(refused(path, "predict r -o none/logits.npy").contains("none"));
}

#[test]
fn an_interrupted_run_resumes_bit_identically() {
    let folder = small();
    let path = folder.path();
    let flags = "--hidden 8 --layers 2 --threads 1 --seed 3 -q";
    for signal in ["INT", "TERM"] {
        let run = path.join(signal);
        // The signal is sent after some epochs.
        let line = format!(
            "$H train g --out {signal} --epochs 10000000 {flags} & p=$!
             for i in $(seq 600); do [ -s {signal}/metrics.jsonl ] && break; sleep 0.02; done
             kill -{signal} $p; wait $p"
        );
        let (code, stderr) = shell(path, &line);
        assert_eq!(code, Some(130), "{stderr}");
        let done = losses(&run).len();
        let expected = format!(
            "interrupted after epoch {done}; saved. Resume with: {} train --resume -o {signal}\n",
            env!("CARGO_BIN_EXE_halograph")
        );
        assert!(stderr.ends_with(&expected), "{stderr}");
        assert!(stderr.contains("finishing this optimiser step, then saving"), "{stderr}");
        let epochs = done + 5;
        ok(path, &format!("train --resume --out {signal} --epochs {epochs} -q"));
        ok(path, &format!("train g --out whole --overwrite --epochs {epochs} {flags}"));
        assert_eq!(losses(&run), losses(&path.join("whole")), "{signal}");
        let weights = |run: &str| fs::read(path.join(run).join("model.safetensors")).unwrap();
        assert!(weights(signal) == weights("whole"), "{signal}: other weights");
    }
}

#[test]
fn a_run_continues_if_its_output_is_not_read() {
    let folder = small();
    let (code, _) = shell(folder.path(), &format!("$H train g --out r {QUICK} 2>/dev/full"));
    assert_eq!(code, Some(0));
    let (code, _) =
        shell(folder.path(), &format!("set -o pipefail; $H train g --out s {QUICK} 2>&1 | head -1"));
    assert_eq!(code, Some(0));
    assert_eq!(losses(&folder.path().join("s")).len(), 4);
}

/// Imports a path graph from tables as dataset `name`: the feature of a node is `scale` times its number, classes have
/// names.
fn table(path: &Path, name: &str, scale: f64, classes: [&str; 2], labelled: bool, split: [&str; 3]) {
    let folder = path.join(format!("{name}-tables"));
    fs::create_dir_all(&folder).unwrap();
    let edges: String = (0..29).map(|v| format!("n{v},n{}\n", v + 1)).collect();
    fs::write(folder.join("edges.csv"), format!("src,dst\n{edges}")).unwrap();
    let row = |v: usize| {
        let label = if labelled { classes[v % 2] } else { "" };
        format!("n{v},{label},{},{},{}\n", v as f64 * scale, v % 2, split[v % 3])
    };
    let rows: String = (0..30).map(row).collect();
    fs::write(folder.join("nodes.csv"), format!("id,label,x,y,split\n{rows}")).unwrap();
    ok(path, &format!("data import csv {name}-tables -o {name} -q"));
}

#[test]
fn a_model_applies_to_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let parts = ["train", "val", "test"];
    table(path, "own", 1.0, ["cow", "zebra"], true, parts);
    table(path, "turned", 1.0, ["cow", "zebra"], true, ["test", "train", "val"]);
    table(path, "unlabelled", 1.0, ["", ""], false, ["", "", ""]);
    table(path, "renamed", 1.0, ["cow", "aardvark"], true, parts);
    table(path, "tested", 1.0, ["cow", "zebra"], true, ["test"; 3]);
    ok(path, &format!("train own --out r --set data.normalize=columns -q {QUICK}"));
    for data in ["own", "turned", "unlabelled", "tested"] {
        ok(path, &format!("predict r --data {data} -o {data}.npy"));
    }
    let logits = |name: &str| Array::open(&path.join(format!("{name}.npy"))).unwrap().raw().to_vec();
    for other in ["turned", "unlabelled", "tested"] {
        assert_eq!(logits(other), logits("own"), "the scaling of the run is used: {other}");
    }
    let scores = json(&ok(path, "eval r --data tested --json"));
    assert!(scores["test"].is_number() && scores["train"].is_null(), "{scores}");
    assert!(refused(path, "eval r --data renamed").contains("\"aardvark\""));
}

#[test]
fn resume_names_what_is_missing() {
    let folder = small();
    let path = folder.path();
    assert!(refused(path, "train --resume --out typo").contains("no run to resume"));
    assert!(!path.join("typo").exists());
    ok(path, &format!("train g --resume --out r -q {QUICK}"));
    assert!(refused(path, "train --resume --out r --epochs 3").contains("has reached epoch 4 already"));
    fs::rename(path.join("g"), path.join("moved")).unwrap();
    assert!(
        refused(path, "train --resume --out r --epochs 5")
            .contains("does not exist any more; r was trained on it")
    );
    assert!(refused(path, "eval r").contains("--data"));
    ok(path, "train moved --resume --out r --epochs 5 -q");
    ok(path, "eval r");
    fs::remove_dir_all(path.join("r/ckpt-5")).unwrap();
    let out = halograph(path, "train moved --resume --out r --epochs 5 -q");
    assert!(String::from_utf8_lossy(&out.stderr).contains("no checkpoint"), "{out:?}");
}

#[test]
fn resume_refuses_other_settings_and_data() {
    let folder = small();
    let path = folder.path();
    ok(path, "data make --nodes 300 --edges 2400 --features 12 --classes 3 --seed 1 -o other -q");
    // Without a run, --resume starts one.
    ok(path, &format!("train g --resume --out r -q {QUICK}"));
    for (flags, words) in [
        ("--lr 0.5", "--lr: train.lr = 0.5, but the run was started with 0.01"),
        ("--model gat", "--model: model.kind = \"gat\""),
        ("--set data.inductive=true", "--set: data.inductive = true"),
        ("--overwrite", "cannot be used with"),
        ("other", "not the dataset"),
    ] {
        let message = refused(path, &format!("train --resume --out r {flags}"));
        assert!(message.contains(words), "{flags}: {message}");
    }
    ok(path, &format!("train g --resume --out r -q {QUICK} --epochs 6 --threads 2"));
    assert_eq!(losses(&path.join("r")).len(), 6);
}

#[test]
fn quiet_prints_nothing_and_logs_are_short() {
    let folder = small();
    let quiet = halograph(folder.path(), &format!("train g --out r --quiet {QUICK}"));
    assert!(quiet.status.success() && quiet.stdout.is_empty() && has_only_score_notes(&quiet.stderr));
    let long = halograph(folder.path(), "train g --out long --hidden 4 --layers 1 --epochs 300 --threads 1");
    let lines = String::from_utf8_lossy(&long.stderr).lines().count();
    assert!((5..=20).contains(&lines), "{lines} lines");
}

#[test]
fn tensorboard_gets_every_epoch() {
    let folder = small();
    let path = folder.path();
    ok(path, &format!("train g --out r -q --tensorboard {QUICK}"));
    let events = only_entry(&path.join("r/tensorboard"));
    assert!(events.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."));
    let bytes = fs::read(&events).unwrap();
    for tag in ["loss/train", "loss/val", "score/val", "epoch_seconds"] {
        let found = bytes.windows(tag.len()).filter(|w| *w == tag.as_bytes()).count();
        assert_eq!(found, 4, "{tag}: once an epoch");
    }
    ok(path, "train --resume --out r -q --tensorboard --epochs 6");
    assert_eq!(fs::read_dir(path.join("r/tensorboard")).unwrap().count(), 2);
}

#[test]
fn every_command_has_help() {
    let here = Path::new(".");
    assert!(ok(here, "train --help").contains("halograph train --resume"));
    assert!(ok(here, "eval --help").contains("--json"));
    assert!(ok(here, "predict --help").contains("--embeddings"));
}

#[test]
fn models_larger_than_memory_are_refused_before_anything_is_written() {
    let folder = small();
    for (flags, word) in [
        ("--hidden 1000000", "MiB are free"),
        ("--layers 10000 --hidden 100000", "MiB are free"),
        ("--model gcnii --layers 2 --hidden 1000000", "MiB are free"),
        ("--model resgcn --layers 1 --hidden 1000000", "MiB are free"),
        ("--model gat --layers 1 --heads 1000000 --hidden 1000000", "model.heads"),
        ("--model gat --layers 2 --set model.output_heads=1000000 --hidden 4000", "model.output_heads"),
        ("--model gat --layers 2 --heads 4096 --hidden 819200", "MiB are free"),
        ("--hidden 1000000000000", "model.hidden"),
        ("--hidden 9223372036854775807", "model.hidden"),
        ("--layers 18446744073709551615", "model.layers"),
        ("--threads 100000000", "train.threads"),
    ] {
        let message = refused(folder.path(), &format!("train g --out r {flags}"));
        assert!(message.contains(word), "{flags}: {message}");
    }
    refused(folder.path(), "train --out r --hidden 1000000");
    assert_eq!(only_entry(folder.path()), folder.path().join("g"));
}

#[test]
fn predicted_memory_matches_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "data make small -o g -q");
    let inductive = "gcn --set data.inductive=true";
    let large = "sage --hidden 2000 --layers 2";
    for model in ["sage", "gcn", "gat", "gcnii --layers 8", "resgcn", "gin", large, inductive] {
        let line = format!("train g --model {model} --epochs 2 --threads 2 --out r --overwrite --json");
        let line = json(&ok(folder.path(), &line));
        let [predicted, real] =
            ["predicted_peak_bytes", "peak_rss_bytes"].map(|key| line[key].as_f64().unwrap());
        // What the allocator keeps of freed memory varies by some MiB from run to run, which matters on so small a graph.
        let noise = 20.0 * (1 << 20) as f64;
        let apart = (predicted - real).abs();
        assert!(apart <= 0.2 * real + noise, "{model}: {predicted} bytes predicted, {real} used");
    }
}

#[test]
fn the_shipped_configurations_are_valid() {
    let folder = small();
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/configs");
    for entry in fs::read_dir(configs).unwrap() {
        let path = entry.unwrap().path();
        let line =
            format!("train g --config {} --epochs 1 --hidden 8 --out r --overwrite -q", path.display());
        ok(folder.path(), &line);
    }
}

#[test]
fn overwrite_never_removes_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "train --epochs 1 --hidden 8 --out r -q");
    assert!(refused(folder.path(), "train r/demo-data --out r --overwrite").contains("another --out"));
    assert!(folder.path().join("r/demo-data/feat.npy").exists());
}

#[test]
fn a_missing_built_in_graph_is_generated_again() {
    let folder = tempfile::tempdir().unwrap();
    ok(folder.path(), "train --epochs 1 --hidden 8 --out r -q");
    fs::remove_dir_all(folder.path().join("r/demo-data")).unwrap();
    assert_eq!(json(&ok(folder.path(), "train --resume --epochs 2 --out r --json"))["epochs"], 2);
}
