//! Mini-batches on one process: an epoch visits the training nodes in a random order, a batch at a time, and computes each
//! batch on a sample of its neighbourhood. The reference of all sampled strategies.
//!
//! ```text
//! background   for each coming batch: sample its blocks            (at most a few batches ahead)
//! step         wait for the batch; gather its input rows; forward; loss of the seeds; backward
//! ```
//!
//! Each of these is a span of the trace, if one is recorded.
//!
//! A batch is a function of (seed, epoch, step), so a resumed run needs no state, and every value is the same on any number
//! of threads. With fanout -1 and one batch per epoch this is `single`, up to rounding.
//!
//! With a cached input aggregate the first stage reads the aggregate over all neighbours, computed once, and the deepest hop
//! is not sampled.

mod loader;
mod relay;

use std::time::Instant;

use halograph_comm::{Position, Recorder, Span, SpanGuard, Track};
use halograph_graph::sample::{Neighbors, Sample, SampleSpec, Sampler};
use halograph_kernels::{Real, buffer};
use halograph_nn::Model;
use rayon::prelude::*;

use super::batches::{Seeds, position, stage_blocks};
use super::{Step, StepOutcome, Strategy};
use crate::boundary::Fresh;
use crate::config::Config;
use crate::data::Data;
use crate::error::Result;
use crate::evaluation::{self, Detail, Evaluated, Keep};
use crate::loss::loss;
use crate::requests::Requests;
use crate::stage::{StageBlock, StageRunner};
use crate::summary::BatchTotals;

pub use loader::Scope;
use loader::{Batch, Loader};
pub use relay::DataParallelRelay;

/// What all batches of a run are sampled from.
pub struct BatchSource<'d> {
    neighbors: Neighbors<'d>,
    spec: SampleSpec,
    seeds: Seeds,
    /// Batches are prepared up to this epoch.
    epochs: u64,
    caches_aggregate: bool,
    recorder: Recorder,
}

impl<'d> BatchSource<'d> {
    /// Lists the neighbours of all rows of the training graph. Copies its edges if rows are not stored by dataset id.
    pub fn new<T: Real>(config: &Config, data: &'d Data<'d, T>) -> Self {
        BatchSource {
            neighbors: Neighbors::of(&data.train.block),
            spec: SampleSpec { kind: config.train.sampler, fanouts: config.sampled_fanouts() },
            seeds: Seeds::new(&config.train, &data.parts[0], &data.train.block),
            epochs: config.train.epochs,
            caches_aggregate: config.train.cache_input_aggregate,
            recorder: Recorder::new(Instant::now()),
        }
    }
}

