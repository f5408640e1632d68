//! What is trained: data and a run, new or taken up again.

use std::path::{Path, PathBuf};

use halograph::config::{self, Setting};
use halograph::train::config::{ScheduleKind, StrategyKind};
use halograph::train::launch::Extras;
use halograph::train::run::{TENSORBOARD, may_create};
use halograph::train::{Config, Observer};
use halograph_graph::dataset::Part;
use halograph_graph::dataset::write::may_write;
use halograph_graph::error::{Error, Result};
use halograph_graph::partition::Assignment;
use halograph_graph::progress::Silent;

use super::Args;
use super::demo::{self, Demo};
use super::place::Place;
use crate::cli::engine::{self, DataRef, Header, Prepared, Progressing, Summary};
use crate::cli::many;
use crate::cli::progress::Bar;
use crate::cli::source::Source;
use crate::cli::trained::{data_path, open_source, own_data};

/// What may change when a run goes on: the steps it has made are those it would have made.
const CHANGEABLE: [&str; 5] =
    ["train.epochs", "train.patience", "train.threads", "train.checkpoint_seconds", "train.deadline"];

/// Where the scalars of a run go.
pub fn scalars(run: &Path) -> PathBuf {
    run.join(TENSORBOARD)
}

/// A run and its data.
pub struct Job {
    /// What is learnt from.
    pub source: Source,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Bytes it was said to need.
    pub predicted: Option<u64>,
    /// How nodes are dealt out, if that is not on disk in parts.
    assignment: Option<Assignment>,
    run: Progressing,
    /// Last: empty folders are removed when the run has let go of its own.
    _place: Option<Place>,
}

impl Job {
    /// The run that the arguments ask for.
    pub fn open(args: &Args, settings: &[Setting], bar: &Bar) -> anyhow::Result<Self> {
        match args.out.as_deref().filter(|out| args.resume && engine::is_run(out)) {
            Some(out) => resume(out, args, settings, bar),
            None if args.resume && args.data.is_none() => Err(nothing_to_resume(args)),
            None => start(args, settings, bar),
        }
    }

    /// The run's folder.
    pub fn path(&self) -> &Path {
        self.run.path()
    }

    /// What the run does.
    pub fn config(&self) -> &Config {
        self.run.config()
    }

    /// Trains to the end, or until `observer` asks to stop.
    pub fn train(&mut self, trace: Option<&Path>, observer: &mut dyn Observer) -> anyhow::Result<Summary> {
        let extras = Extras { trace, assignment: self.assignment.as_ref(), ..Extras::default() };
        self.run.train(&self.source, extras, observer)
    }

    /// Epochs it had when this process took it up.
    pub fn started(&self) -> u64 {
        self.run.started
    }

    /// Removes a new run that holds no epoch yet; gives whether it did.
    pub fn take_back(&mut self) -> bool {
        self.run.take_back()
    }

    /// What ranks need that train it together.
    pub fn parts(&mut self) -> (&Source, Option<&Assignment>, &mut Progressing) {
        (&self.source, self.assignment.as_ref(), &mut self.run)
    }
}

/// `--resume` starts a run that is not there yet, if it is said what it learns from.
fn nothing_to_resume(args: &Args) -> anyhow::Error {
    let out = args.out.as_deref().unwrap_or(Path::new("")).display();
    Error::input(out, "there is no run to resume")
        .help("check the path; with DATA, a new run is started there")
        .into()
}

/// A new run.
fn start(args: &Args, settings: &[Setting], bar: &Bar) -> anyhow::Result<Job> {
    let Some(dir) = &args.data else {
        return start_demo(args, settings, config::resolve(settings)?, bar);
    };
    bar.glance("opening data")?;
    let source = Source::open(dir, 0)?;
    check_parts(settings, &source)?;
    let config = config::resolve(&with_parts(settings, &source))?;
    check_ranks(&config, &source)?;
    let data = DataRef::of(source.manifest(), dir)?;
    if let Some(out) = &args.out {
        // Asked before anything that takes long.
        keep_apart(dir, out)?;
        may_create(out, args.overwrite)?;
    }
    let Prepared { assignment, predicted } = engine::prepare(&source, &config, args.force, bar)?;
    let place = place(args, &source.manifest().name, &config)?;
    let run = Progressing::create(&place.path, Header { data, config }, args.overwrite)?;
    let notes = notes(settings, &run, &source);
    Ok(Job { source, notes, predicted, assignment, run, _place: Some(place) })
}

