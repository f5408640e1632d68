//! The trainer with strategies made for tests: epochs of many steps, and ranks that own some of the stages.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;
use std::process::Command;

use halograph_comm::{self as comm, Comm, Message, Options, Purpose, Tag};
use halograph_graph::dataset::Task;
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Kind, Spec};
use halograph_nn::optimizer::Method;

use super::*;
use crate::boundary::{Peers, RankLink};
use crate::run::{DataRef, Header, Run, read_weights};
use crate::strategy::Step;

/// Steps of an epoch in these tests.
pub(crate) const STEPS: u64 = 17;

fn model(stages: std::ops::Range<usize>) -> Model<f64> {
    Model::new(&Spec { hidden: 4, layers: 3, ..Spec::new(Kind::Sage) }, 5, 3, 1).restricted_to(stages)
}

pub(crate) fn learner(stages: std::ops::Range<usize>) -> Learner<f64> {
    let model = model(stages);
    let optimizer = Optimizer::new(Method::Adam, &model, |_| 0.0);
    Learner { model, optimizer }
}

/// Sets gradients that depend on the step, the parameter and its value; returns their sum.
fn set_gradients(model: &mut Model<f64>, key: Key) -> f64 {
    let mut sum = 0.0;
    for p in model.params_mut() {
        let key = p.name.bytes().fold(key, |key, byte| key.with(byte.into()));
        for (i, (grad, value)) in p.grad.iter_mut().zip(&p.value).enumerate() {
            *grad = 0.3 * value + key.unit(i as u64) - 0.5;
            sum += *grad;
        }
    }
    sum
}

fn scores(model: &Model<f64>) -> Scores {
    let sum: f64 = model.params().flat_map(|p| &p.value).sum();
    Scores { train: None, val: Some(sum.sin()), test: None, val_loss: Some(sum) }
}

fn config(epochs: u64) -> Config {
    let mut config = Config::new(Kind::Sage);
    config.train.epochs = epochs;
    config.train.checkpoint_seconds = 1e6;
    config
}

pub(crate) struct Quiet;

impl Observer for Quiet {
    fn on(&mut self, _: &Event) {}
}

/// Many steps per epoch, on one process; the process can kill itself before a step.
struct ManySteps {
    kill_at: Option<Point>,
}

impl Strategy<f64> for ManySteps {
    fn steps(&self) -> u64 {
        STEPS
    }

