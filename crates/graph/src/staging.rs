//! Folders that appear whole or not at all.
//!
//! Files are written into a hidden folder beside the target, synced, and the folder is renamed into place last.
//! Whatever goes wrong before that, the hidden folder is removed and the target is as it was.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::error::{Error, IoContext, Result};
use crate::io::npy::{Element, FileRecord, Writer};

/// What a folder is, so that only one of its kind is ever replaced.
pub(crate) struct Kind {
    /// What to call it: `dataset`.
    pub noun: &'static str,
    /// The file that says what it is.
    pub manifest: &'static str,
    /// Whether a file of that name is what it should be, of whatever version.
    pub is_manifest: fn(&Path) -> bool,
    /// Something in such a folder that is no part of it and would be lost.
    pub foreign: fn(&Path) -> io::Result<Option<OsString>>,
}

impl Kind {
    /// Whether `target` may become such a folder: it is not there, is empty, or is nothing but one and `overwrite` is
    /// set.
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
            return refuse("exists already".into(), "choose another output path, or add --overwrite");
        }
        match (self.foreign)(target).at(target, "open")? {
            None => Ok(()),
            Some(name) => refuse(
                format!("holds {name:?}, which is no part of a {} and would be lost", self.noun),
                "move it away, or choose another output path",
            ),
        }
    }
}

/// The names in a folder.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// The hidden folder in which another grows; removed unless committed.
pub(crate) struct Staging {
    kind: &'static Kind,
    target: PathBuf,
    overwrite: bool,
    folder: tempfile::TempDir,
    /// Where the target will be listed.
    parent: PathBuf,
    /// Folders on the way to the target that were made for it, deepest first.
    made: Vec<PathBuf>,
}

impl Staging {
    pub(crate) fn begin(kind: &'static Kind, target: &Path, overwrite: bool) -> Result<Staging> {
        kind.may_write(target, overwrite)?;
        let name = target.file_name().ok_or_else(|| {
            Error::input(target.display(), "not a name for a new directory")
                .help("give -o a path that ends in a name")
        })?;
        let prefix = format!(".{}.", name.to_string_lossy());
        // A link to such a folder stays a link: what it points to is replaced.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_path_buf());
        let parent = match target.parent() {
            Some(p) if p != Path::new("") => p.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let made = parent.ancestors().take_while(|p| *p != Path::new("") && !p.exists());
        let made = made.map(Path::to_path_buf).collect();
        fs::create_dir_all(&parent).at(&parent, "create")?;
        // The usual rights of a new folder; a temporary one would be the owner's alone.
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            .permissions(fs::Permissions::from_mode(0o777))
            .tempdir_in(&parent)
            .at(&parent, "write into")?;
        Ok(Staging { kind, target, overwrite, folder, parent, made })
    }

    /// Where a file grows.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Fails early, and by name, when the file system is too small for `bytes`.
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

    /// Brings all that was written so far to the device, at once: file by file, many small ones take long.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let path = self.folder.path();
        fs::File::open(path).and_then(|folder| Ok(rustix::fs::syncfs(folder)?)).at(path, "sync")
    }

    /// Moves the finished folder into place. An older one there changes places with it in one step, and is then
    /// removed under the hidden name.
    pub(crate) fn commit(mut self) -> Result<()> {
        sync_folder(self.folder.path())?;
        // Others may have been here since we began.
        self.kind.may_write(&self.target, self.overwrite)?;
        // Only with leave: one that has appeared since we looked is somebody's.
        if self.overwrite && self.target.join(self.kind.manifest).exists() {
            self.exchange()?
        } else {
            self.place()?
        }
        self.made.clear();
        sync_folder(&self.parent)
    }

    fn exchange(&self) -> Result<()> {
        let (new, target) = (self.folder.path(), &self.target);
        if renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE).is_ok() {
            return Ok(());
        }
        // A file system that cannot exchange: two steps, and back again if the second fails.
        let old = new.with_extension("old");
        fs::rename(target, &old).at(target, "replace")?;
        if let Err(source) = fs::rename(new, target) {
            fs::rename(&old, target).at(target, "restore")?;
            return Err(Error::Io { path: target.to_path_buf(), action: "create", source });
        }
        fs::remove_dir_all(&old).at(&old, "remove")
    }

    /// Takes a free name, and only a free one.
    fn place(&self) -> Result<()> {
        let (new, target) = (self.folder.path(), &self.target);
        // An empty folder is as good as none; one that is not empty stays, and stops us below.
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
        // Folders that were made for nothing go; one that somebody else uses by now is not empty and stays.
        let _ = fs::remove_dir_all(self.folder.path());
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Lets the names in a folder outlive a crash.
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
