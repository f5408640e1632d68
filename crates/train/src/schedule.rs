//! The learning rate: a function of the epoch and the step, so that a resumed run needs no state.

use std::f64::consts::PI;

use crate::config::{ScheduleKind, ScheduleUnit, TrainConfig};

/// Returns the learning rate in `epoch`, counted from 1, after the share `within` of its steps.
pub fn learning_rate(config: &TrainConfig, epoch: u64, within: f64) -> f64 {
    let within = match config.schedule_unit {
        ScheduleUnit::Epoch => 0.0,
        ScheduleUnit::Step => within,
    };
    let done = (epoch - 1) as f64 + within;
    config.lr
        * match config.schedule {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Cosine => 0.5 * (1.0 + (PI * done / config.epochs as f64).cos()),
            ScheduleKind::Step => config.step_factor.powf((done / config.step_epochs as f64).floor()),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use halograph_nn::model::Kind;

    fn config(schedule: ScheduleKind, schedule_unit: ScheduleUnit) -> TrainConfig {
        let train =
            TrainConfig { schedule, schedule_unit, lr: 0.8, epochs: 4, ..Config::new(Kind::Gcn).train };
        TrainConfig { step_epochs: 2, step_factor: 0.25, ..train }
    }

    fn rates(schedule: ScheduleKind, epochs: [u64; 3]) -> [f64; 3] {
        let train = config(schedule, ScheduleUnit::Epoch);
        epochs.map(|epoch| learning_rate(&train, epoch, 0.75))
    }

    #[test]
    fn rates_are_the_formulas() {
        assert_eq!(rates(ScheduleKind::Constant, [1, 3, 4]), [0.8; 3]);
        assert_eq!(rates(ScheduleKind::Step, [2, 3, 5]), [0.8, 0.2, 0.05]);
        let cosine = rates(ScheduleKind::Cosine, [1, 3, 4]);
        let want = [0.8, 0.4, 0.4 * (1.0 - 0.5f64.sqrt())];
        cosine.iter().zip(want).for_each(|(a, b)| assert!((a - b).abs() < 1e-15, "{cosine:?}"));
    }

    #[test]
    fn a_schedule_by_step_moves_within_an_epoch() {
        let cosine = config(ScheduleKind::Cosine, ScheduleUnit::Step);
        assert_eq!(learning_rate(&cosine, 1, 0.0), 0.8);
        assert!((learning_rate(&cosine, 2, 0.999_999) - learning_rate(&cosine, 3, 0.0)).abs() < 1e-5);
        let steps = config(ScheduleKind::Step, ScheduleUnit::Step);
        assert_eq!([0.0, 0.99].map(|within| learning_rate(&steps, 2, within)), [0.8; 2]);
        assert_eq!(learning_rate(&steps, 3, 0.0), 0.2);
    }
}
