//! What is said of a run at its end.

use halograph::nn::model::Spec;
use halograph::train::config::StrategyKind;
use halograph::train::event::Ending;
use indicatif::{HumanBytes, HumanCount};

use super::job::Job;
use crate::cli::engine::Summary;
use crate::cli::{many, quoted};

/// The end of a run on one screen: what, how well, how long, where, and what next.
pub fn text(job: &Job, summary: &Summary) -> String {
    let (m, path) = (job.source.manifest(), quoted(job.path()));
    let [parameters, nodes, edges] = [summary.parameters, m.nodes, m.edges].map(HumanCount);
    let mut lines = vec![
        String::new(),
        line("model", &format!("{}, {parameters} parameters", model(&job.config().model))),
        line("data", &format!("{}: {nodes} nodes, {edges} edges", m.name)),
    ];
    lines.extend(scores(summary));
    lines.push(line("epochs", &epochs(summary)));
    if summary.ranks > 1 {
        lines.extend(ranks(summary, job.started()).into_iter().map(|(key, value)| line(key, &value)));
    }
    lines.extend(
        summary.peak_rss_bytes.map(|bytes| line("memory", &format!("{} at most", HumanBytes(bytes)))),
    );
    lines.push(line("run", &job.path().display().to_string()));
    lines.push(String::new());
    lines.push(line("next", &format!("halograph eval {path}")));
    lines.push(line("", &format!("halograph predict {path} -o logits.npy")));
    lines.join("\n")
}

fn line(key: &str, value: &str) -> String {
    format!("{key:<10} {value}")
}

/// A model in words.
pub fn model(spec: &Spec) -> String {
    let heads =
        if spec.kind.uses("heads") { format!(" in {}", many(spec.heads, "head")) } else { String::new() };
    format!("{}, {}, {} wide{heads}", spec.kind.title(), many(spec.layers, "layer"), spec.hidden)
}

/// Scores of the kept weights.
fn scores(summary: &Summary) -> Option<String> {
    let epoch = summary.best_epoch?;
    let parts = [("train", summary.train), ("val", summary.val), ("test", summary.test)];
    let known: Vec<String> =
        parts.iter().filter_map(|(part, score)| Some(format!("{part} {:.4}", (*score)?))).collect();
    let which = if summary.val.is_some() { "the best validation" } else { "the last evaluation" };
    Some(line(&summary.metric.to_string(), &format!("{}  (epoch {epoch}, {which})", known.join("  "))))
}

fn epochs(summary: &Summary) -> String {
    let early = match summary.ending {
        Ending::StoppedEarly => ", then out of patience",
        Ending::Finished | Ending::Interrupted => "",
    };
    let total = seconds(summary.epoch_seconds.iter().sum());
    let median = seconds(summary.epoch_seconds_median);
    format!("{}{early}; {median} each (median), {total} together, evaluation not counted", summary.epochs)
}

/// What ranks did in the epochs of this process, `started` of which others had done: means of an epoch.
fn ranks(summary: &Summary, started: u64) -> Vec<(&'static str, String)> {
    let threads = many(summary.threads, "thread");
    let stale = summary.strategy == StrategyKind::Pipelined;
    let how = if stale { ", pipelined" } else { "" };
    let who = format!("{} ({}{how}), {threads} each", summary.ranks, summary.transport);
    let own = summary.epochs - started;
    if own == 0 {
        return vec![("ranks", who)];
    }
    let (compute, wait) = (summary.compute_seconds, summary.wait_seconds);
    let share = 100.0 * wait / (compute + wait).max(1e-9);
    let [wait, hidden] = [wait, summary.hidden_seconds].map(|s| seconds(s / own as f64));
    let hidden =
        if stale { "transfers behind epochs".into() } else { format!("{hidden} of transfers hidden") };
    let since = if started > 0 { format!(" (since epoch {started})") } else { String::new() };
    let what = format!(
        "waiting {wait} an epoch, {share:.0} % of the time; {hidden}; slowest rank {:.2} of the mean",
        summary.balance,
    );
    vec![("ranks", format!("{who}; {what}{since}")), ("traffic", traffic(summary))]
}

fn traffic(summary: &Summary) -> String {
    let once = ["evaluation", "setup"];
    let of = |(purpose, bytes): (&String, &u64)| format!("{purpose} {}", HumanBytes(*bytes));
    let tags =
        summary.bytes_by_tag.iter().filter(|(tag, bytes)| !once.contains(&tag.as_str()) && **bytes > 0);
    let tags: Vec<String> = tags.map(of).collect();
    format!("{} an epoch: {}", HumanBytes(summary.bytes_per_epoch), tags.join(", "))
}

/// A time with a unit that suits it.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{} min {:02} s", s as u64 / 60, s as u64 % 60),
        s => format!("{} h {:02} min", s as u64 / 3600, s as u64 / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        for (s, text) in [
            (0.000_25, "250 µs"),
            (0.0283, "28.3 ms"),
            (3.25, "3.2 s"),
            (125.0, "2 min 05 s"),
            (7_500.0, "2 h 05 min"),
        ] {
            assert_eq!(seconds(s), text);
        }
    }
}
