//! Labels from table cells.

use std::collections::{BTreeSet, HashMap};

use super::Cell;
use crate::dataset::write::Labels;

/// No label.
const NONE: u32 = u32::MAX;
/// Words for a missing value, as pandas reads them.
const MISSING: [&str; 8] = ["NA", "N/A", "n/a", "<NA>", "#N/A", "NULL", "null", "None"];

/// Collects labels cell by cell: classes from one column, 0/1 flags from several, nothing from none.
pub(in crate::import) enum LabelReader {
    /// Classes, numbered in the order they come; names are sorted at the end. `missing`: words that were read as no label.
    Single { codes: Vec<u32>, seen: HashMap<String, u32>, missing: BTreeSet<&'static str> },
    /// Flags, row by row.
    Multi { classes: usize, flags: Vec<u8> },
}

impl LabelReader {
    pub(in crate::import) fn new(columns: usize) -> Self {
        if columns <= 1 {
            LabelReader::Single { codes: Vec::new(), seen: HashMap::new(), missing: BTreeSet::new() }
        } else {
            LabelReader::Multi { classes: columns, flags: Vec::new() }
        }
    }

    /// Adds a node without a label.
    pub(in crate::import) fn push_none(&mut self) {
        match self {
            LabelReader::Multi { classes, flags } => flags.resize(flags.len() + *classes, 0),
            LabelReader::Single { codes, .. } => codes.push(NONE),
        }
    }

    /// Adds the next cell; the error is its problem.
    pub(in crate::import) fn push(&mut self, cell: Cell) -> Result<(), String> {
        match self {
            LabelReader::Multi { flags, .. } => flags.push(flag(cell)?),
            LabelReader::Single { codes, seen, missing } => {
                if let Some(word) = missing_word(&cell) {
                    missing.insert(word);
                    codes.push(NONE);
                    return Ok(());
                }
                let next = seen.len() as u32;
                codes.push(class(cell)?.map_or(NONE, |name| *seen.entry(name).or_insert(next)));
            }
        }
        Ok(())
    }

    /// Returns the words that were read as no label.
    pub(in crate::import) fn missing(&self) -> Vec<&'static str> {
        match self {
            LabelReader::Multi { .. } => Vec::new(),
            LabelReader::Single { missing, .. } => missing.iter().copied().collect(),
        }
    }

    /// Returns the labels, and the names of the classes if they are not numbers.
    pub(in crate::import) fn finish(self) -> (Labels, Vec<String>) {
        let (codes, seen) = match self {
            LabelReader::Multi { classes, flags } => return (Labels::Multi { classes, flags }, Vec::new()),
            LabelReader::Single { codes, seen, .. } => (codes, seen),
        };
        let mut names: Vec<(String, u32)> = seen.into_iter().collect();
        names.sort_unstable();
        let numbers: Option<Vec<i64>> = names.iter().map(|(name, _)| name.parse().ok()).collect();
        let mut value = vec![-1; names.len()];
        for (k, (_, code)) in names.iter().enumerate() {
            value[*code as usize] = numbers.as_ref().map_or(k as i64, |numbers| numbers[k]);
        }
        let label = |&code: &u32| if code == NONE { -1 } else { value[code as usize] };
        let labels = Labels::Single(codes.iter().map(label).collect());
        let names = if numbers.is_some() { Vec::new() } else { names.into_iter().map(|(n, _)| n).collect() };
        (labels, names)
    }
}

fn missing_word(cell: &Cell) -> Option<&'static str> {
    let Cell::Text(text) = cell else { return None };
    MISSING.into_iter().find(|word| word == text)
}

/// Returns the name of a class; `None` for an empty cell, NaN or -1.
fn class(cell: Cell) -> Result<Option<String>, String> {
    let int = |x: i64, name: String| match x {
        ..-1 => Err(format!("class {x}: classes count from 0, and -1 means no label")),
        -1 => Ok(None),
        _ => Ok(Some(name)),
    };
    let real = |x: f64| match x {
        x if x.is_nan() => Ok(None),
        x if x.fract() == 0.0 && x.abs() < 1e15 => int(x as i64, (x as i64).to_string()),
        _ => Err(format!("{cell} is a number but not a class: classes are whole numbers or names")),
    };
    match cell {
        Cell::Null => Ok(None),
        Cell::Int(x) => int(x, x.to_string()),
        Cell::Real(x) => real(x),
        Cell::Text(text) => match (text.parse(), text.parse::<f64>()) {
            (Ok(x), _) => int(x, text.to_string()),
            (_, Ok(x)) if !x.is_infinite() => real(x),
            _ => Ok(Some(text.to_string())),
        },
        Cell::List(_) => Err(format!("{cell} where a class is needed")),
    }
}

fn flag(cell: Cell) -> Result<u8, String> {
    match cell {
        Cell::Int(x @ (0 | 1)) => Ok(x as u8),
        Cell::Real(x) if x == 0.0 || x == 1.0 => Ok(x as u8),
        Cell::Text("0" | "0.0" | "false" | "False") => Ok(0),
        Cell::Text("1" | "1.0" | "true" | "True") => Ok(1),
        _ => Err(format!("{cell} where a multi-label table has 0 or 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(texts: &[&str]) -> Result<(Labels, Vec<String>), String> {
        let mut labels = LabelReader::new(1);
        let cell = |text: &&'static str| if text.is_empty() { Cell::Null } else { Cell::Text(text) };
        let texts: Vec<&'static str> = texts.iter().map(|t| &*t.to_string().leak()).collect();
        texts.iter().try_for_each(|text| labels.push(cell(text)))?;
        Ok(labels.finish())
    }

    #[test]
    fn numeric_classes_keep_their_numbers() {
        assert_eq!(
            single(&["10", "2.0", "", "nan", "-1"]).unwrap(),
            (Labels::Single(vec![10, 2, -1, -1, -1]), vec![])
        );
    }

    #[test]
    fn named_classes_are_numbered_in_sorted_order() {
        let (labels, names) = single(&["cat", "", "ant", "cat", "7"]).unwrap();
        assert_eq!(names, ["7", "ant", "cat"]);
        assert_eq!(labels, Labels::Single(vec![2, -1, 1, 2, 0]));
    }

    #[test]
    fn words_for_missing_values_are_no_classes() {
        let (labels, names) = single(&["cat", "NA", "None", "-1", "ant", "null"]).unwrap();
        assert_eq!(names, ["ant", "cat"]);
        assert_eq!(labels, Labels::Single(vec![1, -1, -1, -1, 0, -1]));
    }

    #[test]
    fn fractions_and_other_flags_are_refused() {
        assert!(single(&["1.5"]).unwrap_err().contains("\"1.5\" is a number but not a class"));
        assert!(LabelReader::new(2).push(Cell::Int(2)).is_err());
    }
}
