//! Phases of an epoch, their roofs, and the roofline of the epoch.

use halograph_kernels::work::{Kind, Work};
use serde::Serialize;

use super::limits::{Rate, amount};
use super::machine::Machine;
use crate::summary::BatchTotals;

/// All calls of a kernel at one shape in an epoch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Phase {
    /// Kernel.
    pub kernel: &'static str,
    /// Kind of the roof: `product` (GEMM), `gather` or `stream`.
    pub kind: &'static str,
    /// Sizes; empty for streams, whose sizes are merged.
    pub shape: String,
    /// Number of calls.
    pub count: u64,
    /// Seconds of all calls.
    pub seconds: f64,
    /// FLOP (products) or bytes (gathers and streams).
    pub amount: u64,
    /// `FLOP` or `B`.
    pub unit: &'static str,
    /// FLOP per byte, for products. Kernels do not count the FLOP of gathers and streams.
    pub arithmetic_intensity: Option<f64>,
    /// `compute` or `bandwidth`.
    pub bound: &'static str,
    /// Seconds of all calls at the roof, i.e. at the measured rate.
    pub limit_seconds: f64,
    /// `limit_seconds / seconds`; above 1 for gathers that profit from locality.
    pub share: f64,
    /// Bytes of the largest matrix that rows are gathered from.
    #[serde(skip)]
    set_bytes: usize,
}

/// Collects the phases of an epoch.
#[derive(Debug)]
pub(super) struct Phases {
    /// Arithmetic intensity above which work is compute-bound.
    ridge_point: f64,
    phases: Vec<Phase>,
}

impl Phases {
    pub(super) fn new(ridge_point: f64) -> Self {
        Phases { ridge_point, phases: Vec::new() }
    }

    /// Adds a call of a kernel that takes `limit` seconds at its roof.
    pub(super) fn add(&mut self, work: &Work, limit: f64) {
        let new = self.empty_phase(work);
        let amount = amount(&work.cost).0;
        let same = |p: &Phase| (p.kernel, &p.shape) == (new.kernel, &new.shape);
        let at = self.phases.iter().position(same).unwrap_or_else(|| {
            self.phases.push(new);
            self.phases.len() - 1
        });
        let phase = &mut self.phases[at];
        phase.count += 1;
        phase.seconds += work.seconds;
        phase.amount += amount;
        phase.limit_seconds += limit;
        phase.share = ratio(phase.limit_seconds, phase.seconds);
    }

    /// Returns a phase without calls for work like this.
    fn empty_phase(&self, Work { kernel, cost, .. }: &Work) -> Phase {
        let (kind, shape, set_bytes) = describe(cost.kind);
        let arithmetic_intensity = (cost.flops > 0).then(|| ratio(cost.flops as f64, cost.bytes as f64));
        let is_compute_bound = arithmetic_intensity.is_some_and(|intensity| intensity > self.ridge_point);
        Phase {
            kernel,
            kind,
            shape,
            count: 0,
            seconds: 0.0,
            amount: 0,
            unit: amount(cost).1,
            arithmetic_intensity,
            bound: if is_compute_bound { "compute" } else { "bandwidth" },
            limit_seconds: 0.0,
            share: 0.0,
            set_bytes,
        }
    }
}

/// Returns kind, sizes as text, and the bytes of the matrix that is gathered from.
fn describe(kind: Kind) -> (&'static str, String, usize) {
    match kind {
        Kind::Product { m, k, n } => ("product", format!("{m} x {k} x {n}"), 0),
        Kind::Outer { rows, m, n } => ("product", format!("{m} x {rows} x {n}"), 0),
        Kind::Gather { entries, row_bytes, set_bytes, .. } => {
            let set = set_bytes as f64 / (1 << 20) as f64;
            ("gather", format!("{entries} rows of {row_bytes} B from {set:.1} MiB"), set_bytes)
        }
        Kind::Stream { .. } => ("stream", String::new(), 0),
    }
}

/// Returns `a / b`; 0 if `b` is 0.
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// An epoch compared with its roofline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BenchReport {
    /// Machine.
    pub machine: Machine,
    /// Threads.
    pub threads: usize,
    /// Rates that characterise the machine.
    pub rates: Vec<Rate>,
    /// Arithmetic intensity in FLOP/B above which work is compute-bound.
    pub ridge_point: f64,
    /// Seconds of every timed epoch, in order.
    pub epoch_seconds: Vec<f64>,
    /// Seconds of the median epoch; of an even number, the faster of the two in the middle. All other fields are about it.
    pub epoch_seconds_median: f64,
    /// Phases, the longest first.
    pub phases: Vec<Phase>,
    /// Seconds outside of kernels.
    pub rest_seconds: f64,
    /// Roofline: seconds of all phases at their roofs; a phase that is faster counts with its measured time.
    pub roofline_seconds: f64,
    /// `roofline_seconds / epoch_seconds_median`.
    pub share: f64,
    /// Where the time goes, in one sentence.
    pub limited_by: String,
    /// Fraction of CPU time that other processes used during the epochs, if the system reports it.
    pub others_share: Option<f64>,
    /// Sampled batches, of strategies that have them. Kernels of similar sizes are one phase then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchRates>,
}

