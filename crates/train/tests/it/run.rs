//! Runs on disks that give up: what is written stays whole, and the error says what happened.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use halograph_graph::error::Result;
use halograph_nn::model::Kind;
use halograph_nn::state::{State, Tensor};
use halograph_testing::SmallDisk;
use halograph_train::Config;
use halograph_train::event::EpochRecord;
use halograph_train::run::{Checkpoint, DataRef, Header, Run};
use rustix::thread::{Uid, set_thread_res_uid};

fn header() -> Header {
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
    Header { data, config: Config::new(Kind::Sage) }
}

fn epoch(epoch: u64) -> EpochRecord {
    EpochRecord {
        epoch,
        loss: 0.5,
        lr: 0.1,
        seconds: 0.01,
        staleness: None,
        evaluation_seconds: None,
        scores: None,
    }
}

/// A checkpoint of 400 kB.
fn checkpoint(epoch: u64) -> Checkpoint {
    let tensor = Tensor::real(&[100_000], &vec![epoch as f32; 100_000]);
    let state = State([("w".to_string(), tensor)].into_iter().collect());
    Checkpoint { epoch, partial: None, seconds: 1.0, best: None, state }
}

fn train(run: &mut Run, e: u64) -> Result<()> {
    run.record(&epoch(e))?;
    run.checkpoint(&checkpoint(e))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_full_disk_is_told_and_the_last_checkpoint_stays() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (path, filler) = (disk.path().join("run"), disk.path().join("filler"));
    let mut run = Run::create(&path, header(), false).unwrap();
    train(&mut run, 1).unwrap();
    fs::write(&filler, vec![1; 300_000]).unwrap();
    let error = train(&mut run, 2).unwrap_err();
    assert!(error.is_environment() && error.to_string().contains("No space left"), "{error}");
    assert!(run.save_weights(&checkpoint(2).state).is_err());
    assert_eq!(names(&path), [".lock", "ckpt-1", "metrics.jsonl", "run.json"]);
    // Now there is no room for a line either.
    disk.fill("filler");
    let error = (3..500).find_map(|e| run.record(&epoch(e)).err()).unwrap();
    assert!(error.to_string().contains("metrics.jsonl: cannot write"), "{error}");
    assert!(fs::read_to_string(path.join("metrics.jsonl")).unwrap().ends_with("}\n"));
    drop(run);
    // Taking it up again needs no space.
    let resumed = Run::resume(&path).unwrap();
    assert_eq!((resumed.checkpoint, resumed.history), (Some(checkpoint(1)), vec![epoch(1)]));
    fs::remove_file(&filler).unwrap();
    let mut run = resumed.run;
    train(&mut run, 2).unwrap();
    drop(run);
    assert_eq!(Run::resume(&path).unwrap().checkpoint, Some(checkpoint(2)));
}

#[test]
fn a_run_that_has_no_room_to_begin_leaves_no_folder() {
    let Some(disk) = SmallDisk::mount() else { return };
    disk.fill("filler");
    let error = Run::create(&disk.path().join("runs/x"), header(), false).unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    assert_eq!(names(disk.path()), ["filler"]);
}

/// Gives up root's rights to pass every check, for this thread alone.
fn be_nobody() {
    if rustix::process::geteuid().is_root() {
        let nobody = Uid::from_raw(65534);
        set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
}

#[test]
fn a_folder_made_read_only_is_told_and_the_last_checkpoint_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(folder.path(), 0o777);
    let path = folder.path().join("run");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            be_nobody();
            let mut run = Run::create(&path, header(), false).unwrap();
            train(&mut run, 1).unwrap();
            mode(&path, 0o555);
            let errors = [
                train(&mut run, 2),
                run.save_weights(&checkpoint(2).state),
                run.finish(&serde_json::Value::Null),
            ];
            for error in errors {
                let error = error.unwrap_err().to_string();
                assert!(error.contains("Permission denied") && error.contains("run/."), "{error}");
            }
            drop(run);
            assert_eq!(Run::resume(&path).unwrap().checkpoint, Some(checkpoint(1)));
            mode(&path, 0o755);
        });
    });
}
