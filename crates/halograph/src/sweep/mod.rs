//! Many runs of one command: the combinations of some settings, seeds among them, each in a directory of its own.
//!
//! A [`Sweep`] is a list of [`Point`]s: the settings that differ. Points that differ only in their seed or split are one case, whose
//! scores are summarised by mean and standard deviation ([`cases`]).

mod grid;
mod scores;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use halograph_graph::error::{Error, Result};
use halograph_train::Config;

pub use grid::Axis;
pub use scores::{Case, Finished, Spread, cases};

use crate::config::{self, Setting};

/// The key of the seed.
const SEED: &str = "train.seed";
/// The key of the split.
const SPLIT: &str = "data.split_index";
/// Most runs of a sweep: more are a mistake in a grid.
const MOST: usize = 10_000;

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
}

impl Sweep {
    /// Combines all values of all axes with `seeds` seeds, from that of `settings` on. Checks the settings of every run.
    pub fn new(settings: Vec<Setting>, axes: &[Axis], seeds: u64) -> Result<Self> {
        check_axes(axes, &settings)?;
        let first = config::resolve(&settings_of(&settings, axes))?.train.seed;
        let runs = axes.iter().try_fold(seeds as usize, |runs, axis| runs.checked_mul(axis.values.len()));
        if !runs.is_some_and(|runs| runs <= MOST) {
            let problem = format!("more than {MOST} runs");
            return Err(Error::input("--grid", problem).help("give fewer values, or several sweeps"));
        }
        let combined = axes.iter().fold(vec![Vec::new()], |points: Vec<Vec<Setting>>, axis| {
            let with = |point: &Vec<Setting>| {
                let of = |value: &Setting| [point.as_slice(), std::slice::from_ref(value)].concat();
                axis.values.iter().map(of).collect::<Vec<_>>()
            };
            points.iter().flat_map(with).collect()
        });
        let of_seeds = |values: Vec<Setting>| {
            (0..seeds).map(move |k| Point { settings: values.clone(), seed: first.wrapping_add(k) })
        };
        let sweep = Sweep { settings, points: combined.into_iter().flat_map(of_seeds).collect() };
        sweep.points.iter().try_for_each(|point| sweep.config(point).map(drop))?;
        Ok(sweep)
    }

    /// Returns all settings of a run.
    pub fn settings(&self, point: &Point) -> Vec<Setting> {
        let seed = Setting::new("--seeds", SEED, &point.seed.to_string());
        [self.settings.as_slice(), &point.settings, &[seed]].concat()
    }

    /// Returns the configuration of a run.
    pub fn config(&self, point: &Point) -> Result<Config> {
        config::resolve(&self.settings(point))
    }
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
        let label = |s: &Setting| format!("{}={}", short(s), config::text(&s.value));
        self.settings.iter().map(label).collect()
    }

    /// Returns the labels of the case that the run belongs to: those of all axes but the split.
    pub fn case(&self) -> Vec<String> {
        let axes = self.settings.iter().filter(|s| s.name() != SPLIT).cloned().collect();
        Point { settings: axes, seed: self.seed }.labels()
    }

    /// Returns the directory of the run in that of the sweep.
    pub fn directory(&self, folder: &Path) -> PathBuf {
        folder.join(self.name())
    }
}

/// Returns the last word of a key.
fn short(setting: &Setting) -> &str {
    setting.key.last().map_or("", String::as_str)
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
