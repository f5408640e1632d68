//! The HTML page: one self-contained file without scripts.

use std::fmt::Write;

use super::batches::batches;
use super::chart::{Chart, Series};
use super::classes::classes;
use super::exchange::{partition, times, traffic};
use super::pipeline::pipeline;
use super::read::{EpochRecord, RunData};
use super::results::results;
use super::scale::{MAX_POINTS, Point, thin};
use super::settings::settings;
use super::spans::TracedEpoch;
use super::table::marked_name;
use super::text::{escape, json_in_script};
use super::timeline;

/// Colours and classes of SVG drawings, for light and dark mode.
pub(super) const THEME: &str = include_str!("theme.css");
const PAGE: &str = include_str!("page.css");
/// Layers drawn at most.
const MAX_LAYERS: usize = 6;
/// Runs named in the title at most.
const MAX_NAMES: usize = 3;

/// A value of an epoch and its name.
type Value = (&'static str, fn(&EpochRecord) -> Option<f64>);
const LOSSES: [Value; 2] =
    [("Training loss", |record| Some(record.loss)), ("Validation loss", |record| record.val_loss)];
const SCORES: [Value; 3] = [
    ("Training", |record| record.train),
    ("Validation", |record| record.val),
    ("Test", |record| record.test),
];
/// Values of an epoch, one per layer.
type LayerValues = fn(&EpochRecord) -> &[Option<f64>];
const STALENESS: [(&str, LayerValues); 2] =
    [("Features", |record| &record.staleness.features), ("Gradients", |record| &record.staleness.gradients)];
const SECONDS: Value = ("Epoch time (s)", |record| Some(record.seconds));
const RATE: Value = ("Learning rate", |record| Some(record.lr));

/// Returns the page.
pub(super) fn html(runs: &[RunData]) -> String {
    let title = escape(&title(runs));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} – halograph report</title>\n<style>\n{THEME}{PAGE}</style></head><body>\n\
         <h1>{title}</h1><p>{}</p>\n{}",
        escape(&subtitle(runs)),
        results(runs)
    );
    notes(runs, &mut page);
    let legend = legend(runs);
    let mut section = |title: &str, text: &str, with_legend: bool, body: Option<String>| {
        let Some(body) = body.filter(|body| !body.is_empty()) else { return };
        let text = if text.is_empty() { String::new() } else { format!("<p>{text}</p>\n") };
        let legend = if with_legend { legend.as_str() } else { "" };
        let _ = write!(page, "<section><h2>{title}</h2>\n{text}{legend}{body}</section>\n");
    };
    let rate = (!rate_is_constant(runs)).then_some(RATE);
    section("Loss", "", true, charts(runs, LOSSES.into_iter().chain(rate)));
    section(&scores_title(runs), SCORES_TEXT, true, charts(runs, SCORES.into_iter()));
    section("Classes", CLASSES_TEXT, false, classes(runs));
    section("Epoch time", SECONDS_TEXT, true, charts(runs, [SECONDS].into_iter()));
    section("Compute and wait time", TIMES_TEXT, false, times(runs));
    section("Pipeline", PIPELINE_TEXT, false, pipeline(runs));
    section("Mini-batches", BATCHES_TEXT, false, batches(runs));
    section("Timeline of one epoch", &timeline_text(runs), false, timelines(runs));
    section("Communication volume", TRAFFIC_TEXT, false, traffic(runs));
    section("Staleness error", STALENESS_TEXT, true, staleness(runs));
    section("Partition", PARTITION_TEXT, false, partition(runs));
    section("Settings", SETTINGS_TEXT, false, Some(settings(runs)));
    runs.iter().enumerate().for_each(|(k, run)| page += &data(k, run));
    page + "</body></html>\n"
}

const SCORES_TEXT: &str = "Fractions, at epochs with an evaluation. A circle marks the best validation epoch, whose weights are saved.";
const CLASSES_TEXT: &str = "Scores of single classes with the saved weights, on test nodes or, without any, on validation nodes. \
     In the confusion matrix, rows are true classes and columns predicted ones.";
const SECONDS_TEXT: &str = "Forward, backward and optimiser step, without evaluation and checkpoints.";
const TIMES_TEXT: &str = "Sum over all epochs (after a resume: since then), mean over ranks. Thick bar: compute, then in red exposed communication (waiting). \
     Thin bar: transfer of boundary rows that overlaps compute. Imbalance: compute time of the slowest rank / mean.";
