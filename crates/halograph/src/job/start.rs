//! Starting a new run.

use std::path::Path;

use halograph_graph::Progress;
use halograph_graph::dataset::write::may_write;
use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_graph::progress::Silent;
use halograph_train::config::StrategyKind;
use halograph_train::run::{DataRef, Header, MemoryRun, Run, check_can_create, folder_of, is_run};
use halograph_train::{Config, Result, trace};

use super::demo::{DemoGraph, PRESET};
use super::directory::NewDirectory;
use super::plan::{Plan, Target};
use super::prepare::{Partition, stage};
use super::resume;
use super::trained::demo_data;
use super::{DataOption, JobData, JobOptions, Note, OutOption, Store};
use crate::config::{self, Setting};
use crate::words::count;

/// Resolves the run of `options` to start or resume, as rank 0, with these settings. Changes no run; may lock one, and write
/// an empty run directory, temporary files and caches of the dataset.
pub(super) fn plan(options: &JobOptions, settings: &[Setting], progress: &dyn Progress) -> Result<Plan> {
    check_resume(options)?;
    check_trace(options)?;
    let existing = options.out.path().filter(|out| options.resume && is_run(out));
    let mut plan = match (existing, &options.data) {
        (Some(out), _) => resume::plan(out, options, settings, progress)?,
        (None, DataOption::Default) if options.resume => return Err(nothing_to_resume(options).into()),
        (None, DataOption::Default) => plan_demo(options, settings, progress)?,
        (None, _) => plan_new(options, settings, progress)?,
    };
    if options.trace.is_some() && plan.header.config.train.strategy == StrategyKind::Single {
        plan.notes.push(Note::NothingToTrace);
    }
    Ok(plan)
}

/// Refuses to resume without a run directory.
fn check_resume(options: &JobOptions) -> InputResult<()> {
    if options.resume && options.out.path().is_none() {
        return Err(InputError::input("resume", "no run directory is given").help("give it with --out"));
    }
    Ok(())
}

/// Refuses a trace file that cannot be written after the training.
fn check_trace(options: &JobOptions) -> InputResult<()> {
    let Some(file) = &options.trace else { return Ok(()) };
    let folder = folder_of(file);
    if !folder.is_dir() && options.out.path() != Some(folder) {
        return Err(InputError::input(file.display(), "a trace cannot be written there")
            .help("give --trace the name of a file in a folder that exists"));
    }
    // A resumed job is started with the same arguments: its own trace may exist.
    trace::may_write(file, options.overwrite || options.resume)
}

/// Creates the error of `--resume` without a run and without data.
fn nothing_to_resume(options: &JobOptions) -> InputError {
    let out = options.out.path().unwrap_or(Path::new("")).display();
    InputError::input(out, "there is no run to resume")
        .help("check the path; if a dataset is given, a new run is started there")
}

/// Opens the given data, of shards that of rank `part`; `None` if none are given.
pub(super) fn open_data(option: &DataOption, part: u32) -> InputResult<Option<JobData>> {
    match option {
        DataOption::Default => Ok(None),
        DataOption::Path(path) => JobData::open(path, part).map(Some),
        DataOption::Open(dataset) => Ok(Some(JobData::Dataset(dataset.clone()))),
    }
}

/// Resolves a new run on given data.
fn plan_new(options: &JobOptions, settings: &[Setting], progress: &dyn Progress) -> Result<Plan> {
    stage(progress, "opening data")?;
    let data = open_data(&options.data, 0)?.expect("data are given");
    let config = data.resolve(settings)?;
    let reference = data.reference()?;
    if let Some(out) = options.out.path() {
        // Early: the checks below may take long.
        check_data_outside(reference.path.as_deref(), out)?;
        check_can_create(out, options.overwrite)?;
    }
    let partition = Partition::of(&data, &config, options.force, progress)?;
    let header = Header { data: reference, config };
    let notes = notes(settings, &header, &data);
    Ok(Plan { data, header, partition, notes, demo: None, target: Target::New(None) })
}

/// Resolves a new run on the built-in graph, which will be stored in the run directory.
fn plan_demo(options: &JobOptions, settings: &[Setting], progress: &dyn Progress) -> Result<Plan> {
    let config = config::resolve(settings)?;
    if let Some(out) = options.out.path() {
        // Nothing but a dataset is replaced there.
        may_write(&demo_data(out), true)?;
        check_can_create(out, options.overwrite)?;
    }
    // Now, because the graph is generated beside it.
    let directory = new_directory(options, PRESET, &config)?;
    stage(progress, "generating a graph")?;
    let parent = match &directory {
        Some(new) => new.path.parent().unwrap_or(Path::new("")).to_path_buf(),
        None => std::env::temp_dir(),
    };
    let demo = DemoGraph::generate(&parent, &Silent)?;
    let data = JobData::open(&demo.path(), 0)?;
    let partition = Partition::of(&data, &config, options.force, progress)?;
    let home = directory.as_ref().map(|new| demo_data(&new.path));
    let header = Header { data: DataRef::of(data.manifest(), home.as_deref())?, config };
    let notes = notes(settings, &header, &data);
    Ok(Plan { data, header, partition, notes, demo: Some(demo), target: Target::New(directory) })
}

