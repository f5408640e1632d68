//! What every rank did when, as a file for Perfetto or Chrome (`about:tracing`): a process a rank, a thread for each of
//! compute, send, receive and wait.

use std::path::Path;

use halograph_comm::{Comm, Message, Position, Span, Track};
use serde_json::{Value, json};

use crate::error::Result;
use crate::run::{self, write_file};
use crate::tags::Control;

const TRACKS: [(Track, &str); 4] =
    [(Track::Compute, "compute"), (Track::Send, "send"), (Track::Receive, "receive"), (Track::Wait, "wait")];

/// What a trace begins with.
const BEGINNING: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

/// Whether a trace may be written to `file`, in the place of another one if `overwrite`.
pub fn may_write(file: &Path, overwrite: bool) -> halograph_graph::error::Result<()> {
    run::may_write(file, overwrite, "a trace", &[BEGINNING])
}

/// Puts what all ranks have recorded into one file, which rank 0 writes.
pub(crate) fn gather(comm: &Comm, file: &Path) -> Result<()> {
    let events = Value::from(events(comm.rank(), &comm.hosts()[comm.rank()], &comm.take_spans()));
    let text = events.to_string();
    let all = comm.all_gather(Control::Trace.tag(), Message::of(text.as_bytes()))?;
    if comm.rank() > 0 {
        return Ok(());
    }
    let mut lists = Vec::new();
    for message in &all {
        let text = String::from_utf8_lossy(message.as_slice::<u8>()?);
        // Without its brackets a list can be joined to others.
        lists.push(text.trim_start_matches('[').trim_end_matches(']').to_string());
    }
    let joined = lists.join(",\n");
    let text = format!("{BEGINNING}\n{joined}\n]}}\n");
    Ok(write_file(file, text.as_bytes())?)
}

/// The spans of a rank as trace events.
fn events(rank: usize, host: &str, spans: &[Span]) -> Vec<Value> {
    let name = |what: &str, thread: usize, name: String| json!({"ph": "M", "name": what, "pid": rank, "tid": thread, "args": {"name": name}});
    let mut events = vec![name("process_name", 0, format!("rank {rank} ({host})"))];
    events.extend(TRACKS.iter().enumerate().map(|(i, (_, track))| name("thread_name", i, track.to_string())));
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    events.extend(spans.iter().map(|span| {
        let thread = TRACKS.iter().position(|(track, _)| *track == span.track);
        let (start, time) = (micros(span.start), micros(span.end.saturating_sub(span.start)));
        let Position { epoch, step, layer, chunk, phase } = span.position;
        let position = json!({"epoch": epoch, "step": step, "layer": layer, "chunk": chunk});
        json!({"ph": "X", "cat": phase, "name": span.name, "pid": rank, "tid": thread, "ts": start, "dur": time, "args": position})
    }));
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_become_events_of_their_rank_and_track() {
        let position = Position::new("features").epoch(7).step(2).layer(1).chunk(4);
        let span = Span { track: Track::Wait, name: "features".into(), position, start: 1500, end: 4000 };
        let events = events(2, "node", &[span]);
        assert_eq!(events.len(), 1 + TRACKS.len() + 1);
        assert_eq!(events[0]["args"]["name"], "rank 2 (node)");
        let last = events.last().unwrap();
        assert_eq!(
            (&last["pid"], &last["tid"], &last["ts"], &last["dur"]),
            (&2.into(), &3.into(), &1.5.into(), &2.5.into())
        );
        let args = json!({"epoch": 7, "step": 2, "layer": 1, "chunk": 4});
        assert_eq!((&last["cat"], &last["args"]), (&"features".into(), &args));
    }
}
