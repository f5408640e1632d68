//! Reads a trace and picks one epoch that is typical of the run.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use halograph_graph::error::{Error, Result};
use serde::Deserialize;

use super::read::read_file;
use crate::trace::{SAMPLING, TracedRun};

/// Spans drawn at most: the shortest are left out.
const MAX_SPANS: usize = 6000;
/// Optimiser steps drawn at most: those in the middle of the epoch.
const MAX_STEPS: usize = 8;

/// The thread of a rank that a span is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Track {
    Compute,
    Send,
    Receive,
    Wait,
    /// Any thread that samples mini-batches.
    Sample,
}

const TRACKS: [Track; 4] = [Track::Compute, Track::Send, Track::Receive, Track::Wait];

/// A span of a trace. Times are microseconds since the start of the epoch.
#[derive(Debug, Clone)]
pub(super) struct TraceSpan {
    pub rank: u64,
    pub track: Track,
    pub name: String,
    /// Phase of the rank, or purpose of the message.
    pub phase: String,
    pub epoch: u64,
    /// Optimiser step of the epoch, counted from 0.
    pub step: u64,
    /// Chunk of the graph.
    pub chunk: u64,
    /// Absent if the span belongs to no layer.
    pub layer: Option<u64>,
    pub start: f64,
    pub end: f64,
}

/// The optimiser steps of a [`TracedEpoch`] that are drawn, counted from 1: mini-batches, or steps on chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TracedBatches {
    pub first: u64,
    pub last: u64,
    /// Steps of the epoch.
    pub all: usize,
}

/// One epoch of all ranks.
#[derive(Debug)]
pub(super) struct TracedEpoch {
    /// Number of the epoch.
    pub epoch: u64,
    /// Epochs in the trace.
    pub epochs: usize,
    /// Which part of the epoch is drawn, if it has several optimiser steps.
    pub batches: Option<TracedBatches>,
    /// Microseconds from the first start to the last end of any rank.
    pub length: f64,
    /// Names of the ranks.
    pub ranks: BTreeMap<u64, String>,
    /// Spans that overlap the epoch, by start.
    pub spans: Vec<TraceSpan>,
    /// Whether ranks computed several chunks of the graph.
    pub has_chunks: bool,
    /// Short spans that are left out.
    pub left_out: usize,
    /// Whether the trace says which run it was recorded from. Traces of older versions do not.
    pub is_identified: bool,
}

impl TracedEpoch {
    /// Returns whether mini-batches were sampled.
    pub fn has_samples(&self) -> bool {
        self.spans.iter().any(|span| span.track == Track::Sample)
    }

    /// Returns whether messages were sent or received.
    pub fn has_transfers(&self) -> bool {
        self.spans.iter().any(|span| matches!(span.track, Track::Send | Track::Receive))
    }
}

/// The run that a trace must belong to.
pub(super) struct ExpectedRun {
    /// Identity; `None` if the run has no complete epoch.
    pub run: Option<TracedRun>,
    /// Number of ranks.
    pub ranks: usize,
    /// Epochs to choose from, if the trace contains any of them.
    pub typical: RangeInclusive<u64>,
}

#[derive(Deserialize)]
struct TraceFile<'a> {
    #[serde(rename = "traceEvents", borrow)]
    events: Vec<TraceEvent<'a>>,
    #[serde(rename = "otherData", default)]
    other_data: OtherData,
}

#[derive(Default, Deserialize)]
struct OtherData {
    run: Option<TracedRun>,
}

#[derive(Deserialize)]
struct TraceEvent<'a> {
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
    args: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    name: Option<String>,
    epoch: Option<u64>,
    #[serde(default)]
    step: u64,
    #[serde(default)]
    chunk: u64,
    layer: Option<u64>,
}

impl TracedEpoch {
    /// Reads the trace in `path` and picks an epoch. Refuses the trace of another run.
    pub fn read(path: &Path, expected: &ExpectedRun) -> Result<Self> {
        let refuse = |problem: String| {
            let help = "give the file that `halograph train --trace` wrote for this run";
            Error::input(path.display(), problem).help(help)
        };
        let bytes = read_file(path)?.ok_or_else(|| refuse("does not exist".into()))?;
        let file: TraceFile =
            serde_json::from_slice(&bytes).map_err(|e| refuse(format!("not a trace of halograph: {e}")))?;
        check_ranks(&file.events, expected.ranks).map_err(refuse)?;
        check_events(&file.events).map_err(refuse)?;
        check_run(file.other_data.run.as_ref(), expected.run.as_ref()).map_err(refuse)?;
        let epoch = pick(&file.events, &expected.typical);
        let mut epoch = epoch.ok_or_else(|| refuse("contains no training epoch".into()))?;
        epoch.is_identified = file.other_data.run.is_some();
        Ok(epoch)
    }
}

