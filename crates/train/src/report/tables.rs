//! Tables of the page: results, settings, times, bytes, parts.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::chart::COLOURS;
use super::read::RunData;
use super::text::{Unit, escape};

/// What is told of every run: the name in the summary, what it is called, how it is shown.
const RESULTS: [(&str, &str, Unit); 17] = [
    ("ending", "ending", Unit::Plain),
    ("strategy", "strategy", Unit::Plain),
    ("ranks", "ranks", Unit::Count),
    ("threads", "threads of a rank", Unit::Count),
    ("transport", "transport", Unit::Plain),
    ("model", "model", Unit::Plain),
    ("parameters", "parameters", Unit::Count),
    ("epochs", "epochs", Unit::Count),
    ("loss", "training loss, last epoch", Unit::Fraction),
    ("metric", "scored by", Unit::Plain),
    ("train", "training score", Unit::Fraction),
    ("val", "validation score", Unit::Fraction),
    ("test", "test score", Unit::Fraction),
    ("best_epoch", "epoch of the weights kept", Unit::Count),
    ("seconds_to_best", "training up to there", Unit::Seconds),
    ("epoch_seconds_median", "median epoch", Unit::Seconds),
    ("peak_rss_bytes", "peak memory", Unit::Bytes),
];
/// Tags whose bytes are counted over the whole run, not in an epoch.
const ONCE: [&str; 2] = ["evaluation", "setup"];

/// The colour of a run, as a mark before its name.
pub(super) fn chip(run: usize) -> String {
    let dashed = if run >= COLOURS { " dashed" } else { "" };
    format!("<span class=\"chip run{}{dashed}\"></span>", run % COLOURS)
}

/// The head of a table with a column a run.
fn head(runs: &[RunData]) -> String {
    let mut html = String::from("<thead><tr><th></th>");
    for (k, run) in runs.iter().enumerate() {
        let _ = write!(html, "<th>{}{}</th>", chip(k), escape(&run.name));
    }
    html + "</tr></thead>"
}

