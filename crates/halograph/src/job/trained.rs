//! A trained run, opened for evaluation or prediction.

use std::path::{Path, PathBuf};

use halograph_graph::error::{Error as InputError, Result as InputResult};
use halograph_train::run::{DEMO_DATA, Header};
use halograph_train::{Result, TrainedModel};

use super::{DataOption, JobData, Note};

/// Returns where a run stores the built-in graph.
pub(super) fn demo_data(run: &Path) -> PathBuf {
    run.join(DEMO_DATA)
}

/// Returns the directory of the data of a run; `None` for a dataset in memory. The built-in graph moves with the run.
pub(super) fn data_path(run: &Path, header: &Header) -> Option<PathBuf> {
    let then = header.data.path.as_ref()?;
    let moved = !then.exists() && then.ends_with(DEMO_DATA);
    Some(if moved { demo_data(run) } else { then.clone() })
}

/// Opens the data that a run was trained on.
pub(super) fn open_data_of(run: &Path, header: &Header) -> InputResult<JobData> {
    const HELP: &str = "give the dataset: train DATA --resume, eval and predict --data DATA";
    match data_path(run, header) {
        Some(path) if path.exists() => JobData::open(&path, 0),
        Some(path) => {
            let problem = format!(
                "does not exist any more; {} was trained on it ({})",
                run.display(),
                header.data.name
            );
            Err(InputError::input(path.display(), problem).help(HELP))
        }
        None => {
            let problem = format!("was trained on a dataset in memory ({})", header.data.name);
            Err(InputError::input(run.display(), problem).help(HELP))
        }
    }
}

/// Chooses the split of a run. Other data than those of the run may have one split only, and shards any.
fn with_split_of(header: &Header, data: JobData, is_same: bool) -> InputResult<JobData> {
    let other = !is_same && (data.manifest().splits == 1 || data.parts().is_some());
    if other { Ok(data) } else { data.with_split(header.config.data.split_index) }
}

/// Opens the model of the run in the directory `run`, and the data to apply it to: `data` or, by default, those of the run.
/// `threads` defaults to the setting of the run. Writes nothing.
pub fn open_trained(
    run: &Path,
    data: Option<&Path>,
    threads: Option<usize>,
) -> Result<(TrainedModel, JobData, Vec<Note>)> {
    let mut trained = TrainedModel::open(run)?;
    if let Some(threads) = threads {
        trained.header.config.train.threads = threads;
        trained.header.config.check()?;
    }
    let data = data.map_or(DataOption::Default, |path| DataOption::Path(path.to_path_buf()));
    let (opened, notes) = open_data_for(&trained, Some(run), &data)?;
    Ok((trained, opened, notes))
}

/// Opens the data to apply a model to: those of `option` or, by default, those of its run, which is in the directory `run`
/// if it has one. Chooses the split of the run.
pub fn open_data_for(
    trained: &TrainedModel,
    run: Option<&Path>,
    option: &DataOption,
) -> Result<(JobData, Vec<Note>)> {
    let opened = match option {
        DataOption::Default => open_data_of(run.unwrap_or(Path::new("the run")), &trained.header)?,
        DataOption::Path(path) => JobData::open(path, 0)?,
        DataOption::Open(dataset) => JobData::Dataset(dataset.clone()),
    };
    opened.shard_manifests()?;
    let is_same = opened.manifest().fingerprint == trained.header.data.fingerprint;
    let opened = with_split_of(&trained.header, opened, is_same)?;
    let changed = matches!(option, DataOption::Default) && !is_same;
    let path = opened.path().filter(|_| changed).map(Path::to_path_buf);
    let mut notes: Vec<Note> = path.map(|path| Note::DatasetChanged { path }).into_iter().collect();
    notes.extend(other_kinds_of_graph(&trained.header, &opened));
    Ok((opened, notes))
}

/// Returns notes on direction and weights of edges that differ from those of the run. Weights count if the model uses them.
fn other_kinds_of_graph(header: &Header, data: &JobData) -> Vec<Note> {
    let (own, other) = (&header.data, data.manifest());
    let uses_weights = header.config.graphs().edge_weights;
    let note = |own_has: Option<bool>, has: bool, [yes, no]: [&'static str; 2]| {
        let name = |has: bool| if has { yes } else { no };
        own_has.filter(|own_has| *own_has != has).map(|own_has| Note::OtherKindOfGraph {
            data: data.place(),
            edges: name(has),
            trained_on: own.name.clone(),
            trained_on_edges: name(own_has),
        })
    };
    let direction = note(own.directed, other.directed, ["directed edges", "undirected edges"]);
    let weights = own.edge_weights.filter(|_| uses_weights);
    let weights = note(weights, other.has_edge_weights(), ["edge weights", "no edge weights"]);
    direction.into_iter().chain(weights).collect()
}
