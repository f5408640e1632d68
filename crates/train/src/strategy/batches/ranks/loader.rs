//! Prepares coming macrobatches on a thread of its own, together with the loaders of the other ranks.
//!
//! The loader starts a macrobatch when the training thread takes the one before. Training threads take macrobatches at the
//! same steps, and runs end at the same step on all ranks; so all loaders exchange the same messages, and none waits for a
//! message that is never sent.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::Instant;

use halograph_comm::Track;
use halograph_graph::sample::{ExchangedRows, Sample};
use halograph_kernels::Real;

use super::super::position;
use super::budget::MacrobatchPlan;
use super::fetch::{FetchCounts, Fetcher};
use super::relay::{BatchSeeds, Batches, Relay};
use super::rows::FetchedRows;
use super::source::RankSource;
use crate::boundary::Exchange;
use crate::error::{Error, Result};
use crate::strategy::batches::Shuffled;
use crate::trace::{FETCH, SAMPLE, SAMPLING};

/// Macrobatches sampled for each one that is fetched, until enough are sampled ahead.
const CATCH_UP: usize = 2;

/// A macrobatch, ready to be computed.
pub(super) struct Macrobatch {
    pub epoch: u64,
    /// Step of the first batch that is left.
    pub step: u64,
    pub batches: VecDeque<RankBatch>,
    /// Rows of other ranks that the batches read.
    pub rows: FetchedRows,
    pub counts: LoadCounts,
}

/// A batch of a rank.
pub(super) struct RankBatch {
    pub seeds: BatchSeeds,
    pub sample: Sample,
    /// Rows that ranks read of each other, by hop.
    pub exchanges: Vec<Option<Arc<Exchange>>>,
    /// Places of its input rows.
    pub inputs: Vec<u32>,
}

/// What preparing a macrobatch took.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadCounts {
    /// All-to-alls.
    pub relays: u64,
    pub sampling_seconds: f64,
    pub fetching_seconds: f64,
    pub fetched: FetchCounts,
    /// Distinct own rows that this rank or another one reads.
    pub loaded_rows: u64,
}

/// A macrobatch whose rows are not fetched yet.
struct Sampled {
    batches: Batches,
    samples: Vec<Sample>,
    /// Distinct remote vertices.
    remote: Vec<u32>,
    relays: u64,
    seconds: f64,
}

/// Memory that the training thread gives back.
type Spare = Arc<Mutex<Vec<FetchedRows>>>;

/// Macrobatches of coming steps, in order.
pub(super) struct MacrobatchLoader {
    prepared: Receiver<Result<Macrobatch>>,
    current: Option<Macrobatch>,
    spare: Spare,
}

impl MacrobatchLoader {
    /// Starts the thread, in `scope`, at a step.
    pub(super) fn start<'scope, 's: 'scope, T: Real>(
        scope: &'scope Scope<'scope, '_>,
        preparation: Preparation<'s, T>,
        threads: usize,
        (epoch, step): (u64, u64),
    ) -> Self {
        // Without a buffer: a macrobatch is started when the one before is taken.
        let (sender, prepared) = sync_channel(0);
        let spare = Spare::default();
        let preparation = Preparation { next: (epoch, step), spare: spare.clone(), ..preparation };
        scope.spawn(move || preparation.run(threads, &sender));
        MacrobatchLoader { prepared, current: None, spare }
    }

    /// Returns the batch of a step, with the rows fetched for it and what preparing its macrobatch took, if it is the first
    /// one. Blocks until it is prepared.
    pub(super) fn next(
        &mut self,
        epoch: u64,
        step: u64,
    ) -> Result<(RankBatch, &FetchedRows, Option<LoadCounts>)> {
        let mut counts = None;
        if self.current.as_ref().is_none_or(|current| current.batches.is_empty()) {
            let used = self.current.take().map(|current| current.rows);
            lock(&self.spare).extend(used);
            let macrobatch = self.prepared.recv().map_err(|_| ended())??;
            counts = Some(macrobatch.counts);
            self.current = Some(macrobatch);
        }
        let current = self.current.as_mut().expect("there is a macrobatch");
        assert_eq!((current.epoch, current.step), (epoch, step), "steps follow each other");
        current.step += 1;
        let batch = current.batches.pop_front().expect("a macrobatch that is not empty");
        Ok((batch, &current.rows, counts))
    }

    /// Returns the next batch, with the rows fetched for it, if it belongs to the current macrobatch.
    pub(super) fn coming(&self) -> Option<(&RankBatch, &FetchedRows)> {
        let current = self.current.as_ref()?;
        Some((current.batches.front()?, &current.rows))
    }
}

fn ended() -> Error {
    Error::Threads { threads: 1, cause: "the thread that samples batches has failed".into() }
}

/// Prepares macrobatches.
pub(super) struct Preparation<'s, T: Real> {
    source: &'s RankSource<'s, T>,
    relay: Box<dyn Relay + 's>,
    fetcher: Fetcher<'s, T>,
    plan: MacrobatchPlan,
    /// Epoch and step of the first batch that is not sampled.
    next: (u64, u64),
    /// A shuffled epoch.
    shuffled: (u64, Shuffled),
    sampled: VecDeque<Sampled>,
    spare: Spare,
}

