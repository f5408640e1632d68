//! Resolves the settings of a user to a [`Config`].
//!
//! Settings come in layers of increasing precedence: the defaults of the model's kind, a TOML file, `key=value` arguments,
//! flags. Each [`Setting`] remembers where it was set, so that an error can name the place, the key, the value and the
//! valid values.

mod bytes;
mod choices;
mod setting;

use halograph_graph::error::{Error, Result};
use halograph_nn::model::Kind;
use halograph_train::Config;
use halograph_train::config::{PartitionKind, StrategyKind, TrainConfig};
use toml::{Table, Value};

pub use choices::choices;
pub use setting::{Setting, read_file};

use crate::note::Note;

/// The default model.
pub const DEFAULT_KIND: Kind = Kind::Sage;
/// Keys that may be unset: a configuration has none of them by default.
pub const OPTIONAL: [&str; 6] = [
    "layers.stages",
    "layers.chunks",
    "layers.activation_memory",
    "train.macrobatch",
    "train.metric",
    CLASS_WEIGHTS,
];
/// The key of class weights: text, or a list of numbers.
const CLASS_WEIGHTS: &str = "train.class_weights";
/// The keys of sizes, which may have a unit.
const SIZES: [&str; 2] = ["train.batch_memory", "layers.activation_memory"];
/// Whole numbers that must not be 0.
const POSITIVE: [&str; 13] = [
    "model.layers",
    "model.hidden",
    "model.heads",
    "train.ranks",
    "train.epochs",
    "train.eval_every",
    "train.step_epochs",
    "train.batch_size",
    "train.macrobatch",
    "layers.stages",
    "layers.chunks",
    "layers.history_epochs",
    "layers.steps_per_epoch",
];
/// The only table with free keys: prefixes of parameter names.
pub const FREE: [&str; 2] = ["train", "weight_decay_for"];

/// Returns the configuration of a new run on dense features: the defaults of the model's kind, then `settings` in order.
pub fn resolve(settings: &[Setting]) -> Result<Config> {
    resolve_for(settings, false)
}

/// Returns the configuration of a new run on features that are sparse or not.
pub fn resolve_for(settings: &[Setting], is_sparse: bool) -> Result<Config> {
    let mut base = Config::new(kind(settings)?);
    // Strategy `single` is impossible on several ranks.
    let ranks = settings.iter().rev().find(|s| s.key == ["train", "ranks"]);
    if let Some(s) = ranks.filter(|s| s.value.as_integer() == Some(0)) {
        return Err(Error::input(&s.place, "train.ranks: 0: must be at least 1"));
    }
    if ranks.is_some_and(|s| s.value.as_integer().is_some_and(|ranks| ranks > 1)) {
        base.train.strategy = StrategyKind::Partition;
    }
    let mut config = overlay(&base, settings)?;
    config.resolve_fanout();
    config.resolve_layers();
    config.resolve_input(is_sparse);
    if config.train.strategy == StrategyKind::Split {
        resolve_split(&mut config, |key| settings.iter().any(|s| s.key == ["train", key]));
    }
    Ok(config)
}

/// Chooses what is fastest for strategy `split`, unless the user `chose` a key of `train`.
fn resolve_split(config: &mut Config, chose: impl Fn(&str) -> bool) {
    if !chose("partition") {
        config.train.partition = PartitionKind::Presampled;
    }
    if !chose("cache_input_aggregate") {
        config.train.cache_input_aggregate = config.model.has_static_input();
    }
}

/// Returns `base` with `settings` applied in order.
pub fn overlay(base: &Config, settings: &[Setting]) -> Result<Config> {
    let mut table = table_of(base)?;
    for setting in settings {
        apply(&mut table, setting)?;
    }
    let config: Config = table.try_into().map_err(|e| Error::input("configuration", e))?;
    config.check().map_err(|e| with_place(e, settings))?;
    Ok(config)
}

/// Returns the dotted keys and the values of a configuration.
pub fn flatten(config: &Config) -> Result<Vec<(String, Value)>> {
    let mut flat = Vec::new();
    flatten_into(&mut flat, "", &table_of(config)?);
    Ok(flat)
}

/// Returns the keys whose values differ between two configurations.
pub fn differences(one: &Config, other: &Config) -> Result<Vec<String>> {
    let (one, other) = (flatten(one)?, flatten(other)?);
    let lacks = |all: &[(String, Value)], entry: &&(String, Value)| !all.contains(entry);
    let changed = one.iter().filter(|e| lacks(&other, e)).chain(other.iter().filter(|e| lacks(&one, e)));
    let mut keys: Vec<String> = changed.map(|(key, _)| key.clone()).collect();
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// Formats the value of a dotted key as [`text`], but a size with its unit.
pub fn text_of(key: &str, value: &Value) -> String {
    let size =
        value.as_integer().filter(|_| SIZES.contains(&key)).and_then(|bytes| u64::try_from(bytes).ok());
    size.map_or_else(|| text(value), bytes::text)
}

/// Formats a value; strings without quotes, lists without brackets.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(","),
        value => value.to_string(),
    }
}

