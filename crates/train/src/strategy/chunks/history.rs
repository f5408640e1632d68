//! Rows of history before the first step: of one synchronous forward, or zeros.
//!
//! The forward is that of training with the initial weights, with the dropout masks of an epoch 0, so that rows of history
//! are distributed as those of later epochs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use halograph_comm::Priority;
use halograph_graph::block::{Block, Halo};
use halograph_kernels::keyed::Key;
use halograph_kernels::{Real, rows};
use halograph_nn::{Input, Matrix, Model};

use super::Chunked;
use super::handover::{Handover, Tags};
use crate::boundary::{FeatureTransfer, GradientTransfer, HaloSource, Peers, ReturnedGradients, Transfer};
use crate::config::HistoryInit;
use crate::data::StageChunks;
use crate::error::Result;
use crate::stage::{StageRunner, Tape};
use crate::tags::Setup;

impl<T: Real> Chunked<'_, T> {
    /// Fills the stores, as configured. Collective; blocks.
    pub(super) fn initialise_history(&mut self, model: &mut Model<T>) -> Result<()> {
        // A single chunk per way reads nothing of history. All groups decide alike: no rank waits for another.
        if self.chunks() == 1 || self.config.history_init == HistoryInit::Zero {
            return Ok(());
        }
        let (links, own) = (self.links, model.indices());
        let (view, block) = self.data.train();
        let handover = Handover { grid: links.grid, layout: self.layout };
        let tags = Tags { rows: Setup::HistoryInput.tag(), initial: Setup::HistoryInitial.tag() };
        let peers = Peers::forward_only(&links.grid.link, Setup::HistoryHalo.tag());
        let key = Key::new(self.seed, "dropout").with(0).with(0);
        let all = view.block.sources();
        let mut rows = None;
        for (at, index) in own.enumerate() {
            let mut recorder = HistoryRecorder::default();
            let mut runner = StageRunner::new(Some(key), view.block.ids(), Some(peers), &mut recorder);
            let before = match rows.take() {
                Some(rows) => rows,
                None if links.grid.is_first() => runner.input(model, view.input()),
                None => handover.receive_forward(tags, all, &runner, model)?,
            };
            let done = rows.insert(before);
            runner.forward(model, index, block, done, &mut Tape::default())?;
            if let (Some(store), Some(read)) = (&mut self.stores[at], recorder.read) {
                store.set_all(stored_rows(&self.stages[at], &self.starts, &view.block, read));
            }
        }
        let rows = rows.expect("a rank has at least one stage");
        handover.send_forward(tags, all, &rows)
    }
}

/// Rows that a stage has read: its own messages, and those of the halo of the whole graph.
type ReadRows<T> = (Arc<Matrix<T>>, Arc<Matrix<T>>);

/// Reads fresh halo rows, and keeps all rows that a stage reads.
struct HistoryRecorder<T: Real> {
    read: Option<ReadRows<T>>,
}

impl<T: Real> Default for HistoryRecorder<T> {
    fn default() -> Self {
        HistoryRecorder { read: None }
    }
}

impl<T: Real> HaloSource<T> for HistoryRecorder<T> {
    fn priority(&self) -> Priority {
        Priority::Urgent
    }

    fn features(
        &mut self,
        _: usize,
        own: &Input<T>,
        started: FeatureTransfer<T>,
    ) -> Result<(Input<T>, Duration)> {
        let (halo, hidden) = started.finish()?;
        self.read = Some((own.full(), halo.full()));
        Ok((halo, hidden))
    }

    fn gradients(
        &mut self,
        _: usize,
        _: GradientTransfer<T>,
    ) -> Result<(Option<ReturnedGradients<T>>, Duration)> {
        unreachable!("a forward returns no gradients")
    }
}

/// Returns the stored rows of a stage. `starts`: first row of each chunk; `block`: the whole graph, of whose rows `read` are.
fn stored_rows<T: Real>(
    layout: &StageChunks,
    starts: &[usize],
    block: &Block,
    (own, halo): ReadRows<T>,
) -> Matrix<T> {
    let mut stored = Matrix::unspecified(layout.rows, own.cols());
    for (&start, run) in starts.iter().zip(layout.own.windows(2)) {
        let rows = own.run(start..start + run[1] - run[0]);
        stored.run_mut(run[0]..run[1]).copy_from_slice(rows);
    }
    let ids = block.halo().map_or(&[][..], Halo::ids);
    let row_of: HashMap<u32, u32> = ids.iter().copied().zip(0..).collect();
    let remote: Vec<u32> = layout.remote_ids.iter().map(|id| row_of[id]).collect();
    let first = layout.rows - remote.len();
    rows::gather(halo.data(), own.cols(), &remote, stored.run_mut(first..layout.rows));
    stored
}
