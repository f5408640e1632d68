//! Writes scalars for TensorBoard: an event file to which every epoch appends a few records.
//!
//! A file is a sequence of framed records (`record.rs`); each holds a protocol buffer `Event` (`proto.rs`). The first
//! event has the format version. The second marks the first epoch of the file: TensorBoard drops that epoch and later
//! ones from earlier files of the folder, which a killed run wrote after its last checkpoint.

mod proto;
mod record;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use halograph_graph::error::{IoContext, Result};
use halograph_train::event::EpochRecord;

/// Prefix of the names of event files.
const PREFIX: &str = "events.out.tfevents.";

/// Appends to one event file.
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Creates an event file in `folder` for epochs from `from` on. Creates the folder if it does not exist.
    pub fn create(folder: &Path, from: u64) -> Result<Self> {
        fs::create_dir_all(folder).at(folder, "create")?;
        let name = format!("{PREFIX}{:010}.{}", seconds() as u64, std::process::id());
        let path = folder.join(name);
        let file = File::create_new(&path).at(&path, "create")?;
        let mut writer = Writer { path, file };
        writer.append(&[proto::version(seconds()), proto::session_start(seconds(), from)])?;
        Ok(writer)
    }

    /// Appends the scalars of an epoch, in a single write.
    pub fn epoch(&mut self, epoch: &EpochRecord) -> Result<()> {
        let events: Vec<Vec<u8>> = scalars(epoch)
            .map(|(tag, value)| proto::scalar(seconds(), epoch.epoch, tag, value as f32))
            .collect();
        self.append(&events)
    }

    fn append(&mut self, events: &[Vec<u8>]) -> Result<()> {
        let bytes: Vec<u8> = events.iter().flat_map(|event| record::frame(event)).collect();
        self.file.write_all(&bytes).at(&self.path, "write")
    }
}

/// Returns tags and values of an epoch; scores only if it was evaluated.
fn scalars(epoch: &EpochRecord) -> impl Iterator<Item = (&'static str, f64)> {
    let scores = epoch.scores.as_ref();
    [
        ("loss/train", Some(epoch.loss)),
        ("loss/val", scores.and_then(|s| s.val_loss)),
        ("score/train", scores.and_then(|s| s.train)),
        ("score/val", scores.and_then(|s| s.val)),
        ("score/test", scores.and_then(|s| s.test)),
        ("lr", Some(epoch.lr)),
        ("epoch_seconds", Some(epoch.seconds)),
    ]
    .into_iter()
    .filter_map(|(tag, value)| Some((tag, value?)))
}

/// Returns the current time in seconds since 1970.
fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use halograph_train::event::Scores;

    use super::*;

    fn epoch(epoch: u64, scores: Option<Scores>) -> EpochRecord {
        EpochRecord {
            epoch,
            loss: 0.5,
            lr: 0.01,
            seconds: 0.25,
            staleness: None,
            evaluation_seconds: None,
            scores,
        }
    }

    #[test]
    fn epochs_are_written_completely_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("tensorboard");
        let mut writer = Writer::create(&inside, 3).unwrap();
        let scores = Scores { train: Some(0.75), val: Some(0.5), test: None, val_loss: Some(1.5) };
        writer.epoch(&epoch(3, None)).unwrap();
        writer.epoch(&epoch(4, Some(scores))).unwrap();
        // Read while the writer is open: nothing is buffered that a killed run would lose.
        let bytes = fs::read(&writer.path).unwrap();
        let events = record::unframe(&bytes).expect("valid lengths and checksums");
        assert_eq!(proto::decode(events[0]).version.as_deref(), Some("brain.Event:2"));
        let start = proto::decode(events[1]);
        assert_eq!((start.step, start.starts), (3, true));
        let scalars: Vec<(u64, String, f32)> = events[2..]
            .iter()
            .map(|event| proto::decode(event))
            .map(|event| (event.step, event.tag.unwrap(), event.value.unwrap()))
            .collect();
        let expected = [
            (3, "loss/train", 0.5),
            (3, "lr", 0.01),
            (3, "epoch_seconds", 0.25),
            (4, "loss/train", 0.5),
            (4, "loss/val", 1.5),
            (4, "score/train", 0.75),
            (4, "score/val", 0.5),
            (4, "lr", 0.01),
            (4, "epoch_seconds", 0.25),
        ];
        assert_eq!(scalars, expected.map(|(step, tag, value)| (step, tag.to_string(), value)));
    }
}
