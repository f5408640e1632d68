//! Writes the trace of a run: what every rank did when, for Perfetto or Chrome (`about:tracing`).
//!
//! The file is in the JSON object format of Chrome's Trace Event Format. A rank is a process with up to four threads:
//! compute, send, receive and wait; and one more for each thread that sampled mini-batches. `otherData.run` identifies the run, so that `halograph report` can refuse the trace of another.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use halograph_comm::{Comm, Message, Position, Span, Track};
use halograph_graph::error::IoContext;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Result;
use crate::run::{self, write_file};
use crate::tags::Control;

/// Names of the tracks of a rank, by thread.
const TRACKS: [&str; 4] = ["compute", "send", "receive", "wait"];

/// The epochs of a run, one JSON object per line.
pub(crate) const METRICS: &str = "metrics.jsonl";

/// First bytes of every trace.
const BEGINNING: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// Phases and purposes that belong to no layer: their spans have no `layer`.
const WITHOUT_LAYER: [&str; 8] =
    [BUBBLE, "start", "checkpoint", "setup", "control", "gather", "batch", SAMPLING];

/// Phase of spans on the tracks of sampling threads.
pub(crate) const SAMPLING: &str = "sampling";
/// Phase of waits while a pipeline of stage groups fills or drains. They contain the waits for the messages.
pub(crate) const BUBBLE: &str = "bubble";
/// Names of the spans of a rank that samples several batches, and fetches their rows.
pub(crate) const SAMPLE: &str = "sample";
pub(crate) const FETCH: &str = "fetch";

/// Identifies the run that a trace was recorded from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracedRun {
    /// Hash of the first line of `metrics.jsonl`, which contains the wall-clock time of the first epoch.
    pub id: String,
    /// Run directory when the trace was written; for messages only.
    pub path: String,
}

impl TracedRun {
    /// Identifies the run in `path`; `None` before its first epoch is complete. Reads `metrics.jsonl`.
    ///
    /// The identity stays the same when the run is resumed, because resuming keeps complete epochs.
    pub fn of(path: &Path) -> halograph_graph::error::Result<Option<Self>> {
        let file = path.join(METRICS);
        let mut line = Vec::new();
        match File::open(&file).and_then(|file| BufReader::new(file).read_until(b'\n', &mut line)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.at(&file, "read")?,
        };
        let complete = line.ends_with(b"\n");
        let id = || blake3::hash(&line).to_hex()[..16].to_string();
        Ok(complete.then(|| TracedRun { id: id(), path: path.display().to_string() }))
    }
}

/// Checks that a trace may be written to `file`; an existing trace may be replaced if `overwrite`. Reads the file's
/// beginning, writes nothing.
pub fn may_write(file: &Path, overwrite: bool) -> halograph_graph::error::Result<()> {
    run::may_write(file, overwrite, "a trace", &[BEGINNING])
}

/// Gathers the spans of all ranks; rank 0 writes them to `file`, with the identity of the run in `run`. Collective;
/// blocks.
pub(crate) fn gather(comm: &Comm, file: &Path, run: Option<&Path>) -> Result<()> {
    let events = Value::from(events(comm.rank(), &comm.hosts()[comm.rank()], &comm.take_spans()));
    let text = events.to_string();
    let all = comm.all_gather(Control::Trace.tag(), Message::of(text.as_bytes()))?;
    if comm.rank() > 0 {
        return Ok(());
    }
    let texts = all.iter().map(|message| Ok(String::from_utf8_lossy(message.as_slice::<u8>()?)));
    write(file, run, &texts.collect::<Result<Vec<_>>>()?)
}

/// Writes the spans of a run on one process to `file`, with the identity of the run in `run`.
pub(crate) fn write_single(file: &Path, run: Option<&Path>, spans: &[Span]) -> Result<()> {
    write(file, run, &[Value::from(events(0, &halograph_comm::host(), spans)).to_string().into()])
}

/// Writes a trace: one JSON list of events per rank.
fn write(file: &Path, run: Option<&Path>, ranks: &[Cow<str>]) -> Result<()> {
    // Lists without brackets can be joined.
    let lists: Vec<&str> = ranks.iter().map(|text| &text[1..text.len() - 1]).collect();
    let other_data = json!({"run": run.map(TracedRun::of).transpose()?.flatten()});
    let text = format!("{BEGINNING}\n{}\n],\"otherData\":{other_data}}}\n", lists.join(",\n"));
    Ok(write_file(file, text.as_bytes())?)
}

