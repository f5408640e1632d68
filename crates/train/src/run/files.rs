//! Names of the files of a run, and atomic writes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};

use super::checkpoint;

/// Data, configuration and, after the end, summary.
pub(super) const RUN: &str = "run.json";
/// One line per epoch.
pub(super) const METRICS: &str = "metrics.jsonl";
/// The weights of the best evaluation.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// Statistics by which features are scaled.
pub(super) const SCALING: &str = "scaling.safetensors";
/// Locked by the process that writes the run.
pub(super) const LOCK: &str = ".lock";
/// The trace, if `--trace` names this file.
pub const TRACE: &str = "trace.json";
pub(super) const REPORT: &str = "report.html";
const FILES: [&str; 7] = [RUN, METRICS, WEIGHTS, SCALING, LOCK, TRACE, REPORT];
/// Folders of a run besides checkpoints.
pub(super) const FOLDERS: [&str; 2] = [super::DEMO_DATA, super::TENSORBOARD];

/// Returns the sorted names in `folder`; none if it does not exist.
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

/// Returns whether a run writes a file or folder of this name.
pub(super) fn is_own(name: &str) -> bool {
    FILES.contains(&name)
        || FOLDERS.contains(&name)
        || checkpoint::point_of(name).is_some()
        || is_leftover(name)
}

/// Returns a file in one of the [`FOLDERS`] of `run` that does not belong there, if there is one.
pub(super) fn unexpected_file(run: &Path, folder: &str) -> Result<Option<String>> {
    let own = |name: &str| match folder {
        super::DEMO_DATA => halograph_graph::dataset::is_part(name),
        _ => name.starts_with("events.out.tfevents."),
    };
    let other = names(&run.join(folder))?.into_iter().find(|name| !own(name));
    Ok(other.map(|name| format!("{folder}/{name}")))
}

/// Returns whether `name` is the temporary name of a file or checkpoint of a run.
pub(super) fn is_leftover(name: &str) -> bool {
    let target = name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"));
    target.is_some_and(|target| FILES.contains(&target) || checkpoint::point_of(target).is_some())
}

/// Returns the temporary path of `name`, under which it is written or removed.
pub(super) fn hidden(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}.partial"))
}

/// Creates `folder` and its missing ancestors, and syncs them; returns those that were created, deepest first.
pub(super) fn create_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let missing = folder.ancestors().take_while(|p| *p != Path::new("") && !p.exists());
    let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
    fs::create_dir_all(folder).at(folder, "create")?;
    for parent in missing.iter().filter_map(|made| made.parent()) {
        sync_folder(if parent == Path::new("") { Path::new(".") } else { parent })?;
    }
    Ok(missing)
}

/// Removes the files of a run that could not be created, if its folder was new, and the empty folders `made`.
pub(super) fn undo_create(folder: &Path, made: &[PathBuf]) {
    if !made.is_empty() {
        remove_run_files(folder);
    }
    remove_empty_folders(made);
}

/// Removes all files and folders of the run in `folder` except checkpoints. Errors are ignored.
pub(super) fn remove_run_files(folder: &Path) {
    FILES.iter().chain(&FOLDERS).for_each(|name| remove(&folder.join(name)));
}

/// Removes those of `folders` that are empty.
pub(super) fn remove_empty_folders(folders: &[PathBuf]) {
    folders.iter().for_each(|folder| drop(fs::remove_dir(folder)));
}

/// Removes temporary files that killed processes left. Files that cannot be removed are ignored: they do no harm.
pub(super) fn remove_leftovers(folder: &Path) -> Result<()> {
    for name in names(folder)?.iter().filter(|name| is_leftover(name)) {
        remove(&folder.join(name));
    }
    Ok(())
}

/// Removes a file or a folder. Errors are ignored.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
}

/// Removes a folder with its contents, if it exists.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        done => done.at(path, "remove"),
    }
}

/// Removes a file, if it exists.
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        done => done.at(path, "remove"),
    }
}

/// Reads a regular file. Refuses anything else: opening a pipe without a writer would block.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    if fs::metadata(path).at(path, "open")?.is_file() {
        return fs::read(path).at(path, "read");
    }
    Err(Error::input(path.display(), "is not a regular file"))
}

/// Writes a new file and syncs it.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).at(path, "create")?;
    file.write_all(bytes).and_then(|()| file.sync_all()).at(path, "write")
}

/// Syncs the names in `folder`.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).at(folder, "sync")
}

/// Writes the file `name` of `folder` atomically.
pub(super) fn write_atomic(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    StagedFile::write(folder, name, bytes)?.publish()
}

/// A file that is written and synced under a temporary name. Dropping it removes it, unless it was published.
pub(super) struct StagedFile {
    folder: PathBuf,
    name: String,
}

impl StagedFile {
    /// Writes the contents of `name` under the temporary name.
    pub(super) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<StagedFile> {
        let staged = StagedFile { folder: folder.to_path_buf(), name: name.into() };
        write_synced(&hidden(folder, name), bytes)?;
        Ok(staged)
    }

    /// Renames the file to its final name, replacing an existing file.
    pub(super) fn publish(self) -> Result<()> {
        let target = self.folder.join(&self.name);
        fs::rename(hidden(&self.folder, &self.name), &target).at(&target, "replace")?;
        sync_folder(&self.folder)
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(hidden(&self.folder, &self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_run_are_recognised() {
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
    fn a_file_that_cannot_be_renamed_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("run.json/in the way")).unwrap();
        let error = write_atomic(folder.path(), RUN, b"{}").unwrap_err().to_string();
        assert!(error.contains("run.json: cannot replace"), "{error}");
        assert_eq!(names(folder.path()).unwrap(), ["run.json"]);
    }
}
