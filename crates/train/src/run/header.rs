//! `run.json`: data, configuration and, after the end, the summary of a run.

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use halograph_graph::Dataset;
use halograph_graph::dataset::{Manifest, Task};
use halograph_graph::error::{Error, IoContext, Result};
use serde::{Deserialize, Serialize};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use serde_json::{Serializer, Value};

use super::files::{self, RUN};
use crate::Config;

const FORMAT: &str = "halograph-run";
/// Layout version of the directory that this build writes and reads.
pub(super) const VERSION: u32 = 1;

/// The dataset of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataRef {
    /// Absolute path of its directory; `None` for a dataset in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Its name.
    pub name: String,
    /// Fingerprint of its contents.
    pub fingerprint: String,
    /// Number of features.
    pub features: u64,
    /// Number of classes.
    pub classes: u64,
    /// Single-label or multi-label.
    pub task: Task,
    /// Names of the classes, if they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// Names of the feature columns, if they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feature_names: Vec<String>,
    /// Whether edges are directed; `None` in runs of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directed: Option<bool>,
    /// Whether edges have weights; `None` in runs of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge_weights: Option<bool>,
}

impl DataRef {
    /// Describes `dataset` where it is now.
    pub fn new(dataset: &Dataset) -> Result<Self> {
        DataRef::of(&dataset.manifest, dataset.path())
    }

    /// Describes the data of `manifest`, whose directory is, or will be, `path`.
    pub fn of(manifest: &Manifest, path: Option<&Path>) -> Result<Self> {
        Ok(DataRef {
            path: path.map(|path| std::path::absolute(path).at(path, "find")).transpose()?,
            name: manifest.name.clone(),
            fingerprint: manifest.fingerprint.clone(),
            features: manifest.features,
            classes: manifest.classes,
            task: manifest.task,
            class_names: manifest.class_names.clone(),
            feature_names: manifest.feature_names.clone(),
            directed: Some(manifest.directed),
            edge_weights: Some(manifest.has_edge_weights()),
        })
    }
}

/// Data and configuration of a run. They are fixed when it starts; a resumed run may change a few settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The dataset.
    pub data: DataRef,
    /// The configuration.
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

/// Writes a line for each key, and lists in one line: those of the summary are long.
#[derive(Default)]
struct RunFormatter {
    objects: PrettyFormatter<'static>,
    /// Depth of lists.
    lists: usize,
}

impl RunFormatter {
    /// Calls `pretty` outside of lists, and `compact` in them.
    fn write<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        pretty: impl FnOnce(&mut PrettyFormatter<'static>, &mut W) -> io::Result<()>,
        compact: impl FnOnce(&mut CompactFormatter, &mut W) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.lists == 0 {
            pretty(&mut self.objects, writer)
        } else {
            compact(&mut CompactFormatter, writer)
        }
    }
}

impl Formatter for RunFormatter {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.lists += 1;
        CompactFormatter.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.lists -= 1;
        CompactFormatter.end_array(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.write(writer, |p, w| p.begin_object(w), |c, w| c.begin_object(w))
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.write(writer, |p, w| p.end_object(w), |c, w| c.end_object(w))
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.write(writer, |p, w| p.begin_object_key(w, first), |c, w| c.begin_object_key(w, first))
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.write(writer, |p, w| p.begin_object_value(w), |c, w| c.begin_object_value(w))
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.write(writer, |p, w| p.end_object_value(w), |c, w| c.end_object_value(w))
    }
}

/// Fields of `run.json` that every format version has.
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

    /// Serialises the contents; `folder` names the run in errors.
    pub(super) fn to_bytes(&self, folder: &Path) -> Result<Vec<u8>> {
        let place = folder.join(RUN);
        let mut text = Vec::new();
        let mut writer = Serializer::with_formatter(&mut text, RunFormatter::default());
        self.serialize(&mut writer)
            .map_err(|e| Error::input(place.display(), format!("cannot be written as JSON: {e}")))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads and checks the `run.json` of `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RUN);
        let bytes = files::read(&path).map_err(|error| match &error {
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
                Error::input(folder.display(), format!("contains no run: there is no {RUN}"))
                    .help("give the run directory that `halograph train` wrote")
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
        Error::input(place, format!("not a valid description of a run: {e}"))
            .help("restore the file from a backup, or start a new run in another folder")
    };
    // The head first: another version may have other fields.
    let head: Head = serde_json::from_slice(bytes).map_err(damaged)?;
    if head.format != FORMAT {
        return Err(Error::input(place, format!("format is {:?}, must be {FORMAT:?}", head.format)));
    }
    if head.version != VERSION {
        let problem = format!("run version {}; this build reads version {VERSION}", head.version);
        return Err(Error::input(place, problem)
            .help("resume it with the version that started it, or start a new run"));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

/// Returns whether `folder` is a run directory, of any version.
pub fn is_run(folder: &Path) -> bool {
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
    fn lists_are_in_one_line() {
        let value =
            serde_json::json!({"a": {"b": [1, 2.5, [3]], "c": {}}, "d": [], "e": [{"f": 1, "g": "x"}, {}]});
        let mut text = Vec::new();
        value.serialize(&mut Serializer::with_formatter(&mut text, RunFormatter::default())).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines = [
            "{",
            "  \"a\": {",
            "    \"b\": [1,2.5,[3]],",
            "    \"c\": {}",
            "  },",
            "  \"d\": [],",
            "  \"e\": [{\"f\":1,\"g\":\"x\"},{}]",
            "}",
        ];
        assert_eq!(text, lines.join("\n"));
    }

    #[test]
    fn other_versions_and_formats_are_named() {
        let other = refuse(r#"{"format": "halograph-run", "version": 7}"#);
        assert!(other.contains("run version 7; this build reads version 1"), "{other}");
        assert!(refuse(r#"{"format": "zarr", "version": 1}"#).contains("\"zarr\""));
        assert!(refuse("{").contains("r/run.json: not a valid description of a run"));
        assert!(refuse(r#"{"format": "halograph-run", "version": 1}"#).contains("missing field"));
    }
}