    fn step(
        &mut self,
        model: &mut Model<f64>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        if self.kill_at == Some(Point { epoch: step.epoch, step: step.step }) {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        let loss = set_gradients(model, step.key);
        Ok(StepOutcome { loss, rows: 1 + step.step, requests: requests() })
    }

    fn evaluate(&mut self, model: &Model<f64>, _: u64, _: Detail) -> Result<Option<Evaluated>> {
        Ok(Some(Evaluated { scores: scores(model), classes: None }))
    }
}

pub(crate) const EPOCHS: u64 = 3;

pub(crate) fn header(checkpoint_seconds: f64) -> Header {
    let mut config = config(EPOCHS);
    config.train.checkpoint_seconds = checkpoint_seconds;
    let data = DataRef {
        path: Some("data".into()),
        name: "data".into(),
        fingerprint: "00".into(),
        features: 5,
        classes: 3,
        task: Task::SingleLabel,
        class_names: Vec::new(),
        feature_names: Vec::new(),
        directed: None,
        edge_weights: None,
    };
    Header { data, config }
}

/// Starts or resumes the run at `path`; returns its loss history.
fn train_many_steps(path: &Path, seconds: f64, kill_at: Option<Point>) -> Vec<f64> {
    let (mut run, from) = match path.join("run.json").exists() {
        false => (Run::create(path, header(seconds), false).unwrap(), None),
        true => {
            let resumed = Run::resume(path).unwrap();
            (resumed.run, resumed.checkpoint.map(|c| ResumePoint::new(c, resumed.history)))
        }
    };
    let config = run.header().config.clone();
    let mut strategy = ManySteps { kill_at };
    let mut trainer = Trainer::new(&config, &mut strategy, learner(0..3));
    if let Some(from) = from {
        trainer.restore(from).unwrap();
    }
    let outcome = trainer.run(&mut run, &mut Quiet).unwrap();
    outcome.history.iter().map(|epoch| epoch.loss).collect()
}

const RUN: &str = "HALOGRAPH_TEST_RUN";
const KILL: &str = "HALOGRAPH_TEST_KILL";
const SECONDS: &str = "HALOGRAPH_TEST_SECONDS";

/// The process that is killed by the test after it.
#[test]
#[ignore = "started by another test as a process of its own"]
fn many_steps_until_killed() {
    let Some(path) = std::env::var_os(RUN) else { return };
    let number = |name: &str| std::env::var(name).unwrap();
    let kill = number(KILL);
    let (epoch, step) = kill.split_once('.').unwrap();
    let at = Point { epoch: epoch.parse().unwrap(), step: step.parse().unwrap() };
    train_many_steps(Path::new(&path), number(SECONDS).parse().unwrap(), Some(at));
}

#[test]
fn a_long_epoch_killed_at_20_random_steps_resumes_bit_identically() {
    let temp = tempfile::tempdir().unwrap();
    let whole = temp.path().join("whole");
    let losses = train_many_steps(&whole, 1e6, None);
    let weights = read_weights(&whole).unwrap().to_bytes();
    let key = Key::new(1, "kills");
    // A checkpoint after every step, or after some.
    for (run, seconds) in [(0, "0"), (1, "0.002")] {
        let path = temp.path().join(format!("killed-{run}"));
        let mut kills: Vec<u64> = (0..10).map(|i| key.below(10 * run + i, EPOCHS * STEPS)).collect();
        kills.sort_unstable();
        for kill in kills {
            let at = format!("{}.{}", 1 + kill / STEPS, kill % STEPS);
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "trainer::tests::many_steps_until_killed", "--ignored"])
                .env(RUN, &path)
                .env(KILL, &at)
                .env(SECONDS, seconds)
                .output()
                .unwrap()
                .status;
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(status.signal(), Some(9), "{at}: {status}");
        }
        assert_eq!(train_many_steps(&path, 0.0, None), losses);
        assert!(read_weights(&path).unwrap().to_bytes() == weights, "other weights");
    }
}

#[test]
fn a_checkpoint_inside_an_epoch_holds_the_loss_so_far() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("run");
    let mut run = Run::create(&path, header(1e6), false).unwrap();
    let config = run.header().config.clone();
    let mut strategy = ManySteps { kill_at: None };
    let trainer = Trainer::new(&config, &mut strategy, learner(0..3));
    let outcome = trainer.run(&mut run, &mut StopWhenAsked::new(8)).unwrap();
    assert_eq!((outcome.ending, outcome.epochs), (Ending::Interrupted, 0));
    drop(run);
    let saved = Run::resume(&path).unwrap().checkpoint.unwrap();
    let partial = saved.partial.unwrap();
    assert_eq!(partial.step, 7);
    assert_eq!(partial.rows, (1..=partial.step).sum::<u64>());
    assert!(path.join(format!("ckpt-0.{}", partial.step)).is_dir());
    let whole = temp.path().join("whole");
    assert_eq!(train_many_steps(&path, 0.0, None), train_many_steps(&whole, 1e6, None));
}

/// Every rank owns one stage.
pub(crate) struct StageOwner<'a> {
    pub link: &'a RankLink,
    /// Breaks the gradients of this rank in epoch 2.
    pub breaks: bool,
}

const NUMBERS: Tag = Tag::new(Purpose::Statistics).slot(2);

