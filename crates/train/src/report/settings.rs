//! Settings of the runs: those that differ in a table, the others in a list.

use std::collections::BTreeMap;

use serde_json::Value;

use super::read::RunData;
use super::table::{Table, TableRow, list, marked_name};
use super::text::{Unit, escape};
use crate::config::Config;

/// A setting of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell<'a> {
    Value(&'a Value),
    /// Not given, such as a weight decay for one layer.
    Unset,
    /// Without effect in this run.
    Unused,
}

impl Cell<'_> {
    fn to_html(self) -> String {
        match self {
            Cell::Value(value) => Unit::Plain.html(value),
            Cell::Unset | Cell::Unused => "–".into(),
        }
    }
}

/// A setting in all runs.
struct SettingRow<'a> {
    name: &'a str,
    cells: Vec<Cell<'a>>,
}

impl SettingRow<'_> {
    fn used(&self) -> impl Iterator<Item = &Cell<'_>> {
        self.cells.iter().filter(|cell| **cell != Cell::Unused)
    }

    /// Returns whether runs that use the setting have different values.
    fn differs(&self) -> bool {
        self.used().any(|cell| Some(cell) != self.used().next())
    }
}

/// Returns the settings of all runs as HTML. Settings without effect are left out.
pub(super) fn settings(runs: &[RunData]) -> String {
    let rows = by_name(runs);
    let differing: Vec<&SettingRow> = rows.iter().filter(|row| row.differs()).collect();
    let mut html = String::new();
    if !differing.is_empty() {
        let names = runs.iter().enumerate().map(|(k, run)| marked_name(k, run));
        let cells = |row: &SettingRow| row.cells.iter().map(|cell| cell.to_html()).collect();
        let table = Table {
            columns: names.collect(),
            rows: differing
                .iter()
                .map(|row| TableRow { name: escape(row.name), class: "", cells: cells(row) })
                .collect(),
        };
        // The longer side goes down the page.
        let table = if runs.len() > differing.len() { table.transposed() } else { table };
        html += &format!("<p>Settings that differ:</p>\n{}", table.to_html());
    }
    let text = match (runs.len(), differing.is_empty()) {
        (1, _) => "",
        (_, true) => "<p>All settings are the same in all runs:</p>\n",
        (_, false) => "<p>The same in all runs that use them:</p>\n",
    };
    let same = rows.iter().filter(|row| !row.differs());
    let same = same.filter_map(|row| Some((escape(row.name), row.used().next()?.to_html())));
    html + text + &list(same)
}

/// Returns every setting that any run has, with its value in each run.
fn by_name(runs: &[RunData]) -> Vec<SettingRow<'_>> {
    let mut rows: Vec<SettingRow> = Vec::new();
    let mut index = BTreeMap::new();
    for (k, run) in runs.iter().enumerate() {
        for (name, value) in &run.settings {
            let row = *index.entry(name.as_str()).or_insert_with(|| {
                let unset = |run| if is_used(name, run) { Cell::Unset } else { Cell::Unused };
                rows.push(SettingRow { name, cells: runs.iter().map(|run| unset(&run.config)).collect() });
                rows.len() - 1
            });
            if is_used(name, &run.config) {
                rows[row].cells[k] = Cell::Value(value);
            }
        }
    }
    rows
}

fn is_used(name: &str, config: &Config) -> bool {
    config.requirement(name).is_none()
}

#[cfg(test)]
mod tests {
    use halograph_nn::model::Kind;

    use super::*;
    use crate::config::{Smooth, StrategyKind};

    #[test]
    fn settings_of_other_models_and_strategies_are_unused() {
        let mut config = Config::new(Kind::Gcn);
        let used =
            |config: &Config, names: &[&str]| names.iter().filter(|name| is_used(name, config)).count();
        let gat = ["model.heads", "model.attention_dropout"];
        let exchange = ["train.partition", "train.overlap", "train.deadline"];
        let stale = ["train.staleness", "train.warmup_epochs", "train.smooth", "train.gamma"];
        assert_eq!([used(&config, &gat), used(&config, &exchange), used(&config, &stale)], [0, 0, 0]);
        assert!(is_used("train.lr", &config) && is_used("model.hidden", &config));
        (config.train.strategy, config.train.ranks) = (StrategyKind::Partition, 2);
        assert_eq!([used(&config, &exchange), used(&config, &stale)], [3, 0]);
        config.train.strategy = StrategyKind::Pipelined;
        assert_eq!(used(&config, &stale), 4);
        config.train.smooth = Smooth::None;
        assert_eq!(used(&config, &stale), 3);
        config.train.ranks = 1;
        assert_eq!(used(&config, &stale), 0);
    }
}
