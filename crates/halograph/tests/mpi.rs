//! Tests of ranks as processes: `mpirun -n N halograph train …`.
//!
//! Launching takes longer than training these models. Where the command line is not what is tested, one launch trains
//! several jobs in sequence ([`Place::train_on_mpi`]).
#![cfg(all(feature = "mpi", target_os = "linux"))]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use halograph::graph::progress::Silent;
use halograph::job::{Job, JobOptions, NoObserver, World};
use serde_json::Value;
use tempfile::TempDir;

/// Timeout of a command; none takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(180);
/// Names the file of jobs that the ranks train; see [`rank`].
const JOBS: &str = "HALOGRAPH_TEST_JOBS";
/// A model that trains quickly, with dropout everywhere, as flags and as settings.
const QUICK: &str = "--hidden 8 --layers 2 --epochs 6 --threads 1 --set model.input_dropout=0.2";
const QUICK_SETTINGS: &str =
    "model.hidden=8 model.layers=2 train.epochs=6 train.threads=1 model.input_dropout=0.2";
/// Enough epochs that a signal arrives before the end.
const LONG: &str = "--hidden 8 --layers 2 --epochs 300 --threads 1 --checkpoint-seconds 0.05 --deadline 3 -q";

/// A folder with a small dataset `g`. One test at a time uses mpirun: more ranks than cores would be too slow.
struct Place {
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// The result of a command.
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Creates the folder; `None` without `mpirun`.
fn place() -> Option<Place> {
    static ONE: Mutex<()> = Mutex::new(());
    if !halograph_testing::has_mpirun() {
        return None;
    }
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place { folder: tempfile::tempdir().unwrap(), _alone };
    place.ok("data make --nodes 300 --edges 2400 --features 12 --classes 3 -o g -q");
    Some(place)
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts `words` in the folder; `H` stands for the binary, `T` for the test program.
    fn start(&self, words: &str) -> Child {
        let test = std::env::current_exe().unwrap();
        let program = |word| match word {
            "H" => env!("CARGO_BIN_EXE_halograph"),
            "T" => test.to_str().expect("a path of text"),
            word => word,
        };
        let words: Vec<&str> = words.split_whitespace().map(program).collect();
        let output = |name| Stdio::from(File::create(self.path(name)).unwrap());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env(JOBS, self.path("jobs"));
        command.stdout(output("stdout")).stderr(output("stderr")).spawn().expect("it starts")
    }

    fn end(&self, mut child: Child) -> Done {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > end => {
                    let _ = child.kill();
                    panic!("not done in time: {}", self.read("stderr"));
                }
                None => sleep(Duration::from_millis(10)),
            }
        };
        Done { code: status.code(), stdout: self.read("stdout"), stderr: self.read("stderr") }
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(name)).unwrap()).into_owned()
    }

    fn run(&self, words: &str) -> Done {
        self.end(self.start(words))
    }

    /// Runs one process and expects success.
    fn ok(&self, line: &str) -> String {
        let done = self.run(&format!("H {line}"));
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
        done.stdout
    }

    /// Runs `ranks` ranks.
    fn ranks(&self, ranks: usize, line: &str) -> Done {
        self.run(&format!("{} {ranks} H train {line}", LAUNCH))
    }

    fn ranks_ok(&self, ranks: usize, line: &str) -> Done {
        let done = self.ranks(ranks, line);
        assert_eq!(done.code, Some(0), "{line}: {}", done.stderr);
        done
    }

    /// Runs ranks and expects that they refuse; returns their message, which is printed once.
    fn refused(&self, words: &str) -> String {
        let done = self.run(&format!("{LAUNCH} {words}"));
        assert!(done.code.is_some_and(|code| code != 0), "{words}: {}", done.stdout);
        assert_eq!(done.stderr.matches("error: ").count(), 1, "{words}: {}", done.stderr);
        assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
        done.stderr
    }

    /// Returns the weights and the epochs of a run without times: what must not depend on ranks or interruptions.
    fn results(&self, run: &str) -> (Vec<u8>, Vec<Value>) {
        let text = self.read(&format!("{run}/metrics.jsonl"));
        let epochs = text.lines().map(|line| {
            let mut epoch: Value = serde_json::from_str(line).unwrap();
            let fields = epoch.as_object_mut().unwrap();
            ["seconds", "evaluation_seconds"].iter().for_each(|key| drop(fields.remove(*key)));
            epoch
        });
        (fs::read(self.path(run).join("model.safetensors")).unwrap(), epochs.collect())
    }

    #[track_caller]
    fn same(&self, one: &str, other: &str) {
        let (one, other) = (self.results(one), self.results(other));
        assert_eq!(one.1, other.1);
        assert!(one.0 == other.0, "weights differ");
    }
}

