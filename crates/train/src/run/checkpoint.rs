//! Checkpoints: `ckpt-E/` after epoch E, `ckpt-E.S/` after S more optimiser steps.
//!
//! A checkpoint has one file of tensors per rank and a manifest, written last, with the digests of all files and of
//! itself. The folder is written under a temporary name and renamed when everything in it is synced. Older checkpoints
//! are removed after that, and renamed before they are removed. So a folder with the name of a checkpoint is complete
//! even if the process is killed at any time.
//!
//! A rank that does not share the run directory writes its file on its own host, in `rank-R/ckpt-E/`
//! ([`rank_directory`]); the manifest has its digest too.

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

/// Returns the file name of a rank.
fn rank_file(rank: usize) -> String {
    format!("rank-{rank}.safetensors")
}

/// Returns the folder for files of `rank` on a host that does not share the run directory of rank 0.
pub fn rank_directory(run: &Path, rank: usize) -> PathBuf {
    run.join(format!("rank-{rank}"))
}

/// The file of a checkpoint that a rank has written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RankFile {
    record: FileRecord,
    /// Whether it is in the [`rank_directory`].
    is_remote: bool,
}

impl RankFile {
    /// Describes a file in the run directory or, if `is_remote`, in the [`rank_directory`].
    pub fn new(record: FileRecord, is_remote: bool) -> Self {
        RankFile { record, is_remote }
    }
}

/// The completed steps of an unfinished epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PartialEpoch {
    /// Optimiser steps; at least one.
    pub step: u64,
    /// Mean training loss of these steps, weighted by their rows.
    pub loss: f64,
    /// Rows in that mean.
    pub rows: u64,
    /// Duration of these steps in seconds.
    pub seconds: f64,
}

/// The state of a run between two optimiser steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Completed epochs.
    pub epoch: u64,
    /// Completed steps of the next epoch, if there are any.
    pub partial: Option<PartialEpoch>,
    /// Seconds of training so far, without evaluations and checkpoints.
    pub seconds: f64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// All tensors: weights, optimiser moments, best weights, halo rows of the strategy. The trainer chooses the names.
    pub state: State,
}

impl Checkpoint {
    /// Returns the point at which it was taken.
    pub fn point(&self) -> Point {
        Point { epoch: self.epoch, step: self.partial.map_or(0, |partial| partial.step) }
    }
}

/// A checkpoint that was read.
#[derive(Debug)]
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
    // Absent after a completed epoch: the digests of such manifests must not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial: Option<PartialEpoch>,
    seconds: f64,
    best: Option<Best>,
    /// Length of `metrics.jsonl` after this epoch.
    metrics_bytes: u64,
    /// Layout of the parts that the ranks own (`PartitionInfo::layout`). Absent for one process, and in older checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    files: BTreeMap<String, FileRecord>,
    /// Files in rank directories on other hosts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    elsewhere: BTreeMap<String, FileRecord>,
    /// Digest of all fields above.
    blake3: String,
}

impl Manifest {
    /// Describes a checkpoint; `files` are in rank order.
    fn new(
        checkpoint: &Checkpoint,
        metrics_bytes: u64,
        files: Vec<RankFile>,
        partition: Option<&str>,
    ) -> Self {
        let ranks = files.len() as u32;
        let named = files.into_iter().enumerate().map(|(rank, file)| (rank_file(rank), file));
        let (remote, local): (Vec<_>, Vec<_>) = named.partition(|(_, file)| file.is_remote);
        let records =
            |of: Vec<(String, RankFile)>| of.into_iter().map(|(name, file)| (name, file.record)).collect();
        let mut manifest = Manifest {
            format: FORMAT.into(),
            version: VERSION,
            ranks,
            epoch: checkpoint.epoch,
            partial: checkpoint.partial,
            seconds: checkpoint.seconds,
            best: checkpoint.best,
            metrics_bytes,
            partition: partition.map(String::from),
            files: records(local),
            elsewhere: records(remote),
            blake3: String::new(),
        };
        manifest.blake3 = manifest.digest();
        manifest
    }

    /// Returns the digest of all other fields. Floats are serialised exactly, so equal contents have equal digests.
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
            return Err("contents differ from what was written (blake3)".into());
        }
        if self.ranks as usize != ranks {
            return Err(format!("written by {} ranks; this run has {ranks}", self.ranks));
        }
        if self.point() != at {
            return Err(format!("of epoch {}, in the folder of epoch {at}", self.point()));
        }
        match (0..ranks).map(rank_file).find(|name| self.record_of(name).is_none()) {
            Some(name) => Err(format!("does not list {name}")),
            None => Ok(()),
        }
    }

    /// Returns the recorded length and digest of a file.
    fn record_of(&self, name: &str) -> Option<&FileRecord> {
        self.files.get(name).or_else(|| self.elsewhere.get(name))
    }

    /// Parses and checks a manifest that was read from `path`.
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

