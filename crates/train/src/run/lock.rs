//! The lock of a run directory: one process at a time writes a run.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use halograph_graph::error::{Error, IoContext, Result};

use super::files::LOCK;

/// The lock of a run directory. The kernel releases it when the process ends, however that happens.
#[derive(Debug)]
pub(super) struct Lock {
    folder: PathBuf,
    file: File,
}

/// Tries to lock for one second: a process that is ending or being forked may still hold the lock. Blocks.
fn lock_with_retries(file: &File) -> std::result::Result<(), TryLockError> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(50)),
            done => return done,
        }
    }
    file.try_lock()
}

impl Lock {
    /// Locks `folder`; creates the lock file. Blocks for up to one second, then fails if another process holds the lock.
    pub(super) fn take(folder: &Path) -> Result<Lock> {
        // A file, because network file systems do not lock folders.
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.at(&path, "create")?;
        match lock_with_retries(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::input(folder.display(), "another process is writing this run")
                    .help("wait until it ends or stop it, or choose another folder"));
            }
            Err(TryLockError::Error(source)) => return Err(Error::Io { path, action: "lock", source }),
        }
        let lock = Lock { folder: folder.to_path_buf(), file };
        lock.check()?;
        Ok(lock)
    }

    /// Writes a unique token into the lock file and returns it.
    pub(super) fn write_token(&self) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let token = format!("process {} at {now}\n", std::process::id());
        let mut file = &self.file;
        let written = file.set_len(0).and_then(|()| io::Seek::rewind(&mut file));
        let written = written.and_then(|()| file.write_all(token.as_bytes())).and_then(|()| file.sync_all());
        written.at(&self.folder.join(LOCK), "write")?;
        Ok(token)
    }

    /// Fails if the folder was removed or replaced since it was locked: files would be lost, or written into another run.
    pub(super) fn check(&self) -> Result<()> {
        let identity = |m: fs::Metadata| (m.dev(), m.ino());
        let path = self.folder.join(LOCK);
        let own = self.file.metadata().map(identity).at(&path, "open")?;
        match fs::metadata(&path).map(identity) {
            Ok(found) if found == own => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at(&path, "open"),
            _ => {
                let gone = "the folder was removed, moved or replaced while the run was writing to it; \
                    if it was moved, its checkpoints are in the new place; nothing more is written";
                Err(io::Error::other(gone)).at(&self.folder, "write")
            }
        }
    }
}

/// Returns whether the lock file of `folder` contains `token`.
pub(super) fn has_token(folder: &Path, token: &str) -> bool {
    fs::read_to_string(folder.join(LOCK)).is_ok_and(|found| found == token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_until_the_first_ends() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lock::take(folder.path()).unwrap();
        let error = Lock::take(folder.path()).unwrap_err();
        assert!(error.to_string().contains("another process is writing this run") && !error.is_environment());
        drop(first);
        Lock::take(folder.path()).unwrap();
    }

    #[test]
    fn only_the_newest_token_of_the_same_folder_matches() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let lock = Lock::take(one.path()).unwrap();
        let (first, second) = (lock.write_token().unwrap(), lock.write_token().unwrap());
        let cases = [(&one, &first), (&one, &second), (&other, &second)];
        assert_eq!(cases.map(|(folder, token)| has_token(folder.path(), token)), [false, true, false]);
    }

    #[test]
    fn a_moved_or_replaced_folder_fails_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        fs::create_dir(&run).unwrap();
        let first = Lock::take(&run).unwrap();
        fs::rename(&run, folder.path().join("moved")).unwrap();
        assert!(first.check().unwrap_err().to_string().contains("moved"));
        fs::create_dir(&run).unwrap();
        let second = Lock::take(&run).unwrap();
        assert!(first.check().unwrap_err().is_environment());
        second.check().unwrap();
    }
}
