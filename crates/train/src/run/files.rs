//! The names of a run's files, and how one appears: whole or not at all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};

use super::checkpoint;

/// What the run is and, in the end, how it went.
pub(super) const RUN: &str = "run.json";
/// One line an epoch.
pub(super) const METRICS: &str = "metrics.jsonl";
/// The weights of the best evaluation.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// What was done to features, if that has numbers.
pub(super) const SCALING: &str = "scaling.safetensors";
/// Held by the process that writes the run.
pub(super) const LOCK: &str = ".lock";
/// What happened when, if that was asked for.
pub(super) const TRACE: &str = "trace.json";
pub(super) const REPORT: &str = "report.html";
const FILES: [&str; 7] = [RUN, METRICS, WEIGHTS, SCALING, LOCK, TRACE, REPORT];
/// Folders that a program may put beside them: the graph of a run without data, and event files for TensorBoard.
pub(super) const FOLDERS: [&str; 2] = [super::DEMO_DATA, super::TENSORBOARD];

/// Names in `folder`, sorted; none if it is not there.
pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<std::io::Result<Vec<_>>>).at(folder, "open")?,
    };
    let lossy = |name: &OsStr| name.to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.iter().map(|entry| lossy(&entry.file_name())).collect();
    names.sort();
    Ok(names)
}

/// Whether a run writes a file or folder of this name.
pub(super) fn is_own(name: &str) -> bool {
    FILES.contains(&name)
        || FOLDERS.contains(&name)
        || checkpoint::point_of(name).is_some()
        || is_leftover(name)
}

/// A file in one of the [`FOLDERS`] of `run` that is no part of it, if there is any.
pub(super) fn foreign(run: &Path, folder: &str) -> Result<Option<String>> {
    let own = |name: &str| match folder {
        super::DEMO_DATA => halograph_graph::dataset::is_part(name),
        _ => name.starts_with("events.out.tfevents."),
    };
    let other = names(&run.join(folder))?.into_iter().find(|name| !own(name));
    Ok(other.map(|name| format!("{folder}/{name}")))
}

/// Whether this is the hidden name of something unfinished or half removed.
pub(super) fn is_leftover(name: &str) -> bool {
    let target = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    target.is_some_and(|target| FILES.contains(&target) || checkpoint::point_of(target).is_some())
}

/// The hidden place beside `name` where it grows, or from where it is removed.
pub(super) fn hidden(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.partial"))
}

/// Makes `folder` and those above it that are missing, durably; gives those that were made, deepest first.
pub(super) fn make_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let missing = folder.ancestors().take_while(|p| *p != Path::new("") && !p.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
    fs::create_dir_all(folder).at(folder, "create")?;
    for parent in missing.iter().filter_map(|made| made.parent()) {
        sync_folder(if parent == Path::new("") { Path::new(".") } else { parent })?;
    }
    Ok(missing)
}

/// Takes back a run that could not begin, if its folder was made for it.
pub(super) fn unmake(folder: &Path, made: &[PathBuf]) {
    if !made.is_empty() {
        strip(folder);
    }
    remove_empty(made);
}

/// Removes all that a run has in `folder`, but checkpoints.
pub(super) fn strip(folder: &Path) {
    FILES.iter().chain(&FOLDERS).for_each(|name| remove(&folder.join(name)));
}

/// Removes folders that were made for nothing; one that somebody else uses by now is not empty and stays.
pub(super) fn remove_empty(folders: &[PathBuf]) {
    folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// Removes what killed processes left half done. What cannot be removed is in nobody's way and stays.
pub(super) fn clean(folder: &Path) -> Result<()> {
    for name in names(folder)?.iter().filter(|name| is_leftover(name)) {
        remove(&folder.join(name));
    }
    Ok(())
}

/// Removes a file or a folder, if it is there and this can be done.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// Removes a folder and all in it, if it is there; fails if it stays.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        done => done.at(path, "remove"),
    }
}

/// Removes a file, if it is there; fails if it stays.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        done => done.at(path, "remove"),
    }
}

/// The bytes of a regular file; anything else (a folder, a pipe that nobody writes to) is refused, not waited for.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    if fs::metadata(path).at(path, "open")?.is_file() {
        return fs::read(path).at(path, "read");
    }
    Err(Error::input(path.display(), "is not a regular file"))
}

/// Writes a new file through to the device.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).at(path, "create")?;
    file.write_all(bytes).and_then(|()| file.sync_all()).at(path, "write")
}

/// Makes the names in `folder` durable.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).at(folder, "sync")
}

/// Writes the file `name` of `folder`, whole or not at all.
pub(super) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    Staged::write(folder, name, bytes)?.place()
}

/// A file that is written and synced but does not have its name yet; removed unless placed.
pub(super) struct Staged {
    folder: PathBuf,
    name: String,
}

impl Staged {
    /// Writes the future contents of `name` under a hidden name.
    pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<Staged> {
        let staged = Staged { folder: folder.to_path_buf(), name: name.into() };
        write_synced(&hidden(folder, name), bytes)?;
        Ok(staged)
    }

    /// Gives it its name, in place of what had it.
    pub(super) fn place(self) -> Result<()> {
        let target = self.folder.join(&self.name);
        fs::rename(hidden(&self.folder, &self.name), &target).at(&target, "replace")?;
        sync_folder(&self.folder)
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_file(hidden(&self.folder, &self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_told_from_others() {
        for name in [
            "run.json",
            "ckpt-0",
            "ckpt-12",
            "ckpt-12.7",
            ".ckpt-12.partial",
            ".ckpt-3.21.partial",
            ".run.json.partial",
            ".lock",
        ] {
            assert!(is_own(name), "{name}");
        }
        for name in [
            "ckpt-",
            "ckpt-1.0",
            "ckpt-1.",
            "ckpt-1.01",
            "ckpt-01",
            "ckpt--1",
            "ckpt-x",
            "ckpt-99999999999999999999",
            ".x.partial",
        ] {
            assert!(!is_own(name), "{name}");
        }
        assert!(is_leftover(".model.safetensors.partial") && !is_leftover("model.safetensors"));
    }

    #[test]
    fn a_file_that_cannot_be_placed_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("run.json/in the way")).unwrap();
        let error = write_whole(folder.path(), RUN, b"{}").unwrap_err().to_string();
        assert!(error.contains("run.json: cannot replace"), "{error}");
        assert_eq!(names(folder.path()).unwrap(), ["run.json"]);
    }
}
