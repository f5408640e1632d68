//! What is said of an epoch: its phases, their limits, and what limits all of it.

use halograph_kernels::work::{Kind, Work};
use serde::Serialize;

use super::limits::{Rate, amount};
use super::machine::Machine;

/// All calls of one kernel on one shape in an epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// The kernel.
    pub kernel: &'static str,
    /// What limits it: `product`, `gather` or `stream`.
    pub kind: &'static str,
    /// What it works on; of streams, whose sizes are put together, nothing.
    pub shape: String,
    /// Number of calls.
    pub count: u64,
    /// Seconds of all of them.
    pub seconds: f64,
    /// Operations (products) or bytes (the others).
    pub amount: u64,
    /// `FLOP` or `B`.
    pub unit: &'static str,
    /// Seconds they would take at the rates of the machine.
    pub limit_seconds: f64,
    /// `limit_seconds / seconds`. More than 1: faster than a random order lets expect.
    pub share: f64,
    /// Bytes of the largest matrix that rows were gathered from.
    #[serde(skip)]
    set_bytes: usize,
}

/// Phases of an epoch while they are collected.
#[derive(Debug, Default)]
pub(super) struct Phases(Vec<Phase>);

impl Phases {
    /// One more piece of work, which takes `limit` seconds at least.
    pub(super) fn add(&mut self, work: &Work, limit: f64) {
        let (kind, shape, set_bytes) = describe(work.cost.kind);
        let (amount, unit) = amount(&work.cost);
        let same = |p: &&mut Phase| (p.kernel, &p.shape) == (work.kernel, &shape);
        let phase = match self.0.iter_mut().find(same) {
            Some(phase) => phase,
            None => {
                let (count, seconds, limit_seconds, share) = (0, 0.0, 0.0, 0.0);
                let kernel = work.kernel;
                self.0.push(Phase {
                    kernel,
                    kind,
                    shape,
                    count,
                    seconds,
                    amount: 0,
                    unit,
                    limit_seconds,
                    share,
                    set_bytes,
                });
                self.0.last_mut().expect("just pushed")
            }
        };
        phase.count += 1;
        phase.seconds += work.seconds;
        phase.amount += amount;
        phase.limit_seconds += limit;
        phase.share = share(phase.limit_seconds, phase.seconds);
    }
}

/// The kind, a name for the sizes, and those of the matrix that is gathered from.
fn describe(kind: Kind) -> (&'static str, String, usize) {
    match kind {
        Kind::Product { m, k, n } => ("product", format!("{m} x {k} x {n}"), 0),
        Kind::Outer { rows, m, n } => ("product", format!("{m} x {rows} x {n}"), 0),
        Kind::Gather { entries, row_bytes, set_bytes, .. } => {
            let set = set_bytes as f64 / (1 << 20) as f64;
            ("gather", format!("{entries} rows of {row_bytes} B out of {set:.1} MiB"), set_bytes)
        }
        Kind::Stream { .. } => ("stream", String::new(), 0),
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// An epoch held to the machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Threads that were used.
    pub threads: usize,
    /// What it can do.
    pub rates: Vec<Rate>,
    /// Seconds of every epoch that counts, in their order.
    pub epoch_seconds: Vec<f64>,
    /// Seconds of the median one, which the rest is about; of two in the middle the faster.
    pub epoch_seconds_median: f64,
    /// Its phases, the longest first.
    pub phases: Vec<Phase>,
    /// Seconds in no phase.
    pub rest_seconds: f64,
    /// Seconds that the phases would take at the rates of the machine; one that is faster counts with its own time.
    pub roofline_seconds: f64,
    /// `roofline_seconds / epoch_seconds_median`.
    pub share: f64,
    /// What limits the epoch, in words.
    pub limited_by: String,
    /// The share of this machine's CPU time that went to others meanwhile, where the system tells.
    pub others_share: Option<f64>,
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        threads: usize,
        rates: Vec<Rate>,
        epoch_seconds: Vec<f64>,
        seconds: f64,
        Phases(mut phases): Phases,
    ) -> Self {
        phases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let rest_seconds = seconds - phases.iter().map(|p| p.seconds).sum::<f64>();
        let roofline_seconds = phases.iter().map(|p| p.limit_seconds.min(p.seconds)).sum();
        let limited_by = limited_by(&phases, machine.cache_bytes, seconds);
        Report {
            machine,
            threads,
            rates,
            epoch_seconds,
            epoch_seconds_median: seconds,
            phases,
            rest_seconds,
            roofline_seconds,
            share: share(roofline_seconds, seconds),
            limited_by,
            others_share: None,
        }
    }
}

/// What phases of one sort are called.
fn sort_of(phase: &Phase, cache: Option<u64>) -> &'static str {
    match (phase.kind, cache) {
        ("product", _) => "products",
        ("gather", Some(cache)) if phase.set_bytes as u64 > cache => "gathers from memory",
        ("gather", Some(_)) => "gathers from cache",
        ("gather", None) => "gathers",
        _ => "streams",
    }
}

