//! One setting, and where it was set.

use std::path::Path;

use halograph_graph::error::{Error, IoContext, Result};
use toml::Value;
use toml::de::DeTable;

/// A key, its value, and where it was set.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Components of the key: tables, then the name.
    pub key: Vec<String>,
    /// The value.
    pub value: Value,
    /// File and line, or flag.
    pub place: String,
}

impl Setting {
    /// Parses the value of a flag. Text that is not a TOML value is a string, except numbers that begin or end with the
    /// decimal point.
    pub fn new(place: &str, key: &str, text: &str) -> Self {
        let short = |text: &str| text.contains('.').then(|| text.parse().ok().map(Value::Float)).flatten();
        let value = text.trim().parse().ok().or_else(|| short(text.trim()));
        let value = value.unwrap_or_else(|| Value::String(text.into()));
        Setting { key: key.split('.').map(String::from).collect(), value, place: place.into() }
    }

    /// Parses `key=value`, the argument of `--set`.
    pub fn parse(place: &str, text: &str) -> Result<Self> {
        let malformed = || {
            Error::input(place, format!("{text:?} is not key=value"))
                .help("for example: --set model.hidden=256")
        };
        let (key, value) = text.split_once('=').ok_or_else(malformed)?;
        let value = Setting::new(place, "", value).value;
        let key = parse_key(key).ok_or_else(malformed)?;
        Ok(Setting { key, value, place: place.into() })
    }

    /// Parses a value as [`Setting::new`], and the key as TOML, so that quoted parts may contain dots: `a."b.c"`. A key that
    /// is not TOML is split at its dots.
    pub fn quoted(place: &str, key: &str, text: &str) -> Self {
        let setting = Setting::new(place, key, text);
        Setting { key: parse_key(key).unwrap_or(setting.key), ..setting }
    }

    /// Splits a setting of a table into settings of single values.
    pub fn parts(self) -> Vec<Setting> {
        match self.value {
            Value::Table(table) if !table.is_empty() => table
                .into_iter()
                .flat_map(|(word, value)| {
                    let key = self.key.iter().cloned().chain([word]).collect();
                    Setting { key, value, place: self.place.clone() }.parts()
                })
                .collect(),
            _ => vec![self],
        }
    }

    /// Returns the dotted key.
    pub fn name(&self) -> String {
        self.key.join(".")
    }
}

/// Returns the parts of a TOML key, of which some may be quoted; `None` if it is not one key.
fn parse_key(key: &str) -> Option<Vec<String>> {
    let mut parsed = flatten(&format!("{key} = 0"), "").ok()?;
    parsed.pop().filter(|_| parsed.is_empty()).map(|setting| setting.key)
}

/// Reads all settings of a TOML file.
pub fn read_file(path: &Path) -> Result<Vec<Setting>> {
    let text = std::fs::read_to_string(path).at(path, "read")?;
    flatten(&text, &path.display().to_string())
}

/// Returns the settings of a TOML text, each with its line.
fn flatten(text: &str, place: &str) -> Result<Vec<Setting>> {
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(text, span.start));
        Error::input(format!("{place}, line {line}"), format!("not TOML: {}", e.message()))
    })?;
    let mut settings = Vec::new();
    collect(&mut settings, &[], table.get_ref(), text, place)?;
    Ok(settings)
}

fn collect(
    settings: &mut Vec<Setting>,
    path: &[String],
    table: &DeTable,
    text: &str,
    place: &str,
) -> Result<()> {
    for (key, value) in table {
        let line = line_of(text, key.span().start);
        let path: Vec<String> = path.iter().cloned().chain([key.get_ref().to_string()]).collect();
        match value.get_ref().as_table() {
            Some(inner) if !inner.is_empty() => collect(settings, &path, inner, text, place)?,
            empty => {
                let place = format!("{place}, line {line}");
                let value = match empty {
                    Some(_) => Value::Table(toml::Table::new()),
                    None => leaf(&text[value.span()], &place)?,
                };
                settings.push(Setting { key: path, value, place });
            }
        }
    }
    Ok(())
}

/// Parses a TOML value.
fn leaf(text: &str, place: &str) -> Result<Value> {
    text.parse().map_err(|e: toml::de::Error| Error::input(place, format!("{text}: {}", e.message())))
}

fn line_of(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&b| b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_toml_or_strings() {
        let value = |text: &str| Setting::parse("--set", text).unwrap().value;
        assert_eq!(value("model.kind=gat"), Value::String("gat".into()));
        assert_eq!(value("model.kind=\"gat\""), Value::String("gat".into()));
        assert_eq!(value("train.lr = 1e-3"), Value::Float(0.001));
        assert_eq!(value("train.lr=.5"), Value::Float(0.5));
        assert_eq!(value("train.lr=-1."), Value::Float(-1.0));
        assert_eq!(value("out=."), Value::String(".".into()));
        assert_eq!(value("model.hidden=64"), Value::Integer(64));
        assert_eq!(value("data.inductive=true"), Value::Boolean(true));
        assert_eq!(value("a=b=c"), Value::String("b=c".into()));
    }

    #[test]
    fn quoted_parts_of_keys_keep_their_dots() {
        let setting = Setting::parse("--set", "train.weight_decay_for.\"convs.0\"=1").unwrap();
        assert_eq!(setting.key, ["train", "weight_decay_for", "convs.0"]);
    }

    #[test]
    fn malformed_settings_are_refused() {
        for text in ["", "model.hidden", "=3", "a b=3", "#=3", "\n=3", "a\nb=3"] {
            let message = Setting::parse("--set", text).expect_err(text).to_string();
            assert!(message.contains("is not key=value"), "{message}");
        }
    }

    #[test]
    fn settings_of_a_file_have_their_lines() {
        let text =
            "# a run\nmodel.hidden = 64\n\n[train]\nlr = 0.1\nweight_decay_for = { \"convs.0\" = 1 }\n";
        let settings = flatten(text, "f.toml").unwrap();
        let mut places: Vec<_> = settings.iter().map(|s| (s.place.as_str(), s.name())).collect();
        places.sort();
        let expected = [
            ("f.toml, line 2", "model.hidden"),
            ("f.toml, line 5", "train.lr"),
            ("f.toml, line 6", "train.weight_decay_for.convs.0"),
        ];
        assert_eq!(places, expected.map(|(place, name)| (place, name.to_string())));
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let error = flatten("[model]\nhidden = = 3\n", "f.toml").unwrap_err().to_string();
        assert!(error.starts_with("f.toml, line 2: not TOML"), "{error}");
    }
}