impl Strategy<f64> for StageOwner<'_> {
    fn steps(&self) -> u64 {
        STEPS
    }

    fn owns_all_stages(&self) -> bool {
        false
    }

    fn agree(&mut self, requests: Requests) -> Result<Requests> {
        self.link.agree(requests)
    }

    fn step(
        &mut self,
        model: &mut Model<f64>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let peers = Peers::training(self.link, step.epoch, step.step);
        let own = set_gradients(model, step.key);
        if self.breaks && step.epoch == 2 {
            model.params_mut().for_each(|p| p.grad.fill(f64::INFINITY));
        }
        let (loss, requests) = peers.start_loss_sum(3, own, requests()).wait()?;
        Ok(StepOutcome { loss, rows: 1, requests })
    }

    fn evaluate(&mut self, _: &Model<f64>, epoch: u64, _: Detail) -> Result<Option<Evaluated>> {
        let scores = Scores { train: None, val: Some(epoch as f64), test: None, val_loss: None };
        Ok(Some(Evaluated { scores, classes: None }))
    }

    fn sum_over_stages(&mut self, numbers: &mut [f64]) -> Result<()> {
        Ok(self.link.comm.all_reduce(NUMBERS, numbers)?)
    }

    fn gather_weights<'w>(&mut self, own: &'w State) -> Result<Cow<'w, State>> {
        let mut all = State::default();
        for message in self.link.comm.all_gather(NUMBERS.slot(3), Message::of(&own.to_bytes()))? {
            all.insert_all("", State::from_bytes("a rank", message.as_slice::<u8>()?)?);
        }
        Ok(Cow::Owned(all))
    }
}

/// Keeps what a run would write.
#[derive(Default)]
struct Memory {
    epochs: Vec<EpochRecord>,
    weights: State,
    points: Vec<Point>,
}

impl RunSink for Memory {
    fn record(&mut self, epoch: &EpochRecord) -> Result<()> {
        self.epochs.push(epoch.clone());
        Ok(())
    }
    fn save_weights(&mut self, weights: &State) -> Result<()> {
        self.weights = weights.clone();
        Ok(())
    }
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<bool> {
        self.points.push(checkpoint.point());
        Ok(true)
    }
}

/// Requests to stop from the n-th time it is asked: once before the first step, once in each step, once after an epoch.
pub(crate) struct StopWhenAsked {
    pub times: u64,
    asked: Cell<u64>,
}

impl StopWhenAsked {
    pub fn new(times: u64) -> Self {
        StopWhenAsked { times, asked: Cell::new(0) }
    }
}

impl Observer for StopWhenAsked {
    fn on(&mut self, _: &Event) {}
    fn interrupted(&self) -> bool {
        self.asked.set(self.asked.get() + 1);
        self.asked.get() >= self.times
    }
}

fn on_owners(
    config: &Config,
    work: impl Fn(&Comm, Trainer<f64>) -> Result<Memory> + Sync,
    breaks: Option<usize>,
) -> Vec<Result<Memory>> {
    comm::threads::run(3, &Options::default(), |comm| {
        let link = RankLink::new(comm, true);
        let mut strategy = StageOwner { link: &link, breaks: breaks == Some(comm.rank()) };
        work(comm, Trainer::new(config, &mut strategy, learner(comm.rank()..comm.rank() + 1)))
    })
}

#[test]
fn ranks_that_own_stages_agree_on_clipping_and_write_whole_weights() {
    for clip in [0.0, 0.01] {
        let mut config = config(2);
        config.train.clip = clip;
        let ranks = on_owners(
            &config,
            |_, trainer| {
                let mut memory = Memory::default();
                trainer.run(&mut memory, &mut Quiet)?;
                Ok(memory)
            },
            None,
        );
        // One rank that owns all stages.
        let mut memory = Memory::default();
        let mut strategy = ManySteps { kill_at: None };
        Trainer::new(&config, &mut strategy, learner(0..3)).run(&mut memory, &mut Quiet).unwrap();
        for rank in ranks {
            let rank = rank.unwrap();
            assert_eq!(
                rank.weights.0.keys().collect::<Vec<_>>(),
                memory.weights.0.keys().collect::<Vec<_>>()
            );
            for (name, tensor) in &rank.weights.0 {
                let (own, other): (Vec<f64>, Vec<f64>) =
                    (tensor.to_real().unwrap(), memory.weights.0[name].to_real().unwrap());
                own.iter().zip(other).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{name}: {a} {b}"));
            }
        }
    }
}

