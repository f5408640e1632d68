//! How the trainer's epochs and evaluations are computed, in one process or by a rank among others.

use halograph_kernels::Real;
use halograph_kernels::keyed::Key;
use halograph_nn::Model;
use halograph_nn::state::State;

use crate::data::Data;
use crate::error::Result;
use crate::evaluation;
use crate::event::{Scores, Staleness};
use crate::strategy::single::{self, Plan};

/// What a trainer needs of a strategy. On several ranks every call is made by all of them, and gives all the same.
pub(crate) trait Engine<T: Real> {
    /// Forward, loss and backward: adds the gradients of all rows there are to those of the parameters; gives the loss.
    fn epoch(&mut self, model: &mut Model<T>, number: u64, key: Key) -> Result<f64>;

    /// Scores of `model`; nothing if its outputs are not finite.
    fn scores(&mut self, model: &Model<T>, number: u64) -> Result<Option<Scores>>;

    /// The flags that any rank has set.
    fn agree(&mut self, flags: u8) -> Result<u8>;

    /// How far what the last epoch read of other ranks was from what it should have been, where that was measured.
    fn staleness(&mut self) -> Result<Option<Staleness>> {
        Ok(None)
    }

    /// What its next epochs need besides model and optimiser.
    fn save(&mut self) -> Result<State> {
        Ok(State::default())
    }

    /// Takes what was saved; `place` names it in errors.
    fn load(&mut self, _place: &str, _state: &State) -> Result<()> {
        Ok(())
    }
}

/// One process that computes every row.
pub(crate) struct Alone<'d, T: Real> {
    pub data: &'d Data<'d, T>,
    pub plan: Plan<'d, T>,
}

impl<T: Real> Engine<T> for Alone<'_, T> {
    fn epoch(&mut self, model: &mut Model<T>, _: u64, key: Key) -> Result<f64> {
        Ok(single::epoch(model, &self.plan, &self.data.parts[0], key))
    }

    fn scores(&mut self, model: &Model<T>, _: u64) -> Result<Option<Scores>> {
        evaluation::scores(model, self.data)
    }

    fn agree(&mut self, flags: u8) -> Result<u8> {
        Ok(flags)
    }
}