impl BatchSource<'_> {
    /// Enables the trace: sampling and steps record spans.
    pub fn trace(&self) {
        self.recorder.enable();
    }

    /// Removes and returns the spans recorded so far.
    pub fn take_spans(&self) -> Vec<Span> {
        self.recorder.take()
    }

    /// Records a span of a step until the guard is dropped, if the run is traced.
    fn span(&self, track: Track, name: &'static str, at: Position) -> SpanGuard<'_> {
        self.recorder.span_on(track, name, at)
    }

    /// Samples all batches of an epoch on all threads; returns the sampled edges per second. Allocates, so that a second
    /// call is faster.
    pub(crate) fn sample_epoch(&self, epoch: u64) -> f64 {
        let shuffled = self.seeds.shuffled(epoch);
        let started = Instant::now();
        let state = || (Sampler::new(&self.neighbors, &self.spec), Sample::default());
        let edges = (0..self.seeds.batches()).into_par_iter().map_init(state, |(sampler, sample), step| {
            let (_, rows) = self.seeds.batch(&shuffled, step);
            sampler.sample(self.seeds.sample_key(epoch, step), &rows, sample);
            sample.edges()
        });
        let edges: usize = edges.sum();
        edges as f64 / started.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Training on sampled mini-batches.
pub struct Minibatch<'a, 's, T: Real> {
    data: &'s Data<'s, T>,
    source: &'s BatchSource<'s>,
    loader: Loader<'a, 's>,
    totals: BatchTotals,
}

impl<'a, 's, T: Real> Minibatch<'a, 's, T> {
    /// Plans the training of `model`; computes the input aggregate if it is cached. Batches are sampled by tasks of
    /// `scope`.
    pub fn new(
        model: &Model<T>,
        data: &'s Data<'s, T>,
        source: &'s BatchSource<'s>,
        scope: &'a Scope<'s>,
    ) -> Result<Self> {
        if source.caches_aggregate {
            data.train.prepare(model, &StageBlock::local(data.train.block.clone()), None)?;
        }
        let totals = BatchTotals { per_epoch: source.seeds.batches(), ..BatchTotals::default() };
        Ok(Minibatch { data, source, loader: Loader::new(source, scope), totals })
    }

    /// Returns the totals of all steps so far.
    pub fn totals(&self) -> BatchTotals {
        self.totals
    }

    /// Runs forward, loss and backward of one batch; returns its loss.
    fn compute(&mut self, model: &mut Model<T>, step: &Step, batch: &Batch) -> Result<StepOutcome> {
        let (source, at) = (self.source, |phase| position(phase, step.epoch, step.step));
        let started = Instant::now();
        let span = source.span(Track::Compute, "gather", at("gather"));
        let seeds = self.data.parts[0].select(&batch.seeds);
        let input = self.data.train.input_of(model, batch.sample.rows(), source.caches_aggregate)?;
        drop(span);
        self.totals.gather_seconds += started.elapsed().as_secs_f64();
        let (started, sampled) = (Instant::now(), self.loader.own_seconds());
        let shape = (batch.seeds.len(), self.source.caches_aggregate);
        let blocks = stage_blocks(model, &batch.sample, shape, |_| None);
        let mut halo = Fresh;
        let mut runner = StageRunner::new(Some(step.key), Some(batch.sample.ids()), None, &mut halo);
        runner = runner.recorded(&source.recorder, at("forward"));
        let (tape, logits) = runner.forward_model(model, &blocks, input)?;
        let span = source.span(Track::Compute, "loss", at("forward").layer(u16::MAX));
        let weights = self.data.objective.weights();
        let (loss, grad) = loss(&logits, &seeds, weights, seeds.divisor(weights));
        drop((logits, span));
        runner.backward_model(model, &blocks, tape, grad, |_, _| ())?;
        // While a kernel waits for another thread, this one may sample a batch.
        let sampled = self.loader.own_seconds() - sampled;
        self.totals.wait_seconds += sampled;
        self.totals.compute_seconds += started.elapsed().as_secs_f64() - sampled;
        Ok(StepOutcome { loss, rows: seeds.count(), requests: Requests::default() })
    }
}

impl<T: Real> Strategy<T> for Minibatch<'_, '_, T> {
    fn steps(&self) -> u64 {
        self.source.seeds.batches()
    }

    fn step(
        &mut self,
        model: &mut Model<T>,
        step: &Step,
        requests: &dyn Fn() -> Requests,
    ) -> Result<StepOutcome> {
        let started = Instant::now();
        let span = self.source.span(Track::Wait, "batch", position("batch", step.epoch, step.step));
        let batch = self.loader.next(step.epoch, step.step);
        drop(span);
        let totals = &mut self.totals;
        totals.wait_seconds += started.elapsed().as_secs_f64();
        totals.add(&batch.sample);
        totals.sampling_seconds += batch.sampling_seconds;
        let outcome = self.compute(model, step, &batch)?;
        self.loader.recycle(batch);
        Ok(StepOutcome { requests: requests(), ..outcome })
    }

    fn evaluate(&mut self, model: &Model<T>, epoch: u64, detail: Detail) -> Result<Option<Evaluated>> {
        let at = position("evaluation", epoch, 0).layer(u16::MAX);
        let _span = self.source.span(Track::Compute, "evaluation", at);
        // A full-graph pass needs other sizes than batches.
        buffer::release();
        let scores = evaluation::scores(model, self.data, Keep::Nothing, detail);
        buffer::release();
        scores
    }
}
