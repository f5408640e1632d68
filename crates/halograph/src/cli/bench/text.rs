//! Formats a bench report as text.

use halograph::train::Config;
use halograph::train::bench::{BatchRates, BenchReport, Phase, Rate, ThreadScaling};
use halograph_graph::Dataset;
use indicatif::HumanCount;

use halograph::words::{count, seconds};

use crate::cli::train::summary::model;

/// Fraction of CPU time used by other processes above which a warning is printed.
const BUSY: f64 = 0.05;

/// Returns the whole report: machine, rates, phases, roofline.
pub fn text(
    dataset: &Dataset,
    config: &Config,
    report: &BenchReport,
    scaling: Option<&ThreadScaling>,
) -> String {
    let (machine, m) = (&report.machine, &dataset.manifest);
    let [nodes, edges] = [m.nodes, m.edges].map(HumanCount);
    let threads = count(report.threads, "thread");
    let mut lines = vec![
        format!("machine   {}, {}, {}; {threads}", machine.cpu, count(machine.cores, "core"), machine.simd),
        format!("data      {}: {nodes} nodes, {edges} edges", m.name),
        format!("model     {}", model(&config.model)),
        String::new(),
    ];
    lines.extend(report.rates.iter().map(rate));
    lines.push(format!("{:<38} {:>7.1} FLOP/B", "ridge point", report.ridge_point));
    lines.push(String::new());
    lines.extend(table(report));
    lines.push(String::new());
    lines.extend(totals(report));
    lines.extend(report.batches.as_ref().map(batches));
    lines.extend(scaling.map(|scaling| speedup(scaling, &threads)));
    lines.push(report.limited_by.clone());
    lines.extend(report.others_share.filter(|&fraction| fraction > BUSY).map(|fraction| {
        format!(
            "warning: other processes used {} of the CPU time; repeat on an idle machine",
            percent(fraction)
        )
    }));
    lines.join("\n")
}

/// Formats a measured rate as a line: name, and units per second.
fn rate(rate: &Rate) -> String {
    format!("{:<38} {:>7.1} G{}/s", rate.what, rate.per_second / 1e9, rate.unit)
}

fn percent(fraction: f64) -> String {
    format!("{:.0} %", 100.0 * fraction)
}

const HEAD: [&str; 10] =
    ["kernel", "shape", "bound", "calls", "ms", "work", "FLOP/B", "rate", "roof", "of roof"];
/// Columns of text, which are aligned to the left; numbers follow, aligned to the right.
const TEXT_COLUMNS: usize = 3;

/// Returns a line for every phase, with aligned columns.
fn table(report: &BenchReport) -> Vec<String> {
    let mut rows = vec![HEAD.map(String::from)];
    rows.extend(report.phases.iter().map(row));
    let mut rest = HEAD.map(|_| String::new());
    (rest[0], rest[4]) = ("outside kernels".into(), milliseconds(report.rest_seconds));
    rows.push(rest);
    let widths: [usize; HEAD.len()] =
        std::array::from_fn(|c| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0));
    rows.iter().map(|row| aligned(row, &widths)).collect()
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(c, (cell, &width))| {
        if c < TEXT_COLUMNS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2}", 1e3 * seconds)
}

fn row(phase: &Phase) -> [String; HEAD.len()] {
    let billions = |x: f64| format!("{:.1} G{}/s", x / 1e9, phase.unit);
    let amount = phase.amount as f64;
    [
        phase.kernel.to_string(),
        phase.shape.clone(),
        phase.bound.to_string(),
        phase.count.to_string(),
        milliseconds(phase.seconds),
        format!("{:.3} G{}", amount / 1e9, phase.unit),
        phase.arithmetic_intensity.map_or("–".into(), |intensity| format!("{intensity:.1}")),
        billions(amount / phase.seconds.max(1e-9)),
        billions(amount / phase.limit_seconds.max(1e-9)),
        percent(phase.share),
    ]
}

fn totals(report: &BenchReport) -> Vec<String> {
    let of = count(report.epoch_seconds.len(), "epoch");
    let fold = |least: fn(f64, f64) -> f64| report.epoch_seconds.iter().copied().reduce(least).unwrap_or(0.0);
    let (low, high) = (seconds(fold(f64::min)), seconds(fold(f64::max)));
    let (epoch, roofline) = (seconds(report.epoch_seconds_median), seconds(report.roofline_seconds));
    vec![
        format!("epoch     {epoch} (median of {of}, {low} to {high})"),
        format!("roofline  {roofline}: the epoch runs at {} of its roofline", percent(report.share)),
    ]
}

fn batches(rates: &BatchRates) -> String {
    let [edges, nodes] =
        [rates.sampled_edges, rates.input_nodes].map(|n| HumanCount(n / rates.batches.max(1)));
    let [sampling, gather, compute, wait] =
        [rates.sampling_seconds, rates.gather_seconds, rates.compute_seconds, rates.wait_seconds]
            .map(seconds);
    format!(
        "batches   {} per epoch, each {edges} sampled edges and {nodes} input nodes; per epoch: gathering {gather}, \
         forward and backward {compute}, waiting {wait}, sampling {sampling} of all threads; sampling alone {:.1} M \
         edges/s",
        rates.batches,
        rates.sampling_alone_edges_per_second / 1e6
    )
}

fn speedup(scaling: &ThreadScaling, threads: &str) -> String {
    let (alone, share) = (seconds(scaling.one_thread_seconds), percent(scaling.one_thread_share));
    format!(
        "scaling   1 thread: {alone} ({share} of its roofline); {threads}: {:.2}× faster; roofline: {:.2}× faster; \
         efficiency {}",
        scaling.time_ratio,
        scaling.roofline_ratio,
        percent(scaling.quotient)
    )
}
