//! Columns of tables, found by name, by position or by usual names.

use std::collections::HashMap;

use super::{Table, TableSpec};
use crate::error::{Error, Result};

/// Usual names of the column of sources.
const SRC: [&str; 3] = ["src", "source", "from"];
/// Usual names of the column of destinations.
const DST: [&str; 3] = ["dst", "target", "to"];

/// Usual names of the column of weights.
const WEIGHT: [&str; 2] = ["weight", "edge_weight"];

/// Usual names of the column of classes.
const LABEL: [&str; 3] = ["label", "y", "class"];

/// The columns of a node table.
pub(super) struct Columns {
    pub id: usize,
    /// Empty: no node has a label.
    pub labels: Vec<usize>,
    pub split: Option<usize>,
    /// Empty if features come from elsewhere.
    pub features: Vec<usize>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Columns {
    /// Finds the columns of `spec`, and the others by their usual names.
    pub(super) fn choose(table: &dyn Table, spec: &TableSpec) -> Result<Columns> {
        let flags = spec.id.iter().chain(&spec.labels).chain(&spec.split).chain(&spec.feature_columns);
        expect_names(table, flags)?;
        let id = named_or_guessed(table, spec.id.as_deref(), &["id", "node", "node_id"])?.unwrap_or(0);
        let labels: Vec<usize> = match &spec.labels[..] {
            [] => guess(table, &LABEL).into_iter().collect(),
            names => names.iter().map(|name| named(table, name)).collect::<Result<_>>()?,
        };
        let notes = labels.is_empty().then(|| {
            let (name, names) = (table.name(), LABEL.join(", "));
            format!("{name}: no label column: none of {names} is there; choose one with --label-col")
        });
        let split = named_or_guessed(table, spec.split.as_deref(), &["split"])?;
        let notes = notes.into_iter().collect();
        let mut columns = Columns { id, labels, split, features: Vec::new(), notes };
        if spec.features.is_none() {
            columns.choose_features(table, &spec.feature_columns)?;
        }
        Ok(columns)
    }

    fn choose_features(&mut self, table: &dyn Table, wanted: &[String]) -> Result<()> {
        let mut skipped = String::new();
        for name in wanted {
            for column in matching(table, name)? {
                self.check_feature(table, column)?;
                self.features.push(column);
            }
        }
        if wanted.is_empty() {
            let numeric = table.numeric()?;
            let free = (0..table.columns().len()).filter(|&k| self.role(k).is_none());
            let (features, others): (Vec<_>, Vec<_>) = free.partition(|&k| numeric[k]);
            self.features = features;
            if !others.is_empty() {
                let names: Vec<String> = others.iter().map(|&k| table.columns()[k].clone()).collect();
                skipped = format!("columns that are not numbers: {}", listing(&names));
                self.notes.push(format!("{}: skipped {skipped}", table.name()));
            }
        }
        if self.features.is_empty() {
            let help = "choose columns with --feature-cols, or give an array with --feature-file FILE.npy";
            let problem = if skipped.is_empty() { "no feature column" } else { "no feature column; " };
            return Err(Error::input(table.name(), format!("{problem}{skipped}")).help(help));
        }
        self.check_names(table)?;
        if wanted.is_empty() {
            // An unnamed index column would be among them, so that the user should know.
            let names: Vec<String> =
                self.features.iter().map(|&k| format!("{:?}", table.columns()[k])).collect();
            self.notes.push(format!("{}: feature columns: {}", table.name(), listing(&names)));
        }
        Ok(())
    }

    /// Refuses feature columns of one name: other data are matched by name.
    fn check_names(&self, table: &dyn Table) -> Result<()> {
        let mut seen = HashMap::new();
        for &column in &self.features {
            let name = &table.columns()[column];
            if let Some(first) = seen.insert(name, column) {
                let problem =
                    format!("two feature columns are called {name:?}: positions {first} and {column}");
                return Err(Error::input(table.name(), problem)
                    .help("rename one of them, or choose columns by position with --feature-cols"));
            }
        }
        Ok(())
    }

    /// Returns the role of a column that cannot be a feature.
    fn role(&self, column: usize) -> Option<&'static str> {
        match column {
            k if k == self.id => Some("the id"),
            k if self.labels.contains(&k) => Some("a label"),
            k if self.split == Some(k) => Some("the split"),
            _ => None,
        }
    }

    /// Refuses a feature column that has another role or is a feature already.
    fn check_feature(&self, table: &dyn Table, column: usize) -> Result<()> {
        let twice = self.features.contains(&column).then_some("a feature already");
        match self.role(column).or(twice) {
            None => Ok(()),
            Some(role) => {
                let name = &table.columns()[column];
                let problem = format!("--feature-cols includes column {name:?}, which is {role}");
                Err(Error::input(table.name(), problem).help("leave that column out"))
            }
        }
    }
}

/// The columns of an edge table.
pub(super) struct EdgeColumns {
    /// Sources and destinations.
    pub ends: [usize; 2],
    pub weight: Option<usize>,
}

impl EdgeColumns {
    /// Finds the columns of `spec`, and the others by their usual names.
    pub(super) fn choose(table: &dyn Table, spec: &TableSpec) -> Result<EdgeColumns> {
        let ends = edge_ends(table, spec)?;
        let weight = match &spec.weight {
            Some(name) => Some(named(table, name)?),
            None => guess(table, &WEIGHT).filter(|column| !ends.contains(column)),
        };
        match weight.filter(|column| ends.contains(column)) {
            None => Ok(EdgeColumns { ends, weight }),
            Some(column) => {
                let problem =
                    format!("column {:?} holds the ends of edges, not weights", table.columns()[column]);
                Err(Error::input(table.name(), problem).help("choose another one with --weight-col"))
            }
        }
    }

