//! Checkpoints inside an epoch on several ranks.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use halograph_comm::{self as comm, Options};

use super::member::Member;
use super::sink::RankedRunSink;
use super::{Extras, Order, THREADS};
use crate::boundary::RankLink;
use crate::config::StrategyKind;
use crate::error::Result;
use crate::event::Observer;
use crate::run::{Run, RunStore, read_weights};
use crate::summary::Outcome;
use crate::trainer::tests::{EPOCHS, Quiet, STEPS, StageOwner, StopWhenAsked, header, learner};
use crate::trainer::{ResumePoint, Trainer};

/// Layout of the parts that the ranks own.
const LAYOUT: &str = "0123";

/// Starts or resumes a run on ranks with these run directories; rank 2 requests to stop. Returns the losses of rank 0.
fn train(paths: &[PathBuf], stop: Option<u64>) -> Vec<f64> {
    let path = &paths[0];
    let (run, from) = match path.join("run.json").exists() {
        false => {
            let mut header = header(1e6);
            (header.config.train.strategy, header.config.train.ranks) =
                (StrategyKind::Partition, paths.len());
            (Run::create(path, header, false).unwrap(), None)
        }
        true => {
            let resumed = Run::resume(path).unwrap();
            (resumed.run, resumed.checkpoint.map(|c| ResumePoint::new(c, resumed.history)))
        }
    };
    let header = run.header().clone();
    let config = &header.config;
    let lead = Mutex::new(Some((run, from)));
    let results = comm::threads::run(paths.len(), &Options::default(), |comm| -> Result<Outcome> {
        let (mut run, from) = match comm.rank() {
            0 => lead.lock().unwrap().take().map(|(run, from)| (Some(run), from)).unwrap(),
            _ => (None, None),
        };
        let link = RankLink::new(comm, true);
        let mut strategy = StageOwner { link: &link, breaks: false };
        let mut trainer = Trainer::new(config, &mut strategy, learner(comm.rank()..comm.rank() + 1));
        let directory = Some(&*paths[comm.rank()]);
        let order = Order { header: &header, directory, extras: Extras::default() };
        let member = Member { comm, order, threads: 1, transport: THREADS };
        if let Some(from) = member.agree_on_start(from, LAYOUT)? {
            trainer.restore(from)?;
        }
        let mut sink =
            RankedRunSink::new(comm, run.as_mut().map(|run| run as &mut dyn RunStore), directory, LAYOUT)?;
        let mut stopper = stop.map(StopWhenAsked::new).filter(|_| comm.rank() == 2);
        let observer: &mut dyn Observer = match &mut stopper {
            Some(stopper) => stopper,
            None => &mut Quiet,
        };
        trainer.run(&mut sink, observer)
    });
    let mut outcomes = results.into_iter().map(Result::unwrap);
    outcomes.next().unwrap().history.iter().map(|epoch| epoch.loss).collect()
}

fn assert_resumes(home: &Path, paths: &[PathBuf], files: &[&str]) {
    let whole: Vec<PathBuf> = vec![home.join("whole"); 3];
    let losses = train(&whole, None);
    assert_eq!(losses.len() as u64, EPOCHS);
    // In the third step of the second epoch.
    train(paths, Some(1 + STEPS + 1 + 3));
    for file in files {
        assert!(home.join(file).exists(), "{file}");
    }
    assert_eq!(train(paths, None), losses);
    let weights = |path: &Path| read_weights(path).unwrap().to_bytes();
    assert!(weights(&paths[0]) == weights(&whole[0]), "other weights");
}

#[test]
fn ranks_resume_inside_an_epoch() {
    let temp = tempfile::tempdir().unwrap();
    let paths = vec![temp.path().join("run"); 3];
    let files = ["run/ckpt-1.3/manifest.json", "run/ckpt-1.3/rank-2.safetensors"];
    assert_resumes(temp.path(), &paths, &files);
}

#[test]
fn a_rank_with_its_own_directory_resumes_inside_an_epoch() {
    let temp = tempfile::tempdir().unwrap();
    let paths = ["run", "run", "elsewhere"].map(|name| temp.path().join(name)).to_vec();
    let files = ["run/ckpt-1.3/rank-1.safetensors", "elsewhere/rank-2/ckpt-1.3/rank-2.safetensors"];
    assert_resumes(temp.path(), &paths, &files);
}
