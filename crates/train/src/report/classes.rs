//! Scores of single classes, a table per run, and the confusion matrix.

use std::fmt::Write;

use serde_json::Value;

use super::read::RunData;
use super::table::{Table, TableRow, list, marked_name};
use super::text::{Unit, escape};

/// Classes shown at most.
const MAX_CLASSES: usize = 50;
/// Largest number of classes with a confusion matrix on the page.
const MAX_CONFUSION: usize = 20;

/// Scores over all classes: key, name.
const MEANS: [(&str, &str); 5] = [
    ("accuracy", "accuracy"),
    ("balanced_accuracy", "balanced accuracy"),
    ("macro_f1", "macro-F1"),
    ("micro_f1", "micro-F1"),
    ("nodes", "nodes"),
];
/// Scores of each class: key, name, format.
const COLUMNS: [(&str, &str, Unit); 4] = [
    ("precision", "precision", Unit::Fraction),
    ("recall", "recall", Unit::Fraction),
    ("f1", "F1", Unit::Fraction),
    ("support", "support", Unit::Count),
];

/// Returns the scores of the classes of every run that has them.
pub(super) fn classes(runs: &[RunData]) -> Option<String> {
    let figures = runs.iter().enumerate().filter_map(|(k, run)| {
        let report = run.summary_value("classes")?;
        let (subset, scores) = ["test", "val"]
            .iter()
            .find_map(|subset| Some((subset, report.get(subset).filter(|scores| scores.is_object())?)))?;
        let name = if runs.len() > 1 { marked_name(k, run) } else { String::new() };
        let subset = if *subset == "test" { "test nodes" } else { "validation nodes" };
        let names = report.get("names").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Some(format!("<h3>{name} <small>{subset}</small></h3>\n{}", of_run(scores, names)))
    });
    Some(figures.collect())
}

fn of_run(scores: &Value, names: &[Value]) -> String {
    let mean = |&(key, name): &(&str, &str)| {
        let unit = if key == "nodes" { Unit::Count } else { Unit::Fraction };
        Some((name.to_string(), unit.html(scores.get(key)?)))
    };
    let mut html = list(MEANS.iter().filter_map(mean));
    let count = numbers(scores, "support").len();
    if count == 0 {
        return html;
    }
    let row = |class: usize| {
        let cell = |&(key, _, unit): &(&str, &str, Unit)| {
            unit.html(&numbers(scores, key).get(class).cloned().unwrap_or_default())
        };
        TableRow { name: name_of(names, class), class: "", cells: COLUMNS.iter().map(cell).collect() }
    };
    let columns = COLUMNS.iter().map(|(_, name, _)| name.to_string()).collect();
    html += &Table { columns, rows: (0..count.min(MAX_CLASSES)).map(row).collect() }.to_html();
    if count > MAX_CLASSES {
        let _ = writeln!(
            html,
            "<p>{MAX_CLASSES} of {count} classes are shown; <code>halograph eval</code> lists all.</p>"
        );
    }
    html + &confusion(scores, names)
}

/// Returns the confusion matrix, if it is small.
fn confusion(scores: &Value, names: &[Value]) -> String {
    let matrix = numbers(scores, "confusion");
    if !(1..=MAX_CONFUSION).contains(&matrix.len()) {
        return String::new();
    }
    let row = |(class, counts): (usize, &Value)| {
        let counts = counts.as_array().map_or(&[][..], Vec::as_slice);
        TableRow {
            name: name_of(names, class),
            class: "",
            cells: counts.iter().map(|n| Unit::Count.html(n)).collect(),
        }
    };
    let columns = (0..matrix.len()).map(|class| name_of(names, class)).collect();
    Table { columns, rows: matrix.iter().enumerate().map(row).collect() }.to_html()
}

fn numbers<'v>(scores: &'v Value, key: &str) -> &'v [Value] {
    scores.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn name_of(names: &[Value], class: usize) -> String {
    names.get(class).and_then(Value::as_str).map_or(class.to_string(), escape)
}
