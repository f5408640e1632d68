//! The page: one file with everything in it, no script and nothing from elsewhere.

use std::fmt::Write;

use super::chart::{Chart, Line};
use super::read::{Record, RunData};
use super::scale::{MOST_POINTS, Point, thin};
use super::tables::{chip, parts, results, settings, times, traffic};
use super::text::{escape, json_in_script};
use super::timeline;

/// Colours and marks of pictures, by light and by dark.
pub(super) const LOOK: &str = include_str!("look.css");
const PAGE: &str = include_str!("page.css");
/// More layers than this are not drawn.
const MOST_LAYERS: usize = 6;

/// A curve: what it is called, and its value in an epoch.
type Curve = (&'static str, fn(&Record) -> Option<f64>);
const LOSSES: [Curve; 2] =
    [("Training loss", |record| Some(record.loss)), ("Validation loss", |record| record.val_loss)];
const SCORES: [Curve; 3] = [
    ("Training", |record| record.train),
    ("Validation", |record| record.val),
    ("Test", |record| record.test),
];
/// Values of an epoch, one a layer.
type Layers = fn(&Record) -> &[Option<f64>];
const STALE: [(&str, Layers); 2] =
    [("Features", |record| &record.staleness.features), ("Gradients", |record| &record.staleness.gradients)];
const SECONDS: Curve = ("Seconds an epoch", |record| Some(record.seconds));
const RATE: Curve = ("Learning rate", |record| Some(record.lr));

/// The whole page.
pub(super) fn html(runs: &[RunData]) -> String {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let title = escape(&names.join(", "));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title} – halograph report</title>\n<style>\n{LOOK}{PAGE}</style></head><body>\n\
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
    section("Loss", "", true, curves(runs, LOSSES.into_iter().chain(rate)));
    section(&scores_title(runs), SCORES_TEXT, true, curves(runs, SCORES.into_iter()));
    section("Time of an epoch", SECONDS_TEXT, true, curves(runs, [SECONDS].into_iter()));
    section("Computing and waiting", TIMES_TEXT, false, times(runs));
    section("One epoch, rank by rank", TIMELINE_TEXT, false, timelines(runs));
    section("Bytes by what they were for", "", false, traffic(runs));
    section("Error of stale rows", STALE_TEXT, true, staleness(runs));
    section("Parts", PARTS_TEXT, false, parts(runs));
    section("Settings", "", false, Some(settings(runs)));
    runs.iter().enumerate().for_each(|(k, run)| page += &data(k, run));
    page + "</body></html>\n"
}

const SCORES_TEXT: &str =
    "Fractions, of epochs that were evaluated. A circle is the epoch whose weights are kept.";
const SECONDS_TEXT: &str = "Forward, backward and step; evaluation and checkpoints are not in it.";
const TIMES_TEXT: &str = "Of all epochs together (of a run that was resumed, of those since), the mean of ranks. The thick bar is computing, its narrow red end waiting; the thin bar \
     below is time in which boundary rows travelled while something was computed. Balance: the slowest rank by the mean.";
const TIMELINE_TEXT: &str = "Above, what a rank computed, with waiting in narrow red; below, what it sent and received meanwhile. \
     Transfers under compute cost nothing. Names and times are in the tooltips.";
const STALE_TEXT: &str =
    "Relative distance of the rows that were used from fresh ones. Layers are counted from 0.";
const PARTS_TEXT: &str = "What each rank owns, and the rows of others that it reads (halo).";

fn subtitle(runs: &[RunData]) -> String {
    let setting = |run: &RunData, name: &str| {
        let found = run.settings.iter().find(|(key, _)| key == name);
        found.and_then(|(_, value)| value.as_str()).unwrap_or("?").to_string()
    };
    let mut data: Vec<String> = runs.iter().map(|run| setting(run, "dataset")).collect();
    data.dedup();
    let count = if runs.len() == 1 { "1 run".to_string() } else { format!("{} runs", runs.len()) };
    format!("{count} of halograph on {}", data.join(", "))
}

/// What a reader should know before trusting the curves.
fn notes(runs: &[RunData], page: &mut String) {
    for run in runs {
        let name = escape(&run.name);
        if run.summary.is_none() {
            let _ = writeln!(page, "<p>{name} goes on, or was interrupted: it has no summary yet.</p>");
        }
        if run.torn {
            let _ = writeln!(
                page,
                "<p>{name}: the last line of metrics.jsonl is only half there and left out.</p>"
            );
        }
        if run.rows.len() > MOST_POINTS {
            let _ = writeln!(
                page,
                "<p>{name} has {} epochs. Its curves are thinned to about {MOST_POINTS} points: of each run of epochs the \
                 least and the greatest value, so that no extreme is lost.</p>",
                run.rows.len()
            );
        }
    }
}

