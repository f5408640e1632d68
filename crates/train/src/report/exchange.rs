//! What ranks did together: compute and wait time, communication volume, partition. Runs on one rank have none of it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::chart::series_class;
use super::read::RunData;
use super::table::marked_name;
use super::text::{Unit, escape};
use crate::config::StrategyKind;

/// Purposes whose bytes are counted over the whole run, not per epoch.
const ONCE: [&str; 2] = ["evaluation", "setup"];

/// Returns compute, wait and overlapped transfer time, a bar per run; nothing if no run has several ranks. Runs on one
/// rank are shown beside the others with their compute time alone.
pub(super) fn times(runs: &[RunData]) -> Option<String> {
    let longest = runs.iter().map(|run| seconds(run, "compute_seconds") + seconds(run, "wait_seconds"));
    let longest = longest.fold(0.0, f64::max);
    if longest == 0.0 || !runs.iter().any(|run| run.has_peers() && run.summary.is_some()) {
        return None;
    }
    let mut html = String::from(
        "<div class=\"wide\"><table class=\"bars\"><thead><tr><th class=\"left\">run</th><th></th><th>compute</th>\
         <th>wait</th><th>overlapped transfer</th><th>imbalance</th></tr></thead><tbody>\n",
    );
    for (k, run) in runs.iter().enumerate().filter(|(_, run)| run.summary.is_some()) {
        html += &time_row(k, run, longest);
    }
    Some(html + "</tbody></table></div>\n")
}

fn seconds(run: &RunData, key: &str) -> f64 {
    run.summary_value(key).and_then(Value::as_f64).unwrap_or(0.0).max(0.0)
}

fn time_row(k: usize, run: &RunData, longest: f64) -> String {
    let percent = |key| (100.0 * seconds(run, key) / longest).min(100.0);
    // Stale rows are in transit across epochs: their overlapped time is not measured.
    let is_stale = run.config.train.strategy == StrategyKind::Pipelined;
    let applies = |key: &str| match key {
        "compute_seconds" => true,
        "hidden_seconds" => run.has_peers() && !is_stale,
        _ => run.has_peers(),
    };
    let mut html = format!(
        "<tr class=\"{}\"><th>{}</th><td class=\"track\"><div class=\"bar\"><span style=\"width:{:.3}%\"></span>",
        series_class(k),
        marked_name(k, run),
        percent("compute_seconds"),
    );
    if run.has_peers() {
        let _ =
            write!(html, "<span class=\"waiting\" style=\"width:{:.3}%\"></span>", percent("wait_seconds"));
    }
    html.push_str("</div>");
    if applies("hidden_seconds") {
        let width = percent("hidden_seconds");
        let _ = write!(html, "<div class=\"bar thin\"><span style=\"width:{width:.3}%\"></span></div>");
    }
    html.push_str("</td>");
    let keys = ["compute_seconds", "wait_seconds", "hidden_seconds"].map(|key| (key, Unit::Seconds));
    for (key, unit) in keys.into_iter().chain([("balance", Unit::Fraction)]) {
        let value = run.summary_value(key).filter(|_| applies(key));
        let _ = write!(html, "<td>{}</td>", unit.html(value.unwrap_or(&Value::Null)));
    }
    html + "</tr>\n"
}

/// Returns the bytes sent, by purpose; nothing if no run sent any.
pub(super) fn traffic(runs: &[RunData]) -> Option<String> {
    let mut tags: BTreeMap<(bool, &str), Vec<(usize, &Value)>> = BTreeMap::new();
    for (k, run) in runs.iter().enumerate() {
        for (tag, bytes) in run.summary_value("bytes_by_tag").and_then(Value::as_object).into_iter().flatten()
        {
            tags.entry((ONCE.contains(&tag.as_str()), tag)).or_default().push((k, bytes));
        }
    }
    tags.retain(|_, row| row.iter().any(|(_, bytes)| bytes.as_f64().is_some_and(|bytes| bytes > 0.0)));
    let mut html = String::new();
    for (once, title) in [(false, "per epoch"), (true, "whole run (after a resume: since then)")] {
        let group: Vec<_> =
            tags.iter().filter(|(key, _)| key.0 == once).map(|(key, row)| (key.1, row)).collect();
        if !group.is_empty() {
            html += &traffic_bars(runs, title, &group);
        }
    }
    (!html.is_empty()).then_some(html)
}

fn traffic_bars(runs: &[RunData], title: &str, group: &[(&str, &Vec<(usize, &Value)>)]) -> String {
    let bytes = group.iter().flat_map(|(_, row)| row.iter()).filter_map(|(_, bytes)| bytes.as_f64());
    let most = bytes.fold(0.0, f64::max).max(1.0);
    let mut html = format!(
        "<div class=\"wide\"><table class=\"bars\"><thead><tr><th class=\"left\">{title}</th><th class=\"left\">run</th><th></th>\
         <th>sent</th></tr></thead><tbody>\n"
    );
    for (tag, row) in group {
        for (i, (k, bytes)) in row.iter().enumerate() {
            let percent = 100.0 * bytes.as_f64().unwrap_or(0.0).max(0.0) / most;
            let _ = writeln!(
                html,
                "<tr class=\"{}\"><th>{}</th><td class=\"left\">{}</td><td class=\"track\"><div class=\"bar\">\
                 <span style=\"width:{percent:.3}%\"></span></div></td><td>{}</td></tr>",
                series_class(*k),
                if i == 0 { escape(tag) } else { String::new() },
                marked_name(*k, &runs[*k]),
                Unit::Bytes.html(bytes)
            );
        }
    }
    html + "</tbody></table></div>\n"
}

/// Returns the parts of every run on several ranks, a table per run; nothing if no run lists its parts.
pub(super) fn partition(runs: &[RunData]) -> Option<String> {
    let tables = runs.iter().enumerate().filter(|(_, run)| run.has_peers()).filter_map(|(k, run)| {
        let parts = run.summary_value("parts")?.as_array().filter(|parts| !parts.is_empty())?;
        Some(part_table(&marked_name(k, run), parts))
    });
    let tables: String = tables.collect();
    (!tables.is_empty()).then(|| format!("<div class=\"grid-of\">{tables}</div>\n"))
}

fn part_table(name: &str, parts: &[Value]) -> String {
    const COLUMNS: [(&str, &str); 4] =
        [("nodes", "nodes"), ("train", "training"), ("edges", "edges"), ("halo", "halo rows")];
    let mut html =
        format!("<figure><figcaption>{name}</figcaption><table><thead><tr><th class=\"left\">rank</th>");
    COLUMNS.iter().for_each(|(_, column)| html += &format!("<th>{column}</th>"));
    html.push_str("</tr></thead><tbody>\n");
    for (rank, part) in parts.iter().enumerate() {
        let _ = write!(html, "<tr><th>{rank}</th>");
        for (key, _) in COLUMNS {
            let _ = write!(html, "<td>{}</td>", Unit::Count.html(&part[key]));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody><tfoot><tr><th class=\"left\">max / mean</th>");
    for (key, _) in COLUMNS {
        let values: Vec<f64> = parts.iter().filter_map(|part| part[key].as_f64()).collect();
        let (most, sum) = (values.iter().copied().fold(0.0, f64::max), values.iter().sum::<f64>());
        let ratio = if sum > 0.0 { format!("{:.3}", most * values.len() as f64 / sum) } else { "–".into() };
        let _ = write!(html, "<td>{ratio}</td>");
    }
    html + "</tr></tfoot></table></figure>\n"
}