/// Creates the run, in `directory` or else in memory.
pub(super) fn create(
    options: &JobOptions,
    header: Header,
    directory: Option<&NewDirectory>,
) -> Result<Store> {
    Ok(match directory {
        None => Store::Memory(Box::new(MemoryRun::new(header))),
        Some(new) => Store::Directory(Box::new(Run::create(&new.path, header, options.overwrite)?)),
    })
}

/// Returns the directory of a new run: as given, or a free one, which is created to reserve its name.
pub(super) fn new_directory(
    options: &JobOptions,
    dataset: &str,
    config: &Config,
) -> InputResult<Option<NewDirectory>> {
    match &options.out {
        OutOption::Path(path) => Ok(Some(NewDirectory::given(path))),
        OutOption::Default => NewDirectory::create(dataset, config.model.kind.name()).map(Some),
        OutOption::Memory => Ok(None),
    }
}

/// Resolves the settings of a new run on `data`; refuses those that contradict shards.
pub(super) fn resolve(settings: &[Setting], data: &JobData) -> InputResult<Config> {
    check_settings_of_shards(settings, data)?;
    let config = config::resolve(&with_ranks_of_shards(settings, data))?;
    check_ranks(&config, data)?;
    Ok(config)
}

/// Adds the strategy and the number of ranks that shards imply; `settings` take precedence.
fn with_ranks_of_shards(settings: &[Setting], data: &JobData) -> Vec<Setting> {
    let place = data.place();
    let implied = |parts: u32| {
        let ranks = Setting::new(&place, "train.ranks", &parts.to_string());
        [Setting::new(&place, "train.strategy", "partition"), ranks]
    };
    data.parts().map(implied).into_iter().flatten().chain(settings.iter().cloned()).collect()
}

/// Refuses settings that contradict data in shards.
fn check_settings_of_shards(settings: &[Setting], data: &JobData) -> InputResult<()> {
    let Some(parts) = data.parts() else { return Ok(()) };
    for s in settings {
        let help = match (s.name().as_str(), s.value.as_str()) {
            ("train.partition", _) => "leave it out: the shards are partitioned already",
            ("train.strategy", Some("single")) => {
                "leave it out, or train on the dataset that was partitioned"
            }
            _ => continue,
        };
        let problem =
            format!("{} = {}, but {} is in {}", s.name(), s.value, data.place(), count(parts, "part"));
        return Err(InputError::input(&s.place, problem).help(help));
    }
    Ok(())
}

/// Refuses to train shards on another number of ranks.
pub(super) fn check_ranks(config: &Config, data: &JobData) -> InputResult<()> {
    let (ranks, ways) = (config.train.ranks, config.parts());
    match data.parts() {
        Some(parts) if config.train.strategy == StrategyKind::Layers => {
            let parts = count(parts, "part");
            let problem = format!("is in {parts}, but each rank of strategy layers reads the whole graph");
            Err(InputError::input(data.place(), problem)
                .help("train on the dataset that was partitioned, or choose --strategy hybrid"))
        }
        Some(parts) if config.train.strategy == StrategyKind::Hybrid && parts as usize != ways => {
            let stages = config.stage_groups();
            let problem =
                format!("{} for {ranks} ranks in {stages} stage groups of {ways}", count(parts, "part"));
            let help = format!(
                "use {} ranks, or partition the dataset into {}",
                parts as usize * stages,
                count(ways, "part")
            );
            Err(InputError::input(data.place(), problem).help(help))
        }
        Some(_) if config.train.strategy == StrategyKind::Hybrid => Ok(()),
        Some(parts) if parts as usize != ranks || !config.train.strategy.allows_ranks() => {
            let problem = format!("{} for {}", count(parts, "part"), count(ranks, "rank"));
            let start = match halograph_comm::launched() {
                true => format!("start {parts} ranks (mpirun -n {parts})"),
                false => format!("use --ranks {parts}"),
            };
            let help = format!("{start}, or partition the dataset into {}", count(ranks, "part"));
            Err(InputError::input(data.place(), problem).help(help))
        }
        _ => Ok(()),
    }
}

/// Refuses a run directory that contains the dataset: `--overwrite` would remove it.
fn check_data_outside(data: Option<&Path>, out: &Path) -> InputResult<()> {
    let real = |path: &Path| path.canonicalize().ok();
    match data.and_then(real).zip(real(out)) {
        Some((data, out)) if data.starts_with(&out) => {
            Err(InputError::input(data.display(), "the dataset is inside the run directory")
                .help("choose another --out"))
        }
        _ => Ok(()),
    }
}

/// Returns remarks on a new run.
fn notes(settings: &[Setting], header: &Header, data: &JobData) -> Vec<Note> {
    let mut notes = config::unused(settings, &header.config);
    notes.extend(no_validation_nodes(&header.config, data));
    let classes = data.classes_without_training_nodes();
    if !classes.is_empty() {
        notes.push(Note::ClassesWithoutTrainingNodes { classes });
    }
    notes
}

/// Returns a remark if early stopping has no validation nodes.
pub(super) fn no_validation_nodes(config: &Config, data: &JobData) -> Option<Note> {
    (config.train.patience > 0 && !data.has_validation_nodes()).then_some(Note::NoValidationNodes)
}
