//! From what a user says to a resolved [`Config`].
//!
//! Settings come in layers, the later the stronger: the defaults of the model's kind, a TOML file, `key=value` words,
//! flags. Each [`Setting`] remembers where it was said, so that every refusal can name the place, the key, the
//! value and what would have been right.

mod choices;
mod setting;

use halograph_graph::error::{Error, Result};
use halograph_nn::model::Kind;
use halograph_train::Config;
use halograph_train::config::{OptimizerKind, ScheduleKind, Smooth, StrategyKind, TrainConfig};
use toml::{Table, Value};

pub use choices::choices;
pub use setting::{Setting, read_file};

/// The model when none is named.
pub const DEFAULT_KIND: Kind = Kind::Sage;
/// The one table whose keys are free: beginnings of parameter names.
const FREE: [&str; 2] = ["train", "weight_decay_for"];

/// The configuration of a new run: the defaults of the model's kind, then `settings` in their order.
pub fn resolve(settings: &[Setting]) -> Result<Config> {
    let mut base = Config::new(kind(settings)?);
    // Several ranks can only share the work.
    let ranks = settings.iter().rev().find(|s| s.key == ["train", "ranks"]);
    if let Some(s) = ranks.filter(|s| s.value.as_integer() == Some(0)) {
        return Err(Error::input(&s.place, "train.ranks = 0: must be at least 1"));
    }
    if ranks.is_some_and(|s| s.value.as_integer().is_some_and(|ranks| ranks > 1)) {
        base.train.strategy = StrategyKind::Partition;
    }
    overlay(&base, settings)
}

/// `base` with `settings` applied in their order.
pub fn overlay(base: &Config, settings: &[Setting]) -> Result<Config> {
    let mut table = table_of(base)?;
    for setting in settings {
        apply(&mut table, setting)?;
    }
    let config: Config = table.try_into().map_err(|e| Error::input("configuration", e))?;
    config.check().map_err(|e| said_where(e, settings))?;
    Ok(config)
}

/// Keys and values of a configuration, keys dotted.
pub fn flatten(config: &Config) -> Result<Vec<(String, Value)>> {
    let mut flat = Vec::new();
    flatten_into(&mut flat, "", &table_of(config)?);
    Ok(flat)
}

/// The keys whose values differ between two configurations.
pub fn differences(one: &Config, other: &Config) -> Result<Vec<String>> {
    let (one, other) = (flatten(one)?, flatten(other)?);
    let lacks = |all: &[(String, Value)], entry: &&(String, Value)| !all.contains(entry);
    let changed = one.iter().filter(|e| lacks(&other, e)).chain(other.iter().filter(|e| lacks(&one, e)));
    let mut keys: Vec<String> = changed.map(|(key, _)| key.clone()).collect();
    keys.sort();
    keys.dedup();
    Ok(keys)
}

/// A value as one would say it: words without quotes.
pub fn text(value: &Value) -> String {
    value.as_str().map_or(value.to_string(), String::from)
}

/// What a schedule of stale epochs comes to, if that is hardly meant.
fn schedule_note(train: &TrainConfig) -> Option<String> {
    let fresh = train.warmup_epochs.saturating_add(train.cooldown_epochs);
    if fresh >= train.epochs {
        return Some(format!(
            "all {} epochs are fresh, by train.warmup_epochs and train.cooldown_epochs: this is strategy partition",
            train.epochs
        ));
    }
    (train.staleness >= train.epochs)
        .then(|| format!("train.staleness = {}: all epochs read what the first one sent", train.staleness))
}