/// Sampled batches: means over all epochs, warm-up included, and the rate of sampling alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BatchRates {
    /// Batches per epoch.
    pub batches: u64,
    /// Sampled edges per epoch.
    pub sampled_edges: u64,
    /// Input nodes per epoch: distinct nodes of a batch, summed over batches.
    pub input_nodes: u64,
    /// Seconds of sampling per epoch, summed over threads, overlapped with computation.
    pub sampling_seconds: f64,
    /// Seconds of gathering input rows per epoch.
    pub gather_seconds: f64,
    /// Seconds of forward and backward per epoch.
    pub compute_seconds: f64,
    /// Exposed sampling time: seconds per epoch in which the training thread waited for a batch or sampled one itself.
    pub wait_seconds: f64,
    /// Sampled edges per second of all threads, if they do nothing else.
    pub sampling_alone_edges_per_second: f64,
}

impl BatchRates {
    /// Divides totals by the number of epochs.
    pub(super) fn new(alone: f64, totals: &BatchTotals, epochs: u64) -> Self {
        let (count, share) = (epochs.max(1), 1.0 / epochs.max(1) as f64);
        BatchRates {
            batches: totals.batches / count,
            sampled_edges: totals.sampled_edges / count,
            input_nodes: totals.input_nodes / count,
            sampling_seconds: totals.sampling_seconds * share,
            gather_seconds: totals.gather_seconds * share,
            compute_seconds: totals.compute_seconds * share,
            wait_seconds: totals.wait_seconds * share,
            sampling_alone_edges_per_second: alone,
        }
    }
}

impl BenchReport {
    pub(super) fn new(
        machine: Machine,
        threads: usize,
        rates: Vec<Rate>,
        epoch_seconds: Vec<f64>,
        seconds: f64,
        Phases { ridge_point, mut phases }: Phases,
    ) -> Self {
        phases.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let rest_seconds = seconds - phases.iter().map(|p| p.seconds).sum::<f64>();
        let roofline_seconds = phases.iter().map(|p| p.limit_seconds.min(p.seconds)).sum();
        let limited_by = limited_by(&phases, machine.cache_bytes, seconds);
        BenchReport {
            machine,
            threads,
            rates,
            ridge_point,
            epoch_seconds,
            epoch_seconds_median: seconds,
            phases,
            rest_seconds,
            roofline_seconds,
            share: ratio(roofline_seconds, seconds),
            limited_by,
            others_share: None,
            batches: None,
        }
    }
}

/// Returns the name of a group of phases.
fn group_of(phase: &Phase, cache: Option<u64>) -> &'static str {
    match (phase.kind, cache) {
        ("product", _) => "GEMM",
        ("gather", Some(cache)) if phase.set_bytes as u64 > cache => "gathers from DRAM",
        ("gather", Some(_)) => "gathers from cache",
        ("gather", None) => "gathers",
        _ => "streams",
    }
}

/// Returns one sentence: for each group of phases, its fraction of the epoch and of its roof.
fn limited_by(phases: &[Phase], cache: Option<u64>, seconds: f64) -> String {
    let mut groups: Vec<(&str, f64, f64)> = Vec::new();
    for phase in phases {
        let name = group_of(phase, cache);
        match groups.iter_mut().find(|group| group.0 == name) {
            Some(group) => (group.1, group.2) = (group.1 + phase.seconds, group.2 + phase.limit_seconds),
            None => groups.push((name, phase.seconds, phase.limit_seconds)),
        }
    }
    groups.sort_by(|a, b| b.1.total_cmp(&a.1));
    let rest = seconds - groups.iter().map(|group| group.1).sum::<f64>();
    let percent = |part: f64, whole: f64| format!("{:.0} %", 100.0 * ratio(part, whole));
    let words = groups.iter().enumerate().map(|(i, &(name, time, limit))| {
        let (of_epoch, of_roof) = (percent(time, seconds), percent(limit, time));
        let words = if i == 0 { (" of the epoch", " of the roof") } else { ("", "") };
        format!("{name}: {of_epoch}{} at {of_roof}{}", words.0, words.1)
    });
    let rest = format!("outside kernels: {}", percent(rest, seconds));
    words.chain([rest]).collect::<Vec<_>>().join("; ")
}