const LAUNCH: &str = "mpirun --allow-run-as-root --oversubscribe -n";

const MODELS: [&str; 6] = ["sage", "gcn", "gat", "gcnii", "resgcn", "gin"];

/// A job: the name of its run, the dataset, and its settings as `key=value`.
struct TestJob {
    run: String,
    data: &'static str,
    settings: String,
}

impl TestJob {
    fn line(&self) -> String {
        format!("{} {} {}\n", self.run, self.data, self.settings)
    }
}

/// Trains, or resumes, the job of a line in `folder`, into a run whose name ends in `suffix`.
fn train(line: &str, folder: &Path, suffix: &str, resume: bool, world: &World) -> halograph::Result<()> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().expect("a run and a dataset");
    let (run, data) = (folder.join(next().to_string() + suffix), folder.join(next()));
    let options = JobOptions { resume, ..JobOptions::new(data).out(run) };
    let options = words.fold(options, |options, setting| {
        let (key, value) = setting.split_once('=').expect("key=value");
        options.set(key, value)
    });
    Job::open(&options, world, &Silent)?.train(&mut NoObserver).map(drop)
}

/// Not a test: one rank of [`Place::train_on_mpi`]. Trains the jobs of the file that `JOBS` names, one after the other.
#[test]
#[ignore = "started under mpirun by other tests"]
fn rank() {
    let Some(file) = std::env::var_os(JOBS).map(PathBuf::from) else { return };
    let folder = file.parent().expect("a file in a folder");
    let world = World::join(&[]).unwrap();
    for line in fs::read_to_string(&file).unwrap().lines() {
        let (resume, line) = line.strip_prefix("resume ").map_or((false, line), |line| (true, line));
        if let Err(error) = train(line, folder, "", resume, &world) {
            panic!("{line}: {error}");
        }
    }
    world.close().unwrap();
}

impl Place {
    /// Trains jobs in sequence on `ranks` ranks of one launch; `lines` are those of [`TestJob::line`], after `resume ` if
    /// the run exists.
    #[track_caller]
    fn train_on_mpi(&self, ranks: usize, lines: &str) {
        fs::write(self.path("jobs"), lines).unwrap();
        let done = self.run(&format!("{LAUNCH} {ranks} T --ignored --exact rank"));
        assert_eq!(done.code, Some(0), "{}{}", done.stdout, done.stderr);
    }

    /// Trains jobs on ranks of one launch and on threads of this process; asserts bit-identical results.
    #[track_caller]
    fn assert_jobs_as_on_threads(&self, ranks: usize, jobs: &[TestJob]) {
        self.train_on_mpi(ranks, &jobs.iter().map(TestJob::line).collect::<String>());
        for job in jobs {
            let line = format!("{} train.ranks={ranks}", job.line().trim());
            train(&line, self.folder.path(), "-threads", false, &World::alone()).unwrap();
            self.same(&job.run, &format!("{}-threads", job.run));
        }
    }

    /// The same through the command line, whose processes must print nothing.
    #[track_caller]
    fn assert_as_on_threads(&self, ranks: usize, line: &str) {
        // One process under a launcher trains like one without.
        let threads = if ranks == 1 { String::new() } else { format!("--ranks {ranks}") };
        self.ok(&format!("train {line} {threads} --out threads --overwrite -q"));
        let done = self.ranks_ok(ranks, &format!("{line} --out mpi --overwrite -q"));
        assert!(done.stdout.is_empty() && done.stderr.is_empty(), "{}{}", done.stdout, done.stderr);
        self.same("mpi", "threads");
    }
}

