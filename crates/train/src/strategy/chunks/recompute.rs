//! What a chunk keeps until its backward: its activations or, beyond a budget, only the input of this rank's stages.
//!
//! From its input, the forward of a chunk is run again before its backward, without any message. It reads the same rows:
//! those that the step had computed before are still the newest ones, and stores keep all others until the step ends
//! ([`StageStore::with_copy`](super::StageStore::with_copy)). Dropout masks are functions of epoch, step and row. So results
//! are the same to the bit.

use halograph_kernels::{Real, buffer};
use halograph_nn::Model;

use super::pass::ChunkPass;
use super::{Chunked, Step, StepOrder};
use crate::error::Result;
use crate::stage::{Activations, StageRunner, Tape};

/// What is left of the forward of a chunk.
pub(super) enum Kept<T: Real> {
    /// All that the backward needs.
    Tape(Tape<T>),
    /// The input of this rank's first stage; `None`: features.
    Input(Option<Activations<T>>),
}

/// Memory for the activations of a step.
pub(super) struct ActivationBudget {
    /// Bytes left; `None`: unlimited.
    left: Option<u64>,
}

/// Measures the activations of a chunk.
pub(super) struct ChunkMeter<T: Real> {
    input: Option<Activations<T>>,
    /// Buffers held before the forward, without the input.
    before: i64,
}

impl ActivationBudget {
    pub fn new(bytes: Option<u64>) -> Self {
        ActivationBudget { left: bytes }
    }

    /// Starts to measure the forward of a chunk with this input, which is kept unless it `is_first`: features. `None`: the
    /// activations will be kept anyway, because nothing is limited, or because the backward of the chunk is next.
    pub fn measure<T: Real>(
        &self,
        is_next: bool,
        input: &Activations<T>,
        is_first: bool,
    ) -> Option<ChunkMeter<T>> {
        let before = buffer::held_by_thread() - input.bytes() as i64;
        let input = || (!is_first).then(|| input.clone());
        (self.left.is_some() && !is_next).then(|| ChunkMeter { input: input(), before })
    }

    /// Decides what to keep of a chunk after its forward.
    pub fn keep<T: Real>(&mut self, tape: Tape<T>, meter: Option<ChunkMeter<T>>) -> Kept<T> {
        let (Some(left), Some(ChunkMeter { input, before })) = (&mut self.left, meter) else {
            return Kept::Tape(tape);
        };
        let bytes = (buffer::held_by_thread() - before).max(0) as u64;
        match left.checked_sub(bytes) {
            Some(rest) => {
                *left = rest;
                Kept::Tape(tape)
            }
            None => Kept::Input(input),
        }
    }
}

impl<T: Real> Chunked<'_, T> {
    /// Runs the forward of this rank's stages on a chunk again. Does not communicate.
    pub(super) fn recompute(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        order: &StepOrder,
        (chunk, input): (usize, Option<Activations<T>>),
    ) -> Result<Tape<T>> {
        let own = model.indices();
        let ChunkPass { peers, view, rows, ids, stages, mut halo, .. } =
            self.pass(own.start, step, order, chunk);
        halo.is_repeated = true;
        let mut runner = StageRunner::new(Some(step.key), ids, Some(peers), &mut halo);
        peers.enter(own.start, "forward");
        let _span = peers.span("recompute");
        let mut activations = input.unwrap_or_else(|| runner.input(model, view.input_run(model, rows)));
        let mut tape = Tape::default();
        for (index, stage) in own.zip(stages) {
            let block = stage.blocks[chunk].without_exchange();
            runner.forward(model, index, &block, &mut activations, &mut tape)?;
        }
        Ok(tape)
    }
}
