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

    /// Returns whether a later epoch may read what a fresh one receives: a resumed run may have more epochs.
    pub(super) fn keeps(&self) -> bool {
        self.staleness > 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halograph_nn::model::Kind;
    use halograph_nn::state::State;
    use halograph_nn::{Input, Matrix};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::boundary::{Transfer, VersionQueue};
    use crate::config::Config;
    use crate::error::Result;

    /// One number that has arrived.
    struct Arrived(u64);

    impl Transfer for Arrived {
        type Rows = Input<f64>;

        fn finish(self) -> Result<(Input<f64>, Duration)> {
            Ok((Matrix::new(1, 1, vec![self.0 as f64]).into(), Duration::ZERO))
        }
    }

    fn train(epochs: u64, staleness: u64, fresh: [u64; 2], smooth: Smooth) -> TrainConfig {
        let [warmup_epochs, cooldown_epochs] = fresh;
        let train = Config::new(Kind::Gcn).train;
        let strategy = StrategyKind::Pipelined;
        TrainConfig { strategy, epochs, staleness, warmup_epochs, cooldown_epochs, smooth, ..train }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300,
            rng_seed: proptest::test_runner::RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_epoch_keeps_more_versions_than_memory_is_predicted_for(
            epochs in 1u64..25,
            staleness in prop_oneof![0u64..6, Just(100)],
            fresh in [0u64..8, 0u64..8],
            smooth in select(&[Smooth::None, Smooth::F, Smooth::G, Smooth::Gf]),
        ) {
            let schedule = Schedule::of(&train(epochs, staleness, fresh, smooth));
            let mut queues = [schedule.features, schedule.gradients].map(VersionQueue::<Arrived>::new);
            let mut most = 0;
            for epoch in 1..=epochs {
                let is_fresh = epoch <= fresh[0] || epoch + fresh[1] > epochs;
                let expected = if is_fresh { 0 } else { staleness };
                prop_assert_eq!(schedule.staleness(epoch), expected);
                for queue in &mut queues {
                    queue.start(epoch, Arrived(epoch));
                    match expected {
                        0 => drop(queue.fresh(schedule.keeps()).unwrap()),
                        staleness => drop(queue.stale(epoch, staleness).unwrap()),
                    }
                    let mut state = State::default();
                    queue.save("queue", &mut state).unwrap();
                    // All but the number of versions in the average are rows.
                    most = most.max(state.0.len() as u64 - 1);
                }
            }
            prop_assert!(most <= schedule.kept_versions(), "{} > {}", most, schedule.kept_versions());
        }
    }
}
