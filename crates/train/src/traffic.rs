//! What ranks send and wait for while they train.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use halograph_comm::{Comm, Counters, Message, Position, Purpose, Track};

use crate::boundary::RankLink;
use crate::error::Result;
use crate::fault::Fault;
use crate::memory;
use crate::summary::{BatchTotals, FetchTotals, RankSeconds, Traffic};
use crate::tags::Control;

/// Measures the steps of a rank.
#[derive(Default)]
pub struct StepMeter {
    totals: RefCell<Totals>,
    fault: Option<Fault>,
}

#[derive(Default)]
struct Totals {
    /// Counters at the start of the current epoch, or of the part of it that this process trains.
    epoch_start: Option<Counters>,
    /// Sent in the current or last epoch.
    epoch: Counters,
    /// Counters at the start of the first step, and the number of steps since.
    run_start: Option<Counters>,
    steps: u64,
    seconds: Duration,
    waited: Duration,
    /// Waited while a pipeline of stage groups filled or drained.
    bubble: Duration,
    hidden: Duration,
    /// CPU time of the process.
    cpu: Duration,
}

/// Measures one step until it is dropped.
pub(crate) struct MeasuredStep<'m> {
    meter: &'m StepMeter,
    link: &'m RankLink,
    start: Instant,
    waited: Duration,
    hidden: Duration,
    cpu: Duration,
}

impl StepMeter {
    /// Creates a meter; `fault` strikes at the start of a step.
    pub fn new(fault: Option<Fault>) -> Self {
        StepMeter { fault, ..StepMeter::default() }
    }

    /// Starts measuring step `step` of `epoch`.
    pub(crate) fn start<'m>(&'m self, link: &'m RankLink, epoch: u64, step: u64) -> Result<MeasuredStep<'m>> {
        self.fault.map_or(Ok(()), |fault| fault.strike(&link.comm, epoch))?;
        let totals = &mut *self.totals.borrow_mut();
        let sent = link.comm.sent();
        if step == 0 || totals.epoch_start.is_none() {
            totals.epoch_start = Some(sent);
        }
        totals.run_start.get_or_insert(sent);
        totals.steps += 1;
        Ok(self.measure(link))
    }

    /// Continues to measure the last step; `None` before the first one.
    pub(crate) fn go_on<'m>(&'m self, link: &'m RankLink) -> Option<MeasuredStep<'m>> {
        let has_begun = self.totals.borrow().steps > 0;
        has_begun.then(|| self.measure(link))
    }

    fn measure<'m>(&'m self, link: &'m RankLink) -> MeasuredStep<'m> {
        let (waited, hidden, cpu) = (link.waited(), link.hidden(), cpu_time());
        MeasuredStep { meter: self, link, start: Instant::now(), waited, hidden, cpu }
    }

