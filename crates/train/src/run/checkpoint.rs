//! `ckpt-E/`: all that a run needs to continue after epoch E; `ckpt-E.S/`: after S more optimiser steps.
//!
//! One file of tensors a rank, and a manifest with the digests of all of them and of itself, written last. The folder
//! grows under a hidden name and is renamed when everything in it is on the device; checkpoints before it go after
//! that, by way of a hidden name too. So whenever a process dies, what has the name of a checkpoint is whole.
//!
//! A rank that does not see the folder of the run keeps its file in a folder of its own on its host, under
//! `rank-R/ckpt-E/`; the manifest, which is written after that, holds its digest like the others'.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};
use halograph_graph::io::npy::FileRecord;
use halograph_nn::state::State;
use serde::{Deserialize, Serialize};

use super::files;
use super::header::VERSION;
use crate::event::{Best, Point};

const FORMAT: &str = "halograph-checkpoint";
const MANIFEST: &str = "manifest.json";

/// The file of one rank.
fn tensors(rank: usize) -> String {
    format!("rank-{rank}.safetensors")
}

/// Where `rank` keeps what it cannot put into the folder of `run`, which it does not see.
pub fn annex(run: &Path, rank: usize) -> PathBuf {
    run.join(format!("rank-{rank}"))
}

/// The file that a rank has written for a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    record: FileRecord,
    /// Whether it is in the [`annex`] of the rank.
    elsewhere: bool,
}

impl Written {
    /// A file in the folder of the run, or elsewhere.
    pub fn new(record: FileRecord, elsewhere: bool) -> Self {
        Written { record, elsewhere }
    }
}

/// What was done of an epoch that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Optimiser steps; at least one.
    pub step: u64,
    /// Mean training loss of these steps, weighted by their rows.
    pub loss: f64,
    /// Rows in that mean.
    pub rows: u64,
    /// Seconds of these steps.
    pub seconds: f64,
}

/// The state of a run between two optimiser steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Whole epochs done.
    pub epoch: u64,
    /// What was done of the next epoch, if anything.
    pub partial: Option<PartialEpoch>,
    /// Seconds of training so far, evaluations and checkpoints not counted.
    pub seconds: f64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Everything else, under names of the trainer's choice: weights, moments of the optimiser, best weights.
    pub state: State,
}

impl Checkpoint {
    /// Returns the point at which it was taken.
    pub fn point(&self) -> Point {
        Point { epoch: self.epoch, step: self.partial.map_or(0, |partial| partial.step) }
    }
}

/// A checkpoint as it was found.
pub(super) struct Saved {
    pub(super) checkpoint: Checkpoint,
    /// Length of `metrics.jsonl` after its epoch.
    pub(super) metrics_bytes: u64,
}

/// The contents of `manifest.json`.
#[derive(Clone, Serialize, Deserialize)]
struct Manifest {
    format: String,
    version: u32,
    ranks: u32,
    epoch: u64,
    // Absent after a whole epoch, so that such manifests read and hash as ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial: Option<PartialEpoch>,
    seconds: f64,
    best: Option<Best>,
    /// Length of `metrics.jsonl` after this epoch.
    metrics_bytes: u64,
    files: BTreeMap<String, FileRecord>,
    /// Files that are on hosts of their ranks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    elsewhere: BTreeMap<String, FileRecord>,
    /// Digest of all the above.
    blake3: String,
}

impl Manifest {
    /// `written` are the files of all ranks, in their order.
    fn new(checkpoint: &Checkpoint, metrics_bytes: u64, written: Vec<Written>) -> Self {
        let ranks = written.len() as u32;
        let named = written.into_iter().enumerate().map(|(rank, written)| (tensors(rank), written));
        let (elsewhere, here): (Vec<_>, Vec<_>) = named.partition(|(_, written)| written.elsewhere);
        let records = |of: Vec<(String, Written)>| of.into_iter().map(|(name, w)| (name, w.record)).collect();
        let mut manifest = Manifest {
            format: FORMAT.into(),
            version: VERSION,
            ranks,
            epoch: checkpoint.epoch,
            partial: checkpoint.partial,
            seconds: checkpoint.seconds,
            best: checkpoint.best,
            metrics_bytes,
            files: records(here),
            elsewhere: records(elsewhere),
            blake3: String::new(),
        };
        manifest.blake3 = manifest.digest();
        manifest
    }

    /// Floats are written so that they read back exactly; so equal contents have equal digests.
    fn digest(&self) -> String {
        let contents = Manifest { blake3: String::new(), ..self.clone() };
        blake3::hash(&contents.to_bytes()).to_hex().to_string()
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("numbers and text always serialise");
        text.push(b'\n');
        text
    }

