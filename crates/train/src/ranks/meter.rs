//! What ranks send and wait for.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use halograph_comm::{Comm, Counters, Purpose, Tag};

use crate::error::Result;
use crate::memory;
use crate::strategy::partition::Rank;
use crate::summary::Traffic;

/// What a rank sent and waited for in its epochs.
pub(super) struct Meter {
    rank: Rank,
    /// Sent in the last epoch.
    last: Counters,
    seconds: Duration,
    waited: Duration,
    hidden: Duration,
    /// Of the process.
    cpu: Duration,
}

impl Meter {
    pub fn new(rank: &Rank) -> Self {
        Meter {
            rank: rank.clone(),
            last: Counters::default(),
            seconds: Duration::ZERO,
            waited: Duration::ZERO,
            hidden: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    /// Does the work of an epoch.
    pub fn measure<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let hidden = || Duration::from_nanos(self.rank.hidden.load(Ordering::Relaxed));
        let comm = &self.rank.comm;
        let (before, start) = ((comm.sent(), comm.waited(), hidden(), cpu()), Instant::now());
        let result = work()?;
        self.seconds += start.elapsed();
        let after = (comm.sent(), comm.waited(), hidden(), cpu());
        self.last = after.0.since(&before.0);
        self.waited += after.1 - before.1;
        self.hidden += after.2 - before.2;
        self.cpu += after.3.saturating_sub(before.3);
        Ok(result)
    }

    /// The numbers of all ranks together.
    pub fn gather(&self, comm: &Comm) -> Result<Traffic> {
        let ranks = comm.size() as f64;
        let waited = self.waited.as_secs_f64();
        let computed = self.seconds.as_secs_f64() - waited;
        let mut slowest = vec![0.0; comm.size()];
        slowest[comm.rank()] = computed;
        let resident = memory::peak_rss().unwrap_or(0) as f64;
        let [hidden, cpu] = [self.hidden, self.cpu].map(|time| time.as_secs_f64());
        let mut numbers = vec![waited, hidden, self.last.payload_messages() as f64, resident, cpu];
        for sent in [&self.last, &comm.sent()] {
            numbers.extend(Purpose::ALL.map(|purpose| sent.bytes(purpose) as f64));
        }
        comm.all_reduce(Tag::new(Purpose::Control).slot(7), &mut numbers)?;
        comm.all_reduce(Tag::new(Purpose::Control).slot(8), &mut slowest)?;
        let compute = slowest.iter().sum::<f64>() / ranks;
        let (last, total) = numbers[5..].split_at(Purpose::ALL.len());
        let once = |p: Purpose| matches!(p, Purpose::Evaluation | Purpose::Setup);
        let counted = Purpose::ALL.into_iter().filter(|&p| p != Purpose::Control);
        let bytes = |p: Purpose| if once(p) { total } else { last }[p as usize] as u64;
        Ok(Traffic {
            transport: "",
            wait_seconds: numbers[0] / ranks,
            hidden_seconds: numbers[1] / ranks,
            compute_seconds: compute,
            // Where nothing was computed all are alike.
            balance: if compute > 0.0 { slowest.into_iter().fold(0.0, f64::max) / compute } else { 1.0 },
            messages_per_epoch: numbers[2] as u64,
            bytes_per_epoch: counted.clone().filter(|&p| !once(p)).map(bytes).sum(),
            bytes_by_tag: counted.map(|p| (p.name().to_string(), bytes(p))).collect(),
            peak_rss_bytes: Some(numbers[3] as u64),
            cpu_seconds: Some(numbers[4]),
            parts: Vec::new(),
        })
    }
}

/// CPU time that this process has had.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