#[test]
fn every_model_is_bit_identical_on_mpi_and_threads() {
    let Some(place) = place() else { return };
    place.ok("data make small -o small -q");
    let mut graphs = vec!["small"];
    if let Some(cora) = halograph_testing::real_data("cora") {
        place.ok(&format!("data import planetoid {} -o cora -q", cora.display()));
        graphs.push("cora");
    }
    for ranks in 1..=4 {
        let job = |data: &'static str, model: &str, settings: &str| TestJob {
            run: format!("{data}-{model}-{ranks}-{settings}"),
            data,
            settings: format!("{QUICK_SETTINGS} model.kind={model} {settings}"),
        };
        let on_g = MODELS.into_iter().flat_map(|model| {
            ["f32", "f64"].map(|precision| job("g", model, &format!("train.precision={precision}")))
        });
        let pairs = graphs
            .iter()
            .flat_map(|graph| MODELS.into_iter().zip([2, 3, 4, 2, 3, 4]).map(move |p| (graph, p)));
        let on_graphs = pairs
            .filter(|(_, (_, on))| *on == ranks)
            .map(|(graph, (model, _))| job(graph, model, "train.epochs=3"));
        let jobs: Vec<TestJob> = on_g.chain(on_graphs).collect();
        place.assert_jobs_as_on_threads(ranks, &jobs);
    }
}

#[test]
fn commands_under_a_launcher_are_bit_identical_to_threads() {
    let Some(place) = place() else { return };
    place.assert_as_on_threads(1, &format!("g {QUICK}"));
    place.assert_as_on_threads(2, &format!("g {QUICK} --strategy minibatch --batch-size 16 --macrobatch 3"));
    let flags = "--staleness 2 --warmup-epochs 1 --smooth gf --cooldown-epochs 1 --measure-staleness";
    place.assert_as_on_threads(3, &format!("g --model gat {QUICK} --strategy pipelined {flags}"));
}

#[test]
fn pipelined_is_bit_identical_on_mpi_and_threads() {
    let Some(place) = place() else { return };
    let all = "train.staleness=2 train.warmup_epochs=1 train.smooth=gf train.cooldown_epochs=1 train.measure_staleness=true";
    let jobs =
        [("sage", "train.warmup_epochs=0 train.smooth=none"), ("gat", all)].map(|(model, settings)| {
            TestJob {
                run: model.to_string(),
                data: "g",
                settings: format!("{QUICK_SETTINGS} model.kind={model} train.strategy=pipelined {settings}"),
            }
        });
    place.assert_jobs_as_on_threads(3, &jobs);
}

#[test]
fn sampled_batches_are_bit_identical_on_mpi_and_threads() {
    let Some(place) = place() else { return };
    place.ok("partition g -k 2 -o shards -q");
    let cached = "train.cache_input_aggregate=true train.sampler=labor model.input_dropout=0";
    let cases = [
        (2, "minibatch", "g", "sage", "train.macrobatch=2"),
        (2, "minibatch", "shards", "gcn", cached),
        (2, "split", "g", "sage", "train.macrobatch=2 model.norm=batch"),
        (2, "split", "shards", "gcn", cached),
        (3, "minibatch", "g", "gat", "train.sampler=labor train.row_cache=lru"),
        (
            3,
            "minibatch",
            "g",
            "gin",
            "train.macrobatch=1 train.row_cache=none data.inductive=true train.precision=f64",
        ),
        (3, "split", "g", "gat", "train.sampler=labor train.macrobatch=3"),
        (3, "split", "g", "gin", "train.macrobatch=1 data.inductive=true train.precision=f64"),
        (3, "split", "g", "resgcn", "train.row_encoding=dense"),
        (3, "split", "g", "gcnii", "train.sampler=labor"),
        (4, "split", "g", "sage", "train.sampler=labor train.row_cache=lru"),
    ];
    for ranks in [2, 3, 4] {
        let job = |&(_, strategy, data, model, settings): &(usize, &str, &'static str, &str, &str)| TestJob {
            run: format!("{strategy}-{model}-{ranks}"),
            data,
            settings: format!(
                "{QUICK_SETTINGS} model.kind={model} train.strategy={strategy} train.batch_size=16 train.fanout=4,3 {settings}"
            ),
        };
        let jobs: Vec<TestJob> = cases.iter().filter(|case| case.0 == ranks).map(job).collect();
        place.assert_jobs_as_on_threads(ranks, &jobs);
    }
}