#[test]
fn a_request_of_any_rank_stops_all_at_the_same_step() {
    let config = config(100);
    let point = |epoch, step| Point { epoch, step };
    for (times, stops) in [(5, point(0, 4)), (STEPS + 2, point(1, 0)), (STEPS + 5, point(1, 3))] {
        for asks in 0..3 {
            let ranks = on_owners(
                &config,
                |comm, trainer| {
                    let mut memory = Memory::default();
                    let mut stop = StopWhenAsked::new(times);
                    let observer: &mut dyn Observer =
                        if comm.rank() == asks { &mut stop } else { &mut Quiet };
                    let outcome = trainer.run(&mut memory, observer)?;
                    assert_eq!((outcome.ending, outcome.epochs), (Ending::Interrupted, stops.epoch));
                    Ok(memory)
                },
                None,
            );
            for rank in ranks {
                assert_eq!(rank.unwrap().points, [stops], "rank {asks} asks");
            }
        }
    }
}

#[test]
fn weights_that_break_on_one_rank_end_all_ranks() {
    let config = config(3);
    let ranks = on_owners(
        &config,
        |_, trainer| {
            let mut memory = Memory::default();
            let error = trainer.run(&mut memory, &mut Quiet).err().expect("it diverges");
            assert!(matches!(error, Error::Diverged { epoch: 2, step: Some(0), .. }), "{error}");
            Ok(memory)
        },
        Some(1),
    );
    for rank in ranks {
        let rank = rank.unwrap();
        assert_eq!(rank.epochs.len(), 1);
        assert_eq!(
            rank.weights.0.len(),
            model(0..3).state().0.len(),
            "the best weights of all stages are kept"
        );
    }
}

/// Keeps epoch, step and loss of all events; 0 as the step of an epoch's end.
#[derive(Default)]
struct Progress {
    started: Option<(u64, u64, u64)>,
    seen: Vec<(u64, u64, f64)>,
}

impl Observer for Progress {
    fn on(&mut self, event: &Event) {
        match event {
            Event::Started { from, steps, step, .. } => self.started = Some((*from, *steps, *step)),
            Event::Step { epoch, step, steps, loss } => {
                assert_eq!(*steps, STEPS);
                self.seen.push((*epoch, *step, *loss));
            }
            Event::Epoch { record, .. } => self.seen.push((record.epoch, 0, record.loss)),
            _ => {}
        }
    }
}

#[test]
fn every_step_of_an_epoch_is_reported() {
    let config = config(2);
    let (mut memory, mut progress) = (Memory::default(), Progress::default());
    let mut strategy = ManySteps { kill_at: None };
    Trainer::new(&config, &mut strategy, learner(0..3)).run(&mut memory, &mut progress).unwrap();
    assert_eq!(progress.started, Some((1, STEPS, 0)));
    let expected = (1..=2).flat_map(|epoch| (1..=STEPS).chain([0]).map(move |step| (epoch, step)));
    let seen = progress.seen.iter().map(|(epoch, step, _)| (*epoch, *step));
    assert!(seen.eq(expected));
    for end in [STEPS as usize, 2 * STEPS as usize + 1] {
        assert_eq!(progress.seen[end].2, progress.seen[end - 1].2, "the loss so far is that of the epoch");
    }
}

#[test]
fn a_resumed_run_reports_where_it_starts() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("run");
    let config = header(1e6).config;
    let mut run = Run::create(&path, header(1e6), false).unwrap();
    let mut strategy = ManySteps { kill_at: None };
    let trainer = Trainer::new(&config, &mut strategy, learner(0..3));
    trainer.run(&mut run, &mut StopWhenAsked::new(1 + STEPS + 1 + 4)).unwrap();
    drop(run);
    let mut resumed = Run::resume(&path).unwrap();
    let mut trainer = Trainer::new(&config, &mut strategy, learner(0..3));
    trainer.restore(ResumePoint::new(resumed.checkpoint.unwrap(), resumed.history)).unwrap();
    let mut progress = Progress::default();
    trainer.run(&mut resumed.run, &mut progress).unwrap();
    assert_eq!(progress.started, Some((2, STEPS, 4)));
    assert_eq!((progress.seen[0].0, progress.seen[0].1), (2, 5));
}
