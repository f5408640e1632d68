//! How the learning rate changes over epochs: a function of the epoch, so that a resumed run needs no state.

use std::f64::consts::PI;

use crate::config::{ScheduleKind, TrainConfig};

/// The learning rate of `epoch`, counted from 1.
pub fn learning_rate(config: &TrainConfig, epoch: u64) -> f64 {
    let done = (epoch - 1) as f64;
    config.lr
        * match config.schedule {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Cosine => 0.5 * (1.0 + (PI * done / config.epochs as f64).cos()),
            ScheduleKind::Step => config.step_factor.powf(((epoch - 1) / config.step_epochs) as f64),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use halograph_nn::model::Kind;

    fn rates(schedule: ScheduleKind, epochs: [u64; 3]) -> [f64; 3] {
        let train = TrainConfig { schedule, lr: 0.8, epochs: 4, ..Config::new(Kind::Gcn).train };
        let train = TrainConfig { step_epochs: 2, step_factor: 0.25, ..train };
        epochs.map(|epoch| learning_rate(&train, epoch))
    }

    #[test]
    fn rates_are_the_formulas() {
        assert_eq!(rates(ScheduleKind::Constant, [1, 3, 4]), [0.8; 3]);
        assert_eq!(rates(ScheduleKind::Step, [2, 3, 5]), [0.8, 0.2, 0.05]);
        let cosine = rates(ScheduleKind::Cosine, [1, 3, 4]);
        let want = [0.8, 0.4, 0.4 * (1.0 - 0.5f64.sqrt())];
        cosine.iter().zip(want).for_each(|(a, b)| assert!((a - b).abs() < 1e-15, "{cosine:?}"));
    }
}