#[test]
fn stages_and_chunks_are_bit_identical_on_mpi_and_threads() {
    let Some(place) = place() else { return };
    place.ok("partition g -k 2 -o shards -q");
    let stale = "layers.history_epochs=2 layers.steps_per_epoch=2";
    let cases = [
        (2, "layers", "g", "sage", "layers.chunks=1"),
        (2, "layers", "g", "gcnii", ""),
        (3, "layers", "g", "gat", stale),
        (3, "layers", "g", "gin", "data.inductive=true train.precision=f64"),
        (4, "hybrid", "g", "resgcn", "layers.stages=2 layers.history_init=zero"),
        (4, "hybrid", "shards", "gcn", "layers.stages=2 layers.chunks=2"),
        (4, "hybrid", "shards", "gcnii", &format!("layers.stages=2 layers.chunks=8 {stale}")),
        (4, "hybrid", "g", "sage", "layers.stages=1 layers.chunks=8"),
    ];
    for ranks in [2, 3, 4] {
        let job = |&(_, strategy, data, model, settings): &(usize, &str, &'static str, &str, &str)| TestJob {
            run: format!("{strategy}-{model}-{ranks}"),
            data,
            settings: format!(
                "{QUICK_SETTINGS} model.layers=3 model.kind={model} train.strategy={strategy} {settings}"
            ),
        };
        let jobs: Vec<TestJob> = cases.iter().filter(|case| case.0 == ranks).map(job).collect();
        place.assert_jobs_as_on_threads(ranks, &jobs);
    }
}

#[test]
fn messages_of_launched_ranks_can_be_delayed() {
    let Some(place) = place() else { return };
    place.ok(&format!("train g --out threads --ranks 2 {QUICK}"));
    let done = place.ranks_ok(2, &format!("g --out delayed --send-delay 20000 {QUICK} --json"));
    place.same("delayed", "threads");
    // The sum of the losses takes two messages, one after the other.
    let summary: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(summary["epoch_seconds_median"].as_f64().unwrap() >= 2.0 * 0.02, "{}", done.stdout);
}

#[test]
fn only_rank_0_prints() {
    let Some(place) = place() else { return };
    let done = place.ranks_ok(3, &format!("{QUICK} --out demo"));
    let epochs = done.stderr.lines().filter(|line| line.starts_with("epoch "));
    assert_eq!(epochs.count(), 6, "{}", done.stderr);
    assert_eq!(done.stderr.matches("METIS").count(), 1, "{}", done.stderr);
    assert_eq!(done.stdout.matches("ranks      3 (mpi), 1 thread each").count(), 1, "{}", done.stdout);
    assert!(place.path("demo/demo-data").exists() && done.stdout.contains("demo: 4,000 nodes"));
    let done = place.ranks_ok(2, &format!("g {QUICK} --out json --json"));
    let line: Value = serde_json::from_str(&done.stdout).expect("one line of JSON");
    assert_eq!((&line["ranks"], &line["transport"]), (&2.into(), &"mpi".into()));
    assert_eq!(line["loss_history"].as_array().unwrap().len(), 6);
    assert!(line["bytes_per_epoch"].as_u64().unwrap() > 0);
}