fn check_ranks(events: &[TraceEvent], ranks: usize) -> Result<(), String> {
    let found = events.iter().map(|event| event.pid.saturating_add(1)).max().unwrap_or(0);
    if found > 0 && found != ranks as u64 {
        return Err(format!("a trace of {found} ranks, but the run has {ranks}"));
    }
    Ok(())
}

/// Returns the track of an event: threads after the common ones are those that sample.
fn track(event: &TraceEvent) -> Option<Track> {
    let is_sampling = event.cat == SAMPLING;
    TRACKS.get(event.tid as usize).copied().or(is_sampling.then_some(Track::Sample))
}

fn check_events(events: &[TraceEvent]) -> Result<(), String> {
    for (k, event) in events.iter().enumerate().filter(|(_, event)| event.ph == "X") {
        let which = || format!("event {} ({:?})", k + 1, event.name);
        if track(event).is_none() {
            return Err(format!("{} is on thread {}, not one of 0 to 3", which(), event.tid));
        }
        if event.args.epoch.is_none() {
            return Err(format!("{} has no epoch", which()));
        }
        if event.ts < 0.0 || event.dur < 0.0 || !(event.ts + event.dur).is_finite() {
            return Err(format!("{} starts at {} and lasts {}", which(), event.ts, event.dur));
        }
    }
    Ok(())
}

/// Refuses a trace that identifies another run; one without identity passes.
fn check_run(traced: Option<&TracedRun>, expected: Option<&TracedRun>) -> Result<(), String> {
    match traced {
        Some(traced) if expected.is_none_or(|run| run.id != traced.id) => {
            Err(format!("the trace of another run, whose folder was {:?}", traced.path))
        }
        _ => Ok(()),
    }
}

/// Returns whether an event is computation of a step, or a wait for its mini-batch. The forward that fills the history of
/// chunks before the first step is in epoch 0.
fn is_training(event: &TraceEvent) -> bool {
    let is_step = match event.tid {
        0 => !matches!(&*event.cat, "evaluation" | "start"),
        3 => event.cat == "batch",
        _ => false,
    };
    event.ph == "X" && is_step && event.args.epoch != Some(0)
}

/// Returns start and end of every epoch: from its first compute span to its last compute span or gradient all-reduce.
fn windows(events: &[TraceEvent]) -> BTreeMap<u64, (f64, f64)> {
    windows_by(events, |event| event.args.epoch)
}

/// Returns start and end of every optimiser step of an epoch.
fn step_windows(events: &[TraceEvent], epoch: u64) -> BTreeMap<u64, (f64, f64)> {
    windows_by(events, |event| (event.args.epoch == Some(epoch)).then_some(event.args.step))
}

fn windows_by(
    events: &[TraceEvent],
    number: impl Fn(&TraceEvent) -> Option<u64>,
) -> BTreeMap<u64, (f64, f64)> {
    let mut windows = BTreeMap::new();
    for event in events.iter().filter(|event| is_training(event)) {
        let Some(number) = number(event) else { continue };
        let window = windows.entry(number).or_insert((f64::INFINITY, 0.0_f64));
        *window = (window.0.min(event.ts), window.1.max(event.ts + event.dur));
    }
    let is_gradient_wait = |event: &&TraceEvent| event.ph == "X" && event.tid == 3 && event.cat == "weights";
    for event in events.iter().filter(is_gradient_wait) {
        if let Some(window) = number(event).and_then(|number| windows.get_mut(&number)) {
            window.1 = window.1.max(event.ts + event.dur);
        }
    }
    windows
}

/// Returns the batches of an epoch that are drawn, with their start and end; `None` if it has one optimiser step.
fn middle_batches(events: &[TraceEvent], epoch: u64) -> Option<(TracedBatches, (f64, f64))> {
    let steps = step_windows(events, epoch);
    let all = steps.len();
    let drawn: Vec<_> = steps.into_iter().skip(all.saturating_sub(MAX_STEPS) / 2).take(MAX_STEPS).collect();
    let (first, last) = (drawn.first()?, drawn.last()?);
    let batches = TracedBatches { first: first.0 + 1, last: last.0 + 1, all };
    (all > 1).then_some((batches, (first.1.0, last.1.1)))
}