    /// Says which columns are read as weights and which are not read.
    pub(super) fn note(&self, table: &dyn Table) -> Vec<String> {
        let (columns, name) = (table.columns(), table.name());
        let is_read = |k: &usize| self.ends.contains(k) || self.weight == Some(*k);
        let rest: Vec<String> =
            (0..columns.len()).filter(|k| !is_read(k)).map(|k| columns[k].clone()).collect();
        let mut notes = Vec::new();
        notes.extend(self.weight.map(|column| format!("{name}: edge weights: column {:?}", columns[column])));
        if !rest.is_empty() {
            let mut note = format!("{name}: columns that are not imported: {}", listing(&rest));
            if self.weight.is_none() {
                note += "; --weight-col reads one as edge weights";
            }
            notes.push(note);
        }
        notes
    }
}

/// Returns the columns of sources and destinations in an edge table.
fn edge_ends(table: &dyn Table, spec: &TableSpec) -> Result<[usize; 2]> {
    if table.columns().len() < 2 {
        let problem = format!("one column where edges need two: {}", listing(table.columns()));
        return Err(
            Error::input(table.name(), problem).help("if the delimiter is wrong, choose it with --delimiter")
        );
    }
    expect_names(table, spec.src.iter().chain(&spec.dst).chain(&spec.weight))?;
    let src = named_or_guessed(table, spec.src.as_deref(), &SRC)?;
    let dst = named_or_guessed(table, spec.dst.as_deref(), &DST)?;
    let missing = |what: &str, names: &[&str], flag: &str| {
        let problem = format!("no column of {what}: none of {} is there", names.join(", "));
        let help = format!("choose one with {flag}; the columns are {}", listing(table.columns()));
        Err(Error::input(table.name(), problem).help(help))
    };
    match (src, dst) {
        (Some(src), Some(dst)) if src == dst => {
            let problem = format!("column {:?} is both source and destination", table.columns()[src]);
            Err(Error::input(table.name(), problem).help("choose two with --src-col and --dst-col"))
        }
        (Some(src), Some(dst)) => Ok([src, dst]),
        // Positions are used only if neither is named: otherwise a position could be the named column.
        (None, None) => Ok([0, 1]),
        (None, Some(_)) => missing("sources", &SRC, "--src-col"),
        (Some(_), None) => missing("destinations", &DST, "--dst-col"),
    }
}

/// Refuses a first line of numbers where column names are expected, unless a flag names one of them. A position such as
/// `0` does not count as a name.
fn expect_names<'a>(table: &dyn Table, mut flags: impl Iterator<Item = &'a String>) -> Result<()> {
    let columns = table.columns();
    let number = |name: &String| name.parse::<f64>().is_ok();
    let position = |flag: &str| flag.parse().is_ok_and(|k: usize| k < columns.len());
    let called = flags.any(|flag| columns.contains(flag) && !position(flag));
    if !table.names_from_first_line() || called || !columns.iter().all(number) {
        return Ok(());
    }
    let problem = format!("numbers where column names are expected: {}", listing(columns));
    Err(Error::input(format!("{}, line 1", table.name()), problem)
        .help("add --no-header if the first line is data; otherwise name the columns there"))
}

/// Returns the column the user chose, else the first with one of the usual `names`.
fn named_or_guessed(table: &dyn Table, wanted: Option<&str>, names: &[&str]) -> Result<Option<usize>> {
    match wanted {
        Some(name) => named(table, name).map(Some),
        None => Ok(guess(table, names)),
    }
}

fn guess(table: &dyn Table, names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| table.columns().iter().position(|column| column.eq_ignore_ascii_case(name)))
}

/// Returns the column called `name`, or at position `name`.
fn named(table: &dyn Table, name: &str) -> Result<usize> {
    let columns = table.columns();
    let by_name = columns.iter().position(|column| column == name);
    let by_position = || name.parse().ok().filter(|&k: &usize| k < columns.len());
    by_name.or_else(by_position).ok_or_else(|| missing(table, name))
}

/// Returns the columns that `name` selects: one, a range of positions `3-130`, or all with a prefix `x*`.
fn matching(table: &dyn Table, name: &str) -> Result<Vec<usize>> {
    if let Ok(column) = named(table, name) {
        return Ok(vec![column]);
    }
    let columns = table.columns();
    if let Some(prefix) = name.strip_suffix('*') {
        let found: Vec<usize> = (0..columns.len()).filter(|&k| columns[k].starts_with(prefix)).collect();
        return if found.is_empty() { Err(missing(table, name)) } else { Ok(found) };
    }
    let range = name.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    match range {
        Some((first, last)) if first <= last && last < columns.len() => Ok((first..=last).collect()),
        Some((first, last)) if first < columns.len() && last >= columns.len() => {
            let problem = format!("{name}: the last column has position {}", columns.len() - 1);
            Err(Error::input(table.name(), problem).help("positions count from 0"))
        }
        _ => Err(missing(table, name)),
    }
}

fn missing(table: &dyn Table, name: &str) -> Error {
    let columns = table.columns();
    Error::input(table.name(), format!("no column {name:?}")).help(format!(
        "the {} columns are {}; positions count from 0",
        columns.len(),
        listing(columns)
    ))
}

/// Returns the first names of a list, and how many more there are.
fn listing(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(", and {} more", names.len() - SHOWN);
    }
    text
}
