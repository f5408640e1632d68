//! The summary of a run as text.

use std::path::Path;

use halograph::Job;
use halograph::graph::sample::{Fanout, SamplerKind};
use halograph::nn::model::Spec;
use halograph::note::Note;
use halograph::train::Summary;
use halograph::train::config::{Config, StrategyKind};
use halograph::train::event::Ending;
use halograph::train::run::TRACE;
use halograph::train::summary::{BatchTotals, FetchTotals, PipelineFacts};
use halograph::words::{count, seconds};
use indicatif::{HumanBytes, HumanCount};

use crate::cli::{program, quoted};

/// Formats the end of a run: model, scores, times, memory, files, and what to do next.
pub fn text(job: &Job, summary: &Summary, trace: Option<&Path>) -> String {
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
    if let Some(facts) = &summary.pipeline {
        lines.push(line("stages", &pipeline(facts)));
        if summary.epochs > job.epochs_before() {
            lines.push(line("bubble", &bubble(facts)));
        }
    }
    if let Some(totals) = &summary.batches {
        let config = job.config();
        lines.push(line("strategy", &sampling(config)));
        lines.push(line("batches", &batches(totals, config.train.batch_size, job.epochs_before())));
        lines.extend(summary.fetches.iter().map(|fetches| line("fetching", &fetching(totals, fetches))));
    }
    lines.extend(summary.peak_rss_bytes.map(|bytes| line("memory", &format!("{} peak", HumanBytes(bytes)))));
    if let Some(path) = job.directory() {
        let (program, run) = (program(), quoted(path));
        let is_traced = !job.notes().contains(&Note::NothingToTrace);
        lines.push(line("run", &path.display().to_string()));
        lines.push(String::new());
        lines.push(line("next", &format!("{program} eval {run}")));
        lines.push(line("", &format!("{program} predict {run} -o logits.npy")));
        lines.push(line(
            "",
            &format!("{program} report {run}{}", trace_option(path, trace.filter(|_| is_traced))),
        ));
    }
    lines.join("\n")
}

/// Returns the option of `report` for a trace that it would not find by itself.
fn trace_option(run: &Path, trace: Option<&Path>) -> String {
    let written = trace.filter(|trace| trace.exists() && **trace != *run.join(TRACE));
    written.map_or(String::new(), |trace| format!(" --trace {}", quoted(trace)))
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

/// Formats how stages and chunks are spread over ranks.
fn pipeline(facts: &PipelineFacts) -> String {
    let groups: Vec<String> =
        facts.groups.iter().map(|group| format!("{}–{}", group.stages[0], group.stages[1] - 1)).collect();
    let parts =
        if facts.parts > 1 { format!(" on {} each", count(facts.parts, "rank")) } else { String::new() };
    format!("{}{parts}, {}", groups.join(", "), count(facts.chunks, "chunk"))
}

/// Formats what ranks waited for, and how evenly stage groups computed.
fn bubble(facts: &PipelineFacts) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    format!(
        "{} of the time, {} if all chunks took equally long; exposed communication {}; slowest stage group {} above the mean",
        percent(facts.bubble),
        percent(facts.bubble_formula),
        percent(facts.exposed_communication),
        percent(facts.imbalance),
    )
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
    let hidden = match summary.strategy {
        StrategyKind::Pipelined => "transfers overlap with whole epochs".into(),
        StrategyKind::Minibatch => "rows are fetched in the background".into(),
        StrategyKind::Single
        | StrategyKind::Partition
        | StrategyKind::Split
        | StrategyKind::Layers
        | StrategyKind::Hybrid => {
            format!("{hidden} overlapped")
        }
    };
    let since = if before > 0 { format!(" (since epoch {before})") } else { String::new() };
    // Of stage groups, part of it is the bubble.
    let waited = if summary.pipeline.is_some() { "waiting" } else { "exposed communication" };
    let what = format!(
        "{waited} {wait} per epoch ({share:.0} %), {hidden}; slowest rank {:.2}× the mean",
        summary.balance,
    );
    vec![("ranks", format!("{setup}; {what}{since}")), ("traffic", traffic(summary))]
}

/// Formats how mini-batches are sampled.
fn sampling(config: &Config) -> String {
    let sampler = match config.train.sampler {
        SamplerKind::Neighbor => "neighbor",
        SamplerKind::Labor => "labor",
    };
    let fanouts = config.sampled_fanouts();
    let cached = if config.train.cache_input_aggregate { ", input aggregate cached" } else { "" };
    let fanout = |fanout: &Fanout| match fanout {
        Fanout::All => "all".to_string(),
        Fanout::AtMost(most) => most.to_string(),
    };
    let fanouts: Vec<String> = fanouts.iter().map(fanout).collect();
    let fanouts = if fanouts.is_empty() { String::new() } else { format!(", fanout {}", fanouts.join(", ")) };
    format!("{}, sampler {sampler}{fanouts}{cached}", config.train.strategy.name())
}

