//! Sampled mini-batches: their sizes, and the time of a batch. Runs on the full graph have none.

use std::fmt::Write;

use serde_json::{Value, json};

use super::chart::series_class;
use super::read::RunData;
use super::table::marked_name;
use super::text::Unit;

/// Means over the batches of a run: key in the summary, name on the page, format.
const MEANS: [(&str, &str, Unit); 6] = [
    ("sampled_edges", "sampled edges", Unit::Count),
    ("input_nodes", "input nodes", Unit::Count),
    ("sampling_seconds", "sampling", Unit::Seconds),
    ("gather_seconds", "gathering", Unit::Seconds),
    ("compute_seconds", "computing", Unit::Seconds),
    ("wait_seconds", "waiting", Unit::Seconds),
];

/// Returns size and time of a batch, a row per run with batches; nothing if there is none.
pub(super) fn batches(runs: &[RunData]) -> Option<String> {
    let sampled: Vec<(usize, &RunData, &Value)> = runs
        .iter()
        .enumerate()
        .filter_map(|(k, run)| Some((k, run, run.summary_value("batches")?)))
        .collect();
    if sampled.is_empty() {
        return None;
    }
    let longest =
        sampled.iter().map(|(.., totals)| busy(totals) + mean(totals, "wait_seconds").unwrap_or(0.0));
    let longest = longest.fold(0.0, f64::max).max(1e-9);
    let mut html = String::from(
        "<div class=\"wide\"><table class=\"bars\"><thead><tr><th class=\"left\">run</th><th></th>\
         <th>batches per epoch</th>",
    );
    MEANS.iter().for_each(|(_, name, _)| html += &format!("<th>{name}</th>"));
    html.push_str("</tr></thead><tbody>\n");
    for (k, run, totals) in sampled {
        let percent = |seconds: f64| (100.0 * seconds / longest).clamp(0.0, 100.0);
        let [wait, sampling] =
            ["wait_seconds", "sampling_seconds"].map(|key| mean(totals, key).unwrap_or(0.0));
        let _ = write!(
            html,
            "<tr class=\"{}\"><th>{}</th><td class=\"track\"><div class=\"bar\"><span style=\"width:{:.3}%\"></span>\
             <span class=\"waiting\" style=\"width:{:.3}%\"></span></div>\
             <div class=\"bar thin\"><span style=\"width:{:.3}%\"></span></div></td><td>{}</td>",
            series_class(k),
            marked_name(k, run),
            percent(busy(totals)),
            percent(wait),
            percent(sampling),
            Unit::Count.html(&totals["per_epoch"]),
        );
        for (key, _, unit) in MEANS {
            let _ = write!(html, "<td>{}</td>", cell(mean(totals, key), unit));
        }
        html.push_str("</tr>\n");
    }
    Some(html + "</tbody></table></div>\n" + &fetches(runs))
}

/// Returns what ranks fetched of each other for batches, a row per run on several ranks; means per epoch.
fn fetches(runs: &[RunData]) -> String {
    let mut rows = String::new();
    for (k, run) in runs.iter().enumerate() {
        let (Some(batches), Some(fetches)) = (run.summary_value("batches"), run.summary_value("fetches"))
        else {
            continue;
        };
        let epochs = mean(batches, "per_epoch").filter(|&share| share > 0.0).map(|share| 1.0 / share);
        let total = |key: &str| fetches[key].as_f64();
        let per_epoch = |total: Option<f64>| Some(total? / epochs?);
        let fetched = total("fetched_rows").zip(total("row_bytes")).map(|(rows, bytes)| rows * bytes);
        let kept = total("fetched_rows").zip(total("remote_rows")).filter(|(_, remote)| *remote > 0.0);
        let seconds = total("fetching_seconds").zip(batches["sampling_seconds"].as_f64());
        let cells = [
            cell(total("macrobatch"), Unit::Count),
            cell(per_epoch(total("relays")), Unit::Count),
            cell(per_epoch(total("remote_rows")), Unit::Count),
            cell(kept.map(|(fetched, remote)| 1.0 - fetched / remote), Unit::Fraction),
            cell(per_epoch(fetched), Unit::Bytes),
            cell(per_epoch(seconds.map(|(fetching, sampling)| fetching + sampling)), Unit::Seconds),
        ];
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let _ =
            writeln!(rows, "<tr class=\"{}\"><th>{}</th>{cells}</tr>", series_class(k), marked_name(k, run));
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<p>Fetched from other ranks, per epoch:</p><div class=\"wide\"><table><thead><tr>\
         <th class=\"left\">run</th><th>batches per macrobatch</th><th>all-to-alls</th><th>remote rows</th>\
         <th>share kept</th><th>fetched</th><th>sampling and fetching</th></tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// Returns seconds of a batch without waiting.
fn busy(totals: &Value) -> f64 {
    ["gather_seconds", "compute_seconds"].iter().filter_map(|key| mean(totals, key)).sum()
}

/// Returns the mean of a total over batches; `None` if this process trained no batch.
fn mean(totals: &Value, key: &str) -> Option<f64> {
    let batches = totals["batches"].as_f64().filter(|&batches| batches > 0.0)?;
    Some(totals[key].as_f64()? / batches)
}

fn cell(mean: Option<f64>, unit: Unit) -> String {
    match (mean, unit) {
        (None, _) => Unit::Plain.html(&Value::Null),
        (Some(mean), Unit::Count) => {
            format!("<span title=\"{mean}\">{}</span>", Unit::Count.show(&json!(mean.round() as u64)))
        }
        (Some(mean), unit) => unit.html(&json!(mean)),
    }
}