/// Returns the epoch of median length among the typical ones; never the first, unless it is the only one.
fn median_epoch(
    windows: &BTreeMap<u64, (f64, f64)>,
    typical: &RangeInclusive<u64>,
) -> Option<(u64, (f64, f64))> {
    let mut epochs: Vec<_> = windows.iter().skip(usize::from(windows.len() > 1)).collect();
    if epochs.iter().any(|(epoch, _)| typical.contains(epoch)) {
        epochs.retain(|(epoch, _)| typical.contains(epoch));
    }
    epochs.sort_by(|a, b| (a.1.1 - a.1.0).total_cmp(&(b.1.1 - b.1.0)));
    epochs.get(epochs.len().checked_sub(1)? / 2).map(|(epoch, window)| (**epoch, **window))
}

fn pick(events: &[TraceEvent], typical: &RangeInclusive<u64>) -> Option<TracedEpoch> {
    let windows = windows(events);
    let (epoch, whole) = median_epoch(&windows, typical)?;
    let (batches, (start, end)) = match middle_batches(events, epoch) {
        Some((batches, window)) => (Some(batches), window),
        None => (None, whole),
    };
    let during = |event: &&TraceEvent| event.ph == "X" && event.ts <= end && event.ts + event.dur >= start;
    let span = |event: &TraceEvent| TraceSpan {
        rank: event.pid,
        track: track(event).expect("checked by check_events"),
        name: event.name.to_string(),
        phase: event.cat.to_string(),
        epoch: event.args.epoch.unwrap_or(0),
        step: event.args.step,
        chunk: event.args.chunk,
        // Older traces wrote u16::MAX where there was no layer.
        layer: event.args.layer.filter(|&layer| layer != u64::from(u16::MAX)),
        start: event.ts - start,
        end: event.ts + event.dur - start,
    };
    let mut spans: Vec<TraceSpan> = events.iter().filter(during).map(span).collect();
    let left_out = spans.len().saturating_sub(MAX_SPANS);
    spans.sort_by(|a, b| (b.end - b.start).total_cmp(&(a.end - a.start)));
    spans.truncate(MAX_SPANS);
    spans.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut ranks: BTreeMap<u64, String> =
        events.iter().map(|event| (event.pid, format!("rank {}", event.pid))).collect();
    for event in events.iter().filter(|event| event.ph == "M" && event.name == "process_name") {
        ranks.extend(event.args.name.clone().map(|name| (event.pid, name)));
    }
    let (epochs, length) = (windows.len(), end - start);
    let has_chunks = spans.iter().any(|span| span.chunk > 0);
    let is_identified = false;
    Some(TracedEpoch { epoch, epochs, batches, length, ranks, spans, has_chunks, left_out, is_identified })
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

    /// A trace of two ranks without identity: epoch e of `epochs` takes 100 + e microseconds, its evaluation 50.
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

    /// A trace of one process: epochs of `steps` batches, each sampled by one of two threads while the one before is
    /// computed. A batch waits 1, gathers 9, and computes 50 + 40 microseconds.
    pub fn sampled(epochs: u64, steps: u64) -> Value {
        let mut events = Vec::new();
        for (epoch, step) in (1..=epochs).flat_map(|epoch| (0..steps).map(move |step| (epoch, step))) {
            let at = 10_000.0 * epoch as f64 + 100.0 * step as f64;
            let mut add = |track, name: &str, cat, time| {
                let mut event = event(0, track, cat, epoch, time);
                (event["name"], event["args"]["step"]) = (name.into(), step.into());
                events.push(event);
            };
            add(4 + step as usize % 2, "batch", "sampling", (at - 150.0, 149.0));
            add(3, "batch", "batch", (at, 1.0));
            add(0, "gather", "gather", (at + 1.0, 9.0));
            add(0, "forward", "forward", (at + 10.0, 50.0));
            add(0, "backward", "backward", (at + 60.0, 40.0));
        }
        json!({"displayTimeUnit": "ms", "traceEvents": events})
    }

    /// Reads a trace as that of a run on two ranks.
    pub fn read(text: &str) -> Result<TracedEpoch> {
        read_ranks(text, 2)
    }

    /// Reads a trace as that of a run on so many ranks.
    pub fn read_ranks(text: &str, ranks: usize) -> Result<TracedEpoch> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        fs::write(&path, text).unwrap();
        let run = Some(TracedRun { id: "this".into(), path: "runs/this".into() });
        TracedEpoch::read(&path, &ExpectedRun { run, ranks, typical: 1..=u64::MAX })
    }

    #[test]
    fn picks_an_epoch_of_median_length_without_its_evaluation() {
        let traced = read(&example(6).to_string()).unwrap();
        assert_eq!((traced.epoch, traced.epochs, traced.length), (4, 6, 104.0));
        assert_eq!(traced.spans.len(), 12);
        assert!(traced.spans.iter().all(|span| span.epoch == 4 && span.phase != "evaluation"));
        assert_eq!(traced.ranks[&1], "rank 1 (<host>)");
        assert_eq!(read(&example(1).to_string()).unwrap().epoch, 1);
    }

    #[test]
    fn filling_the_history_of_chunks_is_no_epoch() {
        let mut trace = example(3);
        trace["traceEvents"].as_array_mut().unwrap().push(event(0, 0, "forward", 0, (500.0, 102.0)));
        let traced = read(&trace.to_string()).unwrap();
        assert_eq!((traced.epoch, traced.epochs), (2, 3));
    }

    #[test]
    fn picks_the_batches_in_the_middle_of_a_long_epoch() {
        let traced = read_ranks(&sampled(3, 20).to_string(), 1).unwrap();
        assert_eq!(traced.batches, Some(TracedBatches { first: 7, last: 14, all: 20 }));
        assert_eq!((traced.epoch, traced.length), (2, 800.0));
        assert!(traced.has_samples());
        let computed: Vec<u64> =
            traced.spans.iter().filter(|span| span.phase == "gather").map(|span| span.step).collect();
        assert_eq!(computed, (6..14).collect::<Vec<_>>());
        let traced = read_ranks(&sampled(1, 3).to_string(), 1).unwrap();
        assert_eq!(traced.batches, Some(TracedBatches { first: 1, last: 3, all: 3 }));
        assert_eq!(read(&example(2).to_string()).unwrap().batches, None);
    }

    #[test]
    fn leaves_out_the_shortest_of_too_many_spans() {
        let mut trace = example(1);
        let events = trace["traceEvents"].as_array_mut().unwrap();
        (0..MAX_SPANS).for_each(|k| events.push(event(0, 1, "features", 1, (1000.0, 1e-3 * k as f64))));
        let traced = read(&trace.to_string()).unwrap();
        assert_eq!((traced.spans.len(), traced.left_out), (MAX_SPANS, 12));
        assert!(traced.spans.iter().any(|span| span.phase == "backward"));
    }

    #[test]
    fn old_traces_have_no_layer_65535() {
        let trace = example(1).to_string().replace("\"layer\":0", "\"layer\":65535");
        assert!(read(&trace).unwrap().spans.iter().all(|span| span.layer.is_none()));
        assert_eq!(read(&example(1).to_string()).unwrap().spans[0].layer, Some(0));
    }

    #[test]
    fn refuses_the_trace_of_another_run() {
        let mut trace = example(2);
        assert!(!read(&trace.to_string()).unwrap().is_identified, "as older versions wrote it");
        trace["otherData"] = json!({"run": null});
        assert!(!read(&trace.to_string()).unwrap().is_identified, "no complete epoch");
        trace["otherData"] = json!({"run": {"id": "this", "path": "moved"}});
        assert!(read(&trace.to_string()).unwrap().is_identified);
        trace["otherData"] = json!({"run": {"id": "other", "path": "runs/other"}});
        let error = read(&trace.to_string()).unwrap_err().to_string();
        assert!(
            error.contains("t.json: the trace of another run, whose folder was \"runs/other\""),
            "{error}"
        );
    }

    #[test]
    fn refuses_files_that_are_no_trace_of_the_run() {
        let cases = [
            ("{".to_string(), "not a trace of halograph"),
            ("{}".to_string(), "missing field `traceEvents`"),
            (json!({"traceEvents": []}).to_string(), "no training epoch"),
            (example(2).to_string().replace("\"epoch\":2", "\"e\":2"), "has no epoch"),
            (example(2).to_string().replace("\"pid\":1", "\"pid\":7"), "8 ranks, but the run has 2"),
            (example(2).to_string().replace("\"tid\":3", "\"tid\":9"), "on thread 9"),
            (example(2).to_string().replace("\"dur\":40.0", "\"dur\":-1"), "lasts -1"),
        ];
        for (text, words) in cases {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains("t.json: ") && error.contains(words) && error.contains("help"), "{error}");
        }
    }
}