    fn point(&self) -> Point {
        Point { epoch: self.epoch, step: self.partial.map_or(0, |partial| partial.step) }
    }

    /// Refuses a manifest of another format, point or number of ranks.
    fn check(&self, at: Point, ranks: usize) -> Result<(), String> {
        if self.format != FORMAT || self.version != VERSION {
            let found = format!("{:?} version {}", self.format, self.version);
            return Err(format!("{found}; this build reads {FORMAT:?} version {VERSION}"));
        }
        if self.blake3 != self.digest() {
            return Err("contents differ from those that were written (blake3)".into());
        }
        if self.ranks as usize != ranks {
            return Err(format!("written by {} ranks; this run has {ranks}", self.ranks));
        }
        if self.point() != at {
            return Err(format!("of epoch {}, in the folder of epoch {at}", self.point()));
        }
        match (0..ranks).map(tensors).find(|name| self.record_of(name).is_none()) {
            Some(name) => Err(format!("does not list {name}")),
            None => Ok(()),
        }
    }

    /// What a file was when it was written.
    fn record_of(&self, name: &str) -> Option<&FileRecord> {
        self.files.get(name).or_else(|| self.elsewhere.get(name))
    }

    /// The manifest in `bytes`, which were read from `path`.
    fn parse(path: &Path, bytes: &[u8], at: Point, ranks: usize) -> Result<Self> {
        let refuse = |problem: String| Error::input(path.display(), problem);
        let manifest: Manifest = serde_json::from_slice(bytes)
            .map_err(|e| refuse(format!("not the manifest of a checkpoint: {e}")))?;
        manifest.check(at, ranks).map_err(refuse)?;
        Ok(manifest)
    }
}

fn record(bytes: &[u8]) -> FileRecord {
    FileRecord { bytes: bytes.len() as u64, blake3: blake3::hash(bytes).to_hex().to_string() }
}

fn folder_name(at: Point) -> String {
    format!("ckpt-{at}")
}

/// The point of the checkpoint folder `name`, if it is one.
pub(super) fn point_of(name: &str) -> Option<Point> {
    let number = name.strip_prefix("ckpt-")?;
    let (epoch, step) = number.split_once('.').unwrap_or((number, "0"));
    let at = Point { epoch: epoch.parse().ok()?, step: step.parse().ok()? };
    (folder_name(at) == name).then_some(at)
}

/// Whether `name` is that of the file of some rank.
fn is_tensors(name: &str) -> bool {
    let rank = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    rank.and_then(|rank| rank.parse().ok()).is_some_and(|rank: usize| tensors(rank) == name)
}

/// Points of which `run` has checkpoint folders, newest first.
pub(super) fn points(run: &Path) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = files::names(run)?.iter().filter_map(|name| point_of(name)).collect();
    points.sort_by(|a, b| b.cmp(a));
    Ok(points)
}

/// A file in a checkpoint of `run` that is no part of one, if there is any.
pub(super) fn foreign(run: &Path, at: Point) -> Result<Option<String>> {
    let folder = folder_name(at);
    let names = files::names(&run.join(&folder))?;
    let other = names.iter().find(|name| *name != MANIFEST && !is_tensors(name));
    Ok(other.map(|name| format!("{folder}/{name}")))
}

/// Makes room for a checkpoint of `run` that its ranks then write; one at the same point goes, all others are kept.
pub(super) fn begin(run: &Path, at: Point) -> Result<()> {
    discard(run, at)?;
    let hidden = files::hidden(run, &folder_name(at));
    files::remove(&hidden);
    fs::create_dir(&hidden).at(&hidden, "create")
}

/// Writes what one rank needs to go on into a checkpoint that was begun.
pub(super) fn write_rank(run: &Path, at: Point, rank: usize, state: &State) -> Result<FileRecord> {
    let bytes = state.to_bytes();
    let hidden = files::hidden(run, &folder_name(at));
    files::write_synced(&hidden.join(tensors(rank)), &bytes)?;
    Ok(record(&bytes))
}

/// As [`begin`] and [`write_rank`], whole, for a rank that does not see the folder of `run`.
pub(super) fn write_annex(run: &Path, at: Point, rank: usize, state: &State) -> Result<FileRecord> {
    let home = annex(run, rank);
    files::make_folder(&home)?;
    let written = begin(&home, at).and_then(|()| write_rank(&home, at, rank, state));
    let placed = written.and_then(|record| place(&home, at).map(|()| record));
    placed.inspect_err(|_| abandon(&home, at))
}

