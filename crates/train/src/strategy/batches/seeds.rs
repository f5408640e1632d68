//! Which training nodes are the seeds of a batch.

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
    batch_size: usize,
    key: Key,
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
        Seeds { positions, rows, batch_size, key: Key::new(train.seed, "batches") }
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

    /// Returns the positions of all training rows in the order of `epoch`.
    pub(in crate::strategy) fn shuffled(&self, epoch: u64) -> Vec<u32> {
        let key = self.key.with(epoch);
        let mut order = self.positions.clone();
        for last in (1..order.len()).rev() {
            order.swap(last, key.below(last as u64, last as u64 + 1) as usize);
        }
        order
    }

    /// Returns the positions of the seeds of this rank in a batch of a shuffled epoch, ascending, and their rows.
    pub(in crate::strategy) fn batch(&self, shuffled: &[u32], step: u64) -> (Vec<u32>, Vec<u32>) {
        let first = step as usize * self.batch_size;
        let end = first.saturating_add(self.batch_size).min(shuffled.len());
        let own = shuffled[first..end].iter().copied().filter(|&at| at != ELSEWHERE);
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
        assert_ne!(seeds.shuffled(1), seeds.shuffled(2));
        assert_eq!(seeds.shuffled(1), seeds.shuffled(1));
    }
}
