//! One writer a run.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use halograph_graph::error::{Error, IoContext, Result};

use super::files::LOCK;

/// The right to write a run. The kernel takes it back when the process ends, however that happens.
#[derive(Debug)]
pub(super) struct Lock {
    folder: PathBuf,
    file: File,
}

/// Tries for a second: a process that was just ended, or one that is just being forked, may hold the lock for a moment.
fn patiently(file: &File) -> std::result::Result<(), TryLockError> {
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
    /// Takes the lock of `folder`, or says that somebody has it.
    pub(super) fn take(folder: &Path) -> Result<Lock> {
        // A file, because network file systems do not lock folders.
        let path = folder.join(LOCK);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.at(&path, "create")?;
        match patiently(&file) {
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

    /// Writes what nobody else would into the lock, for those who see it.
    pub(super) fn mark(&self) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let mark = format!("process {} at {now}\n", std::process::id());
        let mut file = &self.file;
        let written = file.set_len(0).and_then(|()| io::Seek::rewind(&mut file));
        let written = written.and_then(|()| file.write_all(mark.as_bytes())).and_then(|()| file.sync_all());
        written.at(&self.folder.join(LOCK), "write")?;
        Ok(mark)
    }

    /// Fails when the folder is not the one that was locked: what is written then would go nowhere, or into
    /// somebody else's run.
    pub(super) fn check(&self) -> Result<()> {
        let identity = |m: fs::Metadata| (m.dev(), m.ino());
        let path = self.folder.join(LOCK);
        let own = self.file.metadata().map(identity).at(&path, "open")?;
        match fs::metadata(&path).map(identity) {
            Ok(found) if found == own => Ok(()),
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at(&path, "open"),
            _ => {
                let gone = "the folder was removed, moved or replaced while the run was writing to it; \
                    its checkpoints are where the folder went, and nothing more is written";
                Err(io::Error::other(gone)).at(&self.folder, "write")
            }
        }
    }
}

/// Whether the lock of `folder` holds `mark`.
pub(super) fn is_marked(folder: &Path, mark: &str) -> bool {
    fs::read_to_string(folder.join(LOCK)).is_ok_and(|found| found == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_waits_for_the_first_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let first = Lock::take(folder.path()).unwrap();
        let error = Lock::take(folder.path()).unwrap_err();
        assert!(error.to_string().contains("another process is writing this run") && !error.is_environment());
        drop(first);
        Lock::take(folder.path()).unwrap();
    }

    #[test]
    fn a_mark_is_seen_where_it_was_made() {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let lock = Lock::take(one.path()).unwrap();
        let (first, second) = (lock.mark().unwrap(), lock.mark().unwrap());
        let seen = [(&one, &first), (&one, &second), (&other, &second)];
        assert_eq!(seen.map(|(folder, mark)| is_marked(folder.path(), mark)), [false, true, false]);
    }

    #[test]
    fn a_folder_that_is_not_the_locked_one_is_noticed() {
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
