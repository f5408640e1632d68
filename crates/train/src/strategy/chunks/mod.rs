//! Strategies `layers` and `hybrid` (GNNPipe): a rank computes some stages of the model, chunk by chunk.
//!
//! Ranks are stage groups × ways ([`Grid`]): rank `s·W + w` computes the stages of group s on the rows of way w. `layers` is
//! W = 1, where every rank has all rows; `hybrid` partitions the graph into W parts. The rows of a way are cut into chunks
//! ([`RowChunks`](crate::data::RowChunks)) that flow through the groups like micro-batches:
//!
//! ```text
//! forward    for each chunk, in an order drawn per epoch: receive its rows from the group before; run the stages of this
//!            group; send its rows to the next group
//! loss       in the last group, over the training rows of all ranks
//! backward   for each chunk, in reverse order: receive gradients; run the stages backwards; send gradients
//! ```
//!
//! Chunks depend on each other. A stage reads rows of chunks that this step has computed fresh, and those of all others from
//! an earlier step ([`StageStore`]). Rows that were read from history get no gradient, and those that were read fresh a
//! larger one ([`GradientWeighting`](crate::config::GradientWeighting)). With one chunk per way, everything is fresh: exact, like `single` or `partition`.
//!
//! All ways compute chunks of one number at a time, and read those of other ways fresh: they exchange their rows as in
//! `partition`. Weight gradients are summed over the ways of a group; over groups, only single numbers are summed.

mod evaluate;
mod grid;
mod halo;
mod handover;
mod history;
mod order;
mod pass;
mod plan;
mod recompute;
mod split;
mod step;
mod store;
#[cfg(test)]
mod tests;
mod weights;

use std::borrow::Cow;
use std::sync::Arc;

use halograph_comm::{Message, Position};
use halograph_graph::error::Error as InputError;
use halograph_kernels::Real;
use halograph_nn::model::Stage;
use halograph_nn::state::{State, Tensor};
use halograph_nn::{Layer, Model};

pub use grid::{Grid, StageLayout};
pub use order::StepOrder;
pub use plan::{load, plan};
pub use split::{split, stage_costs};
pub use store::StageStore;

use super::{Step, StepOutcome, Strategy};
use crate::boundary::RankLink;
use crate::config::{Config, LayersConfig};
use crate::data::{Rows, ShardData, StageChunks};
use crate::error::Result;
use crate::evaluation::{Detail, Evaluated};
use crate::requests::Requests;
use crate::tags::{Control, Setup};
use crate::trace::BUBBLE;
use crate::traffic::StepMeter;

/// The connections of a rank.
#[derive(Clone, Copy)]
pub struct Links<'s> {
    /// To all ranks.
    pub world: &'s RankLink,
    /// Within its stage group and its way.
    pub grid: &'s Grid,
}

/// The labelled training rows of a chunk.
struct ChunkRows {
    own: Rows,
    /// Number of rows on all ways.
    count: u64,
    /// What the loss of these rows is divided by; that of a step is the sum over its chunks.
    divisor: f64,
}

/// Returns the position of a wait that is part of the bubble, in this step of this epoch.
fn bubble_at((epoch, step): (u64, u64)) -> Position {
    Position::new(BUBBLE).epoch(epoch as u32).step(step as u32)
}

/// Training of some stages, chunk by chunk.
pub struct Chunked<'s, T: Real> {
    config: LayersConfig,
    seed: u64,
    data: &'s ShardData<'s, T>,
    links: Links<'s>,
    layout: &'s StageLayout,
    meter: &'s StepMeter,
    /// First training row of each chunk, and the end.
    starts: Vec<usize>,
    /// Labelled training rows of each chunk.
    rows: Vec<ChunkRows>,
    /// The chunks of each stage of this rank.
    stages: Vec<Arc<StageChunks>>,
    stores: Vec<Option<StageStore<T>>>,
    /// Epoch and number of the last step.
    last_step: (u64, u64),
    /// Whether stores hold rows: history is initialised before the first step of a run.
    has_history: bool,
}

