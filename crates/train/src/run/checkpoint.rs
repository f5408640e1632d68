//! `ckpt-E/`: all that a run needs to go on after epoch E.
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
use crate::event::Best;

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

/// Where a run stands after an epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Epochs done.
    pub epoch: u64,
    /// Seconds of training so far, evaluations and checkpoints not counted.
    pub seconds: f64,
    /// The best evaluation so far.
    pub best: Option<Best>,
    /// Everything else, under names of the trainer's choice: weights, moments of the optimiser, best weights.
    pub state: State,
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

    /// Refuses what was not written here, by this layout, for this epoch and so many ranks.
    fn check(&self, epoch: u64, ranks: usize) -> Result<(), String> {
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
        if self.epoch != epoch {
            return Err(format!("of epoch {}, in the folder of epoch {epoch}", self.epoch));
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
    fn parse(path: &Path, bytes: &[u8], epoch: u64, ranks: usize) -> Result<Self> {
        let refuse = |problem: String| Error::input(path.display(), problem);
        let manifest: Manifest = serde_json::from_slice(bytes)
            .map_err(|e| refuse(format!("not the manifest of a checkpoint: {e}")))?;
        manifest.check(epoch, ranks).map_err(refuse)?;
        Ok(manifest)
    }
}

fn record(bytes: &[u8]) -> FileRecord {
    FileRecord { bytes: bytes.len() as u64, blake3: blake3::hash(bytes).to_hex().to_string() }
}

fn folder_name(epoch: u64) -> String {
    format!("ckpt-{epoch}")
}

/// The epoch of the checkpoint folder `name`, if it is one.
pub(super) fn epoch_of(name: &str) -> Option<u64> {
    let epoch = name.strip_prefix("ckpt-")?.parse().ok()?;
    (folder_name(epoch) == name).then_some(epoch)
}

/// Whether `name` is that of the file of some rank.
fn is_tensors(name: &str) -> bool {
    let rank = name.strip_prefix("rank-").and_then(|rest| rest.strip_suffix(".safetensors"));
    rank.and_then(|rank| rank.parse().ok()).is_some_and(|rank: usize| tensors(rank) == name)
}

/// Epochs of which `run` has checkpoint folders, newest first.
pub(super) fn epochs(run: &Path) -> Result<Vec<u64>> {
    let mut epochs: Vec<u64> = files::names(run)?.iter().filter_map(|name| epoch_of(name)).collect();
    epochs.sort_by(|a, b| b.cmp(a));
    Ok(epochs)
}

/// A file in a checkpoint of `run` that is no part of one, if there is any.
pub(super) fn foreign(run: &Path, epoch: u64) -> Result<Option<String>> {
    let folder = folder_name(epoch);
    let names = files::names(&run.join(&folder))?;
    let other = names.iter().find(|name| *name != MANIFEST && !is_tensors(name));
    Ok(other.map(|name| format!("{folder}/{name}")))
}

/// Makes room for a checkpoint of `run` that its ranks then write; one of the same epoch goes, all others are kept.
pub(super) fn begin(run: &Path, epoch: u64) -> Result<()> {
    discard(run, epoch)?;
    let hidden = files::hidden(run, &folder_name(epoch));
    files::remove(&hidden);
    fs::create_dir(&hidden).at(&hidden, "create")
}

/// Writes what one rank needs to go on into a checkpoint that was begun.
pub(super) fn write_rank(run: &Path, epoch: u64, rank: usize, state: &State) -> Result<FileRecord> {
    let bytes = state.to_bytes();
    let hidden = files::hidden(run, &folder_name(epoch));
    files::write_synced(&hidden.join(tensors(rank)), &bytes)?;
    Ok(record(&bytes))
}

/// As [`begin`] and [`write_rank`], whole, for a rank that does not see the folder of `run`.
pub(super) fn write_annex(run: &Path, epoch: u64, rank: usize, state: &State) -> Result<FileRecord> {
    let home = annex(run, rank);
    files::make_folder(&home)?;
    let written = begin(&home, epoch).and_then(|()| write_rank(&home, epoch, rank, state));
    let placed = written.and_then(|record| place(&home, epoch).map(|()| record));
    placed.inspect_err(|_| abandon(&home, epoch))
}

/// Makes a checkpoint whole: `written` are the files of all ranks, in their order.
pub(super) fn commit(
    run: &Path,
    checkpoint: &Checkpoint,
    metrics_bytes: u64,
    written: Vec<Written>,
) -> Result<()> {
    let hidden = files::hidden(run, &folder_name(checkpoint.epoch));
    let manifest = Manifest::new(checkpoint, metrics_bytes, written);
    files::write_synced(&hidden.join(MANIFEST), &manifest.to_bytes())?;
    place(run, checkpoint.epoch)
}

/// Gives a checkpoint its name.
fn place(run: &Path, epoch: u64) -> Result<()> {
    let name = folder_name(epoch);
    let (hidden, target) = (files::hidden(run, &name), run.join(&name));
    files::sync_folder(&hidden)?;
    fs::rename(&hidden, &target).at(&target, "create")?;
    files::sync_folder(run)
}

/// Removes a checkpoint that was begun and cannot be made whole: the space may be needed.
pub(super) fn abandon(run: &Path, epoch: u64) {
    files::remove(&files::hidden(run, &folder_name(epoch)));
}

/// Writes a checkpoint of one rank.
pub(super) fn write(run: &Path, checkpoint: &Checkpoint, metrics_bytes: u64) -> Result<()> {
    let epoch = checkpoint.epoch;
    let done = begin(run, epoch)
        .and_then(|()| write_rank(run, epoch, 0, &checkpoint.state))
        .and_then(|record| commit(run, checkpoint, metrics_bytes, vec![Written::new(record, false)]));
    done.inspect_err(|_| abandon(run, epoch))
}

/// Removes all checkpoints but that of `epoch`.
pub(super) fn prune(run: &Path, epoch: u64) -> Result<()> {
    for other in epochs(run)?.into_iter().filter(|&other| other != epoch) {
        discard(run, other)?;
    }
    files::clean(run)
}

/// Takes away the name of a checkpoint, if there is one, and then the checkpoint. One into which somebody put a file
/// stays.
pub(super) fn discard(run: &Path, epoch: u64) -> Result<()> {
    let name = folder_name(epoch);
    let (target, hidden) = (run.join(&name), files::hidden(run, &name));
    if target.exists() && foreign(run, epoch)?.is_none() {
        files::remove(&hidden);
        fs::rename(&target, &hidden).at(&target, "remove")?;
        files::remove(&hidden);
    }
    Ok(())
}

/// Reads a checkpoint of so many ranks, with the state of rank 0; anything missing or changed in a file that is here is
/// an error.
pub(super) fn read(run: &Path, epoch: u64, ranks: usize) -> Result<Saved> {
    let folder = run.join(folder_name(epoch));
    let path = folder.join(MANIFEST);
    let manifest = Manifest::parse(&path, &files::read(&path)?, epoch, ranks)?;
    let mut state = State::default();
    for (name, record) in &manifest.files {
        let path = folder.join(name);
        let bytes = read_as(&path, record)?;
        if *name == tensors(0) {
            state = State::from_bytes(&path.display().to_string(), &bytes)?;
        }
    }
    let Manifest { epoch, seconds, best, metrics_bytes, .. } = manifest;
    Ok(Saved { checkpoint: Checkpoint { epoch, seconds, best, state }, metrics_bytes })
}

/// The manifest of a checkpoint, for ranks that do not see it.
pub(super) fn read_manifest(run: &Path, epoch: u64) -> Result<Vec<u8>> {
    files::read(&run.join(folder_name(epoch)).join(MANIFEST))
}

/// What `rank` of `ranks` needs of a checkpoint with this manifest, from the folder of `run` or from its own.
pub(super) fn read_rank(
    run: &Path,
    epoch: u64,
    rank: usize,
    ranks: usize,
    manifest: &[u8],
) -> Result<Checkpoint> {
    let folder = folder_name(epoch);
    let manifest = Manifest::parse(&run.join(&folder).join(MANIFEST), manifest, epoch, ranks)?;
    let name = tensors(rank);
    let home = if manifest.elsewhere.contains_key(&name) { annex(run, rank) } else { run.to_path_buf() };
    let path = home.join(folder).join(&name);
    if !path.exists() {
        return Err(Error::input(path.display(), format!("what rank {rank} saved is not on this host"))
            .help("start every rank where it was, or copy its folder to where it is now"));
    }
    let record = manifest.record_of(&name).expect("a manifest that was parsed lists every rank");
    let state = State::from_bytes(&path.display().to_string(), &read_as(&path, record)?)?;
    Ok(Checkpoint { epoch, seconds: manifest.seconds, best: manifest.best, state })
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