/// Makes a checkpoint whole: `written` are the files of all ranks, in their order.
pub(super) fn commit(
    run: &Path,
    checkpoint: &Checkpoint,
    metrics_bytes: u64,
    written: Vec<Written>,
) -> Result<()> {
    let hidden = files::hidden(run, &folder_name(checkpoint.point()));
    let manifest = Manifest::new(checkpoint, metrics_bytes, written);
    files::write_synced(&hidden.join(MANIFEST), &manifest.to_bytes())?;
    place(run, checkpoint.point())
}

/// Gives a checkpoint its name.
fn place(run: &Path, at: Point) -> Result<()> {
    let name = folder_name(at);
    let (hidden, target) = (files::hidden(run, &name), run.join(&name));
    files::sync_folder(&hidden)?;
    fs::rename(&hidden, &target).at(&target, "create")?;
    files::sync_folder(run)
}

/// Removes a checkpoint that was begun and cannot be made whole: the space may be needed.
pub(super) fn abandon(run: &Path, at: Point) {
    files::remove(&files::hidden(run, &folder_name(at)));
}

/// Writes a checkpoint of one rank.
pub(super) fn write(run: &Path, checkpoint: &Checkpoint, metrics_bytes: u64) -> Result<()> {
    let at = checkpoint.point();
    let done = begin(run, at)
        .and_then(|()| write_rank(run, at, 0, &checkpoint.state))
        .and_then(|record| commit(run, checkpoint, metrics_bytes, vec![Written::new(record, false)]));
    done.inspect_err(|_| abandon(run, at))
}

/// Removes all checkpoints but the one at this point.
pub(super) fn prune(run: &Path, at: Point) -> Result<()> {
    for other in points(run)?.into_iter().filter(|&other| other != at) {
        discard(run, other)?;
    }
    files::clean(run)
}

/// Takes away the name of a checkpoint, if there is one, and then the checkpoint. One into which somebody put a file
/// stays.
pub(super) fn discard(run: &Path, at: Point) -> Result<()> {
    let name = folder_name(at);
    let (target, hidden) = (run.join(&name), files::hidden(run, &name));
    if target.exists() && foreign(run, at)?.is_none() {
        files::remove(&hidden);
        fs::rename(&target, &hidden).at(&target, "remove")?;
        files::remove(&hidden);
    }
    Ok(())
}

/// Reads a checkpoint of so many ranks, with the state of rank 0; anything missing or changed in a file that is here is
/// an error.
pub(super) fn read(run: &Path, at: Point, ranks: usize) -> Result<Saved> {
    let folder = run.join(folder_name(at));
    let path = folder.join(MANIFEST);
    let manifest = Manifest::parse(&path, &files::read(&path)?, at, ranks)?;
    let mut state = State::default();
    for (name, record) in &manifest.files {
        let path = folder.join(name);
        let bytes = read_as(&path, record)?;
        if *name == tensors(0) {
            state = State::from_bytes(&path.display().to_string(), &bytes)?;
        }
    }
    let Manifest { epoch, partial, seconds, best, metrics_bytes, .. } = manifest;
    Ok(Saved { checkpoint: Checkpoint { epoch, partial, seconds, best, state }, metrics_bytes })
}

/// The manifest of a checkpoint, for ranks that do not see it.
pub(super) fn read_manifest(run: &Path, at: Point) -> Result<Vec<u8>> {
    files::read(&run.join(folder_name(at)).join(MANIFEST))
}

/// What `rank` of `ranks` needs of a checkpoint with this manifest, from the folder of `run` or from its own.
pub(super) fn read_rank(
    run: &Path,
    at: Point,
    rank: usize,
    ranks: usize,
    manifest: &[u8],
) -> Result<Checkpoint> {
    let folder = folder_name(at);
    let manifest = Manifest::parse(&run.join(&folder).join(MANIFEST), manifest, at, ranks)?;
    let name = tensors(rank);
    let home = if manifest.elsewhere.contains_key(&name) { annex(run, rank) } else { run.to_path_buf() };
    let path = home.join(folder).join(&name);
    if !path.exists() {
        return Err(Error::input(path.display(), format!("what rank {rank} saved is not on this host"))
            .help("start every rank where it was, or copy its folder to where it is now"));
    }
    let record = manifest.record_of(&name).expect("a manifest that was parsed lists every rank");
    let state = State::from_bytes(&path.display().to_string(), &read_as(&path, record)?)?;
    let Manifest { epoch, partial, seconds, best, .. } = manifest;
    Ok(Checkpoint { epoch, partial, seconds, best, state })
}

/// The bytes of a file that must be as they were.
fn read_as(path: &Path, expected: &FileRecord) -> Result<Vec<u8>> {
    let bytes = files::read(path)?;
    if record(&bytes) == *expected {
        return Ok(bytes);
    }
    let problem = format!("contents differ from those {MANIFEST} records (length or blake3)");
    Err(Error::input(path.display(), problem))
}
