//! Values of one setting in a sweep.

use halograph_graph::error::{Error, Result};

use crate::config::{self, Setting};

/// A setting and the values that runs of a sweep give it.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The values, at least one, with the same key.
    pub values: Vec<Setting>,
}

impl Axis {
    /// Parses `KEY=VALUE,VALUE`. A list as a value is put in brackets: `fanout=[15,10],[10,5]`.
    ///
    /// `key_of` returns the key of a name that is not one.
    pub fn parse(text: &str, key_of: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let malformed = || {
            Error::input("--grid", format!("{text:?} is not KEY=VALUE,VALUE"))
                .help("for example: --grid lr=0.01,0.003")
        };
        let (name, values) = text.split_once('=').ok_or_else(malformed)?;
        let words = split(values).ok_or_else(malformed)?;
        if name.is_empty() || words.iter().any(|word| word.trim().is_empty()) {
            return Err(malformed());
        }
        let key = key_of(name).unwrap_or_else(|| name.into());
        let place = format!("--grid {name}");
        let values: Vec<Setting> =
            words.iter().map(|word| Setting::quoted(&place, &key, word.trim())).collect();
        let shown = |k: usize| config::text(&values[k].value);
        if let Some(k) = (1..values.len()).find(|&k| (0..k).any(|j| shown(j) == shown(k))) {
            let problem = format!("{} is listed twice", shown(k));
            return Err(Error::input(place, problem).help("list each value once"));
        }
        Ok(Axis { values })
    }
}

/// Splits at commas outside of brackets; `None` if brackets do not match.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut start, mut words) = (0_usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    (depth == 0).then_some(words)
}
