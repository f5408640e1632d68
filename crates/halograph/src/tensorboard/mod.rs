//! Scalars for TensorBoard: an event file that grows by a few records an epoch.
//!
//! A file is a list of framed records (`record.rs`), each a protocol buffer `Event` (`proto.rs`). The first says which
//! version of the format follows, the second that recording starts at a step: whatever an earlier file of the same
//! folder holds from that step on is what a killed run had not yet saved, and TensorBoard drops it.

mod proto;
mod record;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use halograph_graph::error::{IoContext, Result};
use halograph_train::event::EpochRecord;

/// How the names of event files begin.
const PREFIX: &str = "events.out.tfevents.";

/// Writes one event file.
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// A new event file in `folder`, which is made if need be, for epochs from `from` on.
    pub fn create(folder: &Path, from: u64) -> Result<Self> {
        fs::create_dir_all(folder).at(folder, "create")?;
        let name = format!("{PREFIX}{:010}.{}", seconds() as u64, std::process::id());
        let path = folder.join(name);
        let file = File::create_new(&path).at(&path, "create")?;
        let mut writer = Writer { path, file };
        writer.append(&[proto::version(seconds()), proto::session_start(seconds(), from)])?;
        Ok(writer)
    }

    /// Adds the scalars of an epoch and hands them to the operating system in one piece.
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

/// What is plotted of an epoch.
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
    fn epochs_come_back_whole_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("tensorboard");
        let mut writer = Writer::create(&inside, 3).unwrap();
        let scores = Scores { train: Some(0.75), val: Some(0.5), test: None, val_loss: Some(1.5) };
        writer.epoch(&epoch(3, None)).unwrap();
        writer.epoch(&epoch(4, Some(scores))).unwrap();
        // Read while it is still open: a reader, or a killed run, misses nothing.
        let bytes = fs::read(&writer.path).unwrap();
        let events = record::unframe(&bytes).expect("lengths and checksums hold");
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