/// Speedup of several threads over one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ThreadScaling {
    /// Seconds of the median epoch on one thread.
    pub one_thread_seconds: f64,
    /// Roofline on one thread.
    pub one_thread_roofline_seconds: f64,
    /// Fraction of the roofline on one thread.
    pub one_thread_share: f64,
    /// Speedup of the epoch.
    pub time_ratio: f64,
    /// Speedup of the roofline.
    pub roofline_ratio: f64,
    /// Parallel efficiency against the roofline: `time_ratio / roofline_ratio`.
    pub quotient: f64,
}

impl ThreadScaling {
    pub(super) fn of(one: &BenchReport, many: &BenchReport) -> Self {
        let time_ratio = ratio(one.epoch_seconds_median, many.epoch_seconds_median);
        let roofline_ratio = ratio(one.roofline_seconds, many.roofline_seconds);
        ThreadScaling {
            one_thread_seconds: one.epoch_seconds_median,
            one_thread_roofline_seconds: one.roofline_seconds,
            one_thread_share: one.share,
            time_ratio,
            roofline_ratio,
            quotient: ratio(time_ratio, roofline_ratio),
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

    /// Two products of one shape, a gather from DRAM above its roof, two streams of different sizes.
    fn report() -> BenchReport {
        let mut phases = Phases::new(0.5);
        let product = Cost::product([5, 2, 3], 4);
        phases.add(&work("product", product, 2.0), 1.5);
        phases.add(&work("product", product, 2.0), 1.5);
        phases.add(&work("aggregation", gather(5000), 3.0), 6.0);
        phases.add(&work("tail", Cost::stream(8, 8), 1.0), 0.25);
        phases.add(&work("tail", Cost::stream(4, 4), 1.0), 0.25);
        let cache_bytes = Some(1000);
        let machine = Machine { cpu: "abacus".into(), cores: 1, simd: "beads", cache_bytes };
        BenchReport::new(machine, 1, Vec::new(), vec![10.0], 10.0, phases)
    }

    #[test]
    fn calls_of_one_shape_are_one_phase() {
        let report = report();
        let seen: Vec<_> = report.phases.iter().map(|p| (p.kernel, p.count, p.seconds, p.amount)).collect();
        assert_eq!(seen, [("product", 2, 4.0, 120), ("aggregation", 1, 3.0, 640), ("tail", 2, 2.0, 24)]);
        assert_eq!(report.phases.iter().map(|p| p.share).collect::<Vec<_>>(), [0.75, 2.0, 0.25]);
        assert_eq!(report.rest_seconds, 1.0);
    }

    #[test]
    fn products_above_the_ridge_point_are_compute_bound() {
        let phase = |ridge_point: f64, cost: Cost| {
            let mut phases = Phases::new(ridge_point);
            phases.add(&work("kernel", cost, 1.0), 1.0);
            (phases.phases[0].arithmetic_intensity, phases.phases[0].bound)
        };
        // 2 * 5 * 2 * 3 FLOP; 10 + 6 + 15 numbers of 4 bytes.
        let (product, intensity) = (Cost::product([5, 2, 3], 4), 60.0 / 124.0);
        assert_eq!(phase(0.4, product), (Some(intensity), "compute"));
        assert_eq!(phase(0.5, product), (Some(intensity), "bandwidth"));
        assert_eq!(phase(0.0, Cost::stream(8, 8)), (None, "bandwidth"));
    }

    #[test]
    fn phases_above_their_roof_do_not_offset_others() {
        let report = report();
        assert_eq!((report.roofline_seconds, report.share), (6.5, 0.65));
    }

    #[test]
    fn limited_by_lists_groups_by_time() {
        assert_eq!(
            report().limited_by,
            "GEMM: 40 % of the epoch at 75 % of the roof; gathers from DRAM: 30 % at 200 %; \
             streams: 20 % at 25 %; outside kernels: 10 %"
        );
    }

    #[test]
    fn efficiency_is_speedup_over_that_of_the_roofline() {
        let many = report();
        let one = BenchReport { epoch_seconds_median: 18.0, roofline_seconds: 13.0, ..many.clone() };
        let scaling = ThreadScaling::of(&one, &many);
        assert_eq!((scaling.time_ratio, scaling.roofline_ratio, scaling.quotient), (1.8, 2.0, 0.9));
    }
}
