//! Many runs of one command: the combinations of some settings, seeds among them, each in a directory of its own.
//!
//! A [`Sweep`] is a list of [`Point`]s: the settings that differ. Points that differ only in their seed are one case, whose
//! scores are summarised by mean and standard deviation ([`cases`]).

mod grid;
mod scores;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, Result};
use halograph_train::Config;
use toml::Value;

pub use grid::Axis;
pub use scores::{Case, Finished, Spread, cases};

use crate::config::{self, Setting};

/// The key of the seed.
const SEED: &str = "train.seed";
/// Most runs of a sweep: more are a mistake in a grid.
const MOST: usize = 10_000;
/// Longest name of a run in bytes: file systems allow 255, and the name of a log is longer.
const LONGEST: usize = 240;

/// Runs that share most settings.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Settings of all runs, in increasing order of precedence.
    pub settings: Vec<Setting>,
    /// The runs, in order: seeds vary fastest, then the last axis.
    pub points: Vec<Point>,
}

/// One run of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Settings of the axes, with their values.
    pub settings: Vec<Setting>,
    /// The seed.
    pub seed: u64,
    /// The configuration of the run.
    pub config: Config,
}

impl Sweep {
    /// Combines all values of all axes with `seeds` seeds, from that of `settings` on. Checks the settings of every run, which
    /// `resolve` completes to a configuration; refuses equal runs.
    pub fn new(
        settings: Vec<Setting>,
        axes: &[Axis],
        seeds: u64,
        resolve: impl Fn(&[Setting]) -> Result<Config>,
    ) -> Result<Self> {
        check_axes(axes, &settings)?;
        let first = resolve(&settings_of(&settings, axes))?.train.seed;
        let runs = axes.iter().try_fold(seeds as usize, |runs, axis| runs.checked_mul(axis.values.len()));
        if runs.is_none_or(|runs| runs > MOST) {
            let place = if axes.is_empty() { "--seeds" } else { "--grid" };
            let problem = format!("more than {MOST} runs");
            return Err(Error::input(place, problem).help("give fewer values, or several sweeps"));
        }
        let combined = axes.iter().fold(vec![Vec::new()], |points: Vec<Vec<Setting>>, axis| {
            let with = |point: &Vec<Setting>| {
                let of = |value: &Setting| [point.as_slice(), std::slice::from_ref(value)].concat();
                axis.values.iter().map(of).collect::<Vec<_>>()
            };
            points.iter().flat_map(with).collect()
        });
        let runs =
            combined.iter().flat_map(|values| (0..seeds).map(move |k| (values, first.wrapping_add(k))));
        let point = |(values, seed): (&Vec<Setting>, u64)| {
            let config = resolve(&all_settings(&settings, values, seed))?;
            Ok(Point { settings: values.clone(), seed, config })
        };
        let points = runs.map(point).collect::<Result<Vec<Point>>>()?;
        check_distinct(&points)?;
        Ok(Sweep { settings, points })
    }

    /// Returns all settings of a run.
    pub fn settings(&self, point: &Point) -> Vec<Setting> {
        all_settings(&self.settings, &point.settings, point.seed)
    }
}

fn all_settings(common: &[Setting], values: &[Setting], seed: u64) -> Vec<Setting> {
    let seed = Setting::new("--seeds", SEED, &seed.to_string());
    [common, values, &[seed]].concat()
}

impl Point {
    /// Returns the name of the run: its values and its seed.
    pub fn name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._+=-".contains(c) { c } else { '-' };
        let seed = [format!("seed={}", self.seed)];
        let words: Vec<String> = self.labels().into_iter().chain(seed).collect();
        words.join("_").chars().map(plain).collect()
    }

    /// Returns `key=value` of each axis, without the table of the key.
    pub fn labels(&self) -> Vec<String> {
        let label = |s: &Setting| format!("{}={}", short(s), text(&s.value));
        self.settings.iter().map(label).collect()
    }

    /// Returns the directory of the run in that of the sweep.
    pub fn directory(&self, folder: &Path) -> PathBuf {
        folder.join(self.name())
    }
}

/// Returns the last word of a key, but `model` for the kind of the model, as its flag is called.
fn short(setting: &Setting) -> &str {
    if setting.key == ["model", "kind"] { "model" } else { setting.key.last().map_or("", String::as_str) }
}

/// Formats a value; very large and very small numbers with an exponent.
fn text(value: &Value) -> String {
    match value {
        Value::Float(x) if x.abs() >= 1e7 || (*x != 0.0 && x.abs() < 1e-4) => format!("{x:e}"),
        value => config::text(value),
    }
}

/// Returns `settings` with the first value of every axis.
fn settings_of(settings: &[Setting], axes: &[Axis]) -> Vec<Setting> {
    settings.iter().cloned().chain(axes.iter().map(|axis| axis.values[0].clone())).collect()
}

/// Refuses a key twice, the seed, and keys whose runs would have the same names.
fn check_axes(axes: &[Axis], settings: &[Setting]) -> Result<()> {
    for (k, axis) in axes.iter().enumerate() {
        let key = &axis.values[0];
        if key.name() == SEED {
            return Err(Error::input("--grid", "varies the seed").help("give --seeds N instead"));
        }
        if axes[..k].iter().any(|other| short(&other.values[0]) == short(key)) {
            let problem = format!("{} is given twice", short(key));
            return Err(Error::input("--grid", problem).help("list all values in one --grid"));
        }
        if let Some(fixed) = settings.iter().find(|s| s.key == key.key) {
            let problem = format!("{} is also set by {}", key.name(), fixed.place);
            return Err(Error::input("--grid", problem).help("leave out one of them"));
        }
    }
    Ok(())
}

/// Refuses runs that are equal, and runs whose directories cannot have their names.
fn check_distinct(points: &[Point]) -> Result<()> {
    let (mut configs, mut names) = (HashMap::new(), HashMap::new());
    for point in points {
        let (name, labels) = (point.name(), point.labels().join(" "));
        let config = config::flatten(&point.config)?;
        if let Some(other) = configs.insert(format!("{config:?}"), labels.clone()) {
            let problem = format!("{other} and {labels} are the same run");
            return Err(Error::input("--grid", problem).help("list each value once"));
        }
        if name.len() > LONGEST {
            let problem = format!("the run {name} would have a name of more than {LONGEST} bytes");
            return Err(
                Error::input("--grid", problem).help("vary fewer settings, and fix the others by flags")
            );
        }
        if let Some(other) = names.insert(name.clone(), labels.clone()) {
            let problem = format!("{other} and {labels} would both be trained in {name}");
            return Err(Error::input("--grid", problem).help("train them with two commands and two --out"));
        }
    }
    Ok(())
}
