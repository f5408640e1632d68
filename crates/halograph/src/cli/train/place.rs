//! Where a run goes when nobody says so.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A folder under `runs` that is not there yet, named after the time and the run.
pub fn default_out(dataset: &str, model: &str) -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = dataset.chars().map(plain).collect();
    vacant(Path::new("runs"), &format!("{}-{name}-{model}", utc(seconds)))
}

fn vacant(folder: &Path, name: &str) -> PathBuf {
    let numbered = (2..).map(|n| folder.join(format!("{name}-{n}")));
    let mut all = std::iter::once(folder.join(name)).chain(numbered);
    all.find(|path| path.symlink_metadata().is_err()).expect("numbers do not end")
}

/// Seconds since 1970 as `YYYYMMDD-hhmmss`.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// The Gregorian date of a day counted from 1970-01-01, by counting years that begin in March: leap days end them.
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
    fn a_taken_name_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("x")).unwrap();
        std::fs::create_dir(folder.path().join("x-2")).unwrap();
        assert_eq!(vacant(folder.path(), "x"), folder.path().join("x-3"));
        assert_eq!(vacant(folder.path(), "y"), folder.path().join("y"));
    }
}
