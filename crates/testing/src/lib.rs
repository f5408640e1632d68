//! What the tests of several crates share: real graphs, small file systems, and skipped tests that are reported.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Names the folder of real graphs.
const DATA: &str = "HALOGRAPH_TEST_DATA";
/// Names a file that receives one line per skipped test; `scripts/test` prints it.
const SKIPPED: &str = "HALOGRAPH_SKIPPED_TESTS";

/// Reports that the current test, or a part of it, is skipped.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {reason}\n", thread.name().unwrap_or("test"));
    eprint!("skipped: {line}");
    if let Some(file) = std::env::var_os(SKIPPED) {
        let file = OpenOptions::new().append(true).create(true).open(file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of skipped tests");
    }
}

/// Returns the path `name` in the folder of real graphs; skips the test if there is no such folder.
pub fn real_data(name: &str) -> Option<PathBuf> {
    let found = std::env::var_os(DATA).map(|folder| Path::new(&folder).join(name));
    if found.is_none() {
        skip(&format!("{DATA} is not set, so there is no {name}"));
    }
    found
}

/// Returns whether `mpirun` is installed; skips the test if not.
pub fn has_mpirun() -> bool {
    let found = Command::new("mpirun").arg("--version").output().is_ok();
    if !found {
        skip("mpirun is not installed");
    }
    found
}

/// A file system of 1 MiB, unmounted on drop.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts it; skips the test if that is not allowed.
    pub fn mount() -> Option<Self> {
        let disk = SmallDisk(TempDir::new().expect("a temporary folder"));
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(disk.0.path());
        match mount.output() {
            Ok(out) if out.status.success() => Some(disk),
            _ => {
                skip("mounting a small tmpfs needs root");
                None
            }
        }
    }

    /// Appends to the file `name` until not a page is left. Small writes: one of many pages may fail while some are free.
    pub fn fill(&self, name: &str) {
        let mut file =
            OpenOptions::new().append(true).create(true).open(self.0.path().join(name)).expect("the filler");
        let page = [1; 4096];
        let writes = (0..1024).take_while(|_| file.write_all(&page).is_ok()).count();
        assert!(writes < 1024, "a disk of 1 MiB is full after 256 pages");
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}
