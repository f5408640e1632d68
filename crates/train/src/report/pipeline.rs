//! Stage groups of runs that split the model: what their time went to. Other runs have none.

use std::fmt::Write;

use serde_json::Value;

use super::chart::series_class;
use super::read::RunData;
use super::table::marked_name;
use super::text::Unit;

/// Shares of a run: key in the summary, name on the page.
const SHARES: [(&str, &str); 5] = [
    ("bubble_formula", "bubble by formula"),
    ("bubble", "bubble"),
    ("exposed_communication", "exposed communication"),
    ("idle", "idle"),
    ("imbalance", "imbalance"),
];
/// Times of a stage group: key in the summary, name on the page, CSS class of its bar.
const TIMES: [(&str, &str, &str); 3] = [
    ("compute_seconds", "compute", "computed"),
    ("bubble_seconds", "bubble", "bubble"),
    ("exposed_seconds", "exposed communication", "waiting"),
];

/// Returns shares of the time by run, and times by stage group; nothing if no run splits the model.
pub(super) fn pipeline(runs: &[RunData]) -> Option<String> {
    let split: Vec<(usize, &RunData, &Value)> = runs
        .iter()
        .enumerate()
        .filter_map(|(k, run)| Some((k, run, run.summary_value("pipeline")?)))
        .filter(|(.., facts)| facts["groups"].is_array())
        .collect();
    (!split.is_empty()).then(|| shares(&split) + &groups(&split))
}

fn shares(split: &[(usize, &RunData, &Value)]) -> String {
    let mut html = head("<table>", &SHARES.map(|(_, name)| name));
    for (k, run, facts) in split {
        let cells = SHARES.map(|(key, _)| format!("<td>{}</td>", Unit::Fraction.html(&facts[key])));
        let (class, name) = (series_class(*k), marked_name(*k, run));
        let _ = writeln!(html, "<tr class=\"{class}\"><th>{name}</th>{}</tr>", cells.concat());
    }
    html + "</tbody></table></div>\n"
}

fn groups(split: &[(usize, &RunData, &Value)]) -> String {
    let all = || split.iter().flat_map(|(.., facts)| facts["groups"].as_array()).flatten();
    let time = |group: &Value| TIMES.iter().map(|(key, ..)| seconds(group, key)).sum::<f64>();
    let longest = all().map(time).fold(1e-9, f64::max);
    let columns = ["stages", ""].into_iter().chain(TIMES.map(|(_, name, _)| name));
    let mut html = head("<table class=\"bars\">", &columns.collect::<Vec<_>>());
    for (k, run, facts) in split {
        for (i, group) in facts["groups"].as_array().into_iter().flatten().enumerate() {
            let name = if i == 0 { marked_name(*k, run) } else { String::new() };
            let _ = write!(
                html,
                "<tr class=\"{}\"><th>{name}</th><td>{}</td><td class=\"track\"><div class=\"bar\">",
                series_class(*k),
                stages(&group["stages"]),
            );
            for (key, _, class) in TIMES {
                let width = (100.0 * seconds(group, key) / longest).clamp(0.0, 100.0);
                let _ = write!(html, "<span class=\"{class}\" style=\"width:{width:.3}%\"></span>");
            }
            let cells = TIMES.map(|(key, ..)| format!("<td>{}</td>", Unit::Seconds.html(&group[key])));
            let _ = writeln!(html, "</div></td>{}</tr>", cells.concat());
        }
    }
    html + "</tbody></table></div>\n"
}

fn head(table: &str, columns: &[&str]) -> String {
    let columns: String = columns.iter().map(|name| format!("<th>{name}</th>")).collect();
    format!(
        "<div class=\"wide\">{table}<thead><tr><th class=\"left\">run</th>{columns}</tr></thead><tbody>\n"
    )
}

fn seconds(group: &Value, key: &str) -> f64 {
    group[key].as_f64().unwrap_or(0.0).max(0.0)
}

/// Returns the first and the last stage of a group.
fn stages(run: &Value) -> String {
    match (run[0].as_u64(), run[1].as_u64()) {
        (Some(first), Some(end)) => format!("{first}–{}", end.saturating_sub(1)),
        _ => "–".into(),
    }
}