    /// Runs `work`, whose waits are part of the bubble of a pipeline: a wait `name` of the trace, at a position.
    pub(crate) fn bubble<R>(
        &self,
        link: &RankLink,
        (name, at): (&'static str, Position),
        work: impl FnOnce() -> R,
    ) -> R {
        let _span = link.comm.span_on(Track::Wait, name, at);
        let before = link.waited();
        let result = work();
        self.totals.borrow_mut().bubble += link.waited() - before;
        result
    }

    /// Returns what the training time of every rank went to. Collective; blocks.
    pub(crate) fn gather_seconds(&self, comm: &Comm) -> Result<Vec<RankSeconds>> {
        let own = self.totals.borrow();
        let own = [own.seconds.saturating_sub(own.waited), own.bubble, own.waited.saturating_sub(own.bubble)];
        let read = |message: Message| {
            let &[compute, bubble, exposed] = message.expect::<f64>(own.len())? else {
                unreachable!("there are three")
            };
            Ok(RankSeconds { compute, bubble, exposed })
        };
        let message = Message::of(&own.map(|time| time.as_secs_f64()));
        comm.all_gather(Control::RankSeconds.tag(), message)?.into_iter().map(read).collect()
    }

    /// Returns the traffic of all ranks together. `steps`: number of steps of an epoch, if messages for an epoch may be sent
    /// in the one before; then what is counted per epoch is the mean over epochs, otherwise it is that of the last one.
    /// Collective; blocks.
    pub(crate) fn gather(&self, comm: &Comm, steps: Option<u64>) -> Result<Traffic> {
        let own = self.totals.borrow();
        let in_run = comm.sent().since(&own.run_start.unwrap_or_default());
        let share = steps.map(|steps| steps as f64 / own.steps.max(1) as f64);
        let (in_epoch, share) = share.map_or((&own.epoch, 1.0), |share| (&in_run, share));
        let ranks = comm.size() as f64;
        let waited = own.waited.as_secs_f64();
        let computed = own.seconds.as_secs_f64() - waited;
        let mut by_rank = vec![0.0; comm.size()];
        by_rank[comm.rank()] = computed;
        let resident = memory::peak_rss().unwrap_or(0) as f64;
        let [hidden, cpu] = [own.hidden, own.cpu].map(|time| time.as_secs_f64());
        let once = |p: Purpose| matches!(p, Purpose::Evaluation | Purpose::Setup | Purpose::Control);
        let recurring = Purpose::ALL.into_iter().filter(|&p| !once(p));
        let messages = share * recurring.map(|p| in_epoch.messages(p)).sum::<u64>() as f64;
        let mut numbers = vec![waited, hidden, messages, resident, cpu];
        for (sent, share) in [(in_epoch, share), (&comm.sent(), 1.0)] {
            numbers.extend(Purpose::ALL.map(|purpose| share * sent.bytes(purpose) as f64));
        }
        comm.all_reduce(Control::Traffic.tag(), &mut numbers)?;
        comm.all_reduce(Control::ComputeSeconds.tag(), &mut by_rank)?;
        let compute = by_rank.iter().sum::<f64>() / ranks;
        let (epoch, total) = numbers[5..].split_at(Purpose::ALL.len());
        let counted = Purpose::ALL.into_iter().filter(|&p| p != Purpose::Control);
        let bytes = |p: Purpose| if once(p) { total } else { epoch }[p as usize] as u64;
        Ok(Traffic {
            transport: "",
            wait_seconds: numbers[0] / ranks,
            hidden_seconds: numbers[1] / ranks,
            compute_seconds: compute,
            // Without any computation all ranks are alike.
            balance: if compute > 0.0 { by_rank.into_iter().fold(0.0, f64::max) / compute } else { 1.0 },
            messages_per_epoch: numbers[2] as u64,
            bytes_per_epoch: counted.clone().filter(|&p| !once(p)).map(bytes).sum(),
            bytes_by_tag: counted.map(|p| (p.name().to_string(), bytes(p))).collect(),
            peak_rss_bytes: Some(numbers[3] as u64),
            cpu_seconds: Some(numbers[4]),
            parts: Vec::new(),
        })
    }
}

impl Drop for MeasuredStep<'_> {
    fn drop(&mut self) {
        let mut totals = self.meter.totals.borrow_mut();
        totals.seconds += self.start.elapsed();
        totals.epoch = self.link.comm.sent().since(&totals.epoch_start.unwrap_or_default());
        totals.waited += self.link.waited() - self.waited;
        totals.hidden += self.link.hidden() - self.hidden;
        totals.cpu += cpu_time().saturating_sub(self.cpu);
    }
}

/// Returns the CPU time that this process has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns what all ranks did with sampled batches: counts are summed, seconds are means. Collective; blocks.
pub(crate) fn gather_batches(
    comm: &Comm,
    mut batches: BatchTotals,
    mut fetches: FetchTotals,
) -> Result<(BatchTotals, FetchTotals)> {
    for message in comm.all_gather(Control::LongestWait.tag(), Message::of(&[batches.wait_seconds]))? {
        batches.longest_wait_seconds = batches.longest_wait_seconds.max(message.expect::<f64>(1)?[0]);
    }
    let mut seconds = [
        &mut batches.sampling_seconds,
        &mut batches.gather_seconds,
        &mut batches.compute_seconds,
        &mut batches.wait_seconds,
        &mut fetches.fetching_seconds,
    ];
    let mut sums = seconds.each_ref().map(|seconds| **seconds);
    comm.all_reduce(Control::BatchSeconds.tag(), &mut sums)?;
    seconds.iter_mut().zip(sums).for_each(|(seconds, sum)| **seconds = sum / comm.size() as f64);
    let counts = [
        &mut batches.sampled_edges,
        &mut batches.input_nodes,
        &mut batches.computed_nodes,
        &mut fetches.remote_rows,
        &mut fetches.fetched_rows,
        &mut fetches.loaded_rows,
    ];
    let own = counts.each_ref().map(|count| **count);
    let all = comm.all_gather(Control::BatchCounts.tag(), Message::of(&own))?;
    for (i, count) in counts.into_iter().enumerate() {
        *count = 0;
        for message in &all {
            *count += message.expect::<u64>(own.len())?[i];
        }
    }
    Ok((batches, fetches))
}