/// Returns the trace events of a rank: its name, the names of its tracks, its spans.
fn events(rank: usize, host: &str, spans: &[Span]) -> Vec<Value> {
    let name = |what: &str, thread: usize, name: String| json!({"ph": "M", "name": what, "pid": rank, "tid": thread, "args": {"name": name}});
    let mut events = vec![name("process_name", 0, format!("rank {rank} ({host})"))];
    // Tracks without spans are not shown: one process sends and receives nothing.
    let used: BTreeSet<usize> = spans.iter().map(|span| thread(span.track)).collect();
    events.extend(used.into_iter().map(|i| {
        let track = TRACKS.get(i).map_or_else(|| format!("sample {}", i - TRACKS.len()), |t| t.to_string());
        name("thread_name", i, track)
    }));
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    events.extend(spans.iter().map(|span| {
        let thread = thread(span.track);
        let (start, time) = (micros(span.start), micros(span.end.saturating_sub(span.start)));
        json!({"ph": "X", "cat": span.position.phase, "name": span.name, "pid": rank, "tid": thread, "ts": start, "dur": time, "args": arguments(span.position)})
    }));
    events
}

/// Returns the thread that a track is drawn as.
fn thread(track: Track) -> usize {
    match track {
        Track::Compute => 0,
        Track::Send => 1,
        Track::Receive => 2,
        Track::Wait => 3,
        Track::Sample(sampler) => TRACKS.len() + usize::from(sampler),
    }
}

fn arguments(Position { epoch, step, layer, chunk, phase }: Position) -> Value {
    let mut arguments = json!({"epoch": epoch, "step": step, "chunk": chunk});
    if !WITHOUT_LAYER.contains(&phase) && layer != u16::MAX {
        arguments["layer"] = layer.into();
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(position: Position) -> Span {
        Span { track: Track::Wait, name: "features".into(), position, start: 1500, end: 4000 }
    }

    #[test]
    fn spans_become_events_of_their_rank_and_track() {
        let position = Position::new("features").epoch(7).step(2).layer(1).chunk(4);
        let events = events(2, "node", &[span(position)]);
        assert_eq!(events.len(), 3);
        assert_eq!((&events[1]["tid"], &events[1]["args"]["name"]), (&3.into(), &"wait".into()));
        assert_eq!(events[0]["args"]["name"], "rank 2 (node)");
        let last = events.last().unwrap();
        assert_eq!(
            (&last["pid"], &last["tid"], &last["ts"], &last["dur"]),
            (&2.into(), &3.into(), &1.5.into(), &2.5.into())
        );
        let args = json!({"epoch": 7, "step": 2, "layer": 1, "chunk": 4});
        assert_eq!((&last["cat"], &last["args"]), (&"features".into(), &args));
    }

    #[test]
    fn threads_that_sample_have_tracks_of_their_own() {
        let position = Position::new(SAMPLING).epoch(2).step(5);
        let spans = [3, 0, 3].map(|thread| Span { track: Track::Sample(thread), ..span(position) });
        let events = events(0, "node", &spans);
        let names: Vec<(u64, &str)> = events
            .iter()
            .filter(|event| event["name"] == "thread_name")
            .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
            .collect();
        assert_eq!(names, [(4, "sample 0"), (7, "sample 3")]);
        let last = events.last().unwrap();
        let args = json!({"epoch": 2, "step": 5, "chunk": 0});
        assert_eq!((&last["tid"], &last["cat"], &last["args"]), (&7.into(), &"sampling".into(), &args));
    }

    #[test]
    fn spans_outside_of_layers_have_no_layer() {
        for position in
            [Position::new("setup"), Position::new("control"), Position::new("forward").layer(u16::MAX)]
        {
            let events = events(0, "node", &[span(position)]);
            assert_eq!(events.last().unwrap()["args"].get("layer"), None, "{position}");
        }
    }

    #[test]
    fn a_run_is_identified_by_its_first_complete_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            std::fs::write(folder.path().join(METRICS), text).unwrap();
            TracedRun::of(folder.path()).unwrap().map(|run| run.id)
        };
        assert_eq!(TracedRun::of(&folder.path().join("missing")).unwrap(), None);
        assert_eq!((of(""), of("{\"epoch\":1")), (None, None));
        let one = of("{\"epoch\":1,\"seconds\":0.5}\n");
        assert!(one.is_some());
        assert_eq!(of("{\"epoch\":1,\"seconds\":0.5}\n{\"epoch\":2}\n"), one);
        assert_ne!(of("{\"epoch\":1,\"seconds\":0.6}\n"), one);
    }
}
