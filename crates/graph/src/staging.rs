//! Atomic creation of folders.
//!
//! Files are written into a hidden folder beside the target and synced; then the folder is renamed to the target. On any
//! error before that, the hidden folder is removed and the target is unchanged.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::error::{Error, IoContext, Result};
use crate::io::npy::{Element, FileRecord, Writer};

/// The kind of a folder. A folder is only replaced by one of its kind.
pub(crate) struct FolderKind {
    /// Its name in messages: `dataset`.
    pub noun: &'static str,
    /// File name of its manifest.
    pub manifest: &'static str,
    /// Whether the file is a manifest of this kind, of any version.
    pub is_manifest: fn(&Path) -> bool,
    /// Returns a file in such a folder that does not belong to it and would be lost.
    pub foreign: fn(&Path) -> io::Result<Option<OsString>>,
}

impl FolderKind {
    /// Refuses a `target` that exists, unless it is empty, or `overwrite` is set and it is a folder of this kind without
    /// foreign files.
    pub(crate) fn may_write(&self, target: &Path, overwrite: bool) -> Result<()> {
        let refuse = |problem: String, help: &str| Err(Error::input(target.display(), problem).help(help));
        let mut entries = match fs::read_dir(target) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == ErrorKind::NotADirectory => {
                return refuse("is a file, not a directory".into(), "choose another output path");
            }
            entries => entries.at(target, "open")?,
        };
        if entries.next().is_none() {
            return Ok(());
        }
        if !(self.is_manifest)(&target.join(self.manifest)) {
            return refuse(format!("exists and is not a {}", self.noun), "choose another output path");
        }
        if !overwrite {
            return refuse(
                "exists already".into(),
                "choose another output path, or replace it with --overwrite",
            );
        }
        match (self.foreign)(target).at(target, "open")? {
            None => Ok(()),
            Some(name) => refuse(
                format!("holds {name:?}, which does not belong to a {} and would be lost", self.noun),
                "move it away, or choose another output path",
            ),
        }
    }
}

/// Returns the names in a folder.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// A hidden folder that is renamed to its target by [`Staging::commit`], or else removed.
pub(crate) struct Staging {
    kind: &'static FolderKind,
    target: PathBuf,
    overwrite: bool,
    folder: tempfile::TempDir,
    /// Parent of the target.
    parent: PathBuf,
    /// Ancestors of the target that were created for it, deepest first.
    created: Vec<PathBuf>,
}

impl Staging {
    /// Creates the hidden folder, and missing ancestors of the target.
    pub(crate) fn begin(kind: &'static FolderKind, target: &Path, overwrite: bool) -> Result<Staging> {
        kind.may_write(target, overwrite)?;
        let name = target.file_name().ok_or_else(|| {
            Error::input(target.display(), "not a name for a new directory")
                .help("give -o a path that ends in a name")
        })?;
        let prefix = format!(".{}.", name.to_string_lossy());
        // The target of a symbolic link is replaced, not the link.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let parent = match target.parent() {
            Some(p) if p != Path::new("") => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let created = parent.ancestors().take_while(|p| *p != Path::new("") && !p.exists());
        let created = created.map(Path::to_path_buf).collect();
        fs::create_dir_all(&parent).at(&parent, "create")?;
        // The usual permissions of a new folder; those of a temporary one are the owner's alone.
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            .permissions(fs::Permissions::from_mode(0o777))
            .tempdir_in(&parent)
            .at(&parent, "write into")?;
        Ok(Staging { kind, target, overwrite, folder, parent, created })
    }

    /// Returns the path of `file` while it is written.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Fails if the file system has fewer than `bytes` free bytes.
    pub(crate) fn need_space(&self, bytes: u64) -> Result<()> {
        let Ok(stat) = rustix::fs::statvfs(self.folder.path()) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if bytes <= free {
            return Ok(());
        }
        let problem = format!("the {} needs {bytes} bytes and {free} are free", self.kind.noun);
        let source = io::Error::new(ErrorKind::StorageFull, problem);
        Err(Error::Io { path: self.target.clone(), action: "write", source })
    }

    /// Syncs everything written so far with one call: many small files would take long one by one.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let path = self.folder.path();
        fs::File::open(path).and_then(|folder| Ok(rustix::fs::syncfs(folder)?)).at(path, "sync")
    }

    /// Renames the finished folder to the target. An older folder there is exchanged with it atomically, then removed.
    pub(crate) fn commit(mut self) -> Result<()> {
        sync_folder(self.folder.path())?;
        // Another process may have created it meanwhile.
        self.kind.may_write(&self.target, self.overwrite)?;
        // Without `overwrite`, a folder that appeared meanwhile belongs to another process.
        if self.overwrite && self.target.join(self.kind.manifest).exists() {
            self.exchange()?
        } else {
            self.rename()?
        }
        // The target exists: dropping must not remove its ancestors.
        self.created.clear();
        sync_folder(&self.parent)
    }

    /// Exchanges the hidden folder with the target; the old folder is removed on drop.
    fn exchange(&self) -> Result<()> {
        let (new, target) = (self.folder.path(), &self.target);
        if renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        // The file system cannot exchange: rename twice, and undo the first if the second fails.
        let old = new.with_extension("old");
        fs::rename(target, &old).at(target, "replace")?;
        if let Err(source) = fs::rename(new, target) {
            fs::rename(&old, target).at(target, "restore")?;
            return Err(Error::Io { path: target.to_path_buf(), action: "create", source });
        }
        fs::remove_dir_all(&old).at(&old, "remove")
    }

    /// Renames to the target if that does not exist.
    fn rename(&self) -> Result<()> {
        let (new, target) = (self.folder.path(), &self.target);
        // Removes an empty folder; a non-empty one remains and fails the rename.
        let _ = fs::remove_dir(target);
        match renameat_with(CWD, new, CWD, target, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                self.kind.may_write(target, false)?;
                Err(Error::Io { path: target.to_path_buf(), action: "create", source: Errno::EXIST.into() })
            }
            Err(_) => fs::rename(new, target).at(target, "create"),
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Removes the created ancestors, except those that are not empty.
        let _ = fs::remove_dir_all(self.folder.path());
        self.created.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Syncs the names in a folder.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    fs::File::open(path).and_then(|f| f.sync_all()).at(path, "sync")
}

/// Writes and syncs a whole array.
pub(crate) fn array<T: Element>(path: &Path, shape: &[usize], elements: &[T]) -> Result<FileRecord> {
    let mut writer = Writer::create(path, shape)?;
    writer.write(elements)?;
    writer.finish()
}

/// Writes and syncs a small text file.
pub(crate) fn text(path: &Path, contents: &str) -> Result<FileRecord> {
    fs::write(path, contents).at(path, "write")?;
    fs::File::open(path).and_then(|f| f.sync_all()).at(path, "write")?;
    Ok(FileRecord::of(contents.as_bytes()))
}