const PIPELINE_TEXT: &str = "Stage groups of strategies layers and hybrid: sums over all epochs (after a resume: since then), mean over the ranks of a \
     group. Bar: compute, then the bubble (light red: waits for the first chunk of a step, for its first gradients, and for \
     other stage groups after the last chunk), then exposed communication (red: all other waits). Shares are of compute and \
     waiting, mean over ranks. Formula: the bubble if all chunks took equally long in all stage groups. Imbalance: compute time \
     of the slowest stage group / mean − 1.";
const BATCHES_TEXT: &str = "Means per batch (after a resume: since then). Thick bar: gathering of input rows and computation, then in red exposed \
     sampling (waiting). Thin bar: sampling in the background, summed over threads.";
const TRAFFIC_TEXT: &str = "Payload sent by all ranks, by purpose.";
const STALENESS_TEXT: &str =
    "Relative error of the stale rows that were read, against fresh ones. Layers are numbered from 0.";
const PARTITION_TEXT: &str = "What each rank owns, and the remote rows that it reads (halo).";
const SETTINGS_TEXT: &str = "Settings without effect in a run are left out.";

/// Explains the lanes that occur.
fn timeline_text(runs: &[RunData]) -> String {
    let traced = || runs.iter().filter_map(|run| run.traced.as_ref());
    let transfers = "Lane transfer: messages. Those below compute are overlapped.";
    let samples = "Lane sample: coming mini-batches are sampled and, on several ranks, fetched.";
    let lower = [
        (traced().any(TracedEpoch::has_transfers), transfers),
        (traced().any(TracedEpoch::has_samples), samples),
    ];
    let lower: Vec<&str> = lower.into_iter().filter_map(|(occurs, text)| occurs.then_some(text)).collect();
    format!("Upper lane: compute, with waiting in red. {} Tooltips show names and times.", lower.join(" "))
}

fn title(runs: &[RunData]) -> String {
    let names: Vec<&str> = runs.iter().take(MAX_NAMES).map(|run| run.name.as_str()).collect();
    let more = runs.len() - names.len();
    if more == 0 { names.join(", ") } else { format!("{} and {more} more", names.join(", ")) }
}

fn subtitle(runs: &[RunData]) -> String {
    let dataset =
        |run: &RunData| run.setting("dataset").and_then(|name| name.as_str()).unwrap_or("?").to_string();
    let mut datasets: Vec<String> = runs.iter().map(dataset).collect();
    datasets.sort_unstable();
    datasets.dedup();
    let count = if runs.len() == 1 { "1 run".to_string() } else { format!("{} runs", runs.len()) };
    format!("{count} of halograph on {}", datasets.join(", "))
}

/// Adds what readers must know about incomplete data.
fn notes(runs: &[RunData], page: &mut String) {
    for run in runs {
        let name = escape(&run.name);
        if run.summary.is_none() {
            let _ = writeln!(page, "<p>{name} is in progress or was killed: it has no summary.</p>");
        }
        if run.has_partial_line {
            let _ =
                writeln!(page, "<p>{name}: the last line of metrics.jsonl is incomplete and left out.</p>");
        }
        if run.epochs.len() > MAX_POINTS {
            let _ = writeln!(
                page,
                "<p>{name} has {} epochs. Its charts show about {MAX_POINTS} points: minimum and maximum of equally long \
                 intervals.</p>",
                run.epochs.len()
            );
        }
        if run.traced.as_ref().is_some_and(|traced| !traced.is_identified) {
            let _ = writeln!(
                page,
                "<p>{name}: the trace does not say which run it was recorded from, because an older version wrote it. \
                 Only its number of ranks was checked.</p>"
            );
        }
    }
}

/// Returns the names of the runs by colour; nothing for one run.
fn legend(runs: &[RunData]) -> String {
    if runs.len() < 2 {
        return String::new();
    }
    let items = runs.iter().enumerate();
    let items: String = items.map(|(k, run)| format!("<li>{}</li>", marked_name(k, run))).collect();
    format!("<ul class=\"legend\">{items}</ul>\n")
}

