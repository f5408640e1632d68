//! The trace of a run: one epoch of it that is like the others.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use halograph_graph::error::{Error, Result};
use serde::Deserialize;

use super::read::read_text;

/// More spans than this are not drawn: the shortest go first.
const MOST_SPANS: usize = 6000;

/// What a span was spent on: the threads of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Track {
    Compute,
    Send,
    Receive,
    Wait,
}

const TRACKS: [Track; 4] = [Track::Compute, Track::Send, Track::Receive, Track::Wait];

/// Something that took time. Times are microseconds since the epoch began.
#[derive(Debug, Clone)]
pub(super) struct Span {
    pub rank: u64,
    pub track: Track,
    pub name: String,
    /// Where the rank was, or what the message was for.
    pub phase: String,
    pub epoch: u64,
    pub layer: u64,
    pub start: f64,
    pub end: f64,
}

/// One epoch of all ranks.
#[derive(Debug)]
pub(super) struct Traced {
    /// Which.
    pub epoch: u64,
    /// Of how many in the trace.
    pub epochs: usize,
    /// Microseconds from the first that began it to the last that ended it.
    pub length: f64,
    /// What ranks are called, by rank.
    pub ranks: BTreeMap<u64, String>,
    /// All that happened meanwhile, by when it began.
    pub spans: Vec<Span>,
    /// How many short ones are left out.
    pub left_out: usize,
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(rename = "traceEvents", borrow)]
    events: Vec<Event<'a>>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    ph: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    cat: Cow<'a, str>,
    pid: u64,
    tid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
struct Args {
    name: Option<String>,
    epoch: Option<u64>,
    layer: Option<u64>,
}

impl Traced {
    /// Reads the trace of a run on so many ranks.
    ///
    /// `usual`: the epochs that are as most are, one of which is taken if the trace has any.
    pub fn read(path: &Path, ranks: usize, usual: RangeInclusive<u64>) -> Result<Self> {
        let place = path.display();
        let help = "give the file that `halograph train --trace` wrote of this run";
        let bytes = read_text(path)?.ok_or_else(|| Error::input(&place, "is not there").help(help))?;
        let file: File = serde_json::from_slice(&bytes)
            .map_err(|e| Error::input(&place, format!("not a trace of halograph: {e}")).help(help))?;
        check(&file.events, ranks).map_err(|problem| Error::input(&place, problem).help(help))?;
        let none = "holds no epoch that was trained";
        pick(&file.events, &usual).ok_or_else(|| Error::input(&place, none).help(help))
    }
}

/// What makes the events no trace of such a run.
fn check(events: &[Event], ranks: usize) -> Result<(), String> {
    let found = events.iter().map(|event| event.pid.saturating_add(1)).max().unwrap_or(0);
    if found > 0 && found != ranks as u64 {
        return Err(format!("is of {found} ranks, and the run has {ranks}"));
    }
    for (k, event) in events.iter().enumerate() {
        let which = || format!("event {} ({:?})", k + 1, event.name);
        if event.ph != "X" {
            continue;
        }
        if event.tid as usize >= TRACKS.len() {
            return Err(format!("{} is on thread {}, not one of 0 to 3", which(), event.tid));
        }
        if event.args.epoch.is_none() {
            return Err(format!("{} tells no epoch", which()));
        }
        if event.ts < 0.0 || event.dur < 0.0 || !(event.ts + event.dur).is_finite() {
            return Err(format!("{} begins at {} and lasts {}", which(), event.ts, event.dur));
        }
    }
    Ok(())
}

fn is_training(event: &Event) -> bool {
    event.ph == "X" && event.tid == 0 && !matches!(&*event.cat, "evaluation" | "start")
}

/// When each epoch began and ended: computing tells, and the sums over ranks that come last.
fn windows(events: &[Event]) -> BTreeMap<u64, (f64, f64)> {
    let mut windows = BTreeMap::new();
    for event in events.iter().filter(|event| is_training(event)) {
        let window = windows.entry(event.args.epoch.unwrap_or(0)).or_insert((f64::INFINITY, 0.0_f64));
        *window = (window.0.min(event.ts), window.1.max(event.ts + event.dur));
    }
    let last = |event: &&Event| event.ph == "X" && event.tid == 3 && event.cat == "weights";
    for event in events.iter().filter(last) {
        if let Some(window) = event.args.epoch.and_then(|epoch| windows.get_mut(&epoch)) {
            window.1 = window.1.max(event.ts + event.dur);
        }
    }
    windows
}

/// The epoch of median length among the usual ones, the first left aside if there are others.
fn steady(windows: &BTreeMap<u64, (f64, f64)>, usual: &RangeInclusive<u64>) -> Option<(u64, (f64, f64))> {
    let mut epochs: Vec<_> = windows.iter().skip(usize::from(windows.len() > 1)).collect();
    if epochs.iter().any(|(epoch, _)| usual.contains(epoch)) {
        epochs.retain(|(epoch, _)| usual.contains(epoch));
    }
    epochs.sort_by(|a, b| (a.1.1 - a.1.0).total_cmp(&(b.1.1 - b.1.0)));
    epochs.get(epochs.len().checked_sub(1)? / 2).map(|(epoch, window)| (**epoch, **window))
}

