use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use halograph_graph::Dataset;
use halograph_graph::build::EdgeOptions;
use halograph_graph::dataset::{DatasetArrays, FeatureArray, GraphArrays, Labels};
use halograph_graph::partition::{Balance, Method, PartitionSpec};
use halograph_graph::progress::Silent;

use super::*;
use crate::job::demo::DemoGraph;
use crate::job::{AssignmentOption, DataOption, NoObserver, OutOption, ShardOptions, write_shards};

fn dataset() -> Arc<Dataset> {
    ring(30)
}

fn ring(nodes: u32) -> Arc<Dataset> {
    let edges: Vec<(u32, u32)> = (0..nodes).map(|v| (v, (v + 1) % nodes)).collect();
    let graph = GraphArrays::from_edges(nodes as usize, &edges, EdgeOptions::default()).unwrap();
    let features = FeatureArray::f32(2, (0..2 * nodes).map(|x| x as f32 / 60.0).collect());
    let labels = Labels::Single((0..nodes as i64).map(|v| v % 2).collect());
    let split = (0..nodes).map(|v| 1 + v as u8 % 3).collect();
    Arc::new(Dataset::from_arrays(DatasetArrays::new("ring", graph, features, labels, split)).unwrap())
}

fn quick(options: JobOptions) -> JobOptions {
    options
        .set("train.strategy", "partition")
        .set("train.partition", "random")
        .set("train.epochs", 3)
        .set("train.threads", 1)
}

/// Trains on ranks with these options. Returns the results.
fn train_each(options: &[JobOptions]) -> Vec<Result<()>> {
    comm::threads::run(options.len(), &comm::Options::default(), |comm| -> Result<()> {
        let world = World { comm: Some(comm.clone()) };
        let mut job = Job::open(&options[comm.rank()], &world, &Silent)?;
        assert_eq!(job.train(&mut NoObserver)?.is_some(), comm.rank() == 0);
        Ok(())
    })
}

/// Trains on ranks that are given one output option each.
fn train(outs: &[OutOption]) {
    let dataset = dataset();
    let options = |out: &OutOption| JobOptions { out: out.clone(), ..JobOptions::new(dataset.clone()) };
    let options: Vec<JobOptions> = outs.iter().map(|out| quick(options(out))).collect();
    train_each(&options).into_iter().for_each(|result| result.unwrap());
}

/// Returns the files in `folder` and below, with their contents.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(path).unwrap())),
        }
    }
    found
}

/// Asserts that ranks with these options fail with `problem` and leave `folder` as it was.
#[track_caller]
fn assert_unchanged(folder: &Path, options: &[JobOptions], problem: &str) {
    let before = files(folder);
    let errors: Vec<String> =
        train_each(options).into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(errors.iter().any(|error| error.contains(problem)), "{errors:?}");
    let after = files(folder);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>(), "{problem}");
    // The lock is taken before a run is resumed.
    let same = before.iter().all(|(path, bytes)| path.ends_with(".lock") || after[path] == *bytes);
    assert!(same, "{problem}: contents differ");
}

#[test]
fn a_run_is_replaced_or_resumed_only_when_all_ranks_are_ready() {
    let (temp, run) = (tempfile::tempdir().unwrap(), "run");
    let run = temp.path().join(run);
    train(&[OutOption::Path(run.clone()), OutOption::Default]);
    let other = |data: DataOption| JobOptions { data, ..JobOptions::default() };
    let path = |name: &str| DataOption::Path(temp.path().join(name));
    for (overwrite, resume) in [(true, false), (false, true)] {
        let lead = |options: JobOptions| {
            let options = options.out(&run);
            quick(JobOptions { overwrite, resume, ..options }).set("train.epochs", 5)
        };
        let follow = |options: JobOptions| quick(options).set("train.epochs", 5);
        let given = || JobOptions::new(dataset());
        // No data, none at that place, and other data.
        let ranks = [lead(given()), follow(other(DataOption::Default))];
        assert_unchanged(temp.path(), &ranks, "this rank was given none");
        let ranks = [lead(given()), follow(other(path("nowhere")))];
        assert_unchanged(temp.path(), &ranks, "nowhere");
        let ranks = [lead(given()), follow(other(ring(40).into()))];
        assert_unchanged(temp.path(), &ranks, "dataset differs between ranks");
        // Only rank 1 has a problem, after everything of rank 0 has been checked.
        let ranks = [lead(given()), follow(given().out(""))];
        assert_unchanged(temp.path(), &ranks, "find");
    }
    // More memory than there is: the prediction, and the weights alone.
    for (force, problem) in [(false, "training needs at least"), (true, "its weights take")] {
        let options = JobOptions { force, overwrite: true, ..JobOptions::new(dataset()) };
        let large = || quick(options.clone()).set("model.hidden", 1_000_000).set("model.layers", 3).out(&run);
        assert_unchanged(temp.path(), &[large(), large()], problem);
    }
}