impl<'s, T: Real> Chunked<'s, T> {
    /// Plans the training of `model`, the stages of this rank. Collective; blocks.
    pub fn new(
        config: &Config,
        model: &Model<T>,
        data: &'s ShardData<'s, T>,
        links: Links<'s>,
        layout: &'s StageLayout,
        meter: &'s StepMeter,
    ) -> Result<Self> {
        let link = &links.grid.link;
        let own = model.indices();
        let stages = data.chunked_stages(link, own.start, &layout.rows(model))?;
        let starts = data.chunk_starts();
        let chunks = starts.len() - 1;
        let rows: Vec<Rows> = starts.windows(2).map(|run| data.rows[0].within(run[0]..run[1])).collect();
        let weights = data.objective.weights();
        let own_totals = rows.iter().flat_map(|rows| [rows.count() as f64, rows.divisor(weights)]);
        let mut totals: Vec<f64> = own_totals.collect();
        link.comm.all_reduce(Setup::ChunkCounts.tag(), &mut totals)?;
        let (is_frozen, recomputes) = (config.layers.history_epochs > 1, config.recomputes());
        let store = |((index, stage), chunks_of): ((usize, &Stage<T>), &Arc<StageChunks>)| {
            let is_static = index == 0 && stage.has_static_aggregate();
            let reads_chunks = chunks > 1 && stage.reads_edges() && !is_static;
            let width = Layer::message_width(&stage.layer);
            let store = || StageStore::new(chunks_of.clone(), width, is_frozen);
            reads_chunks.then(|| if recomputes { store().with_copy() } else { store() })
        };
        let stores = model.indices().zip(&model.stages).zip(&stages).map(store).collect();
        let rows = rows.into_iter().zip(totals.chunks_exact(2));
        let rows = rows.map(|(own, of)| ChunkRows { own, count: of[0] as u64, divisor: of[1] }).collect();
        let (config, seed) = (config.layers.clone(), config.train.seed);
        Ok(Chunked {
            config,
            seed,
            data,
            links,
            layout,
            meter,
            starts,
            rows,
            stages,
            stores,
            last_step: (0, 0),
            has_history: false,
        })
    }

    /// Returns the number of chunks of this way.
    fn chunks(&self) -> usize {
        self.starts.len() - 1
    }

    /// Makes the newest rows those of history, if that is due after a step.
    fn refresh(&mut self, step: &Step) {
        let ends_epoch = step.step + 1 == self.config.steps_per_epoch;
        let every = self.config.history_epochs;
        if every == 1 || (ends_epoch && step.epoch.is_multiple_of(every)) {
            self.stores.iter_mut().flatten().for_each(StageStore::refresh);
        }
    }
}

impl<T: Real> Strategy<T> for Chunked<'_, T> {
    fn steps(&self) -> u64 {
        self.config.steps_per_epoch
    }

    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        if !self.has_history {
            self.initialise_history(model)?;
            self.has_history = true;
        }
        let at = (step.epoch, step.step);
        let order = StepOrder::new(&self.config, self.seed, self.chunks(), at);
        self.last_step = at;
        let outcome = self.run_step(model, step, &order, requests)?;
        self.refresh(step);
        Ok(outcome)
    }

    fn evaluate(&mut self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>> {
        evaluate::scores(model, self.data, self.links.grid, self.layout, (epoch, detail))
    }

    fn agree(&mut self, requests: Requests) -> Result<Requests> {
        self.links.world.agree(requests)
    }

    fn owns_all_stages(&self) -> bool {
        self.links.grid.stages == 1
    }

    fn sum_over_stages(&mut self, numbers: &mut [f64]) -> Result<()> {
        let (column, tag) = (&self.links.grid.column, Control::StageSums.tag());
        // In a step, this is where a rank waits for stage groups that finish later.
        let Some(_measured) = self.meter.go_on(self.links.world) else {
            return Ok(column.all_reduce(tag, numbers)?);
        };
        let sum = || column.all_reduce(tag, numbers);
        Ok(self.meter.bubble(self.links.world, ("other stage groups", bubble_at(self.last_step)), sum)?)
    }

    fn gather_weights<'w>(&mut self, own: &'w State) -> Result<Cow<'w, State>> {
        if self.owns_all_stages() {
            return Ok(Cow::Borrowed(own));
        }
        let tag = Control::StageWeights.tag();
        let mut all = State::default();
        for part in self.links.grid.column.all_gather(tag, Message::of(&own.to_bytes()))? {
            all.insert_all("", State::from_bytes("weights of another rank", part.as_slice()?)?);
        }
        Ok(Cow::Owned(all))
    }

    fn save(&mut self) -> Result<State> {
        let mut state = State::default();
        if self.chunks() > 1 {
            state.0.insert(CHUNKS.into(), Tensor::count(self.data.chunks().digest()));
        }
        for (index, store) in self.stores.iter().enumerate() {
            if let Some(store) = store {
                store.save(&format!("{index}."), &mut state);
            }
        }
        Ok(state)
    }

    fn load(&mut self, place: &str, state: &State) -> Result<()> {
        if self.chunks() > 1 {
            check_chunks(place, state, self.data.chunks().digest())?;
        }
        for (index, store) in self.stores.iter_mut().enumerate() {
            if let Some(store) = store {
                store.load(place, &format!("{index}."), state)?;
            }
        }
        self.has_history = true;
        Ok(())
    }
}

/// Name of the digest of the chunks in a checkpoint: stored rows are in the order of chunks.
const CHUNKS: &str = "chunks";

/// Refuses a checkpoint of other chunks than those with digest `own`: they are cut again at every start.
fn check_chunks(place: &str, state: &State, own: u64) -> Result<()> {
    const HELP: &str = "METIS cuts the same chunks only with the same version of this program and of the C library: resume \
                        where the run was started, or start a new run";
    let saved = state.count(place, CHUNKS).map_err(|error| error.help(HELP))?;
    if saved == own {
        return Ok(());
    }
    let problem = format!("rows of other chunks of the graph: digest {saved:016x}, but {own:016x} now");
    Err(InputError::input(place, problem).help(HELP).into())
}
