//! Prepares coming batches in the background.
//!
//! Tasks run in the thread pool that also computes: idle threads sample, and so does the training thread while it waits for
//! a batch or for another thread. No thread is added and none is idle. At most [`AHEAD`] batches more than threads are prepared ahead.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use halograph_comm::Track;
use halograph_graph::sample::{Sample, Sampler};

use super::super::batches::Shuffled;
use super::{BatchSource, position};

/// The scope that background tasks belong to: they end before it does.
pub type Scope<'s> = rayon::ScopeFifo<'s>;

/// Batches prepared ahead, besides one per thread.
const AHEAD: usize = 1;

/// A prepared batch.
pub(super) struct Batch {
    /// Positions of the seeds among the training rows, ascending.
    pub seeds: Vec<u32>,
    pub sample: Sample,
    pub sampling_seconds: f64,
}

/// A batch that a task prepares; `None`: the task failed.
type Slot = Arc<OnceLock<Option<Mutex<Option<Batch>>>>>;

/// Batches of coming steps, in order.
pub(super) struct Loader<'a, 's> {
    source: &'s BatchSource<'s>,
    scope: &'a Scope<'s>,
    spare: Arc<Spare<'s>>,
    /// Batches under way; the first is that of `next`.
    slots: VecDeque<Slot>,
    /// Epoch and step of the first slot.
    next: (u64, u64),
    /// Epoch and step of the batch to start next.
    start: (u64, u64),
    /// A shuffled epoch.
    shuffled: (u64, Arc<Shuffled>),
}

/// Memory for further batches.
#[derive(Default)]
struct Spare<'s> {
    /// Nanoseconds of sampling on the training thread.
    own_nanoseconds: AtomicU64,
    samplers: Mutex<Vec<Sampler<'s>>>,
    samples: Mutex<Vec<Sample>>,
}

impl<'a, 's> Loader<'a, 's> {
    pub(super) fn new(source: &'s BatchSource<'s>, scope: &'a Scope<'s>) -> Self {
        let (next, start) = ((1, 0), (1, 0));
        let shuffled = (0, Arc::default());
        Loader { source, scope, spare: Arc::default(), slots: VecDeque::new(), next, start, shuffled }
    }

    /// Returns the batch of a step, and keeps coming ones under way. Blocks until it is prepared, and prepares batches
    /// meanwhile.
    pub(super) fn next(&mut self, epoch: u64, step: u64) -> Batch {
        if self.next != (epoch, step) {
            // A resumed run begins anywhere.
            self.slots.clear();
            (self.next, self.start) = ((epoch, step), (epoch, step));
        }
        self.fill();
        let slot = self.slots.pop_front().expect("the batch of the step is under way");
        self.next = self.following(self.next);
        while slot.get().is_none() {
            if rayon::yield_now() != Some(rayon::Yield::Executed) {
                std::thread::yield_now();
            }
        }
        let batch = slot.get().and_then(Option::as_ref).and_then(|batch| lock(batch).take());
        self.fill();
        batch.expect("sampling a batch does not panic")
    }

    /// Returns the seconds that the training thread has sampled.
    pub(super) fn own_seconds(&self) -> f64 {
        self.spare.own_nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }

    /// Gives the memory of a batch back.
    pub(super) fn recycle(&self, batch: Batch) {
        lock(&self.spare.samples).push(batch.sample);
    }

    /// Starts tasks until enough batches are under way.
    fn fill(&mut self) {
        while self.slots.len() < rayon::current_num_threads() + AHEAD && self.start.0 <= self.source.epochs {
            let (epoch, step) = self.start;
            if self.shuffled.0 != epoch {
                self.shuffled = (epoch, Arc::new(self.source.seeds.shuffled(epoch)));
            }
            let slot = Slot::default();
            self.slots.push_back(slot.clone());
            self.start = self.following(self.start);
            let (source, spare, shuffled) = (self.source, self.spare.clone(), self.shuffled.1.clone());
            let trainer = rayon::current_thread_index();
            self.scope.spawn_fifo(move |_| {
                let mut task = Task { slot, batch: None };
                let batch = prepare(source, &spare, &shuffled, (epoch, step));
                if rayon::current_thread_index() == trainer {
                    let nanoseconds = (batch.sampling_seconds * 1e9) as u64;
                    spare.own_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
                }
                task.batch = Some(batch);
            });
        }
    }

    fn following(&self, (epoch, step): (u64, u64)) -> (u64, u64) {
        if step + 1 < self.source.seeds.batches() { (epoch, step + 1) } else { (epoch + 1, 0) }
    }
}

/// Fills its slot when dropped, also if sampling panics: nobody waits for ever.
struct Task {
    slot: Slot,
    batch: Option<Batch>,
}

impl Drop for Task {
    fn drop(&mut self) {
        let _ = self.slot.set(self.batch.take().map(|batch| Mutex::new(Some(batch))));
    }
}

fn prepare<'s>(
    source: &'s BatchSource<'s>,
    spare: &Spare<'s>,
    shuffled: &Shuffled,
    (epoch, step): (u64, u64),
) -> Batch {
    let started = Instant::now();
    let thread = rayon::current_thread_index().unwrap_or(0) as u16;
    let _span = source.span(Track::Sample(thread), "batch", position("sampling", epoch, step));
    let (seeds, rows) = source.seeds.batch(shuffled, step);
    let sampler = lock(&spare.samplers).pop();
    let mut sampler = sampler.unwrap_or_else(|| Sampler::new(&source.neighbors, &source.spec));
    let mut sample = lock(&spare.samples).pop().unwrap_or_default();
    sampler.sample(source.seeds.sample_key(epoch, step), &rows, &mut sample);
    lock(&spare.samplers).push(sampler);
    Batch { seeds, sample, sampling_seconds: started.elapsed().as_secs_f64() }
}

/// Locks; a task that panicked holds nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