/// Formats the mini-batches of this process, which resumed after `before` epochs: means per batch.
fn batches(totals: &BatchTotals, batch_size: u64, before: u64) -> String {
    let seeds = match totals.per_epoch {
        1 => "all training nodes".to_string(),
        _ => count(batch_size, "seed node"),
    };
    let head = format!("{} per epoch of {seeds}", HumanCount(totals.per_epoch));
    if totals.batches == 0 {
        return head;
    }
    let since = if before > 0 { format!(" (since epoch {before})") } else { String::new() };
    let mean = |total: f64| total / totals.batches as f64;
    let [edges, nodes] =
        [totals.sampled_edges, totals.input_nodes].map(|n| HumanCount(mean(n as f64).round() as u64));
    let [sampling, gathering, computing, waiting] =
        [totals.sampling_seconds, totals.gather_seconds, totals.compute_seconds, totals.wait_seconds]
            .map(|total| seconds(mean(total)));
    format!(
        "{head}: {edges} sampled edges, {nodes} input nodes each; sampling {sampling}, gathering {gathering}, \
         computing {computing}, waiting {waiting} per batch{since}"
    )
}

/// Formats what ranks fetched of each other for mini-batches: means per epoch.
fn fetching(totals: &BatchTotals, fetches: &FetchTotals) -> String {
    let plural = if fetches.macrobatch == 1 { "" } else { "es" };
    let head = format!("macrobatches of {} batch{plural}", fetches.macrobatch);
    if totals.batches == 0 {
        return head;
    }
    let epochs = totals.batches as f64 / totals.per_epoch.max(1) as f64;
    let mean = |total: u64| HumanCount((total as f64 / epochs).round() as u64);
    let kept = match fetches.hit_rate() {
        Some(rate) if rate > 0.0 => {
            let saved = HumanBytes((fetches.saved_bytes() as f64 / epochs) as u64);
            format!(", {:.0} % of them kept from earlier ones ({saved} not fetched)", 100.0 * rate)
        }
        _ => String::new(),
    };
    format!(
        "{head}; {} and {} remote rows per epoch{kept}; {} per epoch in the background",
        count(mean(fetches.relays).0, "all-to-all"),
        mean(fetches.remote_rows),
        seconds((totals.sampling_seconds + fetches.fetching_seconds) / epochs),
    )
}

fn traffic(summary: &Summary) -> String {
    let once = ["evaluation", "setup"];
    let of =
        |(purpose, bytes): (&String, &u64)| format!("{} {}", purpose.replace('_', " "), HumanBytes(*bytes));
    let tags =
        summary.bytes_by_tag.iter().filter(|(tag, bytes)| !once.contains(&tag.as_str()) && **bytes > 0);
    let tags: Vec<String> = tags.map(of).collect();
    format!("{} per epoch: {}", HumanBytes(summary.bytes_per_epoch), tags.join(", "))
}

#[cfg(test)]
mod tests {
    use halograph::nn::model::Kind;

    use super::*;

    fn totals() -> BatchTotals {
        BatchTotals {
            per_epoch: 144,
            batches: 288,
            sampled_edges: 178_786_656,
            input_nodes: 53_611_200,
            computed_nodes: 70_000_000,
            sampling_seconds: 10.944,
            gather_seconds: 10.08,
            compute_seconds: 61.344,
            wait_seconds: 0.0864,
            longest_wait_seconds: 0.0864,
        }
    }

    #[test]
    fn batches_are_means() {
        let text = "144 per epoch of 1,024 seed nodes: 620,787 sampled edges, 186,150 input nodes each; sampling 38.0 ms, \
                    gathering 35.0 ms, computing 213.0 ms, waiting 300 µs per batch";
        assert_eq!(batches(&totals(), 1024, 0), text);
        assert_eq!(batches(&totals(), 1024, 7), format!("{text} (since epoch 7)"));
        let one = BatchTotals { per_epoch: 1, ..totals() };
        assert!(batches(&one, 1024, 0).starts_with("1 per epoch of all training nodes: "));
    }

    #[test]
    fn fetches_are_means_per_epoch() {
        let fetches = FetchTotals {
            macrobatch: 12,
            relays: 144,
            remote_rows: 2_000_000,
            fetched_rows: 500_000,
            row_bytes: 1024,
            fetching_seconds: 1.056,
            ..FetchTotals::default()
        };
        let text = "macrobatches of 12 batches; 72 all-to-alls and 1,000,000 remote rows per epoch, 75 % of them kept from \
                    earlier ones (732.42 MiB not fetched); 6.0 s per epoch in the background";
        assert_eq!(fetching(&totals(), &fetches), text);
        let all = FetchTotals { fetched_rows: 2_000_000, ..fetches };
        assert!(!fetching(&totals(), &all).contains("kept"));
        assert_eq!(fetching(&BatchTotals::default(), &fetches), "macrobatches of 12 batches");
    }

    #[test]
    fn no_batch_has_no_mean() {
        let none = BatchTotals { per_epoch: 144, ..BatchTotals::default() };
        assert_eq!(batches(&none, 1024, 3), "144 per epoch of 1,024 seed nodes");
    }

    #[test]
    fn the_sampler_and_its_fanouts_are_named() {
        let mut config = Config::new(Kind::Sage);
        (config.model.layers, config.train.strategy) = (3, StrategyKind::Minibatch);
        assert_eq!(sampling(&config), "minibatch, sampler neighbor, fanout 15, 10, 5");
        (config.train.sampler, config.train.fanout) = (SamplerKind::Labor, vec![10, -1, 3]);
        assert_eq!(sampling(&config), "minibatch, sampler labor, fanout 10, all, 3");
        config.train.cache_input_aggregate = true;
        assert_eq!(sampling(&config), "minibatch, sampler labor, fanout 10, all, input aggregate cached");
    }
}