/// A graph in parts is trained on as many ranks, unless the user says otherwise.
fn with_parts(settings: &[Setting], source: &Source) -> Vec<Setting> {
    let place = source.path().display().to_string();
    let implied = |parts: u32| {
        let ranks = Setting::new(&place, "train.ranks", &parts.to_string());
        [Setting::new(&place, "train.strategy", "partition"), ranks]
    };
    source.parts().map(implied).into_iter().flatten().chain(settings.iter().cloned()).collect()
}

/// Refuses what a graph in parts leaves no choice of.
fn check_parts(settings: &[Setting], source: &Source) -> Result<()> {
    let Some(parts) = source.parts() else { return Ok(()) };
    let path = source.path().display();
    for s in settings {
        let help = match (s.name().as_str(), s.value.as_str()) {
            ("train.partition", _) => "leave it out: `halograph partition` has dealt out the nodes",
            ("train.strategy", Some("single")) => {
                "leave it out, or train on the dataset that was partitioned"
            }
            _ => continue,
        };
        let problem = format!("{} = {}, but {path} is in {}", s.name(), s.value, many(parts, "part"));
        return Err(Error::input(&s.place, problem).help(help));
    }
    Ok(())
}

/// Refuses to train parts on another number of ranks.
fn check_ranks(config: &Config, source: &Source) -> Result<()> {
    let ranks = config.train.ranks;
    match source.parts() {
        Some(parts) if parts as usize != ranks || config.train.strategy == StrategyKind::Single => {
            let (parts_word, ranks_word) = (many(parts, "part"), many(ranks, "rank"));
            let problem = format!("{parts_word}, to be trained on {ranks_word}");
            let help = format!("use --ranks {parts}, or partition the dataset into {}", many(ranks, "part"));
            Err(Error::input(source.path().display(), problem).help(help))
        }
        _ => Ok(()),
    }
}

/// A new run with a graph of its own.
fn start_demo(args: &Args, settings: &[Setting], config: Config, bar: &Bar) -> anyhow::Result<Job> {
    if let Some(out) = &args.out {
        // Nothing but a dataset is ever replaced; whether the run around it may be is for the run to say.
        may_write(&own_data(out), true)?;
    }
    let place = place(args, demo::PRESET, &config)?;
    bar.glance("making a graph")?;
    // Told in one word: it takes no time.
    let demo = Demo::make(place.path.parent().unwrap_or(Path::new("")), &Silent)?;
    let source = Source::open(&demo.path(), 0)?;
    let Prepared { assignment, predicted } = engine::prepare(&source, &config, args.force, bar)?;
    let home = own_data(&place.path);
    let data = DataRef::of(source.manifest(), &home)?;
    let run = Progressing::create(&place.path, Header { data, config }, args.overwrite)?;
    demo.settle(&home)?;
    let source = Source::open(&home, 0)?;
    let notes = notes(settings, &run, &source);
    Ok(Job { source, notes, predicted, assignment, run, _place: Some(place) })
}

/// What of the settings of a new run is without effect.
fn notes(settings: &[Setting], run: &Progressing, source: &Source) -> Vec<String> {
    let mut notes = config::idle(settings, run.config());
    let validated = match source {
        Source::Dataset(dataset) => dataset.split().contains(&(Part::Val as u8)),
        Source::Shards { .. } => true,
    };
    if run.config().train.patience > 0 && !validated {
        notes
            .push("there are no validation nodes: patience never ends, and the last weights are kept".into());
    }
    notes
}

/// The folder of a new run: as told, or a free one, which is made to keep others from taking it.
fn place(args: &Args, dataset: &str, config: &Config) -> Result<Place> {
    match &args.out {
        Some(out) => Ok(Place::given(out)),
        None => Place::free(dataset, config.model.kind.name()),
    }
}

/// A run that replaces another must not replace the data it is to learn from.
fn keep_apart(data: &Path, out: &Path) -> Result<()> {
    let real = |path: &Path| path.canonicalize().ok();
    match real(data).zip(real(out)) {
        Some((data, out)) if data.starts_with(&out) => {
            Err(Error::input(data.display(), "the data lie in the folder of the run")
                .help("choose another --out"))
        }
        _ => Ok(()),
    }
}