/// Returns a note if the schedule of `pipelined` has no stale epoch, or only stale ones.
fn schedule_note(train: &TrainConfig) -> Option<Note> {
    let synchronous = train.warmup_epochs.saturating_add(train.cooldown_epochs);
    if synchronous >= train.epochs {
        return Some(Note::AllEpochsSynchronous { epochs: train.epochs });
    }
    (train.staleness >= train.epochs).then_some(Note::AlwaysStale { staleness: train.staleness })
}

/// Returns notes on `settings` that have no effect in `config`.
pub fn unused(settings: &[Setting], config: &Config) -> Vec<Note> {
    let train = &config.train;
    let stale = train.strategy == StrategyKind::Pipelined;
    let note = |s: &Setting| {
        let (place, key) = (s.place.clone(), s.name());
        config.requirement(&key).map(|requires| Note::Unused { place, key, requires })
    };
    let mut notes: Vec<Note> = settings.iter().filter_map(note).collect();
    if stale && train.ranks == 1 {
        notes.push(Note::PipelinedOnOneRank);
    } else if stale && train.staleness > 0 {
        notes.extend(schedule_note(train));
    }
    if stale && train.cooldown_epochs > 0 && train.patience > 0 {
        notes.push(Note::PatienceBeforeCooldown);
    }
    notes
}

fn flatten_into(flat: &mut Vec<(String, Value)>, prefix: &str, table: &Table) {
    for (key, value) in table {
        let key = format!("{prefix}{key}");
        match value {
            Value::Table(inner) => flatten_into(flat, &format!("{key}."), inner),
            value => flat.push((key, value.clone())),
        }
    }
}

fn table_of(config: &Config) -> Result<Table> {
    // Only a seed past the largest signed number, from a file, does not fit TOML.
    Table::try_from(config).map_err(|e| Error::input("configuration", e))
}

/// Returns the kind of the model: the last setting of it counts.
fn kind(settings: &[Setting]) -> Result<Kind> {
    let Some(setting) = settings.iter().rev().find(|s| s.key == ["model", "kind"]) else {
        return Ok(DEFAULT_KIND);
    };
    check_choice(setting, "model.kind")?;
    let named = |kind: &&Kind| setting.value.as_str() == Some(kind.name());
    Ok(*Kind::ALL.iter().find(named).unwrap_or(&DEFAULT_KIND))
}

/// Applies one setting to the tables of a configuration.
fn apply(table: &mut Table, setting: &Setting) -> Result<()> {
    let known = table.clone();
    let unknown = || unknown_key(&known, setting);
    let (last, path) = setting.key.split_last().ok_or_else(unknown)?;
    let mut inner = table;
    for name in path {
        inner = inner.get_mut(name).and_then(Value::as_table_mut).ok_or_else(unknown)?;
    }
    if path == FREE {
        let value = fit(setting, &Value::Float(0.0))?;
        inner.insert(last.clone(), value);
        return Ok(());
    }
    let name = setting.name();
    let slot = match inner.get_mut(last) {
        Some(slot) => slot,
        None if OPTIONAL.contains(&name.as_str()) => inner.entry(last).or_insert(placeholder(&name)),
        None => return Err(unknown()),
    };
    *slot = match name.as_str() {
        size if SIZES.contains(&size) => {
            bytes::parse(&setting.value).ok_or_else(|| wrong_type(setting, bytes::FORMAT))?.into()
        }
        CLASS_WEIGHTS => class_weights(setting)?,
        _ => fit(setting, slot)?,
    };
    Ok(())
}

/// Returns a value of the type of an optional key.
fn placeholder(key: &str) -> Value {
    match choices(key) {
        [] => Value::Integer(0),
        _ => Value::String(String::new()),
    }
}

/// Returns class weights: text, or a list of numbers.
fn class_weights(setting: &Setting) -> Result<Value> {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    let weights = match &setting.value {
        Value::String(text) if !text.is_empty() => Some(setting.value.clone()),
        Value::Array(values) => values
            .iter()
            .map(|value| number(value).map(Value::Float))
            .collect::<Option<Vec<_>>>()
            .map(Value::Array),
        _ => None,
    };
    weights.ok_or_else(|| wrong_type(setting, "balanced, the name of a CSV file, or a list of numbers"))
}

