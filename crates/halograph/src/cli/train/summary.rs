//! The summary of a run as text.

use halograph::Job;
use halograph::nn::model::Spec;
use halograph::train::Summary;
use halograph::train::config::StrategyKind;
use halograph::train::event::Ending;
use halograph::words::{count, seconds};
use indicatif::{HumanBytes, HumanCount};

use crate::cli::{program, quoted};

/// Formats the end of a run: model, scores, times, memory, files, and what to do next.
pub fn text(job: &Job, summary: &Summary) -> String {
    let m = job.data().manifest();
    let [parameters, nodes, edges] = [summary.parameters, m.nodes, m.edges].map(HumanCount);
    let mut lines = vec![
        String::new(),
        line("model", &format!("{}, {parameters} parameters", model(&job.config().model))),
        line("data", &format!("{}: {nodes} nodes, {edges} edges", m.name)),
    ];
    lines.extend(scores(summary));
    lines.push(line("epochs", &epochs(summary)));
    lines.extend(evaluation_hint(summary).map(|hint| line("", &hint)));
    if summary.ranks > 1 {
        lines.extend(ranks(summary, job.epochs_before()).into_iter().map(|(key, value)| line(key, &value)));
    }
    lines.extend(summary.peak_rss_bytes.map(|bytes| line("memory", &format!("{} peak", HumanBytes(bytes)))));
    if let Some(path) = job.directory() {
        let (program, run) = (program(), quoted(path));
        lines.push(line("run", &path.display().to_string()));
        lines.push(String::new());
        lines.push(line("next", &format!("{program} eval {run}")));
        lines.push(line("", &format!("{program} predict {run} -o logits.npy")));
        lines.push(line("", &format!("{program} report {run}")));
    }
    lines.join("\n")
}

fn line(key: &str, value: &str) -> String {
    format!("{key:<10} {value}")
}

/// Formats a model: its name, layers and hidden size.
pub fn model(spec: &Spec) -> String {
    let heads =
        if spec.kind.uses("heads") { format!(", {}", count(spec.heads, "head")) } else { String::new() };
    format!("{}, {}, hidden size {}{heads}", spec.kind.title(), count(spec.layers, "layer"), spec.hidden)
}

/// Formats the scores of the kept weights.
fn scores(summary: &Summary) -> Option<String> {
    let epoch = summary.best_epoch?;
    let subsets = [("train", summary.train), ("val", summary.val), ("test", summary.test)];
    let known: Vec<String> =
        subsets.iter().filter_map(|(subset, score)| Some(format!("{subset} {:.4}", (*score)?))).collect();
    let which = if summary.val.is_some() { "best validation" } else { "last evaluation" };
    Some(line(&summary.metric.to_string(), &format!("{}  (epoch {epoch}, {which})", known.join("  "))))
}

fn epochs(summary: &Summary) -> String {
    let early = match summary.ending {
        Ending::StoppedEarly => " (early stopping)",
        Ending::Finished | Ending::Interrupted => "",
    };
    let [training, median] = [summary.epoch_seconds.iter().sum(), summary.epoch_seconds_median].map(seconds);
    let evaluation = seconds(summary.evaluation_seconds);
    format!("{}{early} in {training}, median {median}; evaluation {evaluation} more", summary.epochs)
}

/// Suggests less frequent evaluation, if evaluation takes much of the time.
fn evaluation_hint(summary: &Summary) -> Option<String> {
    const EVERY: f64 = 10.0;
    let training: f64 = summary.epoch_seconds.iter().sum();
    let evaluation = summary.evaluation_seconds;
    let share = evaluation / (training + evaluation).max(1e-9);
    let saved = evaluation * (1.0 - 1.0 / EVERY);
    (summary.epochs >= 50 && share > 0.25 && saved > 0.5).then(|| {
        format!(
            "evaluation took {:.0} % of the time: --eval-every {EVERY} would save about {}",
            100.0 * share,
            seconds(saved)
        )
    })
}

/// Formats what ranks did in the epochs of this process, which resumed after `before` epochs: means per epoch.
fn ranks(summary: &Summary, before: u64) -> Vec<(&'static str, String)> {
    let threads = count(summary.threads, "thread");
    let stale = summary.strategy == StrategyKind::Pipelined;
    let how = if stale { ", pipelined" } else { "" };
    let setup = format!("{} ({}{how}), {threads} each", summary.ranks, summary.transport);
    let own = summary.epochs - before;
    if own == 0 {
        return vec![("ranks", setup)];
    }
    let (compute, wait) = (summary.compute_seconds, summary.wait_seconds);
    let share = 100.0 * wait / (compute + wait).max(1e-9);
    let [wait, hidden] = [wait, summary.hidden_seconds].map(|s| seconds(s / own as f64));
    let hidden =
        if stale { "transfers overlap with whole epochs".into() } else { format!("{hidden} overlapped") };
    let since = if before > 0 { format!(" (since epoch {before})") } else { String::new() };
    let what = format!(
        "exposed communication {wait} per epoch ({share:.0} %), {hidden}; slowest rank {:.2}× the mean",
        summary.balance,
    );
    vec![("ranks", format!("{setup}; {what}{since}")), ("traffic", traffic(summary))]
}

fn traffic(summary: &Summary) -> String {
    let once = ["evaluation", "setup"];
    let of = |(purpose, bytes): (&String, &u64)| format!("{purpose} {}", HumanBytes(*bytes));
    let tags =
        summary.bytes_by_tag.iter().filter(|(tag, bytes)| !once.contains(&tag.as_str()) && **bytes > 0);
    let tags: Vec<String> = tags.map(of).collect();
    format!("{} per epoch: {}", HumanBytes(summary.bytes_per_epoch), tags.join(", "))
}
