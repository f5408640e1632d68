//! `metrics.jsonl`: one line per epoch, appended.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, IoContext, Result};

use super::files::{self, METRICS};
use super::note::ResumeNote;
use crate::event::EpochRecord;

/// The file, open for appending.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    file: File,
    /// Length of the complete lines; a failed write may leave bytes after them.
    bytes: u64,
}

impl History {
    /// Creates an empty history in `folder`.
    pub(super) fn create(folder: &Path) -> Result<History> {
        History::open(folder, 0)
    }

    /// Opens the history and truncates it to `epoch`, which ended at byte `end`; returns its records. Missing or damaged
    /// records are left out, with a note: they are no reason to refuse a run whose weights are complete.
    pub(super) fn reopen(
        folder: &Path,
        epoch: u64,
        end: u64,
    ) -> Result<(History, Vec<EpochRecord>, Option<ResumeNote>)> {
        let path = folder.join(METRICS);
        let mut bytes = match files::read(&path) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Vec::new(),
            bytes => bytes?,
        };
        bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        let (records, fault) = parse(&bytes, epoch);
        // Checked separately: a file that lost its last newline still parses.
        let whole = bytes.len() as u64 == end && bytes.last().is_none_or(|&b| b == b'\n');
        if records.len() as u64 == epoch && fault.is_none() && whole {
            return Ok((History::open(folder, end)?, records, None));
        }
        let kept: Vec<u8> = records.iter().flat_map(line).collect();
        files::write_atomic(folder, METRICS, &kept)?;
        let fault = fault.unwrap_or_else(|| format!("{} bytes instead of {end}", bytes.len()));
        let recorded = records.len() as u64;
        let note = ResumeNote::IncompleteHistory { path, problem: fault, recorded, epochs: epoch };
        Ok((History::open(folder, kept.len() as u64)?, records, Some(note)))
    }

    /// Opens the file and truncates it to `bytes`.
    fn open(folder: &Path, bytes: u64) -> Result<History> {
        let path = folder.join(METRICS);
        let file = OpenOptions::new().append(true).create(true).open(&path).at(&path, "open")?;
        let mut history = History { path, file, bytes };
        history.sync()?;
        Ok(history)
    }

    /// Appends a line in one write.
    pub(super) fn append(&mut self, epoch: &EpochRecord) -> Result<()> {
        let line = line(epoch);
        if let Err(source) = self.file.write_all(&line) {
            // If an incomplete line cannot be truncated now, the next sync or resume does it.
            let _ = self.file.set_len(self.bytes);
            return Err(Error::Io { path: self.path.clone(), action: "write", source });
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Syncs the file; returns the length of all lines.
    pub(super) fn sync(&mut self) -> Result<u64> {
        let cut = self.file.set_len(self.bytes);
        cut.and_then(|()| self.file.sync_all()).at(&self.path, "write")?;
        Ok(self.bytes)
    }
}

fn line(epoch: &EpochRecord) -> Vec<u8> {
    let mut line = serde_json::to_vec(epoch).expect("numbers under fixed names always serialise");
    line.push(b'\n');
    line
}

/// Parses the lines of `bytes`: returns records of increasing epochs up to `last`, and the problem of the first invalid
/// line.
pub(super) fn parse(bytes: &[u8], last: u64) -> (Vec<EpochRecord>, Option<String>) {
    let (mut records, mut fault) = (Vec::<EpochRecord>::new(), None);
    for (k, line) in bytes.split_inclusive(|&b| b == b'\n').enumerate() {
        let before = records.last().map_or(0, |r| r.epoch);
        let record = serde_json::from_slice::<EpochRecord>(line).map_err(|e| e.to_string());
        let record = record.and_then(|r| match r.epoch {
            e if e > before && e <= last => Ok(r),
            e => Err(format!("epoch {e} after epoch {before}, in a history of {last}")),
        });
        match record {
            Ok(record) => records.push(record),
            Err(problem) => {
                fault.get_or_insert(format!("line {}: {problem}", k + 1));
            }
        }
    }
    (records, fault)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::event::Scores;

    fn epoch(epoch: u64) -> EpochRecord {
        let scores = Scores { train: Some(0.1 + 0.2), val: None, test: Some(1.0 / 3.0), val_loss: None };
        EpochRecord {
            epoch,
            loss: 1.0 / epoch as f64,
            lr: 0.1,
            seconds: 1e-3,
            staleness: None,
            evaluation_seconds: None,
            scores: Some(scores),
        }
    }

    /// Writes four epochs, of which three belong to the checkpoint; returns the file, and the length and records of the
    /// three.
    fn three(folder: &Path) -> (PathBuf, u64, Vec<EpochRecord>) {
        let mut history = History::create(folder).unwrap();
        let epochs: Vec<EpochRecord> = (1..=3).map(epoch).collect();
        epochs.iter().for_each(|e| history.append(e).unwrap());
        let end = history.sync().unwrap();
        history.append(&epoch(4)).unwrap();
        (folder.join(METRICS), end, epochs)
    }

    #[test]
    fn lines_after_the_checkpoint_are_truncated() {
        let folder = tempfile::tempdir().unwrap();
        let (path, end, epochs) = three(folder.path());
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], b"{\"epoch\": 5, \"lo"].concat()).unwrap();
        let (mut history, read, note) = History::reopen(folder.path(), 3, end).unwrap();
        assert_eq!((read, note), (epochs, None));
        history.append(&epoch(4)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), whole);
    }

    #[test]
    fn missing_and_damaged_records_are_noted_and_the_others_kept() {
        let folder = tempfile::tempdir().unwrap();
        let (path, end, epochs) = three(folder.path());
        let whole = fs::read(&path).unwrap();
        let second = whole.iter().position(|&b| b == b'\n').unwrap() + 1;
        let mut garbage = whole.clone();
        garbage[second] = 0xff;
        let cases = [
            (garbage, vec![0, 2], "line 2"),
            (whole[..second + 9].to_vec(), vec![0], "line 2"),
            (whole[..second].to_vec(), vec![0], "bytes instead of"),
            (whole[..end as usize - 1].to_vec(), vec![0, 1, 2], "bytes instead of"),
            (Vec::new(), vec![], "0 of 3 epochs"),
        ];
        for (damaged, left, words) in cases {
            fs::write(&path, damaged).unwrap();
            let (_, read, note) = History::reopen(folder.path(), 3, end).unwrap();
            assert_eq!(read, left.iter().map(|&k: &usize| epochs[k].clone()).collect::<Vec<_>>());
            let note = note.unwrap().to_string();
            assert!(note.contains(words) && note.contains(METRICS), "{note}");
            assert_eq!(parse(&fs::read(&path).unwrap(), 3), (read, None), "the file is sound again");
        }
        fs::remove_file(&path).unwrap();
        assert!(History::reopen(folder.path(), 3, end).unwrap().2.is_some());
    }

    #[test]
    fn records_survive_a_round_trip() {
        let none = EpochRecord { scores: None, ..epoch(1) };
        let nothing = Scores { train: None, val: None, test: None, val_loss: None };
        let empty = EpochRecord { scores: Some(nothing), ..epoch(2) };
        for record in [none, empty, epoch(3)] {
            assert_eq!(serde_json::from_slice::<EpochRecord>(&line(&record)).unwrap(), record);
        }
    }
}
