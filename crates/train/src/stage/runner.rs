//! Forward, backward and evaluation of one stage.

use std::sync::Arc;

use halograph_comm::{Position, Recorder, SpanGuard};
use halograph_kernels::Real;
use halograph_kernels::batch_norm::Moments;
use halograph_kernels::dropout::{Mask, dropout_in_place};
use halograph_kernels::keyed::Key;
use halograph_nn::model::{Stage, StageCache};
use halograph_nn::norm::NormSums;
use halograph_nn::{Input, Layer, Matrix, Model, Pass};

use super::layer::{Aggregated, LayerRun};
use super::tape::Tape;
use super::{ModelInput, StageBlock};
use crate::boundary::{HaloSource, Peers};
use crate::config::RowEncoding;
use crate::error::Result;

/// Runs the stages of a model in one training step, or in one evaluation.
pub struct StageRunner<'a, T: Real> {
    /// Names the random masks of the step; `None`: evaluation, nothing is dropped.
    key: Option<Key>,
    /// Dataset vertex id of each input row; `None`: the row number.
    ids: Option<&'a [u32]>,
    /// `None`: this process computes every row.
    peers: Option<Peers<'a>>,
    halo: &'a mut dyn HaloSource<T>,
    /// Records a span per stage, at this epoch and step. Ranks record finer ones, by way of `peers`.
    recorder: Option<(&'a Recorder, Position)>,
}

/// Rows between two stages of a forward.
#[derive(Clone)]
pub struct Activations<T: Real> {
    /// Input of the next stage, with its dropout applied.
    pub input: Input<T>,
    /// Output of the last stage that ran.
    pub output: Arc<Matrix<T>>,
    /// Output of the stage that later ones mix in (GCNII's H⁰), without dropout.
    pub initial: Option<Arc<Matrix<T>>>,
    /// The first stage's aggregate of the features, if it is the same in every step.
    aggregate: Option<Arc<Matrix<T>>>,
}

impl<T: Real> Activations<T> {
    /// Continues a forward with rows of the stage before, which another rank has computed.
    pub fn received(input: Input<T>, initial: Option<Arc<Matrix<T>>>) -> Self {
        Activations { input, output: Arc::default(), initial, aggregate: None }
    }

    /// Returns the bytes of the input of the next stage, and of the initial output.
    pub fn bytes(&self) -> usize {
        let initial = self.initial.as_ref().map_or(0, |rows| rows.rows() * rows.cols());
        size_of::<T>() * (self.input.rows() * self.input.cols() + initial)
    }
}

/// Gradients between two stages of a backward.
pub struct Gradients<T: Real> {
    /// Of the output of the next stage to run.
    pub output: Matrix<T>,
    /// Of [`Activations::initial`], summed over the stages that read it.
    pub initial: Option<Matrix<T>>,
}

impl<T: Real> Gradients<T> {
    /// Continues a backward below the initial stage, given the gradient of its output.
    pub fn of_initial(grad: Matrix<T>) -> Self {
        Gradients { output: Matrix::zeros(grad.rows(), grad.cols()), initial: Some(grad) }
    }

    /// Starts a backward at the gradient of the loss.
    pub fn of_loss(grad: Matrix<T>) -> Self {
        Gradients { output: grad, initial: None }
    }
}

impl<'a, T: Real> StageRunner<'a, T> {
    /// Creates a runner for rows with these dataset `ids`. `key`: names the masks of a training step.
    pub fn new(
        key: Option<Key>,
        ids: Option<&'a [u32]>,
        peers: Option<Peers<'a>>,
        halo: &'a mut dyn HaloSource<T>,
    ) -> Self {
        StageRunner { key, ids, peers, halo, recorder: None }
    }

    /// Records a span per stage, at epoch and step of `position`, if `recorder` is enabled.
    pub fn recorded(self, recorder: &'a Recorder, position: Position) -> Self {
        StageRunner { recorder: Some((recorder, position)), ..self }
    }

    /// Returns what the first stage of `model` reads: `input` with the stage's dropout applied.
    pub fn input(&self, model: &Model<T>, input: ModelInput<T>) -> Activations<T> {
        let ModelInput { features, aggregate } = input;
        let input = match self.mask(model, 0) {
            Some(mask) => features.dropped(mask),
            None => features,
        };
        Activations { input, output: Arc::default(), initial: None, aggregate }
    }