#[test]
fn shards_are_trained_and_resumed() {
    let Some(place) = place() else { return };
    place.ok("partition g -k 3 -o shards -q");
    place.ok(&format!("train shards {QUICK} --out threads -q"));
    place.ranks_ok(3, &format!("shards {QUICK} --epochs 2 --out mpi -q"));
    place.ranks_ok(3, "--resume --out mpi --epochs 6 -q");
    place.same("mpi", "threads");
    let message = place.refused(&format!("2 H train shards {QUICK} --out other"));
    assert!(message.contains("3 parts for 2 ranks") && message.contains("mpirun -n 3"), "{message}");
    let message = place.refused("2 H train --resume --out mpi --epochs 9");
    assert!(message.contains("train.ranks = 2, but the run was started with 3"), "{message}");
}

#[test]
fn bad_arguments_are_reported_once() {
    let Some(place) = place() else { return };
    let cases = [
        ("3 H train g --lr -1 --out r", "--lr: train.lr: -1: must be a positive number"),
        ("3 H train g --ranks 2 --out r", "train.ranks = 2, but the launcher started 3"),
        ("3 H train g --strategy single --out r", "must be 1 with train.strategy"),
        ("3 H train nowhere --out r", "nowhere"),
        ("3 H train g --hidden 1000000 --out r", "training needs at least"),
        (
            "2 H train g --strategy minibatch --macrobatch 0 --out r",
            "train.macrobatch: 0: must be at least 1",
        ),
        // Before the ranks join.
        ("3 H train g --bogus --out r", "unexpected argument '--bogus'"),
        ("3 H train g --set nonsense --out r", "\"nonsense\" is not key=value"),
        ("3 H train --resume --out r", "there is no run to resume"),
        (
            "2 H train g --out r : -n 1 H train g --lr 0.5 --out r",
            "train.lr differs between ranks: \"0.01\" here, \"0.5\" on rank 2",
        ),
        ("2 H train g --out r : -n 1 H train g --lr -1 --out r", "--lr: train.lr: -1"),
    ];
    for (words, said) in cases {
        let message = place.refused(words);
        assert!(message.contains(said), "{words}: {message}");
        assert!(!place.path("r").exists(), "{words}");
    }
}

#[test]
fn a_rank_with_other_data_is_refused() {
    let Some(place) = place() else { return };
    place.ok("data make --nodes 310 --edges 2400 --features 12 --classes 3 -o h -q");
    let message = place.refused("2 H train g --out r : -n 1 H train h --out r");
    assert!(message.contains("dataset differs between ranks"), "{message}");
    // A shard of another partition, a damaged one, and a missing one.
    place.ok("partition g -k 3 -o shards -q");
    place.ok("partition g -k 3 --method random -o others -q");
    let train = |data: &str| {
        place.refused(&format!(
            "2 H train shards --out r --overwrite : -n 1 H train {data} --out r --overwrite"
        ))
    };
    let message = train("others");
    assert!(message.contains("layout of parts differs between ranks"), "{message}");
    let file = place.path("others/part-0002/feat.npy");
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let message = train("others");
    assert!(message.contains("others/part-0002/feat.npy: the contents do not match"), "{message}");
    fs::remove_dir_all(place.path("others/part-0002")).unwrap();
    let message = train("others");
    assert!(message.contains("part 2 is missing"), "{message}");
}