/// Which colour is which run; one run needs none.
fn legend(runs: &[RunData]) -> String {
    if runs.len() < 2 {
        return String::new();
    }
    let items = runs.iter().enumerate();
    let items: String = items.map(|(k, run)| format!("<li>{}{}</li>", chip(k), escape(&run.name))).collect();
    format!("<ul class=\"legend\">{items}</ul>\n")
}

fn scores_title(runs: &[RunData]) -> String {
    let mut metrics: Vec<&str> = runs.iter().filter_map(|run| run.metric.as_deref()).collect();
    metrics.sort_unstable();
    metrics.dedup();
    if metrics.is_empty() { "Scores".into() } else { format!("Scores: {}", escape(&metrics.join(", "))) }
}

fn rate_is_constant(runs: &[RunData]) -> bool {
    runs.iter().all(|run| run.rows.windows(2).all(|pair| pair[0].record.lr == pair[1].record.lr))
}

fn points(run: &RunData, value: impl Fn(&Record) -> Option<f64>) -> Vec<Point> {
    run.rows.iter().filter_map(|row| Some((row.record.epoch, value(&row.record)?))).collect()
}

/// A chart for each curve that has values.
fn curves(runs: &[RunData], curves: impl Iterator<Item = Curve>) -> Option<String> {
    let charts = curves.filter_map(|(title, value)| chart(runs, title, value));
    Some(charts.collect::<String>()).filter(|charts| !charts.is_empty()).map(in_grid)
}

fn in_grid(figures: String) -> String {
    format!("<div class=\"grid-of\">\n{figures}</div>\n")
}

fn chart(runs: &[RunData], title: &str, value: impl Fn(&Record) -> Option<f64>) -> Option<String> {
    let marks = SCORES.iter().any(|(name, _)| *name == title);
    let lines = runs.iter().enumerate().map(|(k, run)| Line {
        run: k,
        name: &run.name,
        points: points(run, &value),
        best: run.fact("best_epoch").and_then(|epoch| epoch.as_u64()).filter(|_| marks),
    });
    Chart { title, lines: lines.collect() }.to_html()
}

/// The timeline of every run that has a trace.
fn timelines(runs: &[RunData]) -> Option<String> {
    let traced = runs.iter().enumerate().filter_map(|(k, run)| Some((k, run, run.traced.as_ref()?)));
    let figures = traced.map(|(k, run, traced)| {
        let name = if runs.len() > 1 { format!("{}{}", chip(k), escape(&run.name)) } else { String::new() };
        let caption = escape(&timeline::caption(traced));
        let svg = timeline::inline(traced);
        format!("<figure><figcaption>{name}<small>{caption}</small></figcaption><div class=\"wide\">{svg}</div></figure>\n")
    });
    Some(figures.collect())
}

/// A chart for each layer whose rows were stale.
fn staleness(runs: &[RunData]) -> Option<String> {
    let mut html = String::new();
    for (kind, values) in STALE {
        let rows = || runs.iter().flat_map(|run| &run.rows);
        let layers = rows().map(|row| values(&row.record).len()).max().unwrap_or(0);
        let told = |l: &usize| rows().any(|row| values(&row.record).get(*l).is_some_and(Option::is_some));
        let layers: Vec<usize> = (0..layers).filter(told).collect();
        let shown = spread(&layers, MOST_LAYERS);
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

/// At most `most` of the layers, the first and the last among them.
fn spread(layers: &[usize], most: usize) -> Vec<usize> {
    if layers.len() <= most {
        return layers.to_vec();
    }
    (0..most).map(|k| layers[k * (layers.len() - 1) / (most - 1)]).collect()
}

/// The epochs as they stand in `metrics.jsonl`; of very many, those that the loss curve shows.
fn data(k: usize, run: &RunData) -> String {
    let losses = thin(&points(run, |record| Some(record.loss)), MOST_POINTS);
    let mut kept = losses.iter().map(|point| point.0).peekable();
    let rows = run.rows.iter().filter(|row| kept.next_if_eq(&row.record.epoch).is_some());
    let rows: Vec<&str> = rows.map(|row| row.text.as_str()).collect();
    let json = json_in_script(&format!("[\n{}\n]", rows.join(",\n")));
    format!("<script type=\"application/json\" id=\"metrics-{k}\">{json}</script>\n")
}
