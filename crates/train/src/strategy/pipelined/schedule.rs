//! Which epochs read stale rows, and how stale these are.

use std::ops::RangeInclusive;

use crate::boundary::Ema;
use crate::config::{Smooth, StrategyKind, TrainConfig};

/// The staleness of each epoch.
#[derive(Debug, Clone, Copy)]
pub struct Schedule {
    /// Staleness of epochs that do not read fresh rows.
    staleness: u64,
    /// Number of first epochs that read fresh rows.
    warmup: u64,
    /// The last epoch before the cool-down.
    last: u64,
    pub(super) features: Option<Ema>,
    pub(super) gradients: Option<Ema>,
}

impl Schedule {
    /// Returns the schedule of a configuration; strategies other than `pipelined` read fresh rows always.
    pub fn of(train: &TrainConfig) -> Self {
        let staleness = if train.strategy == StrategyKind::Pipelined { train.staleness } else { 0 };
        let ema = Ema { decay: train.gamma, corrected: train.smooth_correction };
        let smoothed = |kinds: &[Smooth]| kinds.contains(&train.smooth).then_some(ema);
        Schedule {
            staleness,
            warmup: train.warmup_epochs,
            last: train.epochs.saturating_sub(train.cooldown_epochs),
            features: smoothed(&[Smooth::F, Smooth::Gf]),
            gradients: smoothed(&[Smooth::G, Smooth::Gf]),
        }
    }

    /// Returns the staleness of rows read in `epoch`, counted from 1; 0: fresh.
    pub(super) fn staleness(&self, epoch: u64) -> u64 {
        if self.stale_epochs().contains(&epoch) { self.staleness } else { 0 }
    }

    /// Returns the epochs between warm-up and cool-down; all epochs if nothing is ever stale.
    pub(crate) fn stale_epochs(&self) -> RangeInclusive<u64> {
        if self.staleness == 0 { 1..=u64::MAX } else { self.warmup + 1..=self.last }
    }

    /// Returns how many copies of remote rows are kept from epoch to epoch.
    pub(crate) fn kept_versions(&self) -> u64 {
        let averages = self.features.is_some() || self.gradients.is_some();
        if self.keeps() { self.staleness.min(self.last.max(1)) + averages as u64 } else { 0 }
    }

    /// Whether a later epoch may read what a fresh one receives: a resumed run may have more epochs.
    pub(super) fn keeps(&self) -> bool {
        self.staleness > 0
    }
}