    /// Continues a forward with the output of the initial stage, which another rank has computed and which stage `index`
    /// reads next.
    pub fn after_initial(&self, model: &Model<T>, index: usize, initial: Matrix<T>) -> Activations<T> {
        let initial = Arc::new(initial);
        let input = Input::from(initial.clone());
        let input = self.mask(model, index).map_or(input.clone(), |mask| input.dropped(mask));
        Activations::received(input, Some(initial))
    }

    /// Returns the gradient of the output of the initial stage, which another rank owns: `grads` are those below stage
    /// `index`, the one after it.
    pub fn initial_gradient(&self, model: &Model<T>, index: usize, grads: Gradients<T>) -> Matrix<T> {
        let Gradients { output: mut grad, initial } = grads;
        let width = grad.cols();
        self.mask(model, index).iter().for_each(|&mask| dropout_in_place(grad.data_mut(), width, mask));
        initial.iter().for_each(|more| grad.add_at(0, T::one(), more));
        grad
    }

    /// Runs the forward of stage `index` and adds what its backward needs to `tape`. Blocks for halo rows.
    pub fn forward(
        &mut self,
        model: &mut Model<T>,
        index: usize,
        block: &StageBlock,
        rows: &mut Activations<T>,
        tape: &mut Tape<T>,
    ) -> Result<()> {
        let _stage = self.enter(index, "forward");
        let mask = self.mask(model, index + 1);
        let encoding = self.encoding(model, index);
        let stage = model.stage_mut(index);
        let initial = rows.initial.clone();
        let run = LayerRun { encoding, ..self.layer_run(index, block, initial.as_deref()) };
        let mut cache = StageCache::default();
        let (sums, exchanged) = aggregate(&run, stage, rows, self.halo, &mut cache)?;
        let span = run.peers.map(|peers| peers.span("finish"));
        let finished = Layer::finish(&stage.layer, &block.block, sums, &run.pass, &mut cache.layer);
        let mut merged = Ok(());
        let merge = |moments: &mut Moments<T>| {
            merged = run.peers.map_or(Ok(()), |peers| peers.merge_moments(index, moments));
        };
        // Later stages read the initial output without dropout, the next one with it.
        let is_initial = stage.is_initial;
        rows.output = stage.activate(finished, mask.filter(|_| !is_initial), &mut cache, merge);
        merged?;
        rows.input = rows.output.clone().into();
        if is_initial {
            rows.initial = Some(rows.output.clone());
            rows.input = mask.map_or(rows.input.clone(), |mask| rows.input.dropped(mask));
        }
        drop(span);
        tape.push(cache, exchanged, rows.initial.clone());
        Ok(())
    }

    /// Runs the backward of stage `index`, whose forward was the last one on `tape`: adds to the gradients of its
    /// parameters and replaces `grads.output` by the gradient of the stage below. Returns whether there is one. Blocks
    /// for gradients of owned rows.
    pub fn backward(
        &mut self,
        model: &mut Model<T>,
        index: usize,
        block: &StageBlock,
        tape: &mut Tape<T>,
        grads: &mut Gradients<T>,
    ) -> Result<bool> {
        let _stage = self.enter(index, "backward");
        let mut mask = self.mask(model, index + 1);
        let stage = model.stage_mut(index);
        let (mut cache, exchanged, initial) = tape.pop();
        let run = self.layer_run(index, block, initial.as_deref());
        let mut grad = std::mem::take(&mut grads.output);
        if stage.is_initial {
            let width = grad.cols();
            mask.take().iter().for_each(|&mask| dropout_in_place(grad.data_mut(), width, mask));
            grads.initial.take().iter().for_each(|more| grad.add_at(0, T::one(), more));
        }
        let span = run.peers.map(|peers| peers.span("backward of finish"));
        let mut summed = Ok(());
        let total = |sums: &mut NormSums<T>| {
            summed = run.peers.map_or(Ok(()), |peers| peers.total_norm_sums(index, sums));
        };
        let out = stage.activate_backward(grad, mask, &mut cache, total);
        summed?;
        let finished =
            Layer::finish_backward(&mut stage.layer, &block.block, out, &run.pass, &mut cache.layer);
        drop(span);
        let Some(sums) = finished.aggregated else { return Ok(false) };
        if let Some(share) = finished.initial {
            let like = initial.as_deref().expect("a stage that reads the initial output comes after it");
            let zeros = || Matrix::zeros(like.rows(), like.cols());
            grads.initial.get_or_insert_with(zeros).add_at(0, share, &sums);
        }
        let messages =
            run.aggregate_backward(&mut stage.layer, sums, (self.halo, exchanged), &mut cache.layer)?;
        let below = run.timed("backward of prepare", || {
            Layer::prepare_backward(&mut stage.layer, messages, &run.pass, &mut cache.layer)
        });
        let goes_on = below.is_some();
        grads.output = below.unwrap_or_default();
        Ok(goes_on)
    }