/// How every run went, a column each.
pub(super) fn results(runs: &[RunData]) -> String {
    let mut html = format!("<div class=\"wide\"><table>{}<tbody>", head(runs));
    for (key, name, unit) in RESULTS {
        let values: Vec<Option<Value>> = runs.iter().map(|run| result(run, key)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(html, "<tr><th>{name}</th>");
        for value in values {
            let _ = write!(html, "<td>{}</td>", unit.html(&value.unwrap_or_default()));
        }
        html.push_str("</tr>\n");
    }
    html + "</tbody></table></div>\n"
}

/// A number of the summary; where there is none yet, what settings and epochs say.
fn result(run: &RunData, key: &str) -> Option<Value> {
    if run.summary.is_some() {
        return run.fact(key).cloned();
    }
    let setting =
        |name: &str| run.settings.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    match key {
        "ending" => Some("no summary yet".into()),
        "epochs" => Some(run.rows.len().into()),
        "loss" => run.rows.last().map(|row| row.record.loss.into()),
        "strategy" | "ranks" => setting(&format!("train.{key}")),
        "model" => setting("model.kind"),
        _ => None,
    }
}

/// Settings: those that differ in a table with a column a run, the others in a list.
pub(super) fn settings(runs: &[RunData]) -> String {
    let values = by_name(runs);
    let differs = |row: &&(&str, Vec<Option<&Value>>)| row.1.iter().any(|value| *value != row.1[0]);
    let mut html = String::new();
    if runs.len() > 1 {
        let same = values.iter().all(|row| !differs(&row));
        let text =
            if same { "No setting differs." } else { "Settings that differ are marked; the others follow." };
        let _ = write!(html, "<p>{text}</p>");
    }
    if values.iter().any(|row| differs(&row)) {
        let _ = write!(html, "<div class=\"wide\"><table>{}<tbody>", head(runs));
        for (key, row) in values.iter().filter(differs) {
            let _ = write!(html, "<tr class=\"differs\"><th>{}</th>", escape(key));
            row.iter().for_each(|value| html += &format!("<td>{}</td>", setting(*value)));
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div>\n");
    }
    html.push_str("<dl>");
    for (key, row) in values.iter().filter(|row| !differs(row)) {
        let _ = writeln!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escape(key), setting(row[0]));
    }
    html + "</dl>\n"
}

fn setting(value: Option<&Value>) -> String {
    value.map_or("–".into(), |value| Unit::Plain.html(value))
}

/// Every setting that any run has, with its values, in the order they are first met.
fn by_name(runs: &[RunData]) -> Vec<(&str, Vec<Option<&Value>>)> {
    let mut rows: Vec<(&str, Vec<Option<&Value>>)> = Vec::new();
    let mut index = BTreeMap::new();
    for (k, run) in runs.iter().enumerate() {
        for (key, value) in &run.settings {
            let row = *index.entry(key.as_str()).or_insert_with(|| {
                rows.push((key, vec![None; runs.len()]));
                rows.len() - 1
            });
            rows[row].1[k] = Some(value);
        }
    }
    rows
}

/// Where the time of all epochs went, a bar a run; nothing if no run is over.
pub(super) fn times(runs: &[RunData]) -> Option<String> {
    let number = |run: &RunData, key: &str| run.fact(key).and_then(Value::as_f64).unwrap_or(0.0).max(0.0);
    let whole = |run: &RunData| number(run, "compute_seconds") + number(run, "wait_seconds");
    let longest = runs.iter().map(whole).fold(0.0, f64::max);
    if longest == 0.0 {
        return None;
    }
    let mut html = String::from(
        "<div class=\"wide\"><table class=\"bars\"><thead><tr><th class=\"left\">run</th><th></th><th>computing</th>\
         <th>waiting</th><th>hidden transfer</th><th>balance</th></tr></thead><tbody>\n",
    );
    for (k, run) in runs.iter().enumerate().filter(|(_, run)| whole(run) > 0.0) {
        let share = |key| 100.0 * number(run, key) / longest;
        let _ = write!(
            html,
            "<tr class=\"run{}\"><th>{}{}</th><td class=\"track\"><div class=\"bar\"><span style=\"width:{:.3}%\"></span>\
             <span class=\"waiting\" style=\"width:{:.3}%\"></span></div>",
            k % COLOURS,
            chip(k),
            escape(&run.name),
            share("compute_seconds"),
            share("wait_seconds")
        );
        // Stale rows travel behind whole epochs: nobody knows how long.
        let stale = run.fact("strategy").and_then(Value::as_str) == Some("pipelined");
        let hidden = if stale { 0.0 } else { share("hidden_seconds").min(100.0) };
        let _ = write!(html, "<div class=\"bar thin\"><span style=\"width:{hidden:.3}%\"></span></div></td>");
        let keys = ["compute_seconds", "wait_seconds", "hidden_seconds"].map(|key| (key, Unit::Seconds));
        for (key, unit) in keys.into_iter().chain([("balance", Unit::Fraction)]) {
            let value = run.fact(key).filter(|_| !(stale && key == "hidden_seconds"));
            let _ = write!(html, "<td>{}</td>", unit.html(value.unwrap_or(&Value::Null)));
        }
        html.push_str("</tr>\n");
    }
    Some(html + "</tbody></table></div>\n")
}

/// What ranks sent, by what it was for; nothing if nothing was sent.
pub(super) fn traffic(runs: &[RunData]) -> Option<String> {
    let mut tags: BTreeMap<(bool, &str), Vec<(usize, &Value)>> = BTreeMap::new();
    for (k, run) in runs.iter().enumerate() {
        for (tag, bytes) in run.fact("bytes_by_tag").and_then(Value::as_object).into_iter().flatten() {
            tags.entry((ONCE.contains(&tag.as_str()), tag)).or_default().push((k, bytes));
        }
    }
    tags.retain(|_, row| row.iter().any(|(_, bytes)| bytes.as_f64().is_some_and(|bytes| bytes > 0.0)));
    let mut html = String::new();
    for (once, title) in [
        (false, "an epoch, all ranks together"),
        (true, "the whole run, or the rest of it when it was last resumed, all ranks together"),
    ] {
        let group: Vec<_> =
            tags.iter().filter(|(key, _)| key.0 == once).map(|(key, row)| (key.1, row)).collect();
        if !group.is_empty() {
            html += &tag_bars(runs, title, &group);
        }
    }
    (!html.is_empty()).then_some(html)
}

fn tag_bars(runs: &[RunData], title: &str, group: &[(&str, &Vec<(usize, &Value)>)]) -> String {
    let bytes = group.iter().flat_map(|(_, row)| row.iter()).filter_map(|(_, bytes)| bytes.as_f64());
    let most = bytes.fold(0.0, f64::max).max(1.0);
    let mut html = format!(
        "<div class=\"wide\"><table class=\"bars\"><thead><tr><th class=\"left\">{title}</th><th class=\"left\">run</th><th></th>\
         <th>sent</th></tr></thead><tbody>\n"
    );
    for (tag, row) in group {
        for (i, (k, bytes)) in row.iter().enumerate() {
            let share = 100.0 * bytes.as_f64().unwrap_or(0.0).max(0.0) / most;
            let _ = writeln!(
                html,
                "<tr class=\"run{}\"><th>{}</th><td class=\"left\">{}{}</td><td class=\"track\"><div class=\"bar\">\
                 <span style=\"width:{share:.3}%\"></span></div></td><td>{}</td></tr>",
                k % COLOURS,
                if i == 0 { escape(tag) } else { String::new() },
                chip(*k),
                escape(&runs[*k].name),
                Unit::Bytes.html(bytes)
            );
        }
    }
    html + "</tbody></table></div>\n"
}

/// What each rank owns and reads, a table a run; nothing if no run tells.
pub(super) fn parts(runs: &[RunData]) -> Option<String> {
    let tables = runs.iter().enumerate().filter_map(|(k, run)| {
        let parts = run.fact("parts")?.as_array().filter(|parts| !parts.is_empty())?;
        Some(part_table(&format!("{}{}", chip(k), escape(&run.name)), parts))
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
    html.push_str("</tbody><tfoot><tr><th class=\"left\">largest / mean</th>");
    for (key, _) in COLUMNS {
        let values: Vec<f64> = parts.iter().filter_map(|part| part[key].as_f64()).collect();
        let (most, sum) = (values.iter().copied().fold(0.0, f64::max), values.iter().sum::<f64>());
        let ratio = if sum > 0.0 { format!("{:.3}", most * values.len() as f64 / sum) } else { "–".into() };
        let _ = write!(html, "<td>{ratio}</td>");
    }
    html + "</tr></tfoot></table></figure>\n"
}