/// Notes on `settings` that `config` has no use for: a flag that does nothing should say so.
pub fn idle(settings: &[Setting], config: &Config) -> Vec<String> {
    let (kind, train) = (config.model.kind, &config.train);
    let stale = train.strategy == StrategyKind::Pipelined;
    // Whether a key serves, and what it needs.
    let serves = |key: &str| match key {
        "model.heads" | "model.output_heads" | "model.attention_dropout" => (kind == Kind::Gat, "model gat"),
        "model.alpha" | "model.theta" => (kind == Kind::Gcnii, "model gcnii"),
        "model.project" => (!matches!(kind, Kind::Gat | Kind::Gcnii), "another model"),
        "train.partition" | "train.overlap" | "train.deadline" => {
            (train.strategy != StrategyKind::Single, "several ranks")
        }
        "train.staleness" => (stale, "strategy pipelined"),
        "train.warmup_epochs" | "train.cooldown_epochs" | "train.smooth" | "train.measure_staleness" => {
            (stale && train.staleness > 0, "strategy pipelined with staleness 1 or more")
        }
        "train.gamma" | "train.smooth_correction" => (
            stale && train.staleness > 0 && train.smooth != Smooth::None,
            "strategy pipelined with staleness 1 or more and smooth f, g or gf",
        ),
        "train.momentum" => (train.optimizer == OptimizerKind::Sgd, "optimizer sgd"),
        "train.step_epochs" | "train.step_factor" => (train.schedule == ScheduleKind::Step, "schedule step"),
        // Every strategy of today trains on the full graph.
        "train.schedule_unit" => (false, "a strategy with several optimiser steps per epoch"),
        _ => (true, ""),
    };
    let note = |s: &Setting| match serves(&s.name()) {
        (true, _) => None,
        (false, needs) => Some(format!("{}: {} changes nothing here: it needs {needs}", s.place, s.name())),
    };
    let mut notes: Vec<String> = settings.iter().filter_map(note).collect();
    if stale && train.ranks == 1 {
        notes.push(
            "one rank reads nothing of others: strategy pipelined and its settings change nothing".into(),
        );
    } else if stale && train.staleness > 0 {
        notes.extend(schedule_note(train));
    }
    if stale && train.cooldown_epochs > 0 && train.patience > 0 {
        notes.push(
            "train.patience may end the run before the last, fresh epochs of train.cooldown_epochs".into(),
        );
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

/// The kind of the model, by whoever named it last.
fn kind(settings: &[Setting]) -> Result<Kind> {
    let Some(setting) = settings.iter().rev().find(|s| s.key == ["model", "kind"]) else {
        return Ok(DEFAULT_KIND);
    };
    check_choice(setting, "model.kind")?;
    let named = |kind: &&Kind| setting.value.as_str() == Some(kind.name());
    Ok(*Kind::ALL.iter().find(named).unwrap_or(&DEFAULT_KIND))
}

/// Puts one setting into the tables of a configuration.
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
    let slot = inner.get_mut(last).ok_or_else(unknown)?;
    *slot = fit(setting, slot)?;
    Ok(())
}

/// The value as the type that `old` has; a whole number will do where any number does.
fn fit(setting: &Setting, old: &Value) -> Result<Value> {
    let value = &setting.value;
    match (old, value) {
        (Value::Float(_), Value::Integer(n)) => Ok(Value::Float(*n as f64)),
        (Value::Integer(_), Value::Integer(n)) if *n >= 0 => Ok(value.clone()),
        (Value::Float(_), Value::Float(_)) | (Value::Boolean(_), Value::Boolean(_)) => Ok(value.clone()),
        // A heading without keys says nothing.
        (Value::Table(_), Value::Table(said)) if said.is_empty() => Ok(old.clone()),
        (Value::String(_), _) => check_choice(setting, &setting.name()).map(|()| value.clone()),
        _ => Err(wrong_type(setting, expected(old))),
    }
}

fn expected(old: &Value) -> &'static str {
    match old {
        Value::Float(_) => "a number",
        Value::Integer(_) => "a whole number, 0 or more",
        Value::Boolean(_) => "true or false",
        _ => "a table of keys",
    }
}

fn wrong_type(setting: &Setting, expected: &str) -> Error {
    Error::input(&setting.place, format!("{} = {}: must be {expected}", setting.name(), setting.value))
}

/// Refuses a word that is not among the choices of `key`, which it lists, the nearest first.
fn check_choice(setting: &Setting, key: &str) -> Result<()> {
    let choices = choices(key);
    let said = setting.value.as_str().unwrap_or_default();
    if choices.contains(&said) {
        return Ok(());
    }
    let mut nearest = choices.to_vec();
    nearest.sort_by(|a, b| likeness(b, said).total_cmp(&likeness(a, said)));
    Err(wrong_type(setting, &format!("one of {}", nearest.join(", "))))
}

fn unknown_key(known: &Table, setting: &Setting) -> Error {
    let name = setting.name();
    let mut keys = Vec::new();
    flatten_into(&mut keys, "", known);
    // Empty, it has no keys that could be listed.
    keys.push((FREE.join("."), Value::Boolean(true)));
    let likenesses = keys.iter().map(|(key, _)| (key_likeness(key, &name), key));
    let best = likenesses.max_by(|a, b| a.0.total_cmp(&b.0));
    let error = Error::input(&setting.place, format!("unknown key {name}"));
    match best {
        Some((likeness, key)) if likeness > 0.6 => error.help(format!("did you mean {key}?")),
        _ => {
            error.help(format!("the keys are {}", keys.iter().map(|k| &*k.0).collect::<Vec<_>>().join(", ")))
        }
    }
}

/// How much a key resembles what was said: in full, or by its last word, since the right key may be in another table.
fn key_likeness(key: &str, said: &str) -> f64 {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().replace('-', "_");
    // The beginning of a key may be all that is remembered of it.
    if !last(said).is_empty() && last(key).starts_with(&format!("{}_", last(said))) {
        return 0.99;
    }
    let full = likeness(key, said);
    // In doubt, the key that is alike in full.
    full.max(likeness(&last(key), &last(said)) - 0.01 + 0.01 * full)
}

fn likeness(one: &str, other: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(one, &other.to_lowercase())
}

/// The error of a check, with the place where the offending key was said.
fn said_where(error: Error, settings: &[Setting]) -> Error {
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
