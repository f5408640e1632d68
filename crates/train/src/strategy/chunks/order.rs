//! In which order chunks are computed, and which of them a step computes.

use halograph_kernels::keyed::Key;

use super::weights::Predictions;
use crate::config::{ChunkOrder, GradientWeighting, LayersConfig};

/// The chunk numbers of one step, in the order of the forward. The same on all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOrder {
    /// Chunk numbers in order.
    pub chunks: Vec<usize>,
    /// Position of every chunk number in `chunks`, if it is there.
    positions: Vec<Option<usize>>,
    /// Factors of gradients by position.
    predictions: Predictions,
}

impl StepOrder {
    /// Returns the chunks of step `step` of `epoch`: an equal share of all `count` chunk numbers, in the order of the
    /// epoch.
    pub fn new(config: &LayersConfig, seed: u64, count: usize, (epoch, step): (u64, u64)) -> Self {
        let mut all: Vec<usize> = (0..count).collect();
        let key = Key::new(seed, "chunk order");
        match config.chunk_order {
            ChunkOrder::Fixed => {}
            ChunkOrder::Random => shuffle(&mut all, key.with(epoch)),
            ChunkOrder::Alternating => {
                shuffle(&mut all, key.with(epoch.div_ceil(2)));
                if epoch.is_multiple_of(2) {
                    all.reverse();
                }
            }
        }
        let share = count / config.steps_per_epoch as usize;
        let first = step as usize * share;
        StepOrder::of(all[first..first + share].to_vec(), count)
    }

    /// Creates the order of these chunk numbers out of `count`.
    pub fn of(chunks: Vec<usize>, count: usize) -> Self {
        let mut positions = vec![None; count];
        chunks.iter().enumerate().for_each(|(at, &chunk)| positions[chunk] = Some(at));
        let predictions = Predictions::new(chunks.len());
        StepOrder { chunks, positions, predictions }
    }

    /// Returns the factor of the gradients that a chunk collects from chunks after it; 0 if there are none.
    pub fn factor(&self, chunk: usize, weights: GradientWeighting) -> f64 {
        match self.positions[chunk] {
            Some(at) if at + 1 < self.chunks.len() => weights.factor(at, self.predictions),
            _ => 0.0,
        }
    }

    /// Returns whether chunk `reader` reads rows of `chunk` that this step has computed; if not, it reads older ones.
    pub fn is_fresh(&self, chunk: usize, reader: usize) -> bool {
        self.positions[chunk].is_some_and(|at| Some(at) <= self.positions[reader])
    }
}

fn shuffle(all: &mut [usize], key: Key) {
    for last in (1..all.len()).rev() {
        all.swap(last, key.below(last as u64, last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_an_epoch_compute_every_chunk_once() {
        for (steps, chunk_order) in
            [1, 2, 3, 6].into_iter().flat_map(|n| [(n, ChunkOrder::Random), (n, ChunkOrder::Alternating)])
        {
            let config = LayersConfig { steps_per_epoch: steps, chunk_order, ..LayersConfig::default() };
            let mut orders = Vec::new();
            for epoch in 1..20 {
                let of = |step| StepOrder::new(&config, 7, 6, (epoch, step)).chunks;
                let order: Vec<usize> = (0..steps).flat_map(of).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
                orders.push(order);
            }
            assert!(orders.chunks(2).any(|pair| pair[0] != orders[0]), "drawn anew");
            let is_reverse = |pair: &[Vec<usize>]| pair[0].iter().rev().eq(&pair[1]);
            let alternates = orders.chunks_exact(2).all(is_reverse);
            assert_eq!(alternates, chunk_order == ChunkOrder::Alternating);
        }
        let fixed = LayersConfig { chunk_order: ChunkOrder::Fixed, ..LayersConfig::default() };
        assert_eq!(StepOrder::new(&fixed, 7, 4, (3, 0)).chunks, [0, 1, 2, 3]);
    }

    #[test]
    fn rows_of_chunks_at_the_same_position_or_before_are_fresh() {
        let order = StepOrder::of(vec![3, 1], 4);
        assert!(order.is_fresh(3, 3) && order.is_fresh(3, 1) && order.is_fresh(1, 1));
        assert!(!order.is_fresh(1, 3) && !order.is_fresh(0, 1) && !order.is_fresh(2, 3));
    }
}