#[test]
fn hosts_need_no_shared_file_system() {
    let Some(place) = place() else { return };
    for host in ["a", "b"] {
        fs::create_dir(place.path(host)).unwrap();
    }
    // Two hosts: a relative path is a different folder on each.
    let hosts = |line: &str| {
        format!(
            "mpirun --allow-run-as-root --oversubscribe -n 2 --wdir a H train {line} : -n 2 --wdir b H train {line}"
        )
    };
    for (data, quick) in [("../g", QUICK), ("", "--hidden 8 --epochs 6")] {
        let threads = data.trim_start_matches("../");
        place.ok(&format!("train {threads} {quick} --ranks 4 --out threads --overwrite -q"));
        let first = place.run(&hosts(&format!("{data} {quick} --epochs 3 --out run --overwrite -q")));
        assert_eq!(first.code, Some(0), "{}", first.stderr);
        for there in ["a/run/ckpt-3/rank-1", "b/run/rank-2/ckpt-3/rank-2", "b/run/rank-3/ckpt-3/rank-3"] {
            assert!(place.path(&format!("{there}.safetensors")).exists(), "{there}");
        }
        assert!(!place.path("b/run/run.json").exists() && !place.path("a/run/rank-2").exists());
        let second = place.run(&hosts("--resume --out run --epochs 6 -q"));
        assert_eq!(second.code, Some(0), "{}", second.stderr);
        place.same("a/run", "threads");
        assert!(!place.path("b/run/rank-2/ckpt-3").exists() && place.path("b/run/rank-2/ckpt-6").exists());
    }
    let again = hosts("--resume --out run --epochs 9 -q");
    let again = again.strip_prefix("mpirun --allow-run-as-root --oversubscribe -n ").unwrap();
    let file = place.path("b/run/rank-3/ckpt-6/rank-3.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[1..]).unwrap();
    assert!(place.refused(again).contains("rank-3.safetensors: contents differ"));
    fs::remove_file(&file).unwrap();
    assert!(place.refused(again).contains("the checkpoint file of rank 3 is missing"));
    fs::write(&file, bytes).unwrap();
    assert_eq!(place.run(&hosts("--resume --out run --epochs 9 -q")).code, Some(0));
}

/// Returns the state and the parent of a process that runs this binary.
fn rank_process(process: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let rest = text.split_once("(halograph) ")?.1;
    let mut words = rest.split_whitespace();
    Some((words.next()?.to_string(), words.next()?.parse().ok()?))
}

/// Returns the processes of the ranks under a launcher, by rank.
fn processes(launcher: &Child) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let below = |process: &u32| rank_process(*process).is_some_and(|(_, parent)| parent == launcher.id());
    let mut ranks: Vec<u32> = all.filter(below).collect();
    ranks.sort();
    ranks
}

/// Returns whether a process exists and is not a zombie.
fn lives(process: u32) -> bool {
    rank_process(process).is_some_and(|(state, _)| state != "Z")
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status();
    assert!(sent.expect("there is a kill").success());
}

/// Waits until the run has a checkpoint; returns the processes of its ranks.
fn at_work(launcher: &Child, run: &Path, ranks: usize) -> Vec<u32> {
    let saved = || {
        fs::read_dir(run)
            .into_iter()
            .flatten()
            .flatten()
            .any(|e| e.file_name().to_string_lossy().starts_with("ckpt-"))
    };
    let end = Instant::now() + PATIENCE;
    while !saved() {
        assert!(Instant::now() < end, "there is no checkpoint");
        sleep(Duration::from_millis(5));
    }
    let found = processes(launcher);
    assert_eq!(found.len(), ranks);
    found
}

#[test]
fn a_signal_to_the_launcher_writes_a_checkpoint() {
    let Some(place) = place() else { return };
    // The run would last for minutes, however fast the machine is.
    let long = LONG.replace("--epochs 300", "--epochs 1000000");
    // Open MPI passes the signal on after this time. On a loaded machine, saving may take longer than the default second.
    let patient = LAUNCH.replace(" -n", " --mca odls_base_sigkill_timeout 5 -n");
    let launcher = place.start(&format!("{patient} 3 H train g {long} --out r"));
    at_work(&launcher, &place.path("r"), 3);
    signal("-TERM", launcher.id());
    let done = place.end(launcher);
    assert_ne!(done.code, Some(0));
    assert!(done.stderr.matches("interrupted: finishing").count() <= 1, "{}", done.stderr);
    assert!(done.stderr.contains("saved. Resume under the same launcher with: "), "{}", done.stderr);
    let trained = std::fs::read_to_string(place.path("r/metrics.jsonl")).unwrap().lines().count();
    let epochs = trained + 20;
    place.ranks_ok(3, &format!("--resume --out r --epochs {epochs} -q"));
    place.ok(&format!("train g {} --ranks 3 --out whole", long.replace("1000000", &epochs.to_string())));
    place.same("r", "whole");
}