impl<'s, T: Real> Preparation<'s, T> {
    pub(super) fn new(
        source: &'s RankSource<'s, T>,
        relay: Box<dyn Relay + 's>,
        fetcher: Fetcher<'s, T>,
        plan: MacrobatchPlan,
    ) -> Self {
        let (next, shuffled) = ((1, 0), (0, Shuffled::default()));
        let spare = Spare::default();
        Preparation { source, relay, fetcher, plan, next, shuffled, sampled: VecDeque::new(), spare }
    }

    /// Prepares macrobatches until the last epoch ends, or nobody takes them.
    fn run(mut self, threads: usize, out: &SyncSender<Result<Macrobatch>>) {
        // This thread and others; compute threads may be in the middle of a kernel.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build();
        if let Err(error) = &pool {
            let _ = out.send(Err(Error::Threads { threads, cause: error.to_string() }));
            return;
        }
        loop {
            // A panic of this thread is an error of the rank, not of the thread that waits for it.
            let prepared = catch_unwind(AssertUnwindSafe(|| self.prepare())).unwrap_or_else(|_| Err(ended()));
            let is_last = !matches!(prepared, Ok(Some(_)));
            let Some(prepared) = prepared.transpose() else { return };
            if out.send(prepared).is_err() || is_last {
                return;
            }
        }
    }

    /// Samples and fetches the next macrobatch; `None` after the last one. Collective; blocks.
    pub(super) fn prepare(&mut self) -> Result<Option<Macrobatch>> {
        for _ in 0..CATCH_UP {
            if self.sampled.len() <= self.plan.coming {
                let sampled = self.sample()?;
                self.sampled.extend(sampled);
            }
        }
        let Some(sampled) = self.sampled.pop_front() else { return Ok(None) };
        self.fetch(sampled).map(Some)
    }

    /// Samples the next macrobatch; `None` after the last epoch. Collective; blocks.
    fn sample(&mut self) -> Result<Option<Sampled>> {
        let (epoch, first) = self.next;
        if epoch > self.source.epochs {
            return Ok(None);
        }
        let started = Instant::now();
        let _span =
            self.source.graph.comm.span_on(Track::Sample(0), SAMPLE, position(SAMPLING, epoch, first));
        if self.shuffled.0 != epoch {
            self.shuffled = (epoch, self.source.graph.seeds.shuffled(epoch));
        }
        // Macrobatches begin at multiples of their size, also in a run that was resumed between them.
        let (size, batches) = (self.plan.macrobatch, self.source.graph.seeds.batches());
        let end = ((first / size + 1) * size).min(batches);
        self.next = if end < batches { (epoch, end) } else { (epoch + 1, 0) };
        let batches = self.source.graph.batches(&self.shuffled.1, epoch, first, end - first);
        let (samples, relays) = self.relay.sample(&batches)?;
        let remote = self.fetcher.remote(&samples);
        Ok(Some(Sampled { batches, samples, remote, relays, seconds: started.elapsed().as_secs_f64() }))
    }

    /// Fetches the rows of a macrobatch. Collective; blocks.
    fn fetch(&mut self, sampled: Sampled) -> Result<Macrobatch> {
        let Sampled { batches, mut samples, remote, relays, seconds: sampling_seconds } = sampled;
        let started = Instant::now();
        let at = position(SAMPLING, batches.epoch, batches.first);
        let _span = self.source.graph.comm.span_on(Track::Sample(0), FETCH, at);
        let mut rows = lock(&self.spare).pop().unwrap_or_default();
        let coming = self.sampled.iter().map(|sampled| &sampled.remote[..]);
        let fetches = self.relay.reads_remote_inputs();
        let fetched = match fetches {
            true => self.fetcher.fetch(&batches, &remote, coming, &mut rows)?,
            false => FetchCounts::default(),
        };
        let loaded_rows = self.fetcher.loaded_rows(&samples);
        let inputs = self.fetcher.describe(&mut samples, &remote, &rows);
        let parts = batches.batches.into_iter().zip(samples).zip(inputs);
        let parts = parts.map(|((seeds, mut sample), inputs)| {
            let exchange = |lists: ExchangedRows| Arc::new(Exchange::new(lists.send_rows, lists.halo_counts));
            let exchanges =
                sample.take_exchanged_rows().into_iter().map(|lists| lists.map(exchange)).collect();
            RankBatch { seeds, sample, exchanges, inputs }
        });
        let counts = LoadCounts {
            relays: relays + if fetches { 2 } else { 0 },
            sampling_seconds,
            fetching_seconds: started.elapsed().as_secs_f64(),
            fetched,
            loaded_rows,
        };
        let (epoch, step) = (batches.epoch, batches.first);
        Ok(Macrobatch { epoch, step, batches: parts.collect(), rows, counts })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
