//! The directory of a new run.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use halograph_graph::error::{IoContext, Result};

/// Parent folder of runs without a given directory.
pub const RUNS: &str = "runs";

/// The directory of a new run, or of several. Folders that did not exist are removed on drop if they are still empty.
pub struct NewDirectory {
    /// The run directory.
    pub path: PathBuf,
    /// Folders that did not exist, deepest first.
    missing: Vec<PathBuf>,
}

impl NewDirectory {
    /// Uses `path`, which need not exist.
    pub fn given(path: &Path) -> Self {
        NewDirectory { path: path.to_path_buf(), missing: missing(path) }
    }

    /// Creates an empty folder under `runs`, named after the time, the dataset and the model.
    pub fn create(dataset: &str, model: &str) -> Result<Self> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let name: String = dataset.chars().map(plain).collect();
        let folder = Path::new(RUNS);
        let mut missing = missing(folder);
        fs::create_dir_all(folder).at(folder, "create")?;
        let path = vacant(folder, &format!("{}-{name}-{model}", utc(seconds)))?;
        missing.insert(0, path.clone());
        Ok(NewDirectory { path, missing })
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // A folder that is not empty stays.
        self.missing.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Returns `folder` and its ancestors, as far as they do not exist.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let missing = folder.ancestors().take_while(|p| *p != Path::new("") && !p.exists());
    missing.map(Path::to_path_buf).collect()
}

/// Creates a folder with a free name. Creation reserves the name: two runs may start in the same second.
fn vacant(folder: &Path, name: &str) -> Result<PathBuf> {
    let numbered = (2..).map(|n| folder.join(format!("{name}-{n}")));
    for path in std::iter::once(folder.join(name)).chain(numbered) {
        match fs::create_dir(&path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.at(&path, "create").map(|()| path),
        }
    }
    unreachable!("numbers do not end")
}

/// Formats seconds since 1970 as `YYYYMMDD-hhmmss`.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Returns year, month and day of a day counted from 1970-01-01. Years are counted from March, so that leap days end them.
fn date(days: u64) -> (u64, u64, u64) {
    const CYCLE: u64 = 146_097;
    let days = days + 719_468;
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        for (seconds, text) in [
            (0, "19700101-000000"),
            (951_782_399, "20000228-235959"),
            (951_782_400, "20000229-000000"),
            (951_868_800, "20000301-000000"),
            (1_709_251_199, "20240229-235959"),
            (4_107_542_400, "21000301-000000"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }

    #[test]
    fn empty_folders_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/run");
        let place = NewDirectory::given(&path);
        fs::create_dir_all(&path).unwrap();
        drop(place);
        assert!(folder.path().exists() && !folder.path().join("a").exists());
        let place = NewDirectory::given(&path);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("run.json"), "{}").unwrap();
        drop(place);
        assert!(path.join("run.json").exists());
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("x")).unwrap();
        std::fs::create_dir(folder.path().join("x-2")).unwrap();
        for name in ["x-3", "x-4"] {
            assert_eq!(vacant(folder.path(), "x").unwrap(), folder.path().join(name));
        }
        assert_eq!(vacant(folder.path(), "y").unwrap(), folder.path().join("y"));
    }
}
