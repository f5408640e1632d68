//! `run.json`: what a run is and, once it is over, how it went.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use halograph_graph::Dataset;
use halograph_graph::dataset::{Manifest, Task};
use halograph_graph::error::{Error, IoContext, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::files::{self, RUN};
use crate::Config;

const FORMAT: &str = "halograph-run";
/// Layout version of the directory that this build writes and reads.
pub(super) const VERSION: u32 = 1;

/// The dataset of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRef {
    /// Its directory, as an absolute path; `None`: arrays in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// What it is called.
    pub name: String,
    /// Which numbers it held.
    pub fingerprint: String,
    /// Its features.
    pub features: u64,
    /// Its classes.
    pub classes: u64,
    /// What is predicted.
    pub task: Task,
    /// Names of the classes, where they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
}

impl DataRef {
    /// The data in `dataset`.
    pub fn new(dataset: &Dataset) -> Result<Self> {
        match dataset.path() {
            Some(path) => Self::of(&dataset.manifest, path),
            None => Ok(Self::in_memory(&dataset.manifest)),
        }
    }

    /// The data that `manifest` describes, which are, or will be, at `path`.
    pub fn of(manifest: &Manifest, path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).at(path, "find")?;
        Ok(DataRef { path: Some(path), ..Self::in_memory(manifest) })
    }

    fn in_memory(m: &Manifest) -> Self {
        DataRef {
            path: None,
            name: m.name.clone(),
            fingerprint: m.fingerprint.clone(),
            features: m.features,
            classes: m.classes,
            task: m.task,
            class_names: m.class_names.clone(),
        }
    }
}

/// What a run is: decided before it starts; when it is taken up again, a few settings may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// What it learns from.
    pub data: DataRef,
    /// What it does.
    pub config: Config,
}

/// The contents of `run.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct RunFile {
    format: String,
    version: u32,
    /// Version of the program that wrote it.
    halograph: String,
    data: DataRef,
    config: Config,
    summary: Option<Value>,
}

/// What every version of `run.json` has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

impl RunFile {
    pub(super) fn new(header: &Header, summary: Option<&Value>) -> Self {
        RunFile {
            format: FORMAT.into(),
            version: VERSION,
            halograph: env!("CARGO_PKG_VERSION").into(),
            data: header.data.clone(),
            config: header.config.clone(),
            summary: summary.cloned(),
        }
    }

    /// As text; `folder` names the run in errors.
    pub(super) fn to_bytes(&self, folder: &Path) -> Result<Vec<u8>> {
        let place = folder.join(RUN);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::input(place.display(), format!("cannot be written as JSON: {e}")))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads and checks the `run.json` of `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RUN);
        let bytes = files::read(&path).map_err(|error| match &error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                Error::input(folder.display(), format!("holds no run: there is no {RUN}"))
                    .help("give the folder that an earlier `halograph train` wrote with --out")
            }
            _ => error,
        })?;
        parse(&path, &bytes)
    }

    pub(super) fn into_parts(self) -> (Header, Option<Value>) {
        (Header { data: self.data, config: self.config }, self.summary)
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<RunFile> {
    let place = &path.display();
    let damaged = |e| {
        Error::input(place, format!("not the description of a run: {e}"))
            .help("restore the file from a copy, or start a new run in another folder")
    };
    // The head first: another version may well have other fields.
    let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
    if head.format != FORMAT {
        return Err(Error::input(place, format!("format {:?} where {FORMAT:?} is needed", head.format)));
    }
    if head.version != VERSION {
        let problem = format!("run version {}; this build reads version {VERSION}", head.version);
        return Err(
            Error::input(place, problem).help("continue it with the build that began it, or start a new run")
        );
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Whether `folder` is that of a run, of whatever version.
pub(super) fn is_run(folder: &Path) -> bool {
    let head = files::read(&folder.join(RUN)).ok().and_then(|b| serde_json::from_slice::<Head>(&b).ok());
    head.is_some_and(|head| head.format == FORMAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(text: &str) -> String {
        parse(Path::new("r/run.json"), text.as_bytes()).err().expect("refused").to_string()
    }

    #[test]
    fn other_versions_and_formats_are_named() {
        let other = refuse(r#"{"format": "halograph-run", "version": 7}"#);
        assert!(other.contains("run version 7; this build reads version 1"), "{other}");
        assert!(refuse(r#"{"format": "zarr", "version": 1}"#).contains("\"zarr\""));
        assert!(refuse("{").contains("r/run.json: not the description of a run"));
        assert!(refuse(r#"{"format": "halograph-run", "version": 1}"#).contains("missing field"));
    }
}