fn scores_title(runs: &[RunData]) -> String {
    let mut metrics: Vec<&str> = runs.iter().filter_map(|run| run.metric.as_deref()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    if metrics.is_empty() { "Scores".into() } else { format!("Scores: {}", escape(&metrics.join(", "))) }
}

fn rate_is_constant(runs: &[RunData]) -> bool {
    runs.iter().all(|run| run.epochs.windows(2).all(|pair| pair[0].record.lr == pair[1].record.lr))
}

fn points(run: &RunData, value: impl Fn(&EpochRecord) -> Option<f64>) -> Vec<Point> {
    run.epochs.iter().filter_map(|line| Some((line.record.epoch, value(&line.record)?))).collect()
}

/// Returns a chart for each value that any run has.
fn charts(runs: &[RunData], values: impl Iterator<Item = Value>) -> Option<String> {
    let charts = values.filter_map(|(title, value)| chart(runs, title, value));
    Some(charts.collect::<String>()).filter(|charts| !charts.is_empty()).map(in_grid)
}

fn in_grid(figures: String) -> String {
    format!("<div class=\"grid-of\">\n{figures}</div>\n")
}

fn chart(runs: &[RunData], title: &str, value: impl Fn(&EpochRecord) -> Option<f64>) -> Option<String> {
    let marks = SCORES.iter().any(|(name, _)| *name == title);
    let series = runs.iter().enumerate().map(|(k, run)| Series {
        run: k,
        name: &run.name,
        points: points(run, &value),
        best: run.summary_value("best_epoch").and_then(|epoch| epoch.as_u64()).filter(|_| marks),
    });
    Chart { title, series: series.collect() }.to_html()
}

/// Returns the timeline of every run that has a trace.
fn timelines(runs: &[RunData]) -> Option<String> {
    let traced = runs.iter().enumerate().filter_map(|(k, run)| Some((k, run, run.traced.as_ref()?)));
    let figures = traced.map(|(k, run, traced)| {
        let name = if runs.len() > 1 { marked_name(k, run) } else { String::new() };
        let caption = escape(&timeline::caption(traced));
        let svg = timeline::inline(traced);
        format!("<figure><figcaption>{name}<small>{caption}</small></figcaption><div class=\"wide\">{svg}</div></figure>\n")
    });
    Some(figures.collect())
}

/// Returns a chart for each layer with stale rows.
fn staleness(runs: &[RunData]) -> Option<String> {
    let mut html = String::new();
    for (kind, values) in STALENESS {
        let records = || runs.iter().flat_map(|run| &run.epochs).map(|line| &line.record);
        let layers = records().map(|record| values(record).len()).max().unwrap_or(0);
        let is_measured =
            |l: &usize| records().any(|record| values(record).get(*l).is_some_and(Option::is_some));
        let layers: Vec<usize> = (0..layers).filter(is_measured).collect();
        let shown = spread(&layers, MAX_LAYERS);
        if shown.len() < layers.len() {
            let _ = writeln!(html, "<p>{kind}: {} of {} layers are shown.</p>", shown.len(), layers.len());
        }
        let charts = shown.into_iter().filter_map(|l| {
            chart(runs, &format!("{kind}, layer {l}"), |record| *values(record).get(l).unwrap_or(&None))
        });
        let charts: String = charts.collect();
        if !charts.is_empty() {
            html += &in_grid(charts);
        }
    }
    (!html.is_empty()).then_some(html)
}

/// Returns at most `most` of the layers, evenly spaced, with the first and the last.
fn spread(layers: &[usize], most: usize) -> Vec<usize> {
    if layers.len() <= most {
        return layers.to_vec();
    }
    (0..most).map(|k| layers[k * (layers.len() - 1) / (most - 1)]).collect()
}

/// Returns the lines of `metrics.jsonl` as a JSON element; of a long run, those that the loss chart shows.
fn data(k: usize, run: &RunData) -> String {
    let losses = thin(&points(run, |record| Some(record.loss)), MAX_POINTS);
    let mut kept = losses.iter().map(|point| point.0).peekable();
    let lines = run.epochs.iter().filter(|line| kept.next_if_eq(&line.record.epoch).is_some());
    let lines: Vec<&str> = lines.map(|line| line.text.as_str()).collect();
    let json = json_in_script(&format!("[\n{}\n]", lines.join(",\n")));
    format!("<script type=\"application/json\" id=\"metrics-{k}\">{json}</script>\n")
}
