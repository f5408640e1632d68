//! Runs on disk: creation, resume, damage and crashes.

use std::fs;
use std::path::{Path, PathBuf};

use halograph_nn::model::Kind;
use halograph_nn::state::{State, Tensor};
use serde_json::json;

use super::*;
use crate::Config;
use crate::event::{Best, Point, Scores};

const TENSORS: &str = "rank-0.safetensors";
const MANIFEST: &str = "manifest.json";

fn header(seed: u64) -> Header {
    let mut config = Config::new(Kind::Gcn);
    config.train.seed = seed;
    let data = DataRef {
        path: Some("/data/x".into()),
        name: "x".into(),
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

fn epoch(epoch: u64) -> EpochRecord {
    let scores = Scores { train: Some(0.1 + 0.2), val: Some(1.0 / 3.0), test: None, val_loss: Some(1e-7) };
    let scores = epoch.is_multiple_of(2).then_some(scores);
    EpochRecord {
        epoch,
        loss: 1.0 / epoch as f64,
        lr: 0.1,
        seconds: 1e-3 * epoch as f64,
        staleness: None,
        evaluation_seconds: None,
        scores,
    }
}

fn checkpoint(epoch: u64) -> Checkpoint {
    let scores = Scores { train: None, val: Some(1.0 / 7.0), test: Some(0.3), val_loss: None };
    let best = Some(Best { epoch, scores, seconds: 0.1 * epoch as f64 });
    Checkpoint { epoch, partial: None, seconds: 0.7 * epoch as f64, best, state: state(epoch) }
}

fn state(epoch: u64) -> State {
    let weights: Vec<f32> = (0..6).map(|k| (epoch + k) as f32).collect();
    let tensors = [("w".into(), Tensor::real(&[2, 3], &weights)), ("t".into(), Tensor::count(epoch))];
    State(tensors.into_iter().collect())
}

/// Records and saves the epochs `from..=to`.
fn train(run: &mut Run, from: u64, to: u64) {
    for e in from..=to {
        run.record(&epoch(e)).unwrap();
        run.checkpoint(&checkpoint(e)).unwrap();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in files::names(from).unwrap() {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// Creates a run with complete checkpoints of epochs 2 and 3, as after a crash before the older one is removed.
fn two_checkpoints(path: &Path) {
    let mut run = Run::create(path, header(0), false).unwrap();
    train(&mut run, 1, 2);
    copy_folder(&path.join("ckpt-2"), &path.join("kept"));
    train(&mut run, 3, 3);
    fs::rename(path.join("kept"), path.join("ckpt-2")).unwrap();
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    (folder, path)
}

fn refused<T>(result: Result<T>) -> String {
    let error = result.err().expect("refused");
    assert!(!error.is_environment(), "{error}");
    error.to_string()
}

/// Resumes the run; returns checkpoint, history and notes.
fn resume(path: &Path) -> (Option<Checkpoint>, Vec<EpochRecord>, Vec<String>) {
    let resumed = Run::resume(path).unwrap();
    let notes = resumed.notes.iter().map(ToString::to_string).collect();
    (resumed.checkpoint, resumed.history, notes)
}

#[test]
fn a_run_is_written_and_read_back() {
    let (_folder, path) = folder();
    let path = path.join("deep");
    let mut run = Run::create(&path, header(7), false).unwrap();
    train(&mut run, 1, 4);
    assert!(read_weights(&path).unwrap_err().to_string().contains("no weights yet"));
    run.save_weights(&state(3)).unwrap();
    assert_eq!(read_summary(&path).unwrap(), None);
    run.finish(&json!({"val": 0.5})).unwrap();
    assert_eq!(
        files::names(&path).unwrap(),
        [".lock", "ckpt-4", "metrics.jsonl", "model.safetensors", "run.json"]
    );
    assert_eq!(read_header(&path).unwrap(), header(7));
    assert_eq!(read_summary(&path).unwrap(), Some(json!({"val": 0.5})));
    assert_eq!(read_weights(&path).unwrap(), state(3));
    drop(run);
    let resumed = Run::resume(&path).unwrap();
    assert_eq!((resumed.run.header(), resumed.run.path()), (&header(7), path.as_path()));
    assert_eq!(resumed.checkpoint, Some(checkpoint(4)));
    assert_eq!(resumed.history, (1..=4).map(epoch).collect::<Vec<_>>());
    assert!(resumed.notes.is_empty());
}

#[test]
fn a_run_without_a_checkpoint_resumes_from_the_beginning() {
    let (_folder, path) = folder();
    let mut run = Run::create(&path, header(0), false).unwrap();
    run.record(&epoch(1)).unwrap();
    drop(run);
    assert_eq!(resume(&path), (None, vec![], vec![]));
    assert_eq!(fs::read(path.join("metrics.jsonl")).unwrap(), b"");
}

#[test]
fn a_run_is_replaced_only_with_overwrite() {
    let (_folder, path) = folder();
    let mut run = Run::create(&path, header(0), false).unwrap();
    train(&mut run, 1, 2);
    run.save_weights(&state(1)).unwrap();
    drop(run);
    assert!(refused(Run::create(&path, header(1), false)).contains("--resume"));
    assert_eq!(resume(&path).0, Some(checkpoint(2)));
    drop(Run::create(&path, header(1), true).unwrap());
    assert_eq!(read_header(&path).unwrap(), header(1));
    assert_eq!(files::names(&path).unwrap(), [".lock", "metrics.jsonl", "run.json"]);
    assert_eq!(resume(&path), (None, vec![], vec![]));
}

#[test]
fn other_files_in_a_run_directory_are_kept_and_named() {
    let (_folder, path) = folder();
    two_checkpoints(&path);
    for file in ["notes.md", "ckpt-2/notes.md"] {
        fs::write(path.join(file), "keep me").unwrap();
        assert!(refused(Run::create(&path, header(1), true)).contains(file));
        fs::rename(path.join(file), path.join("ckpt-2/notes.md")).unwrap();
    }
    // A resumed run does not remove it with an old checkpoint either.
    train(&mut Run::resume(&path).unwrap().run, 4, 4);
    assert_eq!(files::names(&path).unwrap(), [".lock", "ckpt-2", "ckpt-4", "metrics.jsonl", "run.json"]);
    assert!(path.join("ckpt-2/notes.md").exists());
    let (_folder, path) = folder();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("model.safetensors"), "years of work").unwrap();
    assert!(refused(Run::create(&path, header(1), true)).contains("is not a run"));
    assert!(refused(Run::resume(&path)).contains("contains no run"));
    assert_eq!(files::names(&path).unwrap(), ["model.safetensors"]);
    assert!(refused(Run::create(&path.join("model.safetensors"), header(1), true)).contains("is a file"));
}

#[test]
fn one_process_writes_and_any_process_reads() {
    let (_folder, path) = folder();
    let run = Run::create(&path, header(0), false).unwrap();
    assert!(refused(Run::resume(&path)).contains("another process is writing this run"));
    assert!(refused(Run::create(&path, header(1), true)).contains("another process"));
    assert_eq!(read_header(&path).unwrap(), header(0));
    drop(run);
    Run::resume(&path).unwrap();
}

#[test]
fn another_format_version_is_refused() {
    let (_folder, path) = folder();
    drop(Run::create(&path, header(0), false).unwrap());
    let text = fs::read_to_string(path.join("run.json")).unwrap();
    fs::write(path.join("run.json"), text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    assert!(refused(Run::resume(&path)).contains("run version 2; this build reads version 1"));
    assert!(refused(read_header(&path)).contains("version 2"));
    Run::create(&path, header(0), true).unwrap();
}

#[test]
fn a_damaged_checkpoint_falls_back_to_the_previous_one() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 6] = [
        ("rank-0", |c| fs::File::options().write(true).open(c.join(TENSORS)).unwrap().set_len(9).unwrap()),
        ("rank-0", |c| flip(&c.join(TENSORS), 150)),
        ("rank-0", |c| fs::remove_file(c.join(TENSORS)).unwrap()),
        ("manifest.json", |c| fs::remove_file(c.join(MANIFEST)).unwrap()),
        ("manifest.json", |c| fs::write(c.join(MANIFEST), "\0{garbage").unwrap()),
        ("manifest.json", |c| {
            let text = fs::read_to_string(c.join(MANIFEST)).unwrap();
            fs::write(c.join(MANIFEST), text.replace("\"metrics_bytes\": ", "\"metrics_bytes\": 1")).unwrap();
        }),
    ];
    for (file, harm) in harms {
        let (_folder, path) = folder();
        two_checkpoints(&path);
        harm(&path.join("ckpt-3"));
        let Resumed { mut run, checkpoint: found, history, notes } = Run::resume(&path).unwrap();
        assert_eq!((found, history), (Some(checkpoint(2)), vec![epoch(1), epoch(2)]));
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        assert!(notes.len() == 1 && notes[0].contains(file) && notes[0].contains("epoch 2"), "{notes:?}");
        // The damaged one is replaced when its epoch is trained again.
        train(&mut run, 3, 3);
        drop(run);
        assert_eq!(resume(&path), (Some(checkpoint(3)), (1..=3).map(epoch).collect(), vec![]));
    }
}

#[test]
fn a_run_whose_checkpoints_are_all_damaged_is_refused() {
    let (_folder, path) = folder();
    two_checkpoints(&path);
    for e in [2, 3] {
        flip(&path.join(format!("ckpt-{e}/{TENSORS}")), 150);
    }
    let before = fs::read(path.join("metrics.jsonl")).unwrap();
    let message = refused(Run::resume(&path));
    assert!(message.contains("no checkpoint is complete") && message.contains("ckpt-2"), "{message}");
    assert_eq!(fs::read(path.join("metrics.jsonl")).unwrap(), before);
}

/// Every state of the disk in which a process can be killed between two checkpoints.
#[test]
fn a_crash_during_a_checkpoint_keeps_complete_checkpoints() {
    let hidden = |path: &Path, e: u64| path.join(format!(".ckpt-{e}.partial"));
    type Crash<'a> = &'a dyn Fn(&Path);
    let crashes: [(u64, Crash); 6] = [
        (2, &|path| fs::create_dir(hidden(path, 4)).unwrap()),
        (2, &|path| {
            fs::create_dir(hidden(path, 4)).unwrap();
            fs::write(hidden(path, 4).join(TENSORS), "half").unwrap();
        }),
        // The new one is complete but not renamed.
        (2, &|path| fs::rename(path.join("ckpt-3"), hidden(path, 3)).unwrap()),
        // Both exist.
        (3, &|_| ()),
        // The old one is renamed, then some of its files are removed.
        (3, &|path| fs::rename(path.join("ckpt-2"), hidden(path, 2)).unwrap()),
        (3, &|path| {
            fs::rename(path.join("ckpt-2"), hidden(path, 2)).unwrap();
            fs::remove_file(hidden(path, 2).join(MANIFEST)).unwrap();
        }),
    ];
    for (k, (newest, crash)) in crashes.into_iter().enumerate() {
        let (_folder, path) = folder();
        two_checkpoints(&path);
        if k < 2 {
            fs::remove_dir_all(path.join("ckpt-3")).unwrap();
        }
        crash(&path);
        fs::write(path.join(".model.safetensors.partial"), "half").unwrap();
        let found = resume(&path);
        assert_eq!(found, (Some(checkpoint(newest)), (1..=newest).map(epoch).collect(), vec![]), "crash {k}");
        assert!(!files::names(&path).unwrap().iter().any(|name| files::is_leftover(name)), "crash {k}");
    }
}

#[test]
fn older_checkpoints_are_removed_after_a_resume() {
    let (_folder, path) = folder();
    two_checkpoints(&path);
    Run::resume(&path).unwrap().run.checkpoint(&checkpoint(3)).unwrap();
    assert_eq!(checkpoint::points(&path).unwrap(), [Point { epoch: 3, step: 0 }]);
}

#[test]
fn a_crash_during_creation_does_not_block_a_new_run() {
    let (_folder, path) = folder();
    fs::create_dir(&path).unwrap();
    fs::write(path.join(".lock"), "").unwrap();
    fs::write(path.join(".run.json.partial"), "{").unwrap();
    assert!(refused(Run::resume(&path)).contains("contains no run"));
    drop(Run::create(&path, header(0), false).unwrap());
    assert_eq!(files::names(&path).unwrap(), [".lock", "metrics.jsonl", "run.json"]);
}

#[test]
fn an_incomplete_line_is_removed_by_the_next_checkpoint() {
    let (_folder, path) = folder();
    let mut run = Run::create(&path, header(0), false).unwrap();
    train(&mut run, 1, 1);
    let mut file = fs::File::options().append(true).open(path.join("metrics.jsonl")).unwrap();
    std::io::Write::write_all(&mut file, b"{\"epoch\": 2, \"lo").unwrap();
    run.checkpoint(&Checkpoint { epoch: 2, ..checkpoint(1) }).unwrap();
    assert_eq!(fs::read_to_string(path.join("metrics.jsonl")).unwrap().lines().count(), 1);
}

/// A damaged file gives an error, a note or an older checkpoint: never a panic, and never a state that was not saved.
#[test]
fn damaged_bytes_are_detected_without_a_panic() {
    let (_folder, path) = folder();
    two_checkpoints(&path);
    let files = ["run.json", "metrics.jsonl", "ckpt-3/manifest.json", "ckpt-3/rank-0.safetensors"];
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(path.join(file)).unwrap()).collect();
    for (file, bytes) in files.iter().zip(&whole) {
        for k in 0..120 {
            let at = k * 7919 % bytes.len();
            let mut damaged = bytes.clone();
            match k % 3 {
                0 => damaged[at] ^= 1 << (k % 8),
                1 => damaged.truncate(at),
                _ => damaged[at] = [0, 0xff, b'9', b'"', b'}'][k % 5],
            }
            fs::write(path.join(file), &damaged).unwrap();
            if let Ok(resumed) = Run::resume(&path) {
                let found = resumed.checkpoint.expect("an older checkpoint");
                assert!(found == checkpoint(2) || found == checkpoint(3), "{file} {k}");
                let silent = resumed.notes.is_empty() && file.starts_with("ckpt");
                assert!(!silent || found == checkpoint(3) && resumed.history.len() == 3, "{file} {k}");
            }
            files.iter().zip(&whole).for_each(|(file, bytes)| fs::write(path.join(file), bytes).unwrap());
        }
    }
}

#[test]
fn a_removed_folder_is_an_error_and_not_created_again() {
    let (_folder, path) = folder();
    let mut run = Run::create(&path, header(0), false).unwrap();
    train(&mut run, 1, 1);
    fs::remove_dir_all(&path).unwrap();
    let errors = [
        run.record(&epoch(2)),
        run.checkpoint(&checkpoint(2)),
        run.save_weights(&state(2)),
        run.finish(&json!({})),
    ];
    for error in errors {
        let error = error.unwrap_err();
        assert!(error.is_environment() && error.to_string().contains("was removed"), "{error}");
    }
    assert!(!path.exists());
}

/// Runs of older versions have none of these keys.
#[test]
fn a_run_without_newer_settings_has_their_defaults() {
    for kind in Kind::ALL {
        let folder = tempfile::tempdir().unwrap();
        let header = Header { config: Config::new(kind), ..header(0) };
        drop(Run::create(folder.path(), header.clone(), false).unwrap());
        let file = folder.path().join(RUN);
        let mut text: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let newer = [
            ("model", &["train_eps"][..]),
            ("train", &["batch_size", "fanout", "sampler", "cache_input_aggregate", "schedule_unit"]),
            ("train", &["batch_memory", "row_cache", "row_encoding"]),
            ("train", &["staleness", "warmup_epochs", "cooldown_epochs", "smooth", "gamma"]),
            ("train", &["smooth_correction", "measure_staleness"]),
        ];
        for (table, keys) in newer {
            let table = text["config"][table].as_object_mut().unwrap();
            keys.iter().for_each(|key| assert!(table.remove(*key).is_some(), "{key}"));
        }
        fs::write(&file, text.to_string()).unwrap();
        assert_eq!(read_header(folder.path()).unwrap(), header, "{}", kind.name());
        Run::resume(folder.path()).unwrap();
    }
}