/// Parses the name of a checkpoint folder.
pub(super) fn point_of(name: &str) -> Option<Point> {
    let number = name.strip_prefix("ckpt-")?;
    let (epoch, step) = number.split_once('.').unwrap_or((number, "0"));
    let at = Point { epoch: epoch.parse().ok()?, step: step.parse().ok()? };
    (folder_name(at) == name).then_some(at)
}

/// Returns whether `name` is the file name of a rank.
fn is_rank_file(name: &str) -> bool {
    let rank = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    rank.and_then(|rank| rank.parse().ok()).is_some_and(|rank: usize| rank_file(rank) == name)
}

/// Returns the points of all checkpoints of `run`, newest first.
pub(super) fn points(run: &Path) -> Result<Vec<Point>> {
    let mut points: Vec<Point> = files::names(run)?.iter().filter_map(|name| point_of(name)).collect();
    points.sort_by(|a, b| b.cmp(a));
    Ok(points)
}

/// Returns a file in a checkpoint folder of `run` that does not belong there, if there is one.
pub(super) fn unexpected_file(run: &Path, at: Point) -> Result<Option<String>> {
    let folder = folder_name(at);
    let names = files::names(&run.join(&folder))?;
    let other = names.iter().find(|name| *name != MANIFEST && !is_rank_file(name));
    Ok(other.map(|name| format!("{folder}/{name}")))
}

/// Creates the temporary folder of a checkpoint. Removes a checkpoint at the same point, and no other.
pub(super) fn begin(run: &Path, at: Point) -> Result<()> {
    remove(run, at)?;
    let hidden = files::hidden(run, &folder_name(at));
    files::remove(&hidden);
    fs::create_dir(&hidden).at(&hidden, "create")
}

/// Writes the state of a rank into the temporary folder of a checkpoint.
pub(super) fn write_rank(run: &Path, at: Point, rank: usize, state: &State) -> Result<FileRecord> {
    let bytes = state.to_bytes();
    let hidden = files::hidden(run, &folder_name(at));
    files::write_synced(&hidden.join(rank_file(rank)), &bytes)?;
    Ok(record(&bytes))
}

/// Writes and publishes the state of a rank in its [`rank_directory`].
pub(super) fn write_in_rank_directory(
    run: &Path,
    at: Point,
    rank: usize,
    state: &State,
) -> Result<FileRecord> {
    let home = rank_directory(run, rank);
    files::create_folder(&home)?;
    let written = begin(&home, at).and_then(|()| write_rank(&home, at, rank, state));
    let published = written.and_then(|record| publish(&home, at).map(|()| record));
    published.inspect_err(|_| abandon(&home, at))
}

/// Writes the manifest and publishes the checkpoint; `files` are in rank order.
pub(super) fn commit(
    run: &Path,
    checkpoint: &Checkpoint,
    metrics_bytes: u64,
    files: Vec<RankFile>,
    partition: Option<&str>,
) -> Result<()> {
    let hidden = files::hidden(run, &folder_name(checkpoint.point()));
    let manifest = Manifest::new(checkpoint, metrics_bytes, files, partition);
    files::write_synced(&hidden.join(MANIFEST), &manifest.to_bytes())?;
    publish(run, checkpoint.point())
}

/// Syncs the temporary folder of a checkpoint and renames it.
fn publish(run: &Path, at: Point) -> Result<()> {
    let name = folder_name(at);
    let (hidden, target) = (files::hidden(run, &name), run.join(&name));
    files::sync_folder(&hidden)?;
    fs::rename(&hidden, &target).at(&target, "create")?;
    files::sync_folder(run)
}

/// Removes the temporary folder of a checkpoint that cannot be completed. Errors are ignored.
pub(super) fn abandon(run: &Path, at: Point) {
    files::remove(&files::hidden(run, &folder_name(at)));
}

/// Writes a checkpoint of one rank.
pub(super) fn write(run: &Path, checkpoint: &Checkpoint, metrics_bytes: u64) -> Result<()> {
    let at = checkpoint.point();
    let done = begin(run, at)
        .and_then(|()| write_rank(run, at, 0, &checkpoint.state))
        .and_then(|record| commit(run, checkpoint, metrics_bytes, vec![RankFile::new(record, false)], None));
    done.inspect_err(|_| abandon(run, at))
}

