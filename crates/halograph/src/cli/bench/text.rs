//! A report for people.

use halograph::train::Config;
use halograph::train::bench::{Comparison, Phase, Rate, Report};
use halograph_graph::Dataset;
use indicatif::HumanCount;

use halograph::words::seconds;

use crate::cli::train::summary::model;

/// Above this share of the CPUs others are worth a word.
const BUSY: f64 = 0.05;

/// The whole report: machine, rates, phases, and what follows from them.
pub fn text(dataset: &Dataset, config: &Config, report: &Report, comparison: Option<&Comparison>) -> String {
    let (machine, m) = (&report.machine, &dataset.manifest);
    let [nodes, edges] = [m.nodes, m.edges].map(HumanCount);
    let threads = many(report.threads, "thread");
    let mut lines = vec![
        format!("machine   {}, {}, {}; {threads}", machine.cpu, many(machine.cores, "core"), machine.simd),
        format!("data      {}: {nodes} nodes, {edges} edges", m.name),
        format!("model     {}", model(&config.model)),
        String::new(),
    ];
    lines.extend(report.rates.iter().map(rate));
    lines.push(String::new());
    lines.extend(table(report));
    lines.push(String::new());
    lines.extend(total(report));
    lines.extend(comparison.map(|c| scaling(c, &threads)));
    lines.push(report.limited_by.clone());
    lines.extend(report.others_share.filter(|&share| share > BUSY).map(|share| {
        format!(
            "warning: others used {} of the CPUs meanwhile; repeat when the machine is quiet",
            percent(share)
        )
    }));
    lines.join("\n")
}

fn many(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn rate(rate: &Rate) -> String {
    format!("{:<38} {:>7.1} G{}/s", rate.what, rate.per_second / 1e9, rate.unit)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A row for every phase, columns as wide as they must be.
fn table(report: &Report) -> Vec<String> {
    let head = ["phase", "", "calls", "ms", "amount", "rate", "limit", "of limit"];
    let mut rows = vec![head.map(String::from)];
    rows.extend(report.phases.iter().map(row));
    let mut rest = [(); 8].map(|()| String::new());
    (rest[0], rest[3]) = ("all else".into(), milliseconds(report.rest_seconds));
    rows.push(rest);
    let widths: [usize; 8] =
        std::array::from_fn(|c| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0));
    rows.iter().map(|row| aligned(row, &widths)).collect()
}

/// Words to the left, numbers to the right.
fn aligned(row: &[String; 8], widths: &[usize; 8]) -> String {
    let cells = row.iter().zip(widths).enumerate();
    let cells = cells.map(
        |(c, (cell, &width))| {
            if c < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        },
    );
    cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2}", 1e3 * seconds)
}

fn row(phase: &Phase) -> [String; 8] {
    let billions = |x: f64| format!("{:.1} G{}/s", x / 1e9, phase.unit);
    let amount = phase.amount as f64;
    [
        phase.kernel.to_string(),
        phase.shape.clone(),
        phase.count.to_string(),
        milliseconds(phase.seconds),
        format!("{:.3} G{}", amount / 1e9, phase.unit),
        billions(amount / phase.seconds.max(1e-9)),
        billions(amount / phase.limit_seconds.max(1e-9)),
        percent(phase.share),
    ]
}

fn total(report: &Report) -> Vec<String> {
    let of = many(report.epoch_seconds.len(), "epoch");
    let fold = |least: fn(f64, f64) -> f64| report.epoch_seconds.iter().copied().reduce(least).unwrap_or(0.0);
    let (low, high) = (seconds(fold(f64::min)), seconds(fold(f64::max)));
    let (epoch, roofline) = (seconds(report.epoch_seconds_median), seconds(report.roofline_seconds));
    vec![
        format!("epoch     {epoch} (median of {of}, {low} to {high})"),
        format!("roofline  {roofline}: the epoch is at {} of what the machine can do", percent(report.share)),
    ]
}

fn scaling(c: &Comparison, threads: &str) -> String {
    let (alone, share) = (seconds(c.one_thread_seconds), percent(c.one_thread_share));
    format!(
        "scaling   1 thread {alone} ({share} of its roofline); {threads}: {:.2} times as fast, where the rooflines allow \
         {:.2}: {}",
        c.time_ratio,
        c.roofline_ratio,
        percent(c.quotient)
    )
}