/// Returns the value of a setting, which must have the type of `old`; an integer is accepted for a float.
fn fit(setting: &Setting, old: &Value) -> Result<Value> {
    let value = &setting.value;
    match (old, value) {
        (Value::Float(_), Value::Integer(n)) => Ok(Value::Float(*n as f64)),
        (Value::Integer(_), Value::Integer(n)) if *n >= 0 => Ok(value.clone()),
        (Value::Float(_), Value::Float(_)) | (Value::Boolean(_), Value::Boolean(_)) => Ok(value.clone()),
        // A table without keys sets nothing.
        (Value::Table(_), Value::Table(given)) if given.is_empty() => Ok(old.clone()),
        (Value::Array(_), given) => {
            whole_numbers(given).ok_or_else(|| wrong_type(setting, expected(setting, old)))
        }
        (Value::Integer(_), Value::String(digits)) if is_too_large(digits) => {
            Err(wrong_type(setting, &format!("at most {}", i64::MAX)))
        }
        (Value::String(_), _) => check_choice(setting, &setting.name()).map(|()| value.clone()),
        (_, Value::String(text)) if fits_unquoted(setting, text, old) => {
            Err(wrong_type(setting, expected(setting, old)).help(format!("remove the quotes: {text}")))
        }
        _ => Err(wrong_type(setting, expected(setting, old))),
    }
}

/// Returns whether text is a whole number that TOML cannot hold.
fn is_too_large(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<i64>().is_err()
}

/// Returns whether the text of a string has the type of `old` without its quotes.
fn fits_unquoted(setting: &Setting, text: &str, old: &Value) -> bool {
    let value = Setting::new("", "", text).value;
    !value.is_str() && fit(&Setting { value, ..setting.clone() }, old).is_ok()
}

/// Returns a list of whole numbers: an array, one number, or text such as `15,10,5`.
fn whole_numbers(given: &Value) -> Option<Value> {
    let numbers: Option<Vec<i64>> = match given {
        Value::Array(values) => values.iter().map(Value::as_integer).collect(),
        Value::Integer(number) => Some(vec![*number]),
        Value::String(text) => text.split(',').map(|number| number.trim().parse().ok()).collect(),
        _ => None,
    };
    numbers.map(|numbers| numbers.into_iter().map(Value::Integer).collect::<Vec<_>>().into())
}

fn expected(setting: &Setting, old: &Value) -> &'static str {
    match old {
        Value::Float(_) => "a number",
        Value::Integer(_) if POSITIVE.contains(&setting.name().as_str()) => "a whole number, at least 1",
        Value::Integer(_) => "a whole number, 0 or more",
        Value::Boolean(_) => "true or false",
        Value::Array(_) => "a list of whole numbers such as 15,10,5",
        _ => "a table of keys",
    }
}

fn wrong_type(setting: &Setting, expected: &str) -> Error {
    Error::input(&setting.place, format!("{}: {}: must be {expected}", setting.name(), setting.value))
}

/// Refuses a value that is not among the choices of `key`; the error lists them, the most similar first.
fn check_choice(setting: &Setting, key: &str) -> Result<()> {
    let choices = choices(key);
    let given = setting.value.as_str().unwrap_or_default();
    if choices.contains(&given) {
        return Ok(());
    }
    let mut nearest = choices.to_vec();
    nearest.sort_by(|a, b| similarity(b, given).total_cmp(&similarity(a, given)));
    Err(wrong_type(setting, &format!("one of {}", nearest.join(", "))))
}

fn unknown_key(known: &Table, setting: &Setting) -> Error {
    let name = setting.name();
    let mut keys = Vec::new();
    flatten_into(&mut keys, "", known);
    // Keys that may not have a value yet.
    let unset = OPTIONAL.map(String::from).into_iter().chain([FREE.join(".")]);
    let unset: Vec<String> = unset.filter(|key| keys.iter().all(|(known, _)| known != key)).collect();
    keys.extend(unset.into_iter().map(|key| (key, Value::Boolean(true))));
    let similarities = keys.iter().map(|(key, _)| (key_similarity(key, &name), key));
    let best = similarities.max_by(|a, b| a.0.total_cmp(&b.0));
    let error = Error::input(&setting.place, format!("unknown key {name}"));
    match best {
        Some((similarity, key)) if similarity > 0.6 => error.help(format!("did you mean {key}?")),
        _ => {
            error.help(format!("the keys are {}", keys.iter().map(|k| &*k.0).collect::<Vec<_>>().join(", ")))
        }
    }
}

/// Returns the similarity of a known and a given key: of the whole, or of the last component, since the key may be in
/// another table.
fn key_similarity(key: &str, given: &str) -> f64 {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().replace('-', "_");
    // A prefix of the last component is a good match.
    if !last(given).is_empty() && last(key).starts_with(&format!("{}_", last(given))) {
        return 0.99;
    }
    let full = similarity(key, given);
    // Ties go to the key that is more similar as a whole.
    full.max(similarity(&last(key), &last(given)) - 0.01 + 0.01 * full)
}

fn similarity(one: &str, other: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(one, &other.to_lowercase())
}

/// Adds to an error the place where the offending key was set.
fn with_place(error: Error, settings: &[Setting]) -> Error {
    match error {
        Error::Input { place, problem, help } => {
            let setting = settings.iter().rev().find(|s| s.name() == place);
            let place = setting.map_or(place.clone(), |s| format!("{}: {place}", s.place));
            Error::Input { place, problem, help }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