/// One sentence: each sort of phases with its part of the time and how close it is to its limit.
fn limited_by(phases: &[Phase], cache: Option<u64>, seconds: f64) -> String {
    let mut sorts: Vec<(&str, f64, f64)> = Vec::new();
    for phase in phases {
        let name = sort_of(phase, cache);
        match sorts.iter_mut().find(|sort| sort.0 == name) {
            Some(sort) => (sort.1, sort.2) = (sort.1 + phase.seconds, sort.2 + phase.limit_seconds),
            None => sorts.push((name, phase.seconds, phase.limit_seconds)),
        }
    }
    sorts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rest = seconds - sorts.iter().map(|sort| sort.1).sum::<f64>();
    let percent = |part: f64, whole: f64| format!("{:.0} %", 100.0 * share(part, whole));
    let words = sorts.iter().enumerate().map(|(i, &(name, time, limit))| {
        let (part, near) = (percent(time, seconds), percent(limit, time));
        let words = if i == 0 { (" of the time", " of their limit") } else { ("", "") };
        format!("{name}: {part}{} at {near}{}", words.0, words.1)
    });
    let rest = format!("all else: {}", percent(rest, seconds));
    words.chain([rest]).collect::<Vec<_>>().join("; ")
}

/// One thread against several.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Comparison {
    /// Seconds of the median epoch on one thread.
    pub one_thread_seconds: f64,
    /// Its roofline.
    pub one_thread_roofline_seconds: f64,
    /// Its share of that.
    pub one_thread_share: f64,
    /// How many times faster the threads are together.
    pub time_ratio: f64,
    /// How many times faster the rooflines say they can be.
    pub roofline_ratio: f64,
    /// The first by the second.
    pub quotient: f64,
}

impl Comparison {
    pub(super) fn of(one: &Report, many: &Report) -> Self {
        let time_ratio = share(one.epoch_seconds_median, many.epoch_seconds_median);
        let roofline_ratio = share(one.roofline_seconds, many.roofline_seconds);
        Comparison {
            one_thread_seconds: one.epoch_seconds_median,
            one_thread_roofline_seconds: one.roofline_seconds,
            one_thread_share: one.share,
            time_ratio,
            roofline_ratio,
            quotient: share(time_ratio, roofline_ratio),
        }
    }
}

#[cfg(test)]
mod tests {
    use halograph_kernels::work::Cost;

    use super::*;

    fn work(kernel: &'static str, cost: Cost, seconds: f64) -> Work {
        Work { kernel, cost, seconds }
    }

    fn gather(set_bytes: usize) -> Cost {
        let kind = Kind::Gather { rows: 1, entries: 10, row_bytes: 64, set_bytes };
        Cost { kind, flops: 0, bytes: 640 }
    }

    /// Two products of one shape, a gather from memory that beats its limit, two streams of different sizes.
    fn report() -> Report {
        let mut phases = Phases::default();
        let product = Cost::product([5, 2, 3], 4);
        phases.add(&work("product", product, 2.0), 1.5);
        phases.add(&work("product", product, 2.0), 1.5);
        phases.add(&work("aggregation", gather(5000), 3.0), 6.0);
        phases.add(&work("tail", Cost::stream(8, 8), 1.0), 0.25);
        phases.add(&work("tail", Cost::stream(4, 4), 1.0), 0.25);
        let cache_bytes = Some(1000);
        let machine = Machine { cpu: "abacus".into(), cores: 1, simd: "beads", cache_bytes };
        Report::new(machine, 1, Vec::new(), vec![10.0], 10.0, phases)
    }

    #[test]
    fn phases_are_put_together_and_add_up() {
        let report = report();
        let seen: Vec<_> = report.phases.iter().map(|p| (p.kernel, p.count, p.seconds, p.amount)).collect();
        assert_eq!(seen, [("product", 2, 4.0, 120), ("aggregation", 1, 3.0, 640), ("tail", 2, 2.0, 24)]);
        assert_eq!(report.phases.iter().map(|p| p.share).collect::<Vec<_>>(), [0.75, 2.0, 0.25]);
        assert_eq!(report.rest_seconds, 1.0);
    }

    #[test]
    fn a_phase_that_beats_its_limit_hides_no_other() {
        let report = report();
        assert_eq!((report.roofline_seconds, report.share), (6.5, 0.65));
    }

    #[test]
    fn a_sentence_says_what_limits() {
        assert_eq!(
            report().limited_by,
            "products: 40 % of the time at 75 % of their limit; gathers from memory: 30 % at 200 %; \
             streams: 20 % at 25 %; all else: 10 %"
        );
    }

    #[test]
    fn scaling_is_held_to_that_of_the_rooflines() {
        let many = report();
        let one = Report { epoch_seconds_median: 18.0, roofline_seconds: 13.0, ..many.clone() };
        let scaling = Comparison::of(&one, &many);
        assert_eq!((scaling.time_ratio, scaling.roofline_ratio, scaling.quotient), (1.8, 2.0, 0.9));
    }
}