/// Open MPI then sends SIGTERM to rank 0, which METIS catches.
#[test]
fn a_rank_killed_during_partitioning_is_named() {
    let Some(place) = place() else { return };
    // Large enough that METIS takes seconds.
    place.ok("data make --nodes 60000 --edges 1200000 --features 8 --classes 3 -o large -q");
    let launcher = place.start(&format!("{LAUNCH} 2 H train large {QUICK} --out r"));
    let end = Instant::now() + PATIENCE;
    while !place.read("stderr").contains("METIS") {
        assert!(Instant::now() < end, "METIS has not begun: {}", place.read("stderr"));
        sleep(Duration::from_millis(5));
    }
    signal("-KILL", processes(&launcher)[1]);
    let done = place.end(launcher);
    let errors: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let named = matches!(errors[..], [line] if line.contains("rank 1 on ") && line.contains("exited"));
    assert!(named, "{}", done.stderr);
}

/// A short form of `scripts/drill`.
#[test]
fn a_killed_or_stopped_rank_ends_the_job_and_the_run_resumes() {
    let Some(place) = place() else { return };
    let stale = "--strategy pipelined --staleness 2 --smooth gf --warmup-epochs 2";
    place.ok(&format!("train g {LONG} --ranks 3 --out fresh"));
    place.ok(&format!("train g {LONG} --ranks 3 {stale} --out stale"));
    // Fewer epochs, of several steps.
    let batches = "--strategy minibatch --batch-size 16 --fanout 4,3 --macrobatch 4 --epochs 80";
    place.ok(&format!("train g {LONG} --ranks 3 {batches} --out batches"));
    let split = batches.replace("minibatch", "split");
    let split = split.as_str();
    let layers = "--strategy layers --model gcnii --layers 3 --chunks 6 --history-epochs 2";
    place.ok(&format!("train g {LONG} --ranks 3 {layers} --out layers"));
    place.ok(&format!("train g {LONG} --ranks 3 {split} --out split"));
    let cases = [
        ("-KILL", 1, "exited without reporting", layers, "layers"),
        ("-STOP", 2, "sent nothing for", layers, "layers"),
        ("-KILL", 1, "exited without reporting", split, "split"),
        ("-STOP", 2, "sent nothing for", split, "split"),
        ("-KILL", 2, "exited without reporting", batches, "batches"),
        ("-STOP", 1, "sent nothing for", batches, "batches"),
        ("-KILL", 1, "exited without reporting", stale, "stale"),
        ("-STOP", 2, "sent nothing for", stale, "stale"),
        ("-KILL", 0, "exited without reporting", "", "fresh"),
        ("-STOP", 0, "sent nothing for", "", "fresh"),
    ];
    for (name, rank, cause, strategy, whole) in cases {
        let run = format!("r{name}-{rank}-{whole}");
        let launcher = place.start(&format!("{LAUNCH} 3 H train g {LONG} {strategy} --out {run}"));
        let ranks = at_work(&launcher, &place.path(&run), 3);
        signal(name, ranks[rank]);
        let hit = Instant::now();
        let done = place.end(launcher);
        assert!(done.code.is_some_and(|code| code != 0));
        let lines: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        let said = lines
            .last()
            .is_some_and(|line| line.contains(&format!("rank {rank} on ")) && line.contains(cause));
        assert!(said, "{name} {rank}: {}", done.stderr);
        // The deadline plus 5 seconds, doubled for a busy machine.
        while ranks.iter().any(|&process| lives(process)) {
            assert!(hit.elapsed() < Duration::from_secs(16), "{name} {rank}: processes are left");
            sleep(Duration::from_millis(20));
        }
    }
    let resume: String =
        cases.map(|(name, rank, .., whole)| format!("resume r{name}-{rank}-{whole} g\n")).concat();
    place.train_on_mpi(3, &resume);
    for (name, rank, _, _, whole) in cases {
        place.same(&format!("r{name}-{rank}-{whole}"), whole);
    }
}
