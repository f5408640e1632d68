//! Finding columns: by name, by position, or by guessing.

use super::{Table, TableSpec};
use crate::error::{Error, Result};

/// Where everything stands in a node table.
pub(super) struct Columns {
    pub id: usize,
    pub labels: Vec<usize>,
    pub split: Option<usize>,
    /// Empty if features come from elsewhere.
    pub features: Vec<usize>,
    /// Things worth telling.
    pub notes: Vec<String>,
}

impl Columns {
    /// Finds what `spec` names and guesses the rest.
    pub(super) fn choose(table: &dyn Table, spec: &TableSpec) -> Result<Columns> {
        let id = named_or(table, spec.id.as_deref(), &["id", "node", "node_id"], 0)?;
        let labels = match &spec.labels[..] {
            [] => vec![guess(table, &["label", "y", "class"]).ok_or_else(|| {
                Error::input(table.name(), "no label column: none of label, y, class is there").help(format!(
                    "choose one with --label-col; the columns are {}",
                    listing(table.columns())
                ))
            })?],
            names => names.iter().map(|name| named(table, name)).collect::<Result<_>>()?,
        };
        let split = match &spec.split {
            Some(name) => Some(named(table, name)?),
            None => guess(table, &["split"]),
        };
        let mut columns = Columns { id, labels, split, features: Vec::new(), notes: Vec::new() };
        if spec.features.is_none() {
            columns.choose_features(table, &spec.feature_columns)?;
        }
        Ok(columns)
    }

    fn choose_features(&mut self, table: &dyn Table, wanted: &[String]) -> Result<()> {
        for name in wanted {
            self.features.extend(matching(table, name)?);
        }
        if wanted.is_empty() {
            let taken = |k: &usize| *k == self.id || self.labels.contains(k) || self.split == Some(*k);
            let numeric = table.numeric()?;
            let (features, others): (Vec<_>, Vec<_>) =
                (0..table.columns().len()).filter(|k| !taken(k)).partition(|&k| numeric[k]);
            self.features = features;
            if !others.is_empty() {
                let names: Vec<String> = others.iter().map(|&k| table.columns()[k].clone()).collect();
                self.notes.push(format!("{}: not numbers, left out: {}", table.name(), listing(&names)));
            }
        }
        if self.features.is_empty() {
            let help = "name them with --feature-cols, or an array with --features FILE.npy";
            return Err(Error::input(table.name(), "no column of features").help(help));
        }
        Ok(())
    }
}

/// The columns of sources and destinations in an edge table.
pub(super) fn edge_ends(table: &dyn Table, spec: &TableSpec) -> Result<[usize; 2]> {
    if table.columns().len() < 2 {
        let problem = format!("one column where edges need two: {}", listing(table.columns()));
        return Err(Error::input(table.name(), problem).help("is the delimiter right?"));
    }
    Ok([
        named_or(table, spec.src.as_deref(), &["src", "source", "from"], 0)?,
        named_or(table, spec.dst.as_deref(), &["dst", "target", "to"], 1)?,
    ])
}

/// The column the user named, else the first with one of the usual `names`, else number `position`.
fn named_or(table: &dyn Table, wanted: Option<&str>, names: &[&str], position: usize) -> Result<usize> {
    match wanted {
        Some(name) => named(table, name),
        None => Ok(guess(table, names).unwrap_or(position)),
    }
}

fn guess(table: &dyn Table, names: &[&str]) -> Option<usize> {
    names.iter().find_map(|name| table.columns().iter().position(|column| column.eq_ignore_ascii_case(name)))
}

/// The column called `name`, or at position `name`.
fn named(table: &dyn Table, name: &str) -> Result<usize> {
    let columns = table.columns();
    let by_name = columns.iter().position(|column| column == name);
    let by_position = || name.parse().ok().filter(|&k: &usize| k < columns.len());
    by_name.or_else(by_position).ok_or_else(|| missing(table, name))
}

/// The columns that `name` stands for: one, a range of positions `3-130`, or all with a prefix `x*`.
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

/// The first names of a list, and how many more there are.
fn listing(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text += &format!(", and {} more", names.len() - SHOWN);
    }
    text
}