    /// Runs the forward of stage `index` in evaluation: nothing is dropped and nothing is kept for a backward. Blocks for
    /// halo rows.
    pub fn evaluate(
        &mut self,
        model: &Model<T>,
        index: usize,
        block: &StageBlock,
        rows: &mut Activations<T>,
    ) -> Result<Matrix<T>> {
        let _stage = self.enter(index, "evaluation");
        let stage = model.stage(index);
        let initial = rows.initial.clone();
        let run = self.layer_run(index, block, initial.as_deref());
        let mut cache = StageCache::default();
        let (sums, _) = aggregate(&run, stage, rows, self.halo, &mut cache)?;
        let finished = Layer::finish(&stage.layer, &block.block, sums, &run.pass, &mut cache.layer);
        Ok(stage.evaluate(finished))
    }

    /// Computes the first stage's aggregate of `features`, if it is the same in every step. Blocks for halo rows.
    pub fn static_aggregate(
        &mut self,
        first: &Stage<T>,
        block: &StageBlock,
        features: &Input<T>,
    ) -> Result<Option<Arc<Matrix<T>>>> {
        if !first.has_static_aggregate() {
            return Ok(None);
        }
        let run = self.layer_run(0, block, None);
        let mut cache = Default::default();
        let (sums, _) = run.aggregate(&first.layer, features.clone(), self.halo, &mut cache)?;
        Ok(Some(sums))
    }

    /// Reports where this rank is; records a span until the guard is dropped.
    fn enter(&self, stage: usize, phase: &'static str) -> Option<SpanGuard<'a>> {
        self.peers.iter().for_each(|peers| peers.enter(stage, phase));
        let (recorder, position) = self.recorder?;
        Some(recorder.span(phase, Position { phase, ..position.layer(stage as u16) }))
    }

    fn pass<'p>(&self, stage: usize, initial: Option<&'p Matrix<T>>) -> Pass<'p, T>
    where
        'a: 'p,
    {
        let key = self.key.map(|key| key.with(stage as u64));
        Pass { key, ids: self.ids, initial, input_gradient: stage > 0 }
    }

    fn layer_run<'r>(
        &self,
        stage: usize,
        block: &'r StageBlock<'r>,
        initial: Option<&'r Matrix<T>>,
    ) -> LayerRun<'r, T>
    where
        'a: 'r,
    {
        let (pass, encoding) = (self.pass(stage, initial), RowEncoding::Dense);
        LayerRun { stage, block, pass, encoding, peers: self.peers }
    }

    /// Returns how a stage sends rows in training: only those that a ReLU has computed may be sent without zeros.
    fn encoding(&self, model: &Model<T>, stage: usize) -> RowEncoding {
        let peers = self.peers.filter(|_| model.sends_relu_output(stage));
        peers.map_or(RowEncoding::Dense, |peers| peers.encoding())
    }

    /// Returns the dropout mask of the input of a stage, if there is such a stage and anything is dropped.
    fn mask(&self, model: &Model<T>, stage: usize) -> Option<Mask<'a>> {
        self.pass(stage, None).mask(model.dropout(stage)?)
    }
}

/// Runs `prepare` and `aggregate` of a stage on the rows it reads.
fn aggregate<T: Real>(
    run: &LayerRun<T>,
    stage: &Stage<T>,
    rows: &mut Activations<T>,
    halo: &mut dyn HaloSource<T>,
    cache: &mut StageCache<T>,
) -> Result<Aggregated<T>> {
    let input = std::mem::take(&mut rows.input);
    let prepare = || Layer::prepare(&stage.layer, input, &run.pass, &mut cache.layer);
    let messages = run.timed("prepare", prepare);
    match rows.aggregate.take() {
        Some(aggregate) => Ok((aggregate, None)),
        None => run.aggregate(&stage.layer, messages, halo, &mut cache.layer),
    }
}