/// A run that goes on. Everything is checked before the run is touched.
fn resume(out: &Path, args: &Args, settings: &[Setting], bar: &Bar) -> anyhow::Result<Job> {
    let header = engine::read_header(out)?;
    let config = continued(&header.config, settings)?;
    let own = own_data(out);
    if args.data.is_none() && data_path(out, &header).as_ref() == Some(&own) && !own.exists() {
        // The run was ended before its graph had moved in; it is made again, of the same numbers.
        Demo::make(out.parent().unwrap_or(Path::new(".")), &Silent)?.settle(&own)?;
    }
    bar.glance("opening data")?;
    let source = open_source(out, &header, args.data.as_deref())?;
    same_data(&source, &header, out)?;
    check_ranks(&config, &source)?;
    let Prepared { assignment, predicted } = engine::prepare(&source, &config, args.force, bar)?;
    let data = DataRef::of(source.manifest(), source.path())?;
    let (run, notes) = Progressing::resume(out, Header { data, config })?;
    Ok(Job { source, notes, predicted, assignment, run, _place: None })
}

/// The configuration of a run that goes on with `settings`.
fn continued(before: &Config, settings: &[Setting]) -> Result<Config> {
    let after = config::overlay(before, settings)?;
    let changed = config::differences(before, &after)?;
    // Half a cosine over another number of epochs would have been another one from the start, and the last fresh epochs
    // would have been others.
    let counted = before.train.schedule == ScheduleKind::Cosine || before.train.cooldown_epochs > 0;
    let fixed = |key: &String| !CHANGEABLE.contains(&key.as_str()) || (key == "train.epochs" && counted);
    let Some(key) = changed.into_iter().find(fixed) else {
        return Ok(after);
    };
    let setting = settings.iter().rev().find(|s| s.name() == key);
    let place = setting.map_or("--resume", |s| &s.place);
    let value = |config| {
        let flat = config::flatten(config).unwrap_or_default();
        flat.into_iter().find(|(name, _)| *name == key).map_or("nothing".into(), |(_, v)| v.to_string())
    };
    let problem = format!("{key} = {}, but the run was started with {}", value(&after), value(before));
    let help = if CHANGEABLE.contains(&key.as_str()) {
        "with a cosine schedule or --cooldown-epochs, earlier epochs depend on how many there are: start a new run".to_string()
    } else {
        format!("a resumed run may change {}; for the rest start a new one", CHANGEABLE.join(", "))
    };
    Err(Error::input(place, problem).help(help))
}

fn same_data(source: &Source, header: &Header, run: &Path) -> Result<()> {
    if source.manifest().fingerprint == header.data.fingerprint {
        return Ok(());
    }
    let problem = format!("not the dataset that {} was started on ({})", run.display(), header.data.name);
    Err(Error::input(source.path().display(), problem)
        .help("give the right one as DATA, or start a new run with another --out"))
}

#[cfg(test)]
mod tests {
    use halograph::nn::model::Kind;
    use halograph::train::config::TrainConfig;

    use super::*;

    fn go_on(words: &[&str]) -> Result<Config> {
        let settings: Vec<Setting> = words.iter().map(|w| Setting::parse("--set", w).unwrap()).collect();
        continued(&Config::new(Kind::Gcn), &settings)
    }

    #[test]
    fn some_settings_may_change_on_the_way() {
        let config = go_on(&["train.epochs=500", "train.patience=3", "train.lr=0.01"]).unwrap();
        assert_eq!((config.train.epochs, config.train.patience), (500, 3));
    }

    #[test]
    fn the_others_are_refused_by_name() {
        let message = go_on(&["train.epochs=500", "train.lr=0.5"]).unwrap_err().to_string();
        assert!(message.starts_with("--set: train.lr = 0.5, but the run was started with 0.01"), "{message}");
        let message = go_on(&["model.kind=gat"]).unwrap_err().to_string();
        assert!(message.contains("model.kind = \"gat\", but the run was started with \"gcn\""), "{message}");
        let message = go_on(&["train.weight_decay_for.convs=1"]).unwrap_err().to_string();
        assert!(message.contains("started with nothing"), "{message}");
        let cosine = Config::new(Kind::Gcn);
        let cosine =
            Config { train: TrainConfig { schedule: ScheduleKind::Cosine, ..cosine.train }, ..cosine };
        let more = [Setting::parse("--set", "train.epochs=500").unwrap()];
        assert!(continued(&cosine, &more).unwrap_err().to_string().contains("cosine"));
    }
}