fn pick(events: &[Event], usual: &RangeInclusive<u64>) -> Option<Traced> {
    let windows = windows(events);
    let (epoch, (start, end)) = steady(&windows, usual)?;
    let during = |event: &&Event| event.ph == "X" && event.ts <= end && event.ts + event.dur >= start;
    let span = |event: &Event| Span {
        rank: event.pid,
        track: TRACKS[event.tid as usize],
        name: event.name.to_string(),
        phase: event.cat.to_string(),
        epoch: event.args.epoch.unwrap_or(0),
        layer: event.args.layer.unwrap_or(0),
        start: event.ts - start,
        end: event.ts + event.dur - start,
    };
    let mut spans: Vec<Span> = events.iter().filter(during).map(span).collect();
    let left_out = spans.len().saturating_sub(MOST_SPANS);
    spans.sort_by(|a, b| (b.end - b.start).total_cmp(&(a.end - a.start)));
    spans.truncate(MOST_SPANS);
    spans.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut ranks: BTreeMap<u64, String> =
        events.iter().map(|event| (event.pid, format!("rank {}", event.pid))).collect();
    for event in events.iter().filter(|event| event.ph == "M" && event.name == "process_name") {
        ranks.extend(event.args.name.clone().map(|name| (event.pid, name)));
    }
    Some(Traced { epoch, epochs: windows.len(), length: end - start, ranks, spans, left_out })
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;

    use serde_json::{Value, json};

    use super::*;

    fn event(rank: u64, track: usize, cat: &str, epoch: u64, (ts, dur): (f64, f64)) -> Value {
        let args = json!({"epoch": epoch, "layer": 0});
        json!({"ph": "X", "name": "work", "cat": cat, "pid": rank, "tid": track, "ts": ts, "dur": dur, "args": args})
    }

    /// Two ranks, epochs 1 to `epochs`; epoch e takes 100 + e microseconds, then 50 of evaluation follow.
    pub fn example(epochs: u64) -> Value {
        let name = |rank| json!({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": {"name": format!("rank {rank} (<host>)")}});
        let mut events = vec![name(0), name(1)];
        for (rank, epoch) in (0..2).flat_map(|rank| (1..=epochs).map(move |epoch| (rank, epoch))) {
            let at = 1000.0 * epoch as f64;
            events.push(event(rank, 0, "forward", epoch, (at, 40.0)));
            events.push(event(rank, 2, "features", epoch, (at + 10.0, 50.0)));
            events.push(event(rank, 1, "features", epoch, (at + 10.0, 1.0)));
            events.push(event(rank, 3, "features", epoch, (at + 40.0, 20.0)));
            events.push(event(rank, 0, "backward", epoch, (at + 60.0, 30.0)));
            events.push(event(rank, 3, "weights", epoch, (at + 90.0, 10.0 + epoch as f64)));
            events.push(event(rank, 0, "evaluation", epoch, (at + 500.0, 50.0)));
        }
        json!({"displayTimeUnit": "ms", "traceEvents": events})
    }

    fn read(text: &str, ranks: usize) -> Result<Traced> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        fs::write(&path, text).unwrap();
        Traced::read(&path, ranks, 1..=u64::MAX)
    }

    #[test]
    fn an_epoch_of_median_length_is_taken_and_evaluation_is_none() {
        let traced = read(&example(6).to_string(), 2).unwrap();
        assert_eq!((traced.epoch, traced.epochs, traced.length), (4, 6, 104.0));
        assert_eq!(traced.spans.len(), 12);
        assert!(traced.spans.iter().all(|span| span.epoch == 4 && span.phase != "evaluation"));
        assert_eq!(traced.ranks[&1], "rank 1 (<host>)");
        assert_eq!(read(&example(1).to_string(), 2).unwrap().epoch, 1);
    }

    #[test]
    fn the_shortest_of_too_many_spans_are_left_out() {
        let mut trace = example(1);
        let events = trace["traceEvents"].as_array_mut().unwrap();
        (0..MOST_SPANS).for_each(|k| events.push(event(0, 1, "features", 1, (1000.0, 1e-3 * k as f64))));
        let traced = read(&trace.to_string(), 2).unwrap();
        assert_eq!((traced.spans.len(), traced.left_out), (MOST_SPANS, 12));
        assert!(traced.spans.iter().any(|span| span.phase == "backward"));
    }

    #[test]
    fn what_is_no_trace_of_this_run_is_named() {
        let cases = [
            ("{".to_string(), "not a trace of halograph"),
            ("{}".to_string(), "missing field `traceEvents`"),
            (json!({"traceEvents": []}).to_string(), "no epoch that was trained"),
            (example(2).to_string().replace("\"epoch\":2", "\"e\":2"), "tells no epoch"),
            (example(2).to_string().replace("\"pid\":1", "\"pid\":7"), "of 8 ranks, and the run has 2"),
            (example(2).to_string().replace("\"tid\":3", "\"tid\":9"), "on thread 9"),
            (example(2).to_string().replace("\"dur\":40.0", "\"dur\":-1"), "lasts -1"),
        ];
        for (text, words) in cases {
            let error = read(&text, 2).unwrap_err().to_string();
            assert!(error.contains("t.json: ") && error.contains(words) && error.contains("help"), "{error}");
        }
    }
}
