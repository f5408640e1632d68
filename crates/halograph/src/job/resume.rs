//! Resuming a run. The run is changed after all checks, those of checkpoint files included.

use std::path::Path;

use halograph_graph::Progress;
use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_graph::progress::Silent;
use halograph_train::config::ScheduleKind;
use halograph_train::run::{
    DataRef, FoundCheckpoint, Header, LockedRun, Resumed, Run, check_partition, folder_of,
};
use halograph_train::trainer::ResumePoint;
use halograph_train::{Config, Result};

use super::demo::DemoGraph;
use super::objective::{Classes, resolve_weights};
use super::plan::{Plan, Target};
use super::prepare::{Partition, stage};
use super::start::{check_ranks, no_validation_nodes, open_data};
use super::trained::{data_path, demo_data, open_data_of};
use super::{DataOption, JobData, JobOptions, Note};
use crate::config::{self, Setting};

/// Settings that a resumed run may change: completed epochs do not depend on them.
const CHANGEABLE: [&str; 10] = [
    "train.epochs",
    "train.patience",
    "train.threads",
    "train.checkpoint_seconds",
    "train.deadline",
    "train.macrobatch",
    "train.batch_memory",
    "train.row_cache",
    "train.row_encoding",
    "layers.activation_memory",
];

/// Resolves the run in `out` and its data. Locks the run; changes no file.
pub(super) fn plan(
    out: &Path,
    options: &JobOptions,
    settings: &[Setting],
    progress: &dyn Progress,
) -> Result<Plan> {
    let run = LockedRun::lock(out)?;
    let known = &run.header().data;
    let config = continued(
        &run.header().config,
        settings,
        Classes { count: known.classes, names: &known.class_names },
    )?;
    stage(progress, "opening data")?;
    let demo = lost_demo(out, options, run.header())?;
    let data = match (open_data(&options.data, 0)?, &demo) {
        (Some(data), _) => data,
        (None, Some(demo)) => JobData::open(&demo.path(), 0)?,
        (None, None) => open_data_of(out, run.header())?,
    };
    check_same_data(&data, run.header(), out)?;
    let data = data.with_split(config.data.split_index)?;
    check_ranks(&config, &data)?;
    let partition = Partition::of(&data, &config, options.force, progress)?;
    let reference = match &demo {
        Some(_) => DataRef::of(data.manifest(), Some(&demo_data(out)))?,
        None => data.reference()?,
    };
    let notes = no_validation_nodes(&config, &data).into_iter().collect();
    let target = Target::Existing(Box::new(run));
    Ok(Plan { data, header: Header { data: reference, config }, partition, notes, demo, target })
}

/// Generates the built-in graph again if the run was interrupted before it was stored.
fn lost_demo(out: &Path, options: &JobOptions, header: &Header) -> InputResult<Option<DemoGraph>> {
    let is_default = matches!(options.data, DataOption::Default);
    match data_path(out, header) {
        Some(path) if is_default && path == demo_data(out) && !path.exists() => {
            DemoGraph::generate(folder_of(out), &Silent).map(Some)
        }
        _ => Ok(None),
    }
}

/// Reads the newest complete checkpoint of a run; refuses one that `config` or the `layout` of the parts, if known, do not
/// fit.
pub(super) fn checkpoint(run: &LockedRun, config: &Config, layout: Option<&str>) -> Result<FoundCheckpoint> {
    let found = run.newest_checkpoint()?;
    let Some(checkpoint) = found.checkpoint() else { return Ok(found) };
    let (started, epochs) = (checkpoint.epoch + checkpoint.partial.is_some() as u64, config.train.epochs);
    if started > epochs {
        let problem = format!("{epochs} epochs; the run has reached epoch {started} already");
        return Err(InputError::input("train.epochs", problem)
            .help(format!("give {started} or more, or start a new run"))
            .into());
    }
    if let Some(layout) = layout {
        check_partition(run.path(), checkpoint.point(), layout)?;
    }
    Ok(found)
}

/// Resumes a run from `found` and writes its new header.
pub(super) fn resume(
    run: LockedRun,
    found: FoundCheckpoint,
    header: Header,
) -> Result<(Run, Option<ResumePoint>, Vec<Note>)> {
    let Resumed { mut run, checkpoint, history, notes } = run.resume(found)?;
    let mut notes: Vec<Note> = notes.into_iter().map(Note::Resume).collect();
    if checkpoint.is_none() {
        notes.push(Note::NoCheckpoint);
    }
    run.update_header(header)?;
    Ok((run, checkpoint.map(|checkpoint| ResumePoint::new(checkpoint, history)), notes))
}