#[test]
fn a_refused_job_leaves_no_new_files() {
    let temp = tempfile::tempdir().unwrap();
    // The built-in graph, and a dataset whose partition would be stored beside it.
    generate(&temp.path().join("data"));
    for data in [DataOption::Default, DataOption::Path(temp.path().join("data"))] {
        let lead = JobOptions { data, ..JobOptions::default() }.out(temp.path().join("new/run"));
        let ranks =
            [lead, JobOptions::new(dataset())].map(|options| quick(options).set("train.partition", "stream"));
        assert_unchanged(temp.path(), &ranks, "dataset differs between ranks");
        assert!(!temp.path().join("new").exists());
    }
    // Rank 1 refuses when all of rank 0 has been checked.
    let ranks = [temp.path().join("new/run"), PathBuf::new()];
    let ranks = ranks.map(|out| quick(JobOptions::default().out(out)));
    assert_unchanged(temp.path(), &ranks, "find");
    assert!(!temp.path().join("new").exists());
}

#[test]
fn a_dataset_on_one_rank_and_shards_on_another_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let spec = PartitionSpec { parts: 2, method: Method::Random, balance: Balance::default(), seed: 0 };
    let shards = ShardOptions {
        assignment: AssignmentOption::Computed(spec),
        out: temp.path().join("shards"),
        overwrite: false,
        force: false,
    };
    write_shards(&dataset(), &shards, &Silent).unwrap();
    let ranks = [JobOptions::new(dataset()), JobOptions::new(shards.out)].map(|o| quick(o.in_memory()));
    let problem = "kind of data differs between ranks: \"a dataset\" here, \"a folder of shards\" on rank 1";
    assert_unchanged(temp.path(), &ranks, problem);
}

#[test]
fn a_run_is_not_changed_if_another_rank_cannot_read_its_checkpoint() {
    let temp = tempfile::tempdir().unwrap();
    let [run, own] = ["run", "own"].map(|name| temp.path().join(name));
    train(&[OutOption::Path(run.clone()), OutOption::Path(own.clone())]);
    std::fs::remove_file(own.join("rank-1/ckpt-3/rank-1.safetensors")).unwrap();
    let ranks = [run, own].map(|out| {
        let options = JobOptions { resume: true, ..JobOptions::new(dataset()).out(out) };
        quick(options).set("train.epochs", 5)
    });
    assert_unchanged(temp.path(), &ranks, "the checkpoint file of rank 1 is missing");
}

#[test]
fn one_rank_reports_and_all_fail() {
    let options = comm::Options::default();
    let reports = Mutex::new(Vec::new());
    let comms: Vec<Comm> = comm::threads::world(3, &options).unwrap();
    std::thread::scope(|scope| {
        for comm in comms {
            let reports = &reports;
            scope.spawn(move || {
                let rank = comm.rank();
                let work = |world: &World| match rank {
                    1 => Err(InputError::input("data", "missing").into()),
                    _ => Ok(world.comm().unwrap().barrier(Control::JobReady.tag())?),
                };
                let report = |error: &Error| reports.lock().unwrap().push((rank, error.to_string()));
                let error = World { comm: Some(comm) }.run(work, report).unwrap_err().to_string();
                assert!(error.contains("data: missing"), "{error}");
            });
        }
    });
    assert_eq!(reports.into_inner().unwrap(), [(1, "data: missing".to_string())]);
}

#[test]
fn ranks_share_the_built_in_graph() {
    let temp = tempfile::tempdir().unwrap();
    let lead = JobOptions::default().out(temp.path().join("run"));
    let ranks = [lead, JobOptions::default()].map(|options| quick(options).set("model.hidden", 8));
    train_each(&ranks).into_iter().for_each(|result| result.unwrap());
    assert!(temp.path().join("run/demo-data/dataset.json").exists());
}

fn generate(path: &Path) {
    let demo = DemoGraph::generate(path.parent().unwrap(), &Silent).unwrap();
    demo.move_to(path).unwrap();
}

#[test]
fn a_rank_ignores_its_directory_if_rank_0_has_none() {
    let temp = tempfile::tempdir().unwrap();
    train(&[OutOption::Memory, OutOption::Path(temp.path().join("own"))]);
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[test]
fn a_rank_writes_checkpoints_to_its_own_directory() {
    let temp = tempfile::tempdir().unwrap();
    let [run, own] = ["run", "own"].map(|name| temp.path().join(name));
    train(&[OutOption::Path(run.clone()), OutOption::Path(own.clone())]);
    assert!(run.join("ckpt-3/rank-0.safetensors").exists() && run.join("ckpt-3/manifest.json").exists());
    assert!(own.join("rank-1/ckpt-3/rank-1.safetensors").exists());
}

#[test]
fn a_rank_without_an_option_uses_the_directory_of_rank_0() {
    let temp = tempfile::tempdir().unwrap();
    let run = temp.path().join("run");
    train(&[OutOption::Path(run.clone()), OutOption::Memory]);
    assert!(run.join("ckpt-3/rank-1.safetensors").exists());
}
