//! Which training nodes are the seeds of a batch.

use std::ops::Range;

use halograph_comm::{Comm, Message};
use halograph_graph::block::Block;
use halograph_kernels::keyed::Key;
use rayon::prelude::*;

use crate::config::TrainConfig;
use crate::data::Rows;
use crate::error::Result;
use crate::tags::Setup;

/// Marks training nodes of other ranks.
const ELSEWHERE: u32 = u32::MAX;

/// The training nodes of a run, shuffled anew in every epoch.
pub(in crate::strategy) struct Seeds {
    /// Positions among the training rows of this rank, by ascending dataset id of the training nodes of all ranks: the
    /// shuffle does not depend on ranks or on the order of rows. Of nodes of other ranks: [`ELSEWHERE`].
    positions: Vec<u32>,
    /// Row of each position.
    rows: Vec<u32>,
    /// Weight of each position in the loss, of the training nodes of all ranks; empty if the loss is not divided by it.
    weights: Vec<f64>,
    batch_size: usize,
    key: Key,
}

/// The training nodes of all ranks in the order of an epoch.
#[derive(Default)]
pub(in crate::strategy) struct Shuffled {
    positions: Vec<u32>,
    weights: Vec<f64>,
}

impl Seeds {
    pub(in crate::strategy) fn new(train: &TrainConfig, rows: &Rows, block: &Block) -> Self {
        let mut positions: Vec<u32> = (0..rows.rows.len() as u32).collect();
        positions.sort_unstable_by_key(|&at| block.id(rows.rows[at as usize] as usize));
        Seeds::of(train, positions, rows.rows.clone())
    }

    /// Lists the training nodes of all ranks. `rows`: those of this rank, as rows with these dataset `ids`. Collective;
    /// blocks.
    pub(in crate::strategy) fn on_ranks(
        train: &TrainConfig,
        rows: Vec<u32>,
        ids: &[u32],
        comm: &Comm,
    ) -> Result<Self> {
        let own: Vec<u32> = rows.iter().map(|&row| ids[row as usize]).collect();
        let mut all = Vec::new();
        let messages = comm.all_gather(Setup::TrainingIds.tag(), Message::of(&own))?;
        for (rank, message) in messages.iter().enumerate() {
            let position = |at: u32| if rank == comm.rank() { at } else { ELSEWHERE };
            all.extend(message.as_slice::<u32>()?.iter().zip(0..).map(|(&id, at)| (id, position(at))));
        }
        all.par_sort_unstable();
        Ok(Seeds::of(train, all.into_iter().map(|(_, position)| position).collect(), rows))
    }

    fn of(train: &TrainConfig, positions: Vec<u32>, rows: Vec<u32>) -> Self {
        let batch_size = usize::try_from(train.batch_size).unwrap_or(usize::MAX);
        Seeds { positions, rows, weights: Vec::new(), batch_size, key: Key::new(train.seed, "batches") }
    }

    /// Sets the weights of the training nodes of all ranks in the loss. `own`: those of this rank, by position. Collective;
    /// blocks.
    pub(in crate::strategy) fn set_weights(&mut self, own: &[f64], comm: &Comm) -> Result<()> {
        let weight = |&at: &u32| if at == ELSEWHERE { 0.0 } else { own[at as usize] };
        self.weights = self.positions.iter().map(weight).collect();
        Ok(comm.all_reduce(Setup::TrainingWeights.tag(), &mut self.weights)?)
    }

    /// Returns the number of batches of an epoch; the last one may be short.
    pub(in crate::strategy) fn batches(&self) -> u64 {
        self.positions.len().div_ceil(self.batch_size) as u64
    }

    /// Returns the number of seeds of a batch, of all ranks.
    pub(in crate::strategy) fn size(&self, step: u64) -> u64 {
        let first = (step as usize).saturating_mul(self.batch_size);
        self.positions.len().saturating_sub(first).min(self.batch_size) as u64
    }

    /// Returns all training rows in the order of `epoch`.
    pub(in crate::strategy) fn shuffled(&self, epoch: u64) -> Shuffled {
        let key = self.key.with(epoch);
        Shuffled { positions: shuffled(&self.positions, key), weights: shuffled(&self.weights, key) }
    }

    /// Returns the sum of the weights of the seeds of a batch, of all ranks; `None` if they have none.
    pub(in crate::strategy) fn weight(&self, shuffled: &Shuffled, step: u64) -> Option<f64> {
        let batch = self.range(step);
        (!shuffled.weights.is_empty()).then(|| shuffled.weights[batch].iter().sum())
    }

    /// Returns where the seeds of a batch are in a shuffled epoch.
    fn range(&self, step: u64) -> Range<usize> {
        let first = step as usize * self.batch_size;
        first..first.saturating_add(self.batch_size).min(self.positions.len())
    }

    /// Returns the positions of the seeds of this rank in a batch of a shuffled epoch, ascending, and their rows.
    pub(in crate::strategy) fn batch(&self, shuffled: &Shuffled, step: u64) -> (Vec<u32>, Vec<u32>) {
        let own = shuffled.positions[self.range(step)].iter().copied().filter(|&at| at != ELSEWHERE);
        let mut positions: Vec<u32> = own.collect();
        positions.sort_unstable();
        let rows = positions.iter().map(|&at| self.rows[at as usize]).collect();
        (positions, rows)
    }

    /// Returns the stream that the sample of a batch is drawn from.
    pub(in crate::strategy) fn sample_key(&self, epoch: u64, step: u64) -> Key {
        self.key.with(epoch).with(step)
    }
}

/// Returns `values` in the order that `key` draws: the same order for any values of one number.
fn shuffled<V: Copy>(values: &[V], key: Key) -> Vec<V> {
    let mut order = values.to_vec();
    for last in (1..order.len()).rev() {
        order.swap(last, key.below(last as u64, last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use halograph_nn::metrics::Targets;

    use super::*;
    use crate::config::Config;
    use halograph_nn::model::Kind;

    fn seeds(count: u32, batch_size: u64) -> Seeds {
        let rows = Rows::new((0..count).collect(), Targets::Single(&vec![0; count as usize]));
        let block =
            Block::new(vec![0; count as usize + 1], vec![], 0..count as usize, vec![0; count as usize], None);
        Seeds::new(&TrainConfig { batch_size, ..Config::new(Kind::Gcn).train }, &rows, &block)
    }

    #[test]
    fn an_epoch_visits_every_training_node_once() {
        for (count, batch_size, batches) in [(10, 3, 4), (10, 5, 2), (10, 100, 1), (1, 1, 1)] {
            let seeds = seeds(count, batch_size);
            assert_eq!(seeds.batches(), batches);
            for epoch in 1..4 {
                let order = seeds.shuffled(epoch);
                let mut all: Vec<u32> = (0..batches).flat_map(|step| seeds.batch(&order, step).1).collect();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn epochs_differ() {
        let seeds = seeds(100, 10);
        let order = |epoch| seeds.shuffled(epoch).positions;
        assert_ne!(order(1), order(2));
        assert_eq!(order(1), order(1));
    }
}