/// Removes all checkpoints except the one at this point, and temporary files.
pub(super) fn prune(run: &Path, at: Point) -> Result<()> {
    for other in points(run)?.into_iter().filter(|&other| other != at) {
        remove(run, other)?;
    }
    files::remove_leftovers(run)
}

/// Removes a checkpoint, if it exists; renames it first, so that no incomplete one has its name. Keeps a folder that
/// contains other files.
pub(super) fn remove(run: &Path, at: Point) -> Result<()> {
    let name = folder_name(at);
    let (target, hidden) = (run.join(&name), files::hidden(run, &name));
    if target.exists() && unexpected_file(run, at)?.is_none() {
        files::remove(&hidden);
        fs::rename(&target, &hidden).at(&target, "remove")?;
        files::remove(&hidden);
    }
    Ok(())
}

/// Reads a checkpoint of `ranks` ranks with the state of rank 0. Fails if a file in the run directory is missing or has
/// changed.
pub(super) fn read(run: &Path, at: Point, ranks: usize) -> Result<Saved> {
    let folder = run.join(folder_name(at));
    let path = folder.join(MANIFEST);
    let manifest = Manifest::parse(&path, &files::read(&path)?, at, ranks)?;
    let mut state = State::default();
    for (name, record) in &manifest.files {
        let path = folder.join(name);
        let bytes = read_verified(&path, record)?;
        if *name == rank_file(0) {
            state = State::from_bytes(&path.display().to_string(), &bytes)?;
        }
    }
    let Manifest { epoch, partial, seconds, best, metrics_bytes, .. } = manifest;
    Ok(Saved { checkpoint: Checkpoint { epoch, partial, seconds, best, state }, metrics_bytes })
}

/// Reads the manifest of a checkpoint.
pub(super) fn read_manifest(run: &Path, at: Point) -> Result<Vec<u8>> {
    files::read(&run.join(folder_name(at)).join(MANIFEST))
}

/// Refuses a partition of another layout than the checkpoint was written with. Checkpoints that record none pass.
pub(super) fn check_partition(run: &Path, at: Point, layout: &str) -> Result<()> {
    let path = run.join(folder_name(at)).join(MANIFEST);
    let manifest: Manifest = serde_json::from_slice(&files::read(&path)?)
        .map_err(|e| Error::input(path.display(), format!("not the manifest of a checkpoint: {e}")))?;
    match manifest.partition {
        Some(recorded) if recorded != layout => {
            let problem = format!("written on another partition of the graph ({recorded}, not {layout})");
            Err(Error::input(path.display(), problem).help(
                "give the shards, or the --partition, that the run was started with, or start a new run",
            ))
        }
        _ => Ok(()),
    }
}

/// Reads the state of `rank` of `ranks` from the checkpoint with this manifest, in the run directory or in the
/// [`rank_directory`].
pub(super) fn read_rank(
    run: &Path,
    at: Point,
    rank: usize,
    ranks: usize,
    manifest: &[u8],
) -> Result<Checkpoint> {
    let folder = folder_name(at);
    let manifest = Manifest::parse(&run.join(&folder).join(MANIFEST), manifest, at, ranks)?;
    let name = rank_file(rank);
    let home =
        if manifest.elsewhere.contains_key(&name) { rank_directory(run, rank) } else { run.to_path_buf() };
    let path = home.join(folder).join(&name);
    if !path.exists() {
        return Err(Error::input(path.display(), format!("the checkpoint file of rank {rank} is missing"))
            .help("start every rank on the host it ran on, or copy its folder to its new host"));
    }
    let record = manifest.record_of(&name).expect("a parsed manifest lists every rank");
    let state = State::from_bytes(&path.display().to_string(), &read_verified(&path, record)?)?;
    let Manifest { epoch, partial, seconds, best, .. } = manifest;
    Ok(Checkpoint { epoch, partial, seconds, best, state })
}

/// Reads a file and verifies its length and digest.
fn read_verified(path: &Path, expected: &FileRecord) -> Result<Vec<u8>> {
    let bytes = files::read(path)?;
    if record(&bytes) == *expected {
        return Ok(bytes);
    }
    let problem = format!("contents differ from those {MANIFEST} records (length or blake3)");
    Err(Error::input(path.display(), problem))
}