/// Returns the configuration of a resumed run; refuses `settings` that completed epochs depend on.
fn continued(before: &Config, settings: &[Setting], classes: Classes) -> InputResult<Config> {
    let mut after = config::overlay(before, settings)
        .map_err(|error| refuse_changed(before, settings).err().unwrap_or(error))?;
    resolve_weights(&mut after.train, settings, classes)?;
    let changed = config::differences(before, &after)?;
    // A cosine schedule, and synchronous epochs at the end, depend on the number of epochs.
    let counted = before.train.schedule == ScheduleKind::Cosine || before.train.cooldown_epochs > 0;
    let fixed = |key: &String| !CHANGEABLE.contains(&key.as_str()) || (key == "train.epochs" && counted);
    let Some(key) = changed.into_iter().find(fixed) else {
        return Ok(after);
    };
    let setting = settings.iter().rev().find(|s| s.name() == key);
    let place = setting.map_or("--resume", |s| &s.place);
    let value = |config| {
        let flat = config::flatten(config).unwrap_or_default();
        flat.into_iter().find(|(name, _)| *name == key).map_or("no value".into(), |(_, v)| v.to_string())
    };
    let problem = format!("{key} = {}, but the run was started with {}", value(&after), value(before));
    let help = if CHANGEABLE.contains(&key.as_str()) {
        "with a cosine schedule or --cooldown-epochs, earlier epochs depend on their number: start a new run"
            .to_string()
    } else {
        only_changeable()
    };
    Err(InputError::input(place, problem).help(help))
}

/// Refuses a setting that completed epochs depend on, if it has another value than before. To be called when the settings
/// contradict those of the run: then the contradiction is not what the user should resolve.
fn refuse_changed(before: &Config, settings: &[Setting]) -> InputResult<()> {
    let flat = config::flatten(before)?;
    for setting in settings.iter().filter(|s| !CHANGEABLE.contains(&s.name().as_str())) {
        let same_key = flat.iter().find(|(key, _)| *key == setting.name());
        let Some((key, value)) = same_key.filter(|(_, value)| value.same_type(&setting.value)) else {
            continue;
        };
        if *value != setting.value {
            let problem = format!("{key} = {}, but the run was started with {value}", setting.value);
            return Err(InputError::input(&setting.place, problem).help(only_changeable()));
        }
    }
    Ok(())
}

fn only_changeable() -> String {
    format!("a resumed run may change {}; for anything else start a new run", CHANGEABLE.join(", "))
}

fn check_same_data(data: &JobData, header: &Header, run: &Path) -> InputResult<()> {
    if data.manifest().fingerprint == header.data.fingerprint {
        return Ok(());
    }
    let problem = format!("not the dataset that {} was started on ({})", run.display(), header.data.name);
    Err(InputError::input(data.place(), problem)
        .help("give that dataset as DATA, or start a new run with another --out"))
}

#[cfg(test)]
mod tests {
    use halograph_nn::model::Kind;
    use halograph_train::config::TrainConfig;

    use super::*;

    const CLASSES: Classes = Classes { count: 2, names: &[] };

    fn continue_with(words: &[&str]) -> InputResult<Config> {
        let settings: Vec<Setting> = words.iter().map(|w| Setting::parse("--set", w).unwrap()).collect();
        continued(&Config::new(Kind::Gcn), &settings, CLASSES)
    }

    #[test]
    fn a_resumed_run_may_change_some_settings() {
        let config = continue_with(&["train.epochs=500", "train.patience=3", "train.lr=0.01"]).unwrap();
        assert_eq!((config.train.epochs, config.train.patience), (500, 3));
    }

    #[test]
    fn other_changes_are_refused_with_both_values() {
        let message = continue_with(&["train.epochs=500", "train.lr=0.5"]).unwrap_err().to_string();
        assert!(message.starts_with("--set: train.lr = 0.5, but the run was started with 0.01"), "{message}");
        let message = continue_with(&["model.kind=gat"]).unwrap_err().to_string();
        assert!(message.contains("model.kind = \"gat\", but the run was started with \"gcn\""), "{message}");
        let message = continue_with(&["train.weight_decay_for.convs=1"]).unwrap_err().to_string();
        assert!(message.contains("started with no value"), "{message}");
        let message = continue_with(&["train.metric=macro-f1"]).unwrap_err().to_string();
        assert!(message.starts_with("--set: train.metric = \"macro-f1\", but"), "{message}");
        let message = continue_with(&["train.class_weights=balanced"]).unwrap_err().to_string();
        assert!(message.starts_with("--set: train.class_weights = \"balanced\", but"), "{message}");
        // Even if the new value contradicts other settings of the run.
        let message = continue_with(&["train.strategy=layers"]).unwrap_err().to_string();
        assert!(message.contains("\"layers\", but the run was started with \"single\""), "{message}");
        let cosine = Config::new(Kind::Gcn);
        let cosine =
            Config { train: TrainConfig { schedule: ScheduleKind::Cosine, ..cosine.train }, ..cosine };
        let more = [Setting::parse("--set", "train.epochs=500").unwrap()];
        assert!(continued(&cosine, &more, CLASSES).unwrap_err().to_string().contains("cosine"));
    }
}
